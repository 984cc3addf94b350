"""Tables of what swings to and fro many times: their scores are known from theory (`placement.waves`)."""

from __future__ import annotations

import numpy as np

from transformula.compiler.tables.descent import Fresh, State
from transformula.compiler.tables.fit_task import MAX_SPOILED, Task
from transformula.compiler.tables.minimax import improve
from transformula.compiler.tables.one_size import WAVY, refine, within_reach
from transformula.compiler.tables.softmax_table import Array, Table
from transformula.compiler.tables.start_scores import waves

SWINGS = 40  # what swings to and fro more often is a wave or nothing
FEW_SWINGS = 8  # what swings less often is no wave
MAX_BEYOND = 8  # tokens beyond the ends


def wave_table(task: Task, limit: int) -> tuple[Table, State, int] | None:
    """A table of what oscillates often: with one, two or four tokens a period steps are hardly needed.

    The more there are the smaller are the values, and what is lost to rounding.
    """
    digits, swings = np.log(1 / min(task.goal / task.range, 0.5)), task.swings()
    between = 0.5 * (swings[1:] + swings[:-1])
    kinds = [(between[::2], 2 * np.pi**2 / digits), (between[1::2], 2 * np.pi**2 / digits)] if task.linear else []
    kinds += [
        (swings, 2 * np.pi**2 / (np.log(4) + digits)),
        (np.sort(np.concatenate([swings, between])), np.pi**2 / digits),
    ]
    for places, kappa in kinds:
        found = _wave(task, limit, places, float(kappa))
        if found is not None:
            return found
        task.spoiled = task.in_vain = 0  # what rounding does to such values it does not do to others
    return None


def _wave(task: Task, limit: int, places: Array, kappa: float) -> tuple[Table, State, int] | None:
    """The same with tokens at these places, and as few beyond as will do."""
    places, leaves = (places - task.leaves.finest) / task.half, task.normalised_leaves()
    for beyond in range(MAX_BEYOND + 1):
        found = list(waves(leaves, places, beyond, kappa))
        size = len(found[0][0])
        if size > limit or task.spoiled >= MAX_SPOILED:
            break
        problem = task.problem(size)
        best = min(improve(problem, [Fresh(*one, problem.price) for one in found], 0), key=lambda state: state.sup)
        table: Table | None = None
        if within_reach(task, best.sup):
            table, best = refine(task, WAVY, problem, [best])
        task.work += problem.work
        if table is not None:
            task.searched.update(range(size))  # other starts would lead to no smaller one
            return table, best, size - 1
        task.missed(best)
    return None
