"""Remainders of functions after the first terms of their Taylor series: exp_rest1(u) = (exp(u) - 1)/u, 1 at zero.

For a function f, a whole number a inside its domain and an order m,

    rest(u) = (f(u) - P(u)) / (u - a)**m,    P(u) = sum of c_j (u - a)**j over j < m,    c_j = f^(j)(a)/j!,

continued to u = a, is the divided difference f[a, .., a, u] with m times a. Its k-th Taylor coefficient at u is that
with k more u, hence f^(k+m)(xi)/(k+m)! for some xi between a and u (mean value theorem for divided differences): it
is enclosed by the coefficients of f over a ball that holds a and u. Away from a it is that of the quotient; the bits
that are lost in dividing are added beforehand. rest is analytic where f is. It is there only if the c_j are exact:
balls of radius zero.

sinc(u) = sin(u)/u is that of the sine, for a = 0 and m = 1.

A name is f_rest1, .., f_rest4 for a = 0, or f_rest1_at2 for a = 2; besselj_rest1(1, u) for functions of an order.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from flint import arb, arb_series, ctx, fmpq

from transformula.kernel.arithmetic import coefficients, precision, series_length
from transformula.kernel.exceptions import SingularError
from transformula.kernel.functions.elementary_functions import Taylor, of_series
from transformula.kernel.functions.smooth_functions import Function, from_taylor

_NAME = re.compile(r"(?P<base>[A-Za-z]\w*?)_rest(?P<order>[1-4])(?:_at(?P<at>[1-9]))?(?P<index>:.*)?", re.ASCII)
#: Bits that dividing may lose: nearer to a the coefficients between a and u are as good.
_MOST_BITS = 3_000


class Rest(NamedTuple):
    """The function, the place and the order that a name says."""

    base: str
    at: int
    order: int


def rest_named(name: str) -> Rest | None:
    """Function and number of terms in the name of a remainder; None for other names."""
    found = _NAME.fullmatch(name) if "_rest" in name else None
    return found and Rest(found["base"] + (found["index"] or ""), int(found["at"] or 0), int(found["order"]))


def first_terms(base: Function, at: int, order: int) -> list[fmpq] | None:
    """The c_j below an order, if they are exact."""
    try:
        found = of_series(base.series)(arb(at), order)
    except SingularError:
        return None
    if not all(c.is_finite() and c.is_exact() for c in found):
        return None
    return [fmpq(c.man_exp()[0]) * fmpq(2) ** int(c.man_exp()[1]) for c in found]


def rest_taylor(inner: Taylor, at: int, terms: list[fmpq]) -> Taylor:
    """The Taylor coefficients of a rest, from those of the function and its first terms."""
    centre, order = arb(at), len(terms)

    def between(u: arb, length: int) -> list[arb]:
        return inner(centre.union(u), length + order)[order:]

    def divided(u: arb, length: int) -> list[arb]:
        with precision(ctx.prec + _lost(u - centre, length + order)), series_length(length):
            moved, above = arb_series([u - centre, 1], length), arb_series(inner(u, length), length)
            for j, c in enumerate(terms):
                above = above - c * moved**j
            for _ in range(order):  # one by one: a power of a wide ball may hold zero where the ball does not
                above = above / moved
            return coefficients(above, length)

    def taylor(u: arb, length: int) -> list[arb]:
        if _lost(u - centre, length + order) > _MOST_BITS:
            return between(u, length)
        found = divided(u, length)
        if u.is_exact():
            return found
        return [a.intersection(b) if a.is_finite() else b for a, b in zip(found, between(u, length), strict=True)]

    return taylor


def _lost(distance: arb, powers: int) -> int:
    """Bits lost by dividing by a power of a distance; more than any precision if the distance may be zero."""
    near = distance.abs_lower()
    if not near > 0:
        return _MOST_BITS + 1
    mantissa, exponent = near.man_exp()
    return 32 + powers * max(0, 1 - int(exponent) - int(mantissa).bit_length())


@lru_cache(maxsize=64)
def rest_of(base: Function, name: str, at: int, order: int) -> Function | None:
    """The entry of a rest, or None."""
    terms = first_terms(base, at, order)
    if terms is None:
        return None
    taylor = rest_taylor(of_series(base.series), at, terms)

    def ball(u: arb) -> arb:
        d = u - at
        if (lost := _lost(d, 1 + order)) <= _MOST_BITS:
            with precision(ctx.prec + lost):
                found = (base.ball(u) - sum((c * d**j for j, c in enumerate(terms)), start=arb(0))) / d**order
            if found.is_finite():
                return found
        try:
            return taylor(u, 1)[0]
        except SingularError:
            return arb.nan()

    domain = {key: getattr(base, key) for key in ("low", "high", "open", "poles", "analytic")}
    return from_taylor(name, ball, taylor, **domain)
