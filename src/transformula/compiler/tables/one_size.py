"""Search for a table of one size: a few steps from every start, many from the best, then minimax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from transformula.compiler import policy
from transformula.compiler.tables.descent import FitProblem, FitState, Fresh, Start
from transformula.compiler.tables.fit_task import FitTask
from transformula.compiler.tables.minimax import equalise, improve, solve_values
from transformula.compiler.tables.softmax_table import FittedTable
from transformula.compiler.tables.start_scores import FEW, Scores, split, starts, without, worst_tokens

USUAL_GAIN = 0.7  # error over that of the closest smaller table; a larger ratio is a poor local minimum
SCREENED = 32  # starts in one stack


def attempt(
    task: FitTask, size: int, warm: Sequence[Scores], cold: bool = True, reach: float = math.inf
) -> tuple[FittedTable | None, FitState | None]:
    """Search for an acceptable table of ``size`` tokens from warm starts and, if ``cold``, from all others.

    Starts further than ``reach`` goals away after a few steps are dropped. Returns the table or None, and the state
    with the smallest error.
    """
    problem = task.problem(size)
    if cold:
        task.searched.add(size)
    finalists = _finalists(task, problem, size, warm, cold, reach)
    found: FittedTable | None = None
    best: FitState | None = None
    for some in (finalists[:1], finalists[1:]):  # the first is often enough, or shows that the size is too small
        if not some or (best is not None and _too_small(task, best)):
            break
        found, state = refine(task, problem, some, policy.LONG_STEPS, policy.LAWSON_ROUNDS)
        if found is not None or best is None or state.sup < best.sup:
            best = state
        if found is not None or problem.work > policy.SIZE_WORK:
            break
    task.work += problem.work
    if found is None and best is not None:
        task.missed(best)
    return found, best


def within_reach(task: FitTask, sup: float) -> bool:
    """Whether a table with this error may still be brought to the goal."""
    return sup < policy.WITHIN_REACH * task.goal


def _finalists(
    task: FitTask, problem: FitProblem, size: int, warm: Sequence[Scores], cold: bool, reach: float
) -> list[FitState]:
    """The best of all starts after a few steps."""
    fresh = starts(task.normalised_leaves(), size, task.poles if size > FEW else None) if cold else ()
    many = policy.FINALISTS if cold or reach < math.inf else min(2, policy.FINALISTS)
    found = _screen(task, problem, [*warm, *fresh])[:many]
    return [state for state in found if state.sup <= reach * task.goal]


def _too_small(task: FitTask, state: FitState) -> bool:
    """Whether the error falls as fast as it can with the size, and is still far from the goal."""
    expected = task.closest is None or state.sup < USUAL_GAIN * task.closest.sup
    return expected and state.sup > policy.HOPELESS * task.goal


def _screen(task: FitTask, problem: FitProblem, candidates: Sequence[Scores]) -> list[FitState]:
    """A few steps from every start at every price; distinct states, best first."""
    pool: list[FitState] = []
    size = len(candidates[0][0]) if candidates else 1
    fresh = [Fresh(*scores, price) for scores, price in product(candidates, task.prices(problem, size))]
    for first in range(0, len(fresh), SCREENED):
        pool += improve(problem, fresh[first : first + SCREENED], policy.QUICK_STEPS)
        if min(state.sup for state in pool) <= task.goal or problem.work > 0.5 * policy.SIZE_WORK:
            break
    pool = [state for state in pool if np.isfinite(state.cost)]
    pool.sort(key=lambda state: (state.sup, state.price))
    distinct = pool[:1]
    for state in pool[1:]:  # an equal sup-norm is the same minimum found again
        if state.sup > 1.01 * distinct[-1].sup:
            distinct.append(state)
    return distinct


def refine(
    task: FitTask, problem: FitProblem, states: Sequence[Start], steps: int, rounds: int
) -> tuple[FittedTable | None, FitState]:
    """Many steps, then minimax, first at the states' own prices and then at that of rounding itself."""
    enough = 1.2 * policy.APPROXIMATION_SHARE * task.eps

    def polished(states: Sequence[Start]) -> list[FitState]:
        found = improve(problem, states, steps)
        near = [k for k, state in enumerate(found) if within_reach(task, state.sup)]
        equal = equalise(problem, [found[k] for k in near], task.goal, rounds)
        for k, state in zip(near, equal, strict=True):
            found[k] = state
        return found

    found = polished(states)
    again = [s for s in found if enough < s.sup <= policy.HOPELESS * task.goal and s.price != problem.price]
    if again:
        found += polished([replace(state, price=problem.price) for state in again])
    for state in sorted(found, key=lambda state: (-state.price, state.sup)):  # small values round best
        if state.sup <= enough and (table := _accepted(task, problem, state)) is not None:
            return table, state
    return None, min(found, key=lambda state: state.sup)


def _accepted(task: FitTask, problem: FitProblem, state: FitState) -> FittedTable | None:
    """The finished table if it is accepted.

    When rounding alone spoils the total, the price of large values is raised and the scores move again.
    """
    for _ in range(4):
        table = task.finish(state)
        if task.accepts(table):
            return table
        if table.error_estimate > policy.APPROXIMATION_SHARE * task.eps:
            return None
        (state,) = improve(problem, [replace(state, price=5 * state.price)], 30)
    return None


def grown_from(task: FitTask, state: FitState | None, size: int, gently: bool = False) -> list[Scores]:
    """Warm starts larger than ``state``: split the tokens where the error is largest; if gently, also by less."""
    if state is None:
        return []
    problem, missing = task.problem(size), size - len(state.slopes)
    solved = solve_values(problem, state.slopes, state.offsets)
    scores = state.slopes, state.offsets
    count = max(policy.WARM_STARTS, missing)
    tokens = worst_tokens(solved.errors, solved.softmax, solved.values[:, 0], count)
    if missing > len(tokens):
        return []
    if missing == 1:
        return [split(scores, problem.points, solved.softmax, [token], policy.TURNS[0]) for token in tokens]
    turns = policy.TURNS if gently else policy.TURNS[:1]
    return [split(scores, problem.points, solved.softmax, tokens[:missing], turn) for turn in turns]


def pruned_from(task: FitTask, state: FitState, size: int) -> list[Scores]:
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
    return rivals[: policy.WARM_STARTS]
