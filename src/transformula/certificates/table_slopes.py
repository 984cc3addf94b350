"""How steep a table is: proven bounds of sup|T'| and of sup|T' − f'| on an interval.

When an argument is off by r, all scores move together and T changes by at most sup|T'| r, far less than if
every score moved on its own. With x = c + r t, T = N/D is expanded at c to order K, and the series over the
whole ball bounds what is left: |T'| ≤ (Σ k|t_k| + K |t_K over the ball|) / r.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
from flint import arb, arb_series, ctx

from transformula.certificates.table_bounds import Table
from transformula.formulas.enclosures import precision, round_up
from transformula.formulas.expression import Expr
from transformula.taylor.series import SeriesOf, SingularError

_BITS = 128
_ORDER = 8
_MAX_PIECES = 600


def table_slope(table: Table, low: float, high: float) -> float:
    """Bound sup|T'| on [low, high]; infinite if the pieces run out."""
    return _steepest(table, None, low, high, 0.0)


def slope_gap(table: Table, function: Expr, low: float, high: float, enough: float) -> float:
    """Bound sup|T' − f'| on [low, high], to within ``enough``; infinite if the pieces run out."""
    return _steepest(table, SeriesOf(function, "u"), low, high, enough)


def _steepest(table: Table, minus: SeriesOf | None, low: float, high: float, enough: float) -> float:
    if not high > low:
        high = math.nextafter(low, math.inf)
    with precision(_BITS):
        pieces = [(-math.inf, low, high)]
        settled = reached = 0.0
        for _ in range(_MAX_PIECES):
            if not pieces:
                return settled
            bound, a, b = heapq.heappop(pieces)
            if -bound <= max(settled, 1.2 * reached, enough):
                return max(settled, -bound)
            for left, right in ((a, (a + b) / 2), ((a + b) / 2, b)):
                upper, seen = _on_piece(table, minus, left, right)
                reached = max(reached, seen)
                if upper <= max(1.2 * reached, enough):
                    settled = max(settled, upper)
                else:
                    heapq.heappush(pieces, (-upper, left, right))
        return max(settled, max((-p[0] for p in pieces), default=0.0))


def _on_piece(table: Table, minus: SeriesOf | None, low: float, high: float) -> tuple[float, float]:
    """(bound of |T' − f'|, |T' − f'| at the centre), where f = 0 if there is none to subtract."""
    centre, radius = (arb(low) + arb(high)) / 2, (arb(high) - arb(low)) / 2
    if not radius > 0:
        return math.inf, 0.0
    exact = _series(table, centre, centre, radius, _ORDER)
    rest = _series(table, centre, centre + arb(0, radius.upper()), radius, _ORDER + 1)[_ORDER]
    if minus is not None:
        try:
            taken, remainder = minus.expand(centre, radius, _ORDER)
        except SingularError:
            return math.inf, 0.0
        exact, rest = [a - b for a, b in zip(exact, taken, strict=True)], abs(rest) + remainder
    total = sum((k * abs(c) for k, c in enumerate(exact)), arb(0)) + _ORDER * abs(rest)
    bound = round_up(total / radius.lower()) if total.is_finite() else math.inf
    return bound, float(abs(exact[1] / radius).lower())


def _series(table: Table, middle: arb, at: arb, radius: arb, length: int) -> list[arb]:
    """Coefficients of T(at + radius t)."""
    x = float(middle)
    top = int(np.argmax(table.slopes * x + table.offsets))
    before, ctx.cap = ctx.cap, length
    try:
        above, below = arb_series([0], length), arb_series([0], length)
        for a, b, y in zip(table.slopes.tolist(), table.offsets.tolist(), table.values.tolist(), strict=True):
            slope = arb(a) - arb(float(table.slopes[top]))
            offset = arb(b) - arb(float(table.offsets[top]))
            term = arb_series([slope * at + offset, slope * radius], length).exp()
            above, below = above + arb(y) * term, below + term
        quotient = above / below
        return [quotient[k] for k in range(length)]
    except (ValueError, ZeroDivisionError):
        return [arb.nan()] * length
    finally:
        ctx.cap = before
