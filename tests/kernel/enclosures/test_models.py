"""Taylor models contain the function they model, at every point, remainder included."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

from support.prover import random_formula
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.enclosures.expression_ranges import (
    BERNSTEIN_ROUNDING,
    bernstein_coefficients,
    bernstein_matrix,
    model_of,
    to_tensor,
)
from transformula.kernel.enclosures.taylor_models import layout
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.functions.function_table import FUNCTIONS, RESERVED
from transformula.kernel.syntax.expression import Expr, variable
from transformula.kernel.syntax.parsing import parse


def exact_polynomial(model, box, t):
    value = arb(0)
    for exponents, row in zip(model.layout.exponents, model.terms, strict=True):
        term = arb(float(row[box]))
        for power, x in zip(exponents.tolist(), t, strict=True):
            term *= arb(float(x)) ** power
        value += term
    return value


@pytest.mark.parametrize("seed", range(60))
def test_models_contain_the_function(seed):
    rng = np.random.default_rng(seed)
    d = 1 + seed % 3
    names = ["x", "y", "z"][:d]
    expr = random_formula(seed, names)
    centre = rng.uniform(-2, 2, (d, 6))
    radius = 10.0 ** rng.uniform(-4, 0.7, (d, 6))
    for order in (1, 3, 6):
        model = model_of(expr, names, centre, radius, order)
        with precision(200):
            for box in range(6):
                if not np.isfinite(model.rest[box]):
                    continue
                for t in [*rng.uniform(-1, 1, (6, d)), np.ones(d), -np.ones(d), np.zeros(d)]:
                    point = {
                        n: arb(float(centre[k, box])) + arb(float(radius[k, box])) * float(t[k])
                        for k, n in enumerate(names)
                    }
                    value = enclose(expr, point)
                    wrong = abs(exact_polynomial(model, box, t) - value)
                    assert not wrong.lower() > model.rest[box], str(expr)


@pytest.mark.parametrize("op", [name for name in FUNCTIONS if name in RESERVED])
def test_every_elementary_function_is_modelled_sharply(op):
    expr = parse(f"{op}(x)")
    centre, radius = np.array([[0.3, 0.7]]), np.array([[1e-3, 1e-2]])
    model = model_of(expr, ["x"], centre, radius, 8)
    assert (model.rest < 1e-12).all()


@pytest.mark.parametrize("op", FUNCTIONS)
def test_nothing_is_claimed_of_an_unbounded_argument(op):
    """Models of 1/x across 0 stay infinite (arb(nan).asin() is -pi/2 in FLINT)."""
    for text in (f"{op}(1/x)", f"{op}(log(x)/2)", f"{op}(0*exp(1000/x))", f"{op}(1/x - 1/x)"):
        model = model_of(parse(text), ["x"], np.array([[0.1]]), np.array([[0.5]]), 4)
        assert not model.rest[0] < 0.5, text


def test_models_at_singular_places_stay_finite():
    for text in ("sqrt(x)", "x**(7/10)", "asin(1 - x)", "abs(x)", "acos(1-x)", "x**(5/2)"):
        model = model_of(parse(text), ["x"], np.array([[0.01]]), np.array([[0.01]]), 8)
        assert np.isfinite(model.rest).all() and model.rest[0] < 0.3, text


def test_bernstein_bounds_polynomials():
    rng = np.random.default_rng(7)
    powers = rng.normal(size=(20, 7, 7))
    t = rng.uniform(-1, 1, (50, 2))
    found = np.einsum("bij,ni,nj->bn", powers, *(x[:, None] ** np.arange(7) for x in t.T))
    values = bernstein_coefficients(powers, 3).reshape(20, -1)
    assert (found.max(axis=1) <= values.max(axis=1) + 1e-12).all()
    assert (found.min(axis=1) >= values.min(axis=1) - 1e-12).all()


def test_the_rounding_bound_of_bernstein_coefficients():
    """Against exact values: polynomials of 32 terms at ends of parts, where a coefficient is a value."""
    rng = np.random.default_rng(3)
    powers = rng.normal(size=(5, 32))
    values = bernstein_coefficients(powers, 4).reshape(5, 4, 32)
    for row, found in zip(powers, values, strict=True):
        for part, t in enumerate((-1.0, -0.5, 0.0, 0.5)):
            with precision(200):
                exact = sum(arb(float(c)) * arb(t) ** k for k, c in enumerate(row))
                assert abs(exact - float(found[part, 0])) < np.abs(row).sum() * BERNSTEIN_ROUNDING


def test_what_is_too_large_is_refused():
    for refused in (
        lambda: layout(40, 8),
        lambda: layout(2, 33),
        lambda: layout(1, 0),
        lambda: bernstein_matrix(33, 1),
        lambda: bernstein_coefficients(np.zeros((1,) + (2,) * 8), 1),
    ):
        with pytest.raises(NotProvenError):
            refused()


def test_unknown_names_are_refused():
    at = np.zeros((1, 1)), np.ones((1, 1))
    with pytest.raises(RefutedError):
        model_of(parse("y"), ["x"], *at, 3)
    with pytest.raises(RefutedError):
        model_of(Expr("frobnicate", (variable("x"),)), ["x"], *at, 3)


@pytest.mark.parametrize("text", ["log(x)", "1/x", "x**(-1/2)", "x**(1/3)", "x**(5/2)", "1/x**3", "atan(1/x)"])
@pytest.mark.parametrize("scale", [1e-30, 1e-120, 1e30, 1e120])
def test_numbers_far_from_one(text, scale):
    """Nothing underflows into a claim: narrow boxes around tiny and huge numbers."""
    centre = np.array([[1.0, 1.0, 3.0]]) * scale
    radius = np.array([[1e-10, 0.3, 1e-25]]) * scale
    for order in (1, 4, 8, 14):
        model = model_of(parse(text), ["x"], centre, radius, order)
        with precision(400):
            for box in range(3):
                if not np.isfinite(model.rest[box]):
                    continue
                for t in (-1.0, -0.3, 0.9, 1.0):
                    point = arb(float(centre[0, box])) + arb(float(radius[0, box])) * t
                    wrong = abs(exact_polynomial(model, box, [t]) - enclose(parse(text), {"x": point}))
                    assert not wrong.lower() > model.rest[box]


@pytest.mark.parametrize("by", ["1/2", "1/10**40", "1 - 1/10**40", "1/10**70", "5/7"])
def test_fractional_powers_of_all_kinds(by):
    expr = parse(f"x**({by})")
    centre, radius = np.array([[1e-3, 1.0, 1e5, 1e29, 1e-250]]), np.array([[1e-4, 0.3, 1e5, 1e22, 1e-252]])
    for order in (2, 10):
        model = model_of(expr, ["x"], centre, radius, order)
        with precision(2000):
            for box in range(5):
                for t in (-0.9, 0.7, 1.0):
                    point = arb(float(centre[0, box])) + arb(float(radius[0, box])) * t
                    wrong = abs(exact_polynomial(model, box, [t]) - enclose(expr, {"x": point}))
                    assert not wrong.lower() > model.rest[box]
        assert np.isfinite(model.rest[:2]).all()


def test_pi_halves_in_the_arc_cosine():
    model = FUNCTIONS["acos"].model(model_of(parse("x"), ["x"], np.zeros((1, 1)), np.full((1, 1), 1e-9), 3))
    with precision(200):
        assert abs(arb.pi() / 2 - float(model.constant[0])) < 2.0**-53


def test_a_power_of_zero_claims_nothing_where_the_base_is_unbounded():
    at = np.array([[0.1, 2.0]]), np.array([[0.5, 0.5]])
    rest = model_of(parse("(1/x)**0"), ["x"], *at, 4).rest
    assert rest[0] == np.inf and rest[1] < 1e-200


def test_tensors():
    model = model_of(parse("1 + 2*x + 3*y**2"), ["x", "y"], np.zeros((2, 1)), np.ones((2, 1)), 3)
    assert to_tensor(model)[0] == pytest.approx(np.array([[1, 0, 3], [2, 0, 0], [0, 0, 0]]))
