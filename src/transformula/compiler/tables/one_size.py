"""Look for a table of one size: a few steps from every start, many from the best, and then minimax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from transformula.compiler.tables.descent import Fresh, Problem, Start, State
from transformula.compiler.tables.fit_task import APPROXIMATION_SHARE, SMALL, Task
from transformula.compiler.tables.minimax import equalise, improve, solve_values
from transformula.compiler.tables.softmax_table import Table
from transformula.compiler.tables.start_scores import (
    FEW,
    TURNS,
    Scores,
    graded_starts,
    inserted,
    split,
    starts,
    stretched,
    without,
    worst_tokens,
)

WARM = 3  # warm starts tried for a size
WITHIN_REACH = 30.0  # equalising with moving scores gains about this factor at best
HOPELESS = 300.0  # further than this from the goal no other start of that size will do
USUAL_GAIN = 0.7  # a larger table that is not better than a smaller one by this factor has met a poor minimum
STRETCHED_GAIN = 0.9  # the same for one that was stretched
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


def attempt(
    task: Task, effort: Effort, size: int, warm: Sequence[Scores], cold: bool = True, reach: float = math.inf,
    first: Sequence[Scores] = (),
) -> tuple[Table | None, float, State | None]:  # fmt: skip
    """Look for an acceptable table of ``size`` tokens, unless a few steps leave it further than ``reach`` goals away.

    Starts that are to be ``first`` get their many steps before the others, which get none if that does as well as is
    to be hoped for.

    Returns the table or None, and the smallest sup-norm met with its state.
    """
    problem = task.problem(size)
    found: Table | None = None
    best: State | None = None
    if first:
        found, best = refine(task, effort, problem, [Fresh(*scores, problem.price) for scores in first])
    if found is None and (best is None or not _as_hoped(task, best)):
        if cold and effort not in LAST_RESORTS:
            task.searched.add(size)
        finalists = _finalists(task, effort, problem, size, warm, cold, reach)
        for some in (finalists[:1], finalists[1:]):  # the first is often enough, or shows that none will do
            if found is not None or not some or (best is not None and _out_of_reach(task, best)):
                break
            found, state = refine(task, effort, problem, some)
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


def within_reach(task: Task, sup: float) -> bool:
    """Whether a table with this error may still be brought to the goal."""
    return sup < WITHIN_REACH * task.goal


def _finalists(
    task: Task, effort: Effort, problem: Problem, size: int, warm: Sequence[Scores], cold: bool, reach: float
) -> list[State]:
    """The best of all starts after a few steps."""
    leaves = task.normalised_leaves()
    fresh = starts(leaves, size, task.poles if size > FEW else None) if cold else ()
    many = effort.finalists if cold or reach < math.inf else min(2, effort.finalists)
    found = _screen(task, effort, problem, [*warm, *fresh])[:many]
    if task.leaves.graded and not cold:  # what has grown may be stuck, though it looks better for now
        found += _screen(task, effort, problem, list(graded_starts(leaves, size)))[:1]
    return [state for state in found if state.sup <= reach * task.goal]


def _as_hoped(task: Task, state: State) -> bool:
    """Whether a stretched table is so much better than smaller ones that other starts have nothing to add."""
    return task.closest is not None and state.sup < STRETCHED_GAIN * task.closest.sup


def _out_of_reach(task: Task, state: State) -> bool:
    """Whether a size is too small: as much better than smaller ones as can be hoped for, and far from the goal."""
    expected = task.closest is None or state.sup < USUAL_GAIN * task.closest.sup
    return expected and state.sup > HOPELESS * task.goal


def _screen(task: Task, effort: Effort, problem: Problem, candidates: Sequence[Scores]) -> list[State]:
    """A few steps from every start at every price; distinct states, best first."""
    pool: list[State] = []
    size = len(candidates[0][0]) if candidates else 1
    fresh = [Fresh(*scores, price) for scores, price in product(candidates, task.prices(problem, size))]
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


def refine(task: Task, effort: Effort, problem: Problem, states: Sequence[Start]) -> tuple[Table | None, State]:
    """Many steps, then minimax, first at the states' own prices and then at that of rounding itself."""
    enough = 1.2 * APPROXIMATION_SHARE * task.eps

    def polished(states: Sequence[Start]) -> list[State]:
        found = improve(problem, states, effort.long_steps)
        near = [k for k, state in enumerate(found) if within_reach(task, state.sup)]
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


def grown_from(task: Task, state: State | None, size: int, gently: bool = False) -> list[Scores]:
    """Warm starts larger than ``state``: split the tokens where the error is largest; if gently, also by less."""
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
        turns = TURNS if gently else TURNS[:1]
        grown = [split(scores, problem.points, solved.softmax, tokens[:missing], turn) for turn in turns]
    if task.leaves.graded and missing < len(state.slopes):
        grown.append(inserted(scores, solved.errors, solved.softmax, missing))
    return grown


def stretched_from(task: Task, state: State | None, size: int) -> list[Scores]:
    """The scores of ``state`` stretched to ``size`` tokens, where that is how tables grow: next to a singularity."""
    if state is None or not task.leaves.graded or min(size, len(state.slopes)) < SMALL:
        return []
    problem = task.problem(size)
    solved = solve_values(problem, state.slopes, state.offsets)
    return list(stretched((state.slopes, state.offsets), problem.points, solved.softmax, size))


def pruned_from(task: Task, state: State, size: int) -> list[Scores]:
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
