"""Fits of tables that are never in one place: states, summaries of rows that add up, and two passes over them.

`RowSample` holds the distinct rows whose hash is least, with their weights. The hash is of the numbers in the row, so
the sample does not depend on how the rows were cut into parts, on their order, or on who read them, and a table that
fits into the sample is in it completely. `HeldOut` holds out rows by another hash of the same kind; equal rows are
never on both sides.

1. `Survey` collects all of these in one pass. Its sample is fitted as any table in memory: it chooses the solver, the
   penalty, the terms and the directions. A table that fits into it is done.
2. `Gram`: the normal equations of the terms found, with the residuals of all rows as targets. They correct the
   coefficients to those of all rows, with the absolute penalty of the sample.

Nothing depends on how the rows are cut into parts but the order of additions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from transformula.cluster.table_parts import Chunk, Parts, total_of
from transformula.learn.distinct_rows import Floats, Range, Rows, merge_rows, runs_of_equals
from transformula.learn.solver_choice import MOST_EXACT_TERMS, Fitted, Settings, choose, solve
from transformula.learn.solvers.exact_fit import TermRows, leave_one_out
from transformula.learn.solvers.features import Indicators, all_terms, count_terms, orthonormal_basis
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.polynomial_fit import PolynomialFit, penalties

Hashes = NDArray[np.uint64]

#: Numbers in a sample, about.
_SAMPLE_NUMBERS = 2**23
#: Fewest and most rows of a sample.
_LEAST_SAMPLE = 4_000
_MOST_SAMPLE = 50_000
#: Rows of a stream of batches that judge the penalty.
_JUDGES = 4_000
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


def survey_pass(size: int, split: HeldOut, chunks: Iterable[Chunk]) -> Survey | None:
    """The first pass over one part."""
    return total_of(Survey.of(X, Y, weight, size, split) for X, Y, weight in chunks)


def residual_pass(fitted: Fitted, split: HeldOut, chunks: Iterable[Chunk]) -> Gram:
    """The second pass over one part: the equations of a fit's terms, with its residuals as targets."""
    fit = fitted.solution
    assert isinstance(fit, PolynomialFit)
    gram = Gram(fit.terms, fit.basis, np.zeros(fit.coefficients.shape[1]))
    for X, Y, weight in chunks:
        keep = ~split.held(X, Y)
        fit.add_residuals(gram, X[keep][:, fitted.columns], Y[keep], None if weight is None else weight[keep])
    return gram


@dataclass(frozen=True)
class StreamState:
    """State of `partial_fit`: survey and normal equations, in a basis that the first batch has fixed."""

    survey: Survey
    gram: Gram

    @classmethod
    def begin(
        cls, X: Floats, Y: Floats, weight: Floats | None, degree: int, indicators: Indicators = ()
    ) -> StreamState:
        """The state of the first batch."""
        count = count_terms(X.shape[1], degree, indicators)
        if count > MOST_EXACT_TERMS:
            raise ValueError(f"{count} monomials are too many for partial_fit: at most {MOST_EXACT_TERMS}")
        terms = all_terms(X.shape[1], degree, indicators)
        empty = Gram(terms, orthonormal_basis(X, degree, weight), Y.mean(axis=0))
        return cls(_batch_survey(X, Y, weight), empty.add(X, Y, weight))

    def of(self, X: Floats, Y: Floats, weight: Floats | None) -> StreamState:
        """The state of a further batch."""
        return StreamState(_batch_survey(X, Y, weight), self.gram.like().add(X, Y, weight))

    def __add__(self, other: StreamState) -> StreamState:
        return StreamState(self.survey + other.survey, self.gram + other.gram)


def _batch_survey(X: Floats, Y: Floats, weight: Floats | None) -> Survey:
    return Survey.of(X, Y, weight, _JUDGES, HeldOut())


def survey_of(parts: Parts, split: HeldOut) -> Survey:
    """The first pass over all parts."""
    return parts.total(partial(survey_pass, sample_size(parts.width + parts.outputs), split))


def fit_parts(parts: Parts, solver: str, settings: Settings, survey: Survey, split: HeldOut) -> Fitted:
    """A fit to the sample, and the pass that corrects its coefficients to those of all rows."""
    columns = survey.range.varying
    training = replace(_training(survey, split), indicators=settings.indicators)
    if not columns.any():
        constant = PolynomialFit.constant(training.mean, settings.degree)
        return Fitted("exact" if solver == "auto" else solver, constant, columns)
    sample = training.of_columns(columns)
    if solver == "auto":
        solver, settings = choose(sample, settings)
    found = solve(solver, sample, settings)
    if survey.complete:
        return Fitted(solver, found, columns)
    gram = parts.total(partial(residual_pass, Fitted(solver, found, columns), split))
    ridge = found.ridge
    if settings.ridge is None:  # chosen for the sample: as many pseudo-rows are enough for all rows
        ridge *= float(sample.weight.sum()) / gram.total
    return Fitted(solver, found.corrected(gram, ridge), columns)


def _training(survey: Survey, split: HeldOut) -> Rows:
    """The rows of the sample that are not held out, in the order that tables in memory have."""
    rows = survey.sample.rows()
    if split.share:
        rows = rows.take(~split.held(rows.X, rows.Y))
    return merge_rows(rows.X, rows.Y, rows.weight)


def solve_exact(state: StreamState, ridge: float | None) -> PolynomialFit:
    """Least squares from a state, with the penalty that leave-one-out at its sample prefers."""
    gram, judges = state.gram, state.survey.sample.rows()
    if ridge is None:
        ridge = leave_one_out(gram, TermRows(judges.X, judges.Y, judges.weight, gram.terms, gram.basis)).ridge
    return PolynomialFit(gram.terms, gram.basis, gram.solve(penalties(gram.terms, ridge)), ridge)
