"""Taylor models contain the function they model, at every point, remainder included."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

from support.prover import random_formula
from transformula.formulas import parse
from transformula.formulas.enclosures import enclose, precision
from transformula.formulas.expression import FUNCTIONS
from transformula.taylor import bernstein
from transformula.taylor.modelling import model_of


def exact_polynomial(model, box, t):
    value = arb(0)
    for exponents, row in zip(model.layout.exponents, model.terms, strict=True):
        term = arb(float(row[box]))
        for power, x in zip(exponents.tolist(), t, strict=True):
            term *= arb(float(x)) ** power
        value += term
    return value


@pytest.mark.parametrize("seed", range(150))
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


@pytest.mark.parametrize("op", FUNCTIONS)
def test_every_function_is_modelled_sharply(op):
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
    values = bernstein.coefficients(powers, 3).reshape(20, -1)
    assert (found.max(axis=1) <= values.max(axis=1) + 1e-12).all()
    assert (found.min(axis=1) >= values.min(axis=1) - 1e-12).all()
