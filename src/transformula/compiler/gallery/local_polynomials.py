r"""Local polynomials joined by a softmax partition of unity, in two softmax layers (after Shi and Liao 2605.08811).

Cut the box into cells of width h and approximate f on each by a polynomial p_j of degree m. A softmax head with sharp
cells (`partition`) has weights w_j(x) that are next to zero outside cell j and add up to 1, so

    |Σ_j w_j(x) p_j(x) − f(x)| ≤ max_j |p_j − f| on the (slightly widened) cells = O(h^{m+1}),

with O(ε^{−d/(m+1)}) tokens. The paper has α-Hölder functions, α ≤ 1, for which constants do (m = 0), and O(ε^{−d/α})
parameters; with polynomials the same holds for every smoothness α = m + 1.

* *Layer 1.* One head over the cells reads the coefficients c_i(x) = Σ_j w_j(x) c_ji of all basis functions at once;
  beside it powers (ξ·x)^s are tables.
* *Layer 2.* The products c_i · (ξ·x)^s, by squares: ab = ((a + b)² − (a − b)²)/4.

The basis are the powers of the lattice directions {ξ : |ξ| = s} (`ridge_directions`), as many as there are monomials,
each a function of one linear form. Coefficients are least squares at Chebyshev points of the cells. The layers combine
the coefficients as a circuit with inputs x and c, made by `circuit`; there is no feed-forward layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from flint import fmpq

from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built, Findings
from transformula.compiler.circuit import circuits_of
from transformula.compiler.constructions import LOCAL
from transformula.compiler.gallery.local_cells import CellPlan
from transformula.compiler.prepare import Prepared
from transformula.compiler.softmax_layout import HeadSpec, Tokens, assembled, places
from transformula.errors import InputError, NotProvenError, closer
from transformula.kernel.enclosures.coverings import products
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.gallery.local_rule import MAX_COLUMNS, ORDERS, column_names
from transformula.kernel.structures.network_wires import HeadTable
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.runtime.circuit_reading import read_circuit


def local_attempts(task: BuildTask, degree: int | None = None) -> Iterator[Attempt]:
    """Models with ever finer cells, of the degree that takes the fewest numbers unless one is asked for."""
    formula, eps, dtype = task.formula, task.eps, task.options.dtype
    names = _used(formula)
    if taken := set(formula.box.variables) & set(column_names(MAX_COLUMNS)):
        raise InputError(f"{min(taken)} is a name that coefficients use inside: give the variable another name")
    if task.ground.steps:
        raise NotProvenError(f"{formula} has a removable singularity on the box: use lookup, partition or circuit here")
    plan = _planned(formula, names, eps, dtype, policy.DEGREES if degree is None else (degree,))
    for group, finer in enumerate(policy.FINER_LOCAL_CELLS):
        cut = plan if group == 0 else CellPlan.fine(formula, names, plan.degree, policy.CELL_SHARE * eps / finer, dtype)
        assert cut is not None, "nobody has said how many numbers it may take"
        both = Prepared(cut.formula())
        inputs = both.formula.box.variables
        circuits = circuits_of(both, policy.CIRCUIT_SHARE * eps, dtype, Findings(), 1, inputs, enough=eps)
        for attempt in islice(circuits, policy.CIRCUITS_EACH):
            yield Attempt(LOCAL, partial(_built, cut, attempt), group)


def _planned(formula: Formula, names: tuple[str, ...], eps: float, dtype: str, degrees: Sequence[int]) -> CellPlan:
    """The plan with the fewest numbers, of those that are not too noisy for the format if there are any."""
    best: CellPlan | None = None
    failure: NotProvenError | None = None
    for degree in degrees:
        quiet = best is not None and best.noise <= policy.NOISE * eps
        try:
            found = CellPlan.fine(
                formula, names, degree, policy.CELL_SHARE * eps, dtype, best.numbers if best and quiet else math.inf
            )
        except NotProvenError as error:
            failure = closer(error, failure)
            continue
        if best is None or (found is not None and _worth(found, eps) < _worth(best, eps)):
            best = found
    if best is None:
        assert failure is not None, "there is a plan, or a reason why not"
        raise failure
    return best


def _worth(plan: CellPlan, eps: float) -> tuple[float, int]:
    return max(plan.noise / eps, policy.NOISE), plan.numbers


def _built(cut: CellPlan, attempt: Attempt) -> Built:
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


def joined(
    built: Built,
    box: Box,
    axes: Sequence[str],
    slopes: FloatArray,
    offsets: FloatArray,
    columns: FloatArray,
    stated: dict[str, Any],
) -> Built:
    """The model whose inputs are the box's variables.

    Parameters
    ----------
    built : Built
        A circuit of one data token whose inputs are the variables and then the columns.
    axes : sequence of str
        The variables that the cells are cut along.
    slopes, offsets, columns
        Of the cells' tokens: tokens × axes, and tokens × columns.
    stated : dict
        What model.json says of the local models, but for the head.
    """
    circuit, names, count = read_circuit(built.weights), built.weights.slots, columns.shape[1]
    if any(block.units or block.bias for block in circuit.blocks):
        raise NotProvenError("the products of local polynomials would need a feed-forward layer")
    local = column_names(count)
    slot = {k: name.removeprefix("x.") if name.removeprefix("x.") in local else name for k, name in enumerate(names)}
    reach = tuple(max(map(abs, box.floats()[box.variables.index(name)])) for name in axes)
    reads = tuple({f"x.{name}": fmpq(1)} for name in axes)
    tables = [Tokens(slopes, offsets, columns, "coefficient")]
    heads = [HeadSpec(0, 0, reads, reach, tuple(local))]
    ready = dict.fromkeys(local, 1)
    known: dict[HeadTable, int] = {}
    old: dict[tuple[int, int], int] = {}
    for b, block in enumerate(circuit.blocks):
        for h, head in enumerate(block.heads):
            if head.table not in known:
                known[head.table] = len(tables)
                tables.append(Tokens(head.slopes[:, None], head.offsets[:, None], head.values[:, None]))
            form = {slot[k]: v for k, v in head.form.items()}
            when = max((ready.get(name, 0) for name in form), default=0)
            ready[slot[head.slot]] = when + 1
            old[b, h] = len(heads)
            heads.append(HeadSpec(when, known[head.table], (form,), (2.0,), (slot[head.slot],)))
    rows = zip(circuit.readout, circuit.bias, strict=True)
    readout = [({slot[k]: v for k, v in form.items()}, bias) for form, bias in rows]
    assert built.circuit is not None
    at = places(heads)
    wires = [_moved(wire, old, at) for wire in built.circuit["wires"]]
    data = {**built.circuit, "wires": wires, "local": {"head": at[0][1], **stated}}
    weights = assembled(box.variables, tables, heads, readout, built.weights.dtype)
    built.evidence.follow = False  # the errors of so shallow a circuit need not be followed
    return Built(weights, data, built.evidence)


def _moved(wire: dict[str, Any], old: dict[tuple[int, int], int], at: list[tuple[int, int]]) -> dict[str, Any]:
    """A stored wire with its new place."""
    if "from" not in wire:
        return wire
    block, head, column = wire["from"]
    return {**wire, "from": [*at[old[block, head]], column]}
