"""A check in a process of its own, under limits that the operating system enforces.

A folder may keep a checker busy or fill the memory, on purpose or not. So `verify_isolated` runs a check in a forked
child that may use `CPU_SECONDS` of processor time and `MEMORY_BYTES` of address space, and may write no file. A child
that is stopped at a limit leaves no answer, and no answer is a refusal. Where the system has neither fork nor limits
(Windows), a watchdog ends the process itself.

`serve` keeps one process for many checks, each in a fork of it: imports are paid once, and no check sees another.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict
from typing import IO, NoReturn

from transformula.kernel.check import OUT_OF_RESOURCES, Verification, verify_files
from transformula.kernel.folder.description import Mean
from transformula.kernel.folder.model_files import Packed

#: Limits of one check. Honest folders stay below a fifth of them (tests/kernel/test_isolation.py).
CPU_SECONDS = 10
MEMORY_BYTES = 1 << 30


def verify_isolated(packed: Packed, claim: str) -> Verification:
    """Check file contents in a forked child under the limits."""
    if not hasattr(os, "fork"):
        with _Watchdog():
            return verify_files(packed, claim)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(packed, claim, reading, writing)
    os.close(writing)
    with open(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return from_json(text)


def _answer(packed: Packed, claim: str, reading: int, writing: int) -> NoReturn:
    """Run in the forked child: set the limits, check, write the result, and end."""
    try:
        os.close(reading)
        _limit()
        text = to_json(verify_files(packed, claim))
        with open(writing, "wb") as answer:
            answer.write(text)
    finally:
        os._exit(0)  # an unfinished answer is no answer, whatever the status


def _limit() -> None:
    """Limit this process: processor time, address space, no core file, no file at all; FLINT aborts without a word."""
    import resource

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # FLINT says on stdout that it gives up, and stdout is where `serve` answers
    os.dup2(nowhere, 2)
    limits = {"RLIMIT_CPU": CPU_SECONDS, "RLIMIT_AS": MEMORY_BYTES, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
    for name, most in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


class _Watchdog:
    """Ends this process when the block has used its processor time."""

    def __enter__(self) -> None:
        self.done = threading.Event()
        self.start = time.process_time()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.done.wait(0.1):
            if time.process_time() - self.start > CPU_SECONDS:
                os.write(2, f"not verified: {OUT_OF_RESOURCES}\n".encode())
                os._exit(1)

    def __exit__(self, *_: object) -> None:
        self.done.set()


def to_json(result: Verification) -> bytes:
    """A result as one line of JSON."""
    return json.dumps(asdict(result)).encode() + b"\n"


def from_json(line: bytes) -> Verification:
    """The result in one line of JSON; a line that is missing or cut short means that the check was stopped."""
    if not line.endswith(b"\n"):
        return Verification(False, reasons=(OUT_OF_RESOURCES,))
    try:
        body = json.loads(line)
        mean = None if body["mean"] is None else Mean(**body["mean"])
    except (ValueError, KeyError, TypeError):
        return Verification(False, reasons=("the check gave no answer",))
    return Verification(**{**body, "mean": mean, "reasons": tuple(body["reasons"])})


def send(stream: IO[bytes], packed: Packed, claim: str) -> None:
    """Write a request: the sizes of the four files, then their contents."""
    contents = (packed.arrays, packed.description.encode(), packed.evidence.encode(), claim.encode())
    stream.write(b" ".join(b"%d" % len(content) for content in contents) + b"\n")
    for content in contents:
        stream.write(content)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[Packed, str] | None:
    """Read a request; None at the end of the stream."""
    sizes = [int(size) for size in stream.readline().split()]
    contents = [stream.read(size) for size in sizes]
    if len(sizes) != 4 or [len(content) for content in contents] != sizes:
        return None
    arrays, description, evidence, claim = contents
    return Packed(arrays, description.decode(), evidence.decode()), claim.decode()


def serve() -> None:
    """Check the contents that arrive on stdin, one request after the other, and write each result to stdout."""
    while (request := receive(sys.stdin.buffer)) is not None:
        sys.stdout.buffer.write(to_json(verify_isolated(*request)))
        sys.stdout.buffer.flush()
        del request  # before the next one takes memory
