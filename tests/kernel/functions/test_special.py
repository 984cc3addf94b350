"""Functions made of their Taylor coefficients: each against mpmath, inside and near the ends of its domain."""

from __future__ import annotations

import time
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from flint import arb, arb_series, fmpq

from transformula.kernel.arithmetic import precision, series_length
from transformula.kernel.derivations.derivation_steps import defined_nodes
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.expression_ranges import model_of
from transformula.kernel.enclosures.taylor_models import boxes_of
from transformula.kernel.exceptions import RefutedError, SingularError
from transformula.kernel.functions import special_functions as special
from transformula.kernel.functions.elementary_functions import dyadic_below
from transformula.kernel.functions.function_table import FUNCTIONS, domain_of, find, function_of, is_open
from transformula.kernel.functions.smooth_functions import from_taylor, of_series
from transformula.kernel.syntax.expression import call, variable
from truth import SPECIAL

#: Where each function is tried: close to the ends of its domain, and far out.
TRIED = {
    "cbrt": ("-9", "20"), "asinh": ("-9", "50"), "acosh": ("1", "50"), "xlogx": ("0", "9"), "atanh": ("-0.999999", "0.999999"),
    "erf": ("-7", "7"), "erfc": ("-5", "9"), "gamma": ("0.000001", "9"), "lgamma": ("0.000001", "60"),
    "digamma": ("0.000001", "60"), "zeta": ("1.000001", "30"), "lambertw": ("-0.367879", "90"),
    "airyai": ("-9", "6"), "airybi": ("-9", "4"), "Si": ("-40", "40"), "Ci": ("0.000001", "40"),
    "Ei": ("0.000001", "9"), "li": ("1.000001", "30"), "fresnels": ("-5", "5"), "fresnelc": ("-5", "5"),
    "ellipk": ("-30", "0.999999"), "ellipe": ("-30", "0.999999"),
    "besselj:0": ("-30", "30"), "besselj:-3": ("-9", "30"), "besselj:5/2": ("0.000001", "30"),
    "besselj:-1/2": ("0.01", "9"), "bessely:0": ("0.000001", "30"), "bessely:3/2": ("0.01", "9"),
    "besseli:0": ("-6", "6"), "besseli:3": ("-6", "6"), "besseli:-3/2": ("0.01", "6"),
    "besselk:0": ("0.000001", "9"), "besselk:5/2": ("0.01", "9"),
}  # fmt: skip
NAMES = list(TRIED)


def oracle(name):
    family, _, order = name.partition(":")
    if not order:
        return SPECIAL[name]
    exact = Fraction(order)
    return lambda x: SPECIAL[family](mpmath.mpf(exact.numerator) / exact.denominator, x)


def rational(text):
    exact = Fraction(str(text))
    return fmpq(exact.numerator, exact.denominator)


def real(x):
    return mpmath.mpf(int(x.p)) / int(x.q)


def places(name, count, seed):
    """Rational numbers, a third of them close to an end."""
    rng = np.random.default_rng(seed)
    low, high = map(rational, TRIED[name])
    for k in range(count):
        share = fmpq(int(rng.integers(0, 10**6)), 10**6 * (1 if k % 3 else 10 ** int(rng.integers(1, 9))))
        yield low + (high - low) * (share if k % 2 else 1 - share)


def intervals(name, count, seed):
    at = list(places(name, 2 * count, seed))
    rng = np.random.default_rng(seed)
    for a, b in zip(at[::2], at[1::2], strict=True):
        width = (b - a) / int(10 ** rng.integers(0, 7))
        yield min(a, a + width), max(a, a + width)


def test_every_function_that_is_not_elementary_is_tried():
    assert {name.partition(":")[0] for name in NAMES} == {f.name for f in special.SPECIAL} | set(special.FAMILIES)


@pytest.mark.parametrize("name", NAMES)
def test_balls_enclose_the_values(name):
    function, value = function_of(name), oracle(name)
    for x in places(name, 200, 1):
        with precision(90):
            ball = function.ball(arb(x))
        with mpmath.workdps(30), precision(120):
            wanted = value(real(x))
            size = max(abs(wanted), mpmath.mpf(10) ** -20)
            assert ball.overlaps(arb(mpmath.nstr(wanted, 25), mpmath.nstr(size * mpmath.mpf(10) ** -20, 5))), x
            assert ball.rad() < 1e-9 * (1 + abs(ball)).upper()


@pytest.mark.parametrize("name", NAMES)
def test_ends_enclose_the_values_and_are_tight(name):
    function, value = function_of(name), oracle(name)
    with precision(128), mpmath.workdps(25):
        for a, b in intervals(name, 6, 2):
            low, high = function.ends(a, b)
            grid = [a + (b - a) * k / 8 for k in range(9)]
            values = [value(real(x)) for x in grid]
            slack = mpmath.mpf(10) ** -18 * (1 + max(map(abs, values)))
            assert real(low) - slack <= min(values) and max(values) <= real(high) + slack
            step = max(abs(p - q) for p, q in pairwise(values))
            if b - a < fmpq(1, 100):
                assert real(high) - real(low) <= 8 * step + mpmath.mpf(10) ** -10 * (1 + max(map(abs, values)))


def bessel_equation(name, x, c):
    """x**2 y'' + x y' + (x**2 - n**2) y, or with -x**2 for I and K, which is zero."""
    family, _, order = name.partition(":")
    with precision(128):
        square = arb(x) ** 2 * (1 if family[-1] in "jy" else -1)
        return 2 * arb(x) ** 2 * c[2] + arb(x) * c[1] + (square - arb(rational(order)) ** 2) * c[0]


@pytest.mark.parametrize("name", NAMES)
def test_coefficients_on_a_ball_contain_those_of_its_points(name):
    """At one point they are those of mpmath's derivatives; on a ball they contain those at its points."""
    function, value = function_of(name), oracle(name)
    low, high = map(rational, TRIED[name])

    def coefficients(at):
        with series_length(5), precision(128):
            found = function.series(arb_series([at, 1], 5))
            return [found[k] for k in range(5)]

    for k in (2, 4, 7):
        x = low + (high - low) * k / 9
        if name == "cbrt" and abs(x) < 1:
            continue
        with precision(128):
            exact = coefficients(arb(x))
        if ":" in name:
            assert bessel_equation(name, x, exact).contains(0) and exact[0].rad() < 1e-12
        with mpmath.workdps(40):
            for found, wanted in zip(exact, [] if ":" in name else mpmath.taylor(value, real(x), 3), strict=False):
                with precision(128):
                    size = max(abs(mpmath.re(wanted)), mpmath.mpf(10) ** -8)
                    assert found.overlaps(arb(mpmath.nstr(mpmath.re(wanted), 20), mpmath.nstr(size * 1e-9, 5)))
        for radius in (fmpq(1, 1000), fmpq(1, 20)):
            if not (low < x - radius and x + radius < high):
                continue
            wide = coefficients(arb(x - radius).union(arb(x + radius)))
            for t in (-1, 0, 1):
                inner = coefficients(arb(x + t * radius))
                assert all(a.contains(b) or a.overlaps(b) for a, b in zip(wide, inner, strict=True))
            largest = max(abs(float(c.mid())) for c in exact)
            assert all(float(c.rad()) <= 40 * float(radius) * (largest + 0.01) for c in wide[:3]), (x, radius)


@pytest.mark.parametrize("name", NAMES)
def test_models_enclose_the_values(name):
    value, (low, high) = oracle(name), (float(Fraction(end)) for end in TRIED[name])
    rng = np.random.default_rng(5)
    a = np.sort(rng.uniform(low, high, 12))
    b = np.minimum(a + 10.0 ** rng.uniform(-6, -1, 12), high)
    centre, radius = boxes_of(a[None], b[None])
    model = model_of(call(name, variable("x")), ["x"], centre, radius, 4)
    assert np.isfinite(model.rest).sum() >= 10
    with mpmath.workdps(30):
        for k in range(12):
            for t in (-1.0, 0.5, 1.0):
                x = mpmath.mpf(float(centre[0, k])) + mpmath.mpf(float(radius[0, k])) * t
                if low <= x <= high:
                    polynomial = sum(mpmath.mpf(c) * mpmath.mpf(t) ** i for i, c in enumerate(model.terms[:, k]))
                    assert abs(polynomial - value(x)) <= model.rest[k] * (1 + 1e-9) + 1e-25


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_claimed_outside_the_domain_or_of_what_is_no_number(name):
    function = function_of(name)
    for ball in (arb.nan(), arb("inf"), arb("-inf"), arb(0, "inf")):
        assert not function.ball(ball).is_finite()
        with pytest.raises(SingularError), series_length(3):
            function.series(arb_series([ball, 1], 3))
    with pytest.raises(SingularError), series_length(3):
        function.series(arb_series([1 + arb(1) / 3, arb.nan()], 3))
    for end, side in ((function.low, -1), (function.high, 1)):
        if end is None:
            continue
        exact = fmpq(end.numerator, end.denominator)
        for at in (arb(exact) + arb(side * 1e-30, 1e-35), arb(exact) + arb(0, 1e-30), arb(exact + side)):
            assert not function.ball(at).is_finite()
        assert function.ball(arb(exact)).is_finite() == (not function.open)
        with pytest.raises(SingularError), series_length(3):
            function.series(arb_series([arb(exact), 1], 3))
        if function.open:
            with pytest.raises(SingularError):
                function.ends(min(exact, exact - side), max(exact, exact - side))
    for at in {"Ei": (0,), "li": (1,), "lambertw": (-1, Fraction(-3679, 10_000))}.get(name, ()):
        place = fmpq(at.numerator, at.denominator)
        assert function.poles and not function.ball(arb(place)).is_finite()
        with pytest.raises(SingularError):
            function.ends(place - fmpq(1, 2), place + fmpq(1, 2))


@pytest.mark.parametrize("name", NAMES)
def test_signs_and_symmetry_are_as_declared(name):
    function, value = function_of(name), oracle(name)
    with mpmath.workdps(20):
        for x in places(name, 40, 3):
            if function.sign:
                assert value(real(x)) > 0 or (function.sign == 1 and value(real(x)) >= 0)
            if function.odd and x:
                assert mpmath.sign(value(real(x))) == mpmath.sign(real(x))
                assert abs(value(real(x)) + value(-real(x))) < 1e-15


def test_orders_are_whole_or_halves():
    assert function_of("besselj:3") is function_of("besselj:3")
    for name in ("besselj:1/3", "besselk:51"):
        with pytest.raises(RefutedError, match="whole number or a half"):
            find(name)
    assert find("nothing:1") is None


def test_a_ball_that_is_coarse_is_sharpened(monkeypatch):
    """Coefficients that are useless on a wide ball do for a sharp one: Taylor's theorem takes over."""
    rough = from_taylor(
        "rough", arb.exp, lambda at, n: [c + arb(0, 9 * at.rad()) for c in of_series(arb_series.exp)(at, n)]
    )
    monkeypatch.setitem(FUNCTIONS, "rough", rough)
    with precision(128):
        low, high = rough.ends(fmpq(0), fmpq(1))
        assert low == 1 and 0 <= high - dyadic_below(arb.const_e()) < fmpq(1, 10**30)
        with series_length(3):
            found = rough.series(arb_series([arb(0, 0.5), 1], 3))
            assert found[0].rad() < 0.7 and all(found[0].contains(arb(x).exp()) for x in (-0.5, 0.5))


def test_a_pole_inside_the_domain_does_not_follow_from_signs():
    """li needs u > 0, and u != 1 besides: a sign of u does not show that it is defined."""
    x = variable("x")
    algebra = Algebra(["x"])
    algebra.learn(algebra.of(x), 2)
    assert domain_of(call("li", x)) is None and is_open(call("li", x))
    assert not defined_nodes(call("li", x), algebra)
    assert call("lgamma", x) in defined_nodes(call("lgamma", x), algebra)
    assert not defined_nodes(call("atanh", x), algebra)


@pytest.mark.parametrize(
    ("name", "at", "radius"),
    [("ellipe", 1 - 1e-10, 1e-13), ("besselk:1", 60.0, 0.0), ("zeta", 1e18, 0), ("besseli:99/2", 1e-30, 1e-32)],
)
def test_what_takes_arb_long_is_asked_for_otherwise(name, at, radius):
    """A coefficient is charged up to 200 microseconds, and took up to half a second."""
    function = function_of(name)
    with precision(300):
        start = time.process_time()
        with suppress(SingularError):
            of_series(function.series)(arb(at, radius), 24)
        function.ball(arb(at, radius))
        assert time.process_time() - start < 0.3


@pytest.mark.parametrize("name", ["besselk:1", "besselk:5/2", "besselk:50", "besseli:3", "besseli:50"])
def test_bessel_functions_of_either_order_are_the_same(name):
    function = function_of(name)
    order, method = Fraction(name.partition(":")[2]), getattr(arb, f"bessel_{name[6]}")
    for x in (0.01, 1.0, 30.0, 60.0, 80.0, 200.0):
        with precision(128):
            found = of_series(function.series)(arb(x), 1)[0]
            assert found.overlaps(method(arb(x), arb(rational(order)))) and found.rel_accuracy_bits() > 60
            wide = of_series(function.series)(arb(x, 0.001), 1)[0]
            assert wide.contains(method(arb(x) + 0.0005, arb(rational(order))))
