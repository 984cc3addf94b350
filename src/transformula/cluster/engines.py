"""Engines: workers that take a function and tasks, and return outcomes as they are ready; workers lent to a compile.

A task runs in another process, one at a time and on one thread, so that results are the same whichever worker computes
them. An exception belongs to the task that raised it. If a worker dies, its task is tried again; if that kills a worker
too, the outcome is `WorkerLostError`, while the other tasks go on.

Workers lent to a compile fit the tables of several heads at the same time.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from joblib import cpu_count
from joblib.externals.loky import ProcessPoolExecutor

from transformula.budget import ONE_THREAD, lent, one_thread
from transformula.errors import InputError, TransformulaError

#: Largest number of local processes.
MAX_JOBS = 1024
#: Seconds between two checks of a local worker that its parent process is alive.
_PARENT_CHECK = 0.5

_Task = tuple[int, Any]


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
        """The value; raises the task's error."""
        if self.error is not None:
            raise self.error
        return self.value


class Engine(ABC):
    """Workers to send tasks to; closed at the end of a ``with`` block, which stops running tasks."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """Number of tasks that can run at once."""

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
    """Open the requested workers, as `workers` describes them.

    Examples
    --------
    >>> with opened_engine(jobs=2) as engine:
    ...     sorted(outcome.get() for outcome in engine.run(abs, [-3, 2, -1]))
    [1, 2, 3]
    """
    if scheduler is None:
        return LocalEngine(jobs)
    if jobs is not None:
        raise InputError("give either a number of jobs or a scheduler, which has workers of its own")
    from transformula.cluster.dask_engine import DaskEngine

    return DaskEngine(scheduler)


_working = threading.Lock()


def call(function: Callable[[Any], Any], task: Any) -> Any:
    """Run in a worker: one task at a time per process (precision is a process-wide setting), on one thread."""
    with _working, one_thread():
        return function(task)


class LocalEngine(Engine):
    """A pool of processes of this machine (joblib's loky), started by the first task."""

    def __init__(self, jobs: int | None = None) -> None:
        jobs = cpu_count() if jobs is None else jobs
        if not isinstance(jobs, int) or not 1 <= jobs <= MAX_JOBS:
            raise InputError(f"the number of jobs must be a whole number from 1 to {MAX_JOBS}, not {jobs!r}")
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    @property
    def workers(self) -> int:
        """Number of processes."""
        return self.jobs

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Outcome]:
        """Outcomes as they are ready. A dead worker breaks its pool: the tasks in it are tried again, each alone."""
        waiting = enumerate(tasks)
        running: dict[Future[Any], _Task] = {}
        suspects: list[_Task] = []
        try:
            while True:
                while not suspects and len(running) < self.jobs and (task := next(waiting, None)) is not None:
                    try:
                        running[self._submit(function, task)] = task
                    except BrokenProcessPool:  # died while it was idle
                        suspects.append(task)
                if not running and not suspects:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                    task = running.pop(future)
                    if isinstance(future.exception(), BrokenProcessPool):
                        suspects.append(task)
                    else:
                        yield _outcome(task, future)
                if suspects and not running:  # all of a broken pool's futures end
                    self.close()
                    yield from (_run_alone(function, task) for task in sorted(suspects, key=lambda task: task[0]))
                    suspects.clear()
        finally:
            if running:
                self.close()

    def _submit(self, function: Callable[[Any], Any], task: _Task) -> Future[Any]:
        if self._pool is None:
            self._pool = _new_pool(self.jobs)
        future: Future[Any] = self._pool.submit(call, function, task[1])
        return future

    def close(self) -> None:
        """End the processes; another run starts new ones."""
        if self._pool is not None:
            _shut_down(self._pool)
            self._pool = None


def _run_alone(function: Callable[[Any], Any], task: _Task) -> Outcome:
    """Run a task in a separate pool, so that a crash is certainly its own."""
    pool = _new_pool(1)
    try:
        future: Future[Any] = pool.submit(call, function, task[1])
        future.exception()
        return _outcome(task, future)
    finally:
        _shut_down(pool)


def _new_pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, initializer=_start_worker, initargs=(os.getpid(),), env=ONE_THREAD)


def _shut_down(pool: ProcessPoolExecutor) -> None:
    """End a pool at once, and hide loky's messages about the tasks it loses."""
    shown = threading.excepthook

    def hook(args: Any) -> None:
        if not type(args.thread).__module__.startswith("joblib.externals.loky"):
            shown(args)

    threading.excepthook = hook
    try:
        pool.shutdown(wait=True, kill_workers=True)
    finally:
        threading.excepthook = shown


def _start_worker(parent: int) -> None:
    """Leave Ctrl-C to the main process, which ends its workers; if it is killed, they end themselves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK)
    os._exit(1)


def _outcome(task: _Task, future: Future[Any]) -> Outcome:
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        error = WorkerLostError("its process was killed twice: most likely it needs more memory")
    if error is not None and not isinstance(error, Exception):
        raise error
    return Outcome(task[0], None if error else future.result(), error)


@contextmanager
def workers(jobs: int | None = None, scheduler: str | None = None) -> Iterator[Engine]:
    """Lend workers to every fit inside the block; the result is the same, bit by bit.

    Parameters
    ----------
    jobs : int, optional
        Processes of this machine; by default one for each core.
    scheduler : str, optional
        The address of a Dask scheduler, like ``tcp://10.0.0.1:8786``, instead.

    Examples
    --------
    >>> import transformula as tf
    >>> with tf.workers(jobs=2):
    ...     tf.compile("sin(x*y)", on="x=0..1, y=0..1", eps=1e-3).status
    'proven'
    """

    with opened_engine(jobs, scheduler) as engine:
        before = lent.set(engine)
        try:
            yield engine
        finally:
            lent.reset(before)
