r"""Nonlinear fitting of tables: variable projection, Levenberg-Marquardt and Lawson weights.

For fixed scores T is linear in the values y and the carried slope alpha, so they are eliminated: the residual
r(a, b) = f - T(a, b, y*(a, b)) depends on scores only, and with Kaufman's approximation its Jacobian is the projection
off the span of the weights of

.. math::  \partial T / \partial b_k = w_k (y_k - T), \qquad \partial T / \partial a_k = x\, w_k (y_k - T).

(In z = e^{\delta x} equal-gap tables are rational functions of type (M-1, M-1) whose denominator has positive
coefficients, and moving the offsets moves poles towards the complex singularities of f.) Extra rows
``mu * max_x w_j(x) * y_j`` price the rounding that large values would cost; without them slopes coalesce and y
diverges. Several functions may share one set of scores: targets are then the columns of a matrix, and so are values.

No orthogonal factor is ever formed.  With A the weights, b the targets and J the derivatives, the triangle of
[A b] holds the values and their cost, and that of [A J b] holds in its lower right the parts of J and of b off the span
of A.  Many starts take their steps together, each as it would alone: for small matrices the interpreter is the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from transformula.budget import checkpoint, left, spend
from transformula.compiler import policy
from transformula.compiler.tables.softmax_table import Array
from transformula.kernel.enclosures.taylor_models import TINY

LEAST = 125_000.0  # microseconds that a fit may take, however little is left
CALL_MICROSECONDS = 150.0  # time of the interpreter for a stack of tables
TABLE_MICROSECONDS = 30.0  # time of the interpreter for each table of a stack
TRIALS = 8  # trials of a step, each damped four times as much as the one before


@dataclass
class FitProblem:
    """Samples of functions in normalised coordinates, and the price of large values.

    ``target`` has shape (points, functions).  ``price`` is the modelled rounding per unit of w_j |y_j|, times
    sqrt(number of points) so that it competes with a sum of squares.  Next to a ``singular`` point each token's step
    is limited on its own.  ``work`` counts the microseconds spent.
    """

    points: Array
    target: Array
    price: float
    linear: bool
    singular: bool = False
    work: float = 0.0

    def step(self, size: int) -> float:
        """Estimated microseconds of one step of a table of ``size`` tokens."""
        return float(22 * self.target.size * size**2 / policy.OPERATIONS_PER_MICROSECOND + 2 * TABLE_MICROSECONDS)

    def spend(self, count: int, size: int, operations: float) -> None:
        """Count floating-point operations for each of ``count`` tables, for the fit and for the search's budget."""
        faster = min(max(size / 30, 1.0), 2.0) if self.target.shape[1] == 1 else 1.0  # large matrices are quicker
        each = TABLE_MICROSECONDS + operations / (faster * policy.OPERATIONS_PER_MICROSECOND)
        self.work += CALL_MICROSECONDS + count * each
        spend(CALL_MICROSECONDS + count * each)


def part_left(part: float) -> float:
    """Microseconds of a fraction of the remaining budget, but never next to nothing."""
    return max(LEAST, part * left())


class Fresh(NamedTuple):
    """A start whose values are not solved yet."""

    slopes: Array
    offsets: Array
    price: float


@dataclass(frozen=True)
class FitState:
    """Scores, the values solved for them, and the error at each point, the largest over the functions."""

    slopes: Array
    offsets: Array
    price: float
    values: Array
    linear: Array
    softmax: Array
    errors: Array
    cost: float

    @property
    def sup(self) -> float:
        """Largest error on the sample."""
        return float(self.errors.max())


Start = Fresh | FitState


class _Solved(NamedTuple):
    """A stack of scores; ``triangle`` is the R of [A b], and holds LAPACK's reflectors below its diagonal."""

    slopes: Array
    offsets: Array
    softmax: Array
    triangle: Array
    cost: Array


class _Model(NamedTuple):
    """A stack of linear models, least squares of ``triangle`` · (step · norms) − ``right``; centres of the tokens."""

    triangle: Array
    right: Array
    norms: Array
    centre: Array
    spread: Array


class Descent:
    """Steps from several starts of one size. Arrays are (stack, columns, points): long rows are quick."""

    def __init__(self, problem: FitProblem, starts: Sequence[Start], roots: Array | None) -> None:
        self.problem, self.roots = problem, roots
        self.prices = np.array([[s.price] for s in starts])
        slopes, offsets = np.array([s.slopes for s in starts]), np.array([s.offsets for s in starts])
        self.count, self.size = slopes.shape
        self.n, self.functions = problem.target.shape
        self.width = self.size + problem.linear
        self.frame = np.zeros((self.width + self.functions, self.n + self.width))
        self.frame[self.width :, : self.n] = problem.target.T
        if problem.linear:
            self.frame[self.size, : self.n] = problem.points
        self.largest = np.maximum(np.abs(self.frame[: self.width, : self.n]).max(axis=1), policy.LEAST_WEIGHT)
        self.columns = np.arange(self.width)
        self.upper, self.square = np.tri(self.width).T, np.tri(2 * self.size).T  # ones on the diagonal and above
        self.at, self.matrix = self.solve(slopes, offsets, slice(None))

    def run(self, steps: int) -> list[FitState]:
        """The states after at most ``steps`` steps from each start."""
        at, history = self.at, [[cost] for cost in self.at.cost.tolist()]
        live = [k for k, past in enumerate(history) if math.isfinite(past[0])] if steps else []
        damping, rejected = [1e-2] * self.count, [0] * self.count
        model = self.model(at, self.matrix, slice(None)) if live else None
        while live and model is not None:
            checkpoint()
            here = slice(None) if len(live) == self.count else live
            slopes, offsets, usable = self.stepped(_part(at, here), _part(model, here), [damping[k] for k in live])
            trial, matrix = self.solve(slopes, offsets, here)
            won: list[int] = []
            going: list[int] = []
            stay: list[int] = []
            for i, (k, cost) in enumerate(zip(live, trial.cost.tolist(), strict=True)):
                past = history[k]
                if usable[i] and cost < past[-1]:
                    past.append(cost)
                    damping[k], rejected[k] = max(damping[k] / 3, 1e-13), 0
                    won.append(i)
                    if len(past) <= steps and not _stalled(past, policy.STALL):
                        going.append(i)
                else:
                    damping[k], rejected[k] = damping[k] * 4, rejected[k] + 1
                    if usable[i] and rejected[k] < TRIALS:
                        stay.append(i)
            at = _merged(at, [live[i] for i in won], trial, won)
            if going:
                if len(going) == self.count:
                    model = self.model(trial, matrix, slice(None))
                else:
                    moved = [live[i] for i in going]
                    fresh = self.model(_part(trial, going), matrix[going], moved)
                    model = _merged(model, moved, fresh, list(range(len(going))))
            live = sorted(live[i] for i in going + stay)
        self.at = at
        return self.states()

    def solve(self, slopes: Array, offsets: Array, here: slice | list[int]) -> tuple[_Solved, Array]:
        """Triangles of scores for the starts ``here``, and the transposes of [A b], a column for each price."""
        softmax = slopes[:, :, None] * self.problem.points + offsets[:, :, None]
        softmax -= softmax.max(axis=1, keepdims=True)
        np.exp(softmax, out=softmax)
        softmax /= softmax.sum(axis=1, keepdims=True)
        matrix = np.empty((len(slopes), *self.frame.shape))
        matrix[:] = self.frame
        matrix[:, : self.size, : self.n] = softmax
        largest = np.repeat(self.largest[None], len(slopes), axis=0)
        largest[:, : self.size] = np.maximum(softmax.max(axis=2), policy.LEAST_WEIGHT)
        matrix[:, self.columns, self.n + self.columns] = self.prices[here] * largest
        if self.roots is not None:
            matrix[:, :, : self.n] *= self.roots[here]
        triangle = _triangle(matrix)
        left = triangle[:, self.width :, self.width :]
        left = np.triu(left) if self.functions > 1 else left
        cost = np.einsum("kij,kij->k", left, left)
        solvable = np.isfinite(cost) & (triangle[:, self.columns, self.columns] != 0).all(axis=1)
        self.problem.spend(len(slopes), self.size, 2.0 * (self.n + self.width) * self.width**2)
        return _Solved(slopes, offsets, softmax, triangle, np.where(solvable, cost, np.inf)), matrix

    def values(self, solved: _Solved) -> Array:
        """Values, and the carried slopes if there are any; zeros where nothing can be solved."""
        upper = solved.triangle[:, : self.width, : self.width] * self.upper
        right = solved.triangle[:, : self.width, self.width :]
        good = np.isfinite(solved.cost)[:, None, None]
        if not good.all():
            upper, right = np.where(good, upper, np.eye(self.width)), np.where(good, right, 0.0)
        return np.asarray(np.linalg.solve(upper, right))  # LU leaves a triangle as it is

    def states(self) -> list[FitState]:
        """The stack, one by one."""
        values, target = self.values(self.at), self.problem.target.T
        misfit = target - np.swapaxes(values, 1, 2) @ np.concatenate(
            [self.at.softmax, np.broadcast_to(self.problem.points, (self.count, 1, self.n))][: 1 + self.problem.linear],
            axis=1,
        )
        carried = values[:, self.size] if self.problem.linear else np.zeros((self.count, self.functions))
        errors = np.abs(misfit).max(axis=1)
        return [
            FitState(
                self.at.slopes[k], self.at.offsets[k], float(self.prices[k, 0]), values[k, : self.size], carried[k],
                self.at.softmax[k].T, errors[k], float(self.at.cost[k]),
            )
            for k in range(self.count)
        ]  # fmt: skip

    def stepped(self, at: _Solved, model: _Model, damping: Sequence[float]) -> tuple[Array, Array, list[bool]]:
        """Scores after the best damped steps of the models, and which of them are usable."""
        size = 2 * self.size
        matrix = np.zeros((len(damping), size + 1, 2 * size))
        matrix[:, :size, :size], matrix[:, size, :size] = np.swapaxes(model.triangle, 1, 2), model.right
        matrix[:, np.arange(size), size + np.arange(size)] = np.array(damping)[:, None] * self.worth(at, model)
        triangle = _triangle(matrix)
        upper, right = triangle[:, :size, :size] * self.square, triangle[:, :size, size:]
        usable = np.asarray(np.isfinite(right).all(axis=(1, 2)))
        if not usable.all():
            upper = np.where(usable[:, None, None], upper, np.eye(size))
        step = np.linalg.solve(upper, right)[:, :, 0] / model.norms
        tilt, lift = step[:, : self.size], step[:, self.size :]
        reach = np.maximum(np.abs(tilt * model.spread), np.abs(lift))
        usable = np.asarray(np.isfinite(reach).all(axis=1))
        if not self.problem.singular:
            reach = reach.max(axis=1, keepdims=True)
        factor = np.where(usable[:, None], np.minimum(1.0, policy.MAX_STEP / (reach + TINY)), 0.0)
        if not usable.all():
            tilt, lift = np.nan_to_num(tilt, posinf=0, neginf=0), np.nan_to_num(lift, posinf=0, neginf=0)
        return at.slopes + factor * tilt, at.offsets + factor * (lift - tilt * model.centre), usable.tolist()

    def worth(self, at: _Solved, model: _Model) -> Array | float:
        """Price of a change of a score within its token's neighbourhood, in units of its effect.

        By its effect alone (Marquardt) a change that hardly matters would be free. Next to a singularity there always
        are some, and such long steps fail: there each is priced at least as if it moved the whole residual.
        """
        if not self.problem.singular:
            return 1.0
        reach = np.concatenate([model.spread, np.ones_like(model.spread)], axis=1) / model.norms
        return np.asarray(np.sqrt(1 + at.cost[:, None] * reach**2))

    def model(self, solved: _Solved, rows: Array, here: slice | list[int]) -> _Model:
        """Parts of derivatives and targets off the span of the weights; ``rows`` are those of `solve`."""
        size, count, n, width = self.size, len(solved.cost), self.n, self.width
        centre, spread = token_centres(self.problem.points, solved.softmax)
        values = np.swapaxes(self.values(solved), 1, 2)
        looked_up = values[:, :, :size] @ solved.softmax
        weighted = solved.softmax if self.roots is None else solved.softmax * self.roots[here]
        arm = self.problem.points - centre[:, :, None]
        self.problem.spend(count, size, 20.0 * self.functions * (n + width) * size**2)
        if self.functions == 1:
            matrix = np.zeros((count, width + 2 * size + 1, n + width))
            matrix[:, :width], matrix[:, -1] = rows[:, :width], rows[:, -1]
            lift = weighted * (values[:, 0, :size, None] - looked_up)
            matrix[:, width + size : -1, :n] = lift
            np.multiply(lift, arm, out=matrix[:, width : width + size, :n])
            rest = _triangle(matrix)[:, width : width + 2 * size, width:]
            triangle, right = rest[:, :, :-1] * self.square, rest[:, :, -1]
            norms = _column_norms(triangle, 1)
            return _Model(triangle / norms[:, None], right, norms, centre, spread)
        lift = weighted[:, None] * (values[:, :, :size, None] - looked_up[:, :, None])
        jacobian = np.zeros((count, self.functions, 2 * size, n + width))
        jacobian[..., size:, :n], jacobian[..., :size, :n] = lift, lift * arm[:, None]
        basis = np.linalg.qr(np.swapaxes(rows[:, :width], 1, 2))[0][:, None]
        jacobian -= (jacobian[..., :n] @ basis[:, :, :n]) @ np.swapaxes(basis, 2, 3)
        flat = np.swapaxes(jacobian, 1, 2).reshape(count, 2 * size, -1)
        norms = _column_norms(flat, 2)
        flat /= norms[:, :, None]
        residual = rows[:, width:] - values @ rows[:, :width]
        return _Model(*_from_gram(flat, residual.reshape(count, -1, 1)), norms, centre, spread)


def _stalled(costs: Sequence[float], count: int) -> bool:
    """Whether the last ``count`` steps or rounds together gained next to nothing."""
    return len(costs) > count and costs[-1] > policy.STALLED * costs[-count - 1]


_Stack = TypeVar("_Stack", _Solved, _Model)


def _part(stack: _Stack, here: slice | list[int]) -> _Stack:
    return stack if isinstance(here, slice) else type(stack)(*(a[here] for a in stack))


def _merged(stack: _Stack, where: list[int], new: _Stack, which: list[int]) -> _Stack:
    """The stack with some members replaced."""
    if not where or len(where) == len(stack[0]):
        return new if where else stack
    for old, fresh in zip(stack, new, strict=True):
        old[where] = fresh[which]
    return stack


def _triangle(matrices: Array) -> Array:
    """R of each transposed matrix of a stack, with reflectors below its diagonal; NaN where there is none."""
    try:
        raw = np.linalg.qr(np.swapaxes(matrices, 1, 2), mode="raw")[0]
    except np.linalg.LinAlgError:
        raw = np.full(matrices.shape, np.nan)
    return np.swapaxes(raw, 1, 2)[:, : min(matrices.shape[1:])]


def token_centres(points: Array, softmax: Array) -> tuple[Array, Array]:
    """Centre of mass and spread of every token's squared weight; the last axis is the points'."""
    share = softmax**2 + TINY
    share /= share.sum(axis=-1, keepdims=True)
    centre = share @ points
    spread = np.sqrt(((points - centre[..., None]) ** 2 * share).sum(axis=-1))
    return centre, spread + TINY


def _column_norms(matrix: Array, axis: int) -> Array:
    norms = np.sqrt((matrix * matrix).sum(axis=axis))
    return np.asarray(np.maximum(norms, 1e-10 * norms.max(axis=1, keepdims=True) + TINY))


def _from_gram(turned: Array, residual: Array) -> tuple[Array, Array]:
    """A square root of JᵀJ, and Jᵀr in its terms: many functions make J so long that its QR is expensive."""
    gram, gradient = turned @ np.swapaxes(turned, 1, 2), turned @ residual
    usable = np.asarray(np.isfinite(gram).all(axis=(1, 2)))[:, None, None]
    curvature, directions = np.linalg.eigh(np.where(usable, gram, np.eye(gram.shape[1])))
    root = np.sqrt(np.maximum(curvature, 1e-14 * curvature[:, -1:] + TINY))[:, :, None]
    axes = np.swapaxes(directions, 1, 2)
    return root * axes, np.where(usable, axes @ gradient / root, np.nan)[:, :, 0]


STACK_NUMBERS = 400_000  # numbers in the matrices of one stack: they stay in the processor's cache


def solve_values(problem: FitProblem, slopes: Array, offsets: Array) -> FitState:
    """Solve the regularised linear least squares for y and alpha."""
    return improve(problem, [Fresh(slopes, offsets, problem.price)], 0)[0]


def improve(problem: FitProblem, starts: Sequence[Start], steps: int, roots: Array | None = None) -> list[FitState]:
    """Levenberg-Marquardt on the scores of every start; the cost never grows.

    Each token's parameters are its slope about its own centre of mass and its level there, which
    decouples tokens of very different steepness.  Starts are of one size; ``roots``, of shape (starts, points), are the
    roots of the points' weights.  Stops early when ten steps together gain less than 2 %.
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
        live = [
            k
            for k, sups in enumerate(past)
            if sups[-1] > goal and not (sups[-1] > 2 * goal and _stalled(sups, policy.STALL // 2))
        ]
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
