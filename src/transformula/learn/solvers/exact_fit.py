r"""Least squares in the whole space of polynomials of degree q.

With Phi the (rows x p) matrix of product-orthonormal features (see `features`), the solution of

    min_c  sum_r w_r |y_r - phi(x_r).c|^2 + W sum_alpha penalty_alpha |c_alpha|^2,  W = sum_r w_r

is found from G = Phi' W Phi and Phi' W y, both accumulated over blocks of rows by BLAS `syrk`; Phi
is never stored. Normal equations square the condition number, so (i) the basis is orthonormal for
each feature, which leaves G near the identity for roughly independent features, (ii) G is scaled to
unit diagonal, and (iii) the Cholesky factor only preconditions: `fit_exact` repeats
c += G^{-1} Phi' W (y - Phi c) with residuals taken from the data, which restores the accuracy of a
QR factorisation as long as cond(Phi)^2 < 1e15. Where G is singular (collinear features, fewer
rows than terms) an eigenvalue decomposition gives the solution of least norm. The constant is not
penalised; `penalty` chooses the rest by leave-one-out, and a polynomial that is not clearly better than
a linear model by that measure gives way to it. The equations are a `gram.Gram`, which adds up over
parts of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import eigh

from transformula.learn.solvers.features import (
    Basis,
    Floats,
    Terms,
    all_terms,
    blocks,
    evaluate_terms,
    orthonormal_basis,
)
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.penalty import (
    Choice,
    Penalty,
    Table,
    clearly_better,
    leave_one_out,
    leave_one_out_of_few,
)


@dataclass(frozen=True)
class ExactFit:
    """A fitted polynomial in its basis form; `features.to_monomials` gives the monomials."""

    terms: Terms
    basis: Basis
    coefficients: Floats  # (p, outputs)
    penalty: Penalty = field(default_factory=Penalty)

    def predict(self, X: Floats) -> Floats:
        """Evaluate the polynomial: (rows, outputs)."""
        return predict_exact(self.terms, self.basis, self.coefficients, X)


def fit_exact(
    X: Floats,
    Y: Floats,
    degree: int,
    *,
    ridge: float | None = None,
    weight: Floats | None = None,
    refinements: int = 1,
) -> ExactFit:
    """Least squares over all polynomials of degree at most `degree`; the terms may be those of a linear model alone.

    Parameters
    ----------
    X, Y : (rows, d) inputs and (rows, outputs) targets.
    ridge : penalty on squared orthonormal coefficients, relative to the total weight; None chooses one by
        leave-one-out.
    weight : (rows,) non-negative sample weights.
    refinements : passes of iterative refinement on the data.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> fit = fit_exact(X, X[:, :1] ** 2 * X[:, 1:], degree=3)
    >>> bool(abs(fit.predict(np.array([[2.0, 3.0]]))[0, 0] - 12) < 1e-10)
    True
    >>> fit.penalty.ridge
    0.0
    """
    w = np.ones(len(X)) if weight is None else weight
    rows = X[w > 0], Y[w > 0], w[w > 0]
    given = None if ridge is None else Choice(Penalty(ridge), np.empty(0))
    fit, losses = _judged(*rows, degree, given, refinements)
    if degree > 1 and len(losses) == len(rows[0]):  # all rows have judged
        line, of_line = judged_line(*rows)
        return fit if clearly_better(losses, of_line, errors=2) else line
    return fit


def judged_line(X: Floats, Y: Floats, weight: Floats) -> tuple[ExactFit, Floats]:
    """A linear model, and what leave-one-out loses with it at each row, in variances of the targets."""
    return _judged(X, Y, weight, 1, None, 1)


def _judged(
    X: Floats, Y: Floats, w: Floats, degree: int, given: Choice | None, refinements: int
) -> tuple[ExactFit, Floats]:
    """A fit, and what leave-one-out loses at the rows that chose its penalty; none have if it is given."""
    terms = all_terms(X.shape[1], degree)
    table = Table(terms, orthonormal_basis(X, degree, w), X, Y, w)
    if len(X) < len(terms):
        choice = given or leave_one_out_of_few(table)
        coefficients = _dual_solution(table, choice.penalty)
        return ExactFit(terms, table.basis, coefficients, choice.penalty), choice.losses
    gram = Gram(terms, table.basis, table.offset()).add(X, Y, w)
    choice = given or leave_one_out(gram, table)
    penalties = choice.penalty.of(terms)
    solve = gram.solver(penalties)
    coefficients = gram.with_shift(solve(gram.right))
    amounts = gram.total * penalties[:, None]
    del gram  # as large as its factor
    for _ in range(refinements):
        coefficients = refined(solve, amounts, coefficients, residual_correlation(table, coefficients))
    return ExactFit(terms, table.basis, coefficients, choice.penalty), choice.losses


def predict_exact(terms: Terms, basis: Basis, coefficients: Floats, X: Floats) -> Floats:
    """Evaluate a polynomial given in basis form, in blocks of rows: (rows, outputs)."""
    out = np.empty((len(X), coefficients.shape[1]))
    for rows in blocks(len(X), len(terms)):
        out[rows] = evaluate_terms(terms, basis, X[rows]).T @ coefficients
    return out


def residual_correlation(table: Table, coefficients: Floats) -> Floats:
    """Phi' W (Y - Phi c), one pass over the data."""
    out = np.zeros_like(coefficients)
    for rows in blocks(len(table.X), len(table.terms)):
        phi = evaluate_terms(table.terms, table.basis, table.X[rows])
        out += phi @ ((table.Y[rows] - phi.T @ coefficients) * table.weight[rows, None])
    return out


def refined(solve: Callable[[Floats], Floats], amounts: Floats, coefficients: Floats, correlation: Floats) -> Floats:
    """One step of iterative refinement: ``amounts`` are the penalties, ``correlation`` is of these coefficients."""
    return np.asarray(coefficients + solve(correlation - amounts * coefficients))


def _dual_solution(table: Table, penalty: Penalty) -> Floats:
    """Least-norm (or ridge) coefficients for fewer rows than terms, from a (rows x rows) matrix."""
    w, mean, scales = table.weight, table.offset(), penalty.scales(table.terms)
    root = np.sqrt(w)
    phi = evaluate_terms(table.terms, table.basis, table.X)[1:]  # small: fewer rows than terms
    center = phi @ w / w.sum()
    phi = (phi - center[:, None]) * root / scales[:, None]
    values, vectors = eigh(phi.T @ phi)
    keep_values = values > values[-1] * len(values) * np.finfo(float).eps * 10
    values, vectors = values[keep_values] + penalty.ridge * w.sum(), vectors[:, keep_values]
    dual = vectors @ ((vectors.T @ ((table.Y - mean) * root[:, None])) / values[:, None])
    slopes = (phi @ dual) / scales[:, None]
    return np.vstack([mean - center @ slopes, slopes])
