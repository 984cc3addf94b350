"""Values and slopes of a function of u on any part of its range, and slopes of its table, on pieces that are given.

The cells are given. On each, `intervals` encloses f, and `series` over the whole cell encloses f'; where f is
smooth, f(u) lies in f(m) + f'(cell) (u − m) as well, m the middle (mean value theorem). What an interval
[a, b] asks for is then the smallest and the largest bound of the cells it meets. Beyond the cells nothing is
known: bounds are infinite there, as they are where f may be undefined, or not smooth.

*The slope of a table of one axis: bounds of sup|T'| and of sup|T' − f'| on pieces that are given.*

When an argument is off by r, all scores move together and T changes by at most sup|T'| r, far less than if
every score moved on its own. With u = c + r t, T = N/D has coefficients t_k at c, and t_K(ξ) over the whole
piece, so dT/dt = Σ_{k<K} k t_k t^{k−1} + K t_K(ξ) t^{K−1} (Taylor's theorem for T'), and

    |T'| ≤ (Σ_{k<K} k|t_k| + K sup|t_K|) / r.

The same holds for T − f with the coefficients of both. All of it is computed with balls.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from flint import arb, arb_series
from numpy.typing import NDArray

from transformula.kernel.arithmetic import coefficients, precision, series_length
from transformula.kernel.enclosures.balls import (
    SeriesOf,
    enclose,
    float_above,
    float_below,
    from_float,
    round_down,
    round_up,
)
from transformula.kernel.enclosures.intervals import Ends, try_range
from transformula.kernel.enclosures.regions import checked_edges
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import RefutedError, SingularError
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.table_error import SoftmaxTable

MAX_CELLS = 4_000
_CELL_BITS = 64
Pair = tuple[Floats, Floats]
Indices = NDArray[np.intp]


class SquareCells:
    """u², with the interface of `FunctionCells`."""

    def values(self, low: Floats, high: Floats) -> Pair:
        """The squares of the ends, each rounded once, and 0 in between."""
        a, b = low * low, high * high
        least = np.where((low <= 0) & (high >= 0), 0.0, np.nextafter(np.minimum(a, b), 0))
        return least, np.nextafter(np.maximum(a, b), math.inf)

    def slopes(self, low: Floats, high: Floats) -> Pair:
        """2u, exactly."""
        return 2 * low, 2 * high

    def modulus(self, low: float, high: float, shift: float) -> float:
        """Bound |x² − y²| over x, y in [low, high] with |x − y| ≤ shift."""
        return math.nextafter(2 * max(abs(low), abs(high)) * shift, math.inf) if shift > 0 else 0.0


class FunctionCells:
    """A function of u on the cells between edges.

    If ``ends`` are given, only what lies between them counts, and nodes in ``defined`` are defined there.
    """

    def __init__(self, function: Expr, edges: Any, ends: Ends | None = None, defined: Container[Expr] = ()) -> None:
        if not function.names <= {"u"}:
            raise RefutedError(f"{function} is not a function of u")
        self.edges = own_edges(edges, MAX_CELLS)
        with precision(_CELL_BITS):
            series = SeriesOf(function, "u")
            cells = pairwise(self.edges.tolist())
            bounds = np.array([_on_cell(series, a, b, ends, defined) for a, b in cells]).T
        self._values, self._slopes = (bounds[0], bounds[1]), (bounds[2], bounds[3])

    def values(self, low: Floats, high: Floats) -> Pair:
        """Ends of the function's range on each interval."""
        return self._query(self._values, low, high)

    def slopes(self, low: Floats, high: Floats) -> Pair:
        """Ends of the derivative's range; infinite where f may not be smooth."""
        return self._query(self._slopes, low, high)

    def modulus(self, low: float, high: float, shift: float) -> float:
        """Bound |f(x) − f(y)| over x, y in [low, high] with |x − y| ≤ shift.

        If x ≤ y, both lie in x's cell extended by the shift to the right: f differs by at most sup|f'| shift
        there, and by at most the difference of its values. Each bound is rounded once, hence `nextafter`.
        """
        if not (self.edges[0] <= low <= high <= self.edges[-1] and shift >= 0):
            return math.inf
        if shift == 0 or low == high:
            return 0.0
        first, last = self._met(np.array([low]), np.array([high]))
        cells = slice(int(first[0]), int(last[0]) + 2)
        starts = np.maximum(self.edges[cells][:-1], low)
        stops = np.minimum(np.nextafter(self.edges[cells][1:] + shift, math.inf), high)
        values, slopes = self.values(starts, stops), self.slopes(starts, stops)
        with np.errstate(invalid="ignore", over="ignore"):
            change = np.nextafter(values[1] - values[0], math.inf)
            moved = np.nextafter(np.maximum(-slopes[0], slopes[1]) * shift, math.inf)
            worst = float(np.max(np.minimum(change, np.where(np.isnan(moved), math.inf, moved))))
        return worst if math.isfinite(worst) else math.inf

    def _query(self, bounds: Pair, low: Floats, high: Floats) -> Pair:
        low, high = np.atleast_1d(low, high)  # an argument may be a constant
        inside = (low >= self.edges[0]) & (high <= self.edges[-1]) & (low <= high)
        first, last = self._met(low, high)
        runs = np.stack([first, last + 1], axis=1).ravel()  # every second one is a run of cells that are met
        bottom = np.minimum.reduceat(np.append(bounds[0], math.inf), runs)[::2]
        top = np.maximum.reduceat(np.append(bounds[1], -math.inf), runs)[::2]
        return np.where(inside, bottom, -math.inf), np.where(inside, top, math.inf)

    def _met(self, low: Floats, high: Floats) -> tuple[Indices, Indices]:
        """Indices of the first and the last cell that an interval meets."""
        most = len(self.edges) - 2
        first = np.clip(np.searchsorted(self.edges, low, "right") - 1, 0, most)
        return first, np.maximum(first, np.clip(np.searchsorted(self.edges, high, "left") - 1, 0, most))


Cells = FunctionCells | SquareCells


def own_edges(edges: Any, most: int) -> Floats:
    """Edges as an array: increasing floats; what they cover is for others to check."""
    if not isinstance(edges, list) or not edges or not all(isinstance(v, float) for v in (edges[0], edges[-1])):
        raise RefutedError("edges are not a list of floats")
    return checked_edges([edges], [(arb(edges[0]), arb(edges[-1]))], most)[0]


def _on_cell(
    series: SeriesOf, a: float, b: float, ends: Ends | None, defined: Container[Expr]
) -> tuple[float, float, float, float]:
    """Ends of f's values and of its slopes on [a, b]."""
    first, last = from_float(a), from_float(b)
    if ends is not None and ends[0] <= last and first <= ends[1]:
        first, last = max(first, ends[0]), min(last, ends[1])
    found = try_range(series.expr, {series.variable: (first, last)}, defined)
    values = (-math.inf, math.inf) if found is None else (float_below(found[0]), float_above(found[1]))
    try:
        middle, radius, slope = slope_on(series, a, b)
    except SingularError:
        return *values, -math.inf, math.inf
    around = enclose(series.expr, {series.variable: middle}) + slope * arb(0, radius)
    values = max(values[0], round_down(around)), min(values[1], round_up(around))
    return *values, round_down(slope), round_up(slope)


def slope_on(series: SeriesOf, a: float, b: float) -> tuple[arb, arb, arb]:
    """The middle and the radius of [a, b], rounded up, and an enclosure of f' there."""
    middle, radius = (arb(a) + arb(b)) / 2, arb(((arb(b) - arb(a)) / 2).upper())
    return middle, radius, series.slope(middle + arb(0, radius))


_BITS = 128
_ORDER = 8


def oscillation(table: SoftmaxTable, low: float, high: float) -> float:
    """Bound |T(u) − T(v)| over u, v in [low, high]: by the slope, and as T is a mean of the values."""
    if not low <= high < math.inf or low == -math.inf:
        return math.inf
    if low == high:
        return 0.0
    spread = arb(float(table.values.max())) - arb(float(table.values.min()))
    return min(round_up(spread), round_up(arb(SlopePieces(table, None).on(low, high)[0]) * (arb(high) - arb(low))))


class SlopePieces:
    """Bounds of |T' − f'| piece by piece; f = 0 if no function is given."""

    def __init__(self, table: SoftmaxTable, function: Expr | None) -> None:
        if len(table.slopes) != 1 or not (function is None or function.names <= {"u"}):
            raise RefutedError("slopes are those of a table of one axis and of a function of u")
        self.slopes, self.offsets = table.slopes[0], table.offsets[0]
        columns = (self.slopes, self.offsets, table.values)
        self.tokens = [tuple(map(arb, row)) for row in zip(*(c.tolist() for c in columns), strict=True)]
        with precision(_BITS):
            self.minus = None if function is None else SeriesOf(function, "u")

    def on(self, low: float, high: float) -> tuple[float, float]:
        """A bound of |T' − f'| on [low, high], and (for the search only) its value in the middle."""
        with precision(_BITS):
            centre, radius = (arb(low) + arb(high)) / 2, (arb(high) - arb(low)) / 2
            if not radius > 0:
                return math.inf, 0.0
            top = self.tokens[int(np.argmax(self.slopes * float(centre) + self.offsets))]  # any token would do
            exact = self._series(top, centre, radius, _ORDER)
            last = abs(self._series(top, centre + arb(0, radius.upper()), radius, _ORDER + 1)[_ORDER])
            if self.minus is not None:
                try:
                    taken, rest = self.minus.expand(centre, radius, _ORDER)
                except SingularError:
                    return math.inf, 0.0
                exact, last = [a - b for a, b in zip(exact, taken, strict=True)], last + rest
            total = sum((k * abs(c) for k, c in enumerate(exact)), _ORDER * last)
            bound = round_up(total / radius.lower()) if total.is_finite() else math.inf
            return bound, float(abs(exact[1] / radius).lower())

    def _series(self, top: Sequence[arb], at: arb, radius: arb, length: int) -> list[arb]:
        """Coefficients of T(at + radius t); the scores of one token are subtracted from all."""
        with series_length(length):
            above, below = arb_series([0], length), arb_series([0], length)
            for a, b, y in self.tokens:
                slope = a - top[0]
                term = arb_series([slope * at + (b - top[1]), slope * radius], length).exp()
                above, below = above + y * term, below + term
            try:
                quotient = above / below
            except (ValueError, ZeroDivisionError):
                return [arb.nan()] * length
            return coefficients(quotient, length)
