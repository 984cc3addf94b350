"""Taylor models of the elementary functions, many boxes at once.

Only exp, sin, cos, sinc, log, fractional powers, 1/u and atan are expanded; the others follow from them.
With [low, high] the range of u, abs(u - p0) <= S:

| g | bound of abs(g^(K)) / K! on the range |
| --- | --- |
| exp | e^high / K! |
| sin, cos | 1 / K! |
| log | 1 / (K low**K) |
| u**q, 0 < q < 1 | abs(binom(q, K)) p0**q / low**K |
| 1/u | 1 / min abs(u)**(K+1) |
| atan | (1 + min abs(u)**2)**(-K/2) / K |
| sinc | 1 / ((K + 1) K!), as sinc^(k)(u) = ∫ t^k cos(tu + kπ/2) dt over 0..1 |

At a singular place (sqrt, powers and asin at the end of their domain, abs at 0) or where the expansion is worse,
the model is a constant: the middle of the function's range. Where u may leave the domain of a root or of asin, the
model holds at the points where it does not; log and 1/u are unbounded (rest = inf) where u may reach zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from math import factorial, prod
from typing import Any

import numpy as np
from flint import arb, arb_series, fmpq

from transformula.kernel.function_series import float_coefficients, float_values
from transformula.kernel.function_series import sinc as sinc_series
from transformula.kernel.models import TINY, UP, Floats, Model, U, choose, compose, constant_model

#: With low above this and the denominator of q below 2**200 (q >= 6e-61), p0**q * q is a normal float.
_ROOT_FROM, _ROOT_BITS = 1e-200, 200


def exp(u: Model) -> Model:
    """e**u."""
    order = u.layout.order
    top, slack = float_values(arb.exp, u.range()[1])
    rest = (top + slack) / factorial(order) * UP + TINY
    return compose(u, *_over_factorials([float_values(arb.exp, u.constant)], order), rest)


def _wave(u: Model, shift: int) -> Model:
    """The derivative of sin u of order ``shift``."""
    order = u.layout.order
    (s, s_wrong), (c, c_wrong) = float_values(arb.sin, u.constant), float_values(arb.cos, u.constant)
    cycle = [(s, s_wrong), (c, c_wrong), (-s, s_wrong), (-c, c_wrong)]
    series, wrong = _over_factorials(cycle[shift:] + cycle[:shift], order)
    return compose(u, series, wrong, np.full(len(s), UP / factorial(order)))


sin, cos = partial(_wave, shift=0), partial(_wave, shift=1)


def _over_factorials(cycle: list[tuple[Floats, Floats]], order: int) -> tuple[list[Floats], list[Floats]]:
    """Derivatives, given with errors and in turn, over k!: two roundings (charged 4u)."""
    found = [(k, *cycle[k % len(cycle)]) for k in range(order)]
    wrong = [(slack + np.abs(value) * (4 * U)) / factorial(k) * UP + TINY for k, value, slack in found]
    return [value / factorial(k) for k, value, _ in found], wrong


def log(u: Model) -> Model:
    """log u."""
    order, low = u.layout.order, u.range()[0]
    ok = low > 0
    p0 = np.where(ok, u.constant, 1.0)
    value, slack = float_values(arb.log, p0)
    series, wrong = _products(1 / p0, p0, [(1 - k) / k for k in range(2, order)], 1)
    rest = _inverse_power(np.where(ok, low, 1.0), order) / order * UP + TINY
    return compose(u, [value, *series][:order], [slack, *wrong][:order], np.where(ok, rest, np.inf))


def inverse(u: Model) -> Model:
    """1 / u."""
    order, (low, high) = u.layout.order, u.range()
    ok = (low > 0) | (high < 0)
    p0 = np.where(ok, u.constant, 1.0)
    least = np.where(ok, np.minimum(np.abs(low), np.abs(high)), 1.0)
    rest = np.where(ok, _inverse_power(least, order + 1), np.inf)
    return compose(u, *_products(1 / p0, p0, [-1.0] * (order - 1), 1), rest)


def power(u: Model, by: Fraction) -> Model:
    """u ** by for a rational exponent; u is taken to be >= 0 where the exponent is fractional."""
    if by < 0:
        return inverse(power(u, -by))
    whole = by.numerator // by.denominator
    if not by:
        return constant_model(u.layout, np.ones(len(u.rest)), 0 * u.rest)  # nan where u is unbounded
    if by == whole:
        return whole_power(u, whole)  # type: ignore[no-any-return]
    root = _root(u, by - whole)
    return root * whole_power(u, whole) if whole else root


def whole_power(base: Any, by: int) -> Any:
    """base ** by for by >= 1, by repeated squaring."""
    result = None
    for bit in f"{by:b}":  # the highest first
        result = base if result is None else result * result if bit == "0" else result * result * base
    return result


def _root(u: Model, q: Fraction) -> Model:
    order, exponent = u.layout.order, fmpq(q.numerator, q.denominator)

    def raised(x: arb) -> arb:
        return arb(0) if x <= 0 else x ** arb(exponent)  # at the precision of `_at`: the 4 roundings below

    low, high = u.range()
    ok = (low > _ROOT_FROM) & (q.denominator.bit_length() <= _ROOT_BITS)
    p0 = np.where(ok, u.constant, 1.0)
    value, _ = float_values(raised, p0)
    series, wrong = _products(value, p0, [float((q - k + 1) / k) for k in range(1, order)], 4)
    binomial = prod(((q - i) / (i + 1) for i in range(order)), start=Fraction(1))
    last = value * (float(abs(binomial)) * UP)
    rest = last * _inverse_power(np.where(ok, low, 1.0), order) * UP + TINY
    smooth = compose(u, series, wrong, np.where(ok, rest, np.inf))
    return _or_constant(u, smooth, raised, np.maximum(low, 0.0), np.maximum(high, 0.0))


def sqrt(u: Model) -> Model:
    """The square root; u is taken to be >= 0."""
    return _root(u, Fraction(1, 2))


def atan(u: Model) -> Model:
    """atan u."""
    order, (low, high) = u.layout.order, u.range()
    least = np.maximum(np.maximum(low, -high), 0.0)
    rest = _inverse_power(1 + least * least, order // 2) / order * UP + TINY
    smooth = compose(u, *float_coefficients(arb_series.atan, u.constant, order), rest)
    return _or_constant(u, smooth, arb.atan, low, high)


def sinc(u: Model) -> Model:
    """sin(u)/u."""
    order = u.layout.order
    rest = np.full(len(u.rest), UP / ((order + 1) * factorial(order)))
    return compose(u, *float_coefficients(sinc_series, u.constant, order), rest)


def asin(u: Model) -> Model:
    """asin u; u is taken to be in [-1, 1]."""
    low, high = u.range()
    smooth = atan(u * inverse(sqrt((-(u * u)).plus_constant(1.0))))
    return _or_constant(u, smooth, arb.asin, np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0))


def acos(u: Model) -> Model:
    """acos u; pi/2 is within half the spacing 2**-52 of floats in [1, 2) of the float nearest to it."""
    return (-asin(u)).plus_constant(1.5707963267948966, 2.0**-53)


def tan(u: Model) -> Model:
    """tan u; unbounded where cos u may vanish."""
    return sin(u) * inverse(cos(u))


def sinh(u: Model) -> Model:
    """sinh u."""
    return (exp(u) - exp(-u)).times_constant(0.5)


def cosh(u: Model) -> Model:
    """cosh u."""
    return (exp(u) + exp(-u)).times_constant(0.5)


def tanh(u: Model) -> Model:
    """tanh u, an odd function: of -abs(u), which keeps the exponential small."""
    sign = np.where(u.constant > 0, -1.0, 1.0)
    fall = exp(u.times_constant(2 * sign))
    ratio = fall * inverse(fall.plus_constant(1.0))
    return ratio.times_constant(2.0).plus_constant(-1.0).times_constant(sign)


def absolute(u: Model) -> Model:
    """abs u: u or -u where the sign is certain, else a constant."""
    low, high = u.range()
    half = np.maximum(-low, high) / 2
    flat = constant_model(u.layout, half, half * UP + TINY)
    return choose((low >= 0) | (high <= 0), u.times_constant(np.where(low >= 0, 1.0, -1.0)), flat)


def _or_constant(u: Model, smooth: Model, function: Callable[[arb], arb], low: Floats, high: Floats) -> Model:
    """The expansion, or the middle of an increasing function's range where that is better."""
    doubt = ~(smooth.rest <= 0.05 * u.spread())  # either is a model: this only saves calls of Arb
    if not doubt.any():
        return smooth
    bottom, top, wrong = np.zeros((3, len(low)))
    bottom[doubt], below = float_values(function, low[doubt])
    top[doubt], above = float_values(function, high[doubt])
    wrong[doubt] = below + above
    middle = (bottom + top) / 2
    half = (top - bottom) / 2 + wrong + np.abs(middle) * (4 * U)  # the middle rounds once
    flat = constant_model(u.layout, middle, half * UP + TINY)
    return choose(~doubt | (smooth.rest <= flat.rest), smooth, flat)


def _products(first: Floats, p0: Floats, factors: Iterable[float], roundings: int) -> tuple[list[Floats], list[Floats]]:
    """first, first f1/p0, first f1 f2/p0**2, .. and errors: three roundings a step, each charged twice."""
    series = [first]
    for factor in factors:
        series.append(series[-1] * factor / p0)
    return series, [np.abs(c) * (2 * (roundings + 3 * k) * U) + TINY for k, c in enumerate(series)]


def _inverse_power(x: Floats, by: int) -> Floats:
    """Upper bound of x ** -by for positive x."""
    result = np.ones_like(x)
    for _ in range(by):
        result = result / x
    return result * UP + TINY
