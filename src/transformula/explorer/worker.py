"""A worker process: takes tasks on stdin, answers on stdout, ends when its server does.

``python -m transformula.explorer.worker`` with the memory it may allocate, in bytes.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import BinaryIO

from transformula.explorer.frames import Frame, read_frame


def main() -> None:
    """Serve tasks until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to handle
    _limit_memory(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not end up between two frames
    tasks: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()

    from transformula.explorer.worker_tasks import answer

    def send(frame: Frame) -> None:
        answers.write(frame.encode())
        answers.flush()

    send(Frame({"event": "ready"}))
    while True:
        answer(tasks.get(), send)


def _listen(source: BinaryIO, tasks: queue.SimpleQueue[Frame]) -> None:
    """Hand tasks over; when the server has gone, end at once, even in the middle of one."""
    while (frame := read_frame(source)) is not None:
        tasks.put(frame)
    os._exit(0)


def _limit_memory(size: int) -> None:
    try:
        import resource
    except ImportError:  # not on this system: the time limit has to do
        return
    # RLIMIT_DATA counts what is allocated; libraries and reserved addresses do not count
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)  # the page stays quick while proofs run


if __name__ == "__main__":
    main()
