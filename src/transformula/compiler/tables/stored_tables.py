"""Stored scores of common functions (library.json) as warm starts, and stored tables of the square (squares.json).

Every circuit needs a table of the square. benchmarks/library.py and benchmarks/squares.py made the files.

Nothing here depends on a function's name. Scores span a space of functions, Σ y_j w_j, whatever the values y. Stored
scores are judged by the distance between these spaces and the function to fit, on a few points, and the closest are
starts of the search. A function similar to the one that they were found for is fitted within a few steps, and about as
closely: that tells how many tokens to begin with. Tables found this way are measured and proven like any other.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformula.compiler import policy
from transformula.compiler.tables.descent import FitState, Fresh, improve
from transformula.compiler.tables.fit_task import PROFILE_NODES, FitTask, acceptable
from transformula.compiler.tables.one_size import attempt, pruned_from
from transformula.compiler.tables.softmax_table import Array, FittedTable
from transformula.compiler.tables.start_scores import FEW, Scores

LIBRARY = Path(__file__).with_name("library.json")
SQUARES = Path(__file__).with_name("squares.json")
SMALLEST_SIZES = (1, 2)  # tokens of constants, exponentials and steps, which look like anything on a few points


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
        return self.likely / 4 <= self.distance <= policy.SIMILAR * self.likely

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
    budget = task.work + min(policy.GROWING_WORK, task.most.growing)
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
    budget = task.work + min(policy.GROWING_WORK + policy.SHRINKING_WORK, task.most.shrinking)
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
