"""Fits of tables that are never in one place: a fixed number of passes, each of which adds up states of parts.

1. `Survey`: ranges, moments of the targets, and a sample of the rows (`states`). A table that fits into the sample is
   fitted from it, as any table in memory. Otherwise the sample gives the basis, the judges of the penalty, the solver
   where it is to be chosen, and the directions of a low-rank fit.
2. `Gram`: the normal equations of all rows in that basis, which `exact` is solved from, and those that give `sparse`
   and `lowrank` their coefficients, for the terms and directions that the sample has selected.
3. `exact` only: the correlation of the residuals with the features, for one step of refinement.

Nothing depends on how the rows are cut into parts but the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from transformula.learn.distinct_rows import Floats, Rows, merge_rows
from transformula.learn.solver_choice import MOST_EXACT_TERMS, Fitted, Settings, Solution, choose, solve
from transformula.learn.solvers.directions import hermite_basis, ridge_terms
from transformula.learn.solvers.exact_fit import (
    ExactFit,
    Penalty,
    TermRows,
    leave_one_out,
    refined,
    residual_correlation,
)
from transformula.learn.solvers.features import (
    Basis,
    Indicators,
    Terms,
    all_terms,
    count_terms,
    orthonormal_basis,
)
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.lowrank_fit import LowRankFit
from transformula.learn.solvers.ridge_forms import RidgeForm, hermite_ridges
from transformula.learn.solvers.sparse_fit import SparseFit, corrected, equations
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


@dataclass(frozen=True)
class View:
    """Rows and variables that a pass reads: some columns, or linear forms of them."""

    columns: NDArray[np.bool_]
    split: HeldOut
    forms: tuple[Floats, Floats] | None = None  # the center, and directions from there

    def of(self, chunk: Chunk) -> Chunk:
        """The rows that are not held out."""
        X, Y, weight = chunk
        if self.split.share:
            keep = ~self.split.held(X, Y)
            X, Y, weight = X[keep], Y[keep], None if weight is None else weight[keep]
        return self.variables(X), Y, weight

    def variables(self, X: Floats) -> Floats:
        """Variables of the features."""
        X = X[:, self.columns]
        return X if self.forms is None else (X - self.forms[0]) @ self.forms[1].T


def survey_pass(size: int, split: HeldOut, chunks: Iterable[Chunk]) -> Survey | None:
    """The first pass over one part."""
    return total_of(Survey.of(X, Y, weight, size, split) for X, Y, weight in chunks)


def gram_pass(view: View, terms: Terms, basis: Basis, shift: Floats, chunks: Iterable[Chunk]) -> Gram:
    """The second pass over one part: its normal equations."""
    gram = Gram(terms, basis, shift)
    for chunk in chunks:
        gram.add(*view.of(chunk))
    return gram


def _correlation_pass(view: View, fit: ExactFit, chunks: Iterable[Chunk]) -> Floats:
    """The third pass over one part: Phi' W (Y - Phi c)."""
    out = np.zeros_like(fit.coefficients)
    for chunk in chunks:
        rows = Rows.of(*view.of(chunk))
        out += residual_correlation(TermRows(rows.X, rows.Y, rows.weight, fit.terms, fit.basis), fit.coefficients)
    return out


def _equations_pass(view: View, fit: SparseFit, chunks: Iterable[Chunk]) -> Floats | None:
    """The second pass over one part for `sparse`."""
    return total_of(equations(fit, *view.of(chunk)) for chunk in chunks)


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
        empty = Gram(
            _allowed_terms(X.shape[1], degree, indicators), orthonormal_basis(X, degree, weight), Y.mean(axis=0)
        )
        return cls(_batch_survey(X, Y, weight), empty.add(X, Y, weight))

    def of(self, X: Floats, Y: Floats, weight: Floats | None) -> StreamState:
        """The state of a further batch."""
        return StreamState(_batch_survey(X, Y, weight), self.gram.like().add(X, Y, weight))

    def __add__(self, other: StreamState) -> StreamState:
        return StreamState(self.survey + other.survey, self.gram + other.gram)


def _batch_survey(X: Floats, Y: Floats, weight: Floats | None) -> Survey:
    return Survey.of(X, Y, weight, _JUDGES, HeldOut())


@dataclass(frozen=True)
class Streamed:
    """A fit, the result of the first pass, and the equations of all monomials where `exact` has added them up."""

    fitted: Fitted
    survey: Survey
    gram: Gram | None


def survey_of(parts: Parts, split: HeldOut) -> Survey:
    """The first pass over all parts."""
    return parts.total(partial(survey_pass, sample_size(parts.width + parts.outputs), split))


def fit_parts(parts: Parts, solver: str, settings: Settings, survey: Survey, split: HeldOut) -> Streamed:
    """The passes that follow the survey."""
    columns = survey.range.varying
    if not columns.any():
        found: Solution = ExactFit.constant(survey.targets.mean, settings.degree)
        return Streamed(Fitted("exact" if solver == "auto" else solver, found, columns), survey, None)
    sample = replace(_training(survey, split), indicators=settings.indicators).of_columns(columns)
    if solver == "auto":
        solver, settings = choose(sample, settings)
    if survey.complete:
        return Streamed(Fitted(solver, solve(solver, sample, settings), columns), survey, None)
    passes = _Passes(parts, View(columns, split), sample, settings, survey.targets.mean)
    found, gram = getattr(passes, solver)()
    return Streamed(Fitted(solver, found, columns), survey, gram)


def _training(survey: Survey, split: HeldOut) -> Rows:
    """The rows of the sample that are not held out, in the order that tables in memory have."""
    rows = survey.sample.rows()
    if split.share:
        rows = rows.take(~split.held(rows.X, rows.Y))
    return merge_rows(rows.X, rows.Y, rows.weight)


def solve_exact(gram: Gram, judges: Rows, ridge: float | None) -> tuple[ExactFit, Callable[[Floats], Floats]]:
    """Least squares from a state, with the penalty that leave-one-out at the judges prefers; and the solver."""
    if ridge is None:
        table = TermRows(judges.X, judges.Y, judges.weight, gram.terms, gram.basis)
        penalty = leave_one_out(gram, table).penalty
    else:
        penalty = Penalty(ridge)
    factored = gram.solver(penalty.of(gram.terms))
    return ExactFit(gram.terms, gram.basis, gram.with_shift(factored(gram.right)), penalty), factored


def _allowed_terms(variables: int, degree: int, indicators: Indicators) -> Terms:
    count = count_terms(variables, degree, indicators)
    if count > MOST_EXACT_TERMS:
        raise ValueError(
            f"{count} monomials of degree {degree} in {variables} variables are too many for a table in parts: "
            f"at most {MOST_EXACT_TERMS}"
        )
    return all_terms(variables, degree, indicators)


@dataclass(frozen=True)
class _Passes:
    """A table in parts, with a sample of its rows and a shift near the mean of its targets."""

    parts: Parts
    view: View
    sample: Rows
    settings: Settings
    shift: Floats

    def exact(self) -> tuple[Solution, Gram]:
        """All monomials, with one step of refinement on all rows."""
        gram = self._monomials()
        found, factored = solve_exact(gram, self.sample, self.settings.ridge)
        correlation = self.parts.total(partial(_correlation_pass, self.view, found))
        amounts = gram.total * found.penalty.of(gram.terms)[:, None]
        return replace(found, coefficients=refined(factored, amounts, found.coefficients, correlation)), gram

    def sparse(self) -> tuple[Solution, None]:
        """Monomials that the sample selects, with coefficients from all rows."""
        found = solve("sparse", self.sample, self.settings)
        assert isinstance(found, SparseFit)
        return corrected(found, self.parts.total(partial(_equations_pass, self.view, found))), None

    def lowrank(self) -> tuple[Solution, None]:
        """Directions from the sample, coefficients from all rows."""
        sample, degree = self.sample, self.settings.degree
        found = solve("lowrank", sample, self.settings)
        assert isinstance(found, (LowRankFit, RidgeForm))
        directions = found.directions
        if isinstance(found, LowRankFit):
            terms = found.terms
        else:
            forms = (sample.X - found.center) @ directions.T
            spread = np.sqrt(np.average(forms**2, axis=0, weights=sample.weight))
            directions = directions / np.where(spread > 0, spread, 1.0)[:, None]
            terms = ridge_terms(len(directions), degree)
        view = replace(self.view, forms=(found.center, directions))
        gram = self._gram(view, terms, hermite_basis(len(directions), degree))
        judges = Rows((sample.X - found.center) @ directions.T, sample.Y, sample.weight)
        C = solve_exact(gram, judges, self.settings.ridge)[0].coefficients
        if isinstance(found, LowRankFit):
            return replace(found, coefficients=C), None
        return hermite_ridges(np.eye(len(directions)), C, degree).compose(directions, found.center), None

    def _monomials(self) -> Gram:
        width, degree = self.sample.X.shape[1], self.settings.degree
        terms = _allowed_terms(width, degree, self.sample.indicators)
        return self._gram(self.view, terms, orthonormal_basis(self.sample.X, degree, self.sample.weight))

    def _gram(self, view: View, terms: Terms, basis: Basis) -> Gram:
        return self.parts.total(partial(gram_pass, view, terms, basis, self.shift))
