r"""Fit the smallest table: search over the number of tokens, many starts, minimax refinement.

What is like a function whose tables are stored starts from these, at the size that they tell
(:mod:`neighbours`).  For anything else, and if that fails, every start of :mod:`placement` gets a few
Levenberg-Marquardt steps for a size M; the best are refined and equalised (Lawson, :mod:`one_size`).
Sizes grow, guided by the observed rate, until the tolerance is met, then shrink: by bisection down to
the largest size that failed, and by removing single tokens from the table found.  Next to a singularity
at an end of the interval the best sum of exponentials is taken (:mod:`exponentials`); where there is none
a table grows and shrinks by stretching its scores (:func:`placement.stretched`), and other starts are for
what that does not improve.  Budgets count arithmetic, not seconds, so results are deterministic.

Behaviour: for analytic f the error falls spectrally, with about three real parameters a token;
for algebraic singularities it falls like exp(-c sqrt(M)).  Limits: nothing is proven here; the
error is measured on a dense sample that clusters where f is hard, and the landscape is not
convex, so M is small but not certified minimal.  A jump of f cannot be fitted in the sup-norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transformula.budget import left
from transformula.compiler.tables.descent import FLOPS, State, operations_left
from transformula.compiler.tables.exponentials import exponential_table
from transformula.compiler.tables.fit_task import PLENTY, SMALL, Allowance, CannotFit, Task, prepare
from transformula.compiler.tables.library_starts import grow_stored, rivals, shrink_stored
from transformula.compiler.tables.minimax import equalise, improve
from transformula.compiler.tables.one_size import (
    LAST_RESORTS,
    LIGHT,
    STEADY,
    THOROUGH,
    Effort,
    attempt,
    grown_from,
    pruned_from,
    stretched_from,
    within_reach,
)
from transformula.compiler.tables.oscillations import FEW_SWINGS, SWINGS, wave_table
from transformula.compiler.tables.softmax_table import Function, Table

__all__ = ["THOROUGH", "Allowance", "CannotFit", "Effort", "allowance", "fit_table"]

ALWAYS_COLD = 5  # up to this size all starts are tried; above, mostly grown ones, which do better
COLD_RATIO = 1.4  # growth of the size after which all starts are tried again
CHAIN = 16  # a table of M tokens grows by at most 1 + M / CHAIN tokens at once
MAX_SHRINK = 80  # removing tokens from larger tables costs tens of seconds
MAX_COLD = 34  # a larger table shrinks from itself only: other starts hardly ever do better
LIGHT_RATIO = 1.2  # growth of the size in the last resort
LITTLE_GAIN = 0.8  # what is left of the error then, if that is the end
STALLED = 0.9  # what is left of the error after two sizes that were not worth it, next to a singularity
OVERTIME = 1.6  # factor on the budget while the goal is close
GRADED = 2.0  # the same next to a singularity, which takes many tokens
UNRESOLVED = 0.25  # factor on the budget when sampling met a jump or noise
BESIDE_WAVES = 1e9  # arithmetic for a table that is smaller than one with a token for every swing
QUIET = 1e-3  # of eps: rounding that does not matter, whatever it is multiplied by later
LOUDER = 2.5  # factor on rounding that a closer table may cost
FIRST = 0.4  # the part of what is left to a search that a table may take to grow
LATER = 0.1  # the same after a table that was not found: then all is doubtful
SHARPENING = 8e9  # arithmetic for the steps of the last table
SHRINKING = 0.4  # and the part that it may take to shrink


def fit_table(
    f: Function,
    lower: float,
    upper: float,
    eps: float,
    dtype: str = "float64",
    singular: Sequence[float] = (),
    *,
    linear: bool = True,
    effort: Effort | None = None,
    max_tokens: int = 400,
    most: Allowance = PLENTY,
) -> Table:
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
    singular : sequence of float
        Points where f is not smooth, if known; others are found by adaptive sampling.
    linear : bool
        Whether ``alpha * x`` may be added to the head's output.
    effort : Effort, optional
        Budgets of the search.
    max_tokens : int
        Largest size tried.
    most : Allowance
        Arithmetic after which the search gives up growing, in each of its two ways, and shrinking.

    Returns
    -------
    Table

    Raises
    ------
    CannotFit
        With the best table found in ``.best``.

    Examples
    --------
    >>> fit_table(np.tanh, -1.0, 1.0, 1e-9).size
    2
    """
    effort = effort or Effort()
    with np.errstate(over="ignore", invalid="ignore"):  # candidates that run away are dropped by their cost
        task = prepare(f, lower, upper, eps, dtype, singular, linear, max(max_tokens, SWINGS))
        task.most = most
        return _fitted(task, effort, max_tokens)


def allowance(doubtful: bool) -> Allowance:
    """What the next table may take of what is left to the search; infinite where that is plenty."""
    growing, shrinking = operations_left(LATER if doubtful else FIRST), SHRINKING * left() * FLOPS
    return Allowance(
        growing if growing < Effort.growing else math.inf,
        shrinking if shrinking < Effort.total - Effort.growing else math.inf,
    )


def _fitted(task: Task, effort: Effort, max_tokens: int) -> Table:
    near = grow_stored(task, effort, max_tokens)
    if near.table is not None and near.state is not None:
        table, state = shrink_stored(task, effort, near.table, near.state)
        return _sharpened(task, effort, table, [state, *rivals(task, effort, table.size)])
    summed = exponential_table(task, max_tokens)
    if summed is not None and summed.total_error <= task.eps:
        return summed
    if summed is not None:
        task.best = summed
        raise CannotFit(_complaint(task), summed)
    found = _grow(task, effort, max_tokens, near.failures)
    wave, closest = len(task.crossings) > FEW_SWINGS, task.closest
    other = not (task.stuck or task.leaves.graded or wave) and closest is not None and within_reach(task, closest.sup)
    if found is None and other:
        task.searched.clear()
        found = _grow(task, effort, max_tokens)  # another way: the price is that of the tolerance from the start
    if found is None and not task.stuck:
        found = _grow(task, STEADY if task.leaves.graded else LIGHT, max_tokens)
    if found is None and task.closest is not None:
        task.finish(task.closest)
    if found is None and task.best is not None and task.best.total_error <= task.eps:
        return task.best  # without headroom: whether it is enough is for the proof to say
    if found is None:
        raise CannotFit(_complaint(task), task.best)
    table, state = _shrink(task, effort, *found)
    return _sharpened(task, effort, table, [state])


def _complaint(task: Task) -> str:
    reached = task.best.total_error if task.best is not None else np.inf
    hint = "" if task.leaves.resolved else "; f looks discontinuous or noisy"
    return (
        f"no table on [{task.leaves.edges[0]}, {task.leaves.edges[-1]}] met eps = {task.eps:g} in {task.dtype}: "
        f"best total error {reached:.3g}{hint}; raise eps, narrow the interval or raise the effort"
    )


def _grow(
    task: Task, effort: Effort, limit: int, failures: Sequence[tuple[int, State]] = ()
) -> tuple[Table, State, int] | None:
    """Increase the size until a table is accepted; also return the last size that failed.

    ``failures`` are sizes that were tried before, and the states that came closest.
    """
    failed, size = 0, task.least_size()
    crossings = len(task.crossings)
    if task.leaves.crowded or crossings > max(limit, SWINGS):
        size = limit = 1  # its error is known soon, and hardly larger than that of any other
    light = effort in LAST_RESORTS
    wave = wave_table(task, limit) if FEW_SWINGS < crossings <= limit and not light else None
    if wave is not None and crossings > SWINGS:
        return wave
    if wave is not None:  # what takes more tokens than that is of no use
        limit = wave[0].size - 1
    if light and task.closest is not None:
        size = max(size, len(task.closest.slopes))
    parent: State | None = None  # the best failure so far, whose tokens are split
    history: list[tuple[int, float]] = []
    for tokens, missed in failures:
        failed, size = tokens, tokens + 1
        parent = missed if parent is None or missed.sup < parent.sup else parent
        history.append((tokens, missed.sup))
    wanted = effort.growing if task.leaves.resolved else UNRESOLVED * effort.growing
    wanted *= GRADED if task.leaves.graded and not light else 1.0
    budget = task.work + min(wanted, task.most.growing, math.inf if wave is None else BESIDE_WAVES)
    while size <= limit and not task.stuck and task.work < budget * (OVERTIME if _near(task, history) else 1.0):
        worse = parent is not None and history[-1][1] > parent.sup and not within_reach(task, parent.sup)
        warm = [] if light else grown_from(task, parent, size, gently=worse)
        due = size >= COLD_RATIO * max(task.searched, default=1) and not (task.leaves.graded and _far(task, history))
        first = [] if light else stretched_from(task, parent, size)
        cold = (not warm or size <= ALWAYS_COLD or due) and not (first and size > MAX_COLD)
        table, sup, state = attempt(task, effort, size, warm, cold, first=first)
        if table is not None and state is not None:
            return table, state, failed
        failed = size
        if not history or sup < min(entry[1] for entry in history):
            parent = state
        history.append((size, sup))
        if light and _near(task, history) and _at_its_end(history):
            break
        if not light and task.leaves.graded and _stalled(history):
            break  # steady starts do better
        size = int(np.ceil(LIGHT_RATIO * size)) if light else _next_size(task, history)
    return wave


def _at_its_end(history: Sequence[tuple[int, float]]) -> bool:
    """Whether many more tokens were hardly better, close to the goal: so are yet more."""
    return len(history) > 2 and history[-1][1] > LITTLE_GAIN * min(sup for _, sup in history[:-1])


def _stalled(history: Sequence[tuple[int, float]]) -> bool:
    """Whether the last two sizes were hardly better than the one before them, which was not a small one."""
    return len(history) > 2 and history[-3][0] >= SMALL and history[-1][1] > STALLED * history[-3][1]


def _near(task: Task, history: Sequence[tuple[int, float]]) -> bool:
    """Whether the last size came close to the goal, so that more work is well spent."""
    return bool(history) and within_reach(task, history[-1][1])


def _far(task: Task, history: Sequence[tuple[int, float]]) -> bool:
    """Whether the last size was far too small."""
    return bool(history) and not _near(task, history)


def _next_size(task: Task, history: Sequence[tuple[int, float]]) -> int:
    """Extrapolate log(error) over the sizes tried, cautiously; jump while nothing is resolved."""
    size, sup = history[-1]
    if len(history) < 2 or size < 4:
        return size + 1
    if not sup < 0.02 * task.range:
        return int(np.ceil(1.3 * size))
    before, sup_before = history[-2]
    rate = np.log(sup_before / max(sup, 1e-300)) / (size - before)
    need = np.log(max(sup / task.goal, 1.0)) / max(rate, 0.1)
    return size + int(np.clip(0.6 * need, 1, 1 + size // CHAIN))


def _shrink(task: Task, effort: Effort, table: Table, state: State, failed: int) -> tuple[Table, State]:
    """Remove tokens while the tolerance holds.

    Sizes never tried are bisected; a size that failed before is tried again from the table now
    known, less a token, and from the cold starts if it has not seen them yet.
    """
    budget = max(effort.total, task.work + effort.total - effort.growing)
    budget = min(budget, task.work + task.most.shrinking)
    while 1 < table.size <= MAX_SHRINK and task.work < budget:
        untried = table.size - failed > 1
        size = (table.size + failed) // 2 if untried else table.size - 1
        warm, first = pruned_from(task, state, size), stretched_from(task, state, size)
        cold = size not in task.searched and size <= MAX_COLD and not first
        smaller, _, small_state = attempt(task, effort, size, warm, cold, first=first)
        if smaller is not None and small_state is not None:
            table, state, failed = smaller, small_state, min(failed, size - 1)
        elif untried:
            failed = size
        else:
            break
    return table, state


def _sharpened(task: Task, effort: Effort, table: Table, states: Sequence[State]) -> Table:
    """The last table again, closer than it has to be: what it does not use makes the proven bound smaller."""
    if table.size > MAX_SHRINK or not task.most.shrinking:
        return table
    finely = not task.leaves.graded  # next to a singularity there are many points in any case
    quiet = max(QUIET * task.eps, LOUDER * table.rounding_estimate)
    problem = task.problem(table.size, finely=finely)
    tried = [*states, replace(states[0], price=problem.price)]
    steps = int(min(SHARPENING / (len(tried) * problem.step(table.size)), 2 * effort.long_steps))
    closer = equalise(problem, improve(problem, tried, steps), 0.0, min(effort.lawson_rounds, steps))
    for state in sorted(closer, key=lambda state: state.sup)[:2]:
        rival = task.finish(state, finely)
        if rival.rounding_estimate <= quiet and rival.total_error < table.total_error:
            table = rival
    return table
