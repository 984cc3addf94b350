r"""Polynomial features without the feature matrix.

A polynomial of degree q in d variables is written in a product basis

    phi_alpha(x) = prod_i phi_{alpha_i}^{(i)}(x_i),      |alpha| <= q,

where each feature i has its own univariate family given by a three-term recurrence in the
standardised variable t = (x - shift) * scale:

    phi_0 = 1,     phi_{k+1}(t) = ((t - a_k) phi_k(t) - b_k phi_{k-1}(t)) * s_k.

Two families are used. `orthonormal_basis` takes a, b, s from the data (the discrete Stieltjes
procedure), so that each feature's family is orthonormal under its own empirical distribution: the
Gram matrix of independent features is then close to the identity whatever their scale.
`power_basis` has a = b = 0 and s = 1: plain monomials.

Terms are ordered so that the terms whose last variable is v with power k are contiguous and are
all the earlier terms of degree <= q - k, times phi_k(x_v). One gather and one product build
each group, and rows are visited in blocks, so memory stays at (terms x block).

Every number in a basis is a float64, hence a dyadic rational: `to_monomials` converts
coefficients to powers of the original variables in exact rational arithmetic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import comb, prod
from typing import Any

import numpy as np
from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx
from numpy.typing import NDArray

from transformula.kernel.enclosures.balls import to_fmpq, to_fraction

Floats = NDArray[np.float64]
Exponents = tuple[int, ...]
Ints = NDArray[np.intp]
#: For each variable the number of the column that it indicates a level of, 0 for other variables; () if all are 0.
Indicators = tuple[int, ...]
#: Numbers in a block of features: 16 MiB, long enough for BLAS.
_BLOCK_ENTRIES = 2**21


@dataclass(frozen=True)
class Terms:
    """Exponents of total degree at most `degree`, and a recipe that builds all of them.

    Attributes
    ----------
    exponents : (p, d) small integers, row 0 is the constant term.
    groups : for each (variable, power), the rows it fills and the rows it multiplies; () for a few terms.
    indicators : see `all_terms`.
    """

    degree: int
    exponents: NDArray[np.int8]
    groups: tuple[tuple[int, int, slice, Ints], ...] = ()
    indicators: Indicators = ()

    def few(self, chosen: Ints | list[int]) -> Terms:
        """Some of the terms."""
        exponents = self.exponents[chosen]
        return Terms(int(exponents.sum(axis=1, dtype=np.int64).max(initial=0)), exponents)

    def __len__(self) -> int:
        return len(self.exponents)


@dataclass(frozen=True)
class Basis:
    """One univariate three-term recurrence for each feature (see the module's docstring)."""

    shift: Floats  # (d,)
    scale: Floats  # (d,)
    a: Floats  # (d, q)
    b: Floats  # (d, q)
    s: Floats  # (d, q)


def count_terms(n_features: int, degree: int, indicators: Indicators = ()) -> int:
    """Count the monomials of degree at most `degree`: C(d + q, q) where no variable is an indicator.

    Examples
    --------
    >>> count_terms(10, 5), count_terms(3, 2, (0, 1, 1))
    (3003, 7)
    """
    levels = Counter(group for group in indicators if group)
    free = n_features - levels.total()
    chosen = [1]  # by their number, the ways to choose indicators of different columns
    for size in levels.values():
        chosen = [a + size * b for a, b in zip([*chosen, 0], [0, *chosen], strict=True)]
    return sum(ways * comb(free + degree - k, degree - k) for k, ways in enumerate(chosen[: degree + 1]))


def all_terms(n_features: int, degree: int, indicators: Indicators = ()) -> Terms:
    """List every exponent of total degree at most `degree`.

    Indicators are 0 or 1, and at most one of a column is 1. So c**2 = c, and the product of two of one column is 0:
    such terms are left out.

    Examples
    --------
    >>> all_terms(2, 2).exponents.tolist()
    [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [0, 2]]
    >>> all_terms(2, 2, (1, 1)).exponents.tolist()
    [[0, 0], [1, 0], [0, 1]]
    """
    count = count_terms(n_features, degree, indicators)
    kinds = np.array(indicators or (0,) * n_features, dtype=np.intp)
    exponents = np.zeros((count, n_features), dtype=np.int8)
    total = np.zeros(count, dtype=np.intp)
    groups: list[tuple[int, int, slice, Ints]] = []
    stop = 1
    for variable in range(n_features):
        earlier, kind = stop, kinds[variable]
        for power in range(1, min(degree, 1 if kind else degree) + 1):
            allowed = total[:earlier] <= degree - power
            if kind:
                allowed &= ~exponents[:earlier, kinds == kind].any(axis=1)
            parents = np.flatnonzero(allowed)
            rows = slice(stop, stop + len(parents))
            exponents[rows] = exponents[parents]
            exponents[rows, variable] = power
            total[rows] = total[parents] + power
            groups.append((variable, power, rows, parents))
            stop = rows.stop
    return Terms(degree, exponents, tuple(groups), indicators)


def power_basis(shift: Floats, scale: Floats, degree: int) -> Basis:
    """Make the basis of plain powers of (x - shift) * scale."""
    zero = np.zeros((len(shift), degree))
    return Basis(np.asarray(shift, float), np.asarray(scale, float), zero, zero, zero + 1.0)


def orthonormal_basis(X: Floats, degree: int, weight: Floats | None = None) -> Basis:
    """Fit each feature's orthonormal polynomials to its empirical distribution.

    A feature with m distinct values has only m - 1 non-trivial degrees; beyond them the recurrence
    goes on with unit normalisation, so that later batches with new values stay well defined.
    """
    w = np.full(len(X), 1.0 / len(X)) if weight is None else weight / weight.sum()
    shift = w @ X
    spread = np.sqrt(w @ (X - shift) ** 2)
    constant = spread <= 1e-12 * np.maximum(np.abs(shift), 1e-300)
    scale = 1.0 / np.where(constant, 1.0, spread)
    t = (X - shift) * scale
    a, b, s = (np.zeros((X.shape[1], degree)) for _ in range(3))
    previous, current = np.zeros_like(t), np.ones_like(t)
    norm = np.zeros(X.shape[1])
    for k in range(degree):
        a[:, k] = w @ (t * current**2)
        b[:, k] = norm
        new = (t - a[:, k]) * current - b[:, k] * previous
        norm = np.sqrt(w @ new**2)
        norm = np.where(norm > 1e-8, norm, 0.0)
        s[:, k] = 1.0 / np.where(norm > 0.0, norm, 1.0)
        previous, current = current, new * s[:, k]
    return Basis(shift, scale, a, b, s)


def univariate_values(basis: Basis, X: Floats) -> Floats:
    """Evaluate every feature's family: an array of shape (q + 1, d, rows)."""
    degree = basis.a.shape[1]
    t = np.ascontiguousarray(((X - basis.shift) * basis.scale).T)
    values = np.empty((degree + 1, *t.shape))
    values[0] = 1.0
    for k in range(degree):
        values[k + 1] = (t - basis.a[:, k, None]) * values[k]
        if k:
            values[k + 1] -= basis.b[:, k, None] * values[k - 1]
        values[k + 1] *= basis.s[:, k, None]
    return values


def evaluate_terms(terms: Terms, basis: Basis, X: Floats) -> Floats:
    """Evaluate every term at every row of X: an array of shape (p, rows)."""
    values = univariate_values(basis, X)
    out = np.ones((len(terms), len(X)))
    for variable, power, rows, parents in terms.groups:
        np.take(out, parents, axis=0, out=out[rows], mode="clip")
        out[rows] *= values[power, variable]
    if not terms.groups:
        for row, alpha in zip(out, terms.exponents, strict=True):
            for place in np.flatnonzero(alpha):
                row *= values[alpha[place], place]
    return out


def blocks(n_rows: int, n_terms: int) -> Iterator[slice]:
    """Cut the rows so that a block of features has a bounded size."""
    step = int(np.clip(_BLOCK_ENTRIES // n_terms, 16, 4096))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def to_monomials(terms: Terms, coefficients: Floats, basis: Basis) -> MonomialSum:
    """The polynomials with these coefficients (p, outputs) in monomials of the original variables, exactly."""
    width = terms.exponents.shape[1]
    ring = fmpq_mpoly_ctx.get([f"x{k}" for k in range(width)], Ordering.degrevlex)
    families = []
    for k, x in enumerate(ring.gens()):
        t = (x - _rational(basis.shift[k])) * _rational(basis.scale[k])
        family, before = [ring.constant(1)], ring.constant(0)
        for a, b, s in zip(basis.a[k], basis.b[k], basis.s[k], strict=True):
            following = ((t - _rational(a)) * family[-1] - _rational(b) * before) * _rational(s)
            before = family[-1]
            family.append(following)
        families.append(family)
    totals = [ring.constant(0) for _ in coefficients.T]
    for alpha, row in zip(terms.exponents, coefficients, strict=True):
        if row.any():
            term = prod((families[k][alpha[k]] for k in np.flatnonzero(alpha)), start=ring.constant(1))
            for output in np.flatnonzero(row):
                totals[output] += _rational(row[output]) * term
    return MonomialSum.of(totals)


def _rational(value: Any) -> fmpq:
    return to_fmpq(Fraction(float(value)))


@dataclass(frozen=True)
class MonomialSum:
    """For each output, exponents → exact coefficient."""

    outputs: tuple[dict[Exponents, Fraction], ...]

    @classmethod
    def of(cls, polynomials: Iterable[fmpq_mpoly]) -> MonomialSum:
        """FLINT's polynomials, lowest degrees first."""
        found = []
        for one in polynomials:
            terms = {tuple(map(int, e)): to_fraction(c) for e, c in one.to_dict().items()}
            found.append({e: terms[e] for e in sorted(terms, key=lambda e: (sum(e), [-k for k in e]))})
        return cls(tuple(found))

    def in_columns(self, columns: list[int], width: int) -> MonomialSum:
        """The same polynomials, of these columns among ``width``."""

        def spread(exponents: Exponents) -> Exponents:
            full = [0] * width
            for column, e in zip(columns, exponents, strict=True):
                full[column] = e
            return tuple(full)

        return MonomialSum(tuple({spread(e): c for e, c in terms.items()} for terms in self.outputs))

    def reduced(self, indicators: Indicators) -> MonomialSum:
        """The same values wherever at most one indicator of each column is 1: c**2 = c, and c*d = 0.

        Examples
        --------
        >>> MonomialSum(({(2, 0): Fraction(3), (1, 1): Fraction(4)},)).reduced((1, 1)).outputs
        ({(1, 0): Fraction(3, 1)},)
        """
        outputs = []
        for terms in self.outputs:
            kept: dict[Exponents, Fraction] = defaultdict(Fraction)
            for exponents, c in terms.items():
                groups = [group for group, e in zip(indicators, exponents, strict=True) if group and e]
                if len(groups) == len(set(groups)):
                    kept[tuple(min(e, 1) if g else e for g, e in zip(indicators, exponents, strict=True))] += c
            outputs.append({e: c for e, c in kept.items() if c})
        return MonomialSum(tuple(outputs))
