"""How a formula is lowered, chosen from proven ranges and written down for the checker to replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from transformula.compiler import policy
from transformula.compiler.evidence.planned_ranges import BoxRanges, function_range
from transformula.compiler.lower.domains import domain_ends
from transformula.compiler.lower.lowered_circuit import Balance, Guide
from transformula.errors import NotProvenError
from transformula.kernel.structures.fold_lengths import Measure
from transformula.kernel.syntax.expression import Expr

Interval = tuple[float, float]


class Mode(NamedTuple):
    """A way to lower the formula.

    ``measure``: how to measure lengths that may vanish; None is a table of the root, which turns an error e under
    it into √e: too much for float32. ``careful``: for the least rounding and, more often than not, more tokens, read
    functions of products of two factors, too, at sums of logarithms, take a factor that is not zero into the sum below
    it, x/(1 + xy) = 1/(1/x + y), multiply positive factors by adding their logarithms, and write p/(p + r) as
    1 - r/(p + r) where r is small.
    """

    measure: Measure | None
    careful: bool = False


class PlanningGuide(Guide):
    """Choices from proven ranges; ``norms``, ``logs`` and ``divisions`` tell one circuit from another."""

    def __init__(self, ranges: BoxRanges, mode: Mode) -> None:
        self.ranges, self.mode = ranges, mode
        self.norms: list[Measure | None] = []
        self.logs: list[bool] = []
        self.divisions: list[bool] = []

    def balance(self, left: Expr, right: Expr) -> Balance:
        """Centre both factors and weigh them alike: then the squares are as small as they can be."""
        ends = [self.ranges.of(e) for e in (left, right)]
        (a, half_a), (b, half_b) = map(_centre, ends)
        # a factor that hardly varies is still rounded relative to its size
        half_a = max(half_a, policy.LEAST_VARIATION * largest(ends[0]))
        half_b = max(half_b, policy.LEAST_VARIATION * largest(ends[1]))
        return Balance(a, b, Fraction(2) ** round(math.log2(half_a) - math.log2(half_b)))

    def centre(self, argument: Expr) -> Fraction:
        """The middle of the argument's range."""
        middle, _ = _centre(self.ranges.of(argument))
        return middle

    def offset(self, function: Expr, argument: Expr) -> Fraction:
        """The middle of the values, where they vary less than that."""
        low, high = function_range(function, *self.ranges.of(argument))
        middle = Fraction(0)
        if min(abs(low), abs(high)) > policy.FAR_FROM_ZERO * (high - low) and low * high > 0:
            middle, _ = _centre((low, high))
        return middle

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """Clamp where the range comes close to the end of the domain."""
        low, high = self.ranges.of(argument)
        slack = policy.CLAMP_SLACK * (high - low)
        ends = domain_ends(function)
        choice = (
            ends[0] is not None and low - slack < ends[0],
            ends[1] is not None and high + slack > ends[1],
        )
        return choice

    def exchange(self, factors: Sequence[Expr], others: Sequence[Expr], last: Expr, inner: Expr) -> bool:
        """Exchange them where the others' sizes multiply to less than half: then less cancels."""
        ends = self.ranges.of(inner)
        size = largest(function_range(last, *ends)) if math.isfinite(ends[1] - ends[0]) else math.inf
        after = math.prod(largest(self.ranges.of(f)) for f in others) * size
        choice = after < policy.EXCHANGE_GAIN * math.prod(largest(self.ranges.of(f)) for f in factors)
        return choice

    def measure(self, radicand: Expr) -> Measure | None:
        """The given way, where the length may come so close to zero that errors under the root grow."""
        low, high = self.ranges.of(radicand)
        self.norms.append(None if low > policy.SHORT_LENGTH * high else self.mode.measure)
        return self.norms[-1]

    def in_logs(self, bases: Sequence[Expr], alone: bool) -> bool:
        """Where all are positive and there are enough of them: a logarithm takes no table more for them."""
        wanted = alone or len(bases) >= (policy.CAREFUL_LOGS if self.mode.careful else policy.PLAIN_LOGS)
        self.logs.append(wanted and all(self.ranges.of(base)[0] > 0 for base in bases))
        return self.logs[-1]

    def by_logs(self, bases: Sequence[Expr]) -> list[Expr]:
        """Those whose range tells that they are positive, if that is the mode and there are enough of them."""
        positive = [base for base in bases if self.ranges.of(base)[0] > 0] if self.mode.careful else []
        if len(positive) < policy.CAREFUL_LOGS:
            return []
        self.logs.append(True)
        return positive

    def divides(self, base: Expr) -> bool:
        """Where the range tells that it is not zero, if that is the mode."""
        low, high = self.ranges.of(base) if self.mode.careful else (0.0, 0.0)
        self.divisions.append(low > 0 or high < 0)
        return self.divisions[-1]

    def divides_always(self) -> bool:
        """If that is the mode."""
        return self.mode.careful

    def complements(self, part: Expr, rest: Expr) -> bool:
        """Where the rest is smaller, if that is the mode."""
        wanted = self.mode.careful and largest(self.ranges.of(rest)) < policy.SMALL_COMPLEMENT * largest(
            self.ranges.of(part)
        )
        if wanted:
            self.divisions.append(True)
        return wanted


def largest(ends: Interval) -> float:
    """The largest size in an interval."""
    return max(abs(ends[0]), abs(ends[1]))


def _centre(ends: Interval) -> tuple[Fraction, float]:
    """A short binary number near the middle, and the half-width around it."""
    low, high = ends
    half = max((high - low) / 2, 1e-9 * max(abs(low), abs(high)), 1e-300)
    if not math.isfinite(half):
        raise NotProvenError("the range of a factor could not be bounded on the box: narrow the box")
    grain = Fraction(2) ** (math.floor(math.log2(half)) - 4)
    middle = round(Fraction((low + high) / 2) / grain) * grain
    return middle, half
