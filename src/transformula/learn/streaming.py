"""Fits of tables that are never in one place: a fixed number of passes, each of which adds up states of parts.

1. `Survey`: ranges, moments of the targets, and a sample of the rows (`states`). A table that fits into the sample is
   fitted from it, as any table in memory. Otherwise the sample gives the basis, the judges of the penalty, the solver
   where it is to be chosen, and the directions of a low-rank fit.
2. `Gram`: the normal equations of all rows in that basis, which `exact` and `sparse` are solved from, and the
   coefficients of `lowrank` for its directions.
3. `exact` only: the correlation of the residuals with the features, for one step of refinement.

Nothing depends on how the rows are cut into parts but the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from transformula.learn.distinct_rows import Floats, Rows, merge_rows
from transformula.learn.fitted import Fitted, Solution
from transformula.learn.solver_choice import MOST_EXACT_TERMS, Settings, choose, solve
from transformula.learn.solvers.exact_fit import ExactFit, refined, residual_correlation
from transformula.learn.solvers.features import Basis, Terms, all_terms, count_terms, orthonormal_basis
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.lowrank_fit import LowRankFit
from transformula.learn.solvers.penalty import Penalty, Table, leave_one_out
from transformula.learn.solvers.ridge_forms import RidgeForm, hermite_ridges
from transformula.learn.solvers.sparse_fit import fit_sparse_state
from transformula.learn.solvers.subspace import hermite_basis, ridge_terms
from transformula.learn.states import Split, Survey, sample_size

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
        """How many inputs a row has."""

    @property
    def outputs(self) -> int:
        """How many targets a row has."""

    def total(self, work: Callable[[Iterable[Chunk]], State | None]) -> State:
        """Do one piece of work on every part, and add up what comes back; None is the state of no rows."""


def add_up(states: Iterable[State | None]) -> State:
    """The sum of states, as they come.

    Raises
    ------
    NoRowsError
        If there are none.
    """
    total: Any = None
    for state in states:
        total = state if total is None else total if state is None else total + state  # type: ignore[operator]
    if total is None:
        raise NoRowsError("the table has no rows")
    return total  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Surveying:
    """The first pass."""

    size: int
    split: Split

    def __call__(self, chunks: Iterable[Chunk]) -> Survey | None:
        """The survey of one part."""
        found: Survey | None = None
        for X, Y, weight in chunks:
            one = Survey.of(X, Y, weight, self.size, self.split)
            found = one if found is None else found + one
        return found


@dataclass(frozen=True)
class View:
    """Which rows a pass sees, and which variables: some columns, or linear forms of them."""

    columns: NDArray[np.bool_]
    split: Split
    forms: tuple[Floats, Floats] | None = None  # the center, and directions from there

    def of(self, chunk: Chunk) -> Chunk:
        """The rows that are not held out."""
        X, Y, weight = chunk
        if self.split.share:
            keep = ~self.split.held(X, Y)
            X, Y, weight = X[keep], Y[keep], None if weight is None else weight[keep]
        return self.variables(X), Y, weight

    def variables(self, X: Floats) -> Floats:
        """What the features are functions of."""
        X = X[:, self.columns]
        return X if self.forms is None else (X - self.forms[0]) @ self.forms[1].T


@dataclass(frozen=True)
class Gramming:
    """The second pass."""

    view: View
    terms: Terms
    basis: Basis
    shift: Floats

    def __call__(self, chunks: Iterable[Chunk]) -> Gram:
        """The normal equations of one part."""
        gram = Gram(self.terms, self.basis, self.shift)
        for chunk in chunks:
            gram.add(*self.view.of(chunk))
        return gram


@dataclass(frozen=True)
class Correlating:
    """The third pass: `exact.residual_correlation`."""

    view: View
    fit: ExactFit

    def __call__(self, chunks: Iterable[Chunk]) -> Floats:
        """Phi' W (Y - Phi c) of one part."""
        out = np.zeros_like(self.fit.coefficients)
        for chunk in chunks:
            X, Y, weight = self.view.of(chunk)
            w = np.ones(len(X)) if weight is None else weight
            out += residual_correlation(Table(self.fit.terms, self.fit.basis, X, Y, w), self.fit.coefficients)
        return out


@dataclass(frozen=True)
class StreamState:
    """What `partial_fit` keeps: survey and normal equations, in a basis that the first batch has fixed."""

    survey: Survey
    gram: Gram

    @classmethod
    def begin(cls, X: Floats, Y: Floats, weight: Floats | None, degree: int) -> StreamState:
        """The state of the first batch."""
        _check_count(X.shape[1], degree)
        empty = Gram(all_terms(X.shape[1], degree), orthonormal_basis(X, degree, weight), Y.mean(axis=0))
        return cls(_batch_survey(X, Y, weight), empty.add(X, Y, weight))

    def of(self, X: Floats, Y: Floats, weight: Floats | None) -> StreamState:
        """The state of a further batch."""
        return StreamState(_batch_survey(X, Y, weight), self.gram.like().add(X, Y, weight))

    def __add__(self, other: StreamState) -> StreamState:
        return StreamState(self.survey + other.survey, self.gram + other.gram)


def _batch_survey(X: Floats, Y: Floats, weight: Floats | None) -> Survey:
    return Survey.of(X, Y, weight, _JUDGES, Split())


@dataclass(frozen=True)
class Streamed:
    """A fit, and what the first pass has found; ``gram`` is None where the sample was the whole table."""

    solver: str
    settings: Settings
    fitted: Fitted
    survey: Survey
    gram: Gram | None


def survey_of(parts: Parts, split: Split) -> Survey:
    """The first pass over all parts."""
    return parts.total(Surveying(sample_size(parts.width + parts.outputs), split))


def fit_parts(parts: Parts, solver: str, settings: Settings, survey: Survey, split: Split) -> Streamed:
    """The passes that follow the survey."""
    rows = _training(survey, split)
    columns = survey.range.varying
    if not columns.any():
        basis = orthonormal_basis(np.zeros((1, 0)), settings.degree)
        found: Solution = ExactFit(all_terms(0, settings.degree), basis, survey.targets.mean[None])
        solver = "exact" if solver == "auto" else solver
        return Streamed(solver, settings, Fitted(solver, found, columns), survey, None)
    some = Rows(np.ascontiguousarray(rows.X[:, columns]), rows.Y, rows.weight)
    if solver == "auto":
        solver, settings = choose(some, settings)
    if survey.complete:
        return Streamed(solver, settings, Fitted(solver, solve(solver, some, settings), columns), survey, None)
    found, gram = _SOLVERS[solver](parts, View(columns, split), some, settings, survey.targets.mean)
    return Streamed(solver, settings, Fitted(solver, found, columns), survey, gram)


def _training(survey: Survey, split: Split) -> Rows:
    """The rows of the sample that are not held out, in the order that tables in memory have."""
    rows = survey.sample.rows()
    rows = rows if not split.share else survey.sample.rows(~split.held(rows.X, rows.Y))
    return merge_rows(rows.X, rows.Y, rows.weight)


def solve_exact(gram: Gram, judges: Rows, ridge: float | None) -> tuple[ExactFit, Callable[[Floats], Floats]]:
    """Least squares from a state, with the penalty that leave-one-out at the judges prefers; and the solver."""
    table = Table(gram.terms, gram.basis, judges.X, judges.Y, judges.weight)
    penalty = leave_one_out(gram, table).penalty if ridge is None else Penalty(ridge)
    factored = gram.solver(penalty.of(gram.terms))
    return ExactFit(gram.terms, gram.basis, gram.with_shift(factored(gram.right)), penalty), factored


def _check_count(variables: int, degree: int) -> None:
    count = count_terms(variables, degree)
    if count > MOST_EXACT_TERMS:
        raise ValueError(
            f"{count} monomials of degree {degree} in {variables} variables are too many for a table in parts: "
            f"at most {MOST_EXACT_TERMS}"
        )


def _all_monomials(parts: Parts, view: View, some: Rows, settings: Settings, shift: Floats) -> Gram:
    _check_count(some.X.shape[1], settings.degree)
    terms = all_terms(some.X.shape[1], settings.degree)
    basis = orthonormal_basis(some.X, settings.degree, some.weight)
    return parts.total(Gramming(view, terms, basis, shift))


def _exact(parts: Parts, view: View, some: Rows, settings: Settings, shift: Floats) -> tuple[Solution, Gram]:
    gram = _all_monomials(parts, view, some, settings, shift)
    found, factored = solve_exact(gram, some, settings.ridge)
    correlation = parts.total(Correlating(view, found))
    amounts = gram.total * found.penalty.of(gram.terms)[:, None]
    return replace(found, coefficients=refined(factored, amounts, found.coefficients, correlation)), gram


def _sparse(parts: Parts, view: View, some: Rows, settings: Settings, shift: Floats) -> tuple[Solution, Gram]:
    if settings.criterion == "holdout":
        raise ValueError("criterion='holdout' needs all rows at once: choose ebic or bic for a table in parts")
    gram = _all_monomials(parts, view, some, settings, shift)
    found = fit_sparse_state(gram, some.X, some.weight, criterion=settings.criterion, max_terms=settings.max_terms)
    return found, gram


def _lowrank(parts: Parts, view: View, some: Rows, settings: Settings, shift: Floats) -> tuple[Solution, Gram]:
    """Directions from the sample, coefficients from all rows."""
    found = solve("lowrank", some, settings)
    assert isinstance(found, (LowRankFit, RidgeForm))
    if isinstance(found, LowRankFit):
        terms, directions = found.terms, found.directions
    else:
        spread = np.sqrt(np.average(((some.X - found.center) @ found.directions.T) ** 2, axis=0, weights=some.weight))
        directions = found.directions / np.where(spread > 0, spread, 1.0)[:, None]
        terms = ridge_terms(len(directions), settings.degree)
    view = replace(view, forms=(found.center, directions))
    basis = hermite_basis(len(directions), settings.degree)
    gram = parts.total(Gramming(view, terms, basis, shift))
    judges = Rows((some.X - found.center) @ directions.T, some.Y, some.weight)
    C = solve_exact(gram, judges, settings.ridge)[0].coefficients
    if isinstance(found, LowRankFit):
        return replace(found, coefficients=C), gram
    return hermite_ridges(np.eye(len(directions)), C, settings.degree).compose(directions, found.center), gram


_SOLVERS = {"exact": _exact, "sparse": _sparse, "lowrank": _lowrank}
