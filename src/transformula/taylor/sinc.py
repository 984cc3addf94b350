"""sinc(u) = sin(u)/u, with sinc(0) = 1, as a power series over balls that may contain zero.

Around c the coefficients are s_k = sinc^(k)(c)/k!, and

* sinc^(k)(c) = ∫₀¹ t^k cos(tc + kπ/2) dt, so |s_k| ≤ 1/((k + 1) k!) whatever c is;
* away from zero they are those of sin(c + t)/(c + t);
* near zero they are those of Σ_{n<N} (−1)^n (c + t)^{2n}/(2n + 1)!, up to a rest of which the k-th
  coefficient is at most Σ_{n≥N} C(2n, k) |c|^{2n−k}/(2n + 1)! ≤ Σ_{n≥N} (1 + |c|)^{2n}/(2n + 1)!.
"""

from __future__ import annotations

from math import factorial

from flint import arb, arb_series, ctx, fmpz

#: Closer to zero than this the quotient loses too many digits.
_NEAR = 0.5
_TERMS = 24


def sinc_series(u: arb_series) -> arb_series:
    """sinc of a power series."""
    length = ctx.cap
    constant = u[0]
    outer = _coefficients(constant, length)
    moved = u - constant
    result = arb_series([outer[-1]], length)
    for coefficient in reversed(outer[:-1]):
        result = result * moved + coefficient
    return result


def _coefficients(at: arb, length: int) -> list[arb]:
    limits = [arb(0, 1) / ((k + 1) * factorial(k)) for k in range(length)]
    if not at.is_finite():
        return limits
    shifted = arb_series([at, 1], length)
    if at.abs_lower() > _NEAR:
        found = shifted.sin() * shifted.inv()
        rest = arb(0)
    elif at.abs_upper() < 3:
        found, square = arb_series([0], length), shifted * shifted
        for n in reversed(range(_TERMS)):
            found = found * square + arb((-1) ** n) / fmpz(factorial(2 * n + 1))
        size = (1 + at.abs_upper()) ** 2  # below 16: each further term is at most half the last
        rest = arb(0, 1) * (2 * size**_TERMS / fmpz(factorial(2 * _TERMS + 1)))
    else:
        return limits
    return [_meet(found[k] + rest, limits[k]) for k in range(length)]


def _meet(a: arb, b: arb) -> arb:
    """What two enclosures of one number have in common."""
    return a.intersection(b) if a.is_finite() else b
