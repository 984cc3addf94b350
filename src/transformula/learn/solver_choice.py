"""The choice of a solver for a table, and one call for all closed forms."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.solvers.exact_fit import beyond_noise, fit_exact
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
        return self.solution.exact().in_columns(np.flatnonzero(self.columns).tolist(), len(self.columns))


def solve(solver: str, rows: Rows, settings: Settings) -> Solution:
    """Fit one closed-form solver."""
    terms = count_terms(rows.X.shape[1], settings.degree)
    if terms > _CEILINGS.get(solver, terms):
        raise ValueError(
            f"solver={solver!r} would handle all {terms} monomials of degree {settings.degree} in "
            f"{rows.X.shape[1]} variables; at most {_CEILINGS[solver]} fit: use solver='lowrank'"
        )
    with few_threads(rows.X.size * min(terms, 100)):
        if solver == "lowrank":
            return _lowrank(rows, settings)
        if solver == "sparse":
            return fit_sparse(rows, settings.degree, criterion=settings.criterion, max_terms=settings.max_terms)
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
    variable, 5000 at least.
    """
    candidates = _candidates(rows, settings)
    if len(candidates) == 1:
        return candidates[0]
    most = max(5000, 200 * rows.X.shape[1])
    if len(rows) > most:
        order = np.random.default_rng(settings.seed + 1).permutation(len(rows))[:most]
        rows = rows.take(np.sort(order))
    fold = np.random.default_rng(settings.seed).permutation(len(rows)) % 5
    folds = range(5 if len(rows) <= 2000 else 1)
    losses = Parallel(n_jobs=settings.n_jobs, prefer="threads")(
        delayed(_held_out)(name, rows, fold == held, given) for name, given in candidates for held in folds
    )
    each = np.array([np.concatenate(losses[k : k + len(folds)]) for k in range(0, len(losses), len(folds))])
    total = each.sum(axis=1)
    # below this share of the targets' variance differences are rounding
    rounding = 1e-16 * float(rows.weight.sum())
    best = int(np.argmax(total <= 1.01 * float(total.min()) + rounding))
    linear = candidates.index(_linear(settings))
    gain = each[linear] - each[best]
    if not beyond_noise(gain, errors=1) and not (best == 0 and total[0] <= total[linear] + rounding):
        best = linear
    return candidates[best]


def _linear(settings: Settings) -> tuple[str, Settings]:
    return "exact", replace(settings, degree=1)


def _candidates(rows: Rows, settings: Settings) -> list[tuple[str, Settings]]:
    """Solvers and settings that `auto` tries, the simplest first."""
    terms = count_terms(rows.X.shape[1], settings.degree)
    if terms > MOST_SPARSE_TERMS:
        return [("lowrank", settings)]
    found = [("sparse", settings)]
    if len(rows) < _FEWEST_JUDGED:
        return found
    found.append(_linear(settings))
    if len(rows) < 20:
        return found
    if len(rows) <= 2000 and settings.criterion == "ebic":
        found.append(("sparse", replace(settings, criterion="bic")))
    if rows.X.shape[1] > 1:
        found.append(("lowrank", settings))
    if settings.degree > 1 and terms <= _AUTO_EXACT_TERMS and (len(rows) <= 2000 or terms <= len(rows) // 3):
        found.append(("exact", settings))
    return found


def _held_out(solver: str, rows: Rows, held: NDArray[np.bool_], settings: Settings) -> Floats:
    """The loss at every held-out row, in variances of the targets."""
    inside, outside = rows.take(~held), rows.take(held)
    found = solve(solver, inside, settings)
    spread = np.maximum(rows.Y.var(axis=0), 1e-300)
    with np.errstate(over="ignore"):
        miss: Floats = (outside.Y - found.predict(outside.X)) ** 2 / spread
    return np.asarray(outside.weight * miss.mean(axis=1))
