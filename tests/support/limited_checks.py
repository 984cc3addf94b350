"""Hostile contents, checked under the limits of a check's process, which are lower here so that tests end soon."""

import os
import signal

from transformula.kernel import isolation
from transformula.kernel.check import OUT_OF_RESOURCES, Verification

SECONDS, ADDRESS_SPACE = 1, 20 << 30  # a test process has reserved a lot of address space


def is_stopped(function):
    """Whether a process that runs a function is ended at its limit of processor time."""
    child = os.fork()
    if child == 0:
        try:
            isolation.CPU_SECONDS, isolation.MEMORY_BYTES = SECONDS, ADDRESS_SPACE
            isolation._limit()
            function()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (-signal.SIGXCPU, -signal.SIGKILL)


def verdict(packed, claim, monkeypatch):
    """The verdict of an isolated check."""
    monkeypatch.setattr(isolation, "CPU_SECONDS", SECONDS)
    monkeypatch.setattr(isolation, "MEMORY_BYTES", ADDRESS_SPACE)
    return isolation.verify_isolated(packed, claim)


STOPPED = Verification(False, reasons=(OUT_OF_RESOURCES,))
