"""scikit-learn's own contract, for every estimator and every solver."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from transformula.learn import (
    LinearAttentionRegressor,
    OneLayerTransformerRegressor,
    PolynomialTransformerClassifier,
    PolynomialTransformerRegressor,
)

ESTIMATORS = [
    PolynomialTransformerRegressor(),
    PolynomialTransformerRegressor(solver="exact"),
    PolynomialTransformerRegressor(solver="sparse"),
    PolynomialTransformerRegressor(solver="lowrank"),
    PolynomialTransformerRegressor(solver="adam", epochs=10),
    PolynomialTransformerClassifier(),
    PolynomialTransformerClassifier(solver="adam", epochs=10),
    OneLayerTransformerRegressor(epochs=10),
    LinearAttentionRegressor(),
]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, X[:, 0] ** 2 - X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=200)


def test_the_tools_people_use(data):
    X, y = data
    model = PolynomialTransformerRegressor(degree=2)
    assert cross_val_score(model, X, y, cv=3).min() > 0.95
    search = GridSearchCV(PolynomialTransformerRegressor(solver="sparse"), {"degree": [1, 2]}, cv=3).fit(X, y)
    assert search.best_params_ == {"degree": 2}
    pipe = make_pipeline(StandardScaler(), clone(model)).fit(X, y)
    again = pickle.loads(pickle.dumps(pipe))
    assert np.array_equal(pipe.predict(X), again.predict(X))


@pytest.mark.parametrize("estimator", [PolynomialTransformerRegressor(2), PolynomialTransformerClassifier(2)])
def test_sparse_indicators_are_those_of_dense_ones(estimator):
    """OneHotEncoder's default; and nothing warns under cross-validation."""
    chance = np.random.default_rng(0)
    table = np.column_stack([chance.choice(["Rom", "Ulm", "Wien"], 300), chance.integers(0, 6, 300).astype(str)])
    y = (table[:, 0] == "Ulm") + 0.1 * chance.normal(size=300)
    if isinstance(estimator, PolynomialTransformerClassifier):
        y = y > 0.5
    sparse = OneHotEncoder().fit_transform(table)
    found = [clone(estimator).fit(X, y).predict(X) for X in (sparse, sparse.toarray())]
    assert np.array_equal(*found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cross_val_score(make_pipeline(OneHotEncoder(), estimator), table, y, cv=3).min() > 0.9


def test_names_pass_through_pipelines_without_a_warning():
    pd = pytest.importorskip("pandas")
    chance = np.random.default_rng(0)
    frame = pd.DataFrame({"city": chance.choice(["Rom", "Ulm"], 200), "sq m": chance.uniform(30, 200, 200)})
    price = 2 * frame["sq m"] * (1 + (frame["city"] == "Rom")) + chance.normal(size=200)
    encoder = OneHotEncoder(sparse_output=False, drop="if_binary")
    columns = make_column_transformer(
        (encoder, ["city"]), (StandardScaler(), ["sq m"]), verbose_feature_names_out=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe = (
            make_pipeline(columns, PolynomialTransformerRegressor(2)).set_output(transform="pandas").fit(frame, price)
        )
        assert cross_val_score(pipe, frame, price, cv=3).min() > 0.99
    assert list(pipe[-1].feature_names_in_) == ["city_Ulm", "sq m"] == list(pipe[:-1].get_feature_names_out())
    assert "city_Ulm*sq_m" in pipe[-1].to_formula(1e-2)


@pytest.mark.parametrize("solver", ["exact", "sparse", "lowrank", "adam"])
def test_several_outputs(data, solver):
    X, y = data
    Y = np.column_stack([y, 2 * X[:, 0] + 1, X[:, 1] ** 2])
    model = PolynomialTransformerRegressor(degree=2, solver=solver, learning_rate=0.05).fit(X, Y)
    assert model.predict(X).shape == (200, 3)
    assert model.score(X, Y) > 0.97
    assert len(model.to_formula(1e-2)) == 3


@pytest.mark.parametrize("solver", ["auto", "exact", "sparse", "lowrank", "adam"])
def test_a_weight_is_a_repetition(data, solver):
    X, y = data
    times = np.random.default_rng(1).integers(0, 4, size=len(X))
    options = {"degree": 2, "solver": solver, "epochs": 20}
    weighted = PolynomialTransformerRegressor(**options).fit(X, y, sample_weight=times)
    repeated = PolynomialTransformerRegressor(**options).fit(np.repeat(X, times, 0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9, atol=1e-9)


def test_the_same_seed_gives_the_same_model(data):
    X, y = data
    for solver in ("lowrank", "adam"):
        fits = [PolynomialTransformerRegressor(2, solver, epochs=10, random_state=3).fit(X, y) for _ in "ab"]
        assert np.array_equal(*(f.predict(X) for f in fits))
