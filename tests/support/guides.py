"""Guides that choose at random: what a circuit computes must not depend on it."""

from fractions import Fraction

import numpy as np

from transformula.compiler.lower.lowered_circuit import Balance
from transformula.kernel.structures.stored_circuit import Measure


class RandomGuide:
    """Any centres and weights, any clamps and exchanges; now and then a length made of eight ReLUs."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def _fraction(self):
        return Fraction(int(self.rng.integers(-16, 17)), 16)

    def balance(self, left, right):
        return Balance(self._fraction(), self._fraction(), Fraction(2) ** int(self.rng.integers(-2, 3)))

    def centre(self, argument):
        return self._fraction()

    def offset(self, function, argument):
        return self._fraction()

    def clamp(self, function, argument):
        return bool(self.rng.integers(2)), bool(self.rng.integers(2))

    def exchange(self, factors, others, last, inner):
        return bool(self.rng.integers(2))

    def measure(self, radicand):
        return [None, Measure(8)][int(self.rng.integers(2))]

    def in_logs(self, bases, alone):
        return False  # only right where all bases are positive: see PositiveGuide

    def by_logs(self, bases):
        return []  # as in_logs

    def divides(self, base):
        return False

    def divides_always(self):
        return bool(self.rng.integers(2))

    def complements(self, part, rest):
        return bool(self.rng.integers(2))


class PositiveGuide(RandomGuide):
    """For boxes on which everything is positive: products may be taken apart into logarithms too."""

    def in_logs(self, bases, alone):
        return bool(self.rng.integers(2))

    def by_logs(self, bases):
        return [base for base in bases if base.op != "asin" and self.rng.integers(2)]  # log(asin(u)) ends at 0

    def divides(self, base):
        return bool(self.rng.integers(2))
