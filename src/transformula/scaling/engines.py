"""One small interface to workers: a function and tasks go in, outcomes come back as they are ready.

A task runs in another process, one at a time there and on one thread, so that results are the same whoever computes
them. What the function raises belongs to its task. A worker that dies costs the attempt: the task is tried again, and
if that kills a worker too its outcome is `WorkerLostError`, while the others go on.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from transformula.errors import InputError, TransformulaError
from transformula.threads import one_thread


class EngineError(InputError):
    """There are no workers to send tasks to, or they cannot be used."""


class WorkerLostError(TransformulaError):
    """The process that worked on a task was ended from outside, most likely for want of memory."""


@dataclass(frozen=True)
class Outcome:
    """What became of the task with this index."""

    index: int
    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """The value, or raise what went wrong."""
        if self.error is not None:
            raise self.error
        return self.value


class Engine(ABC):
    """Workers to send tasks to; closed at the end of a ``with`` block, and what still runs is then stopped."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many tasks can be worked on at once."""

    @abstractmethod
    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Outcome]:
        """Apply a function to every task; outcomes come in the order in which they are ready.

        The function is one of a module, and tasks and values can be pickled. Few tasks are taken at a time, so
        there may be millions. Whoever stops reading outcomes stops the work.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the workers, or leave them to their cluster."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened_engine(jobs: int | None = None, scheduler: str | None = None) -> Engine:
    """The workers that were asked for.

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
        from transformula.scaling.cluster import DaskEngine

        return DaskEngine(scheduler)
    from transformula.scaling.local import LocalEngine

    return LocalEngine(jobs)


_working = threading.Lock()


def call(function: Callable[[Any], Any], task: Any) -> Any:
    """What a worker does: one task at a time in a process (precision is set for the whole of it), on one thread."""
    with _working, one_thread():
        return function(task)
