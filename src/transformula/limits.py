"""When a search must end: by one count of work, and for whoever asks also by the clock.

Work is counted as the kernel does it (`kernel.work`): in microseconds of an ordinary machine, by what is done and
never by the clock. Fits, searches and proofs add to one count, and what is remembered counts like what is done anew;
so a search ends at the same place on every machine, whatever it was asked before. Whoever searches passes a
checkpoint every few milliseconds and is stopped there.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from transformula.kernel import work

P = ParamSpec("P")
R = TypeVar("R")

SECOND = 1e6


class OutOfTime(Exception):
    """The clock says so. Only who has set it may catch this."""


class OutOfWork(Exception):
    """What may be done is done. Only who has said how much may catch this."""


#: The count at which work ends, and when it ends by the clock.
_most: ContextVar[float] = ContextVar("most", default=math.inf)
_end: ContextVar[float] = ContextVar("end", default=math.inf)


@contextmanager
def limited(seconds: float, time_limit: float | None = None) -> Iterator[None]:
    """Count work inside the block, and stop it after so many seconds of work, or when the time is up."""
    end = math.inf if time_limit is None else time.monotonic() + time_limit
    with work.limited(math.inf):
        stops = _most.set(seconds * SECOND + work.counted()), _end.set(end)
        try:
            yield
        finally:
            _most.reset(stops[0])
            _end.reset(stops[1])


@contextmanager
def part_of_the_rest(part: float) -> Iterator[None]:
    """Inside the block, stop after this part of what may still be done."""
    stop = _most.set(work.counted() + part * left()) if left() < math.inf else None
    try:
        yield
    finally:
        if stop is not None:
            _most.reset(stop)


def left() -> float:
    """How much work may still be done."""
    return max(_most.get() - work.counted(), 0.0)


def time_left() -> float | None:
    """Seconds until the time is up; None if nobody has set a limit."""
    return None if _end.get() == math.inf else max(_end.get() - time.monotonic(), 0.0)


def checkpoint() -> None:
    """End here if the time is up, or all is done that may be."""
    if time.monotonic() > _end.get():
        raise OutOfTime
    if work.counted() > _most.get():
        raise OutOfWork


def remembered(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keep so many results, each with the work that it took: it counts again when the result is used again."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known: OrderedDict[Any, tuple[R, float]] = OrderedDict()

        @wraps(function)
        def result(*args: P.args, **kwargs: P.kwargs) -> R:
            key = args, tuple(kwargs.items())
            if key in known:
                known.move_to_end(key)
                work.spend(known[key][1])
            else:
                with work.limited(math.inf) as meter:
                    found = function(*args, **kwargs)
                known[key] = found, meter[0]
                while len(known) > most:
                    known.popitem(last=False)
            return known[key][0]

        return result

    return decorate
