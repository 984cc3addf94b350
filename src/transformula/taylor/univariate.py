"""Taylor coefficients and Lagrange remainders of the elementary functions, many points at once.

Only exp, sin, cos, sinc, log, fractional powers, 1/u and atan are expanded; the others follow: tan =
sin/cos, tanh = 1 - 2/(e^{2u}+1), sinh and cosh from e^{+-u}, asin u = atan(u / sqrt(1 - u**2)),
abs by its sign, min and max from abs. With [low, high] the range of u, abs(u - p0) <= S:

| g | bound of abs(g^(K)) / K! on the range |
| --- | --- |
| exp | e^high / K! |
| sin, cos | 1 / K! |
| log | 1 / (K low**K) |
| u**q, 0 < q < 1 | abs(binom(q, K)) p0**q / low**K |
| 1/u | 1 / min abs(u)**(K+1) |
| atan | (1 + min abs(u)**2)**(-K/2) / K |
| sinc | 1 / ((K + 1) K!) |

At a singular place (sqrt, powers and asin at the end of their domain, abs at 0) or where the
expansion is worse, the model is a constant: the middle of the function's range.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import factorial, isnan

import numpy as np
from flint import arb, arb_series, ctx

from transformula.formulas.enclosures import precision, to_fmpq
from transformula.taylor.models import TINY, UP, Model, U, choose, compose, constant_model
from transformula.taylor.results import Floats
from transformula.taylor.sinc import sinc_series

_BITS = 80


def arb_values(function: Callable[[arb], arb], points: Floats) -> tuple[Floats, Floats]:
    """Values of a function at floats, by Arb, with bounds of their errors; nan where undefined."""
    unique, back = np.unique(points, return_inverse=True)
    values = np.empty(len(unique))
    wrong = np.empty(len(unique))
    with precision(_BITS):
        for k, x in enumerate(unique.tolist()):
            ball = arb.nan() if isnan(x) else function(arb(x))  # arb(nan).asin() is -pi/2
            values[k] = value = float(ball.mid())
            if ball.rel_accuracy_bits() < 60:
                wrong[k] = float(ball.rad()) * UP + abs(value) * (4 * U) + TINY
            else:
                wrong[k] = abs(value) * (4 * U) + TINY
    return values[back].reshape(points.shape), wrong[back].reshape(points.shape)


def arb_above(function: Callable[[arb], arb], points: Floats) -> Floats:
    """Upper bounds of function values."""
    values, wrong = arb_values(function, points)
    return np.asarray((values + wrong) * UP + TINY)


def exp(u: Model) -> Model:
    """e**u."""
    order = u.layout.order
    value, _ = arb_values(arb.exp, u.constant)
    series = [value / float(factorial(k)) for k in range(order)]
    top = arb_above(arb.exp, u.range()[1])
    return compose(u, series, _relative(series, 8), top / float(factorial(order)) * UP)


def sin(u: Model) -> Model:
    """sin u."""
    return _circular(u, 0)


def cos(u: Model) -> Model:
    """cos u."""
    return _circular(u, 1)


def _circular(u: Model, shift: int) -> Model:
    order = u.layout.order
    s, s_wrong = arb_values(arb.sin, u.constant)
    c, c_wrong = arb_values(arb.cos, u.constant)
    cycle = [(s, s_wrong), (c, c_wrong), (-s, s_wrong), (-c, c_wrong)]
    series, wrong = [], []
    for k in range(order):
        value, slack = cycle[(k + shift) % 4]
        series.append(value / float(factorial(k)))
        wrong.append((slack + np.abs(value) * (4 * U)) / float(factorial(k)) * UP + TINY)
    rest = np.full(len(s), 1.0 / float(factorial(order)) * UP)
    return compose(u, series, wrong, rest)


def log(u: Model) -> Model:
    """log u; unbounded (rest = inf) where u may vanish."""
    order = u.layout.order
    low, _ = u.range()
    ok = low > 0
    p0 = np.where(ok, u.constant, 1.0)
    value, slack = arb_values(arb.log, p0)
    series, wrong = [value], [slack]
    power = np.ones_like(p0)
    for k in range(1, order):
        power = power / p0
        series.append((1 if k % 2 else -1) * power / k)
        wrong.append(np.abs(series[-1]) * (2 * order * U) + TINY)
    rest = _inverse_power(np.where(ok, low, 1.0), order) / order * UP
    return compose(u, series, wrong, np.where(ok, rest, np.inf))


def inverse(u: Model) -> Model:
    """1 / u; unbounded (rest = inf) where u may vanish."""
    order = u.layout.order
    low, high = u.range()
    ok = (low > 0) | (high < 0)
    p0 = np.where(ok, u.constant, 1.0)
    series = [1 / p0]
    for _ in range(1, order):
        series.append(-series[-1] / p0)
    least = np.where(ok, np.minimum(np.abs(low), np.abs(high)), 1.0)
    rest = _inverse_power(least, order + 1)
    return compose(u, series, _relative(series, 2 * order), np.where(ok, rest, np.inf))


def power(u: Model, by: Fraction) -> Model:
    """u ** by for a rational exponent; u is taken to be >= 0 where the exponent is fractional."""
    if by < 0:
        return inverse(power(u, -by))
    whole = by.numerator // by.denominator
    fraction = by - whole
    if not fraction:
        return _integer_power(u, whole)
    root = _root(u, fraction)
    return root * _integer_power(u, whole) if whole else root


def _integer_power(u: Model, by: int) -> Model:
    result: Model | None = None
    base = u
    while by:
        if by & 1:
            result = base if result is None else result * base
        by >>= 1
        base = base * base if by else base
    boxes = u.terms.shape[1]
    return constant_model(u.layout, np.ones(boxes), np.zeros(boxes)) if result is None else result


def _root(u: Model, q: Fraction) -> Model:
    order = u.layout.order
    exponent = arb(to_fmpq(q))

    def raise_to(x: arb) -> arb:
        return arb(0) if x <= 0 else x**exponent

    low, high = u.range()
    ok = low > 0
    p0 = np.where(ok, u.constant, 1.0)
    value, _ = arb_values(raise_to, p0)
    series = [value]
    for k in range(1, order):
        series.append(series[-1] * float((q - k + 1) / k) / p0)
    last = float(abs(_binomial(q, order))) * UP
    rest = value * UP * last * _inverse_power(np.where(ok, low, 1.0), order)
    smooth = compose(u, series, _relative(series, 6 * order), np.where(ok, rest, np.inf))
    return _or_constant(u, smooth, raise_to, np.maximum(low, 0.0), np.maximum(high, 0.0))


def atan(u: Model) -> Model:
    """atan u."""
    order = u.layout.order
    series, wrong = _arb_series(lambda s: s.atan(), u.constant, order)
    low, high = u.range()
    least = np.maximum(np.maximum(low, -high), 0.0)
    rest = _inverse_power(1 + least * least, order // 2) / order * UP
    smooth = compose(u, series, wrong, rest)
    return _or_constant(u, smooth, arb.atan, low, high)


def sinc(u: Model) -> Model:
    """sin(u)/u, whose derivatives are ∫ t^k cos(tu + kπ/2) dt over 0..1: at most 1/(k + 1)."""
    order = u.layout.order
    series, wrong = _arb_series(sinc_series, u.constant, order)
    return compose(u, series, wrong, np.full(len(u.constant), UP / ((order + 1) * factorial(order))))


def asin(u: Model) -> Model:
    """asin u; u is taken to be in [-1, 1]."""
    low, high = u.range()
    with np.errstate(all="ignore"):
        root = _root((-(u * u)).plus_constant(1.0), Fraction(1, 2))
        smooth = atan(u * inverse(root))
    ends = np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0)
    return _or_constant(u, smooth, arb.asin, *ends)


def absolute(u: Model) -> Model:
    """abs u: u or -u where the sign is certain, else a constant."""
    low, high = u.range()
    sign = np.where(low >= 0, 1.0, -1.0)
    signed = u.times_constant(sign)
    half = np.maximum(-low, high) / 2
    flat = constant_model(u.layout, half, half * UP)
    return choose((low >= 0) | (high <= 0), signed, flat)


def _or_constant(u: Model, smooth: Model, function: Callable[[arb], arb], low: Floats, high: Floats) -> Model:
    """The expansion, or the middle of an increasing function's range where that is better."""
    with np.errstate(all="ignore"):
        doubt = ~(smooth.rest <= 0.05 * u.spread())
    if not doubt.any():
        return smooth
    bottom, top = np.zeros(len(low)), np.zeros(len(low))
    bottom_wrong, top_wrong = np.zeros(len(low)), np.zeros(len(low))
    bottom[doubt], bottom_wrong[doubt] = arb_values(function, low[doubt])
    top[doubt], top_wrong[doubt] = arb_values(function, high[doubt])
    middle = (bottom + top) / 2
    half = (top - bottom) / 2 + bottom_wrong + top_wrong + np.abs(middle) * (4 * U)
    flat = constant_model(u.layout, middle, half * UP + TINY)
    with np.errstate(all="ignore"):
        keep = ~doubt | (smooth.rest <= flat.rest)
    return choose(keep, smooth, flat)


def _arb_series(
    function: Callable[[arb_series], arb_series], points: Floats, order: int
) -> tuple[list[Floats], list[Floats]]:
    """Taylor coefficients of a function at floats, by Arb series, with error bounds."""
    unique, back = np.unique(points, return_inverse=True)
    values = np.empty((order, len(unique)))
    wrong = np.empty((order, len(unique)))
    before, ctx.cap = ctx.cap, order
    try:
        with precision(_BITS):
            for k, x in enumerate(unique.tolist()):
                result = function(arb_series([x, 1], order))
                for i in range(order):
                    values[i, k] = float(result[i].mid())
                    wrong[i, k] = float(result[i].rad())
    finally:
        ctx.cap = before
    wrong = (wrong + np.abs(values) * (4 * U)) * UP + TINY
    return list(values[:, back]), list(wrong[:, back])


def _relative(series: list[Floats], roundings: int) -> list[Floats]:
    """Errors of coefficients that took at most so many roundings each."""
    return [np.abs(c) * (2 * roundings * U) + TINY for c in series]


def _inverse_power(x: Floats, by: int) -> Floats:
    """Upper bound of x ** -by for positive x."""
    result = np.ones_like(x)
    with np.errstate(over="ignore"):
        for _ in range(by):
            result = result / x
    return result * UP + TINY


def _binomial(q: Fraction, k: int) -> Fraction:
    result = Fraction(1)
    for i in range(k):
        result *= (q - i) / (i + 1)
    return result
