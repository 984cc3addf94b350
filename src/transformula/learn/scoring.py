r"""Scores of a fit beside other models on rows that none of them has seen; its terms, effects and Shapley values.

For a monomial c Π_p g_p(x), where g_p has the features of one column p, and columns taken as independent, the worth of
knowing the columns S is c Π_{p∈S} g_p(x) Π_{p∉S} E g_p. A monomial has few columns, so its Shapley values

    φ_p = Σ_{S ∌ p} |S|! (k − 1 − |S|)! / k!  (worth(S ∪ p) − worth(S))

are a sum over subsets of k ≤ degree columns, and those of the polynomial are their sum: no sampling. They add up to
the prediction minus the mean prediction of independent columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import entropy
from sklearn.calibration import calibration_curve
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from transformula.learn.classifier import probabilities
from transformula.learn.distinct_rows import Floats
from transformula.learn.preparation import CATEGORY
from transformula.learn.solvers.exact_fit import beyond_noise
from transformula.learn.solvers.features import Exponents, MonomialSum

if TYPE_CHECKING:
    from transformula.learn.table_fit import TableFit

THIS_FIT = "this fit"
LINEAR = "linear model"
MEAN = "mean"
#: Fewest rows that R² is computed for.
FEWEST_JUDGED = 5
#: Deviation of equal targets from their computed mean, and error of a fit that is exact up to rounding: shares of them.
_ROUNDING, _EXACT = 1e-14, 1e-9
Scores = dict[str, dict[str, float | None]]
#: Rows whose points, Shapley values and permutations the report has.
_POINTS = 400
#: Places at which an effect is drawn, and the most columns.
_PLACES, _COLUMNS = 33, 12
#: Terms that are listed.
_TERMS = 40
#: Rows and features up to which boosted trees are fitted beside the polynomial.
_MOST_ROWS = 60_000
TREES = "boosted trees"
#: A term: exponents and coefficient.
Term = tuple[Exponents, float]


@dataclass(frozen=True)
class TrainedTable:
    """Rows on both sides of the split, as numbers: all of them, or the sample of a table in parts."""

    X: Floats
    y: Floats
    weight: Floats
    held_X: Floats
    held_y: Floats
    held_weight: Floats

    @classmethod
    def split(cls, X: Floats, y: Floats, held: Any, weight: Floats | None = None) -> TrainedTable:
        """Rows of which some (a mask) are held out."""
        w = np.ones(len(y)) if weight is None else weight
        return cls(X[~held], y[~held], w[~held], X[held], y[held], w[held])


def score(y: Floats, made: Floats, weight: Floats, classes: int = 0) -> dict[str, float | None]:
    """RMSE, MAE and R² of predictions; accuracy, log loss and area under the ROC curve of probabilities.

    R² is None where it is undefined or says nothing, the area where a class has no row.
    """
    if classes:
        auc = None
        if len(np.unique(y)) == classes == made.shape[1]:
            shown = made[:, 1] if classes == 2 else made
            auc = float(roc_auc_score(y, shown, multi_class="ovr", sample_weight=weight))
        right = accuracy_score(y, made.argmax(axis=1), sample_weight=weight)
        loss = log_loss(y, made, labels=range(made.shape[1]), sample_weight=weight)
        return {"accuracy": float(right), "log_loss": float(loss), "auc": auc}
    varies = len(y) >= FEWEST_JUDGED and np.std(y) > _ROUNDING * abs(np.mean(y))
    return {
        "rmse": float(root_mean_squared_error(y, made, sample_weight=weight)),
        "mae": float(mean_absolute_error(y, made, sample_weight=weight)),
        "r2": float(r2_score(y, made, sample_weight=weight)) if varies else None,
    }


def held_out_scores(predict: Callable[[Floats], Floats], rows: TrainedTable, classes: int = 0) -> Scores:
    """Scores on the held-out rows, beside a linear model and the mean (the class shares); ``predict`` gives scores."""
    if classes:
        line = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        line.fit(rows.X, rows.y, logisticregression__sample_weight=rows.weight)
        shares = np.bincount(rows.y.astype(int), rows.weight, classes) / rows.weight.sum()
        made = {
            THIS_FIT: probabilities(predict(rows.held_X)),
            LINEAR: line.predict_proba(rows.held_X),
            MEAN: np.tile(shares, (len(rows.held_y), 1)),
        }
    else:
        mean = np.average(rows.y, weights=rows.weight)
        made = {
            THIS_FIT: predict(rows.held_X)[:, 0],
            LINEAR: LinearRegression().fit(rows.X, rows.y, rows.weight).predict(rows.held_X),
            MEAN: np.full(len(rows.held_y), mean),
        }
    return {name: score(rows.held_y, one, rows.held_weight, classes) for name, one in made.items()}


def linear_is_better(predict: Callable[[Floats], Floats], rows: TrainedTable) -> bool:
    """Whether the fit misses by more than the linear model, beyond twice the standard error of the difference."""
    line = LinearRegression().fit(rows.X, rows.y, rows.weight).predict(rows.held_X)
    miss = predict(rows.held_X)[:, 0] - rows.held_y
    if len(miss) < 2 or np.abs(miss).max() <= _EXACT * np.abs(rows.held_y).max():
        return False
    return beyond_noise(rows.held_weight * (miss**2 - (line - rows.held_y) ** 2), errors=2)


def term_values(exponents: Exponents, X: Floats) -> Floats:
    """A monomial at every row."""
    out = np.ones(len(X))
    for place in np.flatnonzero(exponents):
        out = out * X[:, place] ** int(exponents[place])
    return out


def contributions(terms: Sequence[Term], X: Floats) -> list[tuple[int, float]]:
    """Places of the terms, those whose values vary most first, each with its standard deviation over the rows."""
    sizes = [(k, float(abs(c) * term_values(e, X).std())) for k, (e, c) in enumerate(terms)]
    return sorted(sizes, key=lambda pair: -pair[1])


def shapley_values(terms: Sequence[Term], owners: Sequence[int], background: Floats, X: Floats) -> Floats:
    """Exact Shapley values of the columns at every row: (rows, columns).

    ``owners`` gives the column of each feature; ``background`` are the rows whose means stand for unknown columns.

    Examples
    --------
    >>> background = np.array([[0.0, 0.0], [2.0, 2.0]])  # both means are 1
    >>> shapley_values([((1, 1), 3.0)], (0, 1), background, np.array([[2.0, 5.0]])).tolist()
    [[9.0, 18.0]]
    """
    found = np.zeros((len(X), max(owners) + 1))
    for exponents, c in terms:
        players = sorted({owners[place] for place in np.flatnonzero(exponents).tolist()})
        own = [tuple(e if owners[k] == p else 0 for k, e in enumerate(exponents)) for p in players]
        known = [term_values(e, X) for e in own]
        means = [float(term_values(e, background).mean()) for e in own]
        count = len(players)
        for place, player in enumerate(players):
            others = [k for k in range(count) if k != place]
            share = np.zeros(len(X))
            for size in range(count):
                weight = factorial(size) * factorial(count - 1 - size) / factorial(count)
                for chosen in combinations(others, size):
                    worth = np.full(len(X), weight)
                    for k in others:
                        worth = worth * (known[k] if k in chosen else means[k])
                    share += worth
            found[:, player] += c * share * (known[place] - means[place])
    return found


def fit_report(fit: TableFit) -> dict[str, Any]:
    """Numbers for the report of a fit: they are stored, since the report has no data."""
    rows = fit.rows
    X, y = (rows.held_X, rows.held_y) if len(rows.held_y) else (rows.X, rows.y)
    some = np.unique(np.linspace(0, len(y) - 1, min(len(y), _POINTS)).astype(int))
    predict = fit.estimator.fitted_.predict
    names = [column.name for column in fit.preparation.used]
    owners = fit.preparation.owners
    found: dict[str, Any] = {"points_are_held_out": bool(len(rows.held_y)), "names": names}
    if fit.classes:
        p = probabilities(predict(X))
        found["calibration"] = _calibration(y, p) if len(fit.classes) == 2 else []
        found["confusion"] = confusion_matrix(y, p.argmax(axis=1), labels=range(len(fit.classes))).tolist()
    else:
        found["points"] = [[float(a), float(b)] for a, b in zip(y[some], predict(X[some])[:, 0], strict=True)]
    found["beside"] = _boosted(fit)
    found["importance"] = _importance(fit, X[some], y[some])
    found["effects"] = [_effect(fit, place) for place in _ranked(found["importance"])[:_COLUMNS]]
    written = fit.estimator.written(fit.tolerance, fit.box)[1]
    if isinstance(written, MonomialSum) and len(written.outputs) == 1:
        terms = [(e, float(c)) for e, c in written.outputs[0].items()]
        spread = float(np.std(rows.y)) if not fit.classes else 1.0
        listed = contributions(terms, rows.X)[:_TERMS]
        texts = fit.estimator.term_texts([terms[k][0] for k, _ in listed])
        found["terms"] = [
            [text or "1", terms[k][1], size / spread] for text, (k, size) in zip(texts, listed, strict=True)
        ]
        values = shapley_values(terms, owners, rows.X, X[some])
        found["shapley"] = np.abs(values).mean(axis=0).tolist() + [0.0] * (len(names) - values.shape[1])
    return found


def _ranked(importance: Sequence[float]) -> list[int]:
    return [int(k) for k in np.argsort(importance)[::-1] if importance[int(k)] > 0]


def _loss(fit: TableFit) -> Callable[[Floats, Floats], float]:
    """Mean squared error, or log loss, of the fit at rows."""
    predict = fit.estimator.fitted_.predict
    if fit.classes:
        return lambda X, y: float(log_loss(y, probabilities(predict(X)), labels=range(len(fit.classes))))
    return lambda X, y: float(np.mean((predict(X)[:, 0] - y) ** 2))


def _importance(fit: TableFit, X: Floats, y: Floats) -> list[float]:
    """How much the loss grows when a column is permuted, as a share of the loss without any column; five times each."""
    loss, owners = _loss(fit), np.array(fit.preparation.owners)

    def scorer(_: Any, sources: NDArray[np.intp], y: Floats) -> float:
        return -loss(np.take_along_axis(X, sources[:, owners], axis=0), y)

    sources = np.tile(np.arange(len(X))[:, None], len(fit.preparation.used))  # the row that each column is taken from
    grown = permutation_importance(fit.estimator, sources, y, scoring=scorer, random_state=0).importances_mean
    alone = float(entropy(np.bincount(y.astype(int))) if fit.classes else np.var(y))
    shares: list[float] = (grown / alone if alone > 0 else 0.0 * grown).tolist()
    return shares


def _effect(fit: TableFit, column: int) -> dict[str, Any]:
    """Mean prediction over the training rows (or probability of the last class), for each value of one column."""
    owners, name = np.array(fit.preparation.owners), fit.preparation.used[column]
    mine = np.flatnonzero(owners == column)
    X = fit.rows.X[:: max(1, len(fit.rows.X) // _POINTS)]
    if name.kind == CATEGORY:
        places = dict(zip((level or "empty" for level in name.levels), np.array(name.values), strict=True))
    else:
        low, high = fit.rows.X[:, mine].min(axis=0), fit.rows.X[:, mine].max(axis=0)
        places = {repr(k): low + (high - low) * k / (_PLACES - 1) for k in range(_PLACES)}
    means = []
    for values in places.values():
        changed = X.copy()
        changed[:, mine] = values
        out = fit.estimator.fitted_.predict(changed)
        means.append(float(probabilities(out)[:, -1].mean() if fit.classes else out[:, 0].mean()))
    at: list[Any] = list(places) if name.kind == CATEGORY else [float(v[0]) for v in places.values()]
    return {"column": name.name, "kind": name.kind, "at": at, "mean": means}


def _boosted(fit: TableFit) -> dict[str, Any]:
    """Held-out scores of scikit-learn's boosted trees on the same split."""
    rows = fit.rows
    if not len(rows.held_y) or len(rows.y) > _MOST_ROWS:
        return {}
    with threadpool_limits(1):  # its threads wait for each other on a busy machine
        made = HistGradientBoostingClassifier if fit.classes else HistGradientBoostingRegressor
        trees = made(random_state=0).fit(rows.X, rows.y, rows.weight)
        found = (trees.predict_proba if fit.classes else trees.predict)(rows.held_X)
    return {TREES: score(rows.held_y, found, rows.held_weight, len(fit.classes))}


def _calibration(y: Floats, p: Floats) -> list[list[float]]:
    """Mean probability and share of the second class, in up to ten groups of rows."""
    if len(np.unique(y)) < 2:
        return []
    seen, said = calibration_curve(y, p[:, 1], n_bins=10, strategy="quantile")
    groups: list[list[float]] = np.column_stack([said, seen]).tolist()
    return groups
