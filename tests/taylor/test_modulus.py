"""Moduli of continuity and Lipschitz constants: never below what dense sampling sees, and not far above."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.prover import numpy_function, random_formula
from transformula.formulas import parse
from transformula.taylor.modulus import lipschitz, modulus

#: function, interval, whether f' is bounded there
FUNCTIONS = [
    ("sqrt(x)", 0.0, 1.0, False), ("x**2", -1.0, 3.0, True), ("sin(20*x)", 0.0, 2.0, True),
    ("acos(x)", -1.0, 1.0, False), ("log(x)", 0.01, 5.0, True), ("abs(x)**(7/10)", -1.0, 2.0, False),
    ("exp(-x**2)*x", -3.0, 3.0, True), ("1/x", 0.1, 1.0, True), ("x**(3/2)", 0.0, 4.0, False),
    ("tanh(50*x)", -1.0, 1.0, True), ("3 - x/7", -2.0, 9.0, True),
]  # fmt: skip


def _seen(function, low, high, shift):
    """Largest |f(x) − f(y)| on pairs within the shift, the ends included."""
    near = np.concatenate([[0], 10.0 ** np.linspace(-9, 0, 200)]) * (high - low)
    x = np.concatenate([np.linspace(low, high, 4001), low + near, high - near])
    best = 0.0
    for part in (1.0, 0.5, 0.1):
        y = np.clip(x + part * shift, low, high)
        best = max(best, np.nanmax(np.abs(function(y) - function(x))))
    return best


@pytest.mark.parametrize("shift", [1e-9, 1e-4, 0.1])
@pytest.mark.parametrize(("text", "low", "high", "smooth"), FUNCTIONS)
def test_modulus_against_sampling(text, low, high, smooth, shift):
    expr = parse(text)
    bound = modulus(expr, "x", low, high, shift)
    seen = _seen(numpy_function(expr, ["x"]), low, high, shift)
    assert seen <= bound * (1 + 1e-9) + 1e-15
    if shift < 0.1 and "abs" not in text:  # a singular point inside takes many pieces
        assert bound <= 4 * seen + 1e-14


@pytest.mark.parametrize(("text", "low", "high", "smooth"), FUNCTIONS)
def test_lipschitz_against_sampling(text, low, high, smooth):
    expr = parse(text)
    bound = lipschitz(expr, "x", low, high)
    x = np.linspace(low, high, 20_001)
    values = numpy_function(expr, ["x"])(x)
    seen = np.abs(np.diff(values) / np.diff(x)).max()
    if smooth:
        assert seen * (1 - 1e-9) <= bound <= 3 * seen
    else:
        assert bound == math.inf or bound >= seen


@given(seed=st.integers(0, 5000), shift=st.floats(1e-8, 0.3))
def test_modulus_of_random_functions(seed, shift):
    expr = random_formula(seed, ["x"])
    seen = _seen(numpy_function(expr, ["x"]), -1.0, 1.5, shift)
    assert seen <= modulus(expr, "x", -1.0, 1.5, shift) * (1 + 1e-9) + 1e-12


def test_nothing_moves():
    assert modulus(parse("sin(x)"), "x", 0.0, 1.0, 0.0) == 0
    assert modulus(parse("y"), "x", 0.0, 1.0, 1.0) == lipschitz(parse("y"), "x", 0.0, 1.0) == 0
    assert modulus(parse("sin(x)"), "x", 0.0, 1.0, math.inf) == math.inf
    assert modulus(parse("sin(x)"), "x", 1.0, 1.0, 0.1) < 1e-20
    assert modulus(parse("1/x"), "x", -1.0, 1.0, 0.1) == math.inf
