"""Where to cut the range of a function, so that the kernel's bounds of its values and slopes are useful.

Nothing here is trusted: the kernel computes every bound again on the cells that are found.
"""

from __future__ import annotations

import math
from itertools import pairwise

from transformula.budget import checkpoint, spend
from transformula.compiler.evidence import costs
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import round_down, round_up
from transformula.kernel.enclosures.expression_series import SeriesOf, SingularError
from transformula.kernel.enclosures.function_cells import slope_on
from transformula.kernel.syntax.expression import Expr

#: Cells are halved while their slopes differ by more than this part of the steepest.
_ROUGH = 0.1
#: Cells at most, and where any bound will do.
_MAX_CELLS, _FEW_CELLS = 500, 200
_UNIFORM = 48
_GEOMETRIC = 60
#: Its ends, and those of its slopes.
_Cell = tuple[float, float, float, float]


def find_cells(function: Expr, low: float, high: float, loose: bool = False) -> list[float]:
    """Edges of cells of a function of u, halved where the slope bound is poor compared with the steepest slope."""
    with precision(64):
        series = SeriesOf(function, "u")
        edges = _first_cuts(series, low, high) if high > low else [low, math.nextafter(low, math.inf)]
        known = [(a, b, *_slopes(series, a, b)) for a, b in pairwise(edges)]
        while cut := _worst(known, _FEW_CELLS if loose else _MAX_CELLS):
            checkpoint()
            halves = [half for a, b, *_ in cut for half in ((a, _middle(a, b)), (_middle(a, b), b))]
            gone = set(cut)
            known = [c for c in known if c not in gone] + [(a, b, *_slopes(series, a, b)) for a, b in halves]
    return sorted([start for start, *_ in known] + [max(c[1] for c in known)])


def _worst(known: list[_Cell], limit: int) -> list[_Cell]:
    """The cells to halve next: those with the worst slope bounds, if these are poor and the cells not too many."""
    # a cell is at least as steep as the end of its slopes that is nearer to zero
    steepest = max((max(c[2], -c[3]) for c in known if math.isfinite(c[3] - c[2])), default=0.0)
    rough = [c for c in known if math.inf > c[3] - c[2] > _ROUGH * max(steepest, abs(c[2] + c[3]) / 8)]
    rough = [c for c in rough if c[0] < _middle(*c[:2]) < c[1]]
    most = max((c[3] - c[2] for c in rough), default=0.0)
    cut = [c for c in rough if c[3] - c[2] >= most / 2]
    return cut if len(known) + len(cut) <= limit else []


def _slopes(series: SeriesOf, a: float, b: float) -> tuple[float, float]:
    spend(costs.slope(series.expr))
    try:
        slope = slope_on(series, a, b)[2]
    except SingularError:
        return -math.inf, math.inf
    return round_down(slope), round_up(slope)


def _middle(low: float, high: float) -> float:
    return low + (high - low) / 2


def _first_cuts(series: SeriesOf, low: float, high: float) -> list[float]:
    """Points of an interval, ends included: evenly spaced, and ever closer towards an end with unbounded slope."""
    step = (high - low) / _UNIFORM
    points = {low, high, *(low + (high - low) * k / _UNIFORM for k in range(1, _UNIFORM))}
    near = [step * 2.0**-k for k in range(1, _GEOMETRIC)]
    if not _smooth(series, low, low + step):
        points |= {low + d for d in near}
    if not _smooth(series, high - step, high):
        points |= {high - d for d in near}
    return sorted(p for p in points if low <= p <= high)


def _smooth(series: SeriesOf, a: float, b: float) -> bool:
    low, high = _slopes(series, a, b)
    return math.isfinite(high - low)
