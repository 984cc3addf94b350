"""Functions of one argument: ranges, balls, Taylor coefficients and Taylor models contain what mpmath evaluates."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
from flint import arb

from fuzz.cases import Case, fuzzer
from fuzz.values import SLACK, Unknown, between, finite, in_ball, rational, real
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.taylor_models import layout, variable_model
from transformula.kernel.exceptions import SingularError, TransformulaError
from transformula.kernel.functions.elementary_functions import of_series
from transformula.kernel.functions.function_table import FUNCTIONS, find
from transformula.kernel.functions.smooth_functions import Function
from transformula.kernel.functions.taylor_rests import rest_named
from truth import DIGITS, PRECISE, Undefined

#: Taylor coefficients and orders of models that are looked at.
ORDER = 4
ORDERS = ("0", "1", "2", "5", "-1", "-2", "1/2", "-1/2", "3/2", "-3/2", "7/2", "-5/2", "10", "25", "50", "-50")
RESTS = (
    "exp_rest1", "exp_rest4", "sin_rest3", "cos_rest2", "erf_rest1", "Si_rest1", "airyai_rest1", "tanh_rest3",
    "log_rest1_at1", "log_rest4_at1", "gamma_rest1_at1", "lgamma_rest1_at1", "besselj_rest1:1", "asin_rest3",
    "fresnels_rest3", "cosh_rest2",
)  # fmt: skip
BESSEL = tuple(f"bessel{kind}:{order}" for kind in "jyik" for order in ORDERS)
NAMES = tuple(name for name in (*FUNCTIONS, *BESSEL, *RESTS) if find(name) is not None)
#: How mpmath says that it cannot tell.
FAILURES = (Unknown, mpmath.libmp.NoConvergence, ValueError, OverflowError, NotImplementedError)
#: mpmath finds Taylor coefficients by differences.
TAYLOR_SLACK = mpmath.mpf(10) ** -12

Real = Callable[[Any], Any]


@lru_cache
def evaluated(name: str) -> Real:
    """The function by mpmath; raises `Undefined` outside its domain."""
    if (rest := rest_named(name)) is not None:
        return _rest(evaluated(rest.base), rest.at, rest.order)
    base, _, order = name.partition(":")
    if not order:
        return lambda u: finite(PRECISE[base](u))
    n = Fraction(order)
    n = abs(n) if base == "besseli" and n.denominator == 1 else n  # the same, and mpmath is faster
    return lambda u: finite(PRECISE[base](real(n), u))


def _rest(inner: Real, at: int, order: int) -> Real:
    with mpmath.workdps(3 * DIGITS):
        terms = mpmath.taylor(inner, at, order - 1)

    def rest(u: Any) -> Any:
        with mpmath.workdps(3 * DIGITS):
            h = u - at
            if h == 0:
                raise Unknown
            return (inner(u) - sum(c * h**k for k, c in enumerate(terms))) / h**order

    return rest


def _interval(rng: random.Random, f: Function) -> tuple[Fraction, Fraction]:
    """Two ends in the domain, some at its own ends."""
    scale = rng.choice((0.01, 0.1, 1, 3, 10, 40, 200))
    low = -scale if f.low is None else float(f.low)
    high = scale if f.high is None else float(f.high)
    low, high = (
        (high - scale if f.low is None and f.high is not None else low),
        (low + scale if f.high is None else high),
    )
    start = rng.uniform(low, high)
    stop = min(start + rng.choice((1e-9, 1e-4, 1e-2, 0.1, 0.5, 1, 3, scale)) * rng.random(), high)
    if f.low is not None and rng.random() < 0.1:
        start = low
    if f.high is not None and rng.random() < 0.1:
        stop = high
    if rng.random() < 0.1:
        start = min(max(round(start), low), stop)
    return Fraction(start), Fraction(stop)


def _values(rng: random.Random, f: Real, ends: tuple[Fraction, Fraction]) -> list[tuple[Fraction, Any]]:
    """Points of an interval with the values there; None where the function is undefined."""
    found = []
    for part in (Fraction(0), Fraction(1), *(Fraction(rng.random()) for _ in range(3))):
        point = ends[0] + (ends[1] - ends[0]) * part
        try:
            found.append((point, f(real(point))))
        except (Undefined, ZeroDivisionError):
            found.append((point, None))
        except FAILURES:
            continue
    return found


@fuzzer
def functions(case: Case) -> None:
    """Enclose one function on one interval in four ways."""
    rng = case.rng
    name = rng.choice(NAMES)
    entry, f = find(name), evaluated(name)
    assert entry is not None
    low, high = _interval(rng, entry)
    case.given = f"{name} on {float(low)!r}..{float(high)!r}"
    if not low < high:
        return
    values = _values(rng, f, (low, high))
    with precision(128):
        _check_range(case, entry, low, high, values)
        ball = arb(rational(low)).union(arb(rational(high)))
        _check_ball(case, entry.ball(ball), values)
        _check_taylor(case, entry, ball, f, values)
    _check_model(case, entry, float(low), float(high), values)


def _check_range(
    case: Case, entry: Function, low: Fraction, high: Fraction, values: list[tuple[Fraction, Any]]
) -> None:
    if entry.open and (low == entry.low or high == entry.high):  # nobody may ask
        return
    try:
        ends = entry.ends(rational(low), rational(high))
    except SingularError:
        return
    for point, value in values:
        holds = value is not None and between(ends[0], value, ends[1])
        case.check("a range contains the values", holds, f"{value} at {float(point)!r}, not in {ends}")


def _check_ball(case: Case, ball: arb, values: list[tuple[Fraction, Any]]) -> None:
    for point, value in values if ball.is_finite() else []:
        holds = value is not None and in_ball(ball, value)
        case.check("a ball contains the values", holds, f"{value} at {float(point)!r}, not in {ball}")


def _check_taylor(case: Case, entry: Function, ball: arb, f: Real, values: list[tuple[Fraction, Any]]) -> None:
    try:
        found = of_series(entry.series)(ball, ORDER)
    except (SingularError, ValueError, ZeroDivisionError, NotImplementedError):
        return
    point, value = case.rng.choice(values or [(Fraction(0), None)])
    if value is None or entry.name in RESTS or not all(c.is_finite() for c in found):
        return
    try:
        wanted = _coefficients(entry.name, f, real(point))
    except (Undefined, ZeroDivisionError, *FAILURES):
        return
    for k, (enclosure, exact) in enumerate(zip(found, wanted, strict=True)):
        holds = in_ball(enclosure, mpmath.re(exact), TAYLOR_SLACK)
        case.check("Taylor coefficients are enclosed", holds, f"{k}: {exact} at {float(point)!r}, not in {enclosure}")


def _coefficients(name: str, f: Real, at: Any) -> list[Any]:
    """Taylor coefficients by differences; those of Y and K, which take long, by DLMF 10.6.7 and 10.29.5."""
    base, _, order = name.partition(":")
    if base not in ("bessely", "besselk"):
        return list(mpmath.taylor(f, at, ORDER - 1))
    first, signs = real(Fraction(order)), (1, -1) if base == "bessely" else (-1, -1)
    return [
        sum(
            mpmath.binomial(k, j) * signs[0] ** (k - j) * signs[1] ** j * PRECISE[base](first - k + 2 * j, at)
            for j in range(k + 1)
        )
        / (2**k * mpmath.factorial(k))
        for k in range(ORDER)
    ]


def _check_model(case: Case, entry: Function, low: float, high: float, values: list[tuple[Fraction, Any]]) -> None:
    centre = np.array([low + (high - low) / 2])
    radius = np.nextafter(np.maximum(high - centre, centre - low), np.inf)
    try:
        with np.errstate(all="ignore"):
            model = entry.model(variable_model(layout(1, ORDER), 0, centre, radius))
    except TransformulaError:
        return
    if not (np.isfinite(model.rest).all() and np.isfinite(model.terms).all()):
        return
    for point, value in values:
        if value is None:  # a model holds where the function is defined
            continue
        t = (real(point) - centre[0]) / radius[0]
        near = sum(c * t**k for k, c in enumerate(model.terms[:, 0].tolist()))
        holds = abs(near - value) <= model.rest[0] + SLACK * (1 + abs(value))
        case.check(
            "a Taylor model is as close as it says", holds, f"{value} at {float(point)!r}, {near} +- {model.rest}"
        )
