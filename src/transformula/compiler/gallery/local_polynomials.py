r"""Local polynomials joined by a softmax partition of unity, in two softmax layers (after Shi and Liao 2605.08811).

Cut the box into cells of width h and approximate f on each by a polynomial p_j of degree m. A softmax head with sharp
cells (`partition`) has weights w_j(x) that are next to zero outside cell j and add up to 1, so

    |Σ_j w_j(x) p_j(x) − f(x)| ≤ max_j |p_j − f| on the (slightly widened) cells = O(h^{m+1}),

with O(ε^{−d/(m+1)}) tokens. The paper has α-Hölder functions, α ≤ 1, for which constants do (m = 0), and O(ε^{−d/α})
parameters; with polynomials the same holds for every smoothness α = m + 1.

* *Layer 1.* One head over the cells reads the coefficients c_i(x) = Σ_j w_j(x) c_ji of all basis functions at once;
  beside it powers (ξ·x)^s are tables.
* *Layer 2.* The products c_i · (ξ·x)^s, by squares: ab = ((a + b)² − (a − b)²)/4.

The basis are the powers of the lattice directions {ξ : |ξ| = s} (`lattice`), as many as there are monomials, each a
function of one linear form. Coefficients are least squares at Chebyshev points of the cells. What the layers do with
the coefficients is a circuit with inputs x and c, made by `circuit`; there is no feed-forward layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built, Findings
from transformula.compiler.circuit import circuits_of
from transformula.compiler.constructions import LOCAL
from transformula.compiler.gallery.local_cells import Plan
from transformula.compiler.gallery.local_layout import joined
from transformula.compiler.prepare import Prepared
from transformula.errors import InputError, NotProvenError, closer
from transformula.kernel.enclosures.coverings import products
from transformula.kernel.gallery.local_rule import MAX_COLUMNS, ORDERS, column_names
from transformula.kernel.syntax.boxes import Formula

#: Degrees in the order they are tried: what would take more numbers than another is given up.
DEGREES = (2, 3, 1)
#: What part of the tolerance the cells may use, and the circuit (whose error counts three times); and how much noise is
#: no reason to look for another degree.
_CELLS, _CIRCUIT, _NOISE = 0.9, 0.025, 0.05
#: How much finer each attempt is, and circuits tried for each.
_FINER, _CIRCUITS = (1.0, 1.5, 3.0), 3


def local_attempts(task: BuildTask, degree: int | None = None) -> Iterator[Attempt]:
    """Models with ever finer cells, of the degree that takes the fewest numbers unless one is asked for."""
    formula, eps, dtype = task.formula, task.eps, task.options.dtype
    names = _used(formula)
    if taken := set(formula.box.variables) & set(column_names(MAX_COLUMNS)):
        raise InputError(f"{min(taken)} is a name that coefficients use inside: give the variable another name")
    if task.ground.steps:
        raise NotProvenError(f"{formula} has a removable singularity on the box: use lookup, partition or circuit here")
    plan = _planned(formula, names, eps, dtype, DEGREES if degree is None else (degree,))
    for group, finer in enumerate(_FINER):
        cut = plan if group == 0 else Plan.fine(formula, names, plan.degree, _CELLS * eps / finer, dtype)
        assert cut is not None, "nobody has said how many numbers it may take"
        both = Prepared(cut.formula())
        inputs = both.formula.box.variables
        circuits = circuits_of(both, _CIRCUIT * eps, dtype, Findings(), 1, inputs, enough=eps)
        for attempt in islice(circuits, _CIRCUITS):
            yield Attempt(LOCAL, partial(_built, cut, attempt), group)


def _planned(formula: Formula, names: tuple[str, ...], eps: float, dtype: str, degrees: Sequence[int]) -> Plan:
    """The plan with the fewest numbers, of those that are not too noisy for the format if there are any."""
    best: Plan | None = None
    failure: NotProvenError | None = None
    for degree in degrees:
        quiet = best is not None and best.noise <= _NOISE * eps
        try:
            found = Plan.fine(formula, names, degree, _CELLS * eps, dtype, best.numbers if best and quiet else math.inf)
        except NotProvenError as error:
            failure = closer(error, failure)
            continue
        if best is None or (found is not None and _worth(found, eps) < _worth(best, eps)):
            best = found
    if best is None:
        assert failure is not None, "there is a plan, or a reason why not"
        raise failure
    return best


def _worth(plan: Plan, eps: float) -> tuple[float, int]:
    return max(plan.noise / eps, _NOISE), plan.numbers


def _built(cut: Plan, attempt: Attempt) -> Built:
    outputs = range(len(cut.target.outputs))
    stated = {"bits": policy.FAR_BITS[cut.dtype] - 1, "models": [[str(q) for q in cut.terms(o)] for o in outputs]}
    slopes, offsets = (products(side).T for side in cut.scores)
    return joined(attempt.build(), cut.target.box, cut.names, slopes, offsets, cut.columns[:, cut.used], stated)


def _used(formula: Formula) -> tuple[str, ...]:
    """The variables that occur; at least one."""
    found = frozenset[str]().union(*(expr.names for expr in formula.outputs))
    names = tuple(name for name in formula.box.variables if name in found) or formula.box.variables[:1]
    if len(names) > max(ORDERS):
        raise InputError(
            f"the formula depends on {len(names)} variables; a grid of cells takes at most {max(ORDERS)}: use circuit"
        )
    return names
