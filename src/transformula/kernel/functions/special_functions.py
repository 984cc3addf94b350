"""The functions beyond the elementary ones: what Arb evaluates, by values and Taylor coefficients (`smooth_functions`).

Conventions: ellipk and ellipe take the parameter m = k**2; fresnels and fresnelc integrate sin and cos of pi t**2/2;
Ei is a principal value for u > 0, so is li(u) = Ei(log u) for u > 1; lambertw is the principal branch. Only
u > 0 is taken by gamma, lgamma and digamma, and u > 1 by zeta, where the sum converges. What is used beyond
Arb's enclosures and derivatives of integrals:

* monotone derivatives (``steady``). From order 1 on, those of lgamma are +- sums of (u + n)**-k, and that of order 1,
  digamma, increases. zeta is a sum of n**-u. ellipk and ellipe are integrals over t of (1 - m sin(t)**2)**-+1/2, all
  of whose derivatives in m have one sign. lambertw is a Pick function (it maps the upper half plane into itself) that
  is analytic and real for u > -1/E: by Nevanlinna's theorem its derivatives are a constant >= 0 and integrals of
  +- (t - u)**-k over t <= -1/E.
* derivatives of Bessel functions: 2**k C_v^(k) = sum_j (-1)**j C(k, j) C_(v-k+2j) for J and Y, without the signs for I,
  and with (-1)**k instead for K (DLMF 10.6.7, 10.29.5).
* over a wide ball in u > 0, whose least number is a and largest b: abs(J_n) <= 1 for whole n; J_v**2 + Y_v**2 decreases
  (Nicholson's integral, Watson 13.73), which bounds both; K_v = K_-v decreases; I_v increases for v >= 0, so does
  I_-n = I_n, and abs(I_-v - I_v) = abs(2 sin(v pi) K_v / pi) <= K_v. For whole n, I_n is even or odd.
* xlogx(u) = u log(u), 0 at zero, is continuous for u >= 0 and decreases up to 1/E, where it is least.
* E(m) and K(m) are pi/2 times 2F1(-+1/2, 1/2; 1; m), whose derivatives are 2F1 with parameters raised by one
  (DLMF 15.5.2, 19.5.1).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial
from typing import Any

from flint import arb, arb_series, ctx, fmpq

from transformula.kernel.arithmetic import head, precision
from transformula.kernel.exceptions import RefutedError, SingularError
from transformula.kernel.functions import elementary_functions as elementary
from transformula.kernel.functions.elementary_functions import Ends, Taylor, of_series
from transformula.kernel.functions.smooth_functions import (
    Ball,
    Function,
    finite,
    from_taylor,
    on_models,
    on_series,
    primitive,
)
from transformula.kernel.functions.taylor_rests import rest_taylor

MAX_ORDER = 50
_THIN = 2.0**-30
_MOST_BITS = 1000
_LARGE = 2.0**40
_ZERO, _ONE = Fraction(0), Fraction(1)
_ABOVE: dict[str, Any] = {"low": _ZERO, "open": True}


def _gamma_taylor(at: arb, length: int) -> list[arb]:
    outer = _lgamma.series
    return of_series(lambda u: outer(u).exp())(at, length)


def _digamma_taylor(at: arb, length: int) -> list[arb]:
    return [(k + 1) * c for k, c in enumerate(_lgamma_taylor(at, length + 1)[1:])]


_lgamma_taylor = of_series(arb_series.lgamma)


def _zeta_taylor(at: arb, length: int) -> list[arb]:
    if not at < _LARGE:  # from 10**18 on Arb takes a thousand times as long
        raise SingularError
    return of_series(arb_series.zeta)(at, length)


def _zeta(at: arb) -> arb:
    return at.zeta() if at < _LARGE else arb.nan()


def _elliptic(first: fmpq) -> tuple[Ball, Taylor]:
    """pi/2 times 2F1(first, 1/2; 1; m)."""
    half = fmpq(1, 2)

    def coefficient(m: arb, k: int) -> arb:
        scale = arb.pi() / 2
        for i in range(k):
            scale = scale * (first + i) * (half + i) / (i + 1) ** 2
        return scale * m.hypgeom_2f1(arb(first + k), arb(half + k), arb(1 + k))

    return (lambda m: coefficient(m, 0)), (lambda m, n: [coefficient(m, k) for k in range(n)])


def _bessel(kind: str) -> Callable[[Fraction], Function]:
    method: Callable[[arb, arb], arb] = getattr(arb, f"bessel_{kind}")
    signs = {"j": (-1, 1), "y": (-1, 1), "i": (1, 1), "k": (1, -1)}[kind]

    @lru_cache(maxsize=64)
    def of_order(order: Fraction) -> Function:
        whole = order.denominator == 1
        even = kind == "k" or (kind == "i" and whole)  # above order zero Arb may integrate: 30 times as long

        def value(at: arb, v: arb) -> arb:
            thin = _THIN if even or kind != "i" else _THIN * at.lower().min(1)  # likewise
            if not at.rad() < thin:
                return arb(0, 1) * _bessel_bound(kind, at, v, whole)
            v = -abs(v) if even else v
            found = method(at, v)
            if found.rel_accuracy_bits() > min(ctx.prec, at.rel_accuracy_bits()) / 2:
                return found
            more = 32 + int(min(2 * float(at.abs_upper()), _MOST_BITS))
            with precision(ctx.prec + more):
                return method(at, v)  # unless u is large, Arb's Y and K lose so many bits

        def taylor(at: arb, length: int) -> list[arb]:
            reach = length - 1
            near = {n: value(at, arb(fmpq(order.numerator, order.denominator)) + n) for n in range(-reach, length)}
            found = []
            for k in range(length):
                total = sum((signs[0] ** j * comb(k, j) * near[2 * j - k] for j in range(k + 1)), start=arb(0))
                found.append(total * signs[1] ** k / (2**k * factorial(k)))
            return found

        entire = whole and kind in "ji"
        domain: dict[str, Any] = {} if entire else {"low": _ZERO, "open": True}
        sign = 2 if kind == "k" or (kind == "i" and order == 0) else 0
        more = domain | {"analytic": entire, "sign": sign, "monotone": kind == "k"}
        return from_taylor(f"bessel{kind}:{order}", lambda at: taylor(at, 1)[0], taylor, **more)

    return of_order


def _bessel_bound(kind: str, at: arb, v: arb, whole: bool) -> arb:
    """Bound of a Bessel function on a wide ball, inside u > 0 unless it is J or I of whole order."""
    low, high = arb(at.lower()), arb(at.abs_upper())
    if kind == "j" and whole:
        return arb(1)
    if kind in "jy":
        return (low.bessel_j(v) ** 2 + low.bessel_y(v) ** 2).sqrt()
    if kind == "k":
        return low.bessel_k(-abs(v))
    rising = high.bessel_i(-abs(v) if whole else abs(v))
    return rising if whole else rising + low.bessel_k(-abs(v))


#: Functions of an order and an argument: name -> order -> entry.
FAMILIES = {f"bessel{kind}": _bessel(kind) for kind in "jyik"}


def member(name: str) -> Function:
    """The entry of besselj:3/2 and the like, the order a whole number or a half."""
    family, _, text = name.partition(":")
    order = Fraction(text)
    if order.denominator > 2 or abs(order) > MAX_ORDER:
        raise RefutedError(f"the order of {family} is a whole number or a half, at most {MAX_ORDER}, not {text[:40]}")
    return FAMILIES[family](order)


def _cube_root(x: arb) -> arb:
    return arb(0) if x.is_zero() else x.root(3) if x > 0 else -(-x).root(3)


def _wave(scale: Callable[[arb_series], arb_series]) -> Callable[[arb_series], arb_series]:
    return lambda u: scale(u * u * (arb.pi() / 2))


def _xlogx() -> Function:
    """u log(u) for u > 0, and 0 at zero."""
    inside = from_taylor(
        "xlogx", lambda u: u * u.log(), of_series(lambda u: u * elementary.positive(u).log()), **_ABOVE
    )
    falling = fmpq(1, 4)

    def ball(u: arb) -> arb:
        if not u >= 0 or u > 0:
            return inside.ball(u)
        top = u.upper()
        if top.is_zero():
            return arb(0)
        least = top * top.log() if top <= falling else -arb(-1).exp()
        return least.union(arb(0)).union(top * top.log())

    def ends(low: fmpq, high: fmpq) -> Ends:
        if low > 0:
            return inside.ends(low, high)
        first = min(high, falling)
        a, b = inside.ends(first, high) if high > 0 else (fmpq(0), fmpq(0))
        return a, max(b, fmpq(0))  # it falls from 0 on the first part

    taylor = finite(of_series(inside.series))
    return Function("xlogx", ball, ends, inside.series, on_models(taylor, ends, _ZERO), low=_ZERO)


sinc_series = on_series(finite(rest_taylor(of_series(arb_series.sin), 0, [fmpq(0)])))
_lgamma = from_taylor("lgamma", arb.lgamma, _lgamma_taylor, 1, **_ABOVE)
SPECIAL: tuple[Function, ...] = (
    from_taylor(
        "cbrt",
        _cube_root,
        of_series(
            lambda u: (
                (elementary.positive(u).log() / 3).exp() if head(u) > 0 else -(elementary.positive(-u).log() / 3).exp()
            )
        ),
        monotone=True,
        odd=True,
    ),
    from_taylor(
        "asinh",
        arb.asinh,
        primitive(arb.asinh, lambda u: (u * u + 1).rsqrt()),
        monotone=True,
        analytic=True,
        odd=True,
    ),
    from_taylor(
        "acosh",
        arb.acosh,
        primitive(arb.acosh, lambda u: elementary.positive(u * u - 1).rsqrt()),
        monotone=True,
        low=_ONE,
        sign=1,
    ),
    from_taylor(
        "atanh",
        arb.atanh,
        primitive(arb.atanh, lambda u: elementary.inverse(1 - u * u)),
        low=-_ONE,
        high=_ONE,
        open=True,
        monotone=True,
        odd=True,
    ),
    _xlogx(),
    from_taylor("erf", arb.erf, of_series(arb_series.erf), monotone=True, analytic=True, odd=True),
    from_taylor("erfc", arb.erfc, of_series(arb_series.erfc), monotone=True, analytic=True, sign=2),
    from_taylor("gamma", arb.gamma, _gamma_taylor, sign=2, **_ABOVE),
    _lgamma,
    from_taylor("digamma", arb.digamma, _digamma_taylor, 0, True, **_ABOVE),
    from_taylor("zeta", _zeta, _zeta_taylor, 0, True, low=_ONE, open=True, sign=2),
    from_taylor("lambertw", arb.lambertw, of_series(arb_series.lambertw), 0, True, poles=True),
    from_taylor("airyai", arb.airy_ai, of_series(arb_series.airy_ai), analytic=True),
    from_taylor("airybi", arb.airy_bi, of_series(arb_series.airy_bi), analytic=True),
    from_taylor("Si", arb.si, primitive(arb.si, sinc_series), analytic=True, odd=True),
    from_taylor("Ci", arb.ci, primitive(arb.ci, lambda u: u.cos() * elementary.inverse(u)), **_ABOVE),
    from_taylor("Ei", arb.ei, primitive(arb.ei, lambda u: u.exp() * elementary.inverse(u)), poles=True),
    from_taylor(
        "li",
        arb.li,
        primitive(arb.li, lambda u: elementary.inverse(elementary.positive(u).log())),
        poles=True,
        **_ABOVE,
    ),
    from_taylor("fresnels", arb.fresnel_s, primitive(arb.fresnel_s, _wave(arb_series.sin)), analytic=True, odd=True),
    from_taylor("fresnelc", arb.fresnel_c, primitive(arb.fresnel_c, _wave(arb_series.cos)), analytic=True, odd=True),
    from_taylor("ellipk", *_elliptic(fmpq(1, 2)), 0, True, high=_ONE, open=True, sign=2),
    from_taylor("ellipe", *_elliptic(fmpq(-1, 2)), 0, True, high=_ONE, open=True, sign=2),
)
