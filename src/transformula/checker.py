"""The kernel's check, run in processes of its own (`transformula.kernel.isolation`).

A few processes are kept, so that the first check pays for starting one and the others do not; checks from several
threads run side by side. The contents of the files travel to the process, not the path of the folder: the answer is
about the very bytes that were read here.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty, LifoQueue
from threading import BoundedSemaphore

import flint
import numpy

from transformula.budget import ONE_THREAD
from transformula.kernel.check import Verification
from transformula.kernel.folder.model_files import Packed
from transformula.kernel.isolation import from_json, send

#: The code of a process that checks. The rules that most models need are imported before it forks.
_START = """
import sys
sys.path[:0] = sys.argv[1:]
from transformula.kernel.isolation import serve
from transformula.kernel.rules import polynomial_rule, softmax_rule
serve()
"""
#: Where this process found the three packages of a check. Nothing else is searched, least of all the working directory,
#: which may be a stranger's folder.
_FILES = (Path(__file__).parent, Path(str(numpy.__file__)), Path(str(flint.__file__)))
_PATHS = [str(_FILES[0].resolve().parent), *dict.fromkeys(str(file.resolve().parent.parent) for file in _FILES[1:])]


class Checker:
    """One process that checks the contents it is sent, one model after the other."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *_PATHS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for this process, which then closes that one
        )

    def verify(self, packed: Packed, claim: str) -> Verification:
        """Check contents; `ConnectionError` if the process is gone."""
        assert self.process.stdin is not None and self.process.stdout is not None
        send(self.process.stdin, packed, claim)
        line = self.process.stdout.readline()
        if not line:  # the server itself has ended, which no check can do
            raise ConnectionError("the process that checks has ended")
        return from_json(line)

    @property
    def alive(self) -> bool:
        """Whether the process can take another request."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()
        self.process.wait()


class _Pool:
    """Checkers that wait for work, and as many more as there are cores."""

    def __init__(self) -> None:
        self.idle: LifoQueue[Checker] = LifoQueue()
        self.places = BoundedSemaphore(os.cpu_count() or 1)

    def verify(self, packed: Packed, claim: str) -> Verification:
        """Check contents in one of the processes; one that has died while it waited is replaced."""
        with self.places:
            while True:
                try:
                    checker, fresh = self.idle.get_nowait(), False
                except Empty:
                    checker, fresh = Checker(), True
                try:
                    result = checker.verify(packed, claim)
                except ConnectionError as error:
                    checker.close()
                    if fresh:
                        return Verification(False, reasons=(f"no check could be run: {error}",))
                    continue
                except BaseException:  # interrupted: its answer would be taken for the next one
                    checker.close()
                    raise
                if checker.alive:
                    self.idle.put(checker)
                return result

    def close(self) -> None:
        """End all processes that wait for work."""
        with suppress(Empty):
            while True:
                self.idle.get_nowait().close()


_pool = _Pool()


def verify_files(packed: Packed, claim: str) -> Verification:
    """Check file contents in a process of its own, under its limits.

    Examples
    --------
    >>> import transformula as tf
    >>> model = tf.compile("x*y", on="x=0..1, y=0..1")
    >>> verify_files(model.packed, model.certificate.to_json()).verified
    True
    """
    return _pool.verify(packed, claim)


def _forget() -> None:
    """In a forked process: leave the checkers to the process that started them."""
    global _pool
    _pool = _Pool()


atexit.register(lambda: _pool.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
