"""How far the work is, and when it must end.

Nobody is told, unless a listener is installed (the command line does). Whoever searches passes a checkpoint every
few milliseconds, and is stopped there once a deadline has passed or a budget of processor time is used up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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


class OutOfTime(Exception):
    """The deadline has passed. Only who has set it may catch this."""


class OutOfBudget(Exception):
    """The processor time is used up. Only who has set it may catch this."""


_budget: ContextVar[float | None] = ContextVar("budget", default=None)
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Stop searches inside the block after so many seconds; None for never."""
    token = _deadline.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def budget(seconds: float) -> Iterator[None]:
    """Stop searches inside the block once this thread has used so many seconds of processor time."""
    until, outer = time.thread_time() + seconds, _budget.get()
    token = _budget.set(until if outer is None else min(until, outer))
    try:
        yield
    finally:
        _budget.reset(token)


def seconds_left() -> float | None:
    """Seconds until the deadline; None if there is none."""
    end = _deadline.get()
    return None if end is None else max(end - time.monotonic(), 0.0)


def checkpoint() -> None:
    """End here if the deadline has passed, or the budget is used up."""
    end, until = _deadline.get(), _budget.get()
    if end is not None and time.monotonic() > end:
        raise OutOfTime
    if until is not None and time.thread_time() > until:
        raise OutOfBudget
