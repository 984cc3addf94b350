r"""From a polynomial of r linear forms to a sum of ridge functions (Fang's model).

    P(t) = b + sum_{k=1..K} p_k(w_k.t),       p_k univariate of degree q,  w_k in R^r.

Exactly: the powers (w_k.t)^s of K = C(r - 1 + q, q) directions in general position span every
polynomial of degree <= q in r variables, so the p_k solve a linear system (`spanning_ridges`).

Shorter: where P *is* a sum of few ridge functions, its Hessian at any t is
sum_k p_k''(w_k.t) w_k w_k'. For K = r the generalised eigenvectors of two Hessians are dual to the
w_k (Jennrich), which gives them in closed form. For K > r, the best of many random directions are
taken one by one. Both are starts for Gauss-Newton on P itself, a problem without noise in r
variables only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, comb, factorial, prod

import numpy as np
from flint import Ordering, fmpq_mpoly_ctx
from numpy.polynomial.hermite_e import herme2poly
from scipy.linalg import eig

from transformula.kernel.enclosures.balls import to_fmpq, to_fraction
from transformula.learn.solvers.directions import (
    Derivative,
    DirectionFit,
    WhitenedRows,
    evaluate_hermite,
    gauss_newton,
    hermite_basis,
    normalize,
    ridge_terms,
    solve_linear,
)
from transformula.learn.solvers.features import Floats, MonomialSum, Terms, to_monomials

#: Decimals of a direction: as whole numbers these fit into the 53 bits of a float.
_DIRECTION_DECIMALS = 12
#: Starts of the search for ridge functions, for each number of them.
_RESTARTS = 4
#: Random directions among which the best is taken.
_POOL = 200


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

    def compose(self, linear: Floats, center: Floats) -> RidgeForm:
        """Substitute linear @ (x - center) for the variables."""
        if np.any(self.center):
            raise ValueError("only a form about the origin can be composed")
        return RidgeForm(self.directions @ linear, self.powers, self.bias, center)

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
        return MonomialSum(tuple({tuple(map(int, e)): to_fraction(c) for e, c in t.to_dict().items()} for t in totals))


def count_ridges(rank: int, degree: int) -> int:
    """Count the directions that always suffice: C(r - 1 + q, q)."""
    return comb(rank - 1 + degree, degree)


def find_ridges(terms: Terms, C: Floats, rng: np.random.Generator, tolerance: float) -> DirectionFit | None:
    """Look for few ridge functions that make up the polynomial; None where none were found.

    Parameters
    ----------
    terms, C : all Hermite products of r variables and their coefficients (p, outputs).
    tolerance : the share of the polynomial's variance that may be missing.
    """
    r, q = terms.exponents.shape[1], terms.degree
    T = rng.normal(size=(4 * len(terms) + 200, r))
    Y = evaluate_hermite(terms, T).T @ C
    Y = Y - Y.mean(axis=0)
    variance = float(np.sum(Y**2) / len(Y))
    if variance == 0.0:
        return None
    problem = WhitenedRows(T, Y / np.sqrt(variance), np.ones(len(T)), ridge=1e-9)
    most = count_ridges(r, q) - 1
    for width in sorted({min(most, ceil(r * f)) for f in (1.0, 4 / 3, 5 / 3, 2.0, 3.0)} - {0}):
        for attempt in range(_RESTARTS):
            if width == r and attempt % 2 == 0 and q >= 3:
                start = _dual_directions(terms, C, rng)
            else:
                start = _greedy_directions(problem, q, width, rng)
            forms = ridge_terms(width, q)
            found = gauss_newton(problem, forms, start, max_steps=60, tolerance=1e-3, orthonormal=False)
            if found.loss <= tolerance:
                return found
    return None


def spanning_ridges(terms: Terms, C: Floats, rng: np.random.Generator) -> RidgeForm:
    """Write the polynomial with C(r - 1 + q, q) directions, exactly up to rounding.

    The homogeneous part of degree s is sum_k beta_k (w_k.t)^s: one linear system for each s,
    square for s = q and of least norm below.
    """
    r, q = terms.exponents.shape[1], terms.degree
    W = normalize(rng.normal(size=(count_ridges(r, q), r)))
    basis = hermite_basis(r, q)
    monomials = [to_monomials(terms.exponents, c, basis) for c in C.T]
    powers = np.zeros((len(W), q, C.shape[1]))
    bias = np.array([float(m.get((0,) * r, 0)) for m in monomials])
    total = terms.exponents.sum(axis=1)
    for s in range(1, q + 1):
        exponents = terms.exponents[total == s]
        multinomial = np.array([_multinomial(alpha) for alpha in exponents.tolist()])
        system = multinomial[:, None] * np.prod(W[None] ** exponents[:, None], axis=2)
        right = np.array([[float(m.get(tuple(a), 0)) for m in monomials] for a in exponents.tolist()])
        scale = 1.0 / np.sqrt(multinomial)[:, None]
        powers[:, s - 1] = np.linalg.lstsq(system * scale, right * scale, rcond=1e-13)[0]
    return RidgeForm(W, powers, bias, np.zeros(r))


def hermite_ridges(W: Floats, C: Floats, degree: int) -> RidgeForm:
    """Rewrite Hermite ridge functions (in the order of `directions.ridge_terms`) in powers."""
    table = _hermite_powers(degree)
    blocks = C[1:].reshape(len(W), degree, -1)
    full = np.einsum("sj,ksm->kjm", table[1:], blocks)  # (K, q + 1, outputs)
    return RidgeForm(W, full[:, 1:], C[0] + full[:, 0].sum(axis=0), np.zeros(W.shape[1]))


def _multinomial(alpha: list[int]) -> float:
    return factorial(sum(alpha)) / prod(factorial(a) for a in alpha)


def _hermite_powers(degree: int) -> Floats:
    """Row k: the coefficients of the normalised Hermite polynomial h_k in powers of t."""
    table = np.zeros((degree + 1, degree + 1))
    for k in range(degree + 1):
        table[k, : k + 1] = herme2poly([0] * k + [1]) / np.sqrt(float(factorial(k)))
    return table


def _dual_directions(terms: Terms, C: Floats, rng: np.random.Generator) -> Floats:
    """Jennrich's directions from the Hessians of a random output at two random points."""
    r = terms.exponents.shape[1]
    derivative = Derivative(terms)
    mixed = C @ rng.normal(size=(C.shape[1], 1))
    first = derivative(mixed)[:, 0, :]  # (p, r)
    second = derivative(first)  # (p, r, r)
    points = evaluate_hermite(terms, rng.normal(size=(2, r)))
    one, two = np.einsum("pn,pij->nij", points, second)
    vectors = np.real(eig(one, two)[1])
    if np.linalg.cond(vectors) > 1e10:
        return normalize(rng.normal(size=(r, r)))
    return normalize(np.linalg.inv(vectors))


def _greedy_directions(problem: WhitenedRows, degree: int, width: int, rng: np.random.Generator) -> Floats:
    """Take one random direction after another, each the best of a pool on the residual."""
    d = problem.Z.shape[1]
    chosen = np.zeros((0, d))
    residual = problem.Y
    one = ridge_terms(1, degree)
    rows = slice(0, min(len(problem.Z), 2000))
    while len(chosen) < width:
        candidates = normalize(rng.normal(size=(_POOL, d)))
        gains = []
        for w in candidates:
            phi = evaluate_hermite(one, problem.Z[rows] @ w[:, None])
            gains.append(float(np.sum((phi @ residual[rows]) ** 2)))
        best = candidates[int(np.argmax(gains))]
        chosen = np.vstack([chosen, best])
        residual = solve_linear(problem, ridge_terms(len(chosen), degree), chosen).E
    return chosen
