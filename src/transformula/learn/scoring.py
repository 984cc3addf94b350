"""A fitted model beside a linear model and the mean, all judged on rows that none of them has seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from transformula.learn.classifier import probabilities
from transformula.learn.distinct_rows import Floats
from transformula.learn.solvers.exact_fit import beyond_noise

THIS_FIT = "this fit"
LINEAR = "linear model"
MEAN = "mean"
#: Fewest rows that R² is computed for.
FEWEST_JUDGED = 5
#: Deviation of equal targets from their computed mean, and error of a fit that is exact up to rounding: shares of them.
_ROUNDING, _EXACT = 1e-14, 1e-9
Scores = dict[str, dict[str, float | None]]


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
