"""What the elementary functions do to intervals with exact rational ends, rounded outward.

A function that is monotone between its turning points takes its extreme values at the ends of an interval or
at the turning points inside. Beyond monotonicity is used:

* sin and cos reach +-1 only at multiples of pi (plus pi/2 for sin), and are monotone between them;
* sinc(u) = sin(u)/u, sinc(0) = 1, is even. It is stationary only where tan u = u, where
  abs(sinc u) = abs(cos u) = (1 + u**2)**(-1/2). The least such u > 0 is 4.493409..; up to there
  sinc decreases. So with ``_ROOT`` just below it, abs(sinc) <= ``_LEVEL`` beyond ``_ROOT``, and sinc >=
  -``_LEVEL`` everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from flint import arb, fmpq, fmpz

from transformula.kernel.exceptions import SingularError

Ends = tuple[fmpq, fmpq]
OnEnds = Callable[[fmpq, fmpq], Ends]

#: Ends beyond 2**+-this are called unbounded, or rounded outward: an exact number must fit into memory.
MAX_EXPONENT = 16_384
_TINIEST, _ZERO, _ONE = fmpq(1, fmpz(2) ** MAX_EXPONENT), fmpq(0), fmpq(1)


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
    bottom, top, exponent = _exact_root(low, by), _exact_root(high, by), arb(fmpq(by.numerator, by.denominator))
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
