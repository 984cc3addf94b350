"""The elementary functions: ball, ends, series and model against mpmath, inside and at the domain's ends."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from flint import arb, arb_series, ctx, fmpq

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.expression_ranges import model_of
from transformula.kernel.enclosures.taylor_models import boxes_of
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.functions import elementary_functions as function_ends
from transformula.kernel.functions.elementary_functions import SingularError, dyadic_above, dyadic_below, root_ends
from transformula.kernel.functions.function_table import FUNCTIONS, RESERVED, domain_of, function_of
from transformula.kernel.syntax.expression import call, number, power, variable

#: Where each function is tried.
TRIED = {
    "sin": (-20, 20), "cos": (-20, 20), "tan": (-1.55, 1.55), "asin": (-1, 1), "acos": (-1, 1),
    "atan": (-50, 50), "sinh": (-9, 9), "cosh": (-9, 9), "tanh": (-40, 40), "exp": (-300, 90),
    "log": (1e-9, 90), "sqrt": (0, 90), "abs": (-9, 9), "sinc": (-30, 30),
}  # fmt: skip
NAMES = sorted(TRIED)


def oracle(name, x):
    """The value at a rational number, to 60 digits."""
    with mpmath.workdps(70):
        at = mpmath.mpf(int(x.p)) / int(x.q)
        if name == "sinc":
            return mpmath.sinc(at)
        return abs(at) if name == "abs" else getattr(mpmath, name)(at)


def as_mpf(x):
    return mpmath.mpf(int(x.p)) / int(x.q)


def random_rational(rng, low, high):
    return fmpq(int(rng.integers(0, 10**9)), 10**9) * (exact(high) - exact(low)) + exact(low)


def exact(x):
    f = Fraction(str(x))
    return fmpq(f.numerator, f.denominator)


def intervals(name, seed, count=60):
    rng = np.random.default_rng(seed)
    low, high = TRIED[name]
    for _ in range(count):
        a = random_rational(rng, low, high)
        b = random_rational(rng, low, high)
        if rng.random() < 0.5:  # narrow ones too
            b = a + (b - a) / int(10 ** rng.integers(1, 12))
        a, b = min(a, b), max(a, b)
        yield a, b, [a, b] + [a + (b - a) * int(k) / 1000 for k in rng.integers(0, 1001, 5)]


def test_every_function_has_a_range_to_be_tried_on():
    assert {*TRIED, "min", "max"} == set(RESERVED)
    with pytest.raises(RefutedError, match="no function"):
        function_of("gammma")


@pytest.mark.parametrize("name", NAMES)
def test_ends_enclose_the_values(name):
    function = FUNCTIONS[name]
    with precision(128), mpmath.workdps(70):
        for a, b, points in intervals(name, 1):
            low, high = function.ends(a, b)
            for x in points:
                value = oracle(name, x)
                assert as_mpf(low) - mpmath.mpf(10) ** -65 <= value <= as_mpf(high) + mpmath.mpf(10) ** -65


@pytest.mark.parametrize("name", NAMES)
def test_ends_are_as_tight_as_the_values_allow(name):
    function = FUNCTIONS[name]
    with precision(128):
        for a, b, _ in intervals(name, 2, 40):
            low, high = function.ends(a, b)
            grid = [a + (b - a) * k / 400 for k in range(401)]
            values = [float(oracle(name, x)) for x in grid]
            steep = max(abs(p - q) for p, q in zip(values[1:], values, strict=False)) + 1e-15
            if name == "sinc":  # beyond its first minimum only a quotient is known
                steep += 0.1 * float(b - a) + (0.35 if b > 4 or a < -4 else 0)
            assert min(values) - float(low) <= 2 * steep and float(high) - max(values) <= 2 * steep


@pytest.mark.parametrize("name", NAMES)
def test_balls_enclose_the_values(name):
    function = FUNCTIONS[name]
    for a, b, points in intervals(name, 3):
        with precision(90):
            ball = function.ball(arb(a).union(arb(b)))
        for x in points:
            with precision(300):
                value = arb(mpmath.nstr(oracle(name, x), 60), 1e-50)
                assert not ball.is_finite() or ball.overlaps(value)
    with precision(90):
        middle = arb(exact(TRIED[name][1])) / 3 + arb(0, 1e-9)
        assert function.ball(middle).is_finite()


@pytest.mark.parametrize("name", NAMES)
def test_series_enclose_taylor_coefficients(name):
    function = FUNCTIONS[name]
    rng = np.random.default_rng(4)
    low, high = TRIED[name]
    for _ in range(8):
        x = random_rational(rng, low + (high - low) / 50, high - (high - low) / 50)
        before, ctx.cap = ctx.cap, 4
        try:
            with precision(128):
                series = function.series(arb_series([arb(x), 1], 4))
                found = [series[k] for k in range(4)]
        finally:
            ctx.cap = before
        if name == "abs":
            assert abs(found[1]) == 1 and found[2] == 0
            continue
        with mpmath.workdps(60):
            real = mpmath.sinc if name == "sinc" else getattr(mpmath, name)
            for k, coefficient in enumerate(mpmath.taylor(real, as_mpf(x), 3)):
                with precision(200):
                    size = max(abs(float(coefficient)), 1e-30)
                    assert found[k].overlaps(arb(mpmath.nstr(coefficient, 30), size * 1e-14))


@pytest.mark.parametrize("name", NAMES)
def test_models_enclose_the_values(name):
    rng = np.random.default_rng(5)
    low, high = TRIED[name]
    a = rng.uniform(low, high, 40)
    b = np.minimum(a + 10.0 ** rng.uniform(-6, 0, 40), high)
    centre, radius = boxes_of(a[None], b[None])
    model = model_of(call(name, variable("x")), ["x"], centre, radius, 4)
    assert np.isfinite(model.rest).sum() >= 30
    for k in range(40):
        for t in (-1.0, -0.3, 0.5, 1.0):
            x = exact_float(centre[0, k]) + exact_float(radius[0, k]) * exact_float(t)
            if not exact(low) <= x <= exact(high):
                continue
            with mpmath.workdps(60):
                polynomial = sum(mpmath.mpf(c) * mpmath.mpf(t) ** i for i, c in enumerate(model.terms[:, k]))
                assert abs(polynomial - oracle(name, x)) <= model.rest[k] * (1 + 1e-12) + 1e-300


def exact_float(x):
    return fmpq(*float(x).as_integer_ratio())


@pytest.mark.parametrize("name", NAMES)
def test_nothing_finite_comes_from_a_ball_that_is_not_a_number(name):
    for ball in (arb.nan(), arb("inf"), arb("-inf"), arb(0, "inf")):
        assert not FUNCTIONS[name].ball(ball).is_finite()


@pytest.mark.parametrize("name", [n for n in NAMES if FUNCTIONS[n].low is not None])
def test_a_ball_that_is_partly_outside_counts_as_outside(name):
    function = FUNCTIONS[name]
    ends = [e for e in (function.low, function.high) if e is not None]
    for end in ends:
        outside = -1 if end is function.low else 1
        edge = arb(fmpq(end.numerator, end.denominator))
        assert not function.ball(edge + arb(outside * 1e-30, 1e-35)).is_finite()
        assert not function.ball(edge + arb(0, 1e-30)).is_finite()
        with pytest.raises(SingularError):
            function.series(arb_series([edge, 1], 3))


def test_values_at_the_ends_of_domains_are_exact_or_rounded_outward():
    with precision(128):
        assert FUNCTIONS["sqrt"].ends(fmpq(0), fmpq(4, 9)) == (0, fmpq(2, 3))
        assert FUNCTIONS["acos"].ends(fmpq(1, 2), fmpq(1))[0] == 0
        assert FUNCTIONS["log"].ends(fmpq(1), fmpq(1)) == (0, 0)
        low, high = FUNCTIONS["asin"].ends(fmpq(-1), fmpq(1))
        assert arb(high) >= (arb.pi() / 2).lower() and high == -low
        near = 1 - fmpq(1, 10**60)  # rounds to 1 at 128 bits
        for name in ("asin", "acos"):
            low, high = FUNCTIONS[name].ends(-near, near)
            with precision(400):
                at = getattr(arb(near), name)(), getattr(arb(-near), name)()
                assert all(arb(low) <= x <= arb(high) for x in at)


def test_waves_stay_between_minus_one_and_one_and_see_their_peaks():
    with precision(128):
        for name, peak in (("sin", fmpq(11, 7)), ("cos", fmpq(0))):  # 11/7 is a little beyond pi/2
            low, high = FUNCTIONS[name].ends(peak - fmpq(1, 10), peak + fmpq(1, 10))
            assert high == 1 and low < 1
            assert FUNCTIONS[name].ends(fmpq(10**40), fmpq(10**40) + 7) == (-1, 1)
        assert FUNCTIONS["sin"].ends(fmpq(0), fmpq(3))[0] == 0
        low, high = FUNCTIONS["sin"].ends(fmpq(0), fmpq(1, 2))
        assert low == 0 and high < fmpq(48, 100)
        low, high = FUNCTIONS["tanh"].ends(fmpq(-(10**9)), fmpq(10**9))
        assert (low, high) == (-1, 1)
        with pytest.raises(SingularError):
            FUNCTIONS["tan"].ends(fmpq(1), fmpq(11, 7))
        assert FUNCTIONS["tan"].ends(fmpq(1), fmpq(157, 100))[1] > 1000


def test_the_level_of_sinc():
    level, root = function_ends._LEVEL, function_ends._ROOT
    assert level**2 * (1 + root**2) >= 1
    with precision(128):
        assert arb(root).tan() > arb(root) - 0.1 and arb(root).tan() < arb(root)  # just below tan u = u
        assert FUNCTIONS["sinc"].ends(fmpq(-9), fmpq(9)) == (-level, 1)
        low, high = FUNCTIONS["sinc"].ends(fmpq(3), fmpq(4))
        assert high < fmpq(48, 1000) and low > fmpq(-19, 100)


def test_what_does_not_fit_into_memory_is_unbounded_or_rounded():
    with precision(128):
        with pytest.raises(SingularError):
            FUNCTIONS["exp"].ends(fmpq(0), fmpq(10**9))
        low, high = FUNCTIONS["exp"].ends(fmpq(-(10**30)), fmpq(-(10**9)))
        assert low == 0 < high and high.height_bits() < 20_000
        for ball in (arb.nan(), arb("inf"), arb(0, "inf")):
            with pytest.raises(SingularError):
                dyadic_above(ball)
            with pytest.raises(SingularError):
                dyadic_below(ball)
        tiny = -(arb(2) ** -100_000)
        assert dyadic_below(tiny) < 0 == dyadic_above(tiny)


@pytest.mark.parametrize("by", [Fraction(1, 3), Fraction(2, 3), Fraction(7, 2), Fraction(1, 1000)])
def test_roots_of_rationals(by):
    rng = np.random.default_rng(6)
    with precision(128), mpmath.workdps(70):
        for _ in range(50):
            x = random_rational(rng, 0, 5) ** int(rng.integers(1, 4))
            low, high = root_ends(x, x, by)
            value = as_mpf(x) ** (mpmath.mpf(by.numerator) / by.denominator)
            slack = mpmath.mpf(10) ** -60 * (1 + value)
            assert as_mpf(low) - slack <= value <= as_mpf(high) + slack
            assert high - low <= fmpq(1, 10**30) * (1 + high)
    assert root_ends(fmpq(8, 27), fmpq(8), Fraction(2, 3)) == (fmpq(4, 9), 4)


def test_domains_are_described_from_the_registry():
    x, y = variable("x"), variable("y")
    assert domain_of(call("sqrt", x)) == (0, 0, None, False)
    assert domain_of(call("log", x)) == (0, 0, None, True)
    assert domain_of(call("acos", x)) == (0, -1, 1, False)
    assert domain_of(call("sin", x)) is domain_of(call("tan", x)) is domain_of(call("max", x, y)) is None
    assert domain_of(power(x, number(2))) is None
    assert domain_of(power(x, number(-2))) == (0, 0, 0, True)
    assert domain_of(power(x, number(Fraction(3, 2)))) == (0, 0, None, False)
    assert domain_of(power(x, number(Fraction(-3, 2)))) == (0, 0, None, True) == domain_of(power(x, y))
    from transformula.kernel.syntax.parsing import parse

    assert domain_of(parse("1/x")) == (1, 0, 0, True)
