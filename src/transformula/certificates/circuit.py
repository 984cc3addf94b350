"""The proof for circuits: every head's table against its function, errors carried to the outputs.

The formula is lowered again, here, into wires (`formulas.circuits`); the stored plan only says how products
were split, what was clamped and which power of two each wire is scaled by, none of which can make a wrong
network look right. Wire i holds 2^{h_i} M_i up to an error, M_i its meaning on the box. In order:

* *Argument.* The head reads Σ c_w·slot_w + c_0 where Σ s p_w M_w + s p_0 is meant (s = 2^scale): the error
  is at most Σ |c_w| e_w + Σ |c_w 2^{h_w} − s p_w| sup|M_w| + |c_0 − s p_0|.
* *Table.* On the argument's proven range, widened by that error, sup|T − 2^h f(·/s)| is bounded by Taylor
  models; a moved argument changes f by its modulus of continuity; foreign tokens leak next to nothing.
* *ReLU* does not enlarge an error. The readout is one more linear combination.

Rounding is carried the same way: a computed argument that is off moves T by at most sup|T'| times that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, fmpq

from transformula.certificates.bounding import bound_table
from transformula.certificates.leaks import SILENT
from transformula.certificates.proof import Proof, RefutedError
from transformula.certificates.rounding import EXP_ULPS, FORMATS, FloatFormat
from transformula.certificates.softmax_rounding import Arithmetic, rounding_bound
from transformula.certificates.table_bounds import Table
from transformula.certificates.table_slopes import table_slope
from transformula.errors import NotProvenError
from transformula.formulas import expression as ex
from transformula.formulas.additive import substitute
from transformula.formulas.circuits import ARGUMENT, Balance, Linear, Wire, build_circuit, domain_ends
from transformula.formulas.enclosures import enclose, precision, round_up
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.taylor.box_ranges import BoxRanges, function_range
from transformula.taylor.modulus import modulus
from transformula.taylor.ranges import check_defined_on
from transformula.transformers.circuit import (
    CircuitHead,
    CircuitWeights,
    NotCircuitError,
    Unit,
    read_circuit,
)
from transformula.transformers.weights import Weights

_BITS = 128


_RATIONAL = re.compile(r"-?\d{1,400}(/\d{1,400})?", re.ASCII)
_MAX_EXPONENT = 400


def _rational(text: object) -> Fraction:
    if not isinstance(text, str) or not _RATIONAL.fullmatch(text):
        raise ValueError(f"{text!r} is not a rational number")
    return Fraction(text)


def _exponent(value: object) -> int:
    if not isinstance(value, int) or abs(value) > _MAX_EXPONENT:
        raise ValueError(f"{value!r} is not the exponent of a scale")
    return value


class ReplayGuide:
    """The stored choices, in the order in which they were made."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        try:
            self.balances = [Balance(*map(_rational, choice)) for choice in plan["balances"]][::-1]
            self.centres = [_rational(c) for c in plan["centres"]][::-1]
            self.clamps = [(bool(low), bool(high)) for low, high in plan["clamps"]][::-1]
            self.scales = {int(k): (_exponent(s), _exponent(h)) for k, (s, h) in plan["scales"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            raise RefutedError("the plan beside the weights can not be read") from None

    def balance(self, left: Expr, right: Expr) -> Balance:
        """The next product's split."""
        if not self.balances or self.balances[-1].weight <= 0:
            raise RefutedError("the plan has no split for a product")
        return self.balances.pop()

    def centre(self, argument: Expr) -> Fraction:
        """The next square's centre."""
        if not self.centres:
            raise RefutedError("the plan has no centre for a square")
        return self.centres.pop()

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """The next table's clamps."""
        if not self.clamps:
            raise RefutedError("the plan does not say whether an argument is clamped")
        return self.clamps.pop()


@dataclass(frozen=True)
class _Value:
    """A slot: it holds 2^held · meaning up to ``error``; |meaning| ≤ size; computed within ``rounding``.

    ``ends`` enclose what it holds in exact arithmetic: a ReLU is never negative, whatever its error.
    """

    held: int
    size: arb
    error: arb
    rounding: arb
    ends: tuple[arb, arb]

    @property
    def reach(self) -> arb:
        """Bound of what the slot holds."""
        return self.size * arb(2) ** self.held + self.error


def prove_circuit(weights: Weights, formula: Formula, plan: Mapping[str, Any]) -> Proof:
    """Prove a circuit, or raise `RefutedError` / `NotProvenError` with the place where it fails."""
    try:
        network = read_circuit(weights)
    except NotCircuitError as reason:
        raise RefutedError(f"the weights are not a table circuit: {reason}") from None
    guide = ReplayGuide(plan)
    with precision(_BITS):
        check_defined_on(formula)
    circuit = build_circuit(formula.outputs, formula.box.variables, guide)
    with precision(_BITS):
        walker = _Walker(weights, network, formula, guide)
        for block, (heads, units) in enumerate(network.blocks, start=1):
            for time, found in ((2 * block - 1, heads), (2 * block, units)):
                expected = [k for k, w in enumerate(circuit.wires) if w.time == time]
                slots = [weights.slots[item.slot] for item in found]
                if sorted(slots) != sorted(f"w{k}" for k in expected):
                    raise RefutedError(f"block {block} does not compute the wires of the formula")
                by_name = {weights.slots[item.slot]: item for item in found}
                new = {k: walker.wire(circuit.wires[k], k, by_name[f"w{k}"]) for k in expected}
                walker.values.update(new)
        if len(network.blocks) < circuit.layers:
            raise RefutedError("blocks are missing")
        results = [
            walker.output(linear, form) for linear, form in zip(circuit.outputs, network.readout, strict=True)
        ]
    approximation = max(round_up(error) for error, _ in results)
    rounding = max(round_up(wrong) for _, wrong in results)
    return Proof(approximation, rounding, {"wires": len(circuit.wires), "pieces": walker.pieces})


class _Walker:
    """Carries bounds from wire to wire."""

    def __init__(
        self, weights: Weights, network: CircuitWeights, formula: Formula, guide: ReplayGuide
    ) -> None:
        self.weights, self.network, self.guide = weights, network, guide
        self.form: FloatFormat = FORMATS[weights.dtype]
        self.ranges = BoxRanges(formula.box)
        self.pieces = 0
        self.values: dict[int, _Value] = {}
        for k in range(formula.box.dimension):
            size = formula.box.magnitude(k)
            ends = enclose(formula.box.lower[k]).lower(), enclose(formula.box.upper[k]).upper()
            wrong = size * self.form.unit_roundoff + self.form.tiny
            self.values[k] = _Value(0, size, arb(0), wrong, ends)
        self.slot_of = {k: slot for slot, k in network.inputs.items()}
        self._proved: dict[object, arb] = {}
        self._rounded: dict[object, tuple[float, float]] = {}

    def wire(self, wire: Wire, index: int, item: CircuitHead | Unit) -> _Value:
        """What a head or a hidden unit makes of its argument."""
        scale, held = self.guide.scales.get(index, (0, 0))
        assert wire.argument is not None
        if isinstance(item, Unit):
            scale = held = 0
        error, rounding = self._argument(wire.argument, item.form, scale)
        actual = self._actual(item.form)
        self.slot_of[index] = item.slot
        if isinstance(item, Unit):
            size = arb(max(self.ranges.of(wire.argument.meaning)[1], 0.0))
            bent = actual[0].max(arb(0)), actual[1].max(arb(0))
            return _Value(0, size, error, rounding * (1 + self.form.unit_roundoff), bent)
        return self._table(wire, item, actual, scale, held, error, rounding)

    def _actual(self, form: Mapping[int, fmpq]) -> tuple[arb, arb]:
        """Ends of a linear combination of slots, from what they really hold."""
        holders = {self.slot_of[k]: value for k, value in self.values.items()}
        low = high = arb(form.get(self.network.one, fmpq(0)))
        for slot, c in form.items():
            if slot != self.network.one:
                a, b = holders[slot].ends if c > 0 else holders[slot].ends[::-1]
                low, high = low + arb(c) * a, high + arb(c) * b
        return low.lower(), high.upper()

    def _argument(self, linear: Linear, form: Mapping[int, fmpq], scale: int) -> tuple[arb, arb]:
        """(error, rounding) of a linear combination of slots against 2^scale · what is meant."""
        factor = arb(2) ** scale
        meant = {self.slot_of[k]: (self.values[k], enclose(c) * factor) for k, c in linear.terms}
        error = abs(arb(form.get(self.network.one, fmpq(0))) - enclose(linear.constant) * factor)
        total = abs(arb(form.get(self.network.one, fmpq(0))))
        rounding, count = arb(0), 1
        for slot in form.keys() | meant.keys():
            if slot == self.network.one:
                continue
            if slot not in meant:
                raise RefutedError(f"{self.weights.slots[slot]} is read where it should not be")
            value, wanted = meant[slot]
            c = arb(form.get(slot, fmpq(0)))
            error += abs(c) * value.error + abs(c * arb(2) ** value.held - wanted) * value.size
            rounding += abs(c) * value.rounding
            total += abs(c) * (value.reach + value.rounding)
            count += 1
        # each coefficient is within 2u of its rational, each product and sum within u
        rounding += self.form.gamma(count + 4) * total + 2 * count * self.form.tiny
        return error.upper(), rounding.upper()

    def _table(
        self,
        wire: Wire,
        head: CircuitHead,
        actual: tuple[arb, arb],
        scale: int,
        held: int,
        error: arb,
        rounding: arb,
    ) -> _Value:
        assert wire.function is not None and wire.argument is not None
        low, high = _inside_domain(wire, self.ranges.of(wire.argument.meaning))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise NotProvenError(
                f"the range of {wire.argument.meaning} could not be bounded", place=str(wire.argument.meaning)
            )
        stretch = 2.0**scale
        shift = round_up(error)
        wide = _widened((low * stretch, high * stretch), shift, actual)
        function = _scaled(wire.function, scale, held)
        leak = self._leak(head, wide)
        key = (wire.function, scale, held, wide, head.table)
        if key not in self._proved:
            table = Table(head.slopes.astype(float), head.offsets.astype(float), head.values.astype(float))
            interval = [(arb(wide[0]), arb(wide[1]))]
            bound = bound_table(function, ["u"], interval, table)
            self.pieces += bound.boxes
            self._proved[key] = arb(bound.value)
        change = modulus(function, "u", *wide, shift)
        if not math.isfinite(change):
            raise NotProvenError(
                f"{wire.meaning} could not be bounded: its argument is off by {shift:.2g}",
                place=str(wire.meaning),
            )
        values = function_range(wire.function, low, high)
        size = arb(max(abs(values[0]), abs(values[1])))
        computed = self._softmax_rounding(head, wide, rounding) + leak
        total = (self._proved[key] + arb(change) + leak).upper()
        factor = arb(2) ** held
        ends = (arb(values[0]) * factor - total).lower(), (arb(values[1]) * factor + total).upper()
        return _Value(held, size, total, computed.upper(), ends)

    def _leak(self, head: CircuitHead, wide: tuple[float, float]) -> arb:
        """Share of the weight outside the head's own table, times the spread of values."""
        reach = max(abs(wide[0]), abs(wide[1]))
        slope, offset, value = head.foreign_reach
        own = float((head.offsets - np.abs(head.slopes) * reach).max())
        foreign = head.gate + offset + slope * reach
        largest = float((np.abs(head.offsets) + np.abs(head.slopes) * reach).max())
        gap = own - foreign - 1e-14 * (1 + largest + abs(head.gate) + offset + slope * reach)
        others = self.weights.tokens - len(head.slopes)
        if not gap > SILENT:
            raise RefutedError("a head is not kept to its own table: the gate is too weak")
        spread = math.nextafter(float(np.abs(head.values).max()) + value, math.inf)
        return (arb(others) * (-arb(gap)).exp() * arb(spread)).upper()

    def _softmax_rounding(self, head: CircuitHead, wide: tuple[float, float], rounding: arb) -> arb:
        """Of the softmax itself, and of an argument that is off by ``rounding``."""
        key = (wide, head.table, round_up(rounding))
        if key not in self._rounded:
            table = Table(head.slopes.astype(float), head.offsets.astype(float), head.values.astype(float))
            off = round_up(rounding)
            reach = wide[0] - off, wide[1] + off
            arithmetic = Arithmetic.of(
                self.weights.dtype,
                exp_ulps=EXP_ULPS,
                score_roundings=4,
                sum_roundings=len(head.slopes) + 2,  # behind the gate everything is zero in floats
            )
            bound = rounding_bound(table, [(arb(reach[0]), arb(reach[1]))], arithmetic)
            self._rounded[key] = bound, table_slope(table, *reach)
        bound, slope = self._rounded[key]
        if not (math.isfinite(bound) and math.isfinite(slope)):
            raise NotProvenError(f"the scores of a table are too large for {self.weights.dtype}")
        return arb(bound) + arb(slope) * rounding

    def output(self, linear: Linear, form: Mapping[int, fmpq]) -> tuple[arb, arb]:
        """Error and rounding of the readout."""
        return self._argument(linear, form, 0)


def _inside_domain(wire: Wire, ends: tuple[float, float]) -> tuple[float, float]:
    """The range cut to the function's domain: elsewhere the formula is not defined."""
    assert wire.function is not None
    least, most = domain_ends(wire.function)
    low = ends[0] if least is None else max(ends[0], _below(least))
    high = ends[1] if most is None else min(ends[1], _above(most))
    return low, high


def _below(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def _above(value: Fraction) -> float:
    return -_below(-value)


def _widened(meant: tuple[float, float], shift: float, actual: tuple[arb, arb]) -> tuple[float, float]:
    """Where the argument can be: near what is meant, and within what its slots really hold.

    The meant range itself is kept whole, since the modulus compares with it.
    """
    low, high = meant
    if shift > 0:
        low, high = math.nextafter(low - shift, -math.inf), math.nextafter(high + shift, math.inf)
    least, most = -round_up(-actual[0]), round_up(actual[1])
    return min(max(low, least), meant[0]), max(min(high, most), meant[1])


def _scaled(function: Expr, scale: int, held: int) -> Expr:
    """2^held · f(u / 2^scale)."""
    u = ex.variable("u")
    argument = ex.mul(ex.number(Fraction(2) ** -scale), u)
    return ex.mul(ex.number(Fraction(2) ** held), substitute(function, {ARGUMENT: argument}))
