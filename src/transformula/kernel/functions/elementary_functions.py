"""The elementary functions of intervals with exact rational ends, of power series and of Taylor models.

A function that is monotone between its turning points takes its extreme values at the ends of an interval or
at the turning points inside. Besides monotonicity, the proofs use:

* sin and cos reach +-1 only at multiples of pi (plus pi/2 for sin), and are monotone between them;
* sinc(u) = sin(u)/u, sinc(0) = 1, is even. It is stationary only where tan u = u, where
  abs(sinc u) = abs(cos u) = (1 + u**2)**(-1/2). The least such u > 0 is 4.493409..; up to there
  sinc decreases. So with ``_ROOT`` just below it, abs(sinc) <= ``_LEVEL`` beyond ``_ROOT``, and sinc >=
  -``_LEVEL`` everywhere.

*Series.* Functions of power series over balls; each raises `SingularError` where it may not be smooth.

*Models.* exp, sin, cos and log of Taylor models on many boxes at once.

With [low, high] the range of u, abs(g^(K)) / K! is at most e^high / K! for exp, 1 / K! for sin and cos, and
1 / (K low**K) for log, which is unbounded (rest = inf) where u may reach zero.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import factorial

import numpy as np
from flint import arb, arb_series, fmpq, fmpz

from transformula.kernel.arithmetic import coefficients, head, precision, series_length
from transformula.kernel.enclosures.taylor_models import TINY, UP, Floats, TaylorModel, U, compose
from transformula.kernel.exceptions import SingularError

Ends = tuple[fmpq, fmpq]
OnEnds = Callable[[fmpq, fmpq], Ends]

#: Ends beyond 2**+-this are called unbounded, or rounded outward: an exact number must fit into memory.
MAX_EXPONENT = 16_384
_TINIEST = fmpq(1, fmpz(2) ** MAX_EXPONENT)
_ZERO = fmpq(0)
_ONE = fmpq(1)


def dyadic_below(ball: arb) -> fmpq:
    """An exact number that is at most every number of the ball."""
    return _dyadic(ball.lower(), _ZERO, -_TINIEST)


def dyadic_above(ball: arb) -> fmpq:
    """An exact number that is at least every number of the ball."""
    return _dyadic(ball.upper(), _TINIEST, _ZERO)


def _dyadic(exact: arb, tiny: fmpq, minus_tiny: fmpq) -> fmpq:
    if not exact.is_finite():
        raise SingularError
    mantissa, exponent = exact.man_exp()
    size = mantissa.bit_length() + exponent
    if size > MAX_EXPONENT:
        raise SingularError
    if mantissa and size < -MAX_EXPONENT:
        return tiny if mantissa > 0 else minus_tiny
    scale = fmpz(2) ** abs(int(exponent))
    return fmpq(mantissa * scale) if exponent >= 0 else fmpq(mantissa, scale)


def root_ends(low: fmpq, high: fmpq, by: Fraction) -> Ends:
    """Range of u**by, by > 0 a fraction, on an interval of u >= 0."""
    bottom = _exact_root(low, by)
    top = _exact_root(high, by)
    exponent = arb(fmpq(by.numerator, by.denominator))
    if bottom is None:
        bottom = dyadic_below(arb(low).lower() ** exponent)
    return bottom, dyadic_above(arb(high).upper() ** exponent) if top is None else top


def _exact_root(value: fmpq, by: Fraction) -> fmpq | None:
    """value**by if that is a rational number that is easily found."""
    if value == 0:
        return _ZERO
    if by.denominator > 64 or by.numerator > 64:
        return None
    p, q = (n.root(by.denominator) for n in (value.p, value.q))
    exact = p**by.denominator == value.p and q**by.denominator == value.q
    return fmpq(p, q) ** by.numerator if exact else None


def monotone(
    function: Callable[[arb], arb], turn: fmpq | None = None, least: fmpq | None = None, most: fmpq | None = None
) -> OnEnds:
    """A function that is monotone on either side of the turn, with values between least and most."""

    def ends(low: fmpq, high: fmpq) -> Ends:
        points = (low, high) if turn is None or not low < turn < high else (low, turn, high)
        sides = [function(arb(x)) for x in points]
        bottom, top = min(map(dyadic_below, sides)), max(map(dyadic_above, sides))
        return bottom if least is None else max(bottom, least), top if most is None else min(top, most)

    return ends


def cut(function: Callable[[arb], arb]) -> Callable[[arb], arb]:
    """asin or acos of a number in [-1, 1] of which a ball is known that may stick out."""
    return lambda x: function(x.lower().max(-1)).union(function(x.upper().min(1)))


def _turns(low: fmpq, high: fmpq, shift: fmpq) -> tuple[int, int]:
    """First and last k for which (k + shift) pi may lie in the interval."""
    first = dyadic_below(arb(low) / arb.pi() - arb(shift)).ceil()
    return int(first), int(dyadic_above(arb(high) / arb.pi() - arb(shift)).floor())


def wave_ends(function: Callable[[arb], arb], shift: fmpq) -> OnEnds:
    """sin or cos: +1 at (k + shift) pi for even k, -1 for odd k, monotone between."""
    between = monotone(function, None, -_ONE, _ONE)

    def ends(low: fmpq, high: fmpq) -> Ends:
        first, last = _turns(low, high, shift)
        bottom, top = between(low, high) if last <= first else (-_ONE, _ONE)
        peak, valley = first + first % 2 <= last, first + (first + 1) % 2 <= last
        return -_ONE if valley else bottom, _ONE if peak else top

    return ends


sin_ends = wave_ends(arb.sin, fmpq(1, 2))


def abs_ends(low: fmpq, high: fmpq) -> Ends:
    """abs, exactly."""
    if low >= 0:
        return low, high
    return (-high, -low) if high <= 0 else (_ZERO, max(-low, high))


_ROOT = fmpq(44934094, 10**7)
_LEVEL = fmpq(217233630879, 10**12)  # (1 + _ROOT**2)**(-1/2), rounded up (asserted in the tests)


def sinc_ends(low: fmpq, high: fmpq) -> Ends:
    """sinc; see above."""
    low, high = abs_ends(low, high)
    if low > _ROOT:
        bottom, top = sin_ends(low, high)
        bottom, top = bottom / (low if bottom < 0 else high), top / (high if top < 0 else low)
        return max(bottom, -_LEVEL), min(top, _LEVEL)
    top = min(dyadic_above(arb(low).sinc()), _ONE)
    if high > _ROOT:
        return -_LEVEL, max(top, _LEVEL)
    return max(dyadic_below(arb(high).sinc()), -_LEVEL), top


Taylor = Callable[[arb, int], list[arb]]
OnSeries = Callable[[arb_series], arb_series]


def of_series(function: OnSeries) -> Taylor:
    """Coefficients by a method of Arb's series."""

    def taylor(at: arb, length: int) -> list[arb]:
        with series_length(length):
            return coefficients(function(arb_series([at, 1], length)), length)

    return taylor


def inverse(u: arb_series) -> arb_series:
    """1/u."""
    if not head(u).is_finite() or head(u).contains(0):
        raise SingularError
    return u.inv()


def positive(u: arb_series) -> arb_series:
    """The same series, seen to be positive at the centre."""
    if not head(u) > 0:
        raise SingularError
    return u


def absolute(u: arb_series) -> arb_series:
    """abs(u), by the sign at the centre."""
    return u if head(u) > 0 else positive(-u)


def asin(u: arb_series) -> arb_series:
    """asin(u)."""
    if not abs(head(u)) < 1:
        raise SingularError
    return u.asin()


def tanh(u: arb_series) -> arb_series:
    """tanh(u), by decaying exponentials only: no overflow, less cancellation."""
    if head(u) < 0:
        return -tanh(-u)
    return 1 - 2 * (-2 * u).exp() * inverse(1 + (-2 * u).exp())


_BITS = 80


def _values(function: Callable[[arb], arb], points: Floats) -> tuple[Floats, Floats]:
    """Values of a function at floats, by Arb, with bounds of their errors: the radius, and one ulp, charged 4u."""
    unique, back = np.unique(points, return_inverse=True)
    with precision(_BITS):
        balls = [arb.nan() if np.isnan(x) else function(arb(x)) for x in unique.tolist()]
    values, radii = np.array([float(b.mid()) for b in balls]), np.array([float(b.rad()) for b in balls])
    return values[back], ((radii + np.abs(values) * (4 * U)) * UP + TINY)[back]


def exp(u: TaylorModel) -> TaylorModel:
    """e**u."""
    order = u.layout.order
    top, slack = _values(arb.exp, u.range()[1])
    rest = (top + slack) / factorial(order) * UP + TINY
    return compose(u, *_over_factorials([_values(arb.exp, u.constant)], order), rest)


def _wave(u: TaylorModel, shift: int) -> TaylorModel:
    """The derivative of sin u of order ``shift``."""
    order = u.layout.order
    (s, s_wrong), (c, c_wrong) = _values(arb.sin, u.constant), _values(arb.cos, u.constant)
    cycle = [(s, s_wrong), (c, c_wrong), (-s, s_wrong), (-c, c_wrong)]
    series, wrong = _over_factorials(cycle[shift:] + cycle[:shift], order)
    return compose(u, series, wrong, np.full(len(s), UP / factorial(order)))


sin, cos = partial(_wave, shift=0), partial(_wave, shift=1)


def _over_factorials(cycle: list[tuple[Floats, Floats]], order: int) -> tuple[list[Floats], list[Floats]]:
    """Derivatives, given with errors and in turn, over k!: two roundings (charged 4u)."""
    found = [(k, *cycle[k % len(cycle)]) for k in range(order)]
    wrong = [(slack + np.abs(value) * (4 * U)) / factorial(k) * UP + TINY for k, value, slack in found]
    return [value / factorial(k) for k, value, _ in found], wrong


def log(u: TaylorModel) -> TaylorModel:
    """log u; the coefficients -+ 1/(k p0**k) take three roundings a step, each charged twice."""
    order, low = u.layout.order, u.range()[0]
    ok = low > 0
    p0, rest = np.where(ok, u.constant, 1.0), np.ones(len(low))
    value, slack = _values(arb.log, p0)
    series, wrong = [value], [slack]
    for k in range(1, order):
        series.append(series[-1] * ((1 - k) / k) / p0 if k > 1 else 1 / p0)
        wrong.append(np.abs(series[-1]) * (2 * (1 + 3 * (k - 1)) * U) + TINY)
    for _ in range(order):
        rest = rest / np.where(ok, low, 1.0)
    return compose(u, series, wrong, np.where(ok, (rest * UP + TINY) / order * UP + TINY, np.inf))
