"""States: summaries of rows that add up.

`RowSample` holds the distinct rows whose hash is least, with their weights. The hash is of the numbers in the row, so
the sample does not depend on how the rows were cut into parts, on their order, or on who read them, and a table that
fits into the sample is in it completely. `HeldOut` holds out rows by another hash of the same kind; equal rows are
never on both sides.

`Survey` collects all of these in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transformula.learn.distinct_rows import Floats, Range, Rows, runs_of_equals

Hashes = NDArray[np.uint64]

#: Numbers in a sample, about.
_SAMPLE_NUMBERS = 2**23
#: Fewest and most rows of a sample.
_LEAST_SAMPLE = 4_000
_MOST_SAMPLE = 50_000
_ODD = np.uint64(0x9E3779B97F4A7C15)


def sample_size(width: int) -> int:
    """Number of rows in a sample of rows with ``width`` numbers each.

    Examples
    --------
    >>> sample_size(11), sample_size(1000)
    (50000, 8388)
    """
    return int(np.clip(_SAMPLE_NUMBERS // max(1, width), _LEAST_SAMPLE, _MOST_SAMPLE))


def row_hashes(table: Floats, seed: int) -> Hashes:
    """64 bits for every row of numbers, the same for equal rows (−0.0 is 0.0)."""
    bits = np.ascontiguousarray((table + 0.0).T).view(np.uint64)
    h = np.full(len(table), seed, dtype=np.uint64)
    for column in bits:
        h ^= h >> np.uint64(29)
        h += column
        h *= _ODD
    for by in (30, 27, 31):  # splitmix64's finish
        h ^= h >> np.uint64(by)
        h *= np.uint64(0xBF58476D1CE4E5B9)
    return h ^ (h >> np.uint64(32))


@dataclass(frozen=True)
class RowSample:
    """The distinct rows with the least hashes: inputs and targets side by side, sorted by hash."""

    size: int
    outputs: int
    hashes: Hashes
    table: Floats
    weight: Floats

    @classmethod
    def of(cls, X: Floats, Y: Floats, weight: Floats | None, size: int, seed: int) -> RowSample:
        """Sample of a batch of rows; those of weight zero do not count."""
        table = np.hstack([X, Y]) + 0.0
        w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
        keep = w > 0
        table, w = table[keep], w[keep]
        return cls(size, Y.shape[1], row_hashes(table, seed), table, w)._cut()

    def __add__(self, other: RowSample) -> RowSample:
        return replace(
            self,
            hashes=np.concatenate([self.hashes, other.hashes]),
            table=np.concatenate([self.table, other.table]),
            weight=np.concatenate([self.weight, other.weight]),
        )._cut()

    def _cut(self) -> RowSample:
        order = np.argsort(self.hashes, kind="stable")
        starts, total = runs_of_equals(self.table[order], self.weight[order])
        kept = order[starts[: self.size]]
        return replace(self, hashes=self.hashes[kept], table=self.table[kept], weight=total[: self.size])

    def rows(self) -> Rows:
        """The rows, for the solvers."""
        d = self.table.shape[1] - self.outputs
        X, Y = self.table[:, :d], self.table[:, d:]
        return Rows(np.ascontiguousarray(X), np.ascontiguousarray(Y), self.weight)


@dataclass(frozen=True)
class HeldOut:
    """A share of the rows, held out by a hash of their numbers."""

    share: float = 0.0
    seed: int = 0

    def held(self, X: Floats, Y: Floats) -> NDArray[np.bool_]:
        """True where a row is held out."""
        if not self.share:
            return np.zeros(len(X), dtype=bool)
        # 2^53 steps: a float64 holds every one of them
        place = row_hashes(np.hstack([X, Y]), ~self.seed & 0xFFFFFFFFFFFFFFFF) >> np.uint64(11)
        return np.asarray(place < np.uint64(self.share * 2.0**53))


@dataclass(frozen=True)
class Survey:
    """Result of the first pass: counts, ranges and a sample."""

    rows: int
    held_rows: int
    range: Range  # of all rows
    sample: RowSample  # of all rows

    def __add__(self, other: Survey) -> Survey:
        return Survey(
            self.rows + other.rows,
            self.held_rows + other.held_rows,
            self.range.union(other.range),
            self.sample + other.sample,
        )

    @classmethod
    def of(cls, X: Floats, Y: Floats, weight: Floats | None, size: int, split: HeldOut) -> Survey:
        """Survey of a batch of at least one row."""
        held = int(split.held(X, Y).sum())
        return cls(len(X), held, Range.of(X), RowSample.of(X, Y, weight, size, split.seed))

    @property
    def complete(self) -> bool:
        """Whether the sample is the whole table."""
        return self.rows <= self.sample.size
