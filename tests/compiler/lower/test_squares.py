"""Sums of squares under a root, and lengths measured in directions."""

import numpy as np
import pytest

import transformula as tf
from transformula.compiler.lower.factors import as_squares, radicand
from transformula.formula.evaluation import evaluate
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.parsing import parse

NAMES = ["x", "y", "z", "t"]


@pytest.mark.parametrize(
    "text",
    [
        "(x - y)**2 + z**2",
        "4*x**2 + y**2/9 + 2*z**2",
        "x**2 + y**2 - 2*x*y*cos(t)",
        "x**2 + y**2 + 2*x*y*cos(t - z)",
        "x**4 + (y*z)**2 + 1",
        "9*x**2 + y**2 + 6*x*y*cos(t) + z**2",
    ],
)
def test_the_squares_add_up(text):
    expr = parse(text, NAMES)
    squares = as_squares(expr)
    point = list(np.random.default_rng(0).uniform(-2, 2, (4, 100)))
    total = sum(evaluate(s, NAMES, point) ** 2 for s in squares)
    np.testing.assert_allclose(total, evaluate(expr, NAMES, point), rtol=1e-12)


@pytest.mark.parametrize(
    "text", ["x**2 - y**2", "x**2", "x**2 + y", "x**2 + y**2 - 3*x*y*cos(t)", "x**2 + x*y*cos(t)*2", "x + y"]
)
def test_what_is_no_sum_of_squares(text):
    assert as_squares(parse(text, NAMES)) is None


def test_roots():
    assert str(radicand(parse("sqrt(x + y)"))) == str(radicand(parse("(x + y)**(1/2)"))) == "x + y"
    assert radicand(parse("x**(1/3)")) is None and radicand(ex.variable("x")) is None


def test_a_distance_that_vanishes_is_proven_to_nine_digits():
    """The root of a rounded sum of squares would be off by 1e-6."""
    formula, box = "sqrt(x1**2 + x2**2 - 2*x1*x2*cos(a - b))", "x1=1..5, x2=1..5, a=1..5, b=1..5"
    model = tf.compile(formula, on=box, eps=1e-9)
    assert model.certificate.bound <= 1e-9 and model.memory_tokens <= 30
    x = np.random.default_rng(0).uniform(1, 5, (5_000, 4))
    x[:2_000, 1], x[:2_000, 3] = x[:2_000, 0] * (1 + 1e-8), x[:2_000, 2]
    gap = np.hypot(x[:, 0] - x[:, 1], 2 * np.sqrt(x[:, 0] * x[:, 1]) * np.sin((x[:, 2] - x[:, 3]) / 2))
    assert np.abs(model(x) - gap).max() <= model.certificate.bound


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_length_has_as_few_folds_as_its_tolerance_allows(dtype):
    """Each is a layer; one more makes the error four times smaller."""
    levels = (1e-1, 1e-2, 1e-3, 1e-4) if dtype == "float32" else (1e-2, 1e-5, 1e-8, 1e-12)
    models = [tf.compile("sqrt(x**2 + y**2)", on="x=-1..1, y=-1..1", eps=eps, dtype=dtype) for eps in levels]
    layers = [model.layers for model in models]
    assert layers == sorted({*layers}) and layers[0] <= 5
    assert all(eps / 30 < model.certificate.bound <= eps for eps, model in zip(levels, models, strict=True))


def test_float32_keeps_a_distance_that_vanishes():
    """Under a root an error e becomes sqrt(e): a table could not do this in float32."""
    formula, box = "sqrt((x2 - x1)**2 + (y2 - y1)**2)", "x1..x2=1..5, y1..y2=1..5"
    model = tf.compile(formula, on=box, rel=1e-3, dtype="float32", construction="circuit")
    assert model.certificate.bound <= model.certificate.eps and tf.verify(model).verified
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 5, (20_000, 4)).astype(np.float32)
    x[:10_000, 1] = x[:10_000, 0] + rng.normal(0, 1e-3, 10_000).astype(np.float32)
    x[:10_000, 3] = x[:10_000, 2]
    wanted = np.hypot(x[:, 1].astype(float) - x[:, 0], x[:, 3].astype(float) - x[:, 2])
    assert np.abs(model(x).astype(float) - wanted).max() <= model.certificate.bound
