"""Tables do not depend on each other, so workers that somebody has lent fit them at the same time.

There each is fitted as if there were plenty of work left. Where that is not so when its turn comes, it is fitted here,
with what it may take then. So the tables, and what they count for, are the same with workers and without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from transformula.budget import OutOfTime, checkpoint, counted, left, limited, spend, time_left
from transformula.cluster.lent_workers import ahead
from transformula.compiler.tables.fit_task import PLENTY
from transformula.compiler.tables.smallest_table import allowance
from transformula.errors import TransformulaError
from transformula.progress import report

Fitted = TypeVar("Fitted")

#: What took no more than this part of what is left has met no limit, wherever it was fitted.
_LITTLE = 0.25


def fit_all(
    fit: Callable[..., Fitted],
    tasks: Sequence[tuple[Any, ...]],
    doubtful: Callable[[], bool] = lambda: False,
    again: Callable[..., Fitted] | None = None,
    loose: bool = False,
) -> Iterator[Fitted]:
    """What ``fit``, a function of a module, makes of each task and an `Allowance`, in order.

    ``doubtful`` tells whether something has failed by then, ``again`` is the same as ``fit`` with a memory. If they are
    ``loose``, tables need not be small.
    """
    found: dict[int, tuple[Fitted, float]] = {}
    if len(tasks) > 1 and allowance(doubtful()) == PLENTY and not loose:
        for index, answer in ahead(partial(_elsewhere, fit), ((time_left(), task) for task in tasks)):
            checkpoint()
            if answer is not None:
                found[index] = answer
            report("solving", len(found), len(tasks) - len(found))
    for index, task in enumerate(tasks):
        most = allowance(doubtful())
        most = most._replace(shrinking=0.0) if loose else most
        if index in found and most == PLENTY and found[index][1] <= _LITTLE * left():
            spend(found[index][1])
            yield found[index][0]
        else:
            report("solving", index, len(tasks) - index)
            yield (again or fit)(*task, most)


def _elsewhere(fit: Callable[..., Fitted], given: tuple[float | None, tuple[Any, ...]]) -> Any:
    """The table, and the work it took; None for what is to be tried, or said, by whoever asked."""
    seconds, task = given
    try:
        with limited(math.inf, seconds):
            before = counted()
            return fit(*task, PLENTY), counted() - before
    except (TransformulaError, OutOfTime):
        return None
