"""NaN, text, constant columns, one sample, too few rows, far rows: an error or a warning."""

import numpy as np
import pytest

from transformula.learn import (
    OneLayerTransformerRegressor,
    PolynomialTransformerClassifier,
    PolynomialTransformerRegressor,
)

ALL = [PolynomialTransformerRegressor, PolynomialTransformerClassifier, OneLayerTransformerRegressor]
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = X[:, 0] * X[:, 1]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bad, message", [(np.nan, "NaN"), (np.inf, "infinity"), ("red", "could not convert")])
def test_bad_cells_are_refused(kind, bad, message):
    broken = X.astype(object)
    broken[3, 1] = bad
    with pytest.raises(ValueError, match=message):
        kind().fit(broken, y > 0)


@pytest.mark.parametrize("kind", ALL)
def test_one_sample_is_refused(kind):
    with pytest.raises(ValueError, match="1 sample"):
        kind().fit(X[:1], [1])


@pytest.mark.parametrize("solver", ["auto", "exact", "sparse", "lowrank", "adam"])
def test_constant_columns_are_left_out(solver):
    with_constant = np.column_stack([X, np.full(60, 7.0)])
    model = PolynomialTransformerRegressor(2, solver, learning_rate=0.05).fit(with_constant, y)
    assert model.score(with_constant, y) > 0.95
    assert "x4" not in model.to_formula()


@pytest.mark.parametrize("kind", [PolynomialTransformerRegressor, OneLayerTransformerRegressor])
def test_nothing_but_constant_columns_gives_the_mean(kind):
    np.testing.assert_allclose(kind().fit(np.ones((9, 2)), np.arange(9.0)).predict(np.ones((2, 2))), 4.0, atol=0.1)


def test_a_constant_target():
    for solver in ("auto", "exact", "sparse", "lowrank"):
        model = PolynomialTransformerRegressor(2, solver).fit(X, np.full(60, 3.5))
        np.testing.assert_allclose(model.predict(X), 3.5, atol=1e-12)
    with pytest.raises(ValueError, match="constant"):
        PolynomialTransformerRegressor(2, "sparse").fit(X, np.full(60, 3.5)).to_transformer()


def test_more_terms_than_rows_warns():
    with pytest.warns(UserWarning, match="20 distinct rows for 56 terms"):
        model = PolynomialTransformerRegressor(3, "exact", ridge=0.0).fit(rng.normal(size=(20, 5)), rng.normal(size=20))
    assert np.isfinite(model.predict(rng.normal(size=(5, 5)))).all()


@pytest.mark.parametrize("ridge", [0.1, None])
def test_a_penalty_needs_no_warning(ridge, recwarn):
    PolynomialTransformerRegressor(3, "exact", ridge=ridge).fit(rng.normal(size=(20, 5)), rng.normal(size=20))
    assert not recwarn


@pytest.mark.parametrize("kind", ALL)
def test_far_rows_warn(kind, recwarn):
    model = kind().fit(X, y > 0)
    model.predict(X)
    assert not [w for w in recwarn if "far outside" in str(w.message)]
    with pytest.warns(UserWarning, match="1 of 2 rows lie far outside the training range"):
        model.predict([[0.0, 0.0, 0.0], [0.0, 50.0, 0.0]])


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="one class"):
        PolynomialTransformerClassifier().fit(X, np.zeros(60))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"degree": 0}, "'degree' parameter .* must be an int in the range"),
        ({"degree": 2.5}, "'degree' parameter"),
        ({"solver": "magic"}, "'solver' parameter .* must be a str among .*'adam'"),
        ({"rank": 0, "solver": "lowrank"}, "'rank' parameter"),
        ({"solver": "adam", "epochs": 0}, "'epochs' parameter"),
        ({"solver": "adam", "learning_rate": -1}, "'learning_rate' parameter"),
        ({"solver": "adam", "validation_fraction": 1.0}, "'validation_fraction' parameter"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        PolynomialTransformerRegressor(**options).fit(X, y)


def test_weights_are_checked():
    with pytest.raises(ValueError, match="negative"):
        PolynomialTransformerRegressor().fit(X, y, sample_weight=np.r_[-1.0, np.ones(59)])
    with pytest.raises(ValueError, match="zero"):
        PolynomialTransformerRegressor().fit(X, y, sample_weight=np.zeros(60))


def test_too_many_monomials_name_the_way_out():
    wide = rng.normal(size=(30, 200))
    with pytest.raises(ValueError, match="use solver='lowrank'"):
        PolynomialTransformerRegressor(3, "exact").fit(wide, wide[:, 0])


@pytest.mark.parametrize("offset, scale", [(1e4, 1.0), (0.0, 1e-6), (-2e3, 1e3)])
@pytest.mark.parametrize("solver", ["exact", "sparse", "lowrank"])
def test_offsets_and_units_do_not_matter(offset, scale, solver):
    model = PolynomialTransformerRegressor(2, solver).fit(offset + scale * X, y)
    assert model.score(offset + scale * X, y) > 0.9999


def test_training_that_diverges_says_so():
    with pytest.raises(FloatingPointError, match="learning_rate"):
        PolynomialTransformerRegressor(5, "sgd", learning_rate=1e6, clip=None).fit(X, y)
