"""Budgets of a search, by one count of work and by the clock if a time limit was given, its threads and its progress.

Work is counted in microseconds of an ordinary machine, by the sizes of what is computed and never by the clock. Fits,
searches and proofs add to one count (`compiler.evidence.costs` estimates the kernel's part), and a cached result counts
as if it were computed again; so a search ends at the same place on every machine, whatever ran before. A search passes
a checkpoint every few milliseconds and can be stopped there.

Progress of the work is reported to a listener if one is installed (the command line installs one).
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
R = TypeVar("R")

SECOND = 1e6

#: Microseconds of work so far, in a list so that all blocks of a thread add to the same number.
_total: ContextVar[list[float] | None] = ContextVar("total", default=None)
#: Workers lent to a compile by `cluster.engines.workers`: an engine that runs tasks in other processes.
lent: ContextVar[Any] = ContextVar("lent", default=None)


class OutOfTime(Exception):
    """The time limit is reached. Only the code that set it may catch this."""


class OutOfWork(Exception):
    """The budget of work is used up. Only the code that set it may catch this."""


def spend(work: float) -> None:
    """Count microseconds of work that is about to be done."""
    total = _total.get()
    if total is not None:
        total[0] += work


def counted() -> float:
    """All work of this thread so far, in microseconds."""
    total = _total.get()
    return 0.0 if total is None else total[0]


@contextmanager
def counting() -> Iterator[Callable[[], float]]:
    """Count the work inside the block; calling the value returns how much there was so far, in microseconds."""
    before = _total.get()
    total = [0.0] if before is None else before
    start, token = total[0], _total.set(total)
    try:
        yield lambda: total[0] - start
    finally:
        _total.reset(token)


class Limit:
    """A count of work and a time at which work ends; never later than the limit ``outside`` of it."""

    def __init__(self, seconds: float, time_limit: float | None = None, outside: Limit | None = None) -> None:
        self.start, self.outside = counted(), outside
        self.most = self.start + seconds * SECOND
        self.end = math.inf if time_limit is None else time.monotonic() + time_limit

    def after(self, seconds: float) -> None:
        """End after ``seconds`` of all the work since this limit was set."""
        self.most = self.start + seconds * SECOND

    @property
    def spent(self) -> float:
        """Seconds of work since this limit was set."""
        return (counted() - self.start) / SECOND

    def all(self) -> Iterator[Limit]:
        """The limit itself, then the limits around it."""
        now: Limit | None = self
        while now is not None:
            yield now
            now = now.outside


_limit: ContextVar[Limit | None] = ContextVar("limit", default=None)


@contextmanager
def limited(seconds: float, time_limit: float | None = None) -> Iterator[Limit]:
    """Count work inside the block, and stop it after ``seconds`` of work, or when the time is up."""
    with counting():
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
    """Work that may still be done, in microseconds."""
    limit = _limit.get()
    return math.inf if limit is None else max(min(one.most for one in limit.all()) - counted(), 0.0)


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
    now = time.monotonic()
    if any(now > one.end for one in limit.all()):
        raise OutOfTime
    if any(counted() > one.most for one in limit.all()):
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
                spend(known[key][1])
            else:
                with counting() as spent:
                    found = function(*args, **kwargs)
                    known[key] = found, spent()
                while len(known) > most:
                    known.popitem(last=False)
            return known[key][0]

        result.cache_clear = known.clear  # type: ignore[attr-defined]
        return result

    return decorate


#: stage, how much is done, how much is left (None if unknown)
Listener = Callable[[str, int, int | None], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def report(stage: str, done: int, left: int | None = None) -> None:
    """Tell the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, left)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send reports to a listener inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


#: Environment of a process that is to keep BLAS to one thread: libraries read it as they are loaded.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def one_thread() -> AbstractContextManager[Any]:
    """Keep BLAS to one thread inside the block."""
    limits: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limits
