r"""Tables whose scores are known from theory: sums of exponentials at a singular end, and oscillatory functions.

*Singular ends.* Next to a root or a logarithm the best tables found have one token that holds the weight, and rare
ones: then

.. math::  T(x) = c_0 + c_1 d + \sum_j c_j e^{-s_j d}, \qquad d = |x - \text{end}|,

up to the weight of the rare tokens, which may be as small as one likes. The best sum of n exponentials has an error
that is equally large, with alternating signs, at 2n + 3 points. These are 2n + 3 equations for as many numbers: s, c
and the error itself. Remez' way to meet them: Newton's method at points that are given, then the points where the error
is largest, and so on. The rates s_j, and the points, change smoothly with n (like the root of n), so that each n starts
from those before it. The equations are solved in more digits than a float has, since exponentials are nearly dependent.

Where a function has no such sum, or Newton's method does not converge, the caller falls back to the general search.

*Oscillations.* With equal gaps h between tokens at :math:`\xi_j`, Gaussian scores and :math:`q = \exp(-2\pi^2/\kappa)`:

* at every extremum, :math:`\sum (-1)^j w_j = 2 q^{1/4} \cos(\pi x/h) (1 + O(q))`, a quotient of theta functions: two
  tokens a period make a cosine;
* halfway between extrema, every other time, :math:`\sum \xi_j w_j = x - (4 \pi h q/\kappa) \sin(2\pi x/h) (1 + O(q))`,
  the logarithmic derivative of one: with a linear term beside it one token a period makes a sine, of values like 1/q;
* at every extremum and halfway between them, four tokens a period,
  :math:`\sum \cos(\pi \xi_j/2h) w_j = q^{1/16} \cos(\pi x/2h) (1 + O(q^{1/2}))`: values hardly larger than the wave.

So the error, O(q) or O(q^{1/2}), is known beforehand, and gives :math:`\kappa`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from flint import arb_mat
from numpy.typing import NDArray

from transformula.budget import checkpoint, spend
from transformula.compiler import policy
from transformula.compiler.tables.descent import FitState, solve_values
from transformula.compiler.tables.fit_task import FitTask
from transformula.compiler.tables.one_size import SearchSteps, refine, within_reach
from transformula.compiler.tables.softmax_table import Array, FittedTable, Function, least_squares, to_dtype
from transformula.compiler.tables.start_scores import Leaves, Scores, scores_at
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.taylor_models import TINY

Indices = NDArray[np.int64]

MAX_STEP = 0.7  # largest change of the logarithm of a rate in one step


@dataclass(frozen=True)
class ExponentialSum:
    """c_0 + c_1 d + Σ c_j exp(−exp(l_j) d), its largest error, and the points where errors are level."""

    logs: Array
    factors: Array
    error: float
    points: Array
    work: float = 0.0  # microseconds that it took

    def places(self) -> Array:
        """The points but the first in a coordinate in which they are evenly spread next to 1."""
        return np.sqrt(-np.log(self.points[1:]))


def exponential_table(task: FitTask, most: int) -> FittedTable | None:
    """The smallest sum of exponentials that meets the tolerance, as a table; None if there is none of that size.

    Where many exponentials are not enough, or the budget is spent, the last sum: no other table would come closer.
    """
    edges, end = task.leaves.edges, task.leaves.finest
    if not (task.leaves.graded and end in (edges[0], edges[-1])):
        return None
    span = float(edges[-1] - edges[0]) * (1 if end == edges[0] else -1)
    reach = float(np.abs(edges).max() * np.abs(task.dense_values).max() / abs(span))
    goal, budget = policy.TOTAL_SHARE * task.eps, task.work + task.most.growing
    spoiled, last = 0, None
    for last in sums(lambda d: task.f(end + span * d), lambda d: (end + span * d - end) / span, most - 1, task.linear):
        task.work += last.work
        if task.work > budget:
            return _as_table(task, last, end, span)
        steepest = math.exp(min(float(last.logs[-1]), 600.0)) * reach
        if policy.STEEP_ROUNDING * task.unit**2 * steepest > max(last.error, goal):
            break
        if last.error > goal:
            continue
        table = _as_table(task, last, end, span)
        if task.best is None or table.total_error < task.best.total_error:
            task.best = table
        if table.total_error <= goal:
            return table
        spoiled += 1
        if spoiled == policy.MAX_SPOILED:
            return None
    many = last is not None and len(last.logs) >= policy.MANY_EXPONENTIALS
    return _as_table(task, last, end, span) if last is not None and many else None


def _as_table(task: FitTask, found: ExponentialSum, end: float, span: float) -> FittedTable:
    """A flat token with value c_0, and rare ones that have the weight w_j at the end and the value b_j + c_j/w_j.

    With e_j the exponentials and D = 1 + Σ w_j e_j, T differs from the sum S by Σ (b_j − S) w_j e_j / D. With b_j = S
    where e_j is 1/e that is little next to the end: steep tokens may be the more frequent, and have the smaller values.
    """
    low = len(found.factors) - len(found.logs)
    rates, factors = np.exp(found.logs), found.factors[low:]
    carried = found.factors[1] if low > 1 else 0.0
    at = np.concatenate([np.minimum(1 / rates, 1.0), (task.dense - end) / span])
    sums = _basis(at, found.logs, low)[:, low:] @ factors + found.factors[0]
    bases, sums = sums[: len(rates)], sums[len(rates) :]
    decaying = np.exp(-rates * at[len(rates) :, None])
    away = np.max(np.abs(bases - sums[:, None]) * decaying, axis=0)
    weights = np.minimum(policy.RARE_SHARE * task.eps / len(rates) / np.maximum(away, TINY), 1e-3)
    slopes = to_dtype(-rates / span, task.dtype)
    offsets = to_dtype(np.log(weights) - slopes * end, task.dtype)
    levels = [Fraction(b) + Fraction(a) * Fraction(end) for a, b in zip(slopes.tolist(), offsets.tolist(), strict=True)]
    with np.errstate(over="ignore"):
        values = bases + factors * np.exp(-np.array(levels, dtype=float))  # as the stored numbers have it
        values = to_dtype(np.append(found.factors[0], values) - carried / span * end, task.dtype)
    linear = float(to_dtype(np.array(carried / span), task.dtype))
    scores = (np.append(0.0, slopes),), (np.append(0.0, offsets),)
    return task.measure(FittedTable(*scores, values, linear, dtype=task.dtype))


def sums(f: Function, snapped: Function, most: int, linear: bool = True) -> Iterator[ExponentialSum]:
    """Best sums of ever more exponentials on 0..1, as long as they are found; c_1 is 0 if they are not ``linear``.

    ``snapped`` moves distances to where f is known: floats are further apart next to an end that is not zero.
    """
    before: list[ExponentialSum] = []
    for n in range(policy.FIRST_EXPONENTIALS, most + 1):
        checkpoint()
        next_error = 0.3 * before[-1].error if before else 0.0  # no sum gains more by one term
        grid = np.unique(snapped(_grid(f, n, next_error)))
        values = f(grid)
        starts = _first(grid, values, n, 1 + linear) if len(before) < 2 else [_predicted(before, f, snapped, n)]
        found = [one for start in starts if (one := _exchanged(grid, values, *start)) is not None]
        best = min(found, key=lambda one: one.error, default=None)
        work = (60.0 * len(grid) * n + 150.0 * (2 * n) ** 3) / policy.OPERATIONS_PER_MICROSECOND
        spend(work)
        if best is None or (before and not best.error < before[-1].error):
            return
        yield replace(best, work=work)
        before = [*before[-1:], best]


def _grid(f: Function, n: int, error: float) -> Array:
    """Points from where f hardly differs from its value at 0, evenly in log d but closer to each other next to 1."""
    far = np.geomspace(1.0, 1e-290, 600)
    away = np.abs(f(far) - f(np.zeros(1)))
    error = error or float(away.max()) * 1e-2
    lowest = far[min(int(np.flatnonzero(away > 0.03 * error)[-1]) + 1, len(far) - 1)]
    ranks = np.sin(0.5 * np.pi * np.linspace(0, 1, 30 * n + 100))
    return np.concatenate([[0.0], np.exp(math.log(lowest) * (1 - ranks))])


def _basis(points: Array, logs: Array, low: int) -> Array:
    """1, and d if ``low`` is 2, and the exponentials."""
    with np.errstate(over="ignore", invalid="ignore"):
        decaying = np.exp(-np.exp(logs) * points[:, None])
    return np.concatenate([points[:, None] ** np.arange(low), decaying], axis=1)


def _slopes(basis: Array, points: Array, logs: Array, factors: Array) -> Array:
    """Derivatives of a sum with respect to the logarithms of its rates."""
    return np.asarray(-(np.exp(logs) * points[:, None]) * basis[:, -len(logs) :] * factors[-len(logs) :])


def _first(grid: Array, values: Array, n: int, low: int) -> Iterator[tuple[Array, Array]]:
    """Rates found by least squares from several starts, and their factors."""
    for spread in policy.RATE_SPREADS:
        logs, damping = np.linspace(0.0, spread, n), 1.0
        factors, misfit = _fitted(grid, values, logs, low)
        for _ in range(60):
            basis = _basis(grid, logs, low)
            left, slopes = np.linalg.qr(basis)[0], _slopes(basis, grid, logs, factors)
            slopes = slopes - left @ (left.T @ slopes)
            price = np.sqrt(damping) * np.diag(np.linalg.norm(slopes, axis=0) + TINY)
            step = least_squares(np.concatenate([slopes, price]), np.append(misfit, np.zeros(n)))
            moved = logs + np.clip(step, -MAX_STEP, MAX_STEP)
            others, after = _fitted(grid, values, moved, low)
            better = float(after @ after) < float(misfit @ misfit)
            damping *= 1 / 8 if better else 8
            if better:
                logs, factors = moved, others
                misfit = after
        yield np.sort(logs), _fitted(grid, values, np.sort(logs), low)[0]


def _fitted(points: Array, values: Array, logs: Array, low: int) -> tuple[Array, Array]:
    """Factors by least squares, and the residual."""
    basis = _basis(points, logs, low)
    factors = least_squares(basis, values, 1e-16)
    return factors, values - basis @ factors


def _predicted(before: list[ExponentialSum], f: Function, snapped: Function, n: int) -> tuple[Array, Array]:
    """Rates and factors whose errors are level at the points extrapolated from the two sums before."""
    first, last = before
    roots = [math.sqrt(len(known.logs)) for known in before]
    by = (math.sqrt(n) - roots[1]) / (roots[1] - roots[0])
    logs = _extrapolated(first.logs, last.logs, n, by)
    low = len(last.factors) - len(last.logs)
    places = _extrapolated(first.places(), last.places(), 2 * n + low, by)
    points = snapped(np.concatenate([[0.0], np.exp(-(np.maximum(places, 0.0) ** 2))]))
    values = f(points)
    return _levelled(points, values, logs, _fitted(points, values, logs, low)[0])


def _extrapolated(first: Array, last: Array, count: int, by: float) -> Array:
    """Numbers by rank, ``by`` times as far beyond the last as these are beyond the first."""
    ranks = np.linspace(0, 1, count)
    before, now = (np.interp(ranks, np.linspace(0, 1, len(numbers)), numbers) for numbers in (first, last))
    return np.asarray(now + by * (now - before))


def _levelled(points: Array, values: Array, logs: Array, factors: Array) -> tuple[Array, Array]:
    """Rates and factors whose errors at the points are of one size and of alternating signs, if steps lead there."""
    level, before = 0.0, math.inf
    for _ in range(12):
        logs, factors, level, moved = _stepped(points, values, logs, factors, level)
        if moved < 1e-5 or MAX_STEP > moved > 0.5 * before:  # converged, or down to the last digits
            break
        before = moved
    return logs, factors


def _stepped(
    points: Array, values: Array, logs: Array, factors: Array, level: float
) -> tuple[Array, Array, float, float]:
    """A step of Newton's method to errors of one size with alternating signs; also how far the rates moved."""
    known = len(factors)
    basis, signs = _basis(points, logs, known - len(logs)), np.where(np.arange(len(points)) % 2, -1.0, 1.0)
    matrix = np.concatenate([basis, _slopes(basis, points, logs, factors), -signs[:, None]], axis=1)
    step = _solved(matrix, values - basis @ factors + signs * level)
    if not np.isfinite(step).all():
        return logs, factors, level, 0.0
    moved = float(np.max(np.abs(step[known:-1])))
    step *= min(1.0, MAX_STEP / max(moved, TINY))
    return logs + step[known:-1], factors + step[:known], level + float(step[-1]), moved


def _solved(matrix: Array, right: Array) -> Array:
    """The solution of linear equations, in more digits than a float has; NaN where there is none."""
    try:
        with precision(128):
            found = arb_mat(matrix.tolist()).solve(arb_mat([[v] for v in right.tolist()]), algorithm="approx")
        return np.array([float(v.mid()) for v in found.entries()])
    except (ZeroDivisionError, ValueError):
        return np.full(len(right), math.nan)


def _exchanged(grid: Array, values: Array, logs: Array, factors: Array) -> ExponentialSum | None:
    """The sum with the least error met while points are exchanged for those where the error is larger."""
    best: ExponentialSum | None = None
    wanted = len(logs) + len(factors) + 1
    for _ in range(10):
        errors = _basis(grid, logs, len(factors) - len(logs)) @ factors - values
        found = _alternating(errors, wanted) if np.isfinite(errors).all() else None
        if found is None:
            break
        sizes, largest = np.abs(errors[found]), float(np.abs(errors).max())
        if best is None or largest < best.error:
            best = ExponentialSum(logs, factors, largest, grid[found])
        if sizes.min() > policy.STALLED * largest or largest > 1.5 * best.error:
            break
        logs, factors = _levelled(grid[found], values[found], logs, factors)
    return best


def _alternating(errors: Array, wanted: int) -> Indices | None:
    """Indices where errors of alternating signs are largest; None if there are fewer than wanted."""
    turns = np.flatnonzero(np.diff(np.sign(errors)) != 0) + 1
    found = [int(run[np.argmax(np.abs(errors[run]))]) for run in np.split(np.arange(len(errors)), turns)]
    while len(found) > wanted:
        sizes = np.abs(errors[found])
        if len(found) == wanted + 1:
            del found[0 if sizes[0] < sizes[-1] else -1]
        else:
            least = int(np.argmin(sizes[1:] + sizes[:-1]))
            del found[least : least + 2]
    return np.array(found) if len(found) == wanted else None


def wave_table(task: FitTask, limit: int) -> tuple[FittedTable, FitState, int] | None:
    """A table of one, two or four tokens a period, its state, and the largest size that is too small.

    The more tokens, the smaller the values and the rounding.
    """
    digits, extrema = np.log(1 / min(task.goal / task.range, 0.5)), task.extrema()
    between = 0.5 * (extrema[1:] + extrema[:-1])
    one, two = 2 * np.pi**2 / digits, 2 * np.pi**2 / (np.log(4) + digits)
    kinds = [(between[::2], one), (between[1::2], one)] if task.linear else []
    kinds += [(extrema, two), (np.sort(np.concatenate([extrema, between])), np.pi**2 / digits)]
    for places, kappa in kinds:
        found = _wave(task, limit, places, float(kappa))
        if found is not None:
            return found
        task.spoiled = task.rounding_limited = 0  # other values may round less
    return None


def _wave(task: FitTask, limit: int, places: Array, kappa: float) -> tuple[FittedTable, FitState, int] | None:
    """A table with tokens at these places, and as few beyond the ends as will do."""
    places, leaves = (places - task.leaves.finest) / task.half, task.normalised_leaves()
    for beyond in range(policy.MAX_BEYOND + 1):
        scores = _continued(leaves, places, beyond, kappa)
        size = len(scores[0])
        if size > limit or task.spoiled >= policy.MAX_SPOILED:
            break
        problem = task.problem(size)
        best = solve_values(problem, *scores)
        table: FittedTable | None = None
        if within_reach(task, best.sup):
            table, best = refine(task, problem, [best], SearchSteps(0, 1, policy.QUICK_STEPS, policy.QUICK_STEPS))
        task.work += problem.work
        if table is not None:
            task.searched.update(range(size))  # other starts would not lead to a smaller table
            return table, best, size - 1
        task.missed(best)
    return None


def _continued(leaves: Leaves, places: Array, beyond: int, kappa: float) -> Scores:
    """Scores of tokens at these places, continued at equal gaps to the ends and ``beyond`` tokens further."""
    first, last = places[1] - places[0], places[-1] - places[-2]
    below = beyond + int((places[0] - leaves.edges[0]) / first)
    above = beyond + int((leaves.edges[-1] - places[-1]) / last)
    before, after = places[0] - first * np.arange(below, 0, -1), places[-1] + last * np.arange(1, above + 1)
    return scores_at(np.concatenate([before, places, after]), kappa)
