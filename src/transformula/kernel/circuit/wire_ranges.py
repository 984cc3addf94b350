"""Proven ranges of what the wires of a circuit are meant to be.

A wire's argument is a linear form of earlier wires, so its range follows from theirs; that forgets what they
have in common. Evidence may name an expression in the inputs, in earlier wires (#w3) and in quantities defined
on the way (#q0) that has the same normal form: then its range over the given parts counts as well. A sign that is
proven cuts a range too. All ranges are floats, rounded outwards.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

from transformula.kernel.circuit.error_flow import FormEnds
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.enclosures.balls import float_above, float_below, to_fmpq
from transformula.kernel.enclosures.expression_ranges import range_on
from transformula.kernel.enclosures.float_intervals import Pair, length, squared, times
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import FormulaError, RefutedError
from transformula.kernel.folder.evidence import Evidence, Meant
from transformula.kernel.structures.stored_circuit import Circuit, LinearForm, Wire
from transformula.kernel.syntax.expression import Expr, variables_of
from transformula.kernel.syntax.parsing import parse

Interval = tuple[float, float]


class WireRanges:
    """``values`` has a range for every wire, ``arguments`` for every table of one axis and every ReLU."""

    def __init__(self, circuit: Circuit, meanings: Meanings, evidence: Evidence) -> None:
        self.circuit, self.meanings, self.evidence = circuit, meanings, evidence
        self.values: dict[int, Interval] = {}
        self.arguments: dict[int, Interval] = {}
        #: How large the lengths are that folds measure, by their sides.
        self.lengths: dict[tuple[LinearForm, LinearForm], float] = {}
        #: Ends of every name an expression of the evidence may use.
        self.names: dict[str, tuple[fmpq, fmpq]] = {}
        region = meanings.region
        for name, low, high in zip(region.names, region.lower, region.upper, strict=True):
            self.names[name] = low, high

    def add(self, k: int) -> None:
        """Bound the next wire's argument, and its value unless it is a table."""
        wire = self.circuit.wires[k]
        if not wire.arguments:
            lower, upper = self.meanings.region.floats
            self.values[k] = float(lower[k]), float(upper[k])
            self._name(k)
            return
        if wire.total is not None:
            sides = [_pair(self._sum(argument)) for argument in wire.arguments]
            same = wire.arguments[0] == wire.arguments[1]
            found = length(*sides) if wire.is_norm else squared(sides[0]) if same else times(*sides)
            ends = float(np.min(found[0])), float(np.max(found[1]))
            self.found(k, _pair(self._claimed(k, "w", ends)))
        elif len(wire.arguments) == 1:
            ends = self._claimed(k, "u", self._within(wire, self._sum(wire.arguments[0])))
            low, high = self.arguments[k] = self._cut(k, ends)
            if wire.function is None:
                self.found(k, _pair((max(low, 0.0), max(high, 0.0))))

    def found(self, k: int, pair: Pair) -> Interval:
        """Take down a wire's value."""
        self.values[k] = float(np.min(pair[0])), float(np.max(pair[1]))
        self._name(k)
        return self.values[k]

    def meant(self, k: int) -> Meant:
        """What a table's argument is meant to be."""
        exact = self._exact(self.circuit.wires[k].arguments[0])
        if exact is None:
            return Meant(self.arguments[k])
        return Meant(self.arguments[k], (exact, self.meanings.defined_nodes(k)))

    def _exact(self, linear: LinearForm) -> tuple[fmpq, fmpq] | None:
        """The range that a rational form of inputs has if these have rational ends."""
        box = self.meanings.formula.box
        if linear.constant.number is None:
            return None
        low = high = to_fmpq(linear.constant.number)
        for i, c in linear.terms:
            ends = (box.lower[i].number, box.upper[i].number) if i < box.dimension else (None, None)
            if c.number is None or ends[0] is None or ends[1] is None:
                return None
            corners = to_fmpq(c.number * ends[0]), to_fmpq(c.number * ends[1])
            low, high = low + min(corners), high + max(corners)
        return low, high

    def _name(self, k: int) -> None:
        low, high = self.values[k]
        if math.isfinite(high - low):
            self.names[f"#w{k}"] = to_fmpq(Fraction(low)), to_fmpq(Fraction(high))

    def _sum(self, linear: LinearForm) -> Interval:
        exact = self._exact(linear)
        if exact is not None:
            return float_below(exact[0]), float_above(exact[1])
        low, high = FormEnds(linear).of({k: _pair(self.values[k]) for k, _ in linear.terms})
        factors = [linear.constant.number, *(c.number for _, c in linear.terms)]
        whole = all(f is not None and f >= 0 for f in factors) and all(self.values[k][0] >= 0 for k, _ in linear.terms)
        return (max(float(low), 0.0) if whole else float(low)), float(high)  # a sum of nonnegative terms is one

    def _within(self, wire: Wire, ends: Interval) -> Interval:
        """No more than its part of the length that it helps to measure."""
        if wire.inside is None:
            return ends
        left, right, part = wire.inside
        if (left, right) not in self.lengths:  # all units of a length have the same two
            self.lengths[left, right] = float(length(_pair(self._sum(left)), _pair(self._sum(right)))[1])
        most = math.nextafter(part * self.lengths[left, right], math.inf)
        return max(ends[0], -most), min(ends[1], most)

    def _cut(self, k: int, ends: Interval) -> Interval:
        """Never below or above zero, if that is proven."""
        sign = self.meanings.argument_sign(k) if ends[0] < 0 < ends[1] else 0
        return (0.0 if sign > 0 else ends[0]), (0.0 if sign < 0 else ends[1])

    def _claimed(self, k: int, of: str, ends: Interval) -> Interval:
        """The range of a wire's argument (u) or value (w), with what evidence adds to it."""
        for name, text, cut in self.evidence.ranges(k, of, ends, self.meanings.region, self.meanings.known):
            try:
                expr = parse(text, self.names)
            except FormulaError as error:
                raise RefutedError(f"a range in evidence.json cannot be read: {error}") from None
            low, high = self._range(expr, cut)
            if name.startswith("#q") and name not in self.names:
                self.meanings.define(name, expr)
                self.names[name] = to_fmpq(Fraction(low)), to_fmpq(Fraction(high))
            elif name == of:
                self.meanings.check_same(k, of, expr)
                ends = max(ends[0], low), min(ends[1], high)
                if not ends[0] <= ends[1]:
                    raise RefutedError("two proven ranges of a wire do not meet")
            else:
                raise RefutedError(f"evidence.json bounds {name[:40]!r}, which is not asked for here")
        return ends

    def _range(self, expr: Expr, cut: Any) -> Interval:
        names = sorted(variables_of(expr))
        region = Region(tuple(names), *(tuple(self.names[n][end] for n in names) for end in (0, 1)))
        low, high = range_on(expr, region, cut, self.meanings.known)
        if not math.isfinite(high - low):
            raise RefutedError("a range in evidence.json is not finite")
        return low, high


def _pair(ends: Interval) -> Pair:
    return np.asarray(ends[0]), np.asarray(ends[1])
