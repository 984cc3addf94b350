"""Worker processes and their queue: bounded numbers, bounded queues, bounded time; cancelling kills.

Work never runs in the server's own process, so the page stays alive whatever a formula does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import IO, Any

from transformula.budget import ONE_THREAD
from transformula.explorer.worker import KEPT_MODELS, MEMORY_EXIT, Frame, receive_frame

#: Code of a worker process.
_MAIN = "from transformula.explorer.worker import main; main()"
#: Bytes that are read ahead from a worker.
_READ_AHEAD = 1 << 20
#: Seconds in which a worker must have started.
_START_SECONDS = 60.0
#: Tasks after which a worker is replaced.
_TASKS_A_LIFE = 200
#: Messages of libraries that abort for lack of memory (FLINT and GMP, the C++ library), and bytes of stderr searched.
_NO_MEMORY = (b"allocate memory", b"bad_alloc")
_LAST_WORDS = 4096


class BusyError(Exception):
    """All workers are busy and the queue is full."""


class Worker:
    """One process, doing one task at a time."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes] | None = None) -> None:
        self.process, self.errors = process, errors
        if errors is not None:
            weakref.finalize(self, errors.close)
        self.models: list[str] = []
        self.tasks = 0
        self.ready = self.ended = False

    @classmethod
    async def start(cls, memory: int) -> Worker:
        """Start a process; it imports while its first task is on the way."""
        errors = None if os.environ.get("TRANSFORMULA_EXPLORER_LOG") else tempfile.TemporaryFile()  # noqa: SIM115
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _MAIN, str(memory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=_READ_AHEAD,
            env={**os.environ, **ONE_THREAD, "PYTHONSAFEPATH": "1"},
        )  # fmt: skip
        return cls(process, errors)

    @property
    def alive(self) -> bool:
        """Whether it can still be given work."""
        return self.process.returncode is None and not self.ended

    async def until_ready(self) -> None:
        """Wait until it has imported its code."""
        if not self.ready:
            await asyncio.wait_for(self.receive(), _START_SECONDS)
            self.ready = True

    def task(self, body: dict[str, Any], model: str, blobs: tuple[bytes, ...]) -> Frame:
        """A task for this worker, with the model's files unless it has them from before."""
        self.tasks += _TASKS_A_LIFE if body["task"] == "compare" else 1  # training leaves torch behind
        if not model:
            return Frame(body)
        known = model in self.models
        # the worker keeps as many, and forgets in the same order
        self.models = [*(m for m in self.models if m != model), model][-KEPT_MODELS:]
        return Frame(body, () if known else blobs)

    async def send(self, frame: Frame) -> None:
        """Hand a task over."""
        assert self.process.stdin is not None
        self.process.stdin.write(frame.encode())
        await self.process.stdin.drain()

    async def receive(self) -> Frame:
        """The next frame it sends."""
        assert self.process.stdout is not None
        return await receive_frame(self.process.stdout)

    async def ran_out_of_memory(self) -> bool:
        """Whether it is known to have ended for want of memory: it said so, or a library did before it aborted."""
        code = await self.process.wait()
        if code != -signal.SIGABRT or self.errors is None:
            return code == MEMORY_EXIT
        self.errors.seek(max(self.errors.seek(0, os.SEEK_END) - _LAST_WORDS, 0))
        words = self.errors.read()
        return any(sign in words for sign in _NO_MEMORY)

    def kill(self) -> None:
        """End it now; asyncio alone collects its exit code, for which `Process.kill` would race it."""
        if self.process.returncode is None and not self.ended:
            _kill(self.process)
        self.ended = True


class Pool:
    """A bounded number of workers, and of requests waiting for one."""

    def __init__(self, workers: int, waiting: int, memory: int) -> None:
        self.memory = memory
        self.workers = workers
        self.most = workers + waiting
        self._free = asyncio.Semaphore(workers)
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self.admitted = 0
        self.closed = False

    async def warm_up(self) -> None:
        """Start one worker before the first request."""
        async with self._worker("") as worker:
            await worker.until_ready()

    async def run(
        self, task: dict[str, Any], seconds: float, model: str = "", blobs: tuple[bytes, ...] = ()
    ) -> AsyncGenerator[Frame, None]:
        """Frames of one task: queued, started, its reports, and done or refused at the end.

        Closing the iterator ends the task. ``model`` and ``blobs`` are a model's identifier and files, sent
        only to a worker that lacks them. Raises `BusyError` before the first frame, never after.
        """
        with self._admitted():
            yield Frame({"event": "queued"})
            worker = None
            try:
                async with self._worker(model) as worker:
                    await worker.until_ready()
                    yield Frame({"event": "started", "seconds": seconds})
                    deadline = time.monotonic() + seconds
                    await asyncio.wait_for(worker.send(worker.task(task, model, blobs)), seconds)
                    while True:
                        left = max(deadline - time.monotonic(), 0.001)
                        frame = await asyncio.wait_for(worker.receive(), left)
                        if frame.body["event"] in ("done", "refused"):
                            break
                        yield frame
            except asyncio.TimeoutError:
                frame = _gave_up(f"stopped after {seconds:g} seconds, the time limit of this page", "time")
            except (asyncio.IncompleteReadError, ConnectionError):
                frame = await self._died(worker)
            yield frame

    async def result(
        self, task: dict[str, Any], seconds: float, model: str = "", blobs: tuple[bytes, ...] = ()
    ) -> Frame:
        """The last frame of a task that reports nothing on the way."""
        last = Frame({})
        async for frame in self.run(task, seconds, model, blobs):
            last = frame
        return last

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self.closed or self.admitted >= self.most:
            raise BusyError
        self.admitted += 1
        try:
            yield
        finally:
            self.admitted -= 1

    @asynccontextmanager
    async def _worker(self, model: str) -> AsyncIterator[Worker]:
        async with self._free:
            worker = await self._take(model)
            try:
                yield worker
            except BaseException:  # cancelled, or broken: either way its task must end
                worker.kill()
                raise
            finally:
                self._put_back(worker)

    async def _died(self, worker: Worker | None) -> Frame:
        if self.closed or worker is None:
            return _fault("the server is shutting down")
        code = await worker.process.wait()
        if not worker.ready:
            return _fault("no worker process could start: see whether this machine has memory left")
        if await worker.ran_out_of_memory():
            return _gave_up(f"stopped: it needed more than {self.memory / 2**30:.3g} GiB of memory", "memory")
        if code < 0:
            return _refused(f"the worker process was stopped by {_signal(-code)}: try again", "stopped")
        return _fault(f"the worker process ended by itself, with exit code {code}; this is a bug in transformula")

    async def _take(self, model: str) -> Worker:
        if self.closed:
            raise ConnectionError
        self._idle = [w for w in self._idle if w.alive]
        for worker in reversed(self._idle):
            if model in worker.models:
                break
        else:
            if not self._idle:
                worker = await Worker.start(self.memory)
                self._all.add(worker)
                return worker
            worker = self._idle[-1]
        self._idle.remove(worker)
        return worker

    def _put_back(self, worker: Worker) -> None:
        if worker.alive and worker.ready and worker.tasks < _TASKS_A_LIFE and not self.closed:
            self._idle.append(worker)
        else:
            worker.kill()
            self._replace()
        self._all = {w for w in self._all if w.process.returncode is None}

    def _replace(self) -> None:
        """Start another worker in the background, so that the request after a cancelled one need not wait."""

        async def start() -> None:
            if sum(w.alive for w in self._all) >= self.workers:
                return
            worker = await Worker.start(self.memory)
            self._all.add(worker)
            self._idle.insert(0, worker)

        if not self.closed:
            task = asyncio.create_task(start())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    @property
    def processes(self) -> list[int]:
        """Identifiers of the processes that are alive."""
        return [w.process.pid for w in self._all if w.process.returncode is None]

    async def close(self) -> None:
        """End every worker and wait until it is gone; waiting requests are refused."""
        self.closed = True
        await asyncio.gather(*self._starting, return_exceptions=True)
        workers = list(self._all)
        for worker in workers:
            worker.kill()
        await asyncio.gather(*(worker.process.wait() for worker in workers))


def _kill(process: asyncio.subprocess.Process) -> None:
    if os.name != "posix":
        process.kill()
        return
    with suppress(ProcessLookupError, PermissionError):  # gone, and its number perhaps another process's
        os.kill(process.pid, signal.SIGKILL)


def _signal(number: int) -> str:
    """A signal by its number, and by its name where it has one here."""
    names = {member.value: member.name for member in signal.Signals}
    return f"signal {number}" + (f" ({names[number]})" if number in names else "")


def _gave_up(message: str, kind: str) -> Frame:
    hint = "ask for a larger ε, a smaller box or another construction"
    return _refused(f"{message}: {hint}", kind)


def _fault(message: str) -> Frame:
    return _refused(message, "fault")


def _refused(message: str, kind: str) -> Frame:
    return Frame({"event": "refused", "problem": {"field": "", "message": message, "kind": kind}})
