r"""Polynomials of many variables that depend on few directions.

    y = P(xi_1.x, ..., xi_r.x) + noise,      P of degree q,  r << d,

is learned where the C(d + q, q) monomials cannot even be stored. A sum of r ridge functions, a
sum of products of linear forms and a third-order factorisation machine are all of this form.

1. *Whiten* the inputs.
2. *Grow.* The moment of the residuals (`directions.gradient_moment`) proposes directions, as many
   as stand above its noise; Gauss-Newton (`directions.gauss_newton`) fits all directions together; repeat while
   the error on held-out rows falls. Each round sees less noise, since the explained part is removed.
   Where the moment proposes nothing useful, random directions are tried.
3. *Prune.* The directions least used by the fitted gradient leave while the held-out error allows.
4. *Regularise* by the held-out error, and *refit* everything on all rows.

Fitting any polynomial of the directions, instead of a sum of ridge functions at once, is what
removes the local minima: the row space is all that is searched for, and the rest is linear.

Statistical limit: about noise^2 * (C(r + q, q) + r (d - r)) / n, once n is large enough to see
the directions at all (of the order of d^1.5 for a purely cubic target, d for a linear or quadratic
part).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import ThreadpoolController

from transformula.learn.distinct_rows import Rows
from transformula.learn.solvers.directions import (
    Derivative,
    DirectionFit,
    WhitenedRows,
    gauss_newton,
    gradient_moment,
    hermite_basis,
    leading_directions,
    predict_directions,
    solve_linear,
)
from transformula.learn.solvers.features import Floats, Terms, all_terms, count_terms
from transformula.learn.solvers.polynomial_fit import LinearForms, PolynomialFit

#: Numbers in a feature matrix: 256 MiB.
_MOST_ENTRIES = 2**25
#: Fewest rows for which more than the mean is fitted.
_FEWEST_ROWS = 5
#: Share of the rows held out while choosing.
_HELD_OUT = 0.2
#: Penalties while directions are added: the first for large data, all for small data.
_GROWTH_RIDGES = (1e-6, 1e-2, 1e-1)
#: Penalties on the coefficients of the directions found.
_RIDGES = (1e-10, 1e-6, 1e-4, 1e-2, 3e-2, 1e-1, 1.0)
#: A penalty moves standardised targets by about its own size: mean squared errors below this multiple of its square
#: say nothing about the directions.
_BIAS = 10.0
#: Numbers in a table below which one thread is faster.
_ONE_THREAD = 2_000_000


def few_threads(entries: int) -> AbstractContextManager[object]:
    """One BLAS thread for small data: on a busy machine two wait for each other far longer."""
    return _pools().limit(limits=1) if entries < _ONE_THREAD else nullcontext()


@lru_cache(maxsize=1)
def _pools() -> ThreadpoolController:
    """The thread pools of this process: looking for them takes longer than a small fit."""
    return ThreadpoolController()


def fit_lowrank(
    rows: Rows, degree: int, *, rank: int | None = None, ridge: float | None = None, seed: int = 0
) -> PolynomialFit:
    """Learn a polynomial of few linear forms; outputs share their directions.

    Parameters
    ----------
    rank : the number of directions; chosen by the held-out error where None.
    ridge : penalty on squared Hermite coefficients of the standardised targets (default: held out).
    seed : for the held-out rows and random directions.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(2000, 20))
    >>> w = np.ones(20) / 20**0.5
    >>> fit = fit_lowrank(Rows.of(X, (X @ w)[:, None] ** 3), degree=3)
    >>> fit.forms.directions.shape
    (1, 20)
    """
    with few_threads(rows.X.size):
        rng = np.random.default_rng(seed)
        rows = Rows(rows.X, rows.Y, rows.unit_weight).take(rng.permutation(len(rows)))
        center, whiten = whitening(rows.X, rows.weight)
        offset = np.average(rows.Y, axis=0, weights=rows.weight)
        spread = np.sqrt(np.average((rows.Y - offset) ** 2, axis=0, weights=rows.weight))
        scale = np.where(spread > 0, spread, 1.0) * np.sqrt(rows.Y.shape[1])
        if len(rows) < _FEWEST_ROWS or whiten.shape[1] == 0 or not spread.any():
            return PolynomialFit.constant(offset, degree, LinearForms(center, np.zeros((0, len(center)))))
        root = np.sqrt(rows.weight)
        whole = WhitenedRows((rows.X - center) @ whiten, (rows.Y - offset) / scale, root, 0.0)
        start, penalty = _search(whole, degree, rank, ridge, rng)
        terms = all_terms(len(start), degree)
        fit = gauss_newton(replace(whole.first(_MOST_ENTRIES // len(terms)), ridge=penalty), terms, start)
        coefficients = fit.C * scale
        coefficients[0] += offset
        forms = LinearForms(center, fit.W @ whiten.T)
        return PolynomialFit(terms, hermite_basis(len(fit.W), degree), coefficients, forms=forms)


def _search(
    whole: WhitenedRows, degree: int, rank: int | None, ridge: float | None, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Directions and a penalty with the least held-out error."""
    held = min(max(1, int(_HELD_OUT * len(whole.Z))), len(whole.Z) - 1)
    penalties = (ridge,) if ridge is not None else _GROWTH_RIDGES[: 3 if len(whole.Z) < 5000 else 1]
    best, least = None, np.inf
    for penalty in penalties:
        split = _Holdout(replace(whole, ridge=penalty), held)
        limit = split.rank_limit(degree, rank)
        error, fit = _grow(split, degree, limit, rank, rng)
        if rank is None:
            error, fit = _prune(split, degree, error, fit)
        if best is None or error < least:
            best, least = (split, fit), error
    assert best is not None
    split, fit = best
    return fit.W, split.choose_ridge(all_terms(len(fit.W), degree), fit.W) if ridge is None else ridge


@dataclass(frozen=True)
class _Holdout:
    """Rows, of which the first ``held`` judge and the others are trained on."""

    rows: WhitenedRows
    held: int

    @property
    def training(self) -> WhitenedRows:
        """The rows to train on."""
        rows, some = self.rows, slice(self.held, None)
        return replace(rows, Z=rows.Z[some], Y=rows.Y[some], root=rows.root[some])

    def error(self, terms: Terms, fit: DirectionFit) -> float:
        """The mean squared error on the held-out rows, in variances of the targets."""
        judges = self.rows.first(self.held)
        miss = judges.Y - predict_directions(terms, fit.W, fit.C, judges.Z)
        return float(np.average(np.sum(miss**2, axis=1), weights=judges.root**2))

    @property
    def bias(self) -> float:
        """The mean squared error that the penalty alone explains."""
        return _BIAS * self.rows.ridge**2

    def rank_limit(self, degree: int, asked: int | None) -> int:
        """The most directions whose polynomial fits the rows and the memory."""
        rows, d = len(self.rows.Z) - self.held, int(self.rows.Z.shape[1])
        if asked is not None:
            return min(asked, d)
        limit = 1
        while limit < d and count_terms(limit + 1, degree) <= min(rows // 3, 2000) and (limit + 1) * d <= rows // 2:
            limit += 1
        return limit

    def fit(self, degree: int, W: Floats, max_steps: int) -> tuple[float, DirectionFit]:
        """Fit from the given directions on as many training rows as memory allows; judge it."""
        terms = all_terms(len(W), degree)
        part = self.training.first(_MOST_ENTRIES // len(terms))
        fit = gauss_newton(part, terms, W, max_steps=max_steps, tolerance=0.02)
        return self.error(terms, fit), fit

    def choose_ridge(self, terms: Terms, W: Floats) -> float:
        """The penalty with the least held-out error for the directions found."""
        part = self.training.first(_MOST_ENTRIES // len(terms))
        errors = [self.error(terms, solve_linear(replace(part, ridge=ridge), terms, W)) for ridge in _RIDGES]
        return _RIDGES[int(np.argmin(errors))]


def whitening(X: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Find the centre and the (d, d') map to uncorrelated coordinates of about unit variance.

    Directions without variance are left out; very small variances are not blown up to one.
    """
    center = np.average(X, axis=0, weights=weight)
    centered = X - center
    spread = np.sqrt(np.average(centered**2, axis=0, weights=weight))
    constant = spread <= 1e-12 * np.maximum(np.abs(center), 1e-300)
    inverse = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, spread))
    centered *= inverse
    values, vectors = eigh((centered.T * weight) @ centered / weight.sum())
    keep = values > 1e-9 * max(values[-1], 1e-300)
    values, vectors = values[keep], vectors[:, keep]
    floor = values.sum() / len(X)
    return center, inverse[:, None] * vectors / np.sqrt(values + floor)


def _grow(
    split: _Holdout, degree: int, limit: int, rank: int | None, rng: np.random.Generator
) -> tuple[float, DirectionFit]:
    """Add directions while the held-out error falls (or up to the given rank)."""
    rows = split.training
    d = rows.Z.shape[1]
    error, fit = split.fit(degree, np.zeros((0, d)), 0)
    while len(fit.W) < limit and (error > split.bias or rank is not None):
        residual = rows.Y - predict_directions(all_terms(len(fit.W), degree), fit.W, fit.C, rows.Z)
        moment = gradient_moment(rows.Z, residual * rows.root[:, None])
        proposals, significant = leading_directions(moment, fit.W)
        room = limit - len(fit.W)
        counts = sorted({min(max(1, c), room) for c in (significant, 1)}, reverse=True)
        starts = [proposals[:c] for c in counts]
        if significant <= 1:
            starts.append(rng.normal(size=(min(2, room), d)))
        best = np.inf
        for start in starts:
            trial = split.fit(degree, np.vstack([fit.W, start]), 8)
            if trial[0] < best:
                best, new = trial
            if best < 0.5 * error or rank is not None:
                break
        if best > 0.99 * error and rank is None:
            break
        error, fit = best, new
    return error, fit


def _prune(split: _Holdout, degree: int, error: float, fit: DirectionFit) -> tuple[float, DirectionFit]:
    """Drop the directions that the fitted gradient uses least, while the held-out error allows."""
    last = error
    while len(fit.W) > 1:
        terms = all_terms(len(fit.W), degree)
        slopes = Derivative(terms)(fit.C).reshape(len(terms), -1)
        gradient = (fit.phi.T @ slopes).reshape(-1, len(fit.W))
        axes = eigh(gradient.T @ gradient)[1][:, 1:]
        new_error, new = split.fit(degree, axes.T @ fit.W, 5)
        if new_error > max(1.005 * error, split.bias):
            break
        error, last = min(error, new_error), new_error
        fit = new
    return last, fit
