r"""Polynomials of a few linear forms: f(z) = P(W z), and where to start looking for W.

*Model.* z is a whitened input in R^d, W has r << d rows, and P is a polynomial of degree q in r
variables written in normalised Hermite products h_alpha(t), for which dh_k/dt = sqrt(k) h_{k-1}:
the gradient of P is again a matrix product with the same features. With all products the model is
"multi-index"; with pure powers only (`ridge_terms`) it is a sum of r ridge functions, Fang's model.

*Start.* For z standard normal, f = sum_s <T_s, He_s(z)> / s! with T_s = E[y He_s(z)] (Stein), and

    E[grad f grad f'] = T_1 T_1' + T_2 T_2 + T_3(1) T_3(1)' / 2 + ...,

whose range is the row space of W. `gradient_moment` estimates the first three summands by a sum
over *pairs* of samples a != b, in O(n^2 d) time and without any tensor:

    T_3(1) T_3(1)':  sum y_a y_b [ a b' (s^2 - |a|^2 - |b|^2 + d + 4) - 2s (a a' + b b')
                                   + 2s I + 2 b a' ],
    T_2 T_2:         sum y_a y_b [ s a b' - a a' - b b' + I ],      T_1 T_1':  sum y_a y_b a b',

with s = a.b. Leaving out a = b makes the estimate unbiased, so noise alone gives eigenvalues
spread evenly about zero: those above |smallest| are signal. For other distributions this is only
a start, which `gaussnewton` improves; applied to residuals it finds what is still missing.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from transformula.learn.solvers.features import Basis, Floats, Terms, all_terms, evaluate_terms

_CLIP = 3.0  # of whitened coordinates, in standard deviations: moves the start only, never the fit


def hermite_basis(n_features: int, degree: int) -> Basis:
    """The normalised Hermite polynomials, orthonormal for a standard normal variable."""
    k = np.arange(degree, dtype=float)
    ones = np.ones((n_features, 1))
    zero, one = np.zeros(n_features), np.ones(n_features)
    return Basis(zero, one, 0 * ones * k, ones * np.sqrt(k), ones / np.sqrt(k + 1))


def ridge_terms(n_directions: int, degree: int) -> Terms:
    """List the pure powers t_k^s, s = 0..degree: a sum of univariate polynomials."""
    exponents = np.zeros((1 + n_directions * degree, n_directions), dtype=np.int8)
    groups = []
    for k in range(n_directions):
        for power in range(1, degree + 1):
            row = k * degree + power
            exponents[row, k] = power
            groups.append((k, power, slice(row, row + 1), np.zeros(1, dtype=np.intp)))
    return Terms(degree, exponents, tuple(groups))


def product_terms(n_directions: int, degree: int) -> Terms:
    """List all products of powers: any polynomial of the directions."""
    return all_terms(n_directions, degree)


def evaluate_hermite(terms: Terms, T: Floats) -> Floats:
    """Evaluate every Hermite product at every row of T: (p, rows)."""
    return evaluate_terms(terms, hermite_basis(T.shape[1], terms.degree), T)


class Derivative:
    """Partial derivatives of Hermite expansions as a map of coefficients."""

    def __init__(self, terms: Terms) -> None:
        index = {row.tobytes(): i for i, row in enumerate(terms.exponents)}
        self.shape = terms.exponents.shape
        self._moves = []
        for k in range(self.shape[1]):
            source = np.flatnonzero(terms.exponents[:, k])
            lower = terms.exponents[source].copy()
            lower[:, k] -= 1
            target = np.array([index[row.tobytes()] for row in lower], dtype=np.intp)
            factor = np.sqrt(terms.exponents[source, k].astype(float))
            self._moves.append((source, target, factor[:, None]))

    def __call__(self, coefficients: Floats) -> Floats:
        """Coefficients (p, outputs) to those of all partial derivatives (p, outputs, r)."""
        out = np.zeros((*coefficients.shape, self.shape[1]))
        for k, (source, target, factor) in enumerate(self._moves):
            out[target, :, k] = factor * coefficients[source]
        return out


def gradient_moment(Z: Floats, E: Floats, cap: int | None = None) -> Floats:
    """Estimate E[grad f grad f'] from whitened inputs and (centred) targets, summed over outputs.

    Parameters
    ----------
    Z, E : (rows, d) inputs, roughly standard normal, and (rows, outputs) targets or residuals.
    cap : the most rows to use (default grows like d^1.5, the rate at which the start can work).
    """
    limit = int(np.clip(3 * Z.shape[1] ** 1.5, 8000, 24000)) if cap is None else cap
    # Rare large coordinates (almost constant features) would outweigh everything else.
    Z, E = np.clip(Z[:limit], -_CLIP, _CLIP), E[:limit]
    n, d = Z.shape
    out = np.zeros((d, d))
    square = np.einsum("ij,ij->i", Z, Z)
    weighted = [Z * e[:, None] for e in E.T]
    second = np.zeros((n, E.shape[1]))  # sum over b of s_ab y_b
    for start in range(0, n, 512):
        rows = slice(start, min(start + 512, n))
        inner = Z[rows] @ Z.T
        diagonal = (np.arange(rows.stop - start), np.arange(start, rows.stop))
        inner[diagonal] = 0.0
        second[rows] = inner @ E
        kernel = inner * inner
        kernel -= square
        kernel += (d + 4.0) - square[rows, None]
        kernel *= 0.5
        kernel += inner
        kernel += 1.0
        kernel[diagonal] = 0.0
        for ze in weighted:
            out += ze[rows].T @ (kernel @ ze)
    for e, ze, s in zip(E.T, weighted, second.T, strict=True):
        pair, others, total = e * s, e * (e.sum() - e), ze.sum(axis=0)
        out += np.outer(total, total) - ze.T @ ze  # 2 b a' / 2
        out -= (Z.T * (2.0 * pair + 2.0 * others)) @ Z
        out[np.diag_indices(d)] += pair.sum() + others.sum()
    return out / float(n) ** 2


def leading_directions(moment: Floats, known: Floats) -> tuple[Floats, int]:
    """Order the directions orthogonal to `known` by the moment; also count the significant ones.

    Returns
    -------
    directions : (d - r, d) orthonormal rows, the most promising first.
    significant : how many have an eigenvalue above the noise edge, |the smallest|.
    """
    d = len(moment)
    whole = np.linalg.qr(known.T, mode="complete")[0] if len(known) else np.eye(d)
    free = whole[:, len(known) :]
    values, vectors = eigh(free.T @ moment @ free)
    significant = int(np.count_nonzero(values > 1.05 * abs(min(values[0], 0.0))))
    return (free @ vectors[:, ::-1]).T, significant
