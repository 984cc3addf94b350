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

from collections.abc import Iterator, Sequence

import numpy as np

from transformula.compiler.tables.descent import STALLED, TINY, Descent, Fresh, Problem, Start, State
from transformula.compiler.tables.softmax_table import Array

ROUNDS = 5  # so many rounds of equalising that leave all but 2 % of the error are the last
TOGETHER = 400_000  # numbers in the matrices of states that are improved together: they stay in the cache


def solve_values(problem: Problem, slopes: Array, offsets: Array) -> State:
    """Solve the regularised linear least squares for y and alpha."""
    return improve(problem, [Fresh(slopes, offsets, problem.price)], 0)[0]


def improve(problem: Problem, starts: Sequence[Start], steps: int, roots: Array | None = None) -> list[State]:
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
    found: list[State] = []
    for some in _stacks(problem, starts):
        found += Descent(problem, starts[some], None if roots is None else roots[some, None]).run(steps)
    return found


def _stacks(problem: Problem, starts: Sequence[Start]) -> Iterator[slice]:
    tokens = len(starts[0].slopes) if starts else 1
    numbers = (len(problem.points) + tokens) * 3 * tokens * problem.target.shape[1]
    count = max(1, TOGETHER // numbers)
    for first in range(0, len(starts), count):
        yield slice(first, first + count)


def equalise(problem: Problem, states: Sequence[State], goal: float, rounds: int, steps: int = 2) -> list[State]:
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
    return len(sups) > ROUNDS and sups[-1] > max(2 * goal, STALLED * sups[-ROUNDS - 1])
