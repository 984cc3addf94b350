"""A fitted model beside a linear model and the mean, all judged on rows that none of them has seen.

The scores follow from means and squared deviations of the errors, so that rows in parts take one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from transformula.learn.classifier import probabilities
from transformula.learn.distinct_rows import Floats
from transformula.learn.solver_choice import Fitted
from transformula.learn.solvers.exact_fit import ExactFit, Penalty
from transformula.learn.solvers.features import all_terms, orthonormal_basis
from transformula.learn.states import HeldOut, Moments
from transformula.learn.streaming import Chunk, Parts, Streamed, View, gram_pass, total_of

THIS_FIT = "this fit"
LINEAR = "linear model"
MEAN = "mean"
#: Deviation of equal targets from their computed mean, as a share of it.
_ROUNDING = 1e-14
#: Mean squared error of a fit that is exact up to rounding, as a share of the targets' mean square.
_EXACT = 1e-18
Scores = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Judged:
    """Moments on both sides of the split, of the columns of `_errors`."""

    training: Moments
    held: Moments

    def __add__(self, other: Judged) -> Judged:
        return Judged(self.training + other.training, self.held + other.held)


def _errors(y: Floats, fitted: Floats, linear: Floats, mean: float) -> Floats:
    """y, then squared and absolute errors of each model, then the squared errors of the fit less the linear model's."""
    misses = [fitted - y, linear - y, mean - y]
    squared = [miss**2 for miss in misses]
    return np.column_stack([y, *squared, *map(np.abs, misses), squared[0] - squared[1]])


def judge_rows(fitted: Fitted, train: tuple[Floats, Floats], held: tuple[Floats, Floats]) -> Judged:
    """Score a fit of one output beside a linear model and the mean of the same training rows (X, y)."""
    linear, mean = LinearRegression().fit(*train), float(np.mean(train[1]))

    def moments(X: Floats, y: Floats) -> Moments:
        line = linear.predict(X) if len(X) else y
        return Moments.of(_errors(y, fitted.predict(X)[:, 0], line, mean))

    return Judged(moments(*train), moments(*held))


def class_scores(predict: Callable[[Floats], Floats], rows: Any) -> Scores:
    """Accuracy, log loss and area under the ROC curve on held-out rows, beside a linear model and the class shares.

    ``predict`` gives scores, ``rows`` has X, y, held_X and held_y with labels 0, 1, ...
    """
    count = int(max(rows.y.max(), rows.held_y.max())) + 1
    line = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(rows.X, rows.y)
    shares = np.bincount(rows.y.astype(int), minlength=count) / len(rows.y)
    found = {
        THIS_FIT: probabilities(predict(rows.held_X)),
        LINEAR: line.predict_proba(rows.held_X),
        MEAN: np.tile(shares, (len(rows.held_y), 1)),
    }
    return {name: class_score(rows.held_y, p, count) for name, p in found.items()}


def class_score(y: Floats, p: Floats, count: int) -> dict[str, float | None]:
    """Accuracy, log loss and area under the ROC curve of probabilities; the last is None where a class has no row."""
    several = len(np.unique(y)) == count
    auc = roc_auc_score(y, p[:, 1] if count == 2 else p, multi_class="ovr") if several and p.shape[1] == count else None
    return {
        "accuracy": float(np.mean(p.argmax(axis=1) == y)),
        "log_loss": float(log_loss(y, p, labels=range(p.shape[1]))),
        "auc": auc,
    }


def judge(parts: Parts, fit: Streamed, split: HeldOut) -> Judged:
    """Score a fit of one output to a table in parts."""
    fitted, mean = fit.fitted, fit.survey.targets.mean
    if fit.gram is None:
        X = fit.survey.sample.rows().X[:, fitted.columns]
        view = View(fitted.columns, split)
        line = parts.total(partial(gram_pass, view, all_terms(X.shape[1], 1), orthonormal_basis(X, 1), mean))
    else:
        line = fit.gram.lower(1)
    linear = Fitted("exact", ExactFit(line.terms, line.basis, line.solve(Penalty().of(line.terms))), fitted.columns)
    return parts.total(partial(_judging_pass, fitted, linear, float(mean[0]), split))


def _judging_pass(
    fitted: Fitted, linear: Fitted, mean: float, split: HeldOut, chunks: Iterable[Chunk]
) -> Judged | None:
    """Scores of one part."""

    def judged(X: Floats, Y: Floats) -> Judged:
        errors = _errors(Y[:, 0], fitted.predict(X)[:, 0], linear.predict(X)[:, 0], mean)
        held = split.held(X, Y)
        return Judged(Moments.of(errors[~held]), Moments.of(errors[held]))

    return total_of(judged(X, Y) for X, Y, _ in chunks)


def scores_from(moments: Moments) -> Scores:
    """RMSE, MAE and R² of every model; R² is None where it is undefined: one row, or rows with one value."""
    found: Scores = {}
    total = float(moments.squares[0])
    rounding = moments.weight * float(_ROUNDING * moments.mean[0]) ** 2
    for k, name in enumerate((THIS_FIT, LINEAR, MEAN)):
        square = float(moments.mean[1 + k])
        r2 = 1.0 - square * moments.weight / total if moments.weight > 1 and total > rounding else None
        found[name] = {"rmse": square**0.5, "mae": float(moments.mean[4 + k]), "r2": r2}
    return found


def linear_is_better(moments: Moments) -> bool:
    """Whether the fit misses by more than the linear model, beyond twice the standard error of the difference."""
    size = moments.squares[0] / moments.weight + moments.mean[0] ** 2 if moments.weight else 0.0
    if moments.weight < 2 or moments.mean[1] <= _EXACT * size:
        return False
    error = (float(moments.squares[-1]) / (moments.weight - 1) / moments.weight) ** 0.5
    return bool(moments.mean[-1] > 2 * error)
