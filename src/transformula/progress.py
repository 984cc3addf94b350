"""Progress of the work, reported to a listener if one is installed (the command line installs one)."""

from __future__ import annotations

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
