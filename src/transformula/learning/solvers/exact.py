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
penalised; `penalty` chooses the rest by leave-one-out.

`Gram` objects add up: batches of a stream, or shards on several machines, share a `Basis` fixed on
the first batch and are merged by addition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpocon

from transformula.learning.solvers.features import (
    Basis,
    Floats,
    Terms,
    all_terms,
    blocks,
    evaluate_terms,
    orthonormal_basis,
)
from transformula.learning.solvers.penalty import Penalty, Table, leave_one_out

_SINGULAR = 1e-13  # reciprocal condition of the scaled G below which Cholesky is not trusted


@dataclass
class Gram:
    """Normal equations that grow with the data.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> gram = Gram(all_terms(2, 2), orthonormal_basis(X, 2), n_outputs=1)
    >>> gram.add(X, X[:, :1] * X[:, 1:]).total
    50.0
    """

    terms: Terms
    basis: Basis
    n_outputs: int
    matrix: Floats = field(init=False)  # (p, p), upper triangle, Fortran order
    right: Floats = field(init=False)  # (p, outputs)
    total: float = field(init=False, default=0.0)  # the sum of the weights
    rows: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.matrix = np.zeros((len(self.terms), len(self.terms)), order="F")
        self.right = np.zeros((len(self.terms), self.n_outputs))

    def add(self, X: Floats, Y: Floats, weight: Floats | None = None) -> Gram:
        """Add a batch of rows."""
        for rows in blocks(len(X), len(self.terms)):
            phi = evaluate_terms(self.terms, self.basis, X[rows])
            target = Y[rows]
            if weight is not None:
                root = np.sqrt(weight[rows])
                phi *= root
                target = target * root[:, None]
            self.matrix = dsyrk(1.0, phi.T, beta=1.0, c=self.matrix, trans=1, overwrite_c=1)
            self.right += phi @ target
        self.total += float(len(X) if weight is None else weight.sum())
        self.rows += len(X)
        return self

    def merge(self, other: Gram) -> Gram:
        """Add another accumulator made with the same terms and basis."""
        self.matrix += other.matrix
        self.right += other.right
        self.total += other.total
        self.rows += other.rows
        return self

    def solver(self, penalty: Penalty) -> Callable[[Floats], Floats]:
        """Factor the equations once; returns the map from right-hand sides to coefficients."""
        amounts = self.total * penalty.of(self.terms)
        return _symmetric_solver(self.matrix, amounts, may_be_singular=self.rows < len(self.terms))

    def solve(self, penalty: Penalty) -> Floats:
        """Coefficients (p, outputs) in the basis, without a further pass over the data."""
        return self.solver(penalty)(self.right)


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
    """Least squares over all polynomials of degree at most `degree`.

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
    X, Y, w = X[w > 0], Y[w > 0], w[w > 0]
    terms = all_terms(X.shape[1], degree)
    table = Table(terms, orthonormal_basis(X, degree, w), X, Y, w)
    given = None if ridge is None else Penalty(ridge)
    if len(X) < len(terms):
        penalty = given or leave_one_out(table, None)
        return ExactFit(terms, table.basis, _dual_solution(table, penalty), penalty)
    gram = Gram(terms, table.basis, Y.shape[1]).add(X, Y, w)
    penalty = given or leave_one_out(table, (gram.matrix, gram.right))
    solve = gram.solver(penalty)
    coefficients = solve(gram.right)
    amounts = gram.total * penalty.of(terms)[:, None]
    del gram
    for _ in range(refinements):
        gradient = _residual_correlation(table, coefficients) - amounts * coefficients
        coefficients = coefficients + solve(gradient)
    return ExactFit(terms, table.basis, coefficients, penalty)


def predict_exact(terms: Terms, basis: Basis, coefficients: Floats, X: Floats) -> Floats:
    """Evaluate a polynomial given in basis form, in blocks of rows: (rows, outputs)."""
    out = np.empty((len(X), coefficients.shape[1]))
    for rows in blocks(len(X), len(terms)):
        out[rows] = evaluate_terms(terms, basis, X[rows]).T @ coefficients
    return out


def _residual_correlation(table: Table, coefficients: Floats) -> Floats:
    """Phi' W (Y - Phi c), one pass over the data."""
    out = np.zeros_like(coefficients)
    for rows in blocks(len(table.X), len(table.terms)):
        phi = evaluate_terms(table.terms, table.basis, table.X[rows])
        out += phi @ ((table.Y[rows] - phi.T @ coefficients) * table.weight[rows, None])
    return out


def _symmetric_solver(upper: Floats, penalty: Floats, *, may_be_singular: bool) -> Callable[[Floats], Floats]:
    """Solve (G + penalty) c = r by scaled Cholesky, or with least norm where G is singular."""
    diagonal = np.diagonal(upper) + penalty
    scale = 1.0 / np.sqrt(np.where(diagonal > 1e-14 * diagonal.max(), diagonal, np.inf))
    scaled = np.array(upper, order="F")
    scaled *= scale
    scaled *= scale[:, None]
    np.fill_diagonal(scaled, np.where(scale > 0, 1.0, 0.0))
    if not may_be_singular and np.all(scale > 0):
        try:
            factor = cho_factor(scaled, lower=False, overwrite_a=False, check_finite=False)
            if dpocon(factor[0], _one_norm(scaled))[0] > _SINGULAR:
                return lambda r: scale[:, None] * cho_solve(factor, scale[:, None] * r)
        except LinAlgError:
            pass
    values, vectors = eigh(scaled, lower=False, overwrite_a=True, check_finite=False)
    keep = values > values[-1] * len(values) * np.finfo(float).eps * 10
    values, vectors = values[keep], vectors[:, keep]
    return lambda r: scale[:, None] * (vectors @ ((vectors.T @ (scale[:, None] * r)) / values[:, None]))


def _one_norm(upper: Floats) -> float:
    """Bound the 1-norm of a symmetric matrix stored as its upper triangle (within 2)."""
    size = np.abs(upper)
    return float((size.sum(axis=0) + size.sum(axis=1)).max())


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
