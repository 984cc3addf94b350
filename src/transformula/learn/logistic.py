r"""Multinomial logistic regression on polynomial features, by L-BFGS.

Minimises, over coefficients C (p × classes) in an orthonormal basis,

    (1/W) Σ_r w_r [log Σ_c exp(φ_r·C_c) − φ_r·C_{y_r}] + (penalty/2) |C without its constant|²,

which is convex. The features come from the same bases as the regression solvers: all monomials
(`exact`), those a sparse fit to the class indicators selects (`sparse`), or all products of the
directions a low-rank fit to the indicators finds (`lowrank`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.fitted import Solution
from transformula.learn.solver_choice import Settings
from transformula.learn.solvers.exact_fit import ExactFit
from transformula.learn.solvers.features import (
    all_terms,
    count_terms,
    evaluate_some,
    evaluate_terms,
    orthonormal_basis,
    power_basis,
)
from transformula.learn.solvers.lowrank_fit import LowRankFit, fit_lowrank
from transformula.learn.solvers.sparse_fit import SparseFit, fit_sparse
from transformula.learn.solvers.subspace import evaluate_hermite

#: Numbers in the stored feature matrix: 1.6 GB.
MOST_FEATURES = 200_000_000
#: Above this many terms `auto` looks for directions first.
MOST_EXACT_TERMS = 3_000
_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class _Design:
    """Features (rows, p), constant first, and what turns coefficients into a polynomial."""

    phi: Floats
    template: Solution

    def finish(self, C: Floats) -> Solution:
        """The polynomial with these coefficients (p, classes)."""
        found = self.template
        if isinstance(found, ExactFit):
            return ExactFit(found.terms, found.basis, C)
        if isinstance(found, LowRankFit):
            return LowRankFit(found.center, found.directions, found.terms, C, found.history)
        assert isinstance(found, SparseFit)
        k = C.shape[1]
        return SparseFit(found.basis * k, found.exponents * k, tuple(C.T.copy()), (0.0,) * k)


def fit_logistic(solver: str, rows: Rows, classes: int, settings: Settings) -> Solution:
    """Fit the scores of ``classes`` classes; the one column of Y holds labels 0..classes−1."""
    labels = rows.Y[:, 0].astype(int)
    design = _design(solver, rows, np.eye(classes)[labels], settings)
    penalty = settings.ridge
    if penalty is None:
        penalty = _choose_penalty(design.phi, labels, rows.weight, classes, settings.seed)
    return design.finish(_minimise(design.phi, labels, rows.weight, classes, penalty)[0])


def choose_design(rows: Rows, degree: int) -> str:
    """All monomials where they are few, otherwise directions."""
    return "exact" if count_terms(rows.X.shape[1], degree) <= MOST_EXACT_TERMS else "lowrank"


def _design(solver: str, rows: Rows, indicators: Floats, settings: Settings) -> _Design:
    X, w, degree = rows.X, rows.weight, settings.degree
    count = count_terms(X.shape[1], degree)
    if solver == "exact":
        if count * len(X) > MOST_FEATURES:
            raise ValueError(
                f"{len(X)} rows of {count} monomials are too many for solver='exact': use solver='lowrank'"
            )
        terms, basis = all_terms(X.shape[1], degree), orthonormal_basis(X, degree, w)
        empty = ExactFit(terms, basis, np.zeros((len(terms), 1)))
        return _Design(np.ascontiguousarray(evaluate_terms(terms, basis, X).T), empty)
    if solver == "lowrank":
        found = fit_lowrank(X, indicators, degree, rank=settings.rank, weight=w, seed=settings.seed)
        phi = evaluate_hermite(found.terms, (X - found.center) @ found.directions.T)
        return _Design(np.ascontiguousarray(phi.T), found)
    chosen = fit_sparse(
        X,
        indicators,
        degree,
        weight=w,
        criterion=settings.criterion,
        max_terms=settings.max_terms,
        center="mean",
        seed=settings.seed,
    )
    exponents = np.unique(np.vstack(chosen.exponents), axis=0)  # the constant sorts first
    shift = np.average(X, axis=0, weights=w)
    scale = 1.0 / np.sqrt(np.average((X - shift) ** 2, axis=0, weights=w))
    basis = power_basis(shift, scale, degree)
    one = SparseFit((basis,), (exponents,), (np.zeros(len(exponents)),), (0.0,))
    return _Design(np.ascontiguousarray(evaluate_some(exponents, basis, X)), one)


def _minimise(
    phi: Floats,
    labels: np.ndarray,
    weight: Floats,
    classes: int,
    penalty: float,  # type: ignore[type-arg]
) -> tuple[Floats, float]:
    share = weight / weight.sum()
    rows = np.arange(len(labels))

    def value(flat: Floats) -> tuple[float, Floats]:
        C = flat.reshape(phi.shape[1], classes)
        scores = phi @ C
        norm = logsumexp(scores, axis=1)
        loss = float(share @ (norm - scores[rows, labels])) + 0.5 * penalty * float(np.sum(C[1:] ** 2))
        slope = np.exp(scores - norm[:, None])
        slope[rows, labels] -= 1.0
        gradient = phi.T @ (slope * share[:, None])
        gradient[1:] += penalty * C[1:]
        return loss, gradient.ravel()

    start = np.zeros((phi.shape[1], classes))
    start[0] = np.log(np.bincount(labels, weights=share, minlength=classes) + 1e-12)
    start[0] -= start[0].mean()
    done = minimize(
        value,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "gtol": 1e-7, "ftol": 1e-13},
    )
    return done.x.reshape(start.shape), float(done.fun)


def _choose_penalty(
    phi: Floats,
    labels: np.ndarray,
    weight: Floats,
    classes: int,
    seed: int,  # type: ignore[type-arg]
) -> float:
    """The penalty with the least held-out cross-entropy on a fifth of the rows."""
    if len(phi) < 10:
        return _PENALTIES[-1]
    held = np.random.default_rng(seed).permutation(len(phi)) % 5 == 0
    best, chosen = np.inf, _PENALTIES[-1]
    for penalty in reversed(_PENALTIES):
        C, _ = _minimise(phi[~held], labels[~held], weight[~held], classes, penalty)
        scores = phi[held] @ C
        picked = scores[np.arange(len(scores)), labels[held]]
        loss = float(weight[held] @ (logsumexp(scores, axis=1) - picked))
        if loss >= best:
            break
        best, chosen = loss, penalty
    return chosen
