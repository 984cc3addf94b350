"""Ctrl-C during a search: its answer so far becomes the one sentence that the command ends with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformula.errors import SearchInterrupted, TransformulaError

INTERRUPTED = 130


class Interrupted(TransformulaError):
    """The user has ended the command."""

    exit_code = INTERRUPTED


@contextmanager
def interruptible() -> Iterator[None]:
    """Say how far a search had come; nothing was written."""
    try:
        yield
    except SearchInterrupted as stop:
        raise Interrupted(f"{stop}; nothing was written") from None
