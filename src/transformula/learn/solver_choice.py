"""The choice of a solver for a table, and one call for all closed forms."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.solvers.exact_fit import JUDGES, better_line, beyond_noise, fit_exact, leave_one_out_losses
from transformula.learn.solvers.features import count_terms
from transformula.learn.solvers.lowrank_fit import few_threads, fit_lowrank
from transformula.learn.solvers.polynomial_fit import PolynomialFit, RidgeForm
from transformula.learn.solvers.sparse_fit import fit_sparse
from transformula.learn.writing import Written

SOLVERS = ("auto", "exact", "sparse", "lowrank", "sgd", "adam")
#: Most terms for `exact`, the side of a square matrix: 1.8 GB.
MOST_EXACT_TERMS = 15_000
#: Most terms for `sparse`, which visits each a few times.
MOST_SPARSE_TERMS = 60_000
#: Most terms for which `auto` tries `exact`, and `lowrank` only beyond: below it changed no score.
_AUTO_EXACT_TERMS = 1_000
#: Fewest rows for which folds are large enough to judge by.
_FEWEST_JUDGED = 8
#: The ridge that takes the smallest coefficients of those that fit equally well.
_ALMOST_NOTHING = 1e-12
#: Most rows that say nothing about a curve.
_FEWEST_CURVED = 3
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
    indicators: tuple[int, ...] = ()


#: A solver and its settings.
Candidate = tuple[str, Settings]


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
    solution: PolynomialFit | RidgeForm
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


def solve(solver: str, rows: Rows, settings: Settings, line: bool = True) -> PolynomialFit:
    """Fit one closed-form solver; with ``line`` a linear model that is better replaces the terms of a sparse fit."""
    terms = count_terms(rows.X.shape[1], settings.degree, rows.indicators)
    if terms > _CEILINGS.get(solver, terms):
        raise ValueError(
            f"solver={solver!r} would handle all {terms} monomials of degree {settings.degree} in "
            f"{rows.X.shape[1]} variables; at most {_CEILINGS[solver]} fit: use solver='lowrank'"
        )
    with few_threads(rows.X.size * min(terms, 100)):
        if solver == "lowrank":
            return fit_lowrank(rows, settings.degree, rank=settings.rank, ridge=settings.ridge, seed=settings.seed)
        if solver == "sparse":
            found = fit_sparse(rows, settings.degree, criterion=settings.criterion, max_terms=settings.max_terms)
            if (
                line and settings.max_terms is None and len(rows) <= JUDGES
            ):  # of more rows, all that matters is worth it
                return better_line(found, rows) or found
            return found
        if len(rows) < terms and settings.ridge == 0:
            warnings.warn(
                f"{len(rows)} distinct rows for {terms} terms: the least-squares polynomial is not unique, "
                "and the one with the smallest coefficients is taken; give ridge > 0 or None, a lower degree "
                "or solver='sparse'",
                UserWarning,
                stacklevel=5,
            )
        return fit_exact(rows, settings.degree, settings.ridge)


def choose(rows: Rows, settings: Settings) -> Candidate:
    """The solver and the settings with the least held-out error.

    `sparse` competes with a linear model and, where there are few terms, with `exact`, otherwise with `lowrank`. A
    winner that is neither `sparse` as asked for nor clearly better than the linear model gives way to it.
    They are judged on 5 folds of the rows (4 of them, of more than 2000 rows): of 200 for each variable, 4000 at least,
    if there are more. Least squares leaves single rows out instead, in closed form, where all rows can judge. A
    candidate that falls behind sees no further folds.
    """
    candidates = _candidates(rows, settings)
    if len(candidates) == 1:
        return candidates[0]
    most = max(JUDGES, 200 * rows.X.shape[1])
    if len(rows) > most:
        order = np.random.default_rng(settings.seed + 1).permutation(len(rows))[:most]
        rows = rows.take(np.sort(order))
    fold = np.random.default_rng(settings.seed).permutation(len(rows)) % 5
    folds = [np.flatnonzero(fold == held) for held in range(5 if len(rows) <= 2000 else 4)]
    order = np.concatenate(folds)
    known = [_left_out(rows, one) for one in candidates]
    judged = {k: losses[order] for k, losses in enumerate(known) if losses is not None}
    return least_loss(candidates, folds, partial(_held_out, rows), judged)


def least_loss(
    candidates: Sequence[Candidate],
    folds: Sequence[NDArray[np.intp]],
    loss: Callable[[Candidate, NDArray[np.intp]], Floats],
    judged: dict[int, Floats],
) -> Candidate:
    """The candidate with the least loss on the folds, a linear model unless another one is clearly better.

    Parameters
    ----------
    candidates : the simplest first; one of them is linear.
    folds : rows that are held out together.
    loss : the loss of a candidate at each row of a fold.
    judged : the losses at all rows, fold after fold, where they are known.
    """
    parts: dict[int, list[Floats]] = {k: [] for k in range(len(candidates)) if k not in judged}
    waiting, seen, rows = list(parts), 0, sum(map(len, folds))
    for held in folds:
        for k in waiting:
            parts[k].append(loss(candidates[k], held))
        seen += len(held)
        so_far = {k: losses[:seen] for k, losses in judged.items()} | {k: np.concatenate(parts[k]) for k in waiting}
        if seen < rows and len(clear := _promising(so_far, errors=3)) == 1:
            return candidates[clear[0]]
        waiting = [k for k in _promising(so_far, errors=1) if k in waiting]
        waiting = [k for k in waiting if candidates[k][0] != "lowrank" or k == _least(so_far)]  # costly
    total = {k: float(losses.sum()) for k, losses in so_far.items()}
    rounding = 1e-16 * rows
    best = min(k for k, one in total.items() if one <= min(total.values()) + rounding)
    linear = next(k for k, (solver, settings) in enumerate(candidates) if (solver, settings.degree) == ("exact", 1))
    if linear not in total or (best == 0 and total[0] <= total[linear] + rounding):
        return candidates[best]
    return candidates[best if beyond_noise(so_far[linear] - so_far[best], errors=1) else linear]


def _least(found: dict[int, Floats]) -> int:
    return min(found, key=lambda k: float(found[k].sum()))


def _promising(found: dict[int, Floats], errors: int) -> list[int]:
    """Candidates that may still win: none that are 5 % and some standard errors behind the best so far."""
    best = found[_least(found)]
    return [k for k, one in found.items() if one.sum() <= 1.05 * best.sum() or not beyond_noise(one - best, errors)]


def _left_out(rows: Rows, candidate: Candidate) -> Floats | None:
    """Losses of least squares at every row, without that row, in variances of the targets; None where not known."""
    solver, settings = candidate
    if solver != "exact" or settings.ridge is not None:
        return None
    with few_threads(rows.X.size):
        losses = leave_one_out_losses(rows, settings.degree)
    return None if losses is None else losses * float(rows.weight.sum())


def _linear(settings: Settings) -> Candidate:
    return "exact", replace(settings, degree=1)


def _candidates(rows: Rows, settings: Settings) -> list[Candidate]:
    """Solvers and settings that `auto` tries, the simplest first."""
    terms = count_terms(rows.X.shape[1], settings.degree, rows.indicators)
    if terms > MOST_SPARSE_TERMS:
        return [("lowrank", settings)]
    found = [("sparse", settings)]
    if len(rows) < _FEWEST_JUDGED:
        if rows.weight.min() >= 2:  # no noise in what was seen several times: nothing is shrunk
            degrees = [replace(settings, degree=k, ridge=_ALMOST_NOTHING) for k in range(1, settings.degree + 1)]
            return [("exact", next((one for one in degrees if _reproduces(rows, one)), degrees[-1]))]
        return found if len(rows) > _FEWEST_CURVED else [_linear(settings)]
    found.append(_linear(settings))
    if len(rows) < 20:
        return found
    if terms > _AUTO_EXACT_TERMS:
        return [*found, ("lowrank", settings)]
    return (
        [*found, ("exact", settings)]
        if settings.degree > 1 and (len(rows) <= 2000 or 3 * terms <= len(rows))
        else found
    )


def _reproduces(rows: Rows, settings: Settings) -> bool:
    """Whether least squares gives the targets of the rows themselves, up to rounding."""
    missed = solve("exact", rows, settings).predict(rows.X) - rows.Y
    return bool((np.abs(missed).max(axis=0) <= 1e-9 * np.abs(rows.Y).max(axis=0)).all())


def _held_out(rows: Rows, candidate: Candidate, held: NDArray[np.intp]) -> Floats:
    """The loss at every held-out row, in variances of the targets."""
    inside, outside = rows.without(held), rows.take(held)
    spread = np.maximum(rows.Y.var(axis=0), 1e-300)
    with np.errstate(over="ignore"):
        miss: Floats = (
            outside.Y - solve(candidate[0], inside, candidate[1], line=False).predict(outside.X)
        ) ** 2 / spread
    return np.asarray(outside.weight * miss.mean(axis=1))
