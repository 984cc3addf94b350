"""The numbers the project promises, at the size the paper uses where that is quick enough."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_friedman1, make_friedman2
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from transformula.learn import PolynomialTransformerClassifier, PolynomialTransformerRegressor
from transformula.studies.fang_f2_study import f1_sample, f2_sample
from transformula.studies.fang_study import TERMS, terms_of


def _mse(model, sample):
    return float(np.mean((model.predict(sample.X_test) - sample.f_test) ** 2))


@pytest.mark.parametrize("solver", ["exact", "sparse", "auto"])
def test_f1_in_closed_form(solver):
    sample = f1_sample(seed=0)
    assert _mse(PolynomialTransformerRegressor(2, solver).fit(sample.X, sample.y), sample) <= 0.002


def test_sparse_finds_exactly_the_seven_terms_of_f2():
    sample = f2_sample(seed=0, rows=15_000)
    model = PolynomialTransformerRegressor(5, "sparse").fit(sample.X, sample.y)
    assert _mse(model, sample) <= 0.001
    assert terms_of(model.to_formula(1e-4)) == TERMS
    transformer = model.to_transformer()
    assert transformer.layers == 5 and transformer.tokens <= 14


def test_exact_is_at_the_statistical_limit():
    """Degree 4 with 1001 terms and 12,000 rows; the full size is in benchmarks/learning.py."""
    sample = f2_sample(seed=0, rows=12_000)
    y = sample.y - sample.X[:, 0] ** 5
    model = PolynomialTransformerRegressor(4, "exact").fit(sample.X, y)
    truth = sample.f_test - sample.X_test[:, 0] ** 5
    assert np.mean((model.predict(sample.X_test) - truth) ** 2) < 1.3 * 1001 / (12_000 - 1001)


@pytest.mark.parametrize("seed, rows, limit", [(0, 10_000, 0.05), (1, 20_000, 1e-3)])
def test_lowrank_on_fifty_variables(seed, rows, limit):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(5, 50))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    C = rng.normal(size=(5, 3))

    def target(X):
        return sum(((X @ W.T) ** (s + 1)) @ C[:, s] for s in range(3))

    size = np.sqrt(15) / target(rng.normal(size=(20_000, 50))).std()
    X, X_test = rng.normal(size=(rows, 50)), rng.normal(size=(2000, 50))
    y = size * target(X) + 0.1 * rng.normal(size=rows)
    model = PolynomialTransformerRegressor(3, "lowrank").fit(X, y)
    assert np.mean((model.predict(X_test) - size * target(X_test)) ** 2) <= limit


@pytest.mark.filterwarnings("ignore:.*far outside")
def test_friedman_and_digits():
    X, y = make_friedman1(600, noise=1.0, random_state=0)
    model = PolynomialTransformerRegressor(degree=3).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.9
    X, y = load_digits(n_class=5, return_X_y=True)
    model = PolynomialTransformerClassifier(2).fit(X[:600], y[:600])
    assert model.score(X[600:], y[600:]) > 0.97


@pytest.mark.parametrize("seed", [0, 1])
def test_no_more_than_one_standard_error_behind_ridge(seed):
    """On the whole set, whose seed 0 is in benchmarks/fit_speed.py: small effects, which few terms leave out."""
    X, y = make_friedman2(5000, noise=100, random_state=seed)
    ridge = make_pipeline(StandardScaler(), PolynomialFeatures(3), StandardScaler(), RidgeCV(np.logspace(-3, 5, 17)))
    worse = []
    for train, held in KFold(5, shuffle=True, random_state=0).split(X):
        ours, theirs = (
            (model.fit(X[train], y[train]).predict(X[held]) - y[held]) ** 2
            for model in (PolynomialTransformerRegressor(3), ridge)
        )
        worse.append(ours - theirs)
    gain = np.concatenate(worse)
    assert gain.mean() <= gain.std(ddof=1) / len(gain) ** 0.5
