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

The steps are taken in :mod:`descent`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transformula.compiler import policy
from transformula.compiler.tables.descent import TINY, Descent, FitProblem, FitState, Fresh, Start
from transformula.compiler.tables.softmax_table import Array

ROUNDS = 5  # rounds of reweighting over which the error must fall
STACK_NUMBERS = 400_000  # numbers in the matrices of one stack: they stay in the processor's cache


def least_squares(matrix: Array, right: Array, cutoff: float | None = None) -> Array:
    """The solution of smallest norm; `OverflowError` for numbers that are not finite, about which LAPACK only complains
    on standard error. Singular values below ``cutoff``, as a fraction of the largest, count as zero.

    Examples
    --------
    >>> least_squares(np.array([[1.0], [1.0]]), np.array([1.0, 3.0])).round(12)
    array([2.])
    """
    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        raise OverflowError("the numbers of a fit are beyond floats")
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=cutoff)[0], dtype=np.float64)


def solve_values(problem: FitProblem, slopes: Array, offsets: Array) -> FitState:
    """Solve the regularised linear least squares for y and alpha."""
    return improve(problem, [Fresh(slopes, offsets, problem.price)], 0)[0]


def improve(problem: FitProblem, starts: Sequence[Start], steps: int, roots: Array | None = None) -> list[FitState]:
    """Levenberg-Marquardt on the scores of every start; the cost never grows.

    Each token's parameters are its slope about its own centre of mass and its level there, which
    decouples tokens of very different steepness.  Stops early when ten steps together gain less than 2 %.

    Parameters
    ----------
    starts : sequence of Start
        All of one size.
    roots : array of shape (starts, points), optional
        Roots of the points' weights.
    """
    tokens = len(starts[0].slopes) if starts else 1
    numbers = (len(problem.points) + tokens) * 3 * tokens * problem.target.shape[1]
    count = max(1, STACK_NUMBERS // numbers)
    found: list[FitState] = []
    for first in range(0, len(starts), count):
        some = slice(first, first + count)
        found += Descent(problem, starts[some], None if roots is None else roots[some, None]).run(steps)
    return found


def equalise(
    problem: FitProblem, states: Sequence[FitState], goal: float, rounds: int, steps: int = 2
) -> list[FitState]:
    """Lawson's iteration: raise row weights where the error is large; the best state met from each.

    Each stops once its sup-norm is below ``goal``, or no longer falls.
    """
    best, now = list(states), list(states)
    past = [[state.sup] for state in states]
    squared = np.ones((len(best), len(problem.points)))
    for _ in range(rounds):
        live = [k for k, sups in enumerate(past) if sups[-1] > goal and not _stuck(sups, goal)]
        if not live:
            break
        for k in live:
            errors = now[k].errors
            squared[k] *= errors / (errors.max() + TINY) + 0.03  # the floor lets a point's weight recover
            squared[k] /= squared[k].mean()
        roots = np.sqrt(np.maximum(squared[live], 1e-8))
        for k, state in zip(live, improve(problem, [now[k] for k in live], steps, roots), strict=True):
            now[k] = state
            best[k] = state if state.sup < best[k].sup else best[k]
            past[k].append(best[k].sup)
    return best


def _stuck(sups: Sequence[float], goal: float) -> bool:
    """Whether the last rounds gained next to nothing, well above the goal."""
    return len(sups) > ROUNDS and sups[-1] > max(2 * goal, policy.STALLED * sups[-ROUNDS - 1])
