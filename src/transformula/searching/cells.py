"""Where to cut the range of a function, so that the kernel's bounds of its values and slopes are useful.

Nothing here is trusted: the kernel computes every bound again on the cells that are found.
"""

from __future__ import annotations

import math
from itertools import pairwise

from transformula.kernel.balls import precision, round_down, round_up
from transformula.kernel.cells import slope_on
from transformula.kernel.expression import Expr
from transformula.kernel.series import SeriesOf, SingularError

#: Cells are halved while their slopes differ by more than this part of the steepest.
_ROUGH = 0.1
#: Cells at most, and where any bound will do.
_MAX_CELLS, _FEW_CELLS = 800, 200
_UNIFORM = 48
_GEOMETRIC = 60


def find_cells(function: Expr, low: float, high: float, loose: bool = False) -> list[float]:
    """Edges of cells of a function of u, halved where the slope is known badly compared with the steepest."""
    most = _FEW_CELLS if loose else _MAX_CELLS
    cells = list(pairwise(geometric_cuts(low, high) if high > low else [low, math.nextafter(low, math.inf)]))
    done: list[tuple[float, ...]] = []
    with precision(64):
        series = SeriesOf(function, "u")
        while cells:
            known = [(a, b, *_slopes(series, a, b)) for a, b in cells]
            # a cell is at least as steep as the end of its slopes that is nearer to zero
            certain = [max(c[2], -c[3]) for c in (*done, *known) if math.isfinite(c[3] - c[2])]
            steepest = max(certain, default=0.0)
            rough = [c for c in known if math.inf > c[3] - c[2] > _ROUGH * max(steepest, abs(c[2] + c[3]) / 8)]
            rough = [c for c in rough if c[0] < _middle(*c[:2]) < c[1]]
            if len(done) + len(known) + len(rough) > most:
                rough = []
            cut = set(rough)
            done += [c for c in known if c not in cut]
            cells = [half for a, b, *_ in rough for half in ((a, _middle(a, b)), (_middle(a, b), b))]
    return sorted([done_low for done_low, *_ in done] + [max(c[1] for c in done)])


def _slopes(series: SeriesOf, a: float, b: float) -> tuple[float, float]:
    try:
        slope = slope_on(series, a, b)[2]
    except SingularError:
        return -math.inf, math.inf
    return round_down(slope), round_up(slope)


def _middle(low: float, high: float) -> float:
    return low + (high - low) / 2


def geometric_cuts(lower: float, upper: float) -> list[float]:
    """Points of an interval, its ends included: evenly spaced, and ever closer towards both ends."""
    width = upper - lower
    inner = [lower + width * k / _UNIFORM for k in range(1, _UNIFORM)]
    near = [width / _UNIFORM * 2.0**-k for k in range(1, _GEOMETRIC)]
    points = {lower, upper, *inner, *(lower + d for d in near), *(upper - d for d in near)}
    return sorted(p for p in points if lower <= p <= upper)
