r"""Gauss-Newton with variable projection for f(z) = P(W z).

For given directions W the best coefficients C(W) solve a linear least-squares problem, so only W is
searched. A move V of the directions changes the prediction by J V = sum_k (dP/dt_k) * (Z v_k), of
which the part in the span of the features Phi is taken up by C: with Kaufman's approximation the
Gauss-Newton step solves

    min_V | e - (I - Phi Phi^+) J V |^2 + damping |V|^2

by conjugate gradients. Each product with J or its transpose is one pass over Z (n x d x r
operations): no (n x rd) Jacobian, no tensors, so 500 variables are no harder than 50. The damping
follows Levenberg and Marquardt. Directions return to orthonormal rows (all products: only the row
space matters) or to unit rows (ridge functions: only each direction matters) after each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transformula.learn.solvers.features import Floats, Terms
from transformula.learn.solvers.subspace import Derivative, evaluate_hermite


@dataclass
class Problem:
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
    ridge: float = 1e-6


@dataclass
class State:
    """Directions with their best coefficients, and what the next step needs."""

    W: Floats  # (r, d)
    phi: Floats  # (p, rows), times root
    inverse: Floats  # (p, p), of the penalised Gram matrix
    C: Floats  # (p, outputs)
    E: Floats  # (rows, outputs) residuals, times root
    loss: float


def solve_linear(problem: Problem, terms: Terms, W: Floats) -> State:
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
    return State(W, phi, inverse, C, E, loss)


def gauss_newton(
    problem: Problem,
    terms: Terms,
    W: Floats,
    *,
    max_steps: int = 30,
    tolerance: float = 1e-4,
    orthonormal: bool = True,
) -> State:
    """Improve directions from a start.

    Parameters
    ----------
    problem, terms : the data and the features of the directions.
    W : (r, d) starting directions.
    max_steps, tolerance : stop there, or when a step lowers the loss by less than this share.
    orthonormal : keep the rows orthonormal (all products) or only of unit length (ridges).
    """
    retract = orthonormalize if orthonormal else normalize
    derivative = Derivative(terms)
    if not len(W):
        return solve_linear(problem, terms, W)
    state = solve_linear(problem, terms, retract(W))
    damping = 1e-3
    for _ in range(max_steps):
        move = _step(problem, state, derivative, damping)
        for _ in range(6):
            new = solve_linear(problem, terms, retract(state.W + move))
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


def _step(problem: Problem, state: State, derivative: Derivative, damping: float) -> Floats:
    """Solve for the move of the directions by preconditioned conjugate gradients."""
    Z, phi, inverse = problem.Z, state.phi, state.inverse
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

    residual = transposed(state.E)
    preconditioner = 1.0 / (size + extra)
    V = np.zeros_like(residual)
    search = preconditioner * residual
    power = first = float(np.sum(residual * search))
    for _ in range(30):
        image = normal(search)
        curvature = float(np.sum(search * image))
        if power <= 1e-3 * first or curvature <= 0.0:
            break
        V += (power / curvature) * search
        residual -= (power / curvature) * image
        scaled = preconditioner * residual
        new_power = float(np.sum(residual * scaled))
        search = scaled + (new_power / power) * search
        power = new_power
    return V


def orthonormalize(W: Floats) -> Floats:
    """Return an orthonormal basis of the row space."""
    q: Floats = np.linalg.qr(W.T)[0]
    return q.T


def normalize(W: Floats) -> Floats:
    """Scale every row to unit length."""
    length = np.linalg.norm(W, axis=1, keepdims=True)
    return np.asarray(W / np.where(length > 0, length, 1.0))


def predict_directions(terms: Terms, W: Floats, C: Floats, Z: Floats) -> Floats:
    """Evaluate the model at whitened inputs, in blocks of rows: (rows, outputs)."""
    out = np.empty((len(Z), C.shape[1]))
    step = max(64, 2**22 // len(terms))
    for start in range(0, len(Z), step):
        rows = slice(start, start + step)
        out[rows] = evaluate_hermite(terms, Z[rows] @ W.T).T @ C
    return out
