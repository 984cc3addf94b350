"""How much work the explorer takes on."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


def _processors() -> int:
    return max(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Limits:
    """Bounds on time, memory, queues and sizes; what lies beyond is refused with a 4xx answer.

    Attributes
    ----------
    compile_workers, view_workers : processes that compile and compare, and processes that draw. They are
        apart, so that moving a slider never waits for somebody's compilation.
    waiting : how many requests may wait for a process, for each of the two.
    compile_seconds, view_seconds : wall-clock time one of them may take.
    memory_bytes : what a process may allocate (Linux: RLIMIT_DATA).
    model_bytes, shelf_models, shelf_bytes : the largest model kept, how many, and how much in all.
    body_bytes, body_seconds : size of a request's body, and time to send it.
    """

    compile_workers: int = field(default_factory=_processors)
    view_workers: int = 2
    waiting: int = 16
    compile_seconds: float = 60.0
    view_seconds: float = 15.0
    memory_bytes: int = 2 << 30
    model_bytes: int = 48 << 20
    shelf_models: int = 64
    shelf_bytes: int = 256 << 20
    body_bytes: int = 64 << 10
    body_seconds: float = 10.0
