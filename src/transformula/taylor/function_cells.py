"""Values and slopes of a function of u on any part of its range, from proven bounds on small cells.

The range is cut once, finely and towards both ends geometrically; on each cell Arb encloses f and f'. What
an interval [a, b] asks for is then the smallest and largest bound of the cells it meets, found for many
intervals at once from tables of minima over 2^k cells.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Protocol

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.formulas.enclosures import enclose, precision, round_up
from transformula.formulas.expression import Expr
from transformula.taylor.modulus import geometric_cuts
from transformula.taylor.ranges import UndefinedError, enclose_ends
from transformula.taylor.results import Floats
from transformula.taylor.series import SeriesOf, SingularError

_BITS = 64
#: Cells are halved while their slopes differ by more than this part of the steepest.
_ROUGH = 0.1
_MAX_CELLS = 800
Pair = tuple[Floats, Floats]
Indices = NDArray[np.intp]


class Cells(Protocol):
    """A function's values and slopes on many intervals."""

    @property
    def steepest(self) -> float:
        """sup|f'| on the whole range, infinite if it may be."""

    def values(self, low: Floats, high: Floats) -> Pair:
        """Ends of the function's range on each interval."""

    def slopes(self, low: Floats, high: Floats) -> Pair:
        """Ends of the derivative's range; infinite where f may not be smooth."""


class SquareCells:
    """u² on [low, high]."""

    def __init__(self, low: float, high: float) -> None:
        self.steepest = 2 * max(abs(low), abs(high))

    def values(self, low: Floats, high: Floats) -> Pair:
        """The squares of the ends, and 0 in between."""
        a, b = low * low, high * high
        inside = (low <= 0) & (high >= 0)
        return np.where(inside, 0.0, np.nextafter(np.minimum(a, b), 0)), np.nextafter(
            np.maximum(a, b), math.inf
        )

    def slopes(self, low: Floats, high: Floats) -> Pair:
        """2u."""
        return 2 * low, 2 * high


class FunctionCells:
    """A function of u on [low, high].

    Examples
    --------
    >>> from transformula.formulas import parse
    >>> cells = FunctionCells(parse("exp(u)"), 0.0, 2.0)
    >>> low, high = cells.slopes(np.array([0.5]), np.array([1.0]))
    >>> bool(1.5 < low[0] <= math.exp(0.5) and math.e <= high[0] < 2.9)
    True
    """

    def __init__(self, function: Expr, low: float, high: float) -> None:
        cuts = geometric_cuts(low, high) if high > low else [low, math.nextafter(high, math.inf)]
        with precision(_BITS):
            cells = _refined(SeriesOf(function, "u"), list(pairwise(cuts)))
        self.edges = np.array([*(cell[0] for cell in cells), cells[-1][1]])
        bounds = np.array([cell[2:] for cell in cells]).T
        self._values = _Minima(bounds[0]), _Minima(-bounds[1])
        self._slopes = _Minima(bounds[2]), _Minima(-bounds[3])

    @property
    def range(self) -> tuple[float, float]:
        """Ends of the function's values on the whole range."""
        return self._values[0].whole, -self._values[1].whole

    @property
    def steepest(self) -> float:
        """sup|f'| on the whole range, infinite if it may be."""
        return float(max(-self._slopes[0].whole, -self._slopes[1].whole))

    def values(self, low: Floats, high: Floats) -> Pair:
        """Ends of the function's range on each interval."""
        first, last = self._met(low, high)
        return self._values[0](first, last), -self._values[1](first, last)

    def slopes(self, low: Floats, high: Floats) -> Pair:
        """Ends of the derivative's range; infinite where f may not be smooth."""
        first, last = self._met(low, high)
        return self._slopes[0](first, last), -self._slopes[1](first, last)

    def _met(self, low: Floats, high: Floats) -> tuple[Indices, Indices]:
        """Indices of the first and the last cell that an interval meets."""
        most = len(self.edges) - 2
        first = np.clip(np.searchsorted(self.edges, low, "right") - 1, 0, most)
        last = np.clip(np.searchsorted(self.edges, high, "left") - 1, 0, most)
        return first, np.maximum(first, last)


class _Minima:
    """Minima of an array over any run of its entries."""

    def __init__(self, array: Floats) -> None:
        self.levels = [array]
        while len(self.levels[-1]) > 1 << (len(self.levels) - 1):
            step = 1 << (len(self.levels) - 1)
            last = self.levels[-1]
            self.levels.append(np.minimum(last[:-step], last[step:]))
        self.whole = float(array.min())

    def __call__(self, first: Indices, last: Indices) -> Floats:
        result = np.empty(len(first))
        level = np.frexp((last - first + 1).astype(float))[1] - 1
        for k in np.unique(level):
            here = level == k
            run = self.levels[k]
            result[here] = np.minimum(run[first[here]], run[last[here] - (1 << int(k)) + 1])
        return result


def _refined(series: SeriesOf, cells: list[tuple[float, float]]) -> list[tuple[float, ...]]:
    """(low, high, *bounds) of cells, halved where the slope is known badly compared with the steepest."""
    done: list[tuple[float, ...]] = []
    while cells:
        known = [(a, b, *_on_cell(series, a, b)) for a, b in cells]
        # a cell is at least as steep as the end of its slopes that is nearer to zero
        certain = [max(c[4], -c[5]) for c in (*done, *known) if math.isfinite(c[5] - c[4])]
        steepest = max(certain, default=0.0)
        rough = [c for c in known if math.inf > c[5] - c[4] > _ROUGH * max(steepest, abs(c[4] + c[5]) / 8)]
        rough = [c for c in rough if c[0] < (c[0] + c[1]) / 2 < c[1]]
        if len(done) + len(known) + len(rough) > _MAX_CELLS:
            rough = []
        done += [c for c in known if c not in rough]
        cells = [half for a, b, *_ in rough for half in ((a, (a + b) / 2), ((a + b) / 2, b))]
    return sorted(done)


def _on_cell(series: SeriesOf, a: float, b: float) -> tuple[float, float, float, float]:
    try:
        low, high = enclose_ends(series.expr, {series.variable: (arb(a), arb(b))})
        values = -round_up(-low), round_up(high)
    except UndefinedError:
        values = -math.inf, math.inf
    middle, radius = (arb(a) + arb(b)) / 2, (arb(b) - arb(a)) / 2
    try:
        slope = series.slope(middle + arb(0, radius.upper()))
        around = enclose(series.expr, {series.variable: middle}) + slope * arb(0, radius.upper())
        values = max(values[0], -round_up(-around.lower())), min(values[1], round_up(around.upper()))
        slopes = -round_up(-slope), round_up(slope)
    except SingularError:
        slopes = -math.inf, math.inf
    return *values, *slopes
