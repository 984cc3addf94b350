"""The short pass of every fuzzer in benchmarks/fuzz."""

import importlib
from functools import lru_cache

#: Cases of each fuzzer, and how often they check each of its statements at least.
PASSES = {
    "texts": (600, 100), "jumps": (200, 100), "functions": (25, 20), "ranges": (200, 100), "tables": (30, 50),
    "forms": (30, 100), "circuits": (10, 5), "networks": (60, 20), "runtimes": (8, 12), "files": (150, 30),
    "folders": (25, 1), "busy": (2, 2),
}  # fmt: skip


def short_pass(name):
    """The outcome of a few cases, always the same."""
    return _fuzzer(name)(0, PASSES[name][0])


@lru_cache
def sound_pass(name):
    """The same, once a process: what a fuzzer keeps for later cases is made before any fault is planted."""
    return short_pass(name)


def finds(name, statement):
    """Whether the short pass finds a statement to be false; it ends where it does."""
    run = _fuzzer(name)
    cases = (run(seed, 1).violations for seed in range(PASSES[name][0]))
    return any(violation.what.startswith(statement) for found in cases for violation in found)


def _fuzzer(name):
    return getattr(importlib.import_module(f"fuzz.{name}"), name)
