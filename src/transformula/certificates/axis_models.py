"""One axis of a tensor grid: Taylor models of its softmax weights on an interval.

On x = c + r t, abs(t) <= 1, the weights are u_j = E_j / D with E_j = e^{s_j} e^{l_j t}, D = sum
E_j (scores shifted as in `tables_1d`). With E_j^K, D^K the series below order K, and Q_j the
truncated quotient,

    u_j - Q_j = (E_j - Q_j D) / D,
    abs(E_j - Q_j D) <= abs(E_j^K - [Q_j D^K]_{<K}) + abs([Q_j D^K]_{>=K}) + R_j + abs(Q_j) R_D,

where the first term is only the rounding of the balls, R are Lagrange remainders of exponentials
in closed form, and abs(.) of a polynomial is the sum of its abs(coefficients). No series is
ever evaluated over a wide ball, so the bound is sharp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_series, ctx

from transformula.formulas.enclosures import round_up
from transformula.taylor import bernstein
from transformula.taylor.models import U
from transformula.taylor.results import Floats

_CUT = 80.0
_PARTS = 4


@dataclass(frozen=True)
class Axis:
    """Scores a_j x + b_j of one axis, exactly as stored: shapes (M,)."""

    slopes: Floats
    offsets: Floats

    def __len__(self) -> int:
        return len(self.slopes)


@dataclass(frozen=True)
class AxisModels:
    """Models of all weights on many intervals.

    Attributes
    ----------
    terms : array, shape (intervals, K, M)
        Coefficients, powers of t.
    rest : array, shape (intervals, M)
        Bounds of abs(u_j - polynomial), rounding of the coefficients to floats included.
    """

    terms: Floats
    rest: Floats


def axis_models(axis: Axis, centres: Floats, radii: Floats, order: int, cut: float = _CUT) -> AxisModels:
    """Models on the intervals [centre - radius, centre + radius] (exact floats).

    Tokens whose score stays ``cut`` below the largest are bounded, not expanded.
    """
    terms = np.zeros((len(centres), order, len(axis)))
    rest = np.zeros((len(centres), len(axis)))
    for i, (centre, radius) in enumerate(zip(centres.tolist(), radii.tolist(), strict=True)):
        frame = leading(axis, centre, radius, cut)
        _fill(frame, arb(centre), arb(radius), order, cut, terms[i], rest[i])
    return AxisModels(terms, rest)


@dataclass(frozen=True)
class Frame:
    """The tokens that matter on an interval, and the affine function to subtract.

    Attributes
    ----------
    tokens : list of int
        All others have scores below that of ``top`` by the cut, on the whole interval.
    top : int
        The token with the largest score at the centre, which is subtracted there.
    mean : float
        The slope that is subtracted.
    """

    axis: Axis
    tokens: list[int]
    top: int
    mean: float

    def scores(self, centre: arb, radius: arb) -> Iterator[tuple[int, arb, arb]]:
        """Token, score at the centre below the top's, and rate in t."""
        top = arb(float(self.axis.slopes[self.top])) * centre
        base = top + arb(float(self.axis.offsets[self.top]))
        mean = arb(self.mean)
        for j in self.tokens:
            a, b = arb(float(self.axis.slopes[j])), arb(float(self.axis.offsets[j]))
            yield j, a * centre + b - base, (a - mean) * radius


def leading(axis: Axis, centre: float, radius: float, cut: float) -> Frame:
    """Find the tokens that matter on [centre - radius, centre + radius].

    A token j is left out if s_j - s_top at the centre plus abs(a_j - mean) radius < -cut even after
    adding a bound of the rounding of these floats (each takes at most 6 operations). ``centre`` may
    be off by a relative 2 u.
    """
    products = axis.slopes * centre
    scores = products + axis.offsets
    top = int(np.argmax(scores))
    weights = np.exp(scores - scores[top])  # only steers the choice of the mean: any number is sound
    mean = float(weights @ axis.slopes / weights.sum())
    size = np.abs(products) + np.abs(axis.offsets)
    reach = np.abs(axis.slopes - mean) * radius
    slack = (size + size[top] + reach) * (16 * U)
    far = scores - scores[top] + reach + slack < -cut
    return Frame(axis, np.flatnonzero(~far).tolist(), top, mean)


def _fill(
    frame: Frame, centre: arb, radius: arb, order: int, depth: float, terms: Floats, rest: Floats
) -> None:
    """Models of all weights on one interval, written into the arrays."""
    before, ctx.cap = ctx.cap, order + 1
    kept: dict[int, arb_series] = {}
    lost: dict[int, arb] = {}
    total = arb_series([0], order + 1)
    for j, score, rate in frame.scores(centre, radius):
        kept[j] = term = arb_series([score, rate], order + 1).exp()
        lost[j] = abs(term[order]) * abs(rate).exp()
        total = total + term
    cut = arb(-depth).exp()
    total_lost = sum(lost.values(), arb(0)) + (len(frame.axis) - len(kept)) * cut
    ctx.cap = order
    below = arb_series([total[k] for k in range(order)], order)
    least = _least(below, total_lost, order)
    inverse = below.inv()
    rest[:] = round_up(cut / least) if least > 0 else math.inf
    for j in kept:
        ctx.cap = order
        quotient = kept[j] * inverse
        numbers = [quotient[k].mid() for k in range(order)]
        floats = [float(q) for q in numbers]
        ctx.cap = 2 * order
        product = arb_series(floats, 2 * order) * _long(below, order)
        wrong = sum((abs(product[k] - kept[j][k]) for k in range(order)), lost[j])
        wrong = sum((abs(product[k]) for k in range(order, 2 * order)), wrong)
        wrong = wrong + sum((abs(q) for q in floats), 0.0) * (1 + 2.0**-40) * total_lost
        terms[:, j] = floats
        rest[j] = round_up(wrong / least) if least > 0 else math.inf
    ctx.cap = before


def _long(series: arb_series, order: int) -> arb_series:
    """The same polynomial with room for a full product."""
    return arb_series([series[k] for k in range(order)], 2 * order)


def _least(below: arb_series, lost: arb, order: int) -> arb:
    """Lower bound of D on the interval."""
    series = [below[k] for k in range(order)]
    floats = np.array([float(c.mid()) for c in series])
    size = sum((abs(c) for c in series), arb(0))
    slack = sum((c.rad() for c in series), lost) + size * bernstein.ROUNDING
    values = bernstein.coefficients(floats[None], _PARTS)
    return arb((arb(float(values.min())) - slack).lower())
