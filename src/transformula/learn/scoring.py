"""A fitted model beside a linear model and the mean, all judged on rows that none of them has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from transformula.learn.distinct_rows import Floats

THIS_FIT, LINEAR, MEAN = "this fit", "linear model", "mean"
Scores = dict[str, dict[str, float | None]]


def scores_of(y: Floats, prediction: Floats) -> dict[str, float | None]:
    """RMSE, MAE and R²; R² is None where it is undefined: one row, or rows with one value.

    Examples
    --------
    >>> scores_of(np.array([1.0, 3.0]), np.array([1.0, 2.0]))["r2"]
    0.5
    """
    defined = len(y) > 1 and bool(np.ptp(y) > 0)
    return {
        "rmse": float(root_mean_squared_error(y, prediction)),
        "mae": float(mean_absolute_error(y, prediction)),
        "r2": float(r2_score(y, prediction)) if defined else None,
    }


def predictions(fitted: Floats, train: tuple[Floats, Floats], X: Floats) -> dict[str, Floats]:
    """What the fit, a linear model and the mean of the same training rows predict."""
    return {
        THIS_FIT: fitted,
        LINEAR: LinearRegression().fit(*train).predict(X),
        MEAN: np.full(len(X), np.mean(train[1])),
    }


def score_all(y: Floats, predicted: dict[str, Floats]) -> Scores:
    """The scores of every prediction."""
    return {name: scores_of(y, values) for name, values in predicted.items()}


def clearly_worse(y: Floats, one: Floats, other: Floats) -> bool:
    """Whether one prediction misses by more than another, beyond twice the standard error of the difference."""
    if len(y) < 2:
        return False
    difference: Any = (one - y) ** 2 - (other - y) ** 2
    return bool(difference.mean() > 2 * difference.std(ddof=1) / len(y) ** 0.5)
