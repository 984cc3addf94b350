"""Tables do not depend on each other, so workers that somebody has lent fit them at the same time.

There each is fitted as if nothing had failed before. Until the first failure that is so here too; what comes after it
has a budget in common (`patience`) and is fitted here, in order. So the tables are the same with workers and without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from transformula.constructions.tables.patience import go_on, patience, unspoilt
from transformula.errors import TransformulaError
from transformula.progress import OutOfTime, checkpoint, deadline, report, seconds_left
from transformula.scaling.proofs import ahead

Fitted = TypeVar("Fitted")


def fit_all(
    fit: Callable[..., Fitted], tasks: Sequence[tuple[Any, ...]], again: Callable[..., Fitted] | None = None
) -> Iterator[Fitted]:
    """What ``fit``, a function of a module, makes of each task, in order; ``again`` is the same with a memory."""
    found: dict[int, tuple[Fitted, list[float]]] = {}
    if len(tasks) > 1 and unspoilt():
        for index, answer in ahead(partial(_elsewhere, fit), _given(tasks, found)):
            checkpoint()
            if answer is not None:
                found[index] = answer
            report("solving", len(found), len(tasks) - len(found))
    for index, task in enumerate(tasks):
        if index in found and unspoilt():
            table, left = found[index]
            go_on(left)
            yield table
        else:
            report("solving", index, len(tasks) - index)
            yield (again or fit)(*task)


def _given(tasks: Sequence[tuple[Any, ...]], found: dict[int, tuple[Any, list[float]]]) -> Iterator[Any]:
    """The tasks with the time that is left for them, until one has failed."""
    for task in tasks:
        if any(left for _, left in found.values()):
            return
        yield seconds_left(), task


def _elsewhere(fit: Callable[..., Fitted], given: tuple[float | None, tuple[Any, ...]]) -> Any:
    """The table, and what is left of the budget after it; None for what is to be tried, or said, by whoever asked."""
    seconds, task = given
    try:
        with deadline(seconds), patience() as left:
            return fit(*task), left
    except (TransformulaError, OutOfTime):
        return None
