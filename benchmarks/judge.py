"""The isolated checker, measured: a server with the kernel alone, and for every folder a fork of it.

`judge` sends the files of a folder to the server, which has `kernel.isolation.verify_isolated` check them in a child
under the system's limits, and tells how much processor time and memory that took (wait4).
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
from campaign import in_child
from transformula.kernel.folder.model_files import Packed
from transformula.kernel.isolation import CPU_SECONDS, MEMORY_BYTES, receive, send, verify_isolated

FILES = ("model.safetensors", "model.json", "evidence.json", "certificate.json")
#: What a check may use: its own limits, and what starting it takes.
SECONDS, MEGABYTES = CPU_SECONDS + 0.5, MEMORY_BYTES / 2**20


class Judge:
    """One server, which Python starts with these arguments."""

    def __init__(self, *start: str) -> None:
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command = [sys.executable, *(start or (__file__,))]
        environment = os.environ | one_thread | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.owner = os.getpid()

    def __call__(self, packed: Packed, claim: str) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        send(self.process.stdin, packed, claim)
        return dict(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        if self.owner == os.getpid():
            self.process.communicate()


_judge: Judge | None = None


def judge(files: dict[str, bytes]) -> dict[str, Any]:
    """The verdict on the files of a folder: verified, reason and bound, and the seconds and megabytes that it took."""
    global _judge
    sent = contents(files)
    if sent is None:
        return {"verified": False, "reason": "not text", "bound": None, "seconds": 0.0, "megabytes": 0.0}
    if _judge is None or _judge.owner != os.getpid():
        _judge = Judge()
        atexit.register(_judge.close)
    return _judge(*sent)


def contents(files: dict[str, bytes]) -> tuple[Packed, str] | None:
    """The files of a folder as a check takes them; None if one of them is not text."""
    try:
        description, evidence, claim = (files[name].decode("utf-8") for name in FILES[1:])
    except UnicodeDecodeError:
        return None
    return Packed(files[FILES[0]], description, evidence), claim


def problem(answer: dict[str, Any]) -> str | None:
    """What is wrong with how a check ended: a traceback, too much time, or too much memory."""
    if "the check stopped" in answer["reason"]:
        return "traceback"
    if not answer["seconds"] <= SECONDS:
        return "slow"
    return None if answer["megabytes"] <= MEGABYTES else "big"


def serve() -> None:
    """Judge what arrives on stdin, and write each verdict to stdout."""
    while (request := receive(sys.stdin.buffer)) is not None:
        check = partial(verify_isolated, *request)
        kind, found, seconds, megabytes = in_child(lambda check=check: asdict(check()), 10 * CPU_SECONDS)
        if kind != "ok":
            found = {"verified": False, "reasons": [f"the check stopped: {found}"], "bound": None}
        answer = {"verified": found["verified"], "reason": "; ".join(found["reasons"])[:600], "bound": found["bound"]}
        print(json.dumps(answer | {"seconds": round(seconds, 2), "megabytes": round(megabytes)}), flush=True)


if __name__ == "__main__":
    serve()
