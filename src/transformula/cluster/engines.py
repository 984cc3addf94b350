"""One small interface to workers: a function and tasks go in, outcomes come back as they are ready.

A task runs in another process, one at a time and on one thread, so that results are the same whichever worker computes
them. An exception belongs to the task that raised it. If a worker dies, its task is tried again; if that kills a worker
too, the outcome is `WorkerLostError`, while the other tasks go on.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from transformula.blas_threads import one_thread
from transformula.errors import InputError, TransformulaError


class EngineError(InputError):
    """There are no workers to send tasks to, or they cannot be used."""


class WorkerLostError(TransformulaError):
    """The process that worked on a task was killed, most likely for lack of memory."""


@dataclass(frozen=True)
class Outcome:
    """The result of the task with this index."""

    index: int
    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """The value, or raise what went wrong."""
        if self.error is not None:
            raise self.error
        return self.value


class Engine(ABC):
    """Workers to send tasks to; closed at the end of a ``with`` block, which stops what still runs."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many tasks can be worked on at once."""

    @abstractmethod
    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Outcome]:
        """Apply a function to every task; outcomes come in the order in which they are ready.

        The function must be defined in a module, and tasks and values must be picklable. Few tasks are taken at a time,
        so there may be millions. The work stops when the caller stops reading outcomes.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the workers, or leave them to their cluster."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened_engine(jobs: int | None = None, scheduler: str | None = None) -> Engine:
    """Open the requested workers.

    Parameters
    ----------
    jobs : int, optional
        Processes of this machine; by default one for each core.
    scheduler : str, optional
        The address of a Dask scheduler, like ``tcp://10.0.0.1:8786``, instead.

    Examples
    --------
    >>> with opened_engine(jobs=2) as engine:
    ...     sorted(outcome.get() for outcome in engine.run(abs, [-3, 2, -1]))
    [1, 2, 3]
    """
    if scheduler is not None:
        if jobs is not None:
            raise InputError("give either a number of jobs or a scheduler, which has workers of its own")
        from transformula.cluster.dask_engine import DaskEngine

        return DaskEngine(scheduler)
    from transformula.cluster.local_engine import LocalEngine

    return LocalEngine(jobs)


_working = threading.Lock()


def call(function: Callable[[Any], Any], task: Any) -> Any:
    """Run in a worker: one task at a time per process (precision is a process-wide setting), on one thread."""
    with _working, one_thread():
        return function(task)
