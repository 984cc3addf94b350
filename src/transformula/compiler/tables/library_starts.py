"""Tables that start from stored scores (`library`): which sizes are worth trying, and when it is enough."""

from __future__ import annotations

from typing import NamedTuple

from transformula.compiler.tables import score_library as library
from transformula.compiler.tables.descent import Fresh, State
from transformula.compiler.tables.fit_task import Task
from transformula.compiler.tables.minimax import improve
from transformula.compiler.tables.one_size import HOPELESS, Effort, attempt, pruned_from
from transformula.compiler.tables.softmax_table import Table
from transformula.compiler.tables.start_scores import FEW, Scores

NEIGHBOURS = 6  # stored scores tried for a size
RIVALS = 3  # states from which the last table may come
NEXT_TO_NOTHING = (1, 2)  # tokens of constants, exponentials and steps, which may look like anything on a few points


class Grown(NamedTuple):
    """The first table that was accepted, if there is one, with its state, and the sizes that failed, with theirs."""

    table: Table | None
    state: State | None
    failures: list[tuple[int, State]]


def grow_stored(task: Task, effort: Effort, limit: int) -> Grown:
    """From the smallest size that promises enough upwards, if there is one; before that, what is next to nothing."""
    budget = task.work + min(effort.growing, task.most.growing)
    failures: list[tuple[int, State]] = []
    promising = _promising(task, limit)
    for size in [*NEXT_TO_NOTHING, *promising] if promising else []:
        if task.spoiled or task.work >= budget:  # what only rounding spoils is no matter of where to start
            break
        cold = size in NEXT_TO_NOTHING
        table, _, state = attempt(task, effort, size, [] if cold else _starts(task, size), cold, reach=HOPELESS)
        if table is not None:
            return Grown(table, state, failures)
        if state is not None:
            failures.append((size, state))
    return Grown(None, None, failures)


def shrink_stored(task: Task, effort: Effort, table: Table, state: State) -> tuple[Table, State]:
    """Remove tokens from a table that was found from stored scores, unless its kin tell that none can go."""
    budget = task.work + min(effort.total, task.most.shrinking)
    while table.size > library.sizes()[0] and task.work < budget:
        size = table.size - 1
        if _neighbours(task, size).kin:  # else it would have been tried
            break
        smaller, _, small_state = attempt(task, effort, size, pruned_from(task, state, size))
        if smaller is None or small_state is None:
            break
        table, state = smaller, small_state
    return table, state


def _promising(task: Task, limit: int) -> list[int]:
    """The smallest size of which stored scores are likely to lead to a table, and those above it."""
    if task.leaves.graded or task.leaves.crowded:
        return []
    sizes = [size for size in library.sizes() if task.least_size() <= size <= limit]
    kin = True
    for first in sizes:
        near, kin_before = _neighbours(task, first), kin
        kin = near.kin
        if near.promises(task.goal):
            by_chance = first <= FEW or not kin_before
            return [] if by_chance else [size for size in sizes if size >= first]
    return []


def rivals(task: Task, effort: Effort, size: int) -> list[State]:
    """The best states near stored scores: one of them may come closer in the end than the first that was accepted."""
    if not _neighbours(task, size).kin:
        return []
    problem = task.problem(size)
    dear = max(task.prices(problem, size))  # in the smoother landscape
    found = improve(problem, [Fresh(*scores, dear) for scores in _starts(task, size)], effort.quick_steps)
    task.work += problem.work
    return sorted(found, key=lambda state: state.sup)[:RIVALS]


def _starts(task: Task, size: int) -> list[Scores]:
    """The closest stored scores in the coordinate t."""
    return [(slopes, offsets + slopes * task.shift) for slopes, offsets in _neighbours(task, size).scores]


def _neighbours(task: Task, size: int) -> library.Neighbours:
    return library.closest(task.profile, size, NEIGHBOURS)
