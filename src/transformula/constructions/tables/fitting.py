r"""Fit the smallest table: search over the number of tokens, many starts, minimax refinement.

For a size M every start of :mod:`placement` gets a few Levenberg-Marquardt steps; the best are
refined and equalised (Lawson).  Sizes grow, guided by the observed rate, until the tolerance is
met, then shrink: by bisection down to the largest size that failed, and by removing single tokens
from the table found.  Budgets count arithmetic, not seconds, so results are deterministic.

Behaviour: for analytic f the error falls spectrally, with about three real parameters a token;
for algebraic singularities it falls like exp(-c sqrt(M)).  Limits: nothing is proven here; the
error is measured on a dense sample that clusters where f is hard, and the landscape is not
convex, so M is small but not certified minimal.  A jump of f cannot be fitted in the sup-norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from transformula.constructions.tables.descent import FLOPS, Fresh, Problem, State, operations_left
from transformula.constructions.tables.placement import (
    Scores,
    graded_starts,
    inserted,
    split,
    starts,
    waves,
    without,
    worst_tokens,
)
from transformula.constructions.tables.solving import equalise, improve, solve_values
from transformula.constructions.tables.table import Function, Table
from transformula.constructions.tables.tasks import APPROXIMATION_SHARE, PLENTY, Allowance, CannotFit, Task, prepare
from transformula.limits import left

__all__ = ["THOROUGH", "Allowance", "CannotFit", "Effort", "allowance", "fit_table"]

WARM = 3  # warm starts tried for a size
ALWAYS_COLD = 5  # up to this size all starts are tried; above, mostly grown ones, which do better
COLD_RATIO = 1.4  # growth of the size after which all starts are tried again
CHAIN = 16  # a table of M tokens grows by at most 1 + M / CHAIN tokens at once
MAX_SHRINK = 80  # removing tokens from larger tables costs tens of seconds
MAX_COLD = 34  # a larger table shrinks from itself only: other starts hardly ever do better
LIGHT_RATIO = 1.2  # growth of the size in the last resort
LITTLE_GAIN = 0.8  # what is left of the error then, if that is the end
OVERTIME = 1.6  # factor on the budget while the goal is close
GRADED = 2.0  # the same next to a singularity, which takes many tokens
UNRESOLVED = 0.25  # factor on the budget when sampling met a jump or noise
WITHIN_REACH = 30.0  # equalising with moving scores gains about this factor at best
HOPELESS = 300.0  # further than this from the goal no other start of that size will do
USUAL_GAIN = 0.7  # a larger table that is not better than a smaller one by this factor has met a poor minimum
SWINGS = 40  # what swings to and fro more often gets a token for every swing
MAX_BEYOND = 8  # tokens beyond the ends for that
QUIET = 1e-3  # of eps: rounding that does not matter, whatever it is multiplied by later
FIRST = 0.4  # the part of what is left to a search that a table may take to grow
LATER = 0.1  # the same after a table that was not found: then all is doubtful
SHRINKING = 0.4  # and the part that it may take to shrink
SCREENED = 32  # starts that are tried together


@dataclass(frozen=True)
class Effort:
    """How hard to search, in floating-point operations as they were once counted (about 4e9 a second on one core)."""

    per_size: float = 1.5e9
    growing: float = 9e9
    total: float = 2e10
    quick_steps: int = 8
    finalists: int = 4
    long_steps: int = 80
    lawson_rounds: int = 25


THOROUGH = Effort(per_size=5e9, growing=3e10, total=5e10, quick_steps=20, finalists=10)
LIGHT = Effort(quick_steps=0, finalists=2, long_steps=3, lawson_rounds=3, growing=4e9)
#: The same for what is singular: starts are graded like the function, and steps from them go on for long.
STEADY = Effort(quick_steps=0, finalists=2, long_steps=60, lawson_rounds=12, growing=1.2e10)
LAST_RESORTS = (LIGHT, STEADY)
WAVY = Effort(long_steps=4, lawson_rounds=4)


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
    found = _grow(task, effort, max_tokens)
    if found is None and not task.stuck:
        found = _grow(task, STEADY if task.leaves.graded else LIGHT, max_tokens)
    if found is None and task.closest is not None:
        task.finish(task.closest)
    if found is None and task.best is not None and task.best.total_error <= task.eps:
        return task.best  # without headroom: whether it is enough is for the proof to say
    if found is None:
        raise CannotFit(_complaint(task), task.best)
    return _sharpened(task, effort, *_shrink(task, effort, *found))


def _complaint(task: Task) -> str:
    reached = task.best.total_error if task.best is not None else np.inf
    hint = "" if task.leaves.resolved else "; f looks discontinuous or noisy"
    return (
        f"no table on [{task.leaves.edges[0]}, {task.leaves.edges[-1]}] met eps = {task.eps:g} in {task.dtype}: "
        f"best total error {reached:.3g}{hint}; raise eps, narrow the interval or raise the effort"
    )


def _grow(task: Task, effort: Effort, limit: int) -> tuple[Table, State, int] | None:
    """Increase the size until a table is accepted; also return the last size that failed."""
    failed, size = 0, task.least_size()
    crossings = len(task.crossings)
    if task.leaves.crowded or crossings > max(limit, SWINGS):
        size = limit = 1  # its error is known soon, and hardly larger than that of any other
    light = effort in LAST_RESORTS
    if SWINGS < crossings <= limit and not light and (wave := _waves(task, limit)) is not None:
        return wave
    if light and task.closest is not None:
        size = max(size, len(task.closest.slopes))
    parent: State | None = None  # the best failure so far, whose tokens are split
    history: list[tuple[int, float]] = []
    wanted = effort.growing if task.leaves.resolved else UNRESOLVED * effort.growing
    wanted *= GRADED if task.leaves.graded and not light else 1.0
    budget = task.work + min(wanted, task.most.growing)
    while size <= limit and not task.stuck and task.work < budget * (OVERTIME if _near(task, history) else 1.0):
        warm = [] if light else _grown(task, parent, size)
        due = size >= COLD_RATIO * max(task.searched, default=1) and not (task.leaves.graded and _far(task, history))
        cold = not warm or size <= ALWAYS_COLD or due
        table, sup, state = _attempt(task, effort, size, warm, cold)
        if table is not None and state is not None:
            return table, state, failed
        failed = size
        if not history or sup < min(entry[1] for entry in history):
            parent = state
        history.append((size, sup))
        if light and _near(task, history) and _at_its_end(history):
            break
        size = int(np.ceil(LIGHT_RATIO * size)) if light else _next_size(task, history)
    return None


def _waves(task: Task, limit: int) -> tuple[Table, State, int] | None:
    """A table of what oscillates often: with a token for every swing, steps are dear and hardly needed."""
    places, leaves = (task.swings() - task.leaves.finest) / task.half, task.normalised_leaves()
    for beyond in range(MAX_BEYOND + 1):
        found = list(waves(leaves, places, beyond, task.goal / task.range))
        size = len(found[0][0])
        if size > limit or task.stuck:
            break
        problem = task.problem(size)
        best = min(improve(problem, [Fresh(*one, problem.price) for one in found], 0), key=lambda state: state.sup)
        table: Table | None = None
        if best.sup < WITHIN_REACH * task.goal:
            table, best = _refine(task, WAVY, problem, [best])
        task.work += problem.work
        if table is not None:
            return table, best, size - 1
        task.missed(best)
    return None


def _at_its_end(history: Sequence[tuple[int, float]]) -> bool:
    """Whether many more tokens were hardly better, close to the goal: so are yet more."""
    return len(history) > 2 and history[-1][1] > LITTLE_GAIN * min(sup for _, sup in history[:-1])


def _near(task: Task, history: Sequence[tuple[int, float]]) -> bool:
    """Whether the last size came close to the goal, so that more work is well spent."""
    return bool(history) and history[-1][1] < WITHIN_REACH * task.goal


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
        warm, cold = _pruned(task, state, size), size not in task.searched and size <= MAX_COLD
        smaller, _, small_state = _attempt(task, effort, size, warm, cold)
        if smaller is not None and small_state is not None:
            table, state, failed = smaller, small_state, min(failed, size - 1)
        elif untried:
            failed = size
        else:
            break
    return table, state


def _sharpened(task: Task, effort: Effort, table: Table, state: State) -> Table:
    """The last table again, closer than it has to be: what it does not use makes the proven bound smaller."""
    if table.rounding_estimate > QUIET * task.eps or table.size > MAX_SHRINK or not task.most.shrinking:
        return table
    problem = task.problem(table.size)
    closer = improve(problem, [state, replace(state, price=problem.price)], 2 * effort.long_steps)
    for rival in map(task.finish, equalise(problem, closer, 0.0, effort.lawson_rounds)):
        if rival.rounding_estimate <= QUIET * task.eps and rival.total_error < table.total_error:
            table = rival
    return table


def _grown(task: Task, state: State | None, size: int) -> list[Scores]:
    """Warm starts larger than ``state``: split the tokens where the error is largest."""
    if state is None:
        return []
    problem, missing = task.problem(size), size - len(state.slopes)
    solved = solve_values(problem, state.slopes, state.offsets)
    scores = state.slopes, state.offsets
    tokens = worst_tokens(solved.errors, solved.softmax, solved.values[:, 0], max(WARM, missing))
    if missing > len(tokens):
        return []
    if missing == 1:
        grown = [split(scores, problem.points, solved.softmax, [token]) for token in tokens]
    else:
        grown = [split(scores, problem.points, solved.softmax, tokens[:missing])]
    if task.leaves.graded and missing < len(state.slopes):
        grown.append(inserted(scores, solved.errors, solved.softmax, missing))
    return grown


def _pruned(task: Task, state: State, size: int) -> list[Scores]:
    """Scores of ``size`` tokens left after removing, one by one, the token missed least."""
    scores = state.slopes, state.offsets
    problem = task.problem(size)
    rivals = [scores]
    while len(scores[0]) > size:
        rivals = [without(scores, k) for k in range(len(scores[0]))]
        solved = improve(problem, [Fresh(*rival, problem.price) for rival in rivals], 0)
        rivals = [rivals[k] for k in np.argsort([s.cost for s in solved], kind="stable")]
        scores = rivals[0]
    task.work += problem.work
    return rivals[:WARM]


def _attempt(
    task: Task, effort: Effort, size: int, warm: Sequence[Scores], cold: bool = True
) -> tuple[Table | None, float, State | None]:
    """Look for an acceptable table of ``size`` tokens.

    Returns the table or None, and the smallest sup-norm met with its state.
    """
    problem = task.problem(size)
    if cold and effort not in LAST_RESORTS:
        task.searched.add(size)
    fresh = starts(task.normalised_leaves(), size, task.poles) if cold else ()
    finalists = _screen(task, effort, problem, [*warm, *fresh])[
        : effort.finalists if cold else min(2, effort.finalists)
    ]
    if task.leaves.graded and not cold:  # what has grown may be stuck, though it looks better for now
        finalists += _screen(task, effort, problem, list(graded_starts(task.normalised_leaves(), size)))[:1]
    found: Table | None = None
    best: State | None = None
    for some in (finalists[:1], finalists[1:]):  # the first is often enough, or shows that none will do
        if found is not None or not some or (best is not None and _out_of_reach(task, best)):
            break
        found, state = _refine(task, effort, problem, some)
        if found is not None or best is None or state.sup < best.sup:
            best = state
        if problem.work > effort.per_size:
            break
    task.work += problem.work
    if best is None:
        return None, np.inf, None
    if found is None:
        task.missed(best)
    return found, best.sup, best


def _out_of_reach(task: Task, state: State) -> bool:
    """Whether a size is too small: as much better than smaller ones as can be hoped for, and far from the goal."""
    expected = task.closest is None or state.sup < USUAL_GAIN * task.closest.sup
    return expected and state.sup > HOPELESS * task.goal


def _screen(task: Task, effort: Effort, problem: Problem, candidates: Sequence[Scores]) -> list[State]:
    """A few steps from every start at every price; distinct states, best first."""
    pool: list[State] = []
    fresh = [Fresh(*scores, price) for scores, price in product(candidates, task.prices(problem))]
    for first in range(0, len(fresh), SCREENED):
        pool += improve(problem, fresh[first : first + SCREENED], effort.quick_steps)
        if min(state.sup for state in pool) <= task.goal or problem.work > 0.5 * effort.per_size:
            break
    pool = [state for state in pool if np.isfinite(state.cost)]
    pool.sort(key=lambda state: (state.sup, state.price))
    distinct = pool[:1]
    for state in pool[1:]:  # an equal sup-norm is the same minimum found again
        if state.sup > 1.01 * distinct[-1].sup:
            distinct.append(state)
    return distinct


def _refine(task: Task, effort: Effort, problem: Problem, states: Sequence[State]) -> tuple[Table | None, State]:
    """Many steps, then minimax, first at the states' own prices and then at that of rounding itself."""
    enough = 1.2 * APPROXIMATION_SHARE * task.eps

    def polished(states: Sequence[State]) -> list[State]:
        found = improve(problem, states, effort.long_steps)
        near = [k for k, state in enumerate(found) if state.sup < WITHIN_REACH * task.goal]
        equal = equalise(problem, [found[k] for k in near], task.goal, effort.lawson_rounds)
        for k, state in zip(near, equal, strict=True):
            found[k] = state
        return found

    found = polished(states)
    again = [s for s in found if enough < s.sup <= HOPELESS * task.goal and s.price != problem.price]
    if again:
        found += polished([replace(state, price=problem.price) for state in again])
    for state in sorted(found, key=lambda state: (-state.price, state.sup)):  # small values round best
        if state.sup <= enough and (table := _accepted(task, problem, state)) is not None:
            return table, state
    return None, min(found, key=lambda state: state.sup)


def _accepted(task: Task, problem: Problem, state: State) -> Table | None:
    """The finished table if it is accepted.

    When rounding alone spoils the total, large values are made dearer and the scores move again.
    """
    for _ in range(4):
        table = task.finish(state)
        if task.accepts(table):
            return table
        if table.error_estimate > APPROXIMATION_SHARE * task.eps:
            return None
        (state,) = improve(problem, [replace(state, price=5 * state.price)], 30)
    return None
