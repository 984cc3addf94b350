"""How much a function of one variable can change when its argument moves a little, proven.

On a piece [a, b] widened by ε: |f(x) − f(y)| ≤ min(sup|f'| ε, max f − min f) for |x − y| ≤ ε. Pieces shrink
geometrically towards both ends of the interval, where derivatives may be unbounded (sqrt at 0).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import pairwise

from flint import arb

from transformula.formulas.enclosures import precision, round_up
from transformula.formulas.expression import Expr
from transformula.taylor.ranges import UndefinedError, enclose_ends
from transformula.taylor.series import SeriesOf, SingularError

_UNIFORM = 48
_GEOMETRIC = 60
_MAX_SPLITS = 100
_BITS = 96


def modulus(expr: Expr, variable: str, lower: float, upper: float, shift: float) -> float:
    """Bound |f(x) − f(y)| over x, y in [lower, upper] with |x − y| ≤ shift.

    Examples
    --------
    >>> from transformula.formulas import parse
    >>> 1e-3 <= modulus(parse("sqrt(x)"), "x", 0.0, 1.0, 1e-6) < 3e-3
    True
    """
    if shift == 0 or not variable_occurs(expr, variable):
        return 0.0
    if not math.isfinite(shift):
        return math.inf
    with precision(_BITS):
        series = SeriesOf(expr, variable)
        return _largest(lambda a, b: _on_piece(series, a, b, (lower, upper), shift), lower, upper)


def lipschitz(expr: Expr, variable: str, lower: float, upper: float) -> float:
    """sup|f'| on the interval; infinite where it is not seen to be bounded."""
    if not variable_occurs(expr, variable):
        return 0.0
    with precision(_BITS):
        series = SeriesOf(expr, variable)
        return _largest(lambda a, b: _slope(series, a, b), lower, upper)


def variable_occurs(expr: Expr, variable: str) -> bool:
    """Whether the expression depends on the variable."""
    from transformula.formulas.expression import variables_of

    return variable in variables_of(expr)


def _largest(bound: Callable[[float, float], float], lower: float, upper: float) -> float:
    """The largest bound over pieces, the worst of them halved as long as that helps."""
    pieces = list(pairwise(geometric_cuts(lower, upper))) or [(lower, upper)]
    heap = [(-bound(a, b), a, b) for a, b in pieces]
    heapq.heapify(heap)
    for _ in range(_MAX_SPLITS):
        worst, a, b = heap[0]
        middle = (a + b) / 2
        if not a < middle < b:
            break
        halves = [(-bound(*ends), *ends) for ends in ((a, middle), (middle, b))]
        if min(halves)[0] <= 0.95 * worst:  # hardly smaller: the bound is about as large as the truth
            break
        heapq.heapreplace(heap, halves[0])
        heapq.heappush(heap, halves[1])
    return -heap[0][0]


def geometric_cuts(lower: float, upper: float) -> list[float]:
    """Points of an interval, its ends included: evenly spaced, and ever closer towards both ends."""
    width = upper - lower
    inner = [lower + width * k / _UNIFORM for k in range(1, _UNIFORM)]
    near = [width / _UNIFORM * 2.0**-k for k in range(1, _GEOMETRIC)]
    points = {lower, upper, *inner, *(lower + d for d in near), *(upper - d for d in near)}
    return sorted(p for p in points if lower <= p <= upper)


def _on_piece(series: SeriesOf, a: float, b: float, ends: tuple[float, float], shift: float) -> float:
    a, b = (
        max(ends[0], math.nextafter(a - shift, -math.inf)),
        min(ends[1], math.nextafter(b + shift, math.inf)),
    )
    try:
        low, high = enclose_ends(series.expr, {series.variable: (arb(a), arb(b))})
        change = round_up(arb(high) - arb(low))
    except UndefinedError:
        change = math.inf
    return min(change, round_up(arb(_slope(series, a, b)) * arb(shift)))


def _slope(series: SeriesOf, a: float, b: float) -> float:
    if a == b:
        return 0.0
    radius = (arb(b) - arb(a)) / 2
    try:
        _, rest = series.expand((arb(a) + arb(b)) / 2, radius, 1)
    except SingularError:
        return math.inf
    return round_up(rest / radius.lower())
