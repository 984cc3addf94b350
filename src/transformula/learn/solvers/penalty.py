r"""Which penalty for least squares over all monomials: leave-one-out in closed form.

The penalty on the coefficient of a term of degree k > 0 is W * ridge * growth^(k - 1), W the total weight. A
growth above 1 trusts low degrees more; a large one with a small ridge leaves little but a linear model.

With centred features z_r = phi(x_r) - mean, S = diag(growth^((1 - k) / 2)) and S Z'WZ S = V D V', the fit without
row r misses it by

    e_r / (1 - h_r),      h_r = w_r (1 / W + sum_k (z_r'S V)_k^2 / (D_k + ridge W)),

so one eigenvalue decomposition serves every ridge. With fewer rows than terms the same numbers come from the
(rows x rows) matrix. Where rows are many, the mean over a part of them, the judges, decides; the rest is known
through its state (`gram`) alone, so a stream keeps a sample of its rows for this. Where terms are many too, a
decomposition costs more than all else, and a few ridges are tried by Cholesky factors.

`clearly_better` compares two fits by the same errors, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular

from transformula.learn.solvers.features import Basis, Floats, Terms, evaluate_terms
from transformula.learn.solvers.gram import Gram

RIDGES = (0.0, *np.logspace(-8, 2, 21).tolist())
_GROWTHS = (1.0, 4.0, 16.0, 256.0)
#: Up to this side of the matrix, every ridge and every growth is tried.
_MOST_SIDE = 700
_FEW_RIDGES = (0.0, 1e-3, 1e-2, 1e-1, 1.0)
#: Rows that judge, and rows that judge where terms are many.
JUDGES, _FEW_JUDGES = 4_000, 1_000
#: Below this share of the targets' variance, errors are rounding and the smallest ridge will do.
ROUNDING = 1e-14
INTERPOLATED = 1e-9  # 1 - h of a row that the fit passes through


@dataclass(frozen=True)
class Penalty:
    """ridge * growth^(degree - 1) for each term, nothing for the constant; relative to the total weight."""

    ridge: float = 0.0
    growth: float = 1.0

    def scales(self, terms: Terms) -> Floats:
        """growth^((degree - 1) / 2) of every term but the constant: what S divides by."""
        degrees = terms.exponents[1:].sum(axis=1, dtype=np.int64)
        return np.asarray(self.growth ** (0.5 * (degrees - 1.0)))

    def of(self, terms: Terms) -> Floats:
        """The penalties themselves."""
        return np.concatenate([[0.0], self.ridge * self.scales(terms) ** 2])


@dataclass(frozen=True)
class Table:
    """The rows of a least-squares problem over all terms."""

    terms: Terms
    basis: Basis
    X: Floats
    Y: Floats
    weight: Floats

    def offset(self) -> Floats:
        """The weighted mean of the targets."""
        return np.asarray(self.weight @ self.Y / self.weight.sum())


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
        """For every ridge, what leave-one-out loses at each row, in variances of the targets: (rows, ridges)."""
        keep = self.values > self.values.max(initial=0.0) * len(self.values) * np.finfo(float).eps * 10
        values, rows, right = self.values[keep], self.rows[:, keep], self.right[keep]
        inverse = 1.0 / (values[:, None] + ridges * self.total)  # (k, ridges)
        left = 1.0 - self.weight[:, None] / self.total - rows**2 @ inverse
        total = np.zeros_like(left)
        for o, variance in enumerate(spread):
            miss = self.targets[:, o, None] - rows @ (right[:, o, None] * inverse)
            with np.errstate(divide="ignore", invalid="ignore"):
                total += np.where(left > INTERPOLATED, miss / left, np.inf) ** 2 / variance
        return np.asarray(total / self.weight.sum() / len(spread))

    def least(self, spread: Floats, growth: float = 1.0) -> Choice:
        """The smallest ridge whose leave-one-out error is least, up to rounding."""
        losses = self.losses(np.array(RIDGES), spread)
        errors = np.nan_to_num(losses.sum(axis=0), nan=np.inf, posinf=np.inf)
        at = int(np.argmax(errors <= errors.min() + ROUNDING))
        return Choice(Penalty(float(RIDGES[at]), growth), losses[:, at])


@dataclass(frozen=True)
class Choice:
    """A penalty, and what leave-one-out loses with it at each row that judges."""

    penalty: Penalty
    losses: Floats


def clearly_better(losses: Floats, others: Floats, errors: float) -> bool:
    """Whether these losses are less by so many standard errors of the sum of the differences, or by nine tenths.

    Examples
    --------
    >>> clearly_better(np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0, 3.5]), errors=2)
    True
    >>> clearly_better(np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0, 1.5]), errors=2)
    False
    """
    with np.errstate(invalid="ignore"):  # what cannot be judged is not better
        gain = others - losses
    return beyond_noise(gain, errors) or bool(losses.sum() < 0.1 * others.sum())


def beyond_noise(gain: Floats, errors: float) -> bool:
    """Whether what is gained at each row adds up to more than so many standard errors of the sum."""
    with np.errstate(invalid="ignore"):
        return bool(gain.sum() > errors * np.sqrt(np.sum((gain - gain.mean()) ** 2)))


def leave_one_out(gram: Gram, judges: Table) -> Choice:
    """The penalty with the least leave-one-out error at the judges, which are among the rows of the state."""
    spread = np.maximum(gram.variance, 1e-300)
    if len(gram.terms) > _MOST_SIDE:
        return _few(judges, gram, spread)
    growths = _GROWTHS if gram.terms.degree > 1 else _GROWTHS[:1]
    return _least(growths, judges, spread, lambda scales: _primal(judges, scales, gram))


def leave_one_out_of_few(table: Table) -> Choice:
    """The same for fewer rows than terms."""
    spread = np.maximum(table.weight @ (table.Y - table.offset()) ** 2 / table.weight.sum(), 1e-300)
    growths = _GROWTHS if len(table.X) <= _MOST_SIDE and table.terms.degree > 1 else _GROWTHS[:1]
    return _least(growths, table, spread, lambda scales: _dual(table, scales))


def _least(growths: tuple[float, ...], table: Table, spread: Floats, spectrum: Callable[[Floats], Spectrum]) -> Choice:
    found = Choice(Penalty(1.0), np.full(len(table.X), np.inf))
    for growth in growths:
        one = spectrum(Penalty(1.0, growth).scales(table.terms)).least(spread, growth)
        found = one if one.losses.sum() + ROUNDING < found.losses.sum() else found
    return found


def _primal(judges: Table, scales: Floats, gram: Gram) -> Spectrum:
    mean, centred, along = gram.centred()
    values, vectors = eigh(centred / np.outer(scales, scales), lower=False, check_finite=False)
    rotation = vectors / scales[:, None]
    some = _spaced(len(judges.X), JUDGES)
    w = judges.weight[some]
    features = evaluate_terms(judges.terms, judges.basis, judges.X[some])[1:].T - mean
    root = np.sqrt(w)[:, None]
    targets = root * (judges.Y[some] - gram.mean)
    return Spectrum(values, root * (features @ rotation), rotation.T @ along, targets, w, gram.total)


def _dual(table: Table, scales: Floats) -> Spectrum:
    w, total = table.weight, float(table.weight.sum())
    root = np.sqrt(w)[:, None]
    features = evaluate_terms(table.terms, table.basis, table.X)[1:].T  # small: fewer rows than terms
    features = root * (features - w @ features / total) / scales
    values, vectors = eigh(features @ features.T, check_finite=False)
    values = np.maximum(values, 0.0)
    targets = root * (table.Y - table.offset())
    size = np.sqrt(values)
    return Spectrum(values, vectors * size, size[:, None] * (vectors.T @ targets), targets, w, total)


def _few(judges: Table, gram: Gram, spread: Floats) -> Choice:
    """A few ridges for many terms: with A = L L', the leverage of a row is w |L^{-1} phi|^2."""
    some = _spaced(len(judges.X), _FEW_JUDGES)
    w = judges.weight[some]
    features = evaluate_terms(judges.terms, judges.basis, judges.X[some])
    best, found = np.inf, Choice(Penalty(_FEW_RIDGES[-1]), np.full(len(some), np.inf))
    for ridge in _FEW_RIDGES:
        full = np.array(gram.matrix, order="F")
        full[np.diag_indices_from(full)] += gram.total * Penalty(ridge).of(judges.terms)
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
            best, found = error, Choice(Penalty(ridge), losses)
    return found


def _spaced(rows: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.intp))
