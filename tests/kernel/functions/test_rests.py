"""Rests of functions after the first terms of their series: values, coefficients, and steps that use them."""

from __future__ import annotations

import mpmath
import pytest
from flint import arb, arb_series, fmpq

import transformula as tf
from transformula.kernel.arithmetic import series_length
from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.extensions import extended
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import FormulaError, RefutedError, SingularError
from transformula.kernel.functions.function_table import find
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.parsing import parse

#: Name, the same by mpmath away from the zero, the zero, and points inside the domain.
RESTS = {
    "exp_rest1": (lambda u: mpmath.expm1(u) / u, 0, (-3, 0.001, 2)),
    "exp_rest3": (lambda u: (mpmath.exp(u) - 1 - u - u**2 / 2) / u**3, 0, (-3, 0.01, 2)),
    "cos_rest2": (lambda u: (mpmath.cos(u) - 1) / u**2, 0, (-9, 1e-6, 4)),
    "erf_rest1": (lambda u: mpmath.erf(u) / u, 0, (-2, 0.3, 5)),
    "besselj_rest2:2": (lambda u: mpmath.besselj(2, u) / u**2, 0, (-2, 0.5, 9)),
    "log_rest1_at1": (lambda u: mpmath.log(u) / (u - 1), 1, (0.1, 1.0001, 20)),
    "lgamma_rest1_at2": (lambda u: mpmath.loggamma(u) / (u - 2), 2, (0.1, 2.25, 9)),
    "atanh_rest1": (lambda u: mpmath.atanh(u) / u, 0, (-0.25, 2**-70, 0.25)),
    "asin_rest1": (lambda u: mpmath.asin(u) / u, 0, (-0.9, 0.1, 0.99)),
    "tan_rest1": (lambda u: mpmath.tan(u) / u, 0, (-1.5, 0.1, 1.5)),
    "Si_rest1": (lambda u: mpmath.si(u) / u, 0, (-8, 0.1, 1.5)),
}


def _coefficients(name, at, length):
    with series_length(length):
        found = find(name).series(arb_series([at, 1], length))
        return [found[k] for k in range(length)]


@pytest.mark.parametrize("name", RESTS)
def test_values_and_derivatives_are_those_of_the_quotient(name):
    quotient, zero, points = RESTS[name]
    with mpmath.workdps(60):
        for x in points:
            wanted = mpmath.taylor(quotient, mpmath.mpf(x), 3)
            for found, real in zip(_coefficients(name, arb(x), 4), wanted, strict=True):
                assert found.overlaps(arb(mpmath.nstr(real, 25), 1e-18)) and found.rad() < 1e-9, (name, x)
            try:
                wide = _coefficients(name, arb(x).union(arb(zero)), 4)
            except SingularError:  # too wide, close to the end of a domain
                assert name == "atanh_rest1"
                continue
            assert all(w.contains(arb(mpmath.nstr(real, 25))) or w.overlaps(arb(mpmath.nstr(real, 25), 1e-18))
                       for w, real in zip(wide, wanted, strict=True)), (name, x)  # fmt: skip
            low, high = find(name).ends(*sorted((fmpq(zero), fmpq(*float(x).as_integer_ratio()))))
            assert low <= high and arb(low).union(arb(high)).overlaps(arb(mpmath.nstr(wanted[0], 25), 1e-18))


def test_at_the_zero_itself_it_is_the_next_coefficient():
    assert find("exp_rest2").ball(arb(0)) == arb(fmpq(1, 2)) and find("log_rest1_at1").ball(arb(1)) == 1
    (first,) = _coefficients("besselj_rest1:1", arb(0), 1)
    assert first == arb(fmpq(1, 2))


def test_across_a_pole_there_is_nothing():
    assert not find("tan_rest1").ball(arb(0).union(arb(2))).is_finite()
    with pytest.raises(SingularError):
        _coefficients("tan_rest1", arb(0).union(arb(2)), 3)
    assert not find("log_rest1_at1").ball(arb(-1)).is_finite()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("erf_rest2(x)", "terms before it that are not exact"),  # 2/sqrt(pi)
        ("exp_rest4(x)", "not exact"),  # a sixth
        ("log_rest1(x)", "not exact"),
        ("foo_rest1(x)", "unknown function"),
        ("exp_rest5(x)", "unknown function"),
        ("exp_rest1(x, x)", "one argument"),
        ("besselj_rest1(x)", "two arguments"),
    ],
)
def test_a_name_without_a_rest_is_refused(text, said):
    with pytest.raises(FormulaError, match=said):
        parse(text, ["x"])


REGION = Region.of_box(Box.of("x=-1/2..1"))


def _step(of, to):
    return extended([parse(of, ["x"])], {"of": of, "is": to, "at": {"x": "1/4"}}, REGION, Algebra(["x"]))


def test_a_step_is_checked_by_what_its_rests_mean():
    (found,), above = _step("(exp(x) - 1)/x", "exp_rest1(x)")
    assert str(found) == "exp_rest1(x)" and str(above) == "exp(x) - 1"
    assert str(_step("(cos(x) - 1)/x**2", "cos_rest2(x)")[0][0]) == "cos_rest2(x)"
    for of, to in (
        ("(exp(x) - 1)/x", "exp_rest2(x)"),
        ("(exp(x) - 1)/x", "exp_rest1(2*x)"),
        ("(exp(x) - 2)/x", "exp_rest1(x)"),
        ("exp(x)/x", "exp_rest1(x)"),
        ("log(x + 1)/x", "log_rest1_at1(x)"),
        ("erf(x)/x", "besselj_rest1(1, x)"),
    ):
        with pytest.raises(RefutedError, match="not seen to extend"):
            _step(of, to)


def test_sines_of_right_angles_are_whole_numbers():
    algebra = Algebra(["x"])
    for text, value in (("sin(3*pi)", 0), ("cos(-5*pi)", -1), ("sin(-pi/2)", -1), ("cos(pi/2)", 0), ("sinc(2*pi)", 0)):
        assert algebra.same(algebra.of(parse(text)), algebra.constant(value)), text
    for text in ("sin(pi/3)", "cos(1)", "sin(pi*x)"):
        form: QuotientForm = algebra.of(parse(text))
        assert not form.num.is_constant(), text


@pytest.mark.parametrize("name", ["exp_rest2", "cos_rest2", "sin_rest3"])
def test_a_wide_ball_beside_the_zero_is_enclosed(name):
    """The ball's square may hold zero where the ball does not."""
    found, (low, high) = find(name).ball(arb(0.5, 0.45)), (arb(0.05, 0), arb(0.95, 0))
    assert found.is_finite() and all(found.contains(find(name).ball(u)) for u in (low, arb(0.4), high))


@pytest.mark.parametrize(
    ("formula", "box"), [("(1 - cos(x))/x**2", "x=-2.055..2.92"), ("(exp(x) - 1 - x)/x**2", "x=-1..30")]
)
def test_a_quotient_that_vanishes_twice_is_compiled_on_uneven_boxes(formula, box):
    assert tf.compile(formula, on=box, rel=1e-2).certificate.bound > 0
