"""How much one proof may do, so that no folder keeps a checker busy for minutes.

Work is counted in microseconds of an ordinary machine, by what is about to be done, and never timed: the same
folder gets the same answer on every machine. What is too much work is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from transformula.kernel.exceptions import RefutedError

#: Some eight seconds, so that ten are enough on a slower or busy machine.
MAX_WORK = 8_000_000.0

_spent: ContextVar[list[float] | None] = ContextVar("spent", default=None)


@contextmanager
def limited(most: float = MAX_WORK, apart: bool = False) -> Iterator[list[float]]:
    """Count what is done inside, from zero, and refuse more than ``most``; unless ``apart`` it counts outside too."""
    outside, meter = _spent.get(), [0.0, most, counted()]
    before = _spent.set(meter)
    try:
        yield meter
    finally:
        _spent.reset(before)
        if outside is not None and not apart:
            outside[0] += meter[0]


def spend(work: float) -> None:
    """Count work that is about to be done; outside of `limited` there is no limit."""
    meter = _spent.get()
    if meter is not None:
        if not meter[0] + work <= meter[1]:
            raise RefutedError("to prove what this folder claims takes too much work")
        meter[0] += work


def left() -> float:
    """How much work may still be done."""
    meter = _spent.get()
    return math.inf if meter is None else meter[1] - meter[0]


def counted() -> float:
    """All work so far, here and outside."""
    meter = _spent.get()
    return 0.0 if meter is None else meter[2] + meter[0]
