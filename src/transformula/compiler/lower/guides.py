"""Choices that the lowering of a formula leaves to its caller: they change accuracy, never correctness."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

from transformula.kernel.structures.fold_lengths import Measure
from transformula.kernel.syntax.expression import Expr


class Balance(NamedTuple):
    """How to split a product: ab with centres a₀, b₀ and weight λ."""

    left: Fraction
    right: Fraction
    weight: Fraction


class Guide(Protocol):
    """Choices that change a circuit's accuracy but not what it computes."""

    def balance(self, left: Expr, right: Expr) -> Balance:
        """How to split the product of two meanings."""

    def centre(self, argument: Expr) -> Fraction:
        """The centre c in u² = (u − c)² + 2cu − c²."""

    def offset(self, function: Expr, argument: Expr) -> Fraction:
        """What to subtract from the values of a table of ``function`` in u."""

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """Whether errors might carry the argument below or above the function's domain."""

    def at_size(self, function: Expr, argument: Expr) -> bool:
        """Whether to read ``function``, which then must be even, at the absolute value of its argument."""

    def exchange(self, factors: Sequence[Expr], others: Sequence[Expr], last: Expr, inner: Expr) -> bool:
        """Whether to write a product with other factors: the others, and ``last`` in u of ``inner``."""

    def measure(self, radicand: Expr) -> Measure | None:
        """By which ReLUs to measure the length √radicand; None for a table of the root."""

    def in_logs(self, bases: Sequence[Expr], alone: bool) -> bool:
        """Whether to read a function of a product of powers of these bases at the sum of their logarithms.

        ``alone`` if the function is the logarithm itself.
        """

    def by_logs(self, bases: Sequence[Expr]) -> list[Expr]:
        """Those of a product's bases, which must be positive then, that are to be multiplied by adding logarithms."""

    def divides(self, base: Expr) -> bool:
        """Whether to divide a sum by ``base``, which then must not be zero anywhere."""

    def divides_always(self) -> bool:
        """Whether to divide though that takes more tables."""

    def complements(self, part: Expr, rest: Expr) -> bool:
        """Whether to write p/(p + r) as 1 - r/(p + r)."""


class PlainGuide:
    """Products split evenly, nothing clamped."""

    def balance(self, left: Expr, right: Expr) -> Balance:
        """Centres 0, weight 1."""
        return Balance(Fraction(0), Fraction(0), Fraction(1))

    def centre(self, argument: Expr) -> Fraction:
        """Centre 0."""
        return Fraction(0)

    def offset(self, function: Expr, argument: Expr) -> Fraction:
        """Nothing."""
        return Fraction(0)

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """No clamps."""
        return False, False

    def at_size(self, function: Expr, argument: Expr) -> bool:
        """At the argument itself."""
        return False

    def exchange(self, factors: Sequence[Expr], others: Sequence[Expr], last: Expr, inner: Expr) -> bool:
        """As it is written."""
        return False

    def measure(self, radicand: Expr) -> Measure | None:
        """A table of the root."""
        return None

    def in_logs(self, bases: Sequence[Expr], alone: bool) -> bool:
        """Products are multiplied."""
        return False

    def by_logs(self, bases: Sequence[Expr]) -> list[Expr]:
        """None of them."""
        return []

    def divides(self, base: Expr) -> bool:
        """Sums stay as they are."""
        return False

    def divides_always(self) -> bool:
        """They do."""
        return False

    def complements(self, part: Expr, rest: Expr) -> bool:
        """Quotients stay as they are."""
        return False
