"""Search for a table of one size: a few steps from every start, many from the best, then minimax.

*Stored scores of common functions (library.json) as warm starts, and stored tables of the square (squares.json).*

Every circuit needs a table of the square. benchmarks/library.py and benchmarks/squares.py made the files.

Nothing here depends on a function's name. Scores span a space of functions, Σ y_j w_j, whatever the values y. Stored
scores are judged by the distance between these spaces and the function to fit, on a few points, and the closest are
starts of the search. A function similar to the one that they were found for is fitted within a few steps, and about as
closely: that tells how many tokens to begin with. Tables found this way are measured and proven like any other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformula.compiler import policy
from transformula.compiler.tables.descent import FitProblem, FitState, Fresh, Start, equalise, improve, solve_values
from transformula.compiler.tables.fit_task import PROFILE_NODES, SMALL, FitTask, acceptable
from transformula.compiler.tables.softmax_table import Array, FittedTable
from transformula.compiler.tables.start_scores import (
    FEW,
    Scores,
    graded_starts,
    inserted,
    split,
    starts,
    stretched,
    without,
    worst_tokens,
)

USUAL_GAIN = 0.7  # error over that of the closest smaller table; a larger ratio is a poor local minimum
SCREENED = 32  # starts in one stack


class SearchSteps(NamedTuple):
    """Descent steps from every start, starts that are refined, and the descent steps and rounds of a refinement."""

    quick: int
    finalists: int
    long: int
    rounds: int


def attempt(
    task: FitTask, size: int, warm: Sequence[Scores], cold: bool = True, reach: float = math.inf,
    first: Sequence[Scores] = (), steps: SearchSteps | None = None,
) -> tuple[FittedTable | None, FitState | None]:  # fmt: skip
    """Search for an acceptable table of ``size`` tokens from warm starts and, if ``cold``, from all others.

    Starts further than ``reach`` goals away after a few steps are dropped. Starts that come ``first`` are refined
    before the others, which are left out if these do well. Returns the table or None, and the state with the smallest
    error.
    """
    problem = task.problem(size)
    usual = SearchSteps(policy.QUICK_STEPS, policy.FINALISTS, policy.LONG_STEPS, policy.LAWSON_ROUNDS)
    found: FittedTable | None = None
    best: FitState | None = None
    if first:
        found, best = refine(task, problem, [Fresh(*scores, problem.price) for scores in first], usual)
    if found is None and (best is None or not _as_hoped(task, best)):
        if cold and steps is None:
            task.searched.add(size)
        finalists = _finalists(task, problem, size, warm, cold, reach, steps or usual)
        for some in (finalists[:1], finalists[1:]):  # the first is often enough, or shows that the size is too small
            if not some or (best is not None and _too_small(task, best)):
                break
            found, state = refine(task, problem, some, steps or usual)
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
    task: FitTask, problem: FitProblem, size: int, warm: Sequence[Scores], cold: bool, reach: float,
    steps: SearchSteps,
) -> list[FitState]:  # fmt: skip
    """The best of all starts after a few steps."""
    fresh = starts(task.normalised_leaves(), size, task.poles if size > FEW else None) if cold else ()
    many = steps.finalists if cold or reach < math.inf else min(2, steps.finalists)
    found = _screen(task, problem, [*warm, *fresh], steps.quick)[:many]
    if task.leaves.graded and not cold:  # a grown table may be stuck, though it looks better for now
        graded = list(graded_starts(task.normalised_leaves(), size))
        found += _screen(task, problem, graded, steps.quick)[:1]
    return [state for state in found if state.sup <= reach * task.goal]


def _as_hoped(task: FitTask, state: FitState) -> bool:
    """Whether a stretched table is so much better than smaller ones that other starts have nothing to add."""
    return task.closest is not None and state.sup < 0.9 * task.closest.sup


def _too_small(task: FitTask, state: FitState) -> bool:
    """Whether the error falls as fast as it can with the size, and is still far from the goal."""
    expected = task.closest is None or state.sup < USUAL_GAIN * task.closest.sup
    return expected and state.sup > policy.HOPELESS * task.goal


def _screen(task: FitTask, problem: FitProblem, candidates: Sequence[Scores], steps: int) -> list[FitState]:
    """A few steps from every start at every price; distinct states, best first."""
    pool: list[FitState] = []
    size = len(candidates[0][0]) if candidates else 1
    fresh = [Fresh(*scores, price) for scores, price in product(candidates, task.prices(problem, size))]
    for first in range(0, len(fresh), SCREENED):
        pool += improve(problem, fresh[first : first + SCREENED], steps)
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
    task: FitTask, problem: FitProblem, states: Sequence[Start], steps: SearchSteps
) -> tuple[FittedTable | None, FitState]:
    """Many steps, then minimax, first at the states' own prices and then at that of rounding itself."""
    enough = 1.2 * policy.APPROXIMATION_SHARE * task.eps

    def polished(states: Sequence[Start]) -> list[FitState]:
        found = improve(problem, states, steps.long)
        near = [k for k, state in enumerate(found) if within_reach(task, state.sup)]
        equal = equalise(problem, [found[k] for k in near], task.goal, steps.rounds)
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
        grown = [split(scores, problem.points, solved.softmax, [token], policy.TURNS[0]) for token in tokens]
    else:
        turns = policy.TURNS if gently else policy.TURNS[:1]
        grown = [split(scores, problem.points, solved.softmax, tokens[:missing], turn) for turn in turns]
    if task.leaves.graded and missing < len(state.slopes):
        grown.append(inserted(scores, solved.errors, solved.softmax, missing))
    return grown


def stretched_from(task: FitTask, state: FitState | None, size: int) -> list[Scores]:
    """The scores of ``state`` stretched to ``size`` tokens next to a singularity, where tables grow in this way."""
    if state is None or not task.leaves.graded or min(size, len(state.slopes)) < SMALL:
        return []
    problem = task.problem(size)
    solved = solve_values(problem, state.slopes, state.offsets)
    return list(stretched((state.slopes, state.offsets), problem.points, solved.softmax, size))


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


LIBRARY = Path(__file__).with_name("library.json")
SQUARES = Path(__file__).with_name("squares.json")
#: Tokens of constants, exponentials and steps, which look like anything on a few points.
SMALLEST_SIZES = range(1, FEW)


class Spans(NamedTuple):
    """Scores of one size on −1..1, of shape (stored, tokens), and a basis of what they span at the nodes.

    ``errors`` are those of the functions they were found for, relative to their ranges.
    """

    slopes: Array
    offsets: Array
    errors: Array
    basis: Array


class Neighbours(NamedTuple):
    """The closest stored scores, the distance of the first from the function, and the error of its own function."""

    scores: list[Scores]
    distance: float
    likely: float

    @property
    def similar(self) -> bool:
        """Whether the function is so similar to a stored one that its table will be about as close.

        One that the scores fit much closer than their own is not: steps and exponentials are in many spaces.
        """
        return self.likely / 4 <= self.distance <= policy.WITHIN_REACH * self.likely

    def promises(self, goal: float) -> bool:
        """Whether these scores are likely to lead to an error of at most ``goal``."""
        far = math.log(max(self.distance / self.likely, 1.0))
        return self.similar and self.likely <= goal * (1.2 + 1.5 * far)


class StoredGrowth(NamedTuple):
    """The first accepted table, if there is one, with its state, and the sizes that failed, with theirs."""

    table: FittedTable | None
    state: FitState | None
    failures: list[tuple[int, FitState]]


@cache
def sizes() -> tuple[int, ...]:
    """Numbers of tokens of which scores are stored, smallest first."""
    return tuple(sorted(_stored()))


@cache
def spans(size: int) -> Spans:
    """All stored scores of a size, and their mirror images."""
    slopes, offsets, errors = (np.array(part) for part in zip(*_stored()[size], strict=True))
    slopes, offsets = np.concatenate([slopes, -slopes]), np.concatenate([offsets, offsets])
    scores = slopes[:, None] * PROFILE_NODES[:, None] + offsets[:, None]
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=2, keepdims=True)
    return Spans(slopes, offsets, np.concatenate([errors, errors]), np.linalg.qr(scores)[0])


@cache
def _stored() -> dict[int, list[tuple[list[float], list[float], float]]]:
    return {int(size): rows for size, rows in json.loads(LIBRARY.read_text()).items()}


def closest(values: Array, size: int) -> Neighbours:
    """The stored scores of ``size`` tokens that come closest to the values at the nodes."""
    stored = spans(size)
    parts = np.einsum("knm,n->km", stored.basis, values)
    distances = np.abs(values - np.einsum("knm,km->kn", stored.basis, parts)).max(axis=1)
    order = np.argsort(distances, kind="stable")[: policy.NEIGHBOURS]
    likely = stored.errors[order[0]] * np.ptp(values)
    scores = [(stored.slopes[k], stored.offsets[k]) for k in order]
    return Neighbours(scores, float(distances[order[0]]), max(float(likely), math.ulp(0.0)))


def grow_stored(task: FitTask, limit: int) -> StoredGrowth:
    """A table from stored scores, from the smallest promising size upwards; the smallest sizes come first."""
    budget = task.work + min(policy.TABLE_WORK, task.most.growing)
    failures: list[tuple[int, FitState]] = []
    promising = promising_sizes(task, limit)
    for size in [*SMALLEST_SIZES, *promising] if promising else []:
        if task.spoiled or task.work >= budget:  # other starts do not help where rounding alone is too much
            break
        cold = size in SMALLEST_SIZES
        table, state = attempt(task, size, [] if cold else _starts(task, size), cold, reach=policy.HOPELESS)
        if table is not None:
            return StoredGrowth(table, state, failures)
        if state is not None:
            failures.append((size, state))
    return StoredGrowth(None, None, failures)


def shrink_stored(task: FitTask, table: FittedTable, state: FitState) -> tuple[FittedTable, FitState]:
    """Remove tokens from a table found from stored scores, down to a size that similar scores have ruled out."""
    budget = task.work + min(policy.TABLE_WORK + policy.TABLE_WORK, task.most.shrinking)
    while table.size > sizes()[0] and task.work < budget:
        size = table.size - 1
        if closest(task.profile, size).similar:
            break
        smaller, small_state = attempt(task, size, pruned_from(task, state, size))
        if smaller is None or small_state is None:
            break
        table, state = smaller, small_state
    return table, state


def promising_sizes(task: FitTask, limit: int) -> list[int]:
    """The smallest size of which stored scores are likely to lead to a table, and those above it."""
    if task.leaves.graded or task.leaves.crowded:
        return []
    found = [size for size in sizes() if task.least_size() <= size <= limit]
    similar = True
    for first in found:
        near, similar_before = closest(task.profile, first), similar
        similar = near.similar
        if near.promises(task.goal):
            by_chance = first <= FEW or not similar_before
            return [] if by_chance else [size for size in found if size >= first]
    return []


def rivals(task: FitTask, size: int) -> list[FitState]:
    """The best states near stored scores: one of them may end closer than the first that was accepted."""
    if not closest(task.profile, size).similar:
        return []
    problem = task.problem(size)
    high = max(task.prices(problem, size))  # the smoother landscape
    found = improve(problem, [Fresh(*scores, high) for scores in _starts(task, size)], policy.QUICK_STEPS)
    task.work += problem.work
    return sorted(found, key=lambda state: state.sup)[:3]


def _starts(task: FitTask, size: int) -> list[Scores]:
    """The closest stored scores in the coordinate t."""
    return [(slopes, offsets + slopes * task.shift) for slopes, offsets in closest(task.profile, size).scores]


@cache
def squares() -> dict[str, tuple[FittedTable, ...]]:
    """Stored tables of the square by format, smallest first; a larger one comes closer."""
    rows = json.loads(SQUARES.read_text())
    return {dtype: tuple(_square(row, dtype) for row in tables) for dtype, tables in rows.items()}


def _square(row: dict[str, Any], dtype: str) -> FittedTable:
    slopes, offsets, values = (np.array(row[part]) for part in ("slopes", "offsets", "values"))
    return FittedTable((slopes,), (offsets,), values, 0.0, row["error"], row["rounding"], dtype)


def ready_square(eps: float, dtype: str) -> FittedTable:
    """The smallest stored table of u² on −1.001..1.001 within ``eps``, or the closest there is.

    Examples
    --------
    >>> ready_square(1e-8, "float64").size, ready_square(1e-20, "float64").size
    (3, 11)
    """
    stored = squares()[dtype]
    return next((table for table in stored if acceptable(table, eps)), stored[-1])
