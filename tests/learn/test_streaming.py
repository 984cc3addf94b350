"""Data larger than memory: batches add up to one fit."""

import numpy as np
import pytest

from transformula.learn import PolynomialTransformerRegressor


def test_batches_equal_one_fit():
    rng = np.random.default_rng(0)
    X = rng.uniform(3, 9, size=(3000, 4))
    y = X[:, 0] ** 3 - X[:, 1] * X[:, 2] + rng.normal(size=3000)
    whole = PolynomialTransformerRegressor(degree=3, solver="exact", ridge=0.0).fit(X, y)
    stream = PolynomialTransformerRegressor(degree=3, solver="exact", ridge=0.0)
    for start in range(0, 3000, 500):
        stream.partial_fit(X[start : start + 500], y[start : start + 500])
    np.testing.assert_allclose(stream.predict(X), whole.predict(X), rtol=1e-9, atol=1e-8)
    assert np.array_equal(stream.range_.low, X.min(axis=0))
    assert stream.to_transformer().certificate.approximation == 0


def test_a_later_fit_forgets_the_stream():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 2)), rng.normal(size=100)
    model = PolynomialTransformerRegressor(degree=1, solver="exact").partial_fit(X + 5, y)
    assert np.array_equal(
        model.fit(X, y).predict(X),
        PolynomialTransformerRegressor(degree=1, solver="exact").fit(X, y).predict(X),
    )


def test_other_solvers_do_not_stream():
    with pytest.raises(AttributeError):
        PolynomialTransformerRegressor(solver="sparse").partial_fit([[1.0], [2.0]], [1.0, 2.0])


def test_batches_must_agree_on_outputs():
    model = PolynomialTransformerRegressor(solver="exact").partial_fit([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="2 outputs; the first batch had 1"):
        model.partial_fit([[1.0], [2.0]], [[1.0, 2.0], [2.0, 1.0]])


def test_a_stream_chooses_its_penalty():
    rng = np.random.default_rng(1)
    X, noise = rng.normal(size=(300, 4)), rng.normal(size=300)
    free = PolynomialTransformerRegressor(degree=3, solver="exact", ridge=0.0).fit(X, noise)
    stream = PolynomialTransformerRegressor(degree=3, solver="exact")
    for start in range(0, 300, 100):
        stream.partial_fit(X[start : start + 100], noise[start : start + 100])
    assert np.std(stream.predict(X)) < 0.5 * np.std(free.predict(X)), "noise was learned"
