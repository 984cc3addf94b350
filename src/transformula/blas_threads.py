"""BLAS on one thread: fastest for small matrices, and harmless on busy cores."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import threadpool_limits


def one_thread() -> AbstractContextManager[Any]:
    """Keep BLAS to one thread inside the block."""
    limits: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limits
