"""Proven ranges of the wires of a circuit: from their meanings on the box, and from the wires they read.

Neither is always better. The meaning of a wire is an expression in the inputs, which Taylor models bound
well unless it is deep; a sum of wires, each with a range of its own, forgets what they have in common.
"""

from __future__ import annotations

import math

import numpy as np
from flint import arb

from transformula.errors import NotProvenError
from transformula.formulas.circuits import Circuit
from transformula.formulas.domains import domain_ends
from transformula.formulas.enclosures import round_up, to_fmpq
from transformula.formulas.expression import Expr
from transformula.formulas.wires import Linear
from transformula.taylor.box_ranges import BoxRanges, function_range
from transformula.taylor.error_flow import Form, length, squared, times
from transformula.taylor.function_cells import Pair

Ends = tuple[float, float]


class WireRanges:
    """Ranges of wires and of their arguments on the box, as floats rounded outwards.

    ``values`` has a range for every wire, ``arguments`` for every table and ReLU: a table's is cut to its
    function's domain, since elsewhere the formula is not defined.
    """

    def __init__(self, circuit: Circuit, ranges: BoxRanges) -> None:
        self.ranges = ranges
        units = {k for wire in circuit.wires if wire.norm for k in wire.norm.units}
        self.values: dict[int, Ends] = {}
        self.arguments: dict[int, Ends] = {}
        for k, wire in enumerate(circuit.wires):
            if wire.product is not None:
                left = self._joined(wire.product.left)
                same = wire.product.left is wire.product.right
                right = left if same else self._joined(wire.product.right)
                product = squared(_pair(left)) if same else times(_pair(left), _pair(right))
                self.values[k] = _both(_ends(product), ranges.of(wire.meaning))
            elif wire.norm is not None:
                parts = (_pair(self._joined(part)) for part in (wire.norm.left, wire.norm.right))
                self.values[k] = _both(_ends(length(*parts)), ranges.of(wire.meaning))
            elif wire.argument is None:
                self.values[k] = ranges.of(wire.meaning)
            else:
                # the many directions of a length need no sharp ranges
                argument = self._sum(wire.argument) if k in units else self._joined(wire.argument)
                if wire.function is None:
                    self.values[k] = max(argument[0], 0.0), max(argument[1], 0.0)
                else:
                    argument = inside_domain(wire.function, argument)
                    if not argument[0] <= argument[1]:
                        place = str(wire.argument.meaning)
                        raise NotProvenError(f"{wire.meaning} is not defined on the box", place=place)
                    self.values[k] = self._value(wire.function, argument, wire.meaning)
                self.arguments[k] = argument

    def _value(self, function: Expr, argument: Ends, meaning: Expr) -> Ends:
        found = self.ranges.of(meaning)
        if not math.isfinite(argument[1] - argument[0]):
            return found
        return _both(function_range(function, *argument), found)

    def _joined(self, linear: Linear) -> Ends:
        return _both(self._sum(linear), self.ranges.of(linear.meaning))

    def _sum(self, linear: Linear) -> Ends:
        return _ends(Form(linear).of({k: _pair(self.values[k]) for k, _ in linear.terms}))


def _pair(ends: Ends) -> Pair:
    return np.asarray(ends[0]), np.asarray(ends[1])


def _ends(pair: Pair) -> Ends:
    return float(pair[0]), float(pair[1])


def _both(a: Ends, b: Ends) -> Ends:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a


def inside_domain(function: Expr, ends: Ends) -> Ends:
    """The part of an interval where a function of u is defined, as far as its roots and logarithms tell."""
    least, most = domain_ends(function)
    low = ends[0] if least is None else max(ends[0], -round_up(-arb(to_fmpq(least))))
    high = ends[1] if most is None else min(ends[1], round_up(arb(to_fmpq(most))))
    return low, high
