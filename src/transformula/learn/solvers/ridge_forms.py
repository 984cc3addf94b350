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

from dataclasses import dataclass
from math import ceil, comb, factorial, prod

import numpy as np
from scipy.linalg import eig

from transformula.learn.solvers.features import Floats, Terms, to_monomials
from transformula.learn.solvers.gaussnewton import Problem, State, gauss_newton, normalize, solve_linear
from transformula.learn.solvers.subspace import Derivative, evaluate_hermite, hermite_basis, ridge_terms


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


def count_ridges(rank: int, degree: int) -> int:
    """Count the directions that always suffice: C(r - 1 + q, q)."""
    return comb(rank - 1 + degree, degree)


def find_ridges(
    terms: Terms,
    C: Floats,
    rng: np.random.Generator,
    *,
    tolerance: float = 1e-5,
    restarts: int = 4,
    max_steps: int = 60,
) -> State | None:
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
    problem = Problem(T, Y / np.sqrt(variance), np.ones(len(T)), ridge=1e-9)
    most = count_ridges(r, q) - 1
    for width in sorted({min(most, ceil(r * f)) for f in (1.0, 4 / 3, 5 / 3, 2.0, 3.0)} - {0}):
        for attempt in range(restarts):
            if width == r and attempt % 2 == 0 and q >= 3:
                start = _dual_directions(terms, C, rng)
            else:
                start = _greedy_directions(problem, q, width, rng)
            found = gauss_newton(
                problem,
                ridge_terms(width, q),
                start,
                max_steps=max_steps,
                tolerance=1e-3,
                orthonormal=False,
            )
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
    monomials = [_to_powers_of_variables(terms, c) for c in C.T]
    powers = np.zeros((len(W), q, C.shape[1]))
    bias = np.array([m.get((0,) * r, 0.0) for m in monomials])
    total = terms.exponents.sum(axis=1)
    for s in range(1, q + 1):
        exponents = terms.exponents[total == s]
        multinomial = np.array([_multinomial(alpha) for alpha in exponents.tolist()])
        system = multinomial[:, None] * np.prod(W[None] ** exponents[:, None], axis=2)
        right = np.array([[m.get(tuple(a), 0.0) for m in monomials] for a in exponents.tolist()])
        scale = 1.0 / np.sqrt(multinomial)[:, None]
        powers[:, s - 1] = np.linalg.lstsq(system * scale, right * scale, rcond=1e-13)[0]
    return RidgeForm(W, powers, bias, np.zeros(r))


def hermite_ridges(W: Floats, C: Floats, degree: int) -> RidgeForm:
    """Rewrite Hermite ridge functions (in the order of `subspace.ridge_terms`) in powers."""
    table = _hermite_powers(degree)
    blocks = C[1:].reshape(len(W), degree, -1)
    full = np.einsum("sj,ksm->kjm", table[1:], blocks)  # (K, q + 1, outputs)
    return RidgeForm(W, full[:, 1:], C[0] + full[:, 0].sum(axis=0), np.zeros(W.shape[1]))


def _to_powers_of_variables(terms: Terms, c: Floats) -> dict[tuple[int, ...], float]:
    """Hermite products to monomials of the same variables."""
    exact = to_monomials(terms.exponents, c, hermite_basis(terms.exponents.shape[1], terms.degree))
    return {alpha: float(value) for alpha, value in exact.items()}


def _multinomial(alpha: list[int]) -> float:
    return factorial(sum(alpha)) / prod(factorial(a) for a in alpha)


def _hermite_powers(degree: int) -> Floats:
    """Row k: the coefficients of the normalised Hermite polynomial h_k in powers of t."""
    table = np.zeros((degree + 1, degree + 1))
    table[0, 0] = 1.0
    for k in range(degree):
        table[k + 1, 1:] = table[k, :-1]
        if k:
            table[k + 1] -= np.sqrt(k) * table[k - 1]
        table[k + 1] /= np.sqrt(k + 1)
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


def _greedy_directions(problem: Problem, degree: int, width: int, rng: np.random.Generator, pool: int = 200) -> Floats:
    """Take one random direction after another, each the best of a pool on the residual."""
    d = problem.Z.shape[1]
    chosen = np.zeros((0, d))
    residual = problem.Y
    one = ridge_terms(1, degree)
    rows = slice(0, min(len(problem.Z), 2000))
    while len(chosen) < width:
        candidates = normalize(rng.normal(size=(pool, d)))
        gains = []
        for w in candidates:
            phi = evaluate_hermite(one, problem.Z[rows] @ w[:, None])
            gains.append(float(np.sum((phi @ residual[rows]) ** 2)))
        best = candidates[int(np.argmax(gains))]
        chosen = np.vstack([chosen, best])
        residual = solve_linear(problem, ridge_terms(len(chosen), degree), chosen).E
    return chosen
