"""Rows as the solvers want them: identical ones merged, constant columns set aside.

A row that occurs k times and a row of weight k are the same thing to every least-squares problem, but
not to a random split or to a criterion that counts rows. Merging identical rows (their weights add up)
and sorting them makes the two the same problem for every solver, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.cluster.table_parts import is_dask

Floats = NDArray[np.float64]

#: Distance beyond the training range from which a row counts as far outside, as a share of the range's width.
_FAR = 0.5


@dataclass(frozen=True)
class Rows:
    """Distinct rows with positive weights: X (rows, d), Y (rows, outputs), weight (rows,).

    ``indicators`` says which columns of X are indicators, and of what: see `solvers.features.all_terms`.
    """

    X: Floats
    Y: Floats
    weight: Floats
    indicators: tuple[int, ...] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        return len(self.X)

    @classmethod
    def of(cls, X: Floats, Y: Floats, weight: Floats | None = None) -> Rows:
        """Rows with their weights, 1 by default."""
        return cls(X, Y, np.ones(len(X)) if weight is None else weight)

    def take(self, index: NDArray[Any]) -> Rows:
        """Some of the rows."""
        return Rows(self.X[index], self.Y[index], self.weight[index], indicators=self.indicators)

    def without(self, index: NDArray[Any]) -> Rows:
        """The other rows."""
        return self.take(np.delete(np.arange(len(self)), index))

    def of_columns(self, columns: NDArray[np.bool_]) -> Rows:
        """The rows with some of the inputs."""
        kept = tuple(group for group, keep in zip(self.indicators, columns, strict=bool(self.indicators)) if keep)
        return replace(self, X=np.ascontiguousarray(self.X[:, columns]), indicators=kept)

    @property
    def unit_weight(self) -> Floats:
        """The weights scaled to mean 1."""
        return np.asarray(self.weight * (len(self) / self.weight.sum()))

    @property
    def mean(self) -> Floats:
        """The weighted mean of the targets."""
        return np.asarray(self.weight @ self.Y / self.weight.sum())


def merge_rows(X: Floats, Y: Floats, weight: Floats | None, indicators: tuple[int, ...] = ()) -> Rows:
    """Drop rows of weight zero, merge identical ones, sort the rest.

    Examples
    --------
    >>> rows = merge_rows(np.array([[2.0], [1.0], [2.0]]), np.array([[5.0], [4.0], [5.0]]), None)
    >>> rows.X.ravel().tolist(), rows.weight.tolist()
    ([1.0, 2.0], [1.0, 2.0])
    """
    w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    if np.any(w < 0):
        raise ValueError("sample_weight has negative entries: weights must be zero or more")
    if not w.sum() > 0:
        raise ValueError("sample_weight is zero for every row: nothing is left to fit")
    keep = w > 0
    table = np.hstack([X[keep], Y[keep]]) + 0.0  # −0.0 and 0.0 are one number
    order = np.lexsort(table.T[::-1])
    table = table[order]
    starts, total = runs_of_equals(table, w[keep][order])
    table = table[starts]
    return Rows(
        np.ascontiguousarray(table[:, : X.shape[1]]), table[:, X.shape[1] :].copy(), total, indicators=indicators
    )


def runs_of_equals(table: Floats, weight: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Starts of the runs of equal rows in a sorted table, and the total weight of each run."""
    new = np.ones(len(table), dtype=bool)
    new[1:] = np.any(table[1:] != table[:-1], axis=1)
    starts = np.flatnonzero(new)
    return starts, np.add.reduceat(weight, starts) if len(starts) else weight


def refuse_dask(table: Any, advice: str) -> None:
    """Refuse a Dask collection instead of gathering its rows."""
    if is_dask(table):
        raise ValueError(f"X is a Dask collection, and its rows are needed in memory here: {advice}")


@dataclass(frozen=True)
class Range:
    """The training range of every column, kept to warn about extrapolation and as the default box."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, X: Floats) -> Range:
        """The smallest box around the rows."""
        return cls(X.min(axis=0), X.max(axis=0))

    def union(self, other: Range) -> Range:
        """The smallest box around both."""
        return Range(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def widened(self, margin: float) -> Range:
        """Every varying column longer by this share of its width on both sides."""
        more = np.where(self.varying, margin * (self.high - self.low), 0.0)
        return Range(self.low - more, self.high + more)

    @property
    def varying(self) -> NDArray[np.bool_]:
        """Columns with more than one value."""
        return self.high - self.low > 1e-12 * np.maximum(np.abs(self.low), np.abs(self.high))

    def far_outside(self, X: Floats) -> tuple[int, int] | None:
        """Number of rows far outside and the worst column, or None if there are no such rows."""
        width = np.where(self.varying, self.high - self.low, np.inf)
        with np.errstate(over="ignore"):
            beyond = np.maximum(self.low - X, X - self.high) / width
        rows = np.count_nonzero(beyond.max(axis=1) > _FAR)
        if not rows:
            return None
        return int(rows), int(beyond.max(axis=0).argmax())
