r"""Least squares in the whole space of polynomials of degree q.

With Phi the (rows x p) matrix of product-orthonormal features (see `features`), the solution of

    min_c  sum_r w_r |y_r - phi(x_r).c|^2 + W sum_alpha penalty_alpha |c_alpha|^2,  W = sum_r w_r

is found from G = Phi' W Phi and Phi' W y, both accumulated over blocks of rows by BLAS `syrk`; Phi
is never stored. Normal equations square the condition number, so (i) the basis is orthonormal for
each feature, which leaves G near the identity for roughly independent features, (ii) G is scaled to
unit diagonal, and (iii) the Cholesky factor only preconditions: `fit_exact` repeats
c += G^{-1} Phi' W (y - Phi c) with residuals taken from the data, which restores the accuracy of a
QR factorisation as long as cond(Phi)^2 < 1e15. Where G is singular (collinear features, fewer
rows than terms) an eigenvalue decomposition gives the solution of least norm. The constant is not
penalised; the rest is chosen by leave-one-out, and a polynomial that is not clearly better than
a linear model by that measure gives way to it. The equations are a `gram.Gram`, which adds up over
parts of the rows.

The penalty on the coefficient of a term of degree k > 0 is W * ridge * 16^(k - 1), W the total weight: low degrees are
trusted more. Choosing this growth as well changed no score by more than 1 %; without it (1 in place of 16) the error
of degree 5 on Friedman 1 is 0.60 instead of 0.32 standard deviations.

With centred features z_r = phi(x_r) - mean, S = diag(4^(1 - k)) and S Z'WZ S = V D V', the fit without
row r misses it by

    e_r / (1 - h_r),      h_r = w_r (1 / W + sum_k (z_r'S V)_k^2 / (D_k + ridge W)),

so one eigenvalue decomposition serves every ridge. With fewer rows than terms the same numbers come from the
(rows x rows) matrix. Where rows are many, the mean over a part of them, the judges, decides; the rest is known
through its state (`gram`) alone, so a stream keeps a sample of its rows for this. Where terms are many too, a
decomposition costs more than all else, and a few ridges are tried by Cholesky factors.

`clearly_better` compares two fits by the same errors, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, qr, solve_triangular

from transformula.learn.distinct_rows import Rows
from transformula.learn.solvers.features import (
    Basis,
    Floats,
    Terms,
    all_terms,
    blocks,
    evaluate_terms,
    orthonormal_basis,
)
from transformula.learn.solvers.gram import Gram, significant
from transformula.learn.solvers.polynomial_fit import PolynomialFit, penalties, penalty_roots

RIDGES = (0.0, *np.logspace(-8, 2, 31).tolist())
#: Most terms (or rows, if these are fewer) for which every ridge is tried.
_MOST_SIDE = 700
_FEW_RIDGES = (0.0, 1e-3, 1e-2, 1e-1, 1.0)
#: Most rows that judge a penalty.
JUDGES = 4_000
#: Most rows that judge a penalty for many terms.
_FEW_JUDGES = 1_000
#: Share of the targets' variance below which errors are rounding and the smallest ridge is taken.
ROUNDING = 1e-14
#: 1 - h of a row that the fit passes through.
INTERPOLATED = 1e-9
#: The least variance of targets, in place of zero.
_TINY = 1e-300


@dataclass(frozen=True)
class TermRows(Rows):
    """The rows of a least-squares problem over all terms of a basis."""

    terms: Terms
    basis: Basis

    def features(self, some: NDArray[np.intp] | slice = slice(None)) -> Floats:
        """Every term at every row, or at some of them: (p, rows)."""
        return evaluate_terms(self.terms, self.basis, self.X[some])

    @property
    def variance(self) -> Floats:
        """The weighted variance of the targets, positive."""
        return np.asarray(np.maximum(self.weight @ (self.Y - self.mean) ** 2 / self.weight.sum(), _TINY))


@dataclass(frozen=True)
class Spectrum:
    """D, and for the rows that judge: sqrt(w) Z S V, sqrt(w) times the centred targets, w."""

    values: Floats
    rows: Floats
    right: Floats  # V'S Z'W y
    targets: Floats
    weight: Floats
    total: float

    def losses(self, ridges: Floats, spread: Floats) -> Floats:
        """Leave-one-out losses of every ridge at each row, in variances of the targets: (rows, ridges)."""
        keep = significant(self.values)
        rows, right = self.rows[:, keep], self.right[keep]
        inverse = 1.0 / (self.values[keep, None] + ridges * self.total)  # (k, ridges)
        left = 1.0 - self.weight[:, None] / self.total - rows**2 @ inverse
        left[left <= INTERPOLATED] = 0.0
        total = np.zeros_like(left)
        for o, variance in enumerate(spread):
            miss = self.targets[:, o, None] - rows @ (right[:, o, None] * inverse)
            with np.errstate(divide="ignore", invalid="ignore"):
                miss /= left
                miss *= miss
            total += miss / variance
        return np.asarray(total / self.weight.sum() / len(spread))

    def least(self, spread: Floats) -> Choice:
        """The smallest ridge whose leave-one-out error is least, up to rounding."""
        losses = self.losses(np.array(RIDGES), spread)
        errors = np.nan_to_num(losses.sum(axis=0), nan=np.inf, posinf=np.inf)
        at = int(np.argmax(errors <= errors.min() + ROUNDING))
        return Choice(float(RIDGES[at]) if np.isfinite(losses[:, at]).all() else 1.0, losses[:, at])


@dataclass(frozen=True)
class Choice:
    """A ridge, and its leave-one-out loss at each row that judges."""

    ridge: float
    losses: Floats


def clearly_better(losses: Floats, others: Floats, errors: float) -> bool:
    """Whether losses are lower by ``errors`` standard errors of the sum of the differences, or by nine tenths.

    Examples
    --------
    >>> clearly_better(np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0, 3.5]), errors=2)
    True
    >>> clearly_better(np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0, 1.5]), errors=2)
    False
    """
    with np.errstate(invalid="ignore"):  # a loss that is not a number is not better
        gain = others - losses
    return beyond_noise(gain, errors) or bool(losses.sum() < 0.1 * others.sum())


def beyond_noise(gain: Floats, errors: float) -> bool:
    """Whether the sum of the gains of all rows exceeds ``errors`` of its standard errors."""
    with np.errstate(invalid="ignore"):
        return bool(gain.sum() > errors * np.sqrt(np.sum((gain - gain.mean()) ** 2)))


def leave_one_out(gram: Gram, judges: TermRows) -> Choice:
    """The penalty with the least leave-one-out error at the judges, which are among the rows of the state."""
    spread = np.maximum(gram.variance, _TINY)
    if len(gram.terms) > _MOST_SIDE:
        return _few(judges, gram, spread)
    return _primal(judges, gram).least(spread)


def _primal(judges: TermRows, gram: Gram) -> Spectrum:
    """The spectrum from the state of all rows."""
    mean, centred, along = gram.centred()
    roots = penalty_roots(judges.terms)
    values, vectors = eigh(centred / np.outer(roots, roots), lower=False, check_finite=False)
    rotation = vectors / roots[:, None]
    some = _spaced(len(judges), JUDGES)
    w = judges.weight[some]
    features = np.sqrt(w)[:, None] * ((judges.features(some)[1:].T - mean) @ rotation)
    targets = np.sqrt(w)[:, None] * (judges.Y[some] - gram.mean)
    return Spectrum(values, features, rotation.T @ along, targets, w, gram.total)


def _dual(table: TermRows) -> Spectrum:
    """The same from the few rows themselves."""
    _, _, values, vectors = _row_spectrum(table)
    root = np.sqrt(table.weight)[:, None]
    size, targets = np.sqrt(np.maximum(values, 0.0)), root * (table.Y - table.mean)
    right, total = size[:, None] * (vectors.T @ targets), float(table.weight.sum())
    return Spectrum(size**2, vectors * size, right, targets, table.weight, total)


def _row_spectrum(table: TermRows) -> tuple[Floats, Floats, Floats, Floats]:
    """Means of the features, sqrt(w) Z S, and the eigenvalues and vectors of its (rows x rows) matrix."""
    features, w = table.features()[1:].T, table.weight
    mean = w @ features / w.sum()
    features = np.sqrt(w)[:, None] * (features - mean) / penalty_roots(table.terms)
    return mean, features, *eigh(features @ features.T, check_finite=False)


def _few(judges: TermRows, gram: Gram, spread: Floats) -> Choice:
    """A few ridges for many terms: with A = L L', the leverage of a row is w |L^{-1} phi|^2."""
    some = _spaced(len(judges.X), _FEW_JUDGES)
    w = judges.weight[some]
    features = judges.features(some)
    best, found = np.inf, Choice(_FEW_RIDGES[-1], np.full(len(some), np.inf))
    for ridge in _FEW_RIDGES:
        full = np.array(gram.matrix, order="F")
        full[np.diag_indices_from(full)] += gram.total * penalties(judges.terms, ridge)
        try:
            factor = cholesky(full, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
        across = solve_triangular(factor, features, trans="T", check_finite=False)
        along = solve_triangular(factor, gram.right, trans="T", check_finite=False)
        left = 1.0 - w * np.sum(across**2, axis=0)
        miss = (judges.Y[some] - gram.shift - across.T @ along) / np.maximum(left, INTERPOLATED)[:, None]
        losses = w * np.mean(miss**2 / spread, axis=1) / w.sum()
        error = float(losses.sum())
        if error + ROUNDING < best:
            best, found = error, Choice(ridge, losses)
    return found


def _spaced(rows: int, most: int) -> NDArray[np.intp]:
    return np.linspace(0, rows - 1, min(rows, most)).astype(np.intp)


def fit_exact(rows: Rows, degree: int, ridge: float | None = None) -> PolynomialFit:
    """Least squares over all polynomials of degree at most `degree`; the terms may be those of a linear model alone.

    Parameters
    ----------
    ridge : penalty on squared orthonormal coefficients, relative to the total weight; None chooses one by
        leave-one-out.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> fit = fit_exact(Rows.of(X, X[:, :1] ** 2 * X[:, 1:]), degree=3)
    >>> bool(abs(fit.predict(np.array([[2.0, 3.0]]))[0, 0] - 12) < 1e-10)
    True
    >>> fit.ridge
    0.0
    """
    given = None if ridge is None else Choice(ridge, np.empty(0))
    fit, losses = _judged(rows, degree, given)
    if degree > 1 and len(losses) == len(rows):  # all rows have judged
        line, of_line = _judged(rows, 1)
        return fit if clearly_better(losses, of_line, errors=2) else line
    return fit


def leave_one_out_losses(rows: Rows, degree: int) -> Floats | None:
    """Losses of least squares at every row without that row, in variances of the targets over the total weight.

    None where not all rows judge: there are too many of them, or of terms.
    """
    found = _choice(rows, degree)[1].losses
    return found if len(found) == len(rows) else None


def better_line(fit: PolynomialFit, rows: Rows) -> PolynomialFit | None:
    """The linear model, if it is better by leave-one-out than least squares on the terms of each output.

    Half a standard error decides. The terms were selected on the same rows, which flatters them; where they are the
    truth, the linear model is taken once in a hundred times (one or two effects among ten variables, 200 rows).
    """
    features, root = fit.features(rows.X).T, np.sqrt(rows.weight)
    losses = np.zeros(len(rows))
    for y, terms in zip((rows.Y - rows.mean).T, fit.selected.T, strict=True):
        q = qr(features[:, terms] * root[:, None], mode="economic")[0]
        residual = root * y - q @ (q.T @ (root * y))
        left = np.maximum(1.0 - np.sum(q**2, axis=1), INTERPOLATED)
        losses += (residual / left) ** 2 / max(float(rows.weight @ y**2), _TINY) / rows.Y.shape[1]
    if losses.sum() <= ROUNDING:
        return None
    line, of_line = _judged(rows, 1)
    return line if clearly_better(of_line, losses, errors=0.5) else None


def _choice(rows: Rows, degree: int, given: Choice | None = None) -> tuple[TermRows, Choice, Gram | None]:
    """The table of a problem, its penalty with the losses that chose it, and its state unless terms outnumber rows."""
    terms = all_terms(rows.X.shape[1], degree, rows.indicators)
    basis = orthonormal_basis(rows.X, degree, rows.weight)
    table = TermRows(rows.X, rows.Y, rows.weight, terms, basis)
    if len(rows) < len(terms):
        return table, given or _dual(table).least(table.variance), None
    gram = Gram(terms, basis, table.mean).add(rows.X, rows.Y, rows.weight)
    return table, given or leave_one_out(gram, table), gram


def _judged(rows: Rows, degree: int, given: Choice | None = None) -> tuple[PolynomialFit, Floats]:
    """A fit, and the leave-one-out losses at the rows that chose its penalty, in variances of the targets."""
    table, choice, gram = _choice(rows, degree, given)
    terms, basis = table.terms, table.basis
    if gram is None:
        return PolynomialFit(terms, basis, _dual_solution(table, choice.ridge), choice.ridge), choice.losses
    amounts = penalties(terms, choice.ridge)
    solve = gram.solver(amounts)
    coefficients = gram.with_shift(solve(gram.right))
    correlation = -gram.total * amounts[:, None] * coefficients
    del gram  # as large as its factor
    for some in blocks(len(table), len(terms)):  # one step of refinement, with residuals from the data
        phi = table.features(some)
        correlation += phi @ ((table.Y[some] - phi.T @ coefficients) * table.weight[some, None])
    return PolynomialFit(terms, basis, coefficients + solve(correlation), choice.ridge), choice.losses


def _dual_solution(table: TermRows, ridge: float) -> Floats:
    """Least-norm (or ridge) coefficients for fewer rows than terms, from a (rows x rows) matrix."""
    mean, features, values, vectors = _row_spectrum(table)
    keep = significant(values)
    values, vectors = values[keep] + ridge * table.weight.sum(), vectors[:, keep]
    targets = np.sqrt(table.weight)[:, None] * (table.Y - table.mean)
    slopes = features.T @ (vectors @ ((vectors.T @ targets) / values[:, None])) / penalty_roots(table.terms)[:, None]
    return np.vstack([table.mean - mean @ slopes, slopes])
