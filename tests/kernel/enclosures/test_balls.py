"""Balls contain every value: judged point by point with mpmath at 60 digits."""

from fractions import Fraction

import mpmath
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose, round_up
from transformula.kernel.syntax.parsing import parse

DOMAINS = {
    "sin": (-20, 20), "cos": (-20, 20), "tan": (-1.5, 1.5), "asin": (-1, 1), "acos": (-1, 1),
    "atan": (-50, 50), "sinh": (-9, 9), "cosh": (-9, 9), "tanh": (-9, 9), "exp": (-30, 9),
    "log": (0.001, 90), "sqrt": (0, 90), "abs": (-9, 9),
}  # fmt: skip
unit = st.fractions(0, 1, max_denominator=1000)


def _ball(low: Fraction, high: Fraction) -> arb:
    return arb(fmpq(low.numerator, low.denominator)).union(arb(fmpq(high.numerator, high.denominator)))


def _contains(ball: arb, value) -> bool:
    with precision(400):
        return ball.contains(arb(mpmath.nstr(value, 60))) or ball.overlaps(arb(mpmath.nstr(value, 60), 1e-45))


def _check(text: str, oracle, low, high, ends, inner) -> None:
    low, high = Fraction(low), Fraction(high)
    a, b = sorted(low + (high - low) * e for e in ends)
    x = a + (b - a) * inner
    with mpmath.workdps(70):
        value = oracle(mpmath.mpf(x.numerator) / x.denominator)
    ball = enclose(parse(text, ["x"]), {"x": _ball(a, b)})
    assert _contains(ball, value), (a, b, x, ball)


@given(st.sampled_from(sorted(DOMAINS)), st.tuples(unit, unit), unit)
@settings(max_examples=400)
def test_every_function_is_enclosed(name, ends, inner):
    oracle = abs if name == "abs" else getattr(mpmath, name)
    _check(f"{name}(x)", oracle, *DOMAINS[name], ends, inner)


@given(st.integers(-5, 7), st.tuples(unit, unit), unit)
@settings(max_examples=200)
def test_whole_powers_are_enclosed(power, ends, inner):
    low = Fraction(1, 9) if power < 0 else -3
    _check(f"x**({power})", lambda x: x**power, low, 4, ends, inner)


@given(st.integers(1, 7), st.integers(2, 5), st.tuples(unit, unit), unit)
@settings(max_examples=200)
def test_roots_are_enclosed_down_to_zero(p, q, ends, inner):
    power = Fraction(p, q)
    _check(f"x**({power})", lambda x: x ** (mpmath.mpf(p) / q), 0, 4, ends, inner)


@given(st.tuples(unit, unit), unit)
def test_min_max_and_constants_are_enclosed(ends, inner):
    _check("max(x, -x/2, 1/3)", lambda x: max(x, -x / 2, mpmath.mpf(1) / 3), -2, 2, ends, inner)
    _check("min(x, x**2, pi/4)", lambda x: min(x, x**2, mpmath.pi / 4), -2, 2, ends, inner)
    _check("E**x/(x + 3)", lambda x: mpmath.e**x / (x + 3), -2, 2, ends, inner)


@pytest.mark.parametrize("power", range(1, 12))
def test_powers_of_a_ball_around_zero_are_finite_and_tight(power):
    ball = enclose(parse(f"x**{power}", ["x"]), {"x": arb(0, 2)})
    top = arb(2) ** power
    assert ball.contains(top) and (ball.contains(-top) if power % 2 else ball.contains(0))
    assert ball.abs_upper() < top * 1.001
    assert power % 2 or ball.lower() > -0.001 * top


@pytest.mark.parametrize(
    "text", ["log(x)", "log(x)**0", "1/x", "sqrt(x)", "asin(x + 1)", "x**(1/2)", "tan(2*x)", "x**-1", "x**pi"]
)
def test_outside_the_domain_nothing_finite_is_claimed(text):
    assert not enclose(parse(text, ["x"]), {"x": arb(0, 1)}).is_finite()


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 10**9))
def test_round_up_is_at_least_the_number(value, divisor):
    with precision(300):
        exact = arb(value) / divisor
        assert arb(round_up(exact)) >= exact
        assert round_up(arb(value)) == value


def test_precision_is_put_back_after_an_error():
    from flint import ctx

    before = ctx.prec
    with pytest.raises(KeyError), precision(999):
        raise KeyError
    assert ctx.prec == before
