r"""Least squares with few monomials: which terms, and what coefficients.

Forward selection (orthogonal least squares, the stronger form of orthogonal matching pursuit) adds
the term that lowers the residual sum of squares most, over *all* C(d + q, q) terms:

    gain_j = <phi_j, r>^2 / |phi_j - projection on the chosen|^2.

Correlations and norms of every term are updated from one column of the Gram matrix a step (a
pivoted Cholesky factorisation), and columns are computed on demand, several likely ones in one pass
over the data, so that neither Phi nor Phi'Phi is ever stored (`RowColumns`).

The number of terms k minimises the extended Bayesian information criterion (Chen & Chen 2008)

    n log(RSS / n) + k log n + 2 k log p,

then terms are removed backwards, always the one whose loss is least, as long as the criterion
falls; selection resumes from true residuals until the set is stable. The price of a term lets small
effects go: see `exact_fit.better_line`.

Powers are taken of x / rms(x), which keeps the monomials of the original variables, and also of
(x - mean) / std where the means matter; the lower criterion wins.

Limits: strongly correlated terms may be exchanged for each other, and the number of terms
that can be told from noise falls with the number of rows.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr, solve_triangular

from transformula.learn.distinct_rows import Rows
from transformula.learn.solvers.features import (
    Basis,
    Floats,
    Terms,
    all_terms,
    blocks,
    evaluate_terms,
    power_basis,
)
from transformula.learn.solvers.polynomial_fit import PolynomialFit

#: Numbers in a feature matrix that is kept: 32 MiB.
_MOST_KEPT = 2**22
#: Columns of the Gram matrix that one pass over the rows computes.
_COLUMNS_A_PASS = 16
#: Terms whose columns may be wanted next.
_LIKELY = 16
#: Share of its variance outside the chosen terms below which a term is refused.
_COLLINEAR = 1e-9
#: Share of the variance that is rounding: the criterion stops rewarding it.
_EXACT = 1e-26
#: Terms that may be added without lowering the criterion.
_PATIENCE = 8


def fit_sparse(
    rows: Rows, degree: int, *, criterion: str = "ebic", max_terms: int | None = None, center: str = "auto"
) -> PolynomialFit:
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
    >>> fit.terms.exponents[1:].tolist()
    [[3, 0, 0, 0], [0, 1, 1, 0]]
    """
    rows = replace(rows, weight=rows.unit_weight)
    limit = max(1, min(200, len(rows) // 3)) if max_terms is None else max_terms
    terms = all_terms(rows.X.shape[1], degree, rows.indicators)
    bases = _power_bases(rows, degree, center)
    return min((_selected(RowColumns(terms, one, rows), criterion, limit) for one in bases), key=lambda one: one[0])[1]


def _selected(columns: RowColumns, criterion: str, limit: int) -> tuple[float, PolynomialFit]:
    """Terms and coefficients for every output, and the sum of the criteria they reach."""
    price = log(columns.count) + (2.0 * log(len(columns.terms)) if criterion == "ebic" else 0.0)
    coefficients = np.zeros((len(columns.terms), columns.targets.shape[1]))
    total = 0.0
    for output, target in enumerate(columns.targets.T):
        score, chosen = _select_by_price(columns, target, limit, price)
        total += score
        coefficients[0, output] = mean = columns.target_means[output]
        if chosen:
            slopes = lstsq(columns.values(chosen), target, check_finite=False)[0] * columns.inverse_norm[chosen]
            coefficients[chosen, output] = slopes
            coefficients[0, output] = mean - columns.mean[chosen] @ slopes
    used = np.flatnonzero(coefficients.any(axis=1) | (np.arange(len(coefficients)) == 0))
    return total, PolynomialFit(columns.terms.few(used), columns.basis, coefficients[used])


def _power_bases(rows: Rows, degree: int, center: str) -> list[Basis]:
    """Powers about the mean, or also about the origin where that may matter ("auto")."""
    X, w = rows.X, rows.weight
    mean = w @ X / w.sum()
    shifts = [mean]
    if center == "auto":
        far = np.any(mean**2 > 0.01 * (w @ (X - mean) ** 2 / w.sum()))
        shifts = [np.zeros_like(mean), mean] if far else [np.zeros_like(mean)]
    squares = [w @ (X - shift) ** 2 / w.sum() for shift in shifts]
    scales = [1.0 / np.sqrt(np.where(square > 0, square, 1.0)) for square in squares]
    return [power_basis(shift, scale, degree) for shift, scale in zip(shifts, scales, strict=True)]


class RowColumns:
    """Unit columns of all terms, reached through blocked passes and a cache, so that none but the chosen are stored.

    Those of the constant and of terms without variance are zero and never chosen. ``targets`` are centred.
    """

    def __init__(self, terms: Terms, basis: Basis, rows: Rows) -> None:
        self.terms = terms
        self.basis = basis
        self.rows = rows
        self.count = len(rows)
        self.root = np.sqrt(rows.weight)
        self.target_means = rows.mean
        self.targets = (rows.Y - rows.mean) * self.root[:, None]
        total = rows.weight.sum()
        self._kept = evaluate_terms(terms, basis, rows.X) if len(terms) * len(rows) <= _MOST_KEPT else None
        first, second = np.zeros(len(terms)), np.zeros(len(terms))
        for some in blocks(len(rows), len(terms)):
            phi = self._features(some)
            first += phi @ rows.weight[some]
            second += phi**2 @ rows.weight[some]
        self.mean = first / total
        self.inverse_norm = _inverse_norm(second - total * self.mean**2, second)
        self._cache: dict[int, Floats] = {}

    def _features(self, some: slice) -> Floats:
        """All terms at some rows: (p, rows)."""
        if self._kept is not None:
            return self._kept[:, some]
        return evaluate_terms(self.terms, self.basis, self.rows.X[some])

    def values(self, chosen: list[int]) -> Floats:
        """The chosen columns themselves: (rows, k)."""
        phi = evaluate_terms(self.terms.few(chosen), self.basis, self.rows.X).T
        unit = (phi - self.mean[chosen]) * self.inverse_norm[chosen]
        return np.asarray(unit * self.root[:, None])

    def correlate(self, V: Floats) -> Floats:
        """Inner products of every column with the columns of V (rows, m), which sqrt(w) annuls."""
        out = np.zeros((len(self.terms), V.shape[1]))
        weighted = V * self.root[:, None]
        for rows in blocks(self.count, len(self.terms)):
            out += self._features(rows) @ weighted[rows]
        out -= self.mean[:, None] * weighted.sum(axis=0)
        return np.asarray(out * self.inverse_norm[:, None])

    def gram(self, j: int, likely: NDArray[np.intp]) -> Floats:
        """Column j of the Gram matrix; a miss computes the likely next ones in the same pass."""
        if j not in self._cache:
            wanted = [j] + [int(i) for i in likely if i != j]
            wanted = [i for i in wanted if i not in self._cache][:_COLUMNS_A_PASS]
            for i, column in zip(wanted, self.correlate(self.values(wanted)).T, strict=True):
                self._cache[i] = np.ascontiguousarray(column)
        return self._cache[j]


def _inverse_norm(variance: Floats, second: Floats) -> Floats:
    usable = variance > 1e-12 * second
    usable[0] = False
    return np.asarray(np.where(usable, 1.0, 0.0) / np.sqrt(np.where(usable, variance, 1.0)))


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
