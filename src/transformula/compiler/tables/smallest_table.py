r"""Fit the smallest table: search over the number of tokens, many starts, minimax refinement.

A function similar to one whose scores are stored starts from these, at the size that they suggest
(:mod:`one_size`).  For any other, and where that fails, every start of :mod:`start_scores` gets a few
Levenberg-Marquardt steps for a size M; the best are refined and equalised (Lawson, :mod:`one_size`).
Sizes grow, guided by the observed rate, until the tolerance is met, then shrink: by bisection down to
the largest size that failed, and by removing single tokens from the table found.  Next to a singular end
the best sum of exponentials is taken (:mod:`exponentials`), and for oscillatory functions scores known from
theory (:mod:`oscillations`).  Budgets count arithmetic, not seconds, so results are deterministic.

Behaviour: for analytic f the error falls spectrally, with about three real parameters a token;
for algebraic singularities it falls like exp(-c sqrt(M)).  Limits: nothing is proven here; the
error is measured on a dense sample that clusters where f is hard, and the landscape is not
convex, so M is small but not certified minimal.  A jump of f cannot be fitted in the sup-norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from transformula.budget import left
from transformula.compiler import policy
from transformula.compiler.refusal import no_table
from transformula.compiler.tables.descent import FitState, equalise, improve, part_left
from transformula.compiler.tables.fit_task import PLENTY, SMALL, Allowance, CannotFit, FitTask, prepare
from transformula.compiler.tables.one_size import (
    SearchSteps,
    attempt,
    grow_stored,
    grown_from,
    pruned_from,
    rivals,
    shrink_stored,
    stretched_from,
    within_reach,
)
from transformula.compiler.tables.softmax_table import FittedTable, Function
from transformula.compiler.tables.theory_tables import exponential_table, wave_table

__all__ = ["Allowance", "CannotFit", "allowance", "fit_table"]

OVERTIME = 1.6  # factor on the budget while the goal is close
UNRESOLVED = 0.25  # factor on the budget when sampling met a jump or noise


def fit_table(
    f: Function,
    lower: float,
    upper: float,
    eps: float,
    dtype: str = "float64",
    *,
    linear: bool = True,
    max_tokens: int = 400,
    most: Allowance = PLENTY,
) -> FittedTable:
    """Find a small table with ``|T - f| + rounding <= eps`` on [lower, upper].

    Parameters
    ----------
    f : vectorised callable, float64 to float64
    lower, upper : float
        Ends of the interval, finite, ``lower < upper``.
    eps : float
        Total tolerance; the measured approximation error is kept below 0.7 eps.
    dtype : {"float64", "float32"}
        The arithmetic the table will run in; the weights returned are representable in it.
    linear : bool
        Whether ``alpha * x`` may be added to the head's output.
    max_tokens : int
        Largest size tried.
    most : Allowance
        Microseconds after which the search gives up growing and shrinking.

    Raises
    ------
    CannotFit
        With the best table found in ``.best``.

    Examples
    --------
    >>> fit_table(np.tanh, -1.0, 1.0, 1e-9).size
    2
    """
    with np.errstate(over="ignore", invalid="ignore"):  # candidates that diverge are dropped by their cost
        task = prepare(f, lower, upper, eps, dtype, linear, max(max_tokens, policy.MANY_SWINGS))
        task.most = most
        return _fitted(task, max_tokens)


def allowance(doubtful: bool) -> Allowance:
    """Work on the next table within the remaining budget; infinite where that is plenty."""
    growing = part_left(policy.DOUBTFUL_PART if doubtful else policy.GROWING_PART)
    shrinking = policy.GROWING_PART * left()
    return Allowance(
        growing if growing < policy.TABLE_WORK else math.inf,
        shrinking if shrinking < policy.TABLE_WORK else math.inf,
    )


class Grown(NamedTuple):
    """An accepted table, its state, and the largest size that failed before it."""

    table: FittedTable
    state: FitState
    failed: int


def _fitted(task: FitTask, max_tokens: int) -> FittedTable:
    near = grow_stored(task, max_tokens)
    if near.table is not None and near.state is not None:
        table, state = shrink_stored(task, near.table, near.state)
        return _sharpened(task, table, [state, *rivals(task, table.size)])
    summed = exponential_table(task, max_tokens)
    if summed is not None:
        if summed.total_error <= task.eps:
            return summed
        task.best = summed
        raise CannotFit(_complaint(task), summed)
    found = _grow(task, max_tokens, near.failures)
    if found is None and not task.stuck:
        found = _grow_fast(task, max_tokens)
    if found is not None:
        table, state = _shrink(task, *found)
        return _sharpened(task, table, [state])
    if task.closest is not None:
        task.finish(task.closest)
    if task.best is not None and task.best.total_error <= task.eps:
        return task.best  # without headroom: the proof decides
    raise CannotFit(_complaint(task), task.best)


def _complaint(task: FitTask) -> str:
    reached = task.best.total_error if task.best is not None else np.inf
    ends = task.leaves.edges[0], task.leaves.edges[-1]
    return no_table(ends, task.eps, task.dtype, reached, task.leaves.resolved)


def _grow(task: FitTask, limit: int, failures: Sequence[tuple[int, FitState]]) -> Grown | None:
    """Increase the size until a table is accepted.

    ``failures`` are sizes that were tried before, and their states with the smallest errors.
    """
    size, crossings = task.least_size(), len(task.crossings)
    if not _resolvable(task, limit):
        size = limit = 1  # the error of a constant is found at once, and hardly larger than that of any other table
    wave = wave_table(task, limit) if policy.FEW_SWINGS < crossings <= limit else None
    if wave is not None:
        if crossings > policy.MANY_SWINGS:
            return Grown(*wave)
        limit = wave[0].size - 1  # only smaller tables are of interest
    history = [(tokens, missed.sup) for tokens, missed in failures]
    parent = min((missed for _, missed in failures), key=lambda missed: missed.sup, default=None)
    if history:
        size = history[-1][0] + 1
    budget = task.work + min(_growing_work(task), math.inf if wave is None else policy.SIZE_WORK)
    while size <= limit and not task.stuck and task.work < budget * (OVERTIME if _near(task, history) else 1.0):
        worse = parent is not None and history[-1][1] > parent.sup and not within_reach(task, parent.sup)
        warm = grown_from(task, parent, size, gently=worse)
        first = stretched_from(task, parent, size)
        cold = (not warm or _all_starts(task, size, history)) and not (first and size > policy.MAX_ALL_STARTS)
        table, state = attempt(task, size, warm, cold, first=first)
        if table is not None and state is not None:
            return Grown(table, state, history[-1][0] if history else 0)
        sup = np.inf if state is None else state.sup
        if state is not None and (parent is None or sup < parent.sup):
            parent = state
        history.append((size, sup))
        if task.leaves.graded and _stalled(history):
            break  # the fallback does better
        size = _next_size(task, history)
    return None if wave is None else Grown(*wave)


def _grow_fast(task: FitTask, limit: int) -> Grown | None:
    """Fallback: ever larger tables from all starts with few steps, from the closest size on.

    Next to a singularity the starts are graded like the function, and longer descents from them are worth it.
    """
    if not _resolvable(task, limit):
        return None
    graded = task.leaves.graded
    steps = SearchSteps(0, 2, 60, 12) if graded else SearchSteps(0, 2, 3, 3)
    size = max(task.least_size(), 1 if task.closest is None else len(task.closest.slopes))
    budget = task.work + min(
        (4.5e6 if graded else 1.5e6) * (1.0 if task.leaves.resolved else UNRESOLVED), task.most.growing
    )
    history: list[tuple[int, float]] = []
    while size <= limit and not task.stuck and task.work < budget * (OVERTIME if _near(task, history) else 1.0):
        table, state = attempt(task, size, [], steps=steps)
        if table is not None and state is not None:
            return Grown(table, state, history[-1][0] if history else 0)
        history.append((size, np.inf if state is None else state.sup))
        if _near(task, history) and _at_its_end(history):
            break
        size = math.ceil(1.2 * size)
    return None


def _resolvable(task: FitTask, limit: int) -> bool:
    """Whether tables of at most ``limit`` tokens may follow the oscillations of f."""
    return not task.leaves.crowded and len(task.crossings) <= max(limit, policy.MANY_SWINGS)


def _stalled(history: Sequence[tuple[int, float]]) -> bool:
    """Whether the last two sizes were hardly better than the one before them, which was not a small one."""
    return len(history) > 2 and history[-3][0] >= SMALL and history[-1][1] > 0.9 * history[-3][1]


def _at_its_end(history: Sequence[tuple[int, float]]) -> bool:
    """Whether many more tokens were hardly better, close to the goal."""
    return len(history) > 2 and history[-1][1] > 0.8 * min(sup for _, sup in history[:-1])


def _growing_work(task: FitTask) -> float:
    """Work after which sizes stop growing."""
    return min(policy.TABLE_WORK * (1.0 if task.leaves.resolved else UNRESOLVED), task.most.growing)


def _all_starts(task: FitTask, size: int, history: Sequence[tuple[int, float]]) -> bool:
    """Whether a size is tried from all starts, beside those grown from a smaller table."""
    if size <= policy.ALL_STARTS:
        return True
    far = bool(history) and not _near(task, history)
    due = size >= policy.ALL_STARTS_RATIO * max(task.searched, default=1)
    return due and not (task.leaves.graded and far)


def _near(task: FitTask, history: Sequence[tuple[int, float]]) -> bool:
    """Whether the last size came close to the goal, so that more work is well spent."""
    return bool(history) and within_reach(task, history[-1][1])


def _next_size(task: FitTask, history: Sequence[tuple[int, float]]) -> int:
    """Extrapolate log(error) over the sizes tried, cautiously; jump while nothing is resolved."""
    size, sup = history[-1]
    if len(history) < 2 or size < 4:
        return size + 1
    if not sup < 0.02 * task.range:
        return math.ceil(1.3 * size)
    before, sup_before = history[-2]
    rate = np.log(sup_before / max(sup, 1e-300)) / (size - before)
    need = np.log(max(sup / task.goal, 1.0)) / max(rate, 0.1)
    return size + int(np.clip(0.6 * need, 1, 1 + size // 16))


def _shrink(task: FitTask, table: FittedTable, state: FitState, failed: int) -> tuple[FittedTable, FitState]:
    """Remove tokens while the tolerance holds.

    Sizes never tried are bisected; a size that failed before is tried again from the table now
    known, less a token, and from all starts if it has not seen them yet.
    """
    budget = max(policy.TABLE_WORK, task.work) + policy.TABLE_WORK
    budget = min(budget, task.work + task.most.shrinking)
    while 1 < table.size <= policy.MAX_SHRINK and task.work < budget:
        untried = table.size - failed > 1
        size = (table.size + failed) // 2 if untried else table.size - 1
        warm, first = pruned_from(task, state, size), stretched_from(task, state, size)
        cold = size not in task.searched and size <= policy.MAX_ALL_STARTS and not first
        smaller, small_state = attempt(task, size, warm, cold, first=first)
        if smaller is not None and small_state is not None:
            table, state = smaller, small_state
            failed = min(failed, size - 1)
        elif untried:
            failed = size
        else:
            break
    return table, state


def _sharpened(task: FitTask, table: FittedTable, states: Sequence[FitState]) -> FittedTable:
    """The last table refined below its goal: a smaller error makes the proven bound smaller."""
    if table.size > policy.MAX_SHRINK or not task.most.shrinking:
        return table
    finely = not task.leaves.graded  # next to a singularity there are many points in any case
    problem = task.problem(table.size, finely=finely)
    tried = [*states, replace(states[0], price=problem.price)]
    steps = int(min(policy.TABLE_WORK / (len(tried) * problem.step(table.size)), 2 * policy.LONG_STEPS))
    closer = equalise(problem, improve(problem, tried, steps), 0.0, min(policy.LAWSON_ROUNDS, steps))
    for state in sorted(closer, key=lambda state: state.sup)[:2]:
        rival = task.finish(state, finely)
        if rival.total_error < table.total_error:
            table = rival
    return table
