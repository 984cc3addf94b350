"""Fits of tables that are never in one place: a fixed number of passes, each of which adds up states of parts.

1. `Survey`: ranges and a sample of the rows (`states`). The sample is fitted as any table in
   memory: it chooses the solver, the penalty, the terms and the directions. A table that fits into it is done.
2. `Gram`: the normal equations of the terms found, with the residuals of all rows as targets. They correct the
   coefficients to those of all rows, with the absolute penalty of the sample.

Nothing depends on how the rows are cut into parts but the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from transformula.learn.distinct_rows import Floats, Rows, merge_rows
from transformula.learn.solver_choice import MOST_EXACT_TERMS, Fitted, Settings, choose, solve
from transformula.learn.solvers.exact_fit import TermRows, leave_one_out
from transformula.learn.solvers.features import Indicators, all_terms, count_terms, orthonormal_basis
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.polynomial_fit import PolynomialFit, penalties
from transformula.learn.states import HeldOut, Survey, sample_size

#: Inputs (rows, d), targets (rows, outputs) and weights, of at least one row.
Chunk = tuple[Floats, Floats, Floats | None]
State = TypeVar("State")
#: Rows of a stream of batches that judge the penalty.
_JUDGES = 4_000


class NoRowsError(ValueError):
    """A table without rows."""


class Parts(Protocol):
    """A table in parts, wherever they are."""

    @property
    def width(self) -> int:
        """Number of inputs of a row."""

    @property
    def outputs(self) -> int:
        """Number of targets of a row."""

    def total(self, work: Callable[[Iterable[Chunk]], State | None]) -> State:
        """Do one piece of work on every part, and add up what comes back; None is the state of no rows."""


def total_of(states: Iterable[State | None]) -> State | None:
    """The sum of states in their order; None is the state of no rows."""
    total: Any = None
    for state in states:
        total = state if total is None else total if state is None else total + state
    return total  # type: ignore[no-any-return]


def add_up(states: Iterable[State | None]) -> State:
    """The sum of states in their order.

    Raises
    ------
    NoRowsError
        If there are none.
    """
    total = total_of(states)
    if total is None:
        raise NoRowsError("the table has no rows")
    return total


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
