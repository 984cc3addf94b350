"""The choice of a solver for a table, and one call for all closed forms."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.solvers.exact_fit import beyond_noise, fit_exact, leave_one_out_losses
from transformula.learn.solvers.features import count_terms
from transformula.learn.solvers.lowrank_fit import few_threads, fit_lowrank, fit_ridges
from transformula.learn.solvers.sparse_fit import fit_sparse
from transformula.learn.writing import Written

SOLVERS = ("auto", "exact", "sparse", "lowrank", "sgd", "adam")
#: Most terms for `exact`, the side of a square matrix: 1.8 GB.
MOST_EXACT_TERMS = 15_000
#: Most terms for `sparse`, which visits each a few times.
MOST_SPARSE_TERMS = 60_000
#: Most terms for which `auto` tries `exact`.
_AUTO_EXACT_TERMS = 1_000
#: Fewest rows for which folds are large enough to judge by.
_FEWEST_JUDGED = 8
#: Most rows that say nothing about a curve.
_FEWEST_CURVED = 3
#: Rows for each term from which directions save nothing.
_PLENTY = 10
#: Most linear forms of a polynomial that is also tried as a sum of ridge functions.
_MOST_RIDGE_RANK = 8
_CEILINGS = {"exact": MOST_EXACT_TERMS, "sparse": MOST_SPARSE_TERMS}


@dataclass(frozen=True)
class Settings:
    """Parameters of the closed-form solvers."""

    degree: int
    ridge: float | None = None
    criterion: str = "ebic"
    max_terms: int | None = None
    rank: int | None = None
    seed: int = 0
    n_jobs: int | None = None
    indicators: tuple[int, ...] = ()


class Solution(Protocol):
    """A polynomial a solver found."""

    def predict(self, X: Floats) -> Floats:
        """Evaluate it: (rows, outputs)."""

    @property
    def n_terms(self) -> int:
        """Number of coefficients, and of entries of learned directions."""

    @property
    def degree(self) -> int:
        """The degree of the polynomial, at most the one asked for."""

    def exact(self) -> Written:
        """The polynomial in rational arithmetic."""


@dataclass(frozen=True)
class Fitted:
    """A solver's result on the columns that vary.

    Attributes
    ----------
    solver : the solver that found it.
    solution : its polynomial in the chosen columns.
    columns : (d,) which columns of the input it reads; the others were constant.
    """

    solver: str
    solution: Solution
    columns: NDArray[np.bool_]

    def predict(self, X: Floats) -> Floats:
        """Evaluate the polynomial: (rows, outputs)."""
        return self.solution.predict(X[:, self.columns])

    @property
    def n_terms(self) -> int:
        """Number of coefficients and of entries of directions."""
        return self.solution.n_terms

    @property
    def degree(self) -> int:
        """The degree of the polynomial."""
        return self.solution.degree

    def exact(self) -> Written:
        """The polynomial in the original variables, in rational arithmetic."""
        return self._exact

    @cached_property
    def _exact(self) -> Written:
        return self.solution.exact().in_columns(np.flatnonzero(self.columns).tolist(), len(self.columns))


def solve(solver: str, rows: Rows, settings: Settings, shared: dict[Any, Any] | None = None) -> Solution:
    """Fit one closed-form solver; ``shared`` keeps what another fit to the same rows can use."""
    terms = count_terms(rows.X.shape[1], settings.degree, rows.indicators)
    if terms > _CEILINGS.get(solver, terms):
        raise ValueError(
            f"solver={solver!r} would handle all {terms} monomials of degree {settings.degree} in "
            f"{rows.X.shape[1]} variables; at most {_CEILINGS[solver]} fit: use solver='lowrank'"
        )
    with few_threads(rows.X.size * min(terms, 100)):
        if solver == "lowrank":
            return _lowrank(rows, settings)
        if solver == "sparse":
            return fit_sparse(
                rows, settings.degree, criterion=settings.criterion, max_terms=settings.max_terms, shared=shared
            )
        if len(rows) < terms and settings.ridge == 0:
            warnings.warn(
                f"{len(rows)} distinct rows for {terms} terms: the least-squares polynomial is not unique, "
                "and the one with the smallest coefficients is taken; give ridge > 0 or None, a lower degree "
                "or solver='sparse'",
                UserWarning,
                stacklevel=5,
            )
        return fit_exact(rows, settings.degree, settings.ridge)


def _lowrank(rows: Rows, settings: Settings) -> Solution:
    found = fit_lowrank(rows, settings.degree, rank=settings.rank, ridge=settings.ridge, seed=settings.seed)
    if not 0 < len(found.directions) <= _MOST_RIDGE_RANK or len(rows) < 20 * len(found.terms):
        return found
    form = fit_ridges(found, rows, settings.seed)
    return form if len(form.directions) <= 3 * len(found.directions) else found


def choose(rows: Rows, settings: Settings) -> tuple[str, Settings]:
    """The solver and the settings with the least held-out error; the simpler one where two are within 1 %.

    `sparse` competes with a linear model, with `lowrank`, and where there are few terms with `exact`. A winner that is
    neither `sparse` as asked for nor clearly better than the linear model gives way to it.
    Tables up to 2000 rows are judged on 5 folds, others on one fifth of a part of their rows: 200 for each
    variable, 5000 at least. Least squares leaves single rows out instead, in closed form, where all rows can judge.
    A candidate that falls behind sees no further folds.
    """
    candidates = _candidates(rows, settings)
    if len(candidates) == 1:
        return candidates[0]
    most = max(5000, 200 * rows.X.shape[1])
    if len(rows) > most:
        order = np.random.default_rng(settings.seed + 1).permutation(len(rows))[:most]
        rows = rows.take(np.sort(order))
    fold = np.random.default_rng(settings.seed).permutation(len(rows)) % 5
    folds = [np.flatnonzero(fold == held) for held in range(5 if len(rows) <= 2000 else 1)]
    each: list[Floats | None] = [_left_out(rows, one) if len(folds) > 1 else None for one in candidates]
    each = [None if losses is None else losses[np.concatenate(folds)] for losses in each]
    waiting = [k for k, losses in enumerate(each) if losses is None]
    parts: dict[int, list[Floats]] = {k: [] for k in waiting}
    seen = 0
    for held in folds:
        shared: dict[Any, Any] = {}
        found = Parallel(n_jobs=settings.n_jobs, prefer="threads")(
            delayed(_held_out)(candidates[k][0], rows, held, candidates[k][1], shared) for k in waiting
        )
        for k, losses in zip(waiting, found, strict=True):
            parts[k].append(losses)
        seen += len(held)
        so_far = {k: np.concatenate(parts[k]) for k in waiting}
        waiting = _promising(so_far, [losses[:seen] for losses in each if losses is not None])
    judged = {k: np.concatenate(some) for k, some in parts.items() if len(some) == len(folds)}
    judged |= {k: losses for k, losses in enumerate(each) if losses is not None}
    names = sorted(judged)
    table = np.array([judged[k] for k in names])
    total = table.sum(axis=1)
    # below this share of the targets' variance differences are rounding
    rounding = 1e-16 * float(rows.weight.sum())
    best = names[int(np.argmax(total <= 1.01 * float(total.min()) + rounding))]
    linear = candidates.index(_linear(settings))
    gain = judged[linear] - judged[best]
    if not beyond_noise(gain, errors=1) and not (best == 0 and judged[0].sum() <= judged[linear].sum() + rounding):
        best = linear
    return candidates[best]


def _promising(found: dict[int, Floats], others: list[Floats]) -> list[int]:
    """Candidates that may still win: none that are 5 % and a standard error behind the best so far."""
    best = min([*found.values(), *others], key=lambda losses: float(losses.sum()), default=np.zeros(0))
    return [k for k, one in found.items() if one.sum() <= 1.05 * best.sum() or not beyond_noise(one - best, errors=1)]


def _left_out(rows: Rows, candidate: tuple[str, Settings]) -> Floats | None:
    """Losses of least squares at every row, without that row, in variances of the targets; None where not known."""
    solver, settings = candidate
    if solver != "exact" or settings.ridge is not None:
        return None
    with few_threads(rows.X.size):
        losses = leave_one_out_losses(rows, settings.degree)
    return None if losses is None else losses * float(rows.weight.sum())


def _linear(settings: Settings) -> tuple[str, Settings]:
    return "exact", replace(settings, degree=1)


def _candidates(rows: Rows, settings: Settings) -> list[tuple[str, Settings]]:
    """Solvers and settings that `auto` tries, the simplest first."""
    terms = count_terms(rows.X.shape[1], settings.degree, rows.indicators)
    if terms > MOST_SPARSE_TERMS:
        return [("lowrank", settings)]
    found = [("sparse", settings)]
    if len(rows) < _FEWEST_JUDGED:
        return found if len(rows) > _FEWEST_CURVED else [_linear(settings)]
    found.append(_linear(settings))
    if len(rows) < 20:
        return found
    if terms <= len(rows) <= 2000 and settings.criterion == "ebic":  # bic alone would select noise among more terms
        found.append(("sparse", replace(settings, criterion="bic")))
    if rows.X.shape[1] > 1 and len(rows) < _PLENTY * terms:  # with more rows all terms can be told apart
        found.append(("lowrank", settings))
    if settings.degree > 1 and terms <= _AUTO_EXACT_TERMS and (len(rows) <= 2000 or terms <= len(rows) // 3):
        found.append(("exact", settings))
    return found


def _held_out(solver: str, rows: Rows, held: NDArray[np.intp], settings: Settings, shared: dict[Any, Any]) -> Floats:
    """The loss at every held-out row, in variances of the targets; candidates of one fold have ``shared`` in common."""
    outside = rows.take(held)
    kept = np.ones(len(rows), dtype=bool)
    kept[held] = False
    inside = rows.take(np.flatnonzero(kept))
    found = solve(solver, inside, settings, shared)
    spread = np.maximum(rows.Y.var(axis=0), 1e-300)
    with np.errstate(over="ignore"):
        miss: Floats = (outside.Y - found.predict(outside.X)) ** 2 / spread
    return np.asarray(outside.weight * miss.mean(axis=1))
