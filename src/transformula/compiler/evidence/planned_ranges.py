"""Ranges for planning a circuit: of expressions on a box, of functions on intervals, of wires.

They are the kernel's own bounds on pieces that are searched for here; the kernel computes them again from evidence.
"""

from __future__ import annotations

import math

import numpy as np
from flint import arb

from transformula.budget import remembered, spend
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.table_pieces import find_function_cells
from transformula.compiler.evidence.wire_claims import WireSearch
from transformula.compiler.lower.domains import domain_ends
from transformula.compiler.lower.lowered_circuit import LoweredCircuit, WireFacts
from transformula.errors import NotProvenError
from transformula.kernel.enclosures.balls import enclose, from_float, round_down, round_up, to_fmpq
from transformula.kernel.enclosures.expression_ranges import each_once
from transformula.kernel.enclosures.float_intervals import Pair, length, plus, squared, times
from transformula.kernel.enclosures.function_cells import FunctionCells
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.structures.stored_circuit import LinearForm, Wire
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr

Interval = tuple[float, float]


def largest(ends: Interval) -> float:
    """The largest size in an interval."""
    return max(abs(ends[0]), abs(ends[1]))


class _Everything:
    """For planning, functions are assumed to be defined wherever their arguments are meant to lie."""

    def __contains__(self, node: object) -> bool:
        return True


_EVERYTHING = _Everything()


class BoxRanges:
    """Ranges of many expressions on one box, as floats rounded outwards; infinite where none is found."""

    def __init__(self, box: Box, known: frozenset[Expr] = frozenset()) -> None:
        self.region, self.known = Region.of_box(box), known
        self.search = WireSearch({})

    def of(self, expr: Expr) -> Interval:
        """An interval that contains the expression's values on the box."""
        return self.search.range(expr, self.region, self.known)


@remembered(512)
def function_cells(function: Expr, low: float, high: float) -> FunctionCells:
    """Values and slopes of a function of u on an interval."""
    high = high if high > low else math.nextafter(low, math.inf)
    edges = find_function_cells(function, low, high)
    spend(len(edges) * costs.cell(function))
    return FunctionCells(function, edges, defined=_EVERYTHING)


def function_range(function: Expr, low: float, high: float) -> Interval:
    """Range of a function of u on an interval, as floats rounded outwards; infinite where none is found."""
    if not math.isfinite(high - low):
        return -math.inf, math.inf
    try:
        a, b = range_of(function, {"u": (from_float(low), from_float(high))}, _EVERYTHING)
        plain = round_down(arb(a)), round_up(arb(b))
    except UndefinedError:
        plain = -math.inf, math.inf
    if each_once(function) and math.isfinite(plain[1] - plain[0]):
        return plain
    least, most = function_cells(function, low, high).values(np.array([low]), np.array([high]))
    return max(plain[0], float(least[0])), min(plain[1], float(most[0]))


def inside_domain(function: Expr, ends: Interval) -> Interval:
    """The part of an interval where a function of u is defined, as far as its roots and logarithms tell."""
    least, most = domain_ends(function)
    low = ends[0] if least is None else max(ends[0], round_down(arb(to_fmpq(least))))
    high = ends[1] if most is None else min(ends[1], round_up(arb(to_fmpq(most))))
    return low, high


class PlannedRanges:
    """Ranges of wires and of their arguments on the box.

    ``values`` has a range for every wire, ``arguments`` for every table and ReLU: a table's is cut to its
    function's domain, since elsewhere the formula is not defined.
    """

    def __init__(self, lowered: LoweredCircuit, ranges: BoxRanges) -> None:
        self.ranges = ranges
        self.values: dict[int, Interval] = {}
        self.arguments: dict[int, Interval] = {}
        for k, (wire, fact) in enumerate(zip(lowered.circuit.wires, lowered.facts, strict=True)):
            if not wire.arguments:
                self.values[k] = ranges.of(fact.meaning)
            elif wire.total is not None:
                self.values[k] = self._virtual(wire, fact)
            else:
                self.arguments[k], self.values[k] = self._looked_up(wire, fact)

    def _virtual(self, wire: Wire, fact: WireFacts) -> Interval:
        """A product or a length."""
        left, right = (_pair(self._form(*side)) for side in zip(wire.arguments, fact.arguments, strict=True))
        if wire.is_norm:
            found = length(left, right)
        else:
            found = squared(left) if wire.arguments[0] == wire.arguments[1] else times(left, right)
        return _both(_ends(found), self.ranges.of(fact.meaning))

    def _looked_up(self, wire: Wire, fact: WireFacts) -> tuple[Interval, Interval]:
        """The argument and the value of a table or a ReLU."""
        (form,), (meaning,) = wire.arguments, fact.arguments
        if wire.inside is None:
            argument = self._form(form, meaning)
        else:  # the ReLUs of a length need no sharp ranges: none is larger than the length is
            most = self.ranges.of(meaning)[1]
            argument = _both(self._sum(form), (-most, most))
        if wire.function is None:
            return argument, (max(argument[0], 0.0), max(argument[1], 0.0))
        argument = inside_domain(wire.function, argument)
        if not argument[0] <= argument[1]:
            raise NotProvenError(f"{fact.meaning} is not defined on the box", place=str(meaning))
        if not math.isfinite(argument[1] - argument[0]):
            return argument, self.ranges.of(fact.meaning)
        return argument, function_range(wire.function, *argument)

    def _form(self, linear: LinearForm, meaning: Expr) -> Interval:
        """The range of a linear form: of its wires, and of its meaning."""
        return _both(self._sum(linear), self.ranges.of(meaning))

    def _sum(self, linear: LinearForm) -> Interval:
        ball = enclose(linear.constant)
        total: Pair = np.asarray(round_down(ball)), np.asarray(round_up(ball))
        for k, c in linear.terms:
            factor = enclose(c)
            ends = np.asarray(round_down(factor)), np.asarray(round_up(factor))
            total = plus(total, times(ends, _pair(self.values[k])))
        return _ends(total)


def _pair(ends: Interval) -> Pair:
    return np.asarray(ends[0]), np.asarray(ends[1])


def _ends(pair: Pair) -> Interval:
    return float(pair[0]), float(pair[1])


def _both(a: Interval, b: Interval) -> Interval:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a
