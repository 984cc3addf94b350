r"""The solution of every closed form: a linear combination of products of univariate polynomials.

A polynomial of r linear forms is also a sum of ridge functions (Fang's model), exactly:

    P(t) = b + sum_{k=1..K} p_k(w_k.t),       p_k univariate of degree q,  w_k in R^r.

The powers (w_k.t)^s of K = C(r - 1 + q, q) directions in general position span every polynomial of degree <= q in r
variables, so the p_k solve a linear system.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import comb, factorial, prod

import numpy as np
from flint import Ordering, fmpq_mpoly_ctx
from numpy.typing import NDArray

from transformula.kernel.enclosures.balls import to_fmpq
from transformula.learn.solvers.features import (
    Basis,
    Floats,
    MonomialSum,
    Terms,
    all_terms,
    blocks,
    evaluate_terms,
    power_basis,
    to_monomials,
)
from transformula.learn.solvers.gram import Gram

#: Decimals of a direction: as whole numbers these fit into the 53 bits of a float.
_DIRECTION_DECIMALS = 12
#: Factor on the penalty for each degree above the first: low degrees are trusted more.
_GROWTH = 16.0


def penalty_roots(terms: Terms) -> Floats:
    """Square roots of growth^(degree - 1) for every term but the constant."""
    degrees = terms.exponents[1:].sum(axis=1, dtype=np.int64)
    return np.asarray(_GROWTH ** (0.5 * (degrees - 1.0)))


def penalties(terms: Terms, ridge: float) -> Floats:
    """ridge * growth^(degree - 1) for each term, nothing for the constant; relative to the total weight."""
    return np.concatenate([[0.0], ridge * penalty_roots(terms) ** 2])


@dataclass(frozen=True)
class LinearForms:
    """directions (x - center), with directions (r, d)."""

    center: Floats
    directions: Floats

    def __call__(self, X: Floats) -> Floats:
        """The forms at every row: (rows, r)."""
        return np.asarray((X - self.center) @ self.directions.T)


@dataclass(frozen=True)
class PolynomialFit:
    """A fitted polynomial: coefficients (p, outputs) of terms in a basis, of the inputs or of linear forms of them."""

    terms: Terms
    basis: Basis
    coefficients: Floats
    ridge: float = 0.0
    forms: LinearForms | None = None

    @classmethod
    def constant(cls, values: Floats, degree: int, forms: LinearForms | None = None) -> PolynomialFit:
        """A polynomial of no variables with these values (outputs,)."""
        nothing = np.zeros(0)
        return cls(all_terms(0, degree), power_basis(nothing, nothing, degree), values[None], forms=forms)

    def features(self, X: Floats) -> Floats:
        """Every term at every row: (p, rows)."""
        return evaluate_terms(self.terms, self.basis, X if self.forms is None else self.forms(X))

    def predict(self, X: Floats) -> Floats:
        """Evaluate the polynomial, in blocks of rows: (rows, outputs)."""
        out = np.empty((len(X), self.coefficients.shape[1]))
        for rows in blocks(len(X), len(self.terms)):
            out[rows] = self.features(X[rows]).T @ self.coefficients
        return out

    @property
    def selected(self) -> NDArray[np.bool_]:
        """Which terms each output has, the constant always: (p, outputs)."""
        mask: NDArray[np.bool_] = self.coefficients != 0
        mask[0] = True
        return mask

    def add_residuals(self, gram: Gram, X: Floats, Y: Floats, weight: Floats | None) -> None:
        """Take rows into the equations for a correction of the coefficients."""
        gram.add(X if self.forms is None else self.forms(X), Y - self.predict(X), weight)

    def corrected(self, gram: Gram, ridge: float) -> PolynomialFit:
        """Least squares on all rows whose residuals the state has: one step of iterative refinement.

        A coefficient that is zero stays so: the term was not selected for that output.
        """
        coefficients, amounts = self.coefficients.copy(), penalties(self.terms, ridge)
        selected, which = np.unique(self.selected, axis=1, return_inverse=True)
        for k, mask in enumerate(selected.T):
            some, outputs = np.flatnonzero(mask), np.flatnonzero(which.ravel() == k)
            here = np.ix_(some, outputs)
            right = gram.right[here] - gram.total * amounts[some, None] * coefficients[here]
            coefficients[here] += gram.part(some).solver(amounts[some])(right)
        return PolynomialFit(self.terms, self.basis, coefficients, ridge, self.forms)

    @property
    def n_terms(self) -> int:
        """Number of coefficients and of entries of directions."""
        return self.coefficients.size + (0 if self.forms is None else self.forms.directions.size)

    @property
    def degree(self) -> int:
        """The degree of the polynomial."""
        return self.terms.degree

    def exact(self) -> MonomialSum | ExactRidges:
        """The polynomial in rational arithmetic: monomials, or C(r − 1 + q, q) powers of r linear forms."""
        monomials = to_monomials(self.terms, self.coefficients, self.basis)
        if self.forms is None:
            return monomials
        found = spanning_ridges(monomials, len(self.forms.directions), self.degree)
        return replace(found, directions=found.directions @ self.forms.directions, center=self.forms.center).exact()


@dataclass(frozen=True)
class RidgeForm:
    """y = bias + sum_k sum_s powers[k, s-1] * (directions[k].(x - center))^s.

    Attributes
    ----------
    directions : (K, d); powers : (K, q, outputs); bias : (outputs,); center : (d,).
    """

    directions: Floats
    powers: Floats
    bias: Floats
    center: Floats

    def predict(self, X: Floats) -> Floats:
        """Evaluate by Horner's rule, in blocks of rows: (rows, outputs)."""
        out = np.empty((len(X), len(self.bias)))
        step = max(64, 2**20 // max(1, len(self.directions)))
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            T = (X[rows] - self.center) @ self.directions.T
            for m in range(len(self.bias)):
                total = np.zeros_like(T)
                for s in reversed(range(self.powers.shape[1])):
                    total = (total + self.powers[:, s, m]) * T
                out[rows, m] = total.sum(axis=1)
        return out + self.bias

    @property
    def n_terms(self) -> int:
        """Number of coefficients and of entries of directions."""
        return self.directions.size + self.powers.size + self.bias.size

    @property
    def degree(self) -> int:
        """The degree of the polynomial."""
        return int(self.powers.shape[1])

    def exact(self) -> ExactRidges:
        """Directions as decimals, (w·(x − c))^s expanded about the origin without rounding."""
        center = [Fraction(float(c)) for c in self.center]
        bias = [Fraction(float(b)) for b in self.bias]
        directions, powers = [], []
        for w, coefficients in zip(self.directions, self.powers, strict=True):
            length = float(np.abs(w).max(initial=0.0))
            if length == 0.0:
                continue
            unit = 10**_DIRECTION_DECIMALS
            direction = tuple(Fraction(round(v * unit), unit) for v in w / length)
            offset = -sum((v * c for v, c in zip(direction, center, strict=True)), Fraction(0))
            by_power = {s + 1: [Fraction(0)] * len(bias) for s in range(len(coefficients))}
            for s, row in enumerate(coefficients, start=1):
                for o, c in enumerate(row.tolist()):
                    scaled = Fraction(c) * Fraction(length) ** s
                    bias[o] += scaled * offset**s
                    for j in range(1, s + 1):
                        by_power[j][o] += scaled * comb(s, j) * offset ** (s - j)
            directions.append(direction)
            powers.append(by_power)
        return ExactRidges(tuple(directions), tuple(powers), tuple(bias))


@dataclass(frozen=True)
class ExactRidges:
    """bias + Σ_k Σ_s powers[k][s][output] (directions[k]·x)^s, all rational."""

    directions: tuple[tuple[Fraction, ...], ...]
    powers: tuple[dict[int, list[Fraction]], ...]
    bias: tuple[Fraction, ...]

    def in_columns(self, columns: list[int], width: int) -> ExactRidges:
        """The same polynomials, of these columns among ``width``."""
        place = {column: k for k, column in enumerate(columns)}
        spread = (
            tuple(d[place[column]] if column in place else Fraction(0) for column in range(width))
            for d in self.directions
        )
        return replace(self, directions=tuple(spread))

    def expand(self) -> MonomialSum:
        """The same polynomials in monomials, exactly."""
        width = len(self.directions[0]) if self.directions else 1
        context = fmpq_mpoly_ctx.get([f"x{i}" for i in range(width)], Ordering.degrevlex)
        totals = [context.constant(to_fmpq(b)) for b in self.bias]
        for direction, by_power in zip(self.directions, self.powers, strict=True):
            form = sum((to_fmpq(v) * g for v, g in zip(direction, context.gens(), strict=True)), totals[0] * 0)
            power = context.constant(1)
            for s in range(1, max(by_power, default=0) + 1):
                power = power * form
                for o, c in enumerate(by_power.get(s, ())):
                    totals[o] += to_fmpq(c) * power
        return MonomialSum.of(totals)


def spanning_ridges(polynomials: MonomialSum, rank: int, degree: int) -> RidgeForm:
    """Write polynomials of few variables with C(r - 1 + q, q) random directions, exactly up to rounding.

    The homogeneous part of degree s is sum_k beta_k (w_k.t)^s: one linear system for each s, square for s = q and of
    least norm below.
    """
    W = np.random.default_rng(0).normal(size=(comb(rank - 1 + degree, degree) if rank else 0, rank))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    powers = np.zeros((len(W), degree, len(polynomials.outputs)))
    exponents = all_terms(rank, degree).exponents
    for s in range(1, degree + 1):
        part = exponents[exponents.sum(axis=1) == s]
        multinomial = np.array([factorial(s) / prod(map(factorial, alpha)) for alpha in part.tolist()])[:, None]
        right = np.array([[float(one.get(tuple(a), 0)) for one in polynomials.outputs] for a in part.tolist()])
        system = multinomial * np.prod(W[None] ** part[:, None], axis=2)
        scale = 1.0 / np.sqrt(multinomial)
        powers[:, s - 1] = np.linalg.lstsq(system * scale, right.reshape(len(part), -1) * scale, rcond=1e-13)[0]
    bias = np.array([float(one.get((0,) * rank, 0)) for one in polynomials.outputs])
    return RidgeForm(W, powers, bias, np.zeros(rank))
