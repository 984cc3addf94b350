"""Processes of this machine, through loky as joblib brings it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from joblib import cpu_count
from joblib.externals.loky import ProcessPoolExecutor

from transformula.cluster.engines import Engine, Outcome, WorkerLostError, call
from transformula.errors import InputError

#: Read by libraries when they are loaded; what is loaded already is limited in `call`.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
MAX_JOBS = 1024
#: Seconds between two looks whether the process that gives out the tasks is still there.
_LOOK = 0.5

_Task = tuple[int, Any]


class LocalEngine(Engine):
    """A pool of processes, started when the first task comes."""

    def __init__(self, jobs: int | None = None) -> None:
        jobs = cpu_count() if jobs is None else jobs
        if not isinstance(jobs, int) or not 1 <= jobs <= MAX_JOBS:
            raise InputError(f"the number of jobs must be a whole number from 1 to {MAX_JOBS}, not {jobs!r}")
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    @property
    def workers(self) -> int:
        """How many processes there are."""
        return self.jobs

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Outcome]:
        """Outcomes as they come. A dead worker takes its pool with it: the tasks in it are tried again, each alone."""
        waiting, running = enumerate(tasks), dict[Future[Any], _Task]()
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
                    self._stop()
                    yield from (self._alone(function, task) for task in sorted(suspects, key=lambda task: task[0]))
                    suspects.clear()
        finally:
            if running:
                self._stop()

    def _submit(self, function: Callable[[Any], Any], task: _Task) -> Future[Any]:
        if self._pool is None:
            self._pool = _pool(self.jobs)
        future: Future[Any] = self._pool.submit(call, function, task[1])
        return future

    @staticmethod
    def _alone(function: Callable[[Any], Any], task: _Task) -> Outcome:
        """Run a task in a separate pool, so that a crash is certainly its own."""
        pool = _pool(1)
        try:
            future: Future[Any] = pool.submit(call, function, task[1])
            future.exception()
            return _outcome(task, future)
        finally:
            _shut(pool)

    def _stop(self) -> None:
        if self._pool is not None:
            _shut(self._pool)
            self._pool = None

    def close(self) -> None:
        """End the processes."""
        self._stop()


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, initializer=_start, initargs=(os.getpid(),), env=_ONE_THREAD)


def _shut(pool: ProcessPoolExecutor) -> None:
    """End a pool at once, and hide what loky's own thread would print about the tasks that it loses."""
    shown = threading.excepthook

    def hook(args: Any) -> None:
        if not type(args.thread).__module__.startswith("joblib.externals.loky"):
            shown(args)

    threading.excepthook = hook
    try:
        pool.shutdown(wait=True, kill_workers=True)
    finally:
        threading.excepthook = shown


def _start(parent: int) -> None:
    """Leave Ctrl-C to the main process, which ends the workers; if that is killed, they end themselves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


def _outcome(task: _Task, future: Future[Any]) -> Outcome:
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        error = WorkerLostError("its process was killed twice: most likely it needs more memory")
    if error is not None and not isinstance(error, Exception):
        raise error
    return Outcome(task[0], None if error else future.result(), error)
