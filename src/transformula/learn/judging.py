"""Scores of a fit whose rows are in parts: one pass, whose state is means and squared deviations of the errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from transformula.learn.distinct_rows import Floats
from transformula.learn.fitted import Fitted
from transformula.learn.scoring import LINEAR, MEAN, THIS_FIT, Scores
from transformula.learn.solvers.exact_fit import ExactFit
from transformula.learn.solvers.features import all_terms, orthonormal_basis
from transformula.learn.solvers.penalty import Penalty
from transformula.learn.states import Moments, Split
from transformula.learn.streaming import Chunk, Gramming, Parts, Streamed, View


@dataclass(frozen=True)
class Judged:
    """Moments on both sides of the split: y, then squared and absolute errors of each model, then a difference.

    The difference is that of the squared errors of the fit and of the linear model.
    """

    training: Moments
    held: Moments

    def __add__(self, other: Judged) -> Judged:
        return Judged(self.training + other.training, self.held + other.held)


@dataclass(frozen=True)
class _Judging:
    """The pass."""

    fitted: Fitted
    linear: Fitted
    mean: float
    split: Split

    def __call__(self, chunks: Iterable[Chunk]) -> Judged | None:
        """Scores of one part."""
        found: Judged | None = None
        for X, Y, _ in chunks:
            held, errors = self.split.held(X, Y), self._errors(X, Y[:, 0])
            one = Judged(Moments.of(errors[~held]), Moments.of(errors[held]))
            found = one if found is None else found + one
        return found

    def _errors(self, X: Floats, y: Floats) -> Floats:
        misses = [self.fitted.predict(X)[:, 0] - y, self.linear.predict(X)[:, 0] - y, self.mean - y]
        squared = [miss**2 for miss in misses]
        return np.column_stack([y, *squared, *map(np.abs, misses), squared[0] - squared[1]])


def judge(parts: Parts, fit: Streamed, split: Split) -> Judged:
    """Score a fit of one output beside a linear model and the mean of the same rows."""
    gram = fit.gram
    assert gram is not None
    if fit.solver == "lowrank":  # its state is of other variables
        X = fit.survey.sample.rows().X[:, fit.fitted.columns]
        work = Gramming(View(fit.fitted.columns, split), all_terms(X.shape[1], 1), orthonormal_basis(X, 1), gram.shift)
        line = parts.total(work)
    else:
        line = gram.lower(1)
    linear = ExactFit(line.terms, line.basis, line.solve(Penalty().of(line.terms)))
    return parts.total(_Judging(fit.fitted, Fitted("exact", linear, fit.fitted.columns), float(gram.mean[0]), split))


def scores_from(moments: Moments) -> Scores:
    """RMSE, MAE and R² of every model, as `scoring.score_all` has them."""
    found: Scores = {}
    for k, name in enumerate((THIS_FIT, LINEAR, MEAN)):
        square = float(moments.mean[1 + k])
        total = float(moments.squares[0])
        r2 = 1.0 - square * moments.weight / total if moments.weight > 1 and total > 0 else None
        found[name] = {"rmse": square**0.5, "mae": float(moments.mean[4 + k]), "r2": r2}
    return found


def linear_is_better(moments: Moments) -> bool:
    """Whether the fit misses by more than the linear model, beyond twice the standard error of the difference."""
    if moments.weight < 2:
        return False
    error = (float(moments.squares[-1]) / (moments.weight - 1) / moments.weight) ** 0.5
    return bool(moments.mean[-1] > 2 * error)
