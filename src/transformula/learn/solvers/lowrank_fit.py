r"""Polynomials of many variables that depend on few directions.

    y = P(xi_1.x, ..., xi_r.x) + noise,      P of degree q,  r << d,

is learned where the C(d + q, q) monomials cannot even be stored. A sum of r ridge functions, a
sum of products of linear forms and a third-order factorisation machine are all of this form, and
`ridgefit.fit_ridges` writes the result as Fang's model, a sum of univariate polynomials of ridge
directions.

1. *Whiten* the inputs.
2. *Grow.* The moment of the residuals (`subspace.gradient_moment`) proposes directions, as many
   as stand above its noise; Gauss-Newton (`gaussnewton`) fits all directions together; repeat while
   the error on held-out rows falls. Each round sees less noise, since what is explained is removed.
   Where the moment proposes nothing useful, random directions are tried.
3. *Prune.* The directions least used by the fitted gradient leave while the held-out error allows.
4. *Regularise* by the held-out error, and *refit* everything on all rows.

Fitting any polynomial of the directions, instead of a sum of ridge functions at once, is what
removes the local minima: the row space is all that is searched for, and the rest is linear.

Statistical limit: about noise^2 * (C(r + q, q) + r (d - r)) / n, once n is large enough to see
the directions at all (of the order of d^1.5 for a purely cubic target, d for a linear or quadratic
part).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from transformula.learn.solvers.features import Floats, Terms, count_terms
from transformula.learn.solvers.gaussnewton import (
    Problem,
    State,
    gauss_newton,
    predict_directions,
    solve_linear,
)
from transformula.learn.solvers.subspace import (
    Derivative,
    gradient_moment,
    leading_directions,
    product_terms,
)

MOST_ENTRIES = 2**25  # of a feature matrix: 256 MiB
_FEWEST_ROWS = 5  # with fewer, the mean is all that is fitted
_GROWTH_RIDGES = (1e-6, 1e-2, 1e-1)  # the first for large data; all are tried on small data
_RIDGES = (1e-10, 1e-6, 1e-4, 1e-2, 3e-2, 1e-1, 1.0)
#: A penalty moves standardised targets by about its own size: mean squared errors below this multiple of its square
#: say nothing about the directions.
_BIAS = 10.0


@dataclass(frozen=True)
class LowRankFit:
    """A polynomial of r linear forms: y = sum_alpha C_alpha h_alpha(directions (x - center)).

    Attributes
    ----------
    center, directions : (d,) and (r, d); the forms have unit variance on the training rows.
    terms : the Hermite products used; coefficients : (p, outputs).
    history : (rank, held-out mean squared error in units of the targets' variance) as the fit grew.
    """

    center: Floats
    directions: Floats
    terms: Terms
    coefficients: Floats
    history: tuple[tuple[int, float], ...]

    def predict(self, X: Floats) -> Floats:
        """Evaluate the polynomial: (rows, outputs)."""
        return predict_directions(self.terms, self.directions, self.coefficients, X - self.center)


@dataclass(frozen=True)
class _Split:
    """Training rows with the rows that judge."""

    train: Problem
    Z: Floats
    Y: Floats
    weight: Floats

    def error(self, terms: Terms, state: State) -> float:
        miss = self.Y - predict_directions(terms, state.W, state.C, self.Z)
        return float(np.average(np.sum(miss**2, axis=1), weights=self.weight))

    @property
    def bias(self) -> float:
        """The mean squared error that the penalty alone explains."""
        return float(_BIAS * self.train.ridge**2)


def fit_lowrank(
    X: Floats,
    Y: Floats,
    degree: int,
    *,
    rank: int | None = None,
    max_rank: int | None = None,
    weight: Floats | None = None,
    ridge: float | None = None,
    validation: float = 0.2,
    max_steps: int = 30,
    seed: int = 0,
) -> LowRankFit:
    """Learn a polynomial of few linear forms.

    Parameters
    ----------
    X, Y : (rows, d) inputs and (rows, outputs) targets; outputs share their directions.
    rank : the number of directions; chosen by the held-out error where None.
    max_rank : the most directions to try (default: what the rows and the memory allow).
    weight : (rows,) non-negative sample weights.
    ridge : penalty on squared Hermite coefficients of the standardised targets (default: held out).
    validation : the share of rows held out while choosing; all rows are used in the end.
    max_steps : Gauss-Newton steps a fit.
    seed : for the held-out rows and random directions.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(2000, 20))
    >>> w = np.ones(20) / 20**0.5
    >>> fit = fit_lowrank(X, (X @ w)[:, None] ** 3, degree=3)
    >>> len(fit.directions)
    1
    """
    with few_threads(X.size):
        return _fit_lowrank(X, Y, degree, rank, max_rank, weight, ridge, validation, max_steps, seed)


def few_threads(entries: int) -> AbstractContextManager[object]:
    """One BLAS thread for small data: on a busy machine two wait for each other far longer."""
    return threadpool_limits(limits=1) if entries < 2 * 10**6 else nullcontext()


def _fit_lowrank(
    X: Floats,
    Y: Floats,
    degree: int,
    rank: int | None,
    max_rank: int | None,
    weight: Floats | None,
    ridge: float | None,
    validation: float,
    max_steps: int,
    seed: int,
) -> LowRankFit:
    """See `fit_lowrank`."""
    rng = np.random.default_rng(seed)
    w = np.ones(len(X)) if weight is None else weight * (np.count_nonzero(weight) / weight.sum())
    used = np.flatnonzero(w > 0)[rng.permutation(np.count_nonzero(w))]
    X, Y, w = X[used], Y[used], w[used]
    center, whiten = whitening(X, w)
    Z = (X - center) @ whiten
    offset = np.average(Y, axis=0, weights=w)
    spread = np.sqrt(np.average((Y - offset) ** 2, axis=0, weights=w))
    scale = np.where(spread > 0, spread, 1.0) * np.sqrt(Y.shape[1])
    targets = (Y - offset) / scale
    if len(Z) < _FEWEST_ROWS or Z.shape[1] == 0 or not spread.any():
        nothing = product_terms(0, degree)
        return LowRankFit(center, np.zeros((0, X.shape[1])), nothing, offset[None], ())
    penalties = (ridge,) if ridge is not None else _GROWTH_RIDGES[: 3 if len(Z) < 5000 else 1]
    found = []
    for penalty in penalties:
        split = _split(Z, targets, w, validation, penalty)
        limit = _rank_limit(split, degree, rank if rank is not None else max_rank)
        state, history = _grow(split, degree, limit, rank, max_steps, rng)
        if rank is None:
            state = _prune(split, degree, state, history)
        found.append((history[-1][1], split, state, history))
    _, split, state, history = min(found, key=lambda item: item[0])
    terms = product_terms(len(state.W), degree)
    if ridge is None:
        split.train.ridge = _choose_ridge(split, terms, state)
    rows = min(len(Z), MOST_ENTRIES // len(terms))
    everything = Problem(Z[:rows], targets[:rows], np.sqrt(w[:rows]), split.train.ridge)
    state = gauss_newton(everything, terms, state.W, max_steps=max_steps)
    coefficients = state.C * scale
    coefficients[0] += offset
    return LowRankFit(center, state.W @ whiten.T, terms, coefficients, tuple(history))


def whitening(X: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Find the centre and the (d, d') map to uncorrelated coordinates of about unit variance.

    Directions without variance are left out; very small variances are not blown up to one.
    """
    center = np.average(X, axis=0, weights=weight)
    centered = X - center
    spread = np.sqrt(np.average(centered**2, axis=0, weights=weight))
    constant = spread <= 1e-12 * np.maximum(np.abs(center), 1e-300)
    inverse = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, spread))
    centered *= inverse
    values, vectors = eigh((centered.T * weight) @ centered / weight.sum())
    keep = values > 1e-9 * max(values[-1], 1e-300)
    values, vectors = values[keep], vectors[:, keep]
    floor = values.sum() / len(X)
    return center, inverse[:, None] * vectors / np.sqrt(values + floor)


def _split(Z: Floats, Y: Floats, w: Floats, share: float, ridge: float) -> _Split:
    held = min(max(1, int(share * len(Z))), len(Z) - 1)
    train = Problem(Z[held:], Y[held:], np.sqrt(w[held:]), ridge)
    return _Split(train, Z[:held], Y[:held], w[:held])


def _rank_limit(split: _Split, degree: int, asked: int | None) -> int:
    """The most directions whose polynomial fits the rows and the memory."""
    rows, d = len(split.train.Z), int(split.train.Z.shape[1])
    if asked is not None:
        return min(asked, d)
    limit = 1
    while limit < d and count_terms(limit + 1, degree) <= min(rows // 3, 2000) and (limit + 1) * d <= rows // 2:
        limit += 1
    return limit


def _fit(split: _Split, degree: int, W: Floats, max_steps: int) -> tuple[float, State]:
    """Fit from the given directions on as many training rows as memory allows; judge it."""
    terms = product_terms(len(W), degree)
    rows = MOST_ENTRIES // len(terms)
    full = split.train
    part = Problem(full.Z[:rows], full.Y[:rows], full.root[:rows], full.ridge)
    state = gauss_newton(part, terms, W, max_steps=max_steps, tolerance=0.02)
    return split.error(terms, state), state


def _grow(
    split: _Split,
    degree: int,
    limit: int,
    rank: int | None,
    max_steps: int,
    rng: np.random.Generator,
) -> tuple[State, list[tuple[int, float]]]:
    """Add directions while the held-out error falls (or up to the given rank)."""
    d = split.train.Z.shape[1]
    error, state = _fit(split, degree, np.zeros((0, d)), 0)
    history = [(0, error)]
    while len(state.W) < limit and (error > split.bias or rank is not None):
        residual = split.train.Y - predict_directions(
            product_terms(len(state.W), degree), state.W, state.C, split.train.Z
        )
        moment = gradient_moment(split.train.Z, residual * split.train.root[:, None])
        proposals, significant = leading_directions(moment, state.W)
        room = limit - len(state.W)
        counts = sorted({min(max(1, c), room) for c in (significant, 1)}, reverse=True)
        starts = [proposals[:c] for c in counts]
        if significant <= 1:
            starts.append(rng.normal(size=(min(2, room), d)))
        best = np.inf
        for start in starts:
            trial = _fit(split, degree, np.vstack([state.W, start]), min(max_steps, 8))
            if trial[0] < best:
                best, new = trial
            if best < 0.5 * error or rank is not None:
                break
        if best > 0.99 * error and rank is None:
            break
        history.append((len(new.W), best))
        error, state = best, new
    return state, history


def _prune(split: _Split, degree: int, state: State, history: list[tuple[int, float]]) -> State:
    """Drop the directions that the fitted gradient uses least, while the held-out error allows."""
    error = history[-1][1]
    while len(state.W) > 1:
        terms = product_terms(len(state.W), degree)
        slopes = Derivative(terms)(state.C).reshape(len(terms), -1)
        gradient = (state.phi.T @ slopes).reshape(-1, len(state.W))
        axes = eigh(gradient.T @ gradient)[1][:, 1:]
        new_error, new = _fit(split, degree, axes.T @ state.W, 5)
        if new_error > max(1.005 * error, split.bias):
            break
        error, state = min(error, new_error), new
        history.append((len(state.W), new_error))
    return state


def _choose_ridge(split: _Split, terms: Terms, state: State) -> float:
    """Pick the penalty with the least held-out error for the directions found."""
    rows = MOST_ENTRIES // len(terms)
    full = split.train
    errors = []
    for ridge in _RIDGES:
        part = Problem(full.Z[:rows], full.Y[:rows], full.root[:rows], ridge)
        errors.append(split.error(terms, solve_linear(part, terms, state.W)))
    return float(_RIDGES[int(np.argmin(errors))])
