"""The columns that term selection sees: sqrt(w) (phi_j - mean_j) / norm_j, of unit length.

Selection needs their inner products only, and few columns of those: blocked passes and a cache compute them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transformula.learn.distinct_rows import Rows
from transformula.learn.solvers.features import (
    Basis,
    Floats,
    Terms,
    blocks,
    evaluate_some,
    evaluate_terms,
)

#: Numbers in a feature matrix that is kept: 32 MiB.
_MOST_KEPT = 2**22
#: Columns of the Gram matrix that one pass over the rows computes.
_COLUMNS_A_PASS = 16


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


def _inverse_norm(variance: Floats, second: Floats) -> Floats:
    usable = variance > 1e-12 * second
    usable[0] = False
    return np.asarray(np.where(usable, 1.0, 0.0) / np.sqrt(np.where(usable, variance, 1.0)))
