r"""The normal equations as a state that adds up: a closed form needs nothing else of its rows.

    G = Phi' W Phi,   g = Phi' W (y - shift),   s = sum_r w_r (y_r - shift)^2

over features of fixed terms in a fixed basis, with targets about a fixed shift. Rows enter through BLAS `syrk` in
blocks, Phi is never stored, and two states of the same terms, basis and shift add up to the state of both sets
of rows: batches of a stream, parts of a file, shards on several machines. Addition commutes exactly and is
associative to rounding. Basis and shift are fixed beforehand: the basis is close to orthonormal, so G is close to
the identity, and the shift is close to the mean, so s loses no digits to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpocon

from transformula.learn.solvers.features import Basis, Floats, Terms, blocks, evaluate_terms

#: Reciprocal condition of the scaled G below which Cholesky is not trusted.
_SINGULAR = 1e-13


@dataclass
class Gram:
    """Normal equations that grow with the data.

    Examples
    --------
    >>> from transformula.learn.solvers.features import all_terms, orthonormal_basis
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> Y, nothing = X[:, :1] * X[:, 1:], Gram(all_terms(2, 2), orthonormal_basis(X, 2), np.zeros(1))
    >>> (nothing.like().add(X[:20], Y[:20]) + nothing.like().add(X[20:], Y[20:])).total
    50.0
    """

    terms: Terms
    basis: Basis
    shift: Floats  # (outputs,)
    matrix: Floats = field(init=False)  # (p, p), upper triangle, Fortran order
    right: Floats = field(init=False)  # (p, outputs)
    squares: Floats = field(init=False)  # (outputs,)
    total: float = field(init=False, default=0.0)  # the sum of the weights
    rows: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.matrix = np.zeros((len(self.terms), len(self.terms)), order="F")
        self.right = np.zeros((len(self.terms), len(self.shift)))
        self.squares = np.zeros(len(self.shift))

    def like(self) -> Gram:
        """The state of no rows, to which this one can be added."""
        return Gram(self.terms, self.basis, self.shift)

    def add(self, X: Floats, Y: Floats, weight: Floats | None = None) -> Gram:
        """Take in a batch of rows, in place."""
        for rows in blocks(len(X), len(self.terms)):
            phi = evaluate_terms(self.terms, self.basis, X[rows])
            target = Y[rows] - self.shift
            if weight is not None:
                root = np.sqrt(weight[rows])
                phi *= root
                target = target * root[:, None]
            self.matrix = dsyrk(1.0, phi.T, beta=1.0, c=self.matrix, trans=1, overwrite_c=1)
            self.right += phi @ target
            self.squares += np.sum(target**2, axis=0)
        self.total += float(len(X) if weight is None else weight.sum())
        self.rows += len(X)
        return self

    def __add__(self, other: Gram) -> Gram:
        both = self.like()
        np.add(self.matrix, other.matrix, out=both.matrix)
        both.right, both.squares = self.right + other.right, self.squares + other.squares
        both.total, both.rows = self.total + other.total, self.rows + other.rows
        return both

    def part(self, some: NDArray[np.intp]) -> Gram:
        """The state that some of the terms alone would have."""
        if len(some) == len(self.terms):
            return self
        part = Gram(self.terms.few(some), self.basis, self.shift)
        part.matrix = np.asfortranarray(self.matrix[np.ix_(some, some)])
        part.right, part.squares, part.total, part.rows = self.right[some], self.squares, self.total, self.rows
        return part

    @property
    def mean(self) -> Floats:
        """The weighted mean of the targets (the first feature is 1)."""
        return np.asarray(self.shift + self.right[0] / self.total)

    @property
    def variance(self) -> Floats:
        """The weighted variance of the targets."""
        return np.asarray(np.maximum(self.squares - self.right[0] ** 2 / self.total, 0.0) / self.total)

    def centred(self) -> tuple[Floats, Floats, Floats]:
        """Means of the other features, and the equations about them: (p-1,), (p-1, p-1) upper, (p-1, outputs)."""
        mean = self.matrix[0, 1:] / self.total
        matrix = self.matrix[1:, 1:] - self.total * np.triu(np.outer(mean, mean))
        return mean, matrix, self.right[1:] - np.outer(mean, self.right[0])

    def solver(self, penalties: Floats) -> Callable[[Floats], Floats]:
        """Factor the equations once; returns the map from right-hand sides to coefficients.

        ``penalties`` are those of each term, relative to the total weight.
        """
        return _symmetric_solver(self.matrix, self.total * penalties, may_be_singular=self.rows < len(self.terms))

    def solve(self, penalties: Floats) -> Floats:
        """Coefficients (p, outputs) in the basis, without a further pass over the data."""
        return self.with_shift(self.solver(penalties)(self.right))

    def with_shift(self, coefficients: Floats) -> Floats:
        """Coefficients for y itself, from those for y - shift."""
        found = coefficients.copy()
        found[0] += self.shift
        return found


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
    keep = significant(values)
    values, vectors = values[keep], vectors[:, keep]
    return lambda r: scale[:, None] * (vectors @ ((vectors.T @ (scale[:, None] * r)) / values[:, None]))


def significant(values: Floats) -> NDArray[np.bool_]:
    """Mask of the eigenvalues of a positive semidefinite matrix that are more than rounding."""
    return np.asarray(values > values.max(initial=0.0) * len(values) * np.finfo(float).eps * 10)


def _one_norm(upper: Floats) -> float:
    """Bound the 1-norm of a symmetric matrix stored as its upper triangle (within 2)."""
    size = np.abs(upper)
    return float((size.sum(axis=0) + size.sum(axis=1)).max())
