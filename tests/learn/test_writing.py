"""Formulas parse back, Transformers verify, and both say what predict says."""

import numpy as np
import pytest

import transformula as tf
from transformula.formula import parse
from transformula.formula.evaluation import evaluate
from transformula.learn import PolynomialTransformerClassifier, PolynomialTransformerRegressor

rng = np.random.default_rng(0)
X = rng.uniform(1990, 2020, size=(400, 3)) * [1, 1e-3, 1e3]
y = ((X[:, 0] - 2000) / 10) ** 3 + (X[:, 1] - 2) * 50 * ((X[:, 2] / 1e3 - 2005) / 10) + rng.normal(size=400)


@pytest.mark.parametrize("solver", ["exact", "sparse", "lowrank", "adam", "sgd"])
def test_text_and_transformer_agree_with_predict(solver, tmp_path):
    model = PolynomialTransformerRegressor(3, solver, epochs=30).fit(X, y)
    names = [f"x{k + 1}" for k in range(3)]
    text = model.to_formula()
    wanted, spread = model.predict(X), y.std()
    # cancellation in the float evaluation of monomials about the origin, not in the text
    read = evaluate(parse(text, names), names, list(X.T))
    assert np.abs(read - wanted).max() < 1e-3 * spread
    transformer = model.to_transformer()
    assert tf.verify(transformer).verified and transformer.certificate.approximation == 0
    used = [names.index(v) for v in transformer.weights.inputs]
    slack = 1e-5 * spread + transformer.certificate.rounding  # predict adds up forms about the origin, in floats
    assert np.abs(transformer(X[:, used]) - wanted).max() < slack
    transformer.save(tmp_path / "model")
    loaded = tf.load(tmp_path / "model")
    assert np.array_equal(loaded(X[:, used]), transformer(X[:, used]))


def test_a_looser_tolerance_is_shorter_and_still_kept():
    model = PolynomialTransformerRegressor(2, "exact").fit(X[:, :2], y)
    short, long = model.to_formula(1e-2), model.to_formula()
    assert len(short) < len(long)
    names = ["x1", "x2"]
    with_short = tf.compile(short, on={"x1": (1990, 2020), "x2": ("1.99", "2.02")}, construction="polynomial")
    assert np.abs(with_short(X[:, :2]) - model.predict(X[:, :2])).max() < 1.1e-2 * y.std()
    assert set(names) <= set(with_short.weights.inputs)


def test_lowrank_writes_few_powers_of_linear_forms():
    Z = rng.normal(size=(3000, 30))
    w = rng.normal(size=(2, 30))
    target = (Z @ w[0] / 5) ** 3 + (Z @ w[1] / 5) ** 2
    model = PolynomialTransformerRegressor(3, "lowrank").fit(Z, target)
    transformer = model.to_transformer()
    assert transformer.tokens <= 6 and transformer.layers == 3
    assert tf.verify(transformer).verified
    np.testing.assert_allclose(transformer(Z[:50]), target[:50], atol=1e-5)


def test_classifier_scores_become_a_transformer():
    Z = rng.normal(size=(300, 2))
    label = np.digitize((Z**2).sum(axis=1), [0.8, 2.0])
    model = PolynomialTransformerClassifier(degree=2).fit(Z, label)
    scores = model.to_transformer(box={"x1": (-5, 5), "x2": (-5, 5)})
    assert scores.weights.outputs == 3
    assert np.array_equal(scores(Z).argmax(axis=1), model.predict(Z))
    np.testing.assert_allclose(scores(Z), model.decision_function(Z), atol=1e-7)


def test_a_box_may_be_given_and_is_checked():
    model = PolynomialTransformerRegressor(2, "sparse").fit(X[:, :2], X[:, 0] * X[:, 1])
    assert str(model.to_transformer(box={"x1": (0, 3000)}).box).startswith("x1=0..3000")
    with pytest.raises(ValueError, match="is not an input"):
        model.to_transformer(box={"z": (0, 1)})
    with pytest.raises(ValueError, match="tolerance"):
        model.to_formula(tolerance=0)
