"""BLAS on one thread: fastest for small matrices, and harmless on busy cores."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import threadpool_limits

#: Environment of a process that is to keep BLAS to one thread: libraries read it as they are loaded.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def one_thread() -> AbstractContextManager[Any]:
    """Keep BLAS to one thread inside the block."""
    limits: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limits
