"""The slope of a table of one axis: bounds of sup|T'| and of sup|T' − f'| on pieces that are given.

When an argument is off by r, all scores move together and T changes by at most sup|T'| r, far less than if
every score moved on its own. With u = c + r t, T = N/D has coefficients t_k at c, and t_K(ξ) over the whole
piece, so dT/dt = Σ_{k<K} k t_k t^{k−1} + K t_K(ξ) t^{K−1} (Taylor's theorem for T'), and

    |T'| ≤ (Σ_{k<K} k|t_k| + K sup|t_K|) / r.

The same holds for T − f with the coefficients of both. All of it is computed with balls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from flint import arb, arb_series

from transformula.kernel.arithmetic import coefficients, precision, series_length
from transformula.kernel.enclosures.balls import SeriesOf, round_up
from transformula.kernel.exceptions import RefutedError, SingularError
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.table_error import SoftmaxTable

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
