r"""Least squares with few monomials: which terms, and what coefficients.

Forward selection (orthogonal least squares, the stronger form of orthogonal matching pursuit) adds
the term that lowers the residual sum of squares most, over *all* C(d + q, q) terms:

    gain_j = <phi_j, r>^2 / |phi_j - projection on the chosen|^2.

Correlations and norms of every term are updated from one column of the Gram matrix a step (a
pivoted Cholesky factorisation), and columns are computed on demand, several likely ones in one pass
over the data, so that neither Phi nor Phi'Phi is ever stored (`term_columns`). Where a state of the
rows is all there is, `fit_sparse_state` selects from that.

The number of terms k minimises the extended Bayesian information criterion (Chen & Chen 2008)

    n log(RSS / n) + k log n + 2 k log p,

then terms are removed backwards, always the one whose loss is least, as long as the criterion
falls; selection resumes from true residuals until the set is stable. The price of a term lets small
effects go: where a linear model of all variables is clearly better by leave-one-out, it is taken
instead. `criterion="holdout"` chooses
k by the cross-validated error instead: better for prediction where no small formula is true.

Powers are taken of x / rms(x), which keeps the monomials of the original variables, and also of
(x - mean) / std where the means matter; the lower criterion wins.

Limits: strongly correlated terms may be exchanged for each other, and the number of terms
that can be told from noise falls with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr, solve_triangular

from transformula.learn.solvers.beside_line import better_line
from transformula.learn.solvers.features import (
    Basis,
    Floats,
    all_terms,
    evaluate_some,
    power_basis,
)
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.penalty import JUDGES
from transformula.learn.solvers.term_columns import RowColumns, StateColumns, TermColumns

_LIKELY = 16  # terms whose columns may be wanted next
_COLLINEAR = 1e-9  # a term with less than this share of its variance outside the chosen is refused
_EXACT = 1e-26  # a share of the variance that is rounding: the criterion stops rewarding it


@dataclass(frozen=True)
class SparseFit:
    """A polynomial with few terms for each output.

    Attributes
    ----------
    basis : the powers used; `features.to_monomials` converts exactly.
    exponents : for each output, (k, d); row 0 is the constant.
    coefficients : for each output, (k,).
    criterion : for each output, the criterion reached.
    """

    basis: tuple[Basis, ...]
    exponents: tuple[NDArray[np.int8], ...]
    coefficients: tuple[Floats, ...]
    criterion: tuple[float, ...]

    def predict(self, X: Floats) -> Floats:
        """Evaluate the polynomials: (rows, outputs)."""
        triples = zip(self.exponents, self.basis, self.coefficients, strict=True)
        return np.column_stack([evaluate_some(e, b, X) @ c for e, b, c in triples])


def fit_sparse(
    X: Floats,
    Y: Floats,
    degree: int,
    *,
    weight: Floats | None = None,
    criterion: str = "ebic",
    max_terms: int | None = None,
    center: str = "auto",
    seed: int = 0,
) -> SparseFit:
    """Select monomials of degree at most `degree` and fit them by least squares.

    Parameters
    ----------
    X, Y : (rows, d) inputs and (rows, outputs) targets.
    weight : (rows,) non-negative sample weights.
    criterion : "ebic", "bic" or "holdout".
    max_terms : the most terms to select (default: a third of the rows, 200 at most).
    center : powers of "origin" (x), "mean" (x - mean), or "auto".
    seed : for the held-out rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> fit = fit_sparse(X, X[:, :1] ** 3 - 2 * X[:, 1:2] * X[:, 2:3], degree=3)
    >>> fit.exponents[0][1:].tolist()
    [[3, 0, 0, 0], [0, 1, 1, 0]]
    """
    w = np.ones(len(X)) if weight is None else weight * (np.count_nonzero(weight) / weight.sum())
    X, Y, w = X[w > 0], Y[w > 0], w[w > 0]
    limit = _limit(max_terms, len(X))
    terms = all_terms(X.shape[1], degree)
    best: list[_Found] = []
    for basis in _power_bases(X, w, degree, center):
        columns = RowColumns(terms, basis, X, w)
        found = []
        for y in Y.T:
            target = _centered(y, w)
            if criterion == "holdout":
                score, chosen = _select_by_holdout(columns, y, w, limit, seed)
            else:
                score, chosen = _select_by_price(columns, target, limit, _price(criterion, columns))
            mean = float((w @ y) / w.sum())
            found.append((score, basis, terms.exponents[[0, *chosen]], _coefficients(columns, chosen, target, mean)))
        best = _better(best, found)
    if criterion != "holdout" and max_terms is None and len(X) <= JUDGES:  # of more rows, all that matters is worth it
        best = [_or_line(one, X, y, w) for one, y in zip(best, Y.T, strict=True)]
    return _as_fit(best)


def fit_sparse_state(
    gram: Gram, X: Floats, weight: Floats, *, criterion: str = "ebic", max_terms: int | None = None
) -> SparseFit:
    """The same from the state of all terms; a sample of the rows says where they lie and how far they spread.

    ``criterion`` is "ebic" or "bic".
    """
    best: list[_Found] = []
    for basis in _power_bases(X, weight, gram.terms.degree, "auto"):
        columns = StateColumns(gram, basis)
        found = []
        for target, mean in zip(columns.targets.T, gram.mean.tolist(), strict=True):
            limit = _limit(max_terms, gram.rows)
            score, chosen = _select_by_price(columns, target, limit, _price(criterion, columns))
            slopes = _coefficients(columns, chosen, target, mean)
            found.append((score, basis, gram.terms.exponents[[0, *chosen]], slopes))
        best = _better(best, found)
    return _as_fit(best)


#: Criterion, basis, exponents (k, d) and coefficients (k,) for one output.
_Found = tuple[float, Basis, NDArray[np.int8], Floats]


def _limit(max_terms: int | None, rows: int) -> int:
    return max(1, min(200, rows // 3)) if max_terms is None else max_terms


def _price(criterion: str, columns: TermColumns) -> float:
    return log(columns.count) + (2.0 * log(len(columns.terms)) if criterion == "ebic" else 0.0)


def _better(best: list[_Found], found: list[_Found]) -> list[_Found]:
    return [min(one, other, key=_first) for one, other in zip(best, found, strict=True)] if best else found


def _as_fit(best: list[_Found]) -> SparseFit:
    score, basis, exponents, coefficients = zip(*best, strict=True)
    return SparseFit(basis, exponents, coefficients, score)


def _first(found: _Found) -> float:
    return found[0]


def _or_line(found: _Found, X: Floats, y: Floats, w: Floats) -> _Found:
    """What was selected, or the linear model where that is clearly better."""
    score, basis, exponents, _ = found
    line = better_line(evaluate_some(exponents, basis, X), X, y, w)
    return (score, line.basis, line.terms.exponents, line.coefficients[:, 0]) if line else found


def _power_bases(X: Floats, w: Floats, degree: int, center: str) -> list[Basis]:
    """Powers about the origin, about the mean, or about both where that may matter ("auto")."""
    mean = w @ X / w.sum()
    zero = np.zeros_like(mean)
    far = np.any(mean**2 > 0.01 * (w @ (X - mean) ** 2 / w.sum()))
    found = []
    for shift in {"origin": [zero], "mean": [mean], "auto": [zero, mean] if far else [zero]}[center]:
        square = w @ (X - shift) ** 2 / w.sum()
        found.append(power_basis(shift, 1.0 / np.sqrt(np.where(square > 0, square, 1.0)), degree))
    return found


def _centered(y: Floats, w: Floats) -> Floats:
    return np.asarray((y - (w @ y) / w.sum()) * np.sqrt(w))


def _forward(
    columns: TermColumns, residual: Floats, start: list[int], limit: int, price: float, patience: int
) -> list[int]:
    """Add terms to `start` while n log RSS + k price falls, or within `patience` steps."""
    n, total = columns.count, float(residual @ residual)
    correlation = columns.correlate(residual[:, None])[:, 0]
    free = (columns.inverse_norm > 0).astype(float)
    directions: list[Floats] = []
    chosen: list[int] = []
    rss, best, best_size = total, n * log(max(total, 1e-300)) + len(start) * price, len(start)

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
        elif len(chosen) - best_size >= patience:
            break
    return chosen[:best_size]


def _backward(columns: TermColumns, chosen: list[int], target: Floats, price: float) -> tuple[float, list[int], Floats]:
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


def _select_by_price(columns: TermColumns, target: Floats, limit: int, price: float) -> tuple[float, list[int]]:
    kept: list[int] = []
    score, residual = np.inf, target
    for _ in range(4):
        grown = _forward(columns, residual, kept, limit, price, patience=8)
        new_score, new_kept, residual = _backward(columns, grown, target, price)
        if new_score >= score - 1e-9 * abs(new_score) or set(new_kept) == set(kept):
            if new_score < score:
                score, kept = new_score, new_kept
            break
        score, kept = new_score, new_kept
    return score, kept


def _select_by_holdout(
    columns: RowColumns, y: Floats, w: Floats, limit: int, seed: int, folds: int = 5
) -> tuple[float, list[int]]:
    """Choose the path's length by the cross-validated error, then take that path on all rows."""
    fold = np.random.default_rng(seed).permutation(len(y)) % min(folds, len(y))
    errors: list[Floats] = []
    for held in range(min(folds, len(y)) if len(y) <= 20_000 else 1):
        inside, outside = fold != held, fold == held
        part = RowColumns(columns.terms, columns.basis, columns.X[inside], w[inside])
        path = _forward(part, _centered(y[inside], w[inside]), [], limit, 0.0, limit)
        error = [float(w[outside] @ (y[outside] - w[inside] @ y[inside] / w[inside].sum()) ** 2)]
        if path:  # one factorisation serves every length: the path is nested
            q, r = qr(part.values(path), mode="economic")
            right = q.T @ _centered(y[inside], w[inside])
            phi = evaluate_some(columns.terms.exponents[path], columns.basis, columns.X[outside])
            unit = (phi - part.mean[path]) * part.inverse_norm[path]
            steps = solve_triangular(r, unit.T, trans="T").T * right  # (held-out rows, path)
            miss = (y[outside] - w[inside] @ y[inside] / w[inside].sum())[:, None]
            miss = miss - np.cumsum(steps, axis=1)
            error += [float(e) for e in w[outside] @ miss**2]
        errors.append(np.array(error))
    shortest = min(map(len, errors))
    total = np.sum([e[:shortest] for e in errors], axis=0)
    size = int(np.argmin(total))
    path = _forward(columns, _centered(y, w), [], size, 0.0, patience=limit) if size else []
    return float(total[size]), path


def _coefficients(columns: TermColumns, chosen: list[int], target: Floats, mean: float) -> Floats:
    """Least squares on the chosen terms: the constant first, in the basis of `columns`."""
    if not chosen:
        return np.array([mean])
    slopes = lstsq(columns.values(chosen), target, check_finite=False)[0]
    slopes = slopes * columns.inverse_norm[chosen]
    return np.concatenate([[mean - columns.mean[chosen] @ slopes], slopes])
