"""Fits that a data scientist would trust: the penalty, the start and the choice that keep them from overfitting."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, make_regression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss

from transformula.learn import (
    OneLayerTransformerRegressor,
    PolynomialTransformerClassifier,
    PolynomialTransformerRegressor,
)
from transformula.learn.distinct_rows import Rows
from transformula.learn.gradient import LinearStart
from transformula.learn.one_layer_regressor import linear_weights, random_weights
from transformula.learn.scoring import TrainedTable, linear_is_better
from transformula.learn.solvers import exact_fit
from transformula.learn.solvers.exact_fit import fit_exact
from transformula.learn.solvers.features import all_terms, evaluate_terms, orthonormal_basis
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.polynomial_fit import penalties
from transformula.runtime.one_layer_module import OneLayerModule

rng = np.random.default_rng(0)


def _brute_force(table, ridge):
    """The leave-one-out error by leaving each row out."""
    phi = evaluate_terms(table.terms, table.basis, table.X).T
    amounts = np.diag(table.weight.sum() * penalties(table.terms, ridge))
    miss = []
    for k in range(len(phi)):
        rest = np.arange(len(phi)) != k
        left = phi[rest].T * table.weight[rest]
        coefficients = np.linalg.lstsq(left @ phi[rest] + amounts, left @ table.Y[rest], rcond=None)[0]
        miss.append(table.Y[k] - phi[k] @ coefficients)
    spread = table.weight @ (table.Y - table.mean) ** 2 / table.weight.sum()
    return float(np.mean(table.weight @ np.array(miss) ** 2 / spread) / table.weight.sum())


def _table(rows, degree=3):
    X, weight = rng.normal(size=(rows, 2)), rng.uniform(0.5, 2, size=rows)
    Y = np.column_stack([X[:, 0] ** 2 + rng.normal(size=rows), X[:, 1] + rng.normal(size=rows)])
    return exact_fit.TermRows(X, Y, weight, all_terms(2, degree), orthonormal_basis(X, degree, weight))


@pytest.mark.parametrize("rows", [40, 25, 9])
def test_leave_one_out_is_what_leaving_rows_out_gives(rows):
    table, ridges = _table(rows), np.array([1e-3, 0.1, 1.0])
    gram = Gram(table.terms, table.basis, np.ones(2)).add(table.X, table.Y, table.weight)
    found = exact_fit._dual(table) if rows < 10 else exact_fit._primal(table, gram)
    spread = table.weight @ (table.Y - table.mean) ** 2 / table.weight.sum()
    wanted = [_brute_force(table, ridge) for ridge in ridges]
    np.testing.assert_allclose(found.losses(ridges, spread).sum(axis=0), wanted, rtol=1e-6)


def test_many_terms_are_judged_the_same_way(monkeypatch):
    table = _table(40)
    gram = Gram(table.terms, table.basis, np.ones(2)).add(table.X, table.Y, table.weight)
    spread = table.weight @ (table.Y - table.mean) ** 2 / table.weight.sum()
    choice = exact_fit._few(table, gram, spread).ridge
    errors = {ridge: _brute_force(table, ridge) for ridge in exact_fit._FEW_RIDGES}
    assert choice == min(errors, key=errors.get)
    monkeypatch.setattr(exact_fit, "_MOST_SIDE", 5)
    assert exact_fit.leave_one_out(gram, table).ridge == choice


def test_without_noise_there_is_no_penalty():
    X = rng.normal(size=(60, 2))
    assert fit_exact(Rows.of(X, X[:, :1] * X[:, 1:]), 3).ridge == 0


def _halves(X, y):
    order = np.random.default_rng(1).permutation(len(y))
    return (X[order[::2]], y[order[::2]]), (X[order[1::2]], y[order[1::2]])


def _error(model, rows):
    return float(np.sqrt(np.mean((model.predict(rows[0]) - rows[1]) ** 2)))


TRUSTED = {
    "auto": PolynomialTransformerRegressor(3),
    "exact": PolynomialTransformerRegressor(3, "exact"),
    "adam": PolynomialTransformerRegressor(3, "adam"),
    "sgd": PolynomialTransformerRegressor(3, "sgd"),
    "one layer": OneLayerTransformerRegressor(),
}


@pytest.mark.filterwarnings("ignore:.*far outside")
@pytest.mark.parametrize("name", TRUSTED)
@pytest.mark.parametrize("data", ["diabetes", "linear"])
def test_never_worse_than_a_linear_model_by_more_than_noise(name, data):
    X, y = load_diabetes(return_X_y=True) if data == "diabetes" else make_regression(300, 8, noise=60, random_state=0)
    train, held = _halves(X, y)
    linear = LinearRegression().fit(*train)
    assert _error(TRUSTED[name].fit(*train), held) < 1.04 * _error(linear, held)


@pytest.mark.filterwarnings("ignore:.*far outside")
@pytest.mark.parametrize("seed", range(3))
def test_a_classifier_is_linear_where_nothing_else_is_clearly_better(seed):
    chance = np.random.default_rng(seed)
    X = chance.normal(size=(1_200, 6))
    y = (chance.random(1_200) < 1 / (1 + np.exp(-X @ [1, 1, -1, 0, 0, 0]))).astype(int)
    model = PolynomialTransformerClassifier(3).fit(X[:400], y[:400])
    line = LogisticRegression().fit(X[:400], y[:400])
    losses = [log_loss(y[400:], one.predict_proba(X[400:])) for one in (model, line)]
    assert losses[0] < losses[1] + 0.02
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    assert PolynomialTransformerClassifier(2).fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.9


@pytest.mark.parametrize("solver", ["exact", "sparse"])
def test_small_effects_of_many_variables_and_few_rows_give_a_linear_model(solver):
    """Monomials of degree 3 fit sixteen rows in many ways, and a price on terms drops effects that matter together."""
    worst = 0.0
    for seed in range(6):
        chance = np.random.default_rng(seed)
        X = chance.normal(size=(2_000, 8 if solver == "sparse" else 3))
        y = X.sum(axis=1) + (5 if solver == "sparse" else 1) * chance.normal(size=len(X))
        train = slice(None, 300 if solver == "sparse" else 16)
        miss = y - PolynomialTransformerRegressor(3, solver).fit(X[train], y[train]).predict(X)
        line = y - LinearRegression().fit(X[train], y[train]).predict(X)
        worst = max(worst, float(np.sum(miss**2) / np.sum(line**2)))
    assert worst < (1.1 if solver == "sparse" else 1.5)


def test_auto_may_choose_a_linear_model():
    X = rng.normal(size=(60, 4))
    y = X @ [1.0, -1.0, 0.8, 0.6] + 2 * rng.normal(size=60)
    model = PolynomialTransformerRegressor(4).fit(X, y)
    assert model.degree_ == 1
    assert "**" not in model.to_formula(1e-3) and "x1" in model.to_formula(1e-3)


@pytest.mark.parametrize("tokens", ["one", "each"])
def test_a_layer_starts_as_the_linear_model(tokens):
    torch = pytest.importorskip("torch")
    linear = LinearStart(rng.normal(size=(3, 2)), rng.normal(size=2))
    layer = OneLayerTransformerRegressor(2, 8, 4, 5, 6, tokens=tokens)
    start = random_weights(layer, 3, 2, np.random.default_rng(0))
    x = rng.normal(size=(20, 3))
    with torch.no_grad():
        found = OneLayerModule(linear_weights(start, linear))(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, linear.offset + x @ linear.slopes, atol=0.05)


@pytest.mark.parametrize("model", [TRUSTED["adam"], TRUSTED["one layer"]])
def test_large_tables_take_no_more_steps(model):
    for rows in (300, 9_568, 100_000):
        plan = model.schedule(rows, 300)
        steps = -(-rows // plan.batch_size)
        assert plan.epochs * steps < 1_000 + steps and plan.patience == -(-plan.epochs // 3)


def test_a_better_linear_model_is_ahead_by_two_standard_errors():
    X, off = rng.normal(size=(100, 1)), rng.normal(size=100)

    def ahead(one, other):  # the linear model of noiseless rows misses the held-out ones by `other`
        rows = TrainedTable(X, X[:, 0], np.ones(100), X[: len(other)], X[: len(other), 0] - other, np.ones(len(other)))
        return linear_is_better(lambda x: (rows.held_y + one)[:, None], rows)

    assert ahead(off, 0.5 * off) and not ahead(0.5 * off, off)
    assert not ahead(off, off[::-1]) and not ahead(off[:1], off[:1])


@pytest.mark.parametrize("kind", [PolynomialTransformerRegressor, OneLayerTransformerRegressor])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"init": "magic"}, "'init' parameter"),
        ({"weight_decay": -1}, "'weight_decay' parameter"),
        ({"random_state": -1}, "'random_state' parameter"),
    ],
)
def test_options_are_checked(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options).fit(rng.normal(size=(20, 2)), rng.normal(size=20))
