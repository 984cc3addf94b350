"""When a search must end: by one count of work, and by the clock if a time limit was given.

Work is counted as the kernel does it (`kernel.work`): in microseconds of an ordinary machine, by operations and never
by the clock. Fits, searches and proofs add to one count, and a cached result counts as if it were computed again; so a
search ends at the same place on every machine, whatever ran before. A search passes a checkpoint every few milliseconds
and can be stopped there.
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
    """The time limit is reached. Only the code that set it may catch this."""


class OutOfWork(Exception):
    """The budget of work is used up. Only the code that set it may catch this."""


class Limit:
    """A count of work and a time at which work ends; never later than the limit ``outside`` of it."""

    def __init__(self, seconds: float, time_limit: float | None = None, outside: Limit | None = None) -> None:
        self.start, self.outside = work.counted(), outside
        self.most = self.start + seconds * SECOND
        self.end = math.inf if time_limit is None else time.monotonic() + time_limit

    def after(self, seconds: float) -> None:
        """From now on, end after so many seconds of all the work since this limit was set."""
        self.most = self.start + seconds * SECOND

    @property
    def spent(self) -> float:
        """Seconds of work since this limit was set."""
        return (work.counted() - self.start) / SECOND

    def all(self) -> Iterator[Limit]:
        """This limit and those outside of it."""
        now: Limit | None = self
        while now is not None:
            yield now
            now = now.outside


_limit: ContextVar[Limit | None] = ContextVar("limit", default=None)


@contextmanager
def limited(seconds: float, time_limit: float | None = None) -> Iterator[Limit]:
    """Count work inside the block, and stop it after so many seconds of work, or when the time is up."""
    with work.limited(math.inf):
        limit = Limit(seconds, time_limit, _limit.get())
        before = _limit.set(limit)
        try:
            yield limit
        finally:
            _limit.reset(before)


@contextmanager
def part_of_the_rest(part: float) -> Iterator[None]:
    """Inside the block, stop after this fraction of the work that is left."""
    with limited(part * left() / SECOND):
        yield


def left() -> float:
    """How much work may still be done."""
    limit = _limit.get()
    return math.inf if limit is None else max(min(one.most for one in limit.all()) - work.counted(), 0.0)


def time_left() -> float | None:
    """Seconds until the time is up; None without a time limit."""
    limit = _limit.get()
    end = math.inf if limit is None else min(one.end for one in limit.all())
    return None if end == math.inf else max(end - time.monotonic(), 0.0)


def checkpoint() -> None:
    """Stop here if the time is up or the budget of work is used up."""
    limit = _limit.get()
    if limit is None:
        return
    now, counted = time.monotonic(), work.counted()
    if any(now > one.end for one in limit.all()):
        raise OutOfTime
    if any(counted > one.most for one in limit.all()):
        raise OutOfWork


def remembered(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache this many results, each with the work that it took, which counts again when the result is reused.

    The wrapped function has ``cache_clear``, as with `functools.lru_cache`.
    """

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

        result.cache_clear = known.clear  # type: ignore[attr-defined]
        return result

    return decorate
