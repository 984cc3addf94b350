r"""The columns that term selection sees: standardised features, of rows or of a state that stands for them.

A column is sqrt(w) (phi_j - mean_j) / norm_j, of unit length. Selection needs their inner products only, so rows may
be replaced by any others with the same ones. With C = F'F the centred matrix of a `gram.Gram` (F square), the columns
of F have the inner products of the centred features, F'z = g gives the targets' part z in their span, and one row more
holds the part outside of it:

    | y - Phi c |^2 = | z - F c |^2 + (s - |z|^2).

`StateColumns` are these p rows in place of all n. The state is of an orthonormal basis; powers are combinations of
it, by a small triangular matrix for each variable.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular
from scipy.sparse import csc_array

from transformula.learn.distinct_rows import Rows
from transformula.learn.solvers.features import (
    Basis,
    Floats,
    Terms,
    blocks,
    evaluate_some,
    evaluate_terms,
    univariate_values,
)
from transformula.learn.solvers.gram import Gram, significant

#: Numbers in a feature matrix that is kept: 32 MiB.
_MOST_KEPT = 2**22
#: Columns of the Gram matrix that one pass over the rows computes.
_COLUMNS_A_PASS = 16
#: Accuracy of the part outside the span, as a share of the targets' squares.
_ROUNDING = 1e-13


class RowColumns:
    """Unit columns of all terms, reached through blocked passes and a cache, so that none but the chosen are stored.

    Those of the constant and of terms without variance are zero and never chosen. ``targets`` are centred.
    """

    def __init__(self, terms: Terms, basis: Basis, rows: Rows) -> None:
        self.terms = terms
        self.basis = basis
        self.rows = rows
        self.count = len(rows)
        self.root = np.sqrt(rows.weight)
        self.target_means = rows.mean
        self.targets = (rows.Y - rows.mean) * self.root[:, None]
        total = rows.weight.sum()
        self._kept = evaluate_terms(terms, basis, rows.X) if len(terms) * len(rows) <= _MOST_KEPT else None
        first, second = np.zeros(len(terms)), np.zeros(len(terms))
        for some in blocks(len(rows), len(terms)):
            phi = self._features(some)
            first += phi @ rows.weight[some]
            second += phi**2 @ rows.weight[some]
        self.mean = first / total
        self.inverse_norm = _inverse_norm(second - total * self.mean**2, second)
        self._cache: dict[int, Floats] = {}

    def _features(self, some: slice) -> Floats:
        """All terms at some rows: (p, rows)."""
        if self._kept is not None:
            return self._kept[:, some]
        return evaluate_terms(self.terms, self.basis, self.rows.X[some])

    def values(self, chosen: list[int]) -> Floats:
        """The chosen columns themselves: (rows, k)."""
        phi = evaluate_some(self.terms.exponents[chosen], self.basis, self.rows.X)
        unit = (phi - self.mean[chosen]) * self.inverse_norm[chosen]
        return np.asarray(unit * self.root[:, None])

    def correlate(self, V: Floats) -> Floats:
        """Inner products of every column with the columns of V (rows, m), which sqrt(w) annuls."""
        out = np.zeros((len(self.terms), V.shape[1]))
        weighted = V * self.root[:, None]
        for rows in blocks(self.count, len(self.terms)):
            out += self._features(rows) @ weighted[rows]
        out -= self.mean[:, None] * weighted.sum(axis=0)
        return np.asarray(out * self.inverse_norm[:, None])

    def gram(self, j: int, likely: NDArray[np.intp]) -> Floats:
        """Column j of the Gram matrix; a miss computes the likely next ones in the same pass."""
        if j not in self._cache:
            wanted = [j] + [int(i) for i in likely if i != j]
            wanted = [i for i in wanted if i not in self._cache][:_COLUMNS_A_PASS]
            for i, column in zip(wanted, self.correlate(self.values(wanted)).T, strict=True):
                self._cache[i] = np.ascontiguousarray(column)
        return self._cache[j]


class StateColumns:
    """Columns of the rows that a state stands for, in another basis; p + 1 rows instead of all."""

    def __init__(self, gram: Gram, basis: Basis) -> None:
        self.terms = gram.terms
        self.basis = basis
        self.count = gram.rows
        self.target_means = gram.mean
        mean, matrix, along = gram.centred()
        per_row = gram.rows / gram.total  # weights of mean 1
        factor, within = _factor(matrix, along)
        change = _change_of_basis(gram.terms, gram.basis, basis)  # column: a term of `basis` in those of the state
        self.mean = np.asarray(change[[0]].toarray()[0] + change[1:].T @ mean)
        columns = np.asarray((change[1:].T @ factor.T).T)
        variance = np.sum(columns**2, axis=0)
        self.inverse_norm = _inverse_norm(variance, variance + gram.total * self.mean**2)
        self.unit = np.vstack([columns * self.inverse_norm, np.zeros(len(columns.T))])
        self.inverse_norm = self.inverse_norm / per_row**0.5
        squares = gram.total * gram.variance
        outside = np.maximum(squares - np.sum(within**2, axis=0), _ROUNDING * squares)
        self.targets = np.vstack([within, np.sqrt(outside)]) * per_row**0.5

    def values(self, chosen: list[int]) -> Floats:
        """The chosen columns: (p, k)."""
        return np.asarray(self.unit[:, chosen])

    def correlate(self, V: Floats) -> Floats:
        """Inner products of every column with the columns of V (p, m)."""
        return np.asarray(self.unit.T @ V)

    def gram(self, j: int, likely: NDArray[np.intp]) -> Floats:
        """Column j of the matrix of inner products."""
        return np.asarray(self.unit.T @ self.unit[:, j])


TermColumns = RowColumns | StateColumns


def _inverse_norm(variance: Floats, second: Floats) -> Floats:
    usable = variance > 1e-12 * second
    usable[0] = False
    return np.asarray(np.where(usable, 1.0, 0.0) / np.sqrt(np.where(usable, variance, 1.0)))


def _factor(upper: Floats, right: Floats) -> tuple[Floats, Floats]:
    """F with F'F the given matrix, and z with F'z = right, of least norm where the matrix is singular."""
    scale = np.sqrt(np.maximum(np.diagonal(upper), 1e-300))
    scaled = upper / np.outer(scale, scale)
    try:
        factor = cholesky(scaled, check_finite=False)
        if np.diagonal(factor).min() > 1e-6:
            return factor * scale, solve_triangular(factor, right / scale[:, None], trans="T", check_finite=False)
    except LinAlgError:
        pass
    values, vectors = eigh(scaled, lower=False, check_finite=False)
    keep = significant(values)
    root, vectors = np.sqrt(values[keep]), vectors[:, keep]
    return (root * vectors).T * scale, (vectors.T @ (right / scale[:, None])) / root[:, None]


def _change_of_basis(terms: Terms, old: Basis, new: Basis) -> csc_array:
    """Every term of the new basis (a column) as a combination of the terms of the old one."""
    q = terms.degree
    nodes = np.cos(np.pi * (np.arange(q + 1) + 0.5) / (q + 1))[:, None] * 2.0 / old.scale + old.shift
    # (d, powers of the new, powers of the old)
    tables = np.linalg.solve(
        univariate_values(old, nodes).transpose(1, 2, 0), univariate_values(new, nodes).transpose(1, 2, 0)
    ).transpose(0, 2, 1)
    index = {alpha: i for i, alpha in enumerate(map(tuple, terms.exponents.tolist()))}
    entries = [
        (prod(tables[v, a, b] for v, (a, b) in enumerate(zip(alpha, beta, strict=True)) if a), index[beta], column)
        for alpha, column in index.items()
        for beta in product(*(range(a + 1) for a in alpha))
    ]
    values, rows, columns = zip(*entries, strict=True)
    return csc_array((values, (rows, columns)), shape=(len(terms), len(terms)))
