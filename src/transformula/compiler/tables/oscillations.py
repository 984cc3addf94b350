r"""Tables of oscillatory functions: their scores are known from theory.

With equal gaps h between tokens at :math:`\xi_j`, Gaussian scores and :math:`q = \exp(-2\pi^2/\kappa)`:

* at every extremum, :math:`\sum (-1)^j w_j = 2 q^{1/4} \cos(\pi x/h) (1 + O(q))`, a quotient of theta functions: two
  tokens a period make a cosine;
* halfway between extrema, every other time, :math:`\sum \xi_j w_j = x - (4 \pi h q/\kappa) \sin(2\pi x/h) (1 + O(q))`,
  the logarithmic derivative of one: with a linear term beside it one token a period makes a sine, of values like 1/q;
* at every extremum and halfway between them, four tokens a period,
  :math:`\sum \cos(\pi \xi_j/2h) w_j = q^{1/16} \cos(\pi x/2h) (1 + O(q^{1/2}))`: values hardly larger than the wave.

So the error, O(q) or O(q^{1/2}), is known beforehand, and gives :math:`\kappa`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from transformula.compiler import policy
from transformula.compiler.tables.descent import FitState, Fresh
from transformula.compiler.tables.fit_task import FitTask
from transformula.compiler.tables.minimax import improve
from transformula.compiler.tables.one_size import SearchSteps, refine, within_reach
from transformula.compiler.tables.sample_points import Leaves
from transformula.compiler.tables.softmax_table import Array, FittedTable
from transformula.compiler.tables.start_scores import Scores, scores_at


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
        task.spoiled = task.in_vain = 0  # other values may round less
    return None


def _wave(task: FitTask, limit: int, places: Array, kappa: float) -> tuple[FittedTable, FitState, int] | None:
    """A table with tokens at these places, and as few beyond the ends as will do."""
    places, leaves = (places - task.leaves.finest) / task.half, task.normalised_leaves()
    for beyond in range(policy.MAX_BEYOND + 1):
        found = list(_waves(leaves, places, beyond, kappa))
        size = len(found[0][0])
        if size > limit or task.spoiled >= policy.MAX_SPOILED:
            break
        problem = task.problem(size)
        best = min(improve(problem, [Fresh(*one, problem.price) for one in found], 0), key=lambda state: state.sup)
        table: FittedTable | None = None
        if within_reach(task, best.sup):
            table, best = refine(task, problem, [best], SearchSteps(0, 1, policy.WAVE_STEPS, policy.WAVE_STEPS))
        task.work += problem.work
        if table is not None:
            task.searched.update(range(size))  # other starts would not lead to a smaller table
            return table, best, size - 1
        task.missed(best)
    return None


def _waves(leaves: Leaves, places: Array, beyond: int, kappa: float) -> Iterator[Scores]:
    """Scores of tokens at these places, continued at equal gaps to the ends and ``beyond`` tokens further."""
    first, last = places[1] - places[0], places[-1] - places[-2]
    below = beyond + int((places[0] - leaves.edges[0]) / first)
    above = beyond + int((leaves.edges[-1] - places[-1]) / last)
    before, after = places[0] - first * np.arange(below, 0, -1), places[-1] + last * np.arange(1, above + 1)
    for factor in policy.WAVE_SHARPNESS:
        yield scores_at(np.concatenate([before, places, after]), factor * kappa)
