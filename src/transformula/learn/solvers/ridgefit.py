"""Fang's model from data: a low-rank fit written and trained as a sum of ridge functions."""

from __future__ import annotations

import numpy as np

from transformula.learn.solvers.features import Floats
from transformula.learn.solvers.gaussnewton import Problem, gauss_newton
from transformula.learn.solvers.lowrank_fit import MOST_ENTRIES, LowRankFit, few_threads, whitening
from transformula.learn.solvers.ridge_forms import RidgeForm, find_ridges, hermite_ridges, spanning_ridges
from transformula.learn.solvers.subspace import ridge_terms


def fit_ridges(fit: LowRankFit, X: Floats, Y: Floats, *, weight: Floats | None = None, seed: int = 0) -> RidgeForm:
    """Write a low-rank fit as a sum of ridge functions, few of them where few suffice.

    A short sum is looked for in the fitted polynomial, to within the fit's own statistical error,
    and then trained on the data; it is kept if it explains them as well as the polynomial of all
    products does. Otherwise C(r - 1 + q, q) directions express that polynomial exactly.
    """
    rng = np.random.default_rng(seed)
    w = np.ones(len(X)) if weight is None else weight * (np.count_nonzero(weight) / weight.sum())
    r, degree, n = len(fit.directions), fit.terms.degree, max(1, np.count_nonzero(w))
    spread = np.sum(np.average((Y - np.average(Y, axis=0, weights=w)) ** 2, axis=0, weights=w))
    loss = float(np.sum(np.average((Y - fit.predict(X)) ** 2, axis=0, weights=w)))
    share = (len(fit.terms) * Y.shape[1] + r * X.shape[1]) / n
    if r == 0 or spread == 0.0:
        empty = np.zeros((0, degree, Y.shape[1]))
        return RidgeForm(np.zeros((0, X.shape[1])), empty, fit.coefficients[0], fit.center)
    tolerance = max(1e-8, 0.5 * share * loss / spread)
    with few_threads(X.size):
        found = find_ridges(fit.terms, fit.coefficients, rng, tolerance=tolerance)
    if found is not None:
        form, new_loss = _train_ridges(fit, found.W, X, Y, w)
        if new_loss <= loss * (1.0 + share) + 1e-12 * spread:
            return form
    return spanning_ridges(fit.terms, fit.coefficients, rng).compose(fit.directions, fit.center)


def _train_ridges(fit: LowRankFit, start: Floats, X: Floats, Y: Floats, w: Floats) -> tuple[RidgeForm, float]:
    """Train ridge directions on the data, from directions among the forms of the fit."""
    degree = fit.terms.degree
    center, whiten = whitening(X, w)
    Z = (X - center) @ whiten
    offset = np.average(Y, axis=0, weights=w)
    scale = float(np.sqrt(np.sum(np.average((Y - offset) ** 2, axis=0, weights=w))))
    W = start @ fit.directions @ np.linalg.pinv(whiten).T
    terms = ridge_terms(len(W), degree)
    rows = min(len(Z), MOST_ENTRIES // len(terms))
    problem = Problem(Z[:rows], (Y[:rows] - offset) / scale, np.sqrt(w[:rows]), 1e-8)
    state = gauss_newton(problem, terms, W, orthonormal=False)
    C = state.C * scale
    C[0] += offset
    form = hermite_ridges(state.W, C, degree).compose(whiten.T, center)
    miss = Y - form.predict(X)
    return form, float(np.sum(np.average(miss**2, axis=0, weights=w)))
