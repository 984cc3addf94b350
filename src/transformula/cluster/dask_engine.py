"""Workers of a Dask cluster, by means of `distributed`."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from transformula.cluster.engines import Engine, EngineError, Outcome, WorkerLostError, call
from transformula.optional import require

#: Seconds in which a scheduler must answer and must have workers.
PATIENCE = 10.0
#: Seconds without any worker after which a run gives up.
DESERTED = 60.0
#: Timeouts, one class since Python 3.11.
_TIMEOUTS = (TimeoutError, asyncio.TimeoutError)
#: Modules whose versions decide the last digits of a result; the version of Python is compared too.
_COMPARED = ("transformula", "numpy", "flint")


class DaskEngine(Engine):
    """A client of a scheduler. The threads of a worker would run one at a time, so one process per core is best."""

    def __init__(self, address: str) -> None:
        require("a cluster", "distributed")
        from distributed import Client

        for name in [one for one in logging.root.manager.loggerDict if one.partition(".")[0] == "distributed"]:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised instead
        self.address = address
        _knock(address)
        try:
            self._client = Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, *_TIMEOUTS):
            raise EngineError(f"what answers at {address} is not a Dask scheduler of a compatible version") from None
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        """Refuse a cluster without workers, or with workers that would compute something else."""
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE)
        except _TIMEOUTS:
            raise EngineError(
                f"the scheduler at {self.address} has no workers: start some with "
                f"`dask worker {self.address} --nthreads 1`"
            ) from None
        ours, found = _by_value(_COMPARED)(), self._client.run(_by_value(_COMPARED), on_error="return")
        found["scheduler"] = self._client.run_on_scheduler(_by_value(_COMPARED))
        for place, theirs in found.items():
            if isinstance(theirs, OSError):  # this worker has just left; its tasks go to others
                continue
            if isinstance(theirs, Exception):
                raise EngineError(f"the worker {place} does not answer ({theirs})")
            for name, version in theirs.items():
                if version != ours[name]:
                    who = f"the scheduler at {self.address}" if place == "scheduler" else f"the worker {place}"
                    has = "no " + name if version is None else f"{name} {version}"
                    raise EngineError(f"{who} has {has}, this machine {name} {ours[name]}: install one version on all")

    @property
    def workers(self) -> int:
        """Number of worker processes now."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Outcome]:
        """Outcomes as they are ready. The scheduler gives a dead worker's tasks to others."""
        waiting = enumerate(tasks)
        running: dict[Any, int] = {}
        room, alive = 2 * self.workers, time.monotonic()
        try:
            while True:
                while len(running) < max(room, 2) and (task := next(waiting, None)) is not None:
                    running[self._submit(function, task[1])] = task[0]
                if not running:
                    return
                with self._connected():
                    ready = self._ready(list(running))
                    there = self.workers
                if ready or there:
                    alive = time.monotonic()
                elif time.monotonic() - alive > DESERTED:
                    raise EngineError(f"the scheduler at {self.address} has lost all of its workers")
                for future in ready:
                    with self._connected():
                        outcome = _outcome(running.pop(future), future)
                    yield outcome
                room = 2 * there if ready else room
        finally:
            if running and self._client.status == "running":
                with suppress(OSError, CancelledError, *_TIMEOUTS):  # it may be gone
                    self._client.cancel(list(running), force=True)

    def _submit(self, function: Callable[[Any], Any], task: Any) -> Any:
        with self._connected(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a task carries its data, once
            return self._client.submit(_checked, _own_version(), function, task, pure=False)

    def _ready(self, futures: list[Any]) -> list[Any]:
        """Futures with a result; one that was lost with its worker is computed again."""
        from distributed import wait

        try:
            with self._client.as_current():
                done = wait(futures, timeout=PATIENCE, return_when="FIRST_COMPLETED").done
        except _TIMEOUTS:
            return []
        return [future for future in done if future.status not in ("lost", "pending")]

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Turn a lost connection to the scheduler into a one-sentence error."""
        try:
            yield
        except (OSError, CancelledError):
            raise EngineError(f"the connection to the scheduler at {self.address} was lost") from None

    def close(self) -> None:
        """Leave the cluster to others."""
        with suppress(OSError, CancelledError, *_TIMEOUTS):  # it may be gone
            self._client.close(timeout=PATIENCE)


def _outcome(index: int, future: Any) -> Outcome:
    from distributed import KilledWorker

    if future.status == "cancelled":
        raise CancelledError
    error = future.exception()
    if isinstance(error, KilledWorker):
        error = WorkerLostError("every worker that tried it was lost: most likely it needs more memory")
    return Outcome(index, None if error else future.result(), error)


def _knock(address: str) -> None:
    """Fail at once if nothing listens at the address: a client would retry until its timeout."""
    parts = re.fullmatch(r"(tcp|tls)://(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})", address)
    if parts is None:
        raise EngineError(f"a scheduler's address is written like tcp://10.0.0.1:8786, not {address[:80]!r}")
    try:
        with socket.create_connection((parts[2].strip("[]"), int(parts[3])), timeout=PATIENCE) as line:
            if parts[1] == "tcp":
                line.recv(1)  # a scheduler speaks first; with other servers a client would wait for ever
    except (OSError, OverflowError, UnicodeError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {address} ({getattr(error, 'strerror', None) or error}): start one with "
            f"`dask scheduler`, and workers with `dask worker {address} --nthreads 1`"
        ) from None


def _by_value(names: tuple[str, ...]) -> Callable[[], dict[str, str | None]]:
    """A function that is sent as code, since a worker may not have transformula to import it from."""

    def versions() -> dict[str, str | None]:
        import sys
        from importlib import import_module

        found: dict[str, str | None] = {"python": ".".join(map(str, sys.version_info[:2]))}
        for name in names:
            try:
                found[name] = import_module(name).__version__
            except ImportError:
                found[name] = None
        return found

    return versions


def _own_version() -> str:
    version = _by_value(("transformula",))()["transformula"]
    assert version is not None
    return version


def _checked(version: str, function: Callable[[Any], Any], task: Any) -> Any:
    """Run a task; a worker that joined later with another version refuses it."""
    if version != _own_version():
        raise EngineError(f"a worker has transformula {_own_version()} and its client {version}")
    return call(function, task)
