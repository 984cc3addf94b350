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
each a function of one linear form. Coefficients are least squares at Chebyshev points, in coordinates of the cell, and
then written in powers of linear forms that are measured from about the middle of the box, the same for all cells. The
layers compute a circuit of x and the coefficients c, made by `circuit`; there is no feed-forward layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
from flint import arb, fmpq

from transformula.budget import checkpoint, spend
from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built, Findings
from transformula.compiler.circuit import circuits_of
from transformula.compiler.constructions import LOCAL
from transformula.compiler.layout import Design, HeadSpec, TableTokens, assembled, places
from transformula.compiler.partition import Floats, sharp_scores
from transformula.compiler.prepare import Prepared
from transformula.compiler.refusal import Coarse, undefined_on_box
from transformula.compiler.ridge_directions import compositions
from transformula.compiler.table_reading import read_circuit
from transformula.errors import InputError, NotProvenError, closer
from transformula.formula.evaluation import evaluate
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.regions import products
from transformula.kernel.enclosures.taylor_models import TINY
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.gallery.local_rule import MAX_COLUMNS, ORDERS, column_names, local_error, with_columns
from transformula.kernel.structures.network import HeadTable
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr, walk
from transformula.kernel.tables.cell_error import BITS, far_of, used_cells
from transformula.kernel.tables.table_error import SoftmaxTable


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
        cut = (
            plan if group == 0 else CellPlan.fine(formula, names, plan.degree, policy.TOTAL_SHARE * eps / finer, dtype)
        )
        assert cut is not None, "nobody has said how many numbers it may take"
        both = Prepared(cut.formula())
        inputs = both.formula.box.variables
        circuits = circuits_of(both, policy.MINOR_SHARE * eps, dtype, Findings(), 1, inputs, enough=eps)
        for attempt in circuits:
            yield Attempt(LOCAL, partial(_built, cut, attempt), group)


def _planned(formula: Formula, names: tuple[str, ...], eps: float, dtype: str, degrees: Sequence[int]) -> CellPlan:
    """The plan with the fewest numbers, of those that are not too noisy for the format if there are any."""
    best: CellPlan | None = None
    failure: NotProvenError | None = None
    for degree in degrees:
        quiet = best is not None and best.noise <= policy.NOISE * eps
        try:
            found = CellPlan.fine(
                formula, names, degree, policy.TOTAL_SHARE * eps, dtype, best.numbers if best and quiet else math.inf
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
    circuit = read_circuit(built.weights)
    names = built.weights.slots
    count = columns.shape[1]
    if any(block.units or block.bias for block in circuit.blocks):
        raise NotProvenError("the products of local polynomials would need a feed-forward layer")
    local = column_names(count)
    slot = {k: name.removeprefix("x.") if name.removeprefix("x.") in local else name for k, name in enumerate(names)}
    reach = tuple(max(map(abs, box.floats()[box.variables.index(name)])) for name in axes)
    reads = tuple({f"x.{name}": fmpq(1)} for name in axes)
    tables = [TableTokens(slopes, offsets, columns, kind="coefficient")]  # no other head sees its values
    heads = [HeadSpec(0, 0, reads, reach, tuple(local))]
    ready = dict.fromkeys(local, 1)
    known: dict[HeadTable, int] = {}
    old: dict[tuple[int, int], int] = {}
    for b, block in enumerate(circuit.blocks):
        for h, head in enumerate(block.heads):
            (table,), written = head.columns, slot[head.slots[0]]
            if table not in known:
                known[table] = len(tables)
                tables.append(TableTokens(head.slopes, head.offsets, head.values))
            form = {slot[k]: v for k, v in head.forms[0].items()}
            when = max((ready.get(name, 0) for name in form), default=0)
            ready[written] = when + 1
            old[b, h] = len(heads)
            heads.append(HeadSpec(when, known[table], (form,), (2.0,), (written,)))
    rows = zip(circuit.readout, circuit.bias, strict=True)
    readout = [({slot[k]: v for k, v in form.items()}, bias) for form, bias in rows]
    assert built.circuit is not None
    at = places([head.block for head in heads])
    wires = [_moved(wire, old, at) for wire in built.circuit["wires"]]
    data = {**built.circuit, "wires": wires, "local": {"head": at[0][1], **stated}}
    weights = assembled(Design(box.variables, tables, heads, readout), built.weights.dtype)
    built.evidence.follow = False  # the errors of so shallow a circuit need not be followed
    return Built(weights, data, built.evidence)


def _moved(wire: dict[str, Any], old: dict[tuple[int, int], int], at: list[tuple[int, int]]) -> dict[str, Any]:
    """A stored wire with its new place."""
    if "from" not in wire:
        return wire
    block, head, column = wire["from"]
    return {**wire, "from": [*at[old[block, head]], column]}


#: Numbers of a head and its slots.
_HEAD = 16


@dataclass(frozen=True, eq=False)
class CellPlan:
    """Cells, ``counts`` of them along each axis, and polynomials of one degree."""

    target: Formula
    names: tuple[str, ...]
    degree: int
    dtype: str
    counts: tuple[int, ...]

    @classmethod
    def fine(
        cls, formula: Formula, names: tuple[str, ...], degree: int, eps: float, dtype: str, most: float = math.inf
    ) -> CellPlan | None:
        """The fewest cells that meet the tolerance at sample points: the axis that helps most per token is cut finer.

        None if that would take more than ``most`` numbers.
        """
        plan = cls(formula, names, degree, dtype, (1,) * len(names))
        error = plan.measured
        while not (error <= eps and plan.proven <= eps):
            checkpoint()
            if not math.isfinite(error):
                raise undefined_on_box(formula)
            if plan.numbers > most:
                return None
            if plan.tokens * policy.MORE_CELLS > plan.most_tokens:
                raise Coarse(
                    f"polynomials of degree {degree} would need more than {plan.most_tokens} cells", error
                ).error()
            finer = [plan.cut(k) for k in range(len(names))]
            gains = [
                (math.log(max(error, TINY)) - math.log(max(p.measured, TINY))) / math.log(p.tokens / plan.tokens)
                for p in finer
            ]
            plan = finer[int(np.argmax(gains))]
            error = plan.measured
        return plan

    def cut(self, axis: int) -> CellPlan:
        """The plan with more cells along an axis."""
        counts = [max(n + 1, round(n * policy.MORE_CELLS)) if k == axis else n for k, n in enumerate(self.counts)]
        return CellPlan(self.target, self.names, self.degree, self.dtype, tuple(counts))

    @property
    def tokens(self) -> int:
        """Number of cells."""
        return math.prod(self.counts)

    @property
    def most_tokens(self) -> int:
        """Largest number of cells: of them, and of sample points that fit into memory."""
        points: int = (self.degree + 1 + policy.EXTRA_POINTS) ** len(self.names)
        return min(policy.MOST_TOKENS, policy.MOST_POINTS // points)

    @property
    def numbers(self) -> int:
        """Estimated count of stored numbers: tokens, and two heads for each product."""
        columns = len(self.target.outputs) * len(self.powers)
        return self.tokens * (2 * len(self.names) + 1 + columns) + 2 * _HEAD * columns

    @property
    def noise(self) -> float:
        """Estimated rounding: coefficients are rounded, and terms may cancel."""
        sizes = np.abs(self.columns).max(axis=0).reshape(len(self.target.outputs), -1)
        return float((sizes @ self.sizes).max() * np.finfo(self.dtype).eps * (self.tokens + 10))

    @cached_property
    def sizes(self) -> Floats:
        """The largest value of each power on the box."""
        reach = [max(abs(end - middle) for end in ends) for ends, middle in zip(self.sides, self.middles, strict=True)]
        return np.array([sum(xi * r for xi, r in zip(along, reach, strict=True)) ** s for along, s in self.powers])

    @cached_property
    def sides(self) -> list[tuple[float, float]]:
        """The ends of the axes."""
        ends = dict(zip(self.target.box.variables, self.target.box.floats(), strict=True))
        return [ends[name] for name in self.names]

    @cached_property
    def edges(self) -> list[Floats]:
        """Edges of the cells, for each axis."""
        return [np.linspace(*ends, n + 1) for ends, n in zip(self.sides, self.counts, strict=True)]

    @cached_property
    def powers(self) -> list[tuple[tuple[int, ...], int]]:
        """Directions with their powers, the constant first."""
        d = len(self.names)
        return [((0,) * d, 0), *((xi, s) for s in range(1, self.degree + 1) for xi in compositions(s, d))]

    @cached_property
    def middles(self) -> list[float]:
        """A point near the middle of the box, from which the arguments of powers are measured."""
        found = []
        for low, high in self.sides:
            step = 2.0 ** (math.floor(math.log2(high - low)) - 4)
            found.append(round((low + high) / 2 / step) * step)
        return found

    def terms(self, output: int) -> list[Expr]:
        """q_0 = 0, and q_i for each column that is used: those of other outputs are zero."""
        own, zero = len(self.powers), ex.number(0)
        basis = [self._power(*power) for power in self.powers]
        return [zero, *(basis[i % own] if i // own == output else zero for i in self.used)]

    @cached_property
    def used(self) -> list[int]:
        """The columns that are not zero throughout; the first if all are."""
        return np.flatnonzero(self.columns.any(axis=0)).tolist() or [0]

    def _power(self, direction: Sequence[int], power: int) -> Expr:
        if not power:
            return ex.number(1)
        terms = [ex.mul(ex.number(xi), ex.variable(n)) for xi, n in zip(direction, self.names, strict=True) if xi]
        shift = -sum(xi * Fraction(middle) for xi, middle in zip(direction, self.middles, strict=True))
        return ex.power(ex.add(*terms, ex.number(Fraction(shift))), ex.number(power))

    def formula(self) -> Formula:
        """The layers' formula of inputs and coefficients, on the box of both; other tokens hold zeros."""
        columns = self.columns[:, self.used]
        ends = zip(np.minimum(columns.min(axis=0), 0), np.maximum(columns.max(axis=0), 0), strict=True)
        terms = [self.terms(o) for o in range(len(self.target.outputs))]
        return with_columns(self.target.box, list(ends), terms)

    @cached_property
    def scores(self) -> tuple[list[Floats], list[Floats]]:
        """Slopes and offsets for each axis."""
        sides = zip(self.edges, self.sides, strict=True)
        axes = [sharp_scores(edges[1:-1], ends, self.dtype, self.tokens) for edges, ends in sides]
        return [slopes for slopes, _ in axes], [offsets for _, offsets in axes]

    @cached_property
    def proven(self) -> float:
        """The bound that the kernel will find on the cells."""
        slopes, offsets = map(tuple, self.scores)
        numbered = SoftmaxTable(slopes, offsets, np.arange(float(self.tokens)).reshape(self.counts))
        ends = [(arb(low), arb(high)) for low, high in self.sides]
        with precision(BITS):
            lower, upper, rows = used_cells(numbered, ends, far_of(self.tokens, policy.FAR_BITS[self.dtype] - 1))
        held = self.columns[rows.astype(int)][:, self.used]
        errors = [
            local_error(expr, self.terms(o), self.names, lower, upper, held)
            for o, expr in enumerate(self.target.outputs)
        ]
        return max(errors)

    @cached_property
    def fitted(self) -> tuple[list[Floats], float]:
        """For each output the coefficients of local monomials, cells in C order, and the largest error at points."""
        points = np.cos(np.linspace(0, math.pi, self.degree + 1 + policy.EXTRA_POINTS))
        local = products([points] * len(self.names))
        basis = np.stack([np.prod(local.T**e, axis=1) for e in self.exponents], axis=1)
        solve = np.linalg.pinv(basis)
        centre, radius = self.centres
        at = [centre[k] + radius[k] * local[k][:, None] for k in range(len(self.names))]
        found, worst = [], 0.0
        for expr in self.target.outputs:
            spend(0.02 * at[0].size * (sum(1 for _ in walk(expr)) + len(basis.T)))
            values = np.broadcast_to(evaluate(expr, self.names, at), at[0].shape)
            if not np.all(np.isfinite(values)):
                return [], math.inf
            found.append(solve @ values)
            worst = max(worst, float(np.abs(basis @ found[-1] - values).max()))
        return found, worst

    @property
    def measured(self) -> float:
        """The largest error at points of the cells, their ends among them."""
        return self.fitted[1]

    @cached_property
    def exponents(self) -> list[tuple[int, ...]]:
        """Exponents of the monomials, by degree."""
        every = product(range(self.degree + 1), repeat=len(self.names))
        return sorted((e for e in every if sum(e) <= self.degree), key=sum)

    @cached_property
    def centres(self) -> tuple[Floats, Floats]:
        """Middles of the cells, axes × cells in C order, and their half widths along each axis."""
        middles = products([(e[1:] + e[:-1]) / 2 for e in self.edges])
        return middles, np.array([(e[1] - e[0]) / 2 for e in self.edges])

    @cached_property
    def columns(self) -> Floats:
        """Coefficients of the powers of directions, cells × (outputs × powers), in the format."""
        centre, radius = self.centres
        shift = np.array(self.middles)[:, None] - centre  # (x − centre) = (x − middle) + shift
        changed = np.zeros((len(self.exponents), len(self.exponents), *centre.shape[1:]))
        for i, e in enumerate(self.exponents):
            for j, g in enumerate(self.exponents):
                if all(a >= b for a, b in zip(e, g, strict=True)):
                    ways = math.prod(map(math.comb, e, g)) / math.prod(r**a for r, a in zip(radius, e, strict=True))
                    changed[j, i] = ways * np.prod([s ** (a - b) for s, a, b in zip(shift, e, g, strict=True)], axis=0)
        powers = np.zeros((len(self.exponents), len(self.powers)))
        for i, (direction, s) in enumerate(self.powers):
            for j, g in enumerate(self.exponents):
                if sum(g) == s:
                    ways = math.factorial(s) / math.prod(map(math.factorial, g))
                    powers[j, i] = ways * math.prod(xi**a for xi, a in zip(direction, g, strict=True))
        parts = [np.linalg.solve(powers, np.einsum("jic,ic->jc", changed, local)).T for local in self.fitted[0]]
        for part in parts:  # what is next to nothing beside the others is left out, and with it two heads
            most = np.abs(part).max(axis=0) * self.sizes
            part[:, most <= policy.TABLE_FLOOR["float64"] * most.max()] = 0.0
        return np.concatenate(parts, axis=1).astype(self.dtype).astype(float)
