"""A function from its Taylor coefficients alone: its power series, its ranges and its Taylor models.

A function g is given by ``ball`` (enclosures of its values) and ``taylor``: enclosures of g^(k)(x)/k!, k < n, for
all x of a ball. Where the ball [c - r, c + r] is wide these may be coarse. They are sharpened:

* by Taylor's theorem for g^(j), whatever g is: with m_k the coefficients at c and any order K,
  g^(j)(x)/j! = sum_{i<K-j} C(j+i, j) m_{j+i} h**i + C(K, j) g^(K)(xi)/K! h**(K-j), h = x - c, abs(h) <= r;
* or by end values: if every derivative from order ``steady`` on is monotone on the domain, an interval, it lies
  between its values at the ends of the ball, and below that order g^(j)(x)/j! = m_j + h (j+1) g^(j+1)(xi)/(j+1)!.

On an interval, g lies between its values at the ends if it is ``monotone`` on its domain or the slope keeps its sign,
else (on each of a few equal parts) in ``ball`` and in the mean value form. A Taylor model has the coefficients at the
centre and the one of order K over the whole range (Lagrange); where that is worse than a constant, it is the middle
of the range.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import comb, isfinite
from typing import Any

import numpy as np
from flint import arb, arb_series, fmpq

from transformula.kernel.arithmetic import coefficients, precision
from transformula.kernel.enclosures.taylor_models import TINY, UP, TaylorModel, U, choose, compose, constant_model
from transformula.kernel.exceptions import SingularError
from transformula.kernel.functions.elementary_functions import (
    Ends,
    OnEnds,
    OnSeries,
    Taylor,
    dyadic_above,
    dyadic_below,
    of_series,
)
from transformula.kernel.functions.elementary_functions import monotone as by_end_values

Ball = Callable[[arb], arb]

#: Further orders at which Taylor's theorem is used, and balls too thin to need them.
_MORE, _THIN = 6, 2.0**-30
#: Parts of an interval on which a function is not seen to be monotone.
_PARTS = 16
_BITS = 80


@dataclass(frozen=True)
class Function:
    """One function of one argument, defined between ``low`` and ``high``, without these if ``open``.

    ``ball`` is not finite outside the domain; ``ends`` (inside the domain) and ``series`` raise `SingularError`.
    """

    name: str
    ball: Ball
    ends: OnEnds
    series: OnSeries
    model: Callable[[TaylorModel], TaylorModel]
    low: Fraction | None = None
    high: Fraction | None = None
    open: bool = False
    poles: bool = False  # the domain is smaller than that: see where ball is finite
    analytic: bool = False  # on the whole real line
    odd: bool = False  # f(-u) = -f(u), with the sign of u
    sign: int = 0  # 2: positive wherever it is defined, 1: not negative


def from_taylor(
    name: str,
    ball: Ball,
    taylor: Taylor,
    steady: int | None = None,
    monotone: bool = False,
    **more: Any,
) -> Function:
    """A function from its values and its Taylor coefficients in the interior of the domain."""
    low, high = (more.get(k) for k in ("low", "high"))
    bottom, top = (None if end is None else arb(fmpq(end.numerator, end.denominator)) for end in (low, high))

    def interior(at: arb) -> bool:
        return bool(at.is_finite() and (bottom is None or at > bottom) and (top is None or at < top))

    def value(at: arb) -> arb:
        closed = not more.get("open") and at in (bottom, top)
        if not interior(at) and not closed:
            return arb.nan()
        return ball(arb(at.lower())).union(ball(arb(at.upper()))) if monotone else ball(at)

    def coefficients(at: arb, length: int) -> list[arb]:
        if not interior(at):
            raise SingularError
        return taylor(at, length)

    sharper = sharp(finite(coefficients), steady)
    ends = by_end_values(value) if monotone else on_ends(value, sharper)
    return Function(name, value, ends, on_series(sharper), on_models(sharper, ends, low, high), **more)


def primitive(ball: Ball, derivative: OnSeries) -> Taylor:
    """Coefficients of a function from its value and the series of its derivative."""
    inner = of_series(derivative)
    return lambda at, n: [ball(at), *(c / (k + 1) for k, c in enumerate(inner(at, n - 1) if n > 1 else []))]


def finite(taylor: Taylor) -> Taylor:
    """The same coefficients; `SingularError` where one is not finite."""

    def coefficients(at: arb, length: int) -> list[arb]:
        try:
            found = taylor(at, length)
        except (ValueError, ZeroDivisionError, NotImplementedError):
            raise SingularError from None
        if not all(c.is_finite() for c in found):
            raise SingularError
        return found

    return coefficients


def sharp(taylor: Taylor, steady: int | None) -> Taylor:
    """The same coefficients, sharpened where the ball is wide."""

    def coefficients(at: arb, length: int) -> list[arb]:
        if at.is_exact():
            return taylor(at, length)
        middle = at.mid()
        h = arb(0, at.rad())
        thin = at.rad() < _THIN
        if steady is not None:
            most = max(length, steady + 1)
            ends = zip(taylor(at.lower(), most), taylor(at.upper(), most), strict=True)
            found, exact = [a.union(b) for a, b in ends], taylor(middle, most)
            for j in reversed(range(steady)):
                found[j] = exact[j] + h * (j + 1) * found[j + 1]
            return found[:length]
        order = length if thin else length + _MORE
        coarse, exact = taylor(at, order + 1), taylor(middle, order)
        found = []
        for j in range(length):
            value = comb(order, j) * coarse[order]
            for k in reversed(range(j, order)):
                value = comb(k, j) * exact[k] + h * value
            found.append(value.intersection(coarse[j]))
        return found

    return coefficients


def on_series(taylor: Taylor) -> OnSeries:
    """The function of a power series."""

    def series(u: arb_series) -> arb_series:
        length = u.prec
        inner = coefficients(u, length)
        if not all(c.is_finite() for c in inner):
            raise SingularError
        outer, moved = taylor(inner[0], length), arb_series([0, *inner[1:]], length)
        result = arb_series([outer[-1]], length)
        for coefficient in reversed(outer[:-1]):
            result = result * moved + coefficient
        return result

    return series


def on_ends(ball: Ball, taylor: Taylor) -> OnEnds:
    """The range on an interval inside the domain."""

    def part(low: fmpq, high: fmpq) -> Ends | None:
        """The range if the function is seen to be monotone."""
        try:
            slope = taylor(arb(low).union(arb(high)), 2)[1] if low < high else arb(0)
        except SingularError:
            return None
        return _hull([ball(arb(low)), ball(arb(high))]) if slope >= 0 or slope <= 0 else None

    def coarse(low: fmpq, high: fmpq) -> Ends:
        whole, half = arb(low).union(arb(high)), (high - low) / 2
        value, around = ball(whole), arb.nan()
        with suppress(SingularError):
            around = ball(arb(low + half)) + taylor(whole, 2)[1] * arb(0, 1) * arb(half)
        both = value.is_finite() and around.is_finite()
        return _hull([value.intersection(around) if both else value if value.is_finite() else around])

    def ends(low: fmpq, high: fmpq) -> Ends:
        if (found := part(low, high)) is not None:
            return found
        cuts = [low + (high - low) * k / _PARTS for k in range(_PARTS + 1)]
        parts = [part(a, b) or coarse(a, b) for a, b in pairwise(cuts)]
        return min(a for a, _ in parts), max(b for _, b in parts)

    return ends


def _hull(balls: list[arb]) -> Ends:
    return min(map(dyadic_below, balls)), max(map(dyadic_above, balls))


def on_models(
    taylor: Taylor, ends: OnEnds, least: Fraction | None = None, most: Fraction | None = None
) -> Callable[[TaylorModel], TaylorModel]:
    """The function of Taylor models; they hold where u is in the domain, from least to most."""
    limits = -np.inf if least is None else float(least), np.inf if most is None else float(most)

    def one(place: list[float], order: int) -> list[tuple[float, float]]:
        """The coefficients at a point and that of the order on a range: floats, and bounds of their errors."""
        x, low, high = place
        try:
            if not all(map(isfinite, place)):
                raise SingularError
            found = [*taylor(arb(x), order), taylor(arb(low).union(arb(high)), order + 1)[order]]
        except SingularError:
            return [(0.0, np.inf)] * (order + 1)
        return [_float(c) for c in found]

    def flat(low: float, high: float) -> tuple[float, float]:
        try:
            a, b = ends(fmpq(*low.as_integer_ratio()), fmpq(*high.as_integer_ratio()))
        except (SingularError, OverflowError, ValueError):  # no range, or infinite ends
            return 0.0, np.inf
        return _float(arb(a).union(arb(b)))

    def model(u: TaylorModel) -> TaylorModel:
        order, (low, high) = u.layout.order, u.range()
        places, back = np.unique(np.stack([u.constant, low, high]), axis=1, return_inverse=True)
        with precision(_BITS):
            back = back.ravel()
            found = np.array([one(place, order) for place in places.T.tolist()])[back].transpose(1, 2, 0)
            series, wrong = list(found[:-1, 0]), list(found[:-1, 1])
            smooth = compose(u, series, wrong, (np.abs(found[-1, 0]) + found[-1, 1]) * UP)
            asked = np.unique(back[~(smooth.rest <= 0.05 * u.spread())])  # where it may be better: to save calls of Arb
            ranges = np.full((places.shape[1], 2), np.inf)
            cut = np.clip(places[1:, asked], *limits).T.tolist()
            ranges[asked] = np.array([flat(a, b) for a, b in cut]).reshape(-1, 2)
        middle, half = ranges[back].T
        return choose(smooth.rest <= half, smooth, constant_model(u.layout, middle, half))

    return model


def _float(ball: arb) -> tuple[float, float]:
    """The middle of a ball as a float, and a bound of its distance to all of the ball: one ulp, charged 4u."""
    value = float(ball.mid())
    return value, (float(ball.rad()) + abs(value) * (4 * U)) * UP + TINY
