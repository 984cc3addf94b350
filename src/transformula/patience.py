"""How long a search may go on: what is not proven by then is refused, with what was reached.

Only searches look at the clock. The kernel, which decides whether a claim holds, counts its work instead, so that a
folder gets the same answer on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Seconds that a search may take, unless more is asked for.
PATIENCE = 60.0

#: When the outermost search of this thread began, and until when the innermost may go on.
_span: ContextVar[tuple[float, float] | None] = ContextVar("span", default=None)


class OutOfPatience(Exception):
    """The search has taken as long as it may, ``seconds`` in all; whoever set the limit says what was found."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Let `keep_going` raise once this thread has used so many seconds of processor time inside the block."""
    now, outer = time.thread_time(), _span.get()
    start, until = (now, now + seconds) if outer is None else (outer[0], min(outer[1], now + seconds))
    token = _span.set((start, until))
    try:
        yield
    finally:
        _span.reset(token)


def keep_going() -> None:
    """Raise `OutOfPatience` if the time is up; outside of `patient` there is no limit."""
    span = _span.get()
    if span is not None and (now := time.thread_time()) > span[1]:
        raise OutOfPatience(now - span[0])
