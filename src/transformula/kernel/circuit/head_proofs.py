"""Bounds of one head: its table's error, the leak of other tokens, and its rounding.

*Leak.* On arguments up to R_k in absolute value on axis k, some token of the head's own table scores at least own =
max_j Σ_k (b_jk − |a_jk| R_k), and every foreign token j at most g_j + Σ_k (|b_jk| + |a_jk| R_k). With gap the
difference, n foreign tokens have at most the share n e^{−gap} of the weight and move the result by at most that times
the spread of values. The gap must exceed `SILENT` for computed scores too, so that in floats the exponential of a
foreign token is faint, at most 3η (`formats`). Added to another float it changes that by at most twice as much, as
that float is a possible result; so in any order foreign tokens change the sum of the weights by at most 7nη, and that
of the products by 7nηY for values up to Y and 2n smallest numbers, as each may underflow. The sum of the weights is
about 1 or more: with |result| ≤ Y both together are less than 20nηY and 4n smallest numbers.

*Excursions.* A function f is proven close to the table T on an interval D inside f's domain. Errors may carry
the argument û beyond D though the argument u that is meant lies in D. With c the point of D nearest to û,

    |T(û) − f(u)| ≤ |T(û) − T(c)| + |T(c) − f(c)| + |f(c) − f(u)|,         |c − u| ≤ |û − u|,

and the first term is at most the oscillation of T beyond D.

If u is an exact linear form of the inputs, the range of what is meant is known exactly, and so are nodes of f that
are defined on it because of proven signs (`Meant`). Both count if D is that range: c is then meant somewhere.

*Rounding.* T(û) − T(u) is f(û) − f(u) up to sup|T' − f'| |û − u|, and up to twice the table's error.

*Tables of several axes, and sharp tables,* are meant to read exact linear forms of the inputs. Their arguments are
off by rounding only, which `softmax` takes as an error of the scores; those of sharp tables may also come through
tables of u, which interpolate a line, with the errors of these (`partition`). What they are meant to be is bounded on
the pieces that bound their error.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from flint import arb

from transformula.kernel.circuit.carried_errors import Argument, Value
from transformula.kernel.circuit.error_flow import Fuzz
from transformula.kernel.enclosures.balls import enclose, float_above, float_below, from_float, round_up
from transformula.kernel.enclosures.expression_ranges import enclose_ranges
from transformula.kernel.enclosures.regions import checked_edges, products
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.evidence import Evidence, Meant
from transformula.kernel.rounding.formats import QUERY_FACTOR, FloatFormat, check_size
from transformula.kernel.rounding.softmax import Arithmetic, rounding_bound
from transformula.kernel.structures.network import HeadTable, NetworkWire
from transformula.kernel.structures.stored_circuit import SQUARE, Circuit, LinearForm, Wire, single
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.cell_error import partition_bound
from transformula.kernel.tables.table_error import MAX_PIECES, SoftmaxTable, TablePieces, lattice, table_error
from transformula.kernel.tables.table_slopes import (
    Cells,
    FunctionCells,
    SlopePieces,
    SquareCells,
    oscillation,
    own_edges,
)

if TYPE_CHECKING:
    from transformula.kernel.rules.softmax_rule import Walk

#: e^−760 < 2^−1096 is below the smallest subnormal of every format.
SILENT = 760.0
#: Of a table's array; NumPy has at most 32.
MAX_AXES = 30
#: How small |T' − f'| need be, as a share of sup|f'|, before it stops to matter beside it.
_FLAT = 0.02

Interval = tuple[float, float]


class Leak(NamedTuple):
    """Bounds of the change that foreign tokens make, in exact arithmetic and in floats."""

    real: arb
    computed: arb


def leak(head: HeadTable, reach: Sequence[float], form: FloatFormat) -> Leak:
    """Bound of |softmax over all tokens − softmax over the head's own| applied to the values."""
    far = np.asarray(reach, dtype=np.float64)
    if not np.isfinite(far).all():
        raise NotProvenError("the argument of a table could not be bounded")
    own_sizes = (np.abs(head.offsets) + np.abs(head.slopes) * far).sum(axis=1)
    other_sizes = (np.abs(head.foreign_offsets) + np.abs(head.foreign_slopes) * far).sum(axis=1)
    own = float((head.offsets - np.abs(head.slopes) * far).sum(axis=1).max())
    foreign = float((head.gates + other_sizes).max(initial=-math.inf))
    size = 1 + float(own_sizes.max()) + float((np.abs(head.gates) + other_sizes).max(initial=0.0))
    values = float(np.abs(head.values).max()), float(np.abs(head.foreign_values).max(initial=0.0))
    check_size(form, 2 * QUERY_FACTOR * (arb(size) + arb(float(far.max()))))
    if not len(head.gates):
        return Leak(arb(0), arb(0))
    # each of two scores has 2d + 1 products and sums in the format, and as many in float64 above
    operations = 2 * len(far) + 3
    slack = 2 * size * (round_up(form.gamma(operations)) + operations * 2.0**-52) + 2 * round_up(form.score_slip)
    gap = arb(own) - arb(foreign) - arb(slack)
    if not gap > SILENT:
        raise RefutedError(
            f"a head is not kept to its own table where its argument may reach {float(far.max()):.3g}: "
            "the gate is too weak"
        )
    real = (len(head.gates) * (-gap).exp() * (arb(values[0]) + arb(values[1]))).upper()
    faint = len(head.gates) * (20 * form.normal * arb(max(values)) + 4 * form.tiny)
    return Leak(real, (real + faint).upper())


def as_table(head: HeadTable) -> SoftmaxTable:
    """The head's own tokens; with several axes they must form a full grid."""
    axes = head.slopes.shape[1]
    if axes == 1:
        return SoftmaxTable((head.slopes[:, 0],), (head.offsets[:, 0],), head.values)
    if axes > MAX_AXES:
        raise RefutedError(f"a table has over {MAX_AXES} axes")
    grid = lattice(head.slopes, head.offsets)
    if grid is None:
        raise RefutedError("a table's tokens do not form a grid")
    return SoftmaxTable(grid.slopes, grid.offsets, grid.arranged(head.values))


class Question(NamedTuple):
    """A question about a wire's table: its distance from a function on ``reach``, where its argument can be.

    ``meant`` is where the argument is meant to be. If ``plain`` it is an input, off by its own rounding. ``relative``:
    how often it is rounded as a whole, and what is lost to underflow, if that is all (`Relative`).
    """

    wire: int
    table: SoftmaxTable
    function: Expr
    reach: Interval
    meant: Meant
    plain: bool
    relative: tuple[int, float] | None = None

    def roundings(self, steepest: float) -> tuple[int, float] | None:
        """``relative`` where softmax is bounded with it: for inputs, and where f' is unbounded."""
        return self.relative if self.plain or not math.isfinite(steepest) else None


class Found(NamedTuple):
    """sup|T − f| on D, how far T moves on the rest of ``reach``, and D, cut to ``reach``.

    ``where`` is what is meant, known exactly only if that is D: cells must not end before D does. ``steepest`` bounds
    |f'| on ``reach`` and ``gap`` |T' − f'|, or |T'| where the former is infinite. ``softmax`` bounds what softmax adds
    in floats, with an argument as it is held and with an input.
    """

    own: float
    moved: float
    inside: Interval
    where: Meant
    cells: Cells
    steepest: float
    gap: float
    softmax: tuple[float, float]

    def rounding(self, question: Question, rounding: arb, error: arb, form: FloatFormat) -> tuple[arb, arb]:
        """Rounding of the softmax alone, and together with an argument that is off by ``rounding``.

        Where f' is unbounded the table's own slope says how far an argument carries.
        """
        bound, both = map(arb, self.softmax)
        if not bound.is_finite():
            raise NotProvenError(f"the scores of a table are too large for {form.name}")
        gap, whole = arb(self.gap), question.roundings(self.steepest) is not None and both.is_finite()
        if not math.isfinite(self.steepest):
            if not (whole or gap.is_finite()):
                raise NotProvenError(f"the slope of a table of {question.function} could not be bounded")
            return bound + 2 * error, both if whole else bound + gap * rounding
        bent = (2 * error).min(gap * rounding) if gap.is_finite() else 2 * error
        return bound + bent, both if whole else bound + bent + arb(self.steepest) * rounding


class HeadProofs:
    """Bounds of heads of one argument, each on all of the pieces given; equal questions are answered once."""

    def __init__(self, form: FloatFormat, evidence: Evidence) -> None:
        self.form, self.evidence = form, evidence
        self._known: dict[object, Any] = {}

    def _once(self, key: object, answer: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = answer()
        return self._known[key]

    def table(self, head: HeadTable) -> SoftmaxTable:
        """The head's table, made once."""
        found: SoftmaxTable = self._once(("table", head), lambda: as_table(head))
        return found

    def answer(self, question: Question) -> Found:
        """Bounds of one head."""
        reach, meant = question.reach, question.meant.floats
        own, moved, inside, where = self._error(question)
        if not (inside[0] <= meant[0] and meant[1] <= inside[1]):
            raise NotProvenError(f"{question.function} is not seen to be defined on u = {meant[0]:.6g}..{meant[1]:.6g}")
        cells = self._cells(question.wire, question.function, inside, where)
        slopes = cells.slopes(np.array([reach[0]]), np.array([reach[1]]))  # infinite beyond the cells
        steepest = float(np.max(np.abs(slopes))) if inside == reach else math.inf
        gap, softmax = self._rounding(question, steepest)
        return Found(own, moved, inside, where, cells, steepest, gap, softmax)

    def _cells(self, wire: int, function: Expr, ends: Interval, meant: Meant) -> Cells:
        """The function's values and slopes on cells that cover an interval."""
        if function == SQUARE:
            return SquareCells()
        edges = _edges(self.evidence.cells(wire, function, *ends))
        known = meant.exact if (edges[0], edges[-1]) == meant.floats else (None, frozenset[Expr]())
        key = "cells", function, edges, known
        found: Cells = self._once(key, lambda: FunctionCells(function, list(edges), *known))
        return found

    def _error(self, question: Question) -> tuple[float, float, Interval, Meant]:
        """The first four fields of `Found`."""
        wire, table, function, reach, meant = question[:5]
        ends = [(arb(reach[0]), arb(reach[1]))]
        pieces = _edges(self.evidence.pieces(wire, table, function, ("u",), ends, meant))
        whole = pieces[0], pieces[-1]
        inside = max(reach[0], whole[0]), min(reach[1], whole[1])
        meant = meant if whole == meant.floats else Meant(meant.floats)
        exact, defined = meant.exact
        first, last = exact or (from_float(whole[0]), from_float(whole[1]))
        key = "pieces", table, function, first, last, defined
        bounds = self._once(key, lambda: TablePieces(table, function, "u", first, last, defined))
        own = [self._once((bounds, a, b), partial(bounds.on, a, b)).error for a, b in pairwise(_met(pieces, inside))]
        beyond = [(reach[0], float_above(first)), (float_below(last), reach[1])]
        moved = [self._once((table, a, b), partial(oscillation, table, a, b)) for a, b in beyond if a < b]
        total = float(np.max(own)), float(np.max(moved, initial=0.0))
        if not (math.isfinite(total[0]) and math.isfinite(total[1])):
            raise NotProvenError(f"a table of {function} could not be bounded on u = {reach[0]:.6g}..{reach[1]:.6g}")
        return *total, inside, meant

    def _rounding(self, question: Question, steepest: float) -> tuple[float, tuple[float, float]]:
        """Gap and softmax, as in `Found`."""
        wire, table, function, reach = question[:4]
        known = math.isfinite(steepest)
        softmax = self.evidence.softmax(wire, table, [(arb(reach[0]), arb(reach[1]))])
        if not isinstance(softmax, list) or len(softmax) != 1:
            raise RefutedError("the edges for a table's rounding cannot be read")
        edges, minus = _met(_edges(softmax[0], reach), reach), function if known else None
        enough = _FLAT * steepest if known else 0.0
        steps = _met(_edges(self.evidence.slopes(wire, table, minus, *reach, enough), reach), reach)
        # u·slope + offset, each read as it is; behind the gate everything is zero in floats
        sums = len(table.values)
        whole, exact = [(arb(edges[0]), arb(edges[-1]))], (0, 0.0)
        bound, both = (
            self._once((table, edges, n, lost), partial(rounding_bound, table, whole, [list(edges)], Arithmetic(
                self.form, 2, sum_roundings=sums, argument_errors=(lost,), input_roundings=n)))
            for n, lost in (exact, question.roundings(steepest) or exact)
        )  # fmt: skip
        slopes = self._once((table, minus), lambda: SlopePieces(table, minus))
        gaps = [self._once((slopes, a, b), partial(slopes.on, a, b))[0] for a, b in pairwise(steps)]
        return float(np.max(gaps)), (bound, both)


def _edges(given: Any, cover: Interval | None = None) -> tuple[float, ...]:
    """Increasing floats as a tuple."""
    edges = tuple(own_edges(given, MAX_PIECES).tolist())
    if cover is not None and not (edges[0] <= cover[0] and cover[1] <= edges[-1]):
        raise RefutedError("the pieces in evidence.json do not cover the range of an argument")
    return edges


def _met(edges: tuple[float, ...], ends: Interval) -> tuple[float, ...]:
    """The edges of the pieces that an interval meets; they cover it."""
    if not edges[0] <= ends[0] <= ends[1] <= edges[-1]:
        raise RefutedError("the pieces in evidence.json do not meet the range of an argument")
    first = min(bisect_right(edges, ends[0]), len(edges) - 1) - 1
    return edges[first : max(bisect_left(edges, ends[1]), first + 1) + 1]


Ends = tuple[arb, arb]
LINE = ex.variable("u")


def grid_value(walk: Walk, k: int, wire: Wire, found: NetworkWire, arguments: Sequence[Argument]) -> Value:
    """The proven value of a table of several axes, or of a sharp one."""
    function = wire.function
    head = found.table
    form = walk.form
    assert function is not None and head is not None
    if not walk.sharp and any(not argument.error <= 0 for argument in arguments):
        raise RefutedError("a table of several axes does not read exact linear forms of the inputs")
    ends = [_ends(_straight(walk.circuit, linear), walk.meanings.formula.box) for linear in wire.arguments]
    wrong, shifts = ([round_up(getattr(argument, of)) for argument in arguments] for of in ("rounding", "error"))
    reach = [round_up(abs(a).max(abs(b)) + h + w) for (a, b), h, w in zip(ends, shifts, wrong, strict=True)]
    walk.check_overflow(found.arguments, QUERY_FACTOR)
    lost = leak(head, reach, form)
    table = walk.heads.table(head)
    if walk.sharp:
        bits, trees = _partition(walk.evidence.partition(k, table, function, ends, shifts))
        score = score_error(form, table, reach, wrong)
        error, rounding = partition_bound(table, function, wire.names, ends, bits, trees, score, form, shifts)
        error, rounding = error + lost.real, rounding + lost.computed
        size = arb(float(np.max(np.abs(table.values)))) + error
    else:
        pieces = walk.evidence.pieces(k, table, function, wire.names, ends)
        bound = table_error(table, function, wire.names, ends, pieces)
        edges = walk.evidence.softmax(k, table, ends)
        plain = Arithmetic(
            form, 2 * len(ends) + 2, head.values.size + 2, argument_errors=tuple(wrong), input_roundings=0
        )
        roundings = [rounding_bound(table, ends, edges, a) for a in (plain, replace(plain, factorised=True))]
        error, rounding = arb(bound) + lost.real, arb(float(np.max(roundings))) + lost.computed
        size = _largest(function, wire, ends, pieces).min(arb(float(np.max(np.abs(table.values)))) + error)
    if not (error.is_finite() and rounding.is_finite()):
        raise NotProvenError(f"a table of {function} could not be bounded in {form.name}", place=str(function))
    walk.ranges.found(k, (np.asarray(-round_up(size)), np.asarray(round_up(size))))
    held = (size + error).upper()
    made, rounded = Fuzz(0.0, round_up(error)), Fuzz(0.0, round_up(rounding))
    return Value(size.upper(), error.upper(), rounding.upper(), (-held, held), made, rounded)


def _straight(circuit: Circuit, linear: LinearForm) -> LinearForm:
    """The form with each table of u replaced by what it reads, which is what it means."""
    while any(circuit.wires[k].function == LINE for k, _ in linear.terms):
        parts = [(ex.number(1), LinearForm((), linear.constant))]
        for k, c in linear.terms:
            wire = circuit.wires[k]
            parts.append((c, wire.arguments[0] if wire.function == LINE else single(k)))
        linear = LinearForm.sum(parts)
    return linear


def _ends(linear: LinearForm, box: Box) -> Ends:
    """The exact ends of a linear form of the inputs, as balls."""
    low = high = enclose(linear.constant)
    for i, c in linear.terms:
        if i >= box.dimension or c.number is None:
            raise RefutedError("a table of several axes does not read rational linear forms of the inputs")
        ends = enclose(box.lower[i]) * enclose(c), enclose(box.upper[i]) * enclose(c)
        low, high = low + ends[c.number < 0], high + ends[c.number > 0]
    return low, high


def _largest(function: Any, wire: Wire, ends: Sequence[Ends], pieces: Any) -> arb:
    """A bound of |function| on the boxes between the pieces' first edges; the function is defined there."""
    edges = checked_edges(pieces["edges"], ends, MAX_PIECES)
    lower, upper = products([e[:-1] for e in edges]), products([e[1:] for e in edges])
    low, high = enclose_ranges(function, wire.names, lower, upper)
    return arb(float(np.max(np.maximum(np.abs(low), np.abs(high)))))


def _partition(item: Any) -> tuple[int, Any]:
    if not isinstance(item, list) or len(item) != 2 or type(item[0]) is not int:
        raise RefutedError("the evidence for a partition cannot be read")
    return item[0], item[1]


def score_error(form: FloatFormat, table: SoftmaxTable, reach: Sequence[float], wrong: Sequence[float]) -> arb:
    """Largest |computed − real| score: arguments are off, and 2d products and sums are rounded."""
    total = form.score_slip
    for slopes, offsets, far, off in zip(table.slopes, table.offsets, reach, wrong, strict=True):
        steepest, largest = arb(float(np.max(np.abs(slopes)))), arb(float(np.max(np.abs(offsets))))
        total += steepest * arb(off) + form.gamma(2 * len(reach) + 2) * (steepest * arb(far) + largest)
    return total.upper()
