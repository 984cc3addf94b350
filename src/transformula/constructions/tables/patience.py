"""How much a search may still try once something in it has failed.

As long as every table is found, each may take what it takes. After the first that is not, the whole is probably
hopeless: all further fits together get a budget, so that a refusal comes in seconds. It counts arithmetic, not time,
and so the answer does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

#: Floating-point operations for all fits after the first failure, and the least that each of them gets.
AFTER_FAILURE, LEAST = 1e10, 5e8

#: What is left, once something has failed.
_left: ContextVar[list[float] | None] = ContextVar("left", default=None)


@contextmanager
def patience() -> Iterator[list[float]]:
    """Count what is spent on fits inside the block, from its first failure on: what is left then is given."""
    left: list[float] = []
    token = _left.set(left)
    try:
        yield left
    finally:
        _left.reset(token)


def allowed(budget: float) -> float:
    """What a fit may spend that would take up to ``budget``."""
    left = _left.get()
    return max(LEAST, min(budget, left[0])) if left else budget


def spent(work: float, failed: bool) -> None:
    """Note what a fit took, and whether it failed."""
    left = _left.get()
    if left is None:
        return
    if left:
        left[0] -= work
    elif failed:
        left.append(AFTER_FAILURE)


def unspoilt() -> bool:
    """Whether nothing has failed so far."""
    return not _left.get()


def go_on(left: Sequence[float]) -> None:
    """Go on from what is left after a fit that was made elsewhere, when nothing had failed here."""
    here = _left.get()
    if here is not None:
        here[:] = left
