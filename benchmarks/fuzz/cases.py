"""Seeded cases: a function checks one random input, and `fuzzer` makes of it a function that checks many."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import mpmath

from truth import DIGITS

#: False statements that are kept of one case.
MOST = 3


@dataclass(frozen=True)
class Violation:
    """A statement that is false for the input of a seed."""

    seed: int
    given: str
    what: str


@dataclass
class Outcome:
    """Cases that were run: how often each statement was checked, what is false, and the slowest case."""

    cases: int = 0
    checks: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    slowest: float = 0.0
    slowest_seed: int = 0


class Case:
    """One seeded case: its generator of random numbers, its input, and the statements checked about it."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng, self.given = seed, random.Random(seed), ""
        self.checks: Counter[str] = Counter()
        self.false: list[str] = []

    def check(self, statement: str, holds: object, detail: object = "") -> None:
        """Count a statement, and remember it if it is false."""
        self.checks[statement] += 1
        if not holds:
            self.false.append(f"{statement}: {detail}")


Fuzzer = Callable[..., Outcome]


def fuzzer(one: Callable[[Case], None]) -> Fuzzer:
    """The function that runs ``one`` for many seeds: ``count`` of them, or until the seconds are over."""

    def run(first: int = 0, count: int = 2**62, seconds: float = float("inf")) -> Outcome:
        outcome, end = Outcome(), time.monotonic() + seconds
        for seed in range(first, first + count):
            if time.monotonic() > end:
                break
            _run_one(one, Case(seed), outcome)
        return outcome

    run.__doc__ = one.__doc__
    return run


def _run_one(one: Callable[[Case], None], case: Case, outcome: Outcome) -> None:
    began = time.monotonic()
    try:
        with mpmath.workdps(DIGITS):
            one(case)
    except Exception as error:  # neither a verdict nor a refusal
        case.check("no exception other than a refusal", False, f"{type(error).__name__}: {error}"[:300])
    spent = time.monotonic() - began
    outcome.cases += 1
    outcome.checks = dict(Counter(outcome.checks) + case.checks)
    outcome.violations += [Violation(case.seed, case.given, what) for what in case.false[:MOST]]
    if spent > outcome.slowest:
        outcome.slowest, outcome.slowest_seed = spent, case.seed
