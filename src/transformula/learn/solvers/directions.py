r"""Polynomials of a few linear forms: f(z) = P(W z), where to start looking for W, and how to improve it.

*Model.* z is a whitened input in R^d, W has r << d rows, and P is a polynomial of degree q in r
variables written in normalised Hermite products h_alpha(t), for which dh_k/dt = sqrt(k) h_{k-1}:
the gradient of P is again a matrix product with the same features.

*Start.* For z standard normal, f = sum_s <T_s, He_s(z)> / s! with T_s = E[y He_s(z)] (Stein), and

    E[grad f grad f'] = T_1 T_1' + T_2 T_2 + T_3(1) T_3(1)' / 2 + ...,

whose range is the row space of W. `gradient_moment` estimates the first three summands by a sum
over *pairs* of samples a != b, in O(n^2 d) time and without any tensor:

    T_3(1) T_3(1)':  sum y_a y_b [ a b' (s^2 - |a|^2 - |b|^2 + d + 4) - 2s (a a' + b b')
                                   + 2s I + 2 b a' ],
    T_2 T_2:         sum y_a y_b [ s a b' - a a' - b b' + I ],      T_1 T_1':  sum y_a y_b a b',

with s = a.b. Leaving out a = b makes the estimate unbiased, so noise alone gives eigenvalues
spread evenly about zero: those above |smallest| are signal. For other distributions this is only
a start; applied to residuals it finds directions that are still missing.

*Gauss-Newton with variable projection.* For given directions W the best coefficients C(W) solve a linear
least-squares problem, so only W is searched. A move V of the directions changes the prediction by
J V = sum_k (dP/dt_k) * (Z v_k), of which the part in the span of the features Phi is taken up by C: with Kaufman's
approximation the Gauss-Newton step solves

    min_V | e - (I - Phi Phi^+) J V |^2 + damping |V|^2

by conjugate gradients. Each product with J or its transpose is one pass over Z (n x d x r
operations): no (n x rd) Jacobian, no tensors, so 500 variables are no harder than 50. The damping
follows Levenberg and Marquardt. Only the row space matters, so directions return to orthonormal rows after each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, cg

from transformula.learn.solvers.features import Basis, Floats, Terms, evaluate_terms

#: Clip of whitened coordinates, in standard deviations: moves the start only, never the fit.
_CLIP = 3.0


def hermite_basis(n_features: int, degree: int) -> Basis:
    """The normalised Hermite polynomials, orthonormal for a standard normal variable."""
    k = np.arange(degree, dtype=float)
    ones = np.ones((n_features, 1))
    zero, one = np.zeros(n_features), np.ones(n_features)
    return Basis(zero, one, 0 * ones * k, ones * np.sqrt(k), ones / np.sqrt(k + 1))


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


def gradient_moment(Z: Floats, E: Floats) -> Floats:
    """Estimate E[grad f grad f'] from whitened inputs and (centred) targets, summed over outputs.

    Parameters
    ----------
    Z, E : (rows, d) inputs, roughly standard normal, and (rows, outputs) targets or residuals; the number of rows that
        are used grows like d^1.5, the rate at which the start can work.
    """
    limit = int(np.clip(3 * Z.shape[1] ** 1.5, 8000, 24000))
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
        pair = e * s
        others = e * (e.sum() - e)
        total = ze.sum(axis=0)
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


@dataclass(frozen=True)
class WhitenedRows:
    """Whitened inputs, targets and weights, and how coefficients are penalised.

    Attributes
    ----------
    Z, Y : (rows, d) and (rows, outputs).
    root : (rows,) square roots of the sample weights, of mean square 1.
    ridge : penalty on squared Hermite coefficients, relative to the number of rows.
    """

    Z: Floats
    Y: Floats
    root: Floats
    ridge: float

    def first(self, rows: int) -> WhitenedRows:
        """The first rows."""
        return replace(self, Z=self.Z[:rows], Y=self.Y[:rows], root=self.root[:rows])


@dataclass(frozen=True)
class DirectionFit:
    """Directions with their best coefficients, and what the next step needs."""

    W: Floats  # (r, d)
    phi: Floats  # (p, rows), times root
    inverse: Floats  # (p, p), of the penalised Gram matrix
    C: Floats  # (p, outputs)
    E: Floats  # (rows, outputs) residuals, times root
    loss: float


def solve_linear(problem: WhitenedRows, terms: Terms, W: Floats) -> DirectionFit:
    """Find the best coefficients for given directions."""
    phi = evaluate_hermite(terms, problem.Z @ W.T)
    phi *= problem.root
    n = phi.shape[1]
    gram = phi @ phi.T
    target = problem.Y * problem.root[:, None]
    diagonal = np.full(len(gram), max(problem.ridge, 1e-10) * n)
    diagonal[0] = 1e-12 * n
    gram[np.diag_indices_from(gram)] += diagonal
    # NumPy's BLAS only: a second thread pool (SciPy's) costs more than triangular solves save.
    inverse: Floats = np.asarray(np.linalg.inv(gram), dtype=np.float64)
    right = phi @ target
    C = inverse @ right
    C += inverse @ (right - gram @ C)
    E = target - phi.T @ C
    loss = float(np.sum(E**2) / n + problem.ridge * np.sum(C[1:] ** 2))
    return DirectionFit(W, phi, inverse, C, E, loss)


def gauss_newton(
    problem: WhitenedRows,
    terms: Terms,
    W: Floats,
    *,
    max_steps: int = 30,
    tolerance: float = 1e-4,
) -> DirectionFit:
    """Improve directions from a start.

    Parameters
    ----------
    problem, terms : the data and the features of the directions.
    W : (r, d) starting directions.
    max_steps, tolerance : stop there, or when a step lowers the loss by less than this share.
    """
    derivative = Derivative(terms)
    if not len(W):
        return solve_linear(problem, terms, W)
    state = solve_linear(problem, terms, orthonormalize(W))
    damping = 1e-3
    for _ in range(max_steps):
        move = _step(problem, state, derivative, damping)
        for _ in range(6):
            new = solve_linear(problem, terms, orthonormalize(state.W + move))
            if new.loss < state.loss:
                break
            move, damping = 0.25 * move, 4.0 * damping
        else:
            return state
        small = new.loss > state.loss * (1.0 - tolerance)
        state, damping = new, max(damping / 3.0, 1e-6)
        if small:
            break
    return state


def _step(problem: WhitenedRows, state: DirectionFit, derivative: Derivative, damping: float) -> Floats:
    """Solve for the move of the directions by preconditioned conjugate gradients."""
    Z = problem.Z
    phi, inverse = state.phi, state.inverse
    n, r = len(Z), len(state.W)
    slopes = derivative(state.C).reshape(len(phi), -1)
    gradient = (phi.T @ slopes).reshape(n, -1, r)  # (rows, outputs, r), times root
    size = np.mean(np.sum(gradient**2, axis=1), axis=0)[:, None]  # (r, 1)
    extra = damping * float(size.max()) + 1e-300

    def transposed(u: Floats) -> Floats:
        image: Floats = np.einsum("nmr,nm->rn", gradient, u) @ Z
        return image / n

    def normal(V: Floats) -> Floats:
        u = np.einsum("nmr,nr->nm", gradient, Z @ V.T)
        u -= phi.T @ (inverse @ (phi @ u))
        return transposed(u) + extra * V

    def as_operator(apply: Callable[[Floats], Floats]) -> LinearOperator:
        shape = state.W.size, state.W.size
        return LinearOperator(shape, lambda v: apply(v.reshape(state.W.shape)).ravel(), dtype=np.float64)

    right = transposed(state.E).ravel()
    inexact = {"rtol": 0.03, "maxiter": 30}
    move = cg(as_operator(normal), right, M=as_operator(lambda V: V / (size + extra)), **inexact)[0]
    return np.asarray(move.reshape(state.W.shape))


def orthonormalize(W: Floats) -> Floats:
    """Return an orthonormal basis of the row space."""
    q: Floats = np.linalg.qr(W.T)[0]
    return q.T


def predict_directions(terms: Terms, W: Floats, C: Floats, Z: Floats) -> Floats:
    """Evaluate the model at whitened inputs, in blocks of rows: (rows, outputs)."""
    out = np.empty((len(Z), C.shape[1]))
    step = max(64, 2**22 // len(terms))
    for start in range(0, len(Z), step):
        rows = slice(start, start + step)
        out[rows] = evaluate_hermite(terms, Z[rows] @ W.T).T @ C
    return out
