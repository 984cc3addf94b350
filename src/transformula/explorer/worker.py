"""A worker process and its protocol: tasks come on stdin, answers go to stdout; it ends when its server does.

Server and worker send frames: a JSON object, and bytes beside it that need no decoding. A frame is the length of its
header (4 bytes, big-endian), the header, then the blobs whose sizes the header lists. The process runs `main` with the
memory it may allocate, in bytes, as its argument.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

#: Number of models that a worker remembers, so that their files need not travel again.
KEPT_MODELS = 4
#: Exit code of a worker that ran out of memory.
MEMORY_EXIT = 75
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class Frame:
    """One message, named by ``body["event"]`` or ``body["task"]``."""

    body: dict[str, Any]
    blobs: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """The frame as bytes."""
        head = json.dumps({"body": self.body, "blobs": [len(b) for b in self.blobs]}, allow_nan=False).encode()
        return b"".join((_LENGTH.pack(len(head)), head, *self.blobs))


def _sizes(head: dict[str, Any]) -> Sequence[int]:
    return [int(size) for size in head["blobs"]]


def read_frame(source: BinaryIO) -> Frame | None:
    """The next frame, or None if the other side has closed."""
    length = source.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    head = json.loads(source.read(_LENGTH.unpack(length)[0]))
    return Frame(head["body"], tuple(source.read(size) for size in _sizes(head)))


async def receive_frame(source: asyncio.StreamReader) -> Frame:
    """The next frame; raises `asyncio.IncompleteReadError` if the worker has ended."""
    (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
    head = json.loads(await source.readexactly(length))
    return Frame(head["body"], tuple([await source.readexactly(size) for size in _sizes(head)]))


def main() -> None:
    """Serve tasks until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    _limit_memory(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not end up between two frames
    tasks: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()

    from transformula.explorer.worker_tasks import answer  # once the memory is limited

    def send(frame: Frame) -> None:
        answers.write(frame.encode())
        answers.flush()

    send(Frame({"event": "ready"}))
    while True:
        answer(tasks.get(), send)


def _listen(source: BinaryIO, tasks: queue.SimpleQueue[Frame]) -> None:
    """Put tasks into the queue; if the server is gone, end at once, even in the middle of one."""
    while (frame := read_frame(source)) is not None:
        tasks.put(frame)
    os._exit(0)


def _limit_memory(size: int) -> None:
    try:
        import resource
    except ImportError:  # not on this system, where the time limit must suffice
        return
    # RLIMIT_DATA counts what is allocated; libraries and reserved addresses do not count
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)  # the page stays quick while proofs run
