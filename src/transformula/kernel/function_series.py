"""What some functions do to power series over balls; each raises `SingularError` where it may not be smooth.

sinc(u) = sin(u)/u, with sinc(0) = 1. Around c its coefficients are s_k = sinc^(k)(c)/k!, and

* sinc^(k)(c) = ∫₀¹ t^k cos(tc + kπ/2) dt, so |s_k| ≤ 1/((k + 1) k!) whatever c is;
* away from zero they are those of sin(c + t)/(c + t);
* near zero they are those of Σ_{n<N} (−1)^n (c + t)^{2n}/(2n + 1)!, up to a rest of which the k-th
  coefficient is at most Σ_{n≥N} C(2n, k) |c|^{2n−k}/(2n + 1)! ≤ Σ_{n≥N} (1 + |c|)^{2n}/(2n + 1)!.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import factorial

from flint import arb, arb_series, ctx, fmpz

from transformula.kernel.errors import SingularError

Taylor = Callable[[arb, int], list[arb]]
OnSeries = Callable[[arb_series], arb_series]

#: Closer to zero than this the quotient loses too many digits.
_NEAR = 0.5
_TERMS = 24


@contextmanager
def series_length(length: int) -> Iterator[None]:
    """Keep so many coefficients of every series."""
    before, ctx.cap = ctx.cap, length
    try:
        yield
    finally:
        ctx.cap = before


def of_series(function: OnSeries) -> Taylor:
    """Coefficients by a method of Arb's series."""

    def taylor(at: arb, length: int) -> list[arb]:
        with series_length(length):
            found = function(arb_series([at, 1], length))
            return [found[k] for k in range(length)]

    return taylor


def inverse(u: arb_series) -> arb_series:
    """1/u."""
    if not u[0].is_finite() or u[0].contains(0):
        raise SingularError
    return u.inv()


def positive(u: arb_series) -> arb_series:
    """The same series, seen to be positive at the centre."""
    if not u[0] > 0:
        raise SingularError
    return u


def absolute(u: arb_series) -> arb_series:
    """abs(u), by the sign at the centre."""
    return u if u[0] > 0 else positive(-u)


def asin(u: arb_series) -> arb_series:
    """asin(u)."""
    if not abs(u[0]) < 1:
        raise SingularError
    return u.asin()


def tanh(u: arb_series) -> arb_series:
    """tanh(u), by decaying exponentials only: no overflow, less cancellation."""
    if u[0] < 0:
        return -tanh(-u)
    return 1 - 2 * (-2 * u).exp() * inverse(1 + (-2 * u).exp())


def sinc(u: arb_series) -> arb_series:
    """sinc(u)."""
    outer = _sinc_coefficients(u[0], ctx.cap)
    moved, result = u - u[0], arb_series([outer[-1]], ctx.cap)
    for coefficient in reversed(outer[:-1]):
        result = result * moved + coefficient
    return result


def _sinc_coefficients(at: arb, length: int) -> list[arb]:
    limits = [arb(0, 1) / ((k + 1) * factorial(k)) for k in range(length)]
    shifted = arb_series([at, 1], length)
    if at.is_finite() and at.abs_lower() > _NEAR:
        found, rest = shifted.sin() * shifted.inv(), arb(0)
    elif at.is_finite() and at.abs_upper() < 3:
        found, square = arb_series([0], length), shifted * shifted
        for n in reversed(range(_TERMS)):
            found = found * square + arb((-1) ** n) / fmpz(factorial(2 * n + 1))
        size = (1 + at.abs_upper()) ** 2  # below 16: each further term is at most half the last
        rest = arb(0, 1) * (2 * size**_TERMS / fmpz(factorial(2 * _TERMS + 1)))
    else:
        return limits
    both = [(found[k] + rest, limits[k]) for k in range(length)]
    return [a.intersection(b) if a.is_finite() else b for a, b in both]
