"""One axis of a softmax table: Taylor models of its weights on an interval.

On x = c + r t, abs(t) <= 1, subtract from all scores the affine function that equals the leading score at the
centre and has slope ``mean`` (any number: it cancels). Then the weights are u_j = E_j / D, E_j = e^{s_j}
e^{l_j t}, D = sum E_j. With E_j^K, D^K the series below order K, Q_j any polynomial below order K,

    u_j - Q_j = (E_j - Q_j D) / D,
    abs(E_j - Q_j D) <= abs(E_j^K - [Q_j D^K]_{<K}) + abs([Q_j D^K]_{>=K}) + R_j + abs(Q_j) R_D,

R_j = e^{s_j} abs(l_j)^K / K! e^{abs(l_j)} (Lagrange), R_D the sum of the R_j, and abs(.) of a polynomial the
sum of its abs(coefficients). A token that stays ``cut`` below the leading score has 0 <= E_j <= e^{-cut}: it
is not expanded, and counts in R_D. All of this is computed in balls, but for Bernstein coefficients of D.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_series

from transformula.kernel.arithmetic import coefficients, series_length
from transformula.kernel.enclosures import bernstein
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.taylor_models import Floats, U

_PARTS = 4


@dataclass(frozen=True, eq=False)
class TableAxis:
    """Scores a_j x + b_j of one axis, exactly as stored: shapes (M,)."""

    slopes: Floats
    offsets: Floats

    def __len__(self) -> int:
        return len(self.slopes)


@dataclass(frozen=True, eq=False)
class TokenFrame:
    """The tokens that matter on an interval, and the affine function to subtract: see `leading`."""

    axis: TableAxis
    tokens: list[int]
    top: int
    mean: float

    def scores(self, centre: arb, radius: arb) -> Iterator[tuple[int, arb, arb]]:
        """Token, score at the centre below the top's, and rate in t."""
        base = arb(float(self.axis.slopes[self.top])) * centre + arb(float(self.axis.offsets[self.top]))
        mean = arb(self.mean)
        for j in self.tokens:
            a, b = arb(float(self.axis.slopes[j])), arb(float(self.axis.offsets[j]))
            yield j, a * centre + b - base, (a - mean) * radius


def leading(axis: TableAxis, centre: float, radius: float, cut: float) -> TokenFrame:
    """Find the tokens that matter on [centre - radius, centre + radius].

    A token j is left out if s_j - s_top at the centre plus abs(a_j - mean) radius < -cut even after adding a
    bound of the rounding of these floats: each passes at most 6 operations, each of which errs by u times
    what it adds up, so 16 u times the sum of all sizes is more than enough. A NaN leaves nothing out.
    """
    with np.errstate(all="ignore"):
        products = axis.slopes * centre
        scores = products + axis.offsets
        top = int(np.argmax(scores))
        weights = np.exp(scores - scores[top])  # only steers the choice of the mean: any number is sound
        mean = float(weights @ axis.slopes / weights.sum())
        size = np.abs(products) + np.abs(axis.offsets)
        reach = np.abs(axis.slopes - mean) * radius
        slack = (size + size[top] + reach) * (16 * U)
        far = scores - scores[top] + reach + slack < -cut
    return TokenFrame(axis, np.flatnonzero(~far).tolist(), top, mean)


def axis_models(
    axis: TableAxis, centres: Floats, radii: Floats, order: int, cut: float = 80.0
) -> tuple[Floats, Floats]:
    """Coefficients (intervals, order, M) of all weights on intervals (exact floats), and rests, maybe infinite."""
    terms = np.zeros((len(centres), order, len(axis)))
    rest = np.full((len(centres), len(axis)), math.inf)
    for i, (centre, radius) in enumerate(zip(centres.tolist(), radii.tolist(), strict=True)):
        frame = leading(axis, centre, radius, cut)
        with series_length(2 * order):
            _fill(frame, arb(centre), arb(radius), order, cut, terms[i], rest[i])
    return terms, rest


def _fill(frame: TokenFrame, centre: arb, radius: arb, order: int, cut: float, terms: Floats, rest: Floats) -> None:
    """Models of all weights on one interval, written into the arrays."""
    kept: dict[int, arb_series] = {}
    lost: dict[int, arb] = {}
    total = arb_series([0], order + 1)
    for j, score, rate in frame.scores(centre, radius):
        kept[j] = term = arb_series([score, rate], order + 1).exp()
        lost[j] = abs(coefficients(term, order + 1)[order]) * abs(rate).exp()
        total = total + term
    most = arb(-cut).exp()
    total_lost = sum(lost.values(), arb(0)) + (len(frame.axis) - len(kept)) * most
    below = coefficients(total, order)
    values, slack = bernstein.of_series(below, total_lost, _PARTS)
    least = (arb(float(values.min())) - slack).lower()  # of D on the interval
    if not least > 0:
        return
    rest[:] = round_up(most / least)
    inverse, divisor = arb_series(below, order).inv(), arb_series(below, 2 * order)
    for j, series in kept.items():
        floats = [float(c.mid()) for c in coefficients(series * inverse, order)]
        product = coefficients(arb_series(floats, 2 * order) * divisor, 2 * order)
        wrong = sum((abs(p - c) for p, c in zip(product, coefficients(series, order), strict=False)), lost[j])
        wrong = sum(map(abs, product[order:]), wrong)
        wrong = wrong + sum((abs(arb(q)) for q in floats), arb(0)) * total_lost
        terms[:, j] = floats
        rest[j] = round_up(wrong / least)
