"""Choices that the lowering of a formula leaves to its caller: they change accuracy, never correctness."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from transformula.kernel.structures.fold_lengths import Measure
from transformula.kernel.syntax.expression import Expr


class Balance(NamedTuple):
    """How to split a product: ab with centres a₀, b₀ and weight λ."""

    left: Fraction
    right: Fraction
    weight: Fraction


class Guide:
    """The plainest choices: products split evenly, nothing clamped, everything else as it is written."""

    def balance(self, left: Expr, right: Expr) -> Balance:
        """How to split the product of two meanings."""
        return Balance(Fraction(0), Fraction(0), Fraction(1))

    def centre(self, argument: Expr) -> Fraction:
        """The centre c in u² = (u − c)² + 2cu − c²."""
        return Fraction(0)

    def offset(self, function: Expr, argument: Expr) -> Fraction:
        """The constant to subtract from the values of a table of ``function`` in u."""
        return Fraction(0)

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """Whether errors might carry the argument below or above the function's domain."""
        return False, False

    def at_size(self, function: Expr, argument: Expr) -> bool:
        """Whether to read ``function``, which then must be even, at the absolute value of its argument."""
        return False

    def exchange(self, factors: Sequence[Expr], others: Sequence[Expr], last: Expr, inner: Expr) -> bool:
        """Whether to write a product with other factors: the others, and ``last`` in u of ``inner``."""
        return False

    def measure(self, radicand: Expr) -> Measure | None:
        """By which ReLUs to measure the length √radicand; None for a table of the root."""
        return None

    def in_logs(self, bases: Sequence[Expr], alone: bool) -> bool:
        """Whether to read a function of a product of powers of these bases at the sum of their logarithms.

        ``alone`` if the function is the logarithm itself.
        """
        return False

    def by_logs(self, bases: Sequence[Expr]) -> list[Expr]:
        """The bases of a product, positive ones, that are to be multiplied by adding logarithms."""
        return []

    def divides(self, base: Expr) -> bool:
        """Whether to divide a sum by ``base``, which then must not be zero anywhere."""
        return False

    def divides_always(self) -> bool:
        """Whether to divide though that takes more tables."""
        return False

    def complements(self, part: Expr, rest: Expr) -> bool:
        """Whether to write p/(p + r) as 1 - r/(p + r)."""
        return False
