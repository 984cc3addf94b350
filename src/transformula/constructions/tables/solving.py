r"""Nonlinear fitting of a table: variable projection, Levenberg-Marquardt and Lawson weights.

For fixed scores T is linear in the values y and the carried slope alpha, so they are eliminated:
the residual r(a, b) = f - T(a, b, y*(a, b)) depends on scores only, and with Kaufman's
approximation its Jacobian is the projection of

.. math::  \partial T / \partial b_k = w_k (y_k - T), \qquad
           \partial T / \partial a_k = x\, w_k (y_k - T)

off the span of the weights.  (In z = e^{\delta x} equal-gap tables are rational functions of type
(M-1, M-1) whose denominator has positive coefficients: moving the offsets moves poles towards the
complex singularities of f; this is why 6 tokens give sin on a period to 1e-8.)

Extra rows ``mu * max_x w_j(x) * y_j`` price the rounding that large values would cost; without
them slopes coalesce and y diverges.  Lawson's reweighting turns least squares into minimax.

Several functions may share one set of scores (the sections of a function of several variables):
targets are then the columns of a matrix, and so are the values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from transformula.constructions.tables.table import Array, softmax_weights

MAX_STEP = 2.0  # largest change of a score within a token's own neighbourhood in one step
OVERHEAD = 2e5  # interpreter time of one small step, in floating-point operations
LEAST_WEIGHT = 1e-6  # a token is priced as if it had this weight somewhere: bounds |y|
TINY = 1e-250  # keeps columns of tokens that are nowhere visible from dividing by zero


@dataclass
class Problem:
    """Samples of functions in normalised coordinates, and the price of large values.

    ``target`` has shape (points, functions).  ``mu`` is the modelled rounding per unit of
    w_j |y_j|, times sqrt(number of points) so that it competes with a sum of squares;
    ``weights`` are the current (Lawson) row weights; ``work`` counts the arithmetic spent.
    """

    points: Array
    target: Array
    mu: float
    linear: bool
    weights: Array = field(init=False)
    work: float = 0.0

    def __post_init__(self) -> None:
        self.weights = np.ones_like(self.points)


@dataclass(frozen=True)
class State:
    """Scores, the values solved for them, and what the next step needs."""

    slopes: Array
    offsets: Array
    values: Array
    linear: Array
    softmax: Array
    basis: Array
    residual: Array
    cost: float

    def errors(self, problem: Problem) -> Array:
        """Unweighted residual at each sample point, the largest over the functions."""
        rows = self.residual[: len(problem.points)]
        return np.asarray(np.abs(rows).max(axis=1) / problem.weights)

    def sup(self, problem: Problem) -> float:
        """Largest unweighted residual on the sample."""
        return float(self.errors(problem).max())


def solve_values(problem: Problem, slopes: Array, offsets: Array) -> State:
    """Solve the weighted, regularised linear least squares for y and alpha."""
    t, root = problem.points, problem.weights
    softmax = softmax_weights(t, slopes, offsets)
    design = np.column_stack([softmax, t]) if problem.linear else softmax
    price = problem.mu * np.maximum(np.abs(design).max(axis=0), LEAST_WEIGHT)
    matrix = np.vstack([design * root[:, None], np.diag(price)])
    padding = np.zeros((design.shape[1], problem.target.shape[1]))
    target = np.vstack([root[:, None] * problem.target, padding])
    scale = np.maximum(np.linalg.norm(matrix, axis=0), TINY)
    matrix /= scale
    basis, upper = np.linalg.qr(matrix)
    diagonal = np.abs(np.diag(upper))
    problem.work += 2.0 * matrix.size * matrix.shape[1] + OVERHEAD
    size = len(slopes)
    if not np.isfinite(diagonal).all() or diagonal.min() == 0.0:
        solution, residual, cost = np.zeros((matrix.shape[1], target.shape[1])), target, np.inf
    else:
        scaled = np.linalg.solve(upper, basis.T @ target)  # LU leaves a triangle as it is
        residual = target - matrix @ scaled
        solution, cost = scaled / scale[:, None], float(np.vdot(residual, residual))
    carried = solution[size] if problem.linear else np.zeros(target.shape[1])
    cost = cost if np.isfinite(cost) else np.inf
    return State(slopes, offsets, solution[:size], carried, softmax, basis, residual, cost)


def improve(problem: Problem, state: State, iterations: int, enough: float = 0.0) -> State:
    """Levenberg-Marquardt on the scores; never returns a larger cost than it was given.

    Each token's parameters are its slope about its own centre of mass and its level there, which
    decouples tokens of very different steepness.  Stops early below the cost ``enough``, or when
    ten steps together gain less than 2 %.
    """
    size, damping, history = len(state.slopes), 1e-2, [state.cost]
    if not np.isfinite(state.cost):
        return state
    for _ in range(iterations):
        centre, spread = token_centres(problem.points, state.softmax)
        model = _linear_model(problem, state, centre)
        if model is None:
            return state
        curvature, directions, gradient, norms = model
        candidate = state
        for _ in range(8):
            step = directions @ (gradient / (curvature + damping**2)) / norms
            tilt, lift = step[:size], step[size:]
            reach = max(float(np.abs(tilt * spread).max()), float(np.abs(lift).max()))
            if not np.isfinite(reach):
                return state
            factor = min(1.0, MAX_STEP / (reach + TINY))
            offsets = state.offsets + factor * (lift - tilt * centre)
            candidate = solve_values(problem, state.slopes + factor * tilt, offsets)
            if candidate.cost < state.cost:
                break
            damping *= 4
        if not candidate.cost < state.cost:
            return state
        state, damping = candidate, max(damping / 3, 1e-13)
        history.append(state.cost)
        if state.cost <= enough or (len(history) > 10 and history[-1] > 0.98 * history[-11]):
            break
    return state


def token_centres(points: Array, softmax: Array) -> tuple[Array, Array]:
    """Centre of mass and spread of every token's squared weight."""
    share = softmax**2 + TINY
    share /= share.sum(axis=0)
    centre = points @ share
    spread = np.sqrt(((points[:, None] - centre) ** 2 * share).sum(axis=0))
    return centre, spread + TINY


def _linear_model(problem: Problem, state: State, centre: Array) -> tuple[Array, Array, Array, Array] | None:
    """Eigenvalues and -vectors of the scaled J^T J, J^T r in that basis, and the scaling."""
    jacobian = _projected_jacobian(problem, state, centre)
    norms = np.linalg.norm(jacobian, axis=0)
    norms = np.maximum(norms, 1e-10 * norms.max() + TINY)
    jacobian /= norms
    residual = state.residual.T.ravel()
    problem.work += 5.0 * jacobian.size * jacobian.shape[1] + OVERHEAD
    try:
        if state.residual.shape[1] > 1:  # many functions: the Gram matrix is far cheaper
            curvature, directions = np.linalg.eigh(jacobian.T @ jacobian)
            gradient = directions.T @ (jacobian.T @ residual)
            return np.maximum(curvature, 1e-14 * curvature[-1]), directions, gradient, norms
        left, sigma, right = np.linalg.svd(jacobian, full_matrices=False)
    except (np.linalg.LinAlgError, ValueError):
        return None
    return sigma**2, right.T, sigma * (left.T @ residual), norms


def _projected_jacobian(problem: Problem, state: State, centre: Array) -> Array:
    """Kaufman's Jacobian: one block of rows for every function, tilts then lifts."""
    n, functions = len(problem.points), state.residual.shape[1]
    rows, size = state.residual.shape[0], len(state.slopes)
    weighted = state.softmax * problem.weights[:, None]
    arm = problem.points[:, None] - centre
    looked_up = state.softmax @ state.values
    jacobian = np.zeros((functions, rows, 2 * size))
    for k in range(functions):
        lift = weighted * (state.values[:, k] - looked_up[:, k, None])
        jacobian[k, :n, :size] = lift * arm
        jacobian[k, :n, size:] = lift
        jacobian[k] -= state.basis @ (state.basis[:n].T @ jacobian[k, :n])
    return jacobian.reshape(functions * rows, 2 * size)


def equalise(problem: Problem, state: State, goal: float, rounds: int, steps: int = 2) -> tuple[State, float]:
    """Lawson's iteration: raise row weights where the residual is large; keep the best sup.

    Returns the best state with its sup-norm on the sample, and stops once that is below ``goal``.
    The problem's weights are restored.
    """
    best, best_sup = state, state.sup(problem)
    keep = problem.weights
    squared = keep**2
    for _ in range(rounds):
        if best_sup <= goal:
            break
        relative = state.errors(problem)
        relative /= relative.max() + TINY
        squared = squared * (relative + 0.03)  # the floor lets a point's weight recover
        squared /= squared.mean()
        problem.weights = np.sqrt(np.maximum(squared, 1e-8))
        state = improve(problem, solve_values(problem, state.slopes, state.offsets), steps)
        sup = state.sup(problem)
        if sup < best_sup:
            best, best_sup = state, sup
    problem.weights = keep
    return best, best_sup
