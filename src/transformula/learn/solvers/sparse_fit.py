r"""Least squares with few monomials: which terms, and what coefficients.

Forward selection (orthogonal least squares, the stronger form of orthogonal matching pursuit) adds
the term that lowers the residual sum of squares most, over *all* C(d + q, q) terms:

    gain_j = <phi_j, r>^2 / |phi_j - projection on the chosen|^2.

Correlations and norms of every term are updated from one column of the Gram matrix a step (a
pivoted Cholesky factorisation), and columns are computed on demand, several likely ones in one pass
over the data, so that neither Phi nor Phi'Phi is ever stored (`term_columns`). Of a table in parts a sample
selects, and all rows give the coefficients (`equations`).

The number of terms k minimises the extended Bayesian information criterion (Chen & Chen 2008)

    n log(RSS / n) + k log n + 2 k log p,

then terms are removed backwards, always the one whose loss is least, as long as the criterion
falls; selection resumes from true residuals until the set is stable. The price of a term lets small
effects go: where a linear model of all variables is clearly better by leave-one-out, it is taken
instead.

Powers are taken of x / rms(x), which keeps the monomials of the original variables, and also of
(x - mean) / std where the means matter; the lower criterion wins.

Limits: strongly correlated terms may be exchanged for each other, and the number of terms
that can be told from noise falls with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr, solve_triangular

from transformula.learn.distinct_rows import Rows
from transformula.learn.solvers.exact_fit import JUDGES, better_line
from transformula.learn.solvers.features import (
    Basis,
    Floats,
    MonomialSum,
    all_terms,
    evaluate_some,
    power_basis,
    to_monomials,
)
from transformula.learn.solvers.term_columns import RowColumns

#: Terms whose columns may be wanted next.
_LIKELY = 16
#: Share of its variance outside the chosen terms below which a term is refused.
_COLLINEAR = 1e-9
#: Share of the variance that is rounding: the criterion stops rewarding it.
_EXACT = 1e-26
#: Terms that may be added without lowering the criterion.
_PATIENCE = 8


@dataclass(frozen=True)
class SparseFit:
    """A polynomial with few terms for each output.

    Attributes
    ----------
    basis : for each output, the powers used.
    exponents : for each output, (k, d); row 0 is the constant.
    coefficients : for each output, (k,).
    """

    basis: tuple[Basis, ...]
    exponents: tuple[NDArray[np.int8], ...]
    coefficients: tuple[Floats, ...]

    def predict(self, X: Floats) -> Floats:
        """Evaluate the polynomials: (rows, outputs)."""
        triples = zip(self.exponents, self.basis, self.coefficients, strict=True)
        return np.column_stack([evaluate_some(e, b, X) @ c for e, b, c in triples])

    @property
    def n_terms(self) -> int:
        """Number of coefficients."""
        return sum(map(len, self.coefficients))

    @property
    def degree(self) -> int:
        """The degree of the polynomials, at most the one asked for."""
        return max(int(one.sum(axis=1, dtype=np.int64).max(initial=0)) for one in self.exponents)

    def exact(self) -> MonomialSum:
        """The polynomials in rational arithmetic."""
        return MonomialSum(tuple(map(to_monomials, self.exponents, self.coefficients, self.basis)))


def fit_sparse(
    rows: Rows,
    degree: int,
    *,
    criterion: str = "ebic",
    max_terms: int | None = None,
    center: str = "auto",
) -> SparseFit:
    """Select monomials of degree at most `degree` and fit them by least squares.

    Parameters
    ----------
    criterion : "ebic" or "bic", which charges less for a term.
    max_terms : the most terms to select (default: a third of the rows, 200 at most).
    center : powers of (x - mean) ("mean"), or also of x ("auto").

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> fit = fit_sparse(Rows.of(X, X[:, :1] ** 3 - 2 * X[:, 1:2] * X[:, 2:3]), degree=3)
    >>> fit.exponents[0][1:].tolist()
    [[3, 0, 0, 0], [0, 1, 1, 0]]
    """
    rows = replace(rows, weight=rows.unit_weight)
    limit = _limit(max_terms, len(rows))
    terms = all_terms(rows.X.shape[1], degree, rows.indicators)
    best: list[_Selection] = []
    for basis in power_bases(rows, degree, center):
        best = _better(best, _selections(RowColumns(terms, basis, rows), criterion, limit))
    if max_terms is None and len(rows) <= JUDGES:  # of more rows, all that matters is worth it
        best = [one.or_line(rows.with_targets(y[:, None])) for one, y in zip(best, rows.Y.T, strict=True)]
    return _as_fit(best)


def equations(fit: SparseFit, X: Floats, Y: Floats, weight: Floats | None) -> Floats:
    """For each output Phi' W (Phi, Y - Phi c), one after the other; those of several parts of the rows add up."""
    found = []
    for output, (exponents, basis, c) in enumerate(zip(fit.exponents, fit.basis, fit.coefficients, strict=True)):
        phi = evaluate_some(exponents, basis, X)
        weighted = phi if weight is None else phi * weight[:, None]
        found.append((weighted.T @ np.column_stack([phi, Y[:, output] - phi @ c])).ravel())
    return np.concatenate(found)


def corrected(fit: SparseFit, total: Floats) -> SparseFit:
    """The fit with the coefficients of least squares on all rows, from the sum of their `equations`."""
    ends = np.cumsum([len(c) * (len(c) + 1) for c in fit.coefficients])
    tables = [one.reshape(-1, len(c) + 1) for one, c in zip(np.split(total, ends), fit.coefficients, strict=False)]
    moves = [lstsq(one[:, :-1], one[:, -1], check_finite=False)[0] for one in tables]
    return replace(fit, coefficients=tuple(c + move for c, move in zip(fit.coefficients, moves, strict=True)))


@dataclass(frozen=True)
class _Selection:
    """Terms for one output: exponents (k, d) and coefficients (k,), and the criterion they reach."""

    score: float
    basis: Basis
    exponents: NDArray[np.int8]
    coefficients: Floats

    def or_line(self, rows: Rows) -> _Selection:
        """This selection, or the linear model where that is clearly better."""
        line = better_line(evaluate_some(self.exponents, self.basis, rows.X), rows)
        if line is None:
            return self
        return _Selection(self.score, line.basis, line.terms.exponents, line.coefficients[:, 0])


def _selections(columns: RowColumns, criterion: str, limit: int) -> list[_Selection]:
    """Select terms for every output."""
    found = []
    price = log(columns.count) + (2.0 * log(len(columns.terms)) if criterion == "ebic" else 0.0)
    for output, target in enumerate(columns.targets.T):
        score, chosen = _select_by_price(columns, target, limit, price)
        coefficients = _coefficients(columns, chosen, target, float(columns.target_means[output]))
        found.append(_Selection(score, columns.basis, columns.terms.exponents[[0, *chosen]], coefficients))
    return found


def _limit(max_terms: int | None, rows: int) -> int:
    return max(1, min(200, rows // 3)) if max_terms is None else max_terms


def _better(best: list[_Selection], found: list[_Selection]) -> list[_Selection]:
    if not best:
        return found
    return [min(pair, key=lambda one: one.score) for pair in zip(best, found, strict=True)]


def _as_fit(best: list[_Selection]) -> SparseFit:
    return SparseFit(
        tuple(one.basis for one in best),
        tuple(one.exponents for one in best),
        tuple(one.coefficients for one in best),
    )


def power_bases(rows: Rows, degree: int, center: str) -> list[Basis]:
    """Powers about the mean, or also about the origin where that may matter ("auto")."""
    X, w = rows.X, rows.weight
    mean = w @ X / w.sum()
    shifts = [mean]
    if center == "auto":
        far = np.any(mean**2 > 0.01 * (w @ (X - mean) ** 2 / w.sum()))
        shifts = [np.zeros_like(mean), mean] if far else [np.zeros_like(mean)]
    found = []
    for shift in shifts:
        square = w @ (X - shift) ** 2 / w.sum()
        found.append(power_basis(shift, 1.0 / np.sqrt(np.where(square > 0, square, 1.0)), degree))
    return found


def _forward(columns: RowColumns, residual: Floats, start: list[int], limit: int, price: float) -> list[int]:
    """Add terms to `start` while n log RSS + k price falls, or within a few steps."""
    n = columns.count
    total = float(residual @ residual)
    correlation = columns.correlate(residual[:, None])[:, 0]
    free = (columns.inverse_norm > 0).astype(float)
    directions: list[Floats] = []
    chosen: list[int] = []
    rss = total
    best = n * log(max(total, 1e-300)) + len(start) * price
    best_size = len(start)
    while len(chosen) < limit and total > 0:
        gain = np.where(free > _COLLINEAR, correlation**2 / np.maximum(free, _COLLINEAR), 0.0)
        forced = len(chosen) < len(start)
        j = start[len(chosen)] if forced else int(np.argmax(gain))
        if not forced and (gain[j] <= 1e-13 * total or rss <= 1e-11 * total):
            break
        likely = np.argpartition(-gain, min(_LIKELY, len(gain) - 1))[:_LIKELY]
        direction = columns.gram(j, likely).copy()
        for old in directions:
            direction -= old[j] * old
        direction /= np.sqrt(max(free[j], _COLLINEAR))
        step = correlation[j] / np.sqrt(max(free[j], _COLLINEAR))
        correlation -= step * direction
        free = np.maximum(free - direction**2, 0.0)
        free[j] = 0.0
        directions.append(direction)
        chosen.append(j)
        rss = max(rss - step**2, 1e-16 * total)
        value = n * log(rss) + len(chosen) * price
        if value < best or len(chosen) <= len(start):
            best, best_size = value, len(chosen)
        elif len(chosen) - best_size >= _PATIENCE:
            break
    return chosen[:best_size]


def _backward(columns: RowColumns, chosen: list[int], target: Floats, price: float) -> tuple[float, list[int], Floats]:
    """Drop the least useful terms while the criterion falls; also returns the residual."""
    n, kept = columns.count, list(chosen)
    floor = _EXACT * max(float(target @ target), 1e-300)
    while kept:
        values = columns.values(kept)
        q, r = qr(values, mode="economic")
        coefficients = solve_triangular(r, q.T @ target)
        residual = target - values @ coefficients
        rss = max(float(residual @ residual), floor)
        inverse = solve_triangular(r, np.eye(len(kept)))
        loss = coefficients**2 / np.sum(inverse**2, axis=1)
        change = n * np.log1p(loss / rss) - price
        least = int(np.argmin(change))
        if change[least] >= 0:
            return n * log(rss / n) + len(kept) * price, kept, residual
        # Several clearly useless terms leave together; doubtful ones one at a time.
        useless = {kept[i] for i in np.flatnonzero(change < -0.9 * price)} or {kept[least]}
        kept = [j for j in kept if j not in useless]
    return n * log(max(float(target @ target), 1e-300) / n), [], target


def _select_by_price(columns: RowColumns, target: Floats, limit: int, price: float) -> tuple[float, list[int]]:
    kept: list[int] = []
    score, residual = np.inf, target
    for _ in range(4):
        grown = _forward(columns, residual, kept, limit, price)
        new_score, new_kept, residual = _backward(columns, grown, target, price)
        if new_score >= score - 1e-9 * abs(new_score) or set(new_kept) == set(kept):
            if new_score < score:
                score, kept = new_score, new_kept
            break
        score, kept = new_score, new_kept
    return score, kept


def _coefficients(columns: RowColumns, chosen: list[int], target: Floats, mean: float) -> Floats:
    """Least squares on the chosen terms: the constant first, in the basis of `columns`."""
    if not chosen:
        return np.array([mean])
    slopes = lstsq(columns.values(chosen), target, check_finite=False)[0]
    slopes = slopes * columns.inverse_norm[chosen]
    return np.concatenate([[mean - columns.mean[chosen] @ slopes], slopes])
