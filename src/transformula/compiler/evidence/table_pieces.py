"""Cuts of the range of a table of one axis, or of a function, so that bounds of errors and slopes are tight.

Nothing here is trusted: the kernel computes every bound again on the pieces that are found.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from flint import arb

from transformula.budget import checkpoint, spend
from transformula.compiler import policy
from transformula.compiler.evidence import costs
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import SeriesOf, SingularError, from_float, round_down, round_up
from transformula.kernel.enclosures.intervals import Ends, UndefinedError, range_of
from transformula.kernel.enclosures.regions import halfway
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.functions.function_table import FUNCTIONS
from transformula.kernel.syntax.expression import Expr, variables_of, walk
from transformula.kernel.tables.table_error import Piece, SoftmaxTable, TablePieces
from transformula.kernel.tables.table_slopes import SlopePieces, slope_on

#: Functions in a function above which a Taylor model is tried on most pieces, and its work in microseconds for each.
_DEEP, _TAYLOR = 8, 1000.0


class PieceSearch:
    """Edges of pieces on which |T − f| is bounded tightly, on ever more of the table's range.

    Parameters
    ----------
    low, high : where the table's arguments may be and the function is defined.
    exact : the ends exactly, and nodes of the function that are known to be defined between them.
    """

    def __init__(
        self,
        table: SoftmaxTable,
        function: Expr,
        low: float,
        high: float,
        exact: tuple[Ends | None, frozenset[Expr]] = (None, frozenset()),
    ) -> None:
        if not -math.inf < low <= high < math.inf:
            raise NotProvenError(f"the range {low} .. {high} of a table is not finite")
        high = high if low < high else math.nextafter(low, math.inf)
        self.table = table
        self.function, self.name = function, next(iter(variables_of(function)), "u")
        first, last = exact[0] or (from_float(low), from_float(high))
        self.bounds = TablePieces(table, function, self.name, first, last, exact[1])
        self.edges = turns(table.slopes[0], table.offsets[0], low, high)
        self.most = max(6000, 40 * table.values.size)
        self.nodes = sum(node.op in FUNCTIONS for node in walk(function))
        self._known: dict[tuple[float, float], Piece] = {}
        self.worst = 0.0

    def refine(self, low: float, high: float) -> list[float]:
        """Edges after halving pieces that meet an interval, the worst first, until their bound is tight there.

        Raises
        ------
        NotProvenError
            If the function is found undefined.
        """
        self.edges = with_ends(self.edges, low, high)
        met = [(a, b) for a, b in pairwise(self.edges) if b >= low and a <= high]
        heap: list[tuple[float, float, float]] = []
        reached = size = 0.0

        def add(a: float, b: float) -> None:
            nonlocal reached, size
            piece = self._on(a, b)
            reached, size = max(reached, piece.reached), max(size, piece.size)
            heapq.heappush(heap, (-piece.error, a, b))

        for a, b in met:
            add(a, b)
        new: list[float] = []
        while (
            -heap[0][0] > max(policy.PIECE_TIGHTNESS * reached, size * policy.PIECE_NOISE)
            and len(self._known) < self.most
        ):
            _, a, b = heap[0]
            middle = halfway(a, b)
            if not a < middle < b:
                break
            checkpoint()
            heapq.heappop(heap)
            new.append(middle)
            add(a, middle)
            add(middle, b)
        self.edges = sorted([*self.edges, *new])
        self.worst = -heap[0][0]
        return list(self.edges)

    def _on(self, a: float, b: float) -> Piece:
        if (a, b) not in self._known:
            spend(costs.table_piece(self.table, self.function))
            self._known[a, b] = piece = self.bounds.on(a, b)
            if self.nodes > _DEEP:
                spend(_TAYLOR * self.nodes)
            _check_defined(piece, self.function, self.name, a, b)
        return self._known[a, b]


def find_pieces(table: SoftmaxTable, function: Expr, ends: tuple[arb, arb]) -> list[float]:
    """Edges of pieces on which `tables.table_error` is tight, the worst piece halved first.

    Raises
    ------
    NotProvenError
        If the function is found undefined.
    """
    with precision(128):
        low, high = round_down(ends[0]), round_up(ends[1])
    return PieceSearch(table, function, low, high).refine(low, high)


def with_ends(edges: Sequence[float], low: float, high: float) -> list[float]:
    """Edges with two more just outside an interval, so that its pieces do not reach far beyond it."""
    by = policy.PIECE_OVERHANG * (high - low)
    wanted = [(low - by, low), (high, high + by)]
    new = [a if b == low else b for a, b in wanted if not any(a <= e <= b for e in edges)]
    return sorted([*edges, *(e for e in new if edges[0] < e < edges[-1])])


def _check_defined(piece: Piece, function: Expr, name: str, a: float, b: float) -> None:
    if math.isfinite(piece.error):
        return
    try:
        range_of(function, {name: (from_float(a), from_float(b))})
    except UndefinedError as error:
        if error.certain:
            raise NotProvenError(f"{error} on {a:.6g} .. {b:.6g}", place=f"{name} = {a:.6g} .. {b:.6g}") from None


def turns(slopes: Floats, offsets: Floats, low: float, high: float) -> list[float]:
    """The ends of an interval, and the points where neighbouring tokens have equal scores."""
    order = np.argsort(slopes)
    with np.errstate(all="ignore"):
        at: Floats = -np.diff(offsets[order]) / np.diff(slopes[order])
    least = (high - low) * 1e-9
    edges = [low]
    for mark in np.sort(at[(at > low + least) & (at < high - least)]).tolist():
        if mark - edges[-1] > least:
            edges.append(mark)
    return [*edges, high]


def find_slopes(table: SoftmaxTable, function: Expr | None, low: float, high: float, enough: float) -> list[float]:
    """Edges of pieces on which a bound of |T' − f'| (of |T'| without a function) is tight.

    A bound of at most ``enough`` is not refined any further.
    """
    if not low < high:
        high = math.nextafter(low, math.inf)
    bounds = SlopePieces(table, function)
    heap, reached = [(-math.inf, low, high)], 0.0
    for _ in range(policy.MOST_PIECES):
        checkpoint()
        worst, a, b = heap[0]
        middle = halfway(a, b)
        if -worst <= max(policy.GRID_TIGHTNESS * reached, enough) or not a < middle < b:
            break
        heapq.heappop(heap)
        spend(2 * costs.slope_piece(table, function))
        for left, right in ((a, middle), (middle, b)):
            upper, seen = bounds.on(left, right)
            reached = max(reached, seen)
            heapq.heappush(heap, (-upper, left, right))
    return sorted([low, *(b for _, _, b in heap)])


#: The ends of a cell, and of its slopes.
_Cell = tuple[float, float, float, float]


def find_function_cells(function: Expr, low: float, high: float) -> list[float]:
    """Edges of cells of a function of u, halved where the slope bound is poor compared with the steepest slope."""
    with precision(64):
        series = SeriesOf(function, "u")
        edges = _first_cuts(series, low, high) if high > low else [low, math.nextafter(low, math.inf)]
        known = [(a, b, *_slopes(series, a, b)) for a, b in pairwise(edges)]
        while cut := _worst(known):
            checkpoint()
            halves = [half for a, b, *_ in cut for half in ((a, halfway(a, b)), (halfway(a, b), b))]
            gone = set(cut)
            known = [c for c in known if c not in gone] + [(a, b, *_slopes(series, a, b)) for a, b in halves]
    return sorted([start for start, *_ in known] + [max(c[1] for c in known)])


def _worst(known: list[_Cell]) -> list[_Cell]:
    """The cells to halve next: those with the worst slope bounds, if these are poor and the cells not too many."""
    # a cell is at least as steep as the end of its slopes that is nearer to zero
    steepest = max((max(c[2], -c[3]) for c in known if math.isfinite(c[3] - c[2])), default=0.0)
    rough = [c for c in known if math.inf > c[3] - c[2] > policy.CELL_SLOPES * max(steepest, abs(c[2] + c[3]) / 8)]
    rough = [c for c in rough if c[0] < halfway(*c[:2]) < c[1]]
    most = max((c[3] - c[2] for c in rough), default=0.0)
    cut = [c for c in rough if c[3] - c[2] >= most / 2]
    return cut if len(known) + len(cut) <= policy.MOST_PIECES else []


def _slopes(series: SeriesOf, a: float, b: float) -> tuple[float, float]:
    spend(costs.slope(series.expr))
    try:
        slope = slope_on(series, a, b)[2]
    except SingularError:
        return -math.inf, math.inf
    return round_down(slope), round_up(slope)


def _first_cuts(series: SeriesOf, low: float, high: float) -> list[float]:
    """Points of an interval, ends included: evenly spaced, and ever closer towards an end with unbounded slope."""
    step = (high - low) / policy.FIRST_CELLS
    points = {low, high, *(low + (high - low) * k / policy.FIRST_CELLS for k in range(1, policy.FIRST_CELLS))}
    near = [step * 2.0**-k for k in range(1, policy.MOST_ROUNDS)]
    if not _smooth(series, low, low + step):
        points |= {low + d for d in near}
    if not _smooth(series, high - step, high):
        points |= {high - d for d in near}
    return sorted(p for p in points if low <= p <= high)


def _smooth(series: SeriesOf, a: float, b: float) -> bool:
    low, high = _slopes(series, a, b)
    return math.isfinite(high - low)
