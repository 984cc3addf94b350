"""Floats for the solver: NumPy and Arb agree, and undefined places are not numbers."""

import numpy as np
import pytest

from support.as_sympy import to_sympy
from support.prover import numpy_function, random_formula
from transformula.formula import evaluation as numeric
from transformula.formula.evaluation import at_many, evaluate, evaluate_accurately
from transformula.kernel.functions.function_table import FUNCTIONS
from transformula.kernel.syntax.expression import call, variable
from transformula.kernel.syntax.parsing import parse

EVERYTHING = [
    "sin(x) + cos(x)*tan(x/3)", "asin(x/3) - acos(x/4) + atan(x)", "sinh(x)/cosh(x) - tanh(x)",
    "exp(x) + log(x + 3)", "sqrt(x + 2)*abs(x)", "min(x, 1/3, x**2) + max(x, -x)", "pi*x - E/(x + 5)",
    "(x + 2)**(1/3) + (x + 3)**x", "3", "x",
]  # fmt: skip


@pytest.mark.parametrize("text", EVERYTHING)
def test_numpy_and_arb_agree(text):
    x = np.linspace(-1, 1, 101)
    expr = parse(text, ("x",))
    fast, accurate = evaluate(expr, ["x"], [x]), evaluate_accurately(expr, ["x"], [x])
    assert fast.shape == accurate.shape == x.shape
    np.testing.assert_allclose(fast, accurate, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("seed", range(20))
def test_random_formulas_against_another_evaluator(seed):
    x, y = np.random.default_rng(seed).uniform(-1, 1, (2, 50))
    expr = random_formula(seed, ["x", "y"])
    wanted = numpy_function(expr, ["x", "y"])(x, y)
    np.testing.assert_allclose(evaluate(expr, ["x", "y"], [x, y]), wanted, rtol=1e-12, atol=1e-13)


def test_undefined_places_are_not_numbers():
    values = evaluate(parse("1/x + sqrt(x)"), ["x"], [np.array([-1.0, 0.0, 4.0])])
    assert np.isnan(values[0]) and not np.isfinite(values[1]) and values[2] == 2.25


def test_many_points_are_left_to_numpy(monkeypatch):
    monkeypatch.setattr(numeric, "ACCURATE_POINTS", 3)
    x = np.array([0.1, 0.2, 0.3, 0.4])
    expr = parse("sin(x)")
    assert np.array_equal(evaluate_accurately(expr, ["x"], [x]), evaluate(expr, ["x"], [x]))


def test_shapes_are_kept():
    x, y = np.meshgrid(np.arange(3.0), np.arange(2.0), indexing="ij")
    assert np.array_equal(evaluate(parse("x + 10*y"), ["x", "y"], [x, y]), x + 10 * y)
    assert evaluate_accurately(parse("x + 10*y"), ["x", "y"], [x, y]).shape == (3, 2)


def test_the_end_of_a_domain_is_inside_though_its_ball_is_not():
    """1/3 is no float: 1 - x/3 at x = 3 is a ball around zero, whose root only floats can tell."""
    x = [np.array([3.0, 1.5])]
    np.testing.assert_allclose(evaluate_accurately(parse("sqrt(1 - x/3)"), ["x"], x), [0, 0.5**0.5])
    np.testing.assert_allclose(evaluate_accurately(parse("abs(1 - x/3)**(3/2)"), ["x"], x), [0, 0.5**1.5])
    assert np.isnan(evaluate_accurately(parse("sqrt(1 - x)"), ["x"], x)).all()


@pytest.mark.parametrize("name", [*FUNCTIONS, "besselj:1/2", "bessely:2"])
def test_every_function_of_the_registry_has_float_values(name):
    """As Arb's; sympy, built from objects, agrees where it has a value."""
    x = np.array([0.25, 0.75, 1.25, 2.5])
    expr = call(name, variable("x"))
    fast, accurate = evaluate(expr, ["x"], [x]), evaluate_accurately(expr, ["x"], [x])
    np.testing.assert_allclose(fast, accurate, rtol=1e-13, atol=1e-14)
    at = int(np.flatnonzero(np.isfinite(accurate))[-1])
    judged = to_sympy(expr)
    judged = judged.evalf(30, subs={symbol: float(x[at]) for symbol in judged.free_symbols})
    if name != "cbrt":  # sympy's takes the principal root
        assert accurate[at] == pytest.approx(float(judged), rel=1e-12)


@pytest.mark.parametrize(("name", "low", "high"), [("li", 0.5, 2), ("gamma", 1e-3, 9), ("besselj:0", -30, 30)])
def test_many_points_are_as_accurate_as_few(name, low, high):
    """Polynomials on pieces, also beside a pole: the values at single points, and few calls of Arb."""
    x = np.append(np.linspace(low, high, 100_001), [np.nan, np.inf, -np.inf])
    calls = []
    slow = numeric.float_function(name)
    many = at_many(lambda p: (calls.append(p.size), slow(p))[1], x)
    some = np.arange(17, len(x), 1003)
    wanted = slow(x[some])
    assert np.isnan(many[-3:]).all() and sum(calls) < 20_000
    np.testing.assert_allclose(many[some], wanted, rtol=1e-12, atol=1e-12)
