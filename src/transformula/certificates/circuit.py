"""The proof for circuits: every head's table against its function, errors carried to the outputs.

The formula is lowered again, here, into wires (`formulas.lowering`); the stored plan only says how products
were split, what was clamped and which power of two each wire is scaled by, none of which can make a wrong
network look right. Wire i holds 2^{h_i} M_i up to an error, M_i its meaning on the box. In order:

* *Argument.* The head reads Σ c_w·slot_w + c_0 where Σ s p_w M_w + s p_0 is meant (s = 2^scale): the error
  is at most Σ |c_w| e_w + Σ |c_w 2^{h_w} − s p_w| (sup|M_w| + e_w/2^{h_w}) + |c_0 − s p_0|.
* *Table.* On the argument's proven range, widened by that error, sup|T − 2^h f(·/s)| is bounded by Taylor
  models; a moved argument changes f by its modulus of continuity; foreign tokens leak next to nothing.
* *ReLU* does not enlarge an error. The readout is one more linear combination.

Rounding is carried the same way: a computed argument that is off by r moves T as it moves f, but for at most
r·sup|T' − f'|. This first walk multiplies the largest slopes, wherever they are. With the errors it found,
`taylor.error_flow` then follows the errors made at each wire to the outputs on small parts of the box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, fmpq, fmpz

from transformula.certificates.circuit_heads import HeadProofs, check_size
from transformula.certificates.proof import Proof, RefutedError
from transformula.certificates.replay import ReplayGuide, replay
from transformula.certificates.rounding import FORMATS, FloatFormat
from transformula.errors import NotProvenError
from transformula.formulas import expression as ex
from transformula.formulas.additive import substitute
from transformula.formulas.circuits import Circuit
from transformula.formulas.enclosures import enclose, precision, round_up
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.formulas.wires import ARGUMENT, Linear, Wire
from transformula.taylor.box_ranges import BoxRanges
from transformula.taylor.definedness import check_defined_on
from transformula.taylor.error_flow import NO_FUZZ, ErrorFlow, Fuzz, worst_parts
from transformula.taylor.function_cells import Cells
from transformula.taylor.modulus import lipschitz, modulus
from transformula.taylor.results import Floats
from transformula.taylor.wire_ranges import WireRanges, inside_domain
from transformula.transformers.circuit import (
    CircuitHead,
    CircuitWeights,
    NotCircuitError,
    Unit,
    read_circuit,
)
from transformula.transformers.weights import Weights

_BITS = 128
#: Points at which the circuit is compared with the formula before anything is proven.
_NET = 40


@dataclass(frozen=True)
class _Value:
    """A slot: it holds 2^held · meaning up to ``error``; |meaning| ≤ size; computed within ``rounding``.

    ``ends`` enclose what it holds in exact arithmetic: a ReLU is never negative, whatever its error. ``made``
    and ``rounded`` are what the wire itself adds to error and rounding, at its argument and at its value;
    ``function`` is a table's on the range of its argument.
    """

    held: int
    size: arb
    error: arb
    rounding: arb
    ends: tuple[arb, arb]
    made: Fuzz = NO_FUZZ
    rounded: Fuzz = NO_FUZZ
    function: Cells | None = None

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
    circuit, formula, guide = replay(network, formula, plan)
    check_defined_on(formula)
    _check_lowering(circuit, formula)
    with precision(_BITS):
        walker = _Walker(weights, network, formula, circuit, guide)
        walker.check_memory()
        for block, (heads, units) in enumerate(network.blocks, start=1):
            for time, found in ((2 * block - 1, heads), (2 * block, units)):
                expected = [k for k, w in enumerate(circuit.wires) if w.time == time and w.joined is None]
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
    approximation = max(error for error, _ in results)
    rounding = max(wrong for _, wrong in results)
    return Proof(approximation, rounding, {"wires": len(circuit.wires), "pieces": walker.heads.pieces})


def _check_lowering(circuit: Circuit, formula: Formula) -> None:
    """Refuse if the wires, at a few points of the box, do not give what the formula gives.

    No part of the proof, which rests on the identities of `formulas.lowering`: a net below them.
    """
    box = formula.box
    for point in range(1, _NET + 1):
        with precision(4 * _BITS):
            shares = [arb(_share(point, k)) for k in range(box.dimension)]
            ends = [(enclose(a), enclose(b)) for a, b in zip(box.lower, box.upper, strict=True)]
            inputs = [a + share * (b - a) for share, (a, b) in zip(shares, ends, strict=True)]
            found = circuit.evaluate(inputs)
            meant = [enclose(e, dict(zip(box.variables, inputs, strict=True))) for e in formula.outputs]
        for value, wanted in zip(found, meant, strict=True):
            if value.is_finite() and wanted.is_finite() and not value.overlaps(wanted):
                raise RefutedError(
                    "the circuit made of the formula does not compute the formula: please report"
                )


def _share(point: int, axis: int) -> float:
    """A place between the ends of an axis; every third point lies on faces, now on one, now on many."""
    place = (point * (axis + 1) * 0.6180339887498949) % 1
    return float(place > 0.5) if point % 3 == 0 and (point // 3 + axis) % 4 else place


class _Walker:
    """Carries bounds from wire to wire."""

    def __init__(
        self,
        weights: Weights,
        network: CircuitWeights,
        formula: Formula,
        circuit: Circuit,
        guide: ReplayGuide,
    ) -> None:
        self.weights, self.network, self.circuit, self.guide = weights, network, circuit, guide
        self.form: FloatFormat = FORMATS[weights.dtype]
        self.ranges = WireRanges(circuit, BoxRanges(formula.box))
        self.heads = HeadProofs(weights)
        self.values: dict[int, _Value] = {}
        for k in range(formula.box.dimension):
            size = formula.box.magnitude(k)
            ends = enclose(formula.box.lower[k]).lower(), enclose(formula.box.upper[k]).upper()
            wrong = size * self.form.unit_roundoff + self.form.tiny
            rounded = Fuzz(0.0, round_up(wrong))
            self.values[k] = _Value(0, size, arb(0), wrong, ends, rounded=rounded)
        self.slot_of = {k: slot for slot, k in network.inputs.items()}
        self._norms: dict[int, tuple[Fuzz, Fuzz]] = {}

    def check_memory(self) -> None:
        """Refuse what might overflow in the memory tokens' own streams, which later keys are dense in.

        They carry no input and no 1: a head writes at most the largest value of any token there, and asks
        with a form of such wires; the next scores are that times a slope.
        """
        held: dict[int, arb] = {}
        constants = self.weights.memory.dense()
        slope, value = (
            arb(float(np.abs(constants[:, self.weights.slot(n)]).max())) for n in ("slope", "value")
        )

        def size(form: Mapping[int, fmpq]) -> arb:
            return sum((abs(arb(c)) * held.get(slot, arb(0)) for slot, c in form.items()), arb(0))

        for heads, units in self.network.blocks:
            for head in heads:
                asked = size(head.form)
                check_size(self.form, asked * (slope + 1) + asked)
            held |= {head.slot: value * (1 + arb(2) ** -10) for head in heads}
            bent = {unit.slot: size(unit.form) for unit in units}
            for reach in bent.values():
                check_size(self.form, 2 * reach)
            held |= bent

    def wire(self, wire: Wire, index: int, item: CircuitHead | Unit) -> _Value:
        """What a head or a hidden unit makes of its argument."""
        scale, held = self.guide.scales.get(index, (0, 0))
        assert wire.argument is not None
        if isinstance(item, Unit):
            scale = held = 0
        error, rounding, made, rounded = self._argument(wire.argument, item.form, scale)
        actual = self._actual(item.form)
        self.slot_of[index] = item.slot
        if isinstance(item, Unit):
            size = arb(self.ranges.values[index][1])
            meant = self.ranges.values[index]  # what it holds and what is meant may be apart
            bent = actual[0].max(arb(0)).min(arb(meant[0])), actual[1].max(arb(0)).max(arb(meant[1]))
            extra = round_up(rounding * self.form.unit_roundoff)
            fresh = Fuzz(round_up(made)), Fuzz(round_up(rounded), extra)
            return _Value(0, size, error, rounding + arb(extra), bent, *fresh)
        assert wire.function is not None
        if not math.isfinite(lipschitz(wire.function, "u", *self.ranges.arguments[index])):
            # how far the argument is off decides everything: follow it
            factor = arb(2) ** scale
            followed = self._followed(wire.argument)
            error = error.min(made + factor * followed[0])
            rounding = rounding.min(rounded + factor * followed[1])
        return self._table(wire, index, item, actual, scale, held, (error, rounding, made, rounded))

    def _actual(self, form: Mapping[int, fmpq]) -> tuple[arb, arb]:
        """Ends of a linear combination of slots, from what they really hold."""
        holders = {self.slot_of[k]: value for k, value in self.values.items()}
        low = high = arb(form.get(self.network.one, fmpq(0)))
        for slot, c in form.items():
            if slot != self.network.one:
                a, b = holders[slot].ends if c > 0 else holders[slot].ends[::-1]
                low, high = low + arb(c) * a, high + arb(c) * b
        return low.lower(), high.upper()

    def _argument(self, linear: Linear, form: Mapping[int, fmpq], scale: int) -> tuple[arb, arb, arb, arb]:
        """A linear combination of slots against 2^scale · what is meant: its error and rounding, and what
        part of each does not come from the slots."""
        (linear, norms), factor = self.circuit.written_out(linear), arb(2) ** scale
        meant = {self.slot_of[k]: (self.values[k], enclose(c) * factor) for k, c in linear.terms}
        error = abs(arb(form.get(self.network.one, fmpq(0))) - enclose(linear.constant) * factor)
        brought = sum((abs(enclose(c)) * factor * arb(self._norm(k)[0].value) for k, c in norms), arb(0))
        rounding = mixed = arb(0)
        constant = form.get(self.network.one, fmpq(0))
        sizes = [(self._roundings(constant), abs(arb(constant)))] if constant else []
        for slot in form.keys() | meant.keys():
            if slot == self.network.one:
                continue
            if slot not in meant:
                raise RefutedError(f"{self.weights.slots[slot]} is read where it should not be")
            value, wanted = meant[slot]
            c = arb(form.get(slot, fmpq(0)))
            unit = arb(2) ** -value.held
            wrong = abs(c * arb(2) ** value.held - wanted)  # the stored coefficient is not the meant one
            error += wrong * (value.size + unit * value.error)
            mixed += wrong * unit * value.rounding
            brought += abs(c) * value.error
            rounding += abs(c) * value.rounding
            sizes.append((self._roundings(form.get(slot, fmpq(0))), abs(c) * (value.reach + value.rounding)))
        adds = max(len(sizes) - 1, 0)
        rounded = sum((self.form.gamma(adds + own) * size for own, size in sizes), mixed)
        rounded += 2 * len(sizes) * self.form.tiny
        check_size(self.form, sum((size for _, size in sizes), arb(0)))
        return (error + brought).upper(), (rounding + rounded).upper(), error.upper(), rounded.upper()

    def _roundings(self, coefficient: fmpq) -> int:
        """Of a coefficient that is stored as a float, and of the product with it: none for a power of two."""
        if _is_power_of_two(coefficient.p) and _is_power_of_two(coefficient.q):
            return 0
        short = _is_power_of_two(coefficient.q) and int(coefficient.p).bit_length() <= self.form.digits
        return 1 if short else 3

    def _table(
        self,
        wire: Wire,
        index: int,
        head: CircuitHead,
        actual: tuple[arb, arb],
        scale: int,
        held: int,
        argument: tuple[arb, arb, arb, arb],
    ) -> _Value:
        error, rounding, made, rounded = argument
        assert wire.function is not None and wire.argument is not None
        low, high = self.ranges.arguments[index]
        if not (math.isfinite(low) and math.isfinite(high)):
            raise NotProvenError(
                f"the range of {wire.argument.meaning} could not be bounded", place=str(wire.argument.meaning)
            )
        shift, off = round_up(error), round_up(rounding)
        wide = _widened(_stretched((low, high), scale), shift, actual)
        reach = _outwards(wide[0] - off, wide[1] + off)
        function = _scaled(wire.function, scale, held)
        leak = self.heads.leak(head, reach)
        # the table is proven wherever a computed argument can be and the function is defined
        inside = _stretched(inside_domain(wire.function, _stretched(reach, -scale)), scale)
        change = modulus(function, "u", *wide, shift)
        if not math.isfinite(change):
            raise NotProvenError(
                f"{wire.meaning} could not be bounded: its argument is off by {shift:.2g}",
                place=str(wire.meaning),
            )
        values = self.ranges.values[index]
        size = arb(max(abs(values[0]), abs(values[1])))
        cells = self.heads.cells(wire.function, _stretched(reach, -scale))
        own = (self.heads.error(head, function, inside) + leak).upper()
        steepest = round_up(arb(cells.steepest) * arb(2) ** (held - scale))
        fresh, computed = self.heads.rounding(head, function, steepest, reach, rounding, own)
        total = (own + arb(change)).upper()
        factor = arb(2) ** held
        ends = (arb(values[0]) * factor - total).lower(), (arb(values[1]) * factor + total).upper()
        back, unit = arb(2) ** -scale, arb(2) ** -held
        return _Value(
            held,
            size,
            total,
            (computed + leak).upper(),
            ends,
            Fuzz(round_up(made * back), round_up(own * unit)),
            Fuzz(round_up(rounded * back), round_up((fresh + leak) * unit)),
            cells,
        )

    def output(self, linear: Linear, form: Mapping[int, fmpq]) -> tuple[float, float]:
        """Error and rounding of an output: the walk's, or better ones followed through parts of the box."""
        error, rounding, made, rounded = self._argument(linear, form, 0)
        followed = self._followed(linear)
        return (
            min(round_up(error), round_up(made + followed[0])),
            min(round_up(rounding), round_up(rounded + followed[1])),
        )

    def _norm(self, k: int) -> tuple[Fuzz, Fuzz]:
        """What a norm adds: the error of its directions; and to rounding, since it bends a little otherwise.

        N(â) − N(a) is |â| − |a| up to sup|∇N − ∇|·|| · |â − a|, and up to twice the error.
        """
        if k in self._norms:
            return self._norms[k]
        norm = self.circuit.wires[k].norm
        assert norm is not None
        off = moved = arb(0)
        for part in (norm.left, norm.right):
            slots, norms = self.circuit.written_out(part)
            for i, c in norms:
                off += abs(enclose(c)) * arb(self._norm(i)[0].value)
            for i, c in slots.terms:
                unit = abs(enclose(c)) * arb(2) ** -self.values[i].held
                off += unit * self.values[i].error
                moved += unit * self.values[i].rounding
        error = norm.error * (arb(self.ranges.values[k][1]) + off + moved)
        rounded = (2 * error).min(norm.bend * moved)
        self._norms[k] = Fuzz(0.0, round_up(error)), Fuzz(0.0, round_up(rounded))
        return self._norms[k]

    def _followed(self, linear: Linear) -> tuple[arb, arb]:
        """What reaches an output of the errors and roundings made at the wires, at worst."""
        made = {k: v.made for k, v in self.values.items()}
        rounded = {k: v.rounded for k, v in self.values.items()}
        for k in self.circuit.needed(linear):
            if self.circuit.wires[k].norm is not None:
                made[k], rounded[k] = self._norm(k)
        ends: dict[int, tuple[float, float]] = {}
        whole_error: dict[int, float] = {}
        whole_rounding: dict[int, float] = {}
        for k, value in self.values.items():
            unit = arb(2) ** -value.held
            low, high = (value.ends[0] - value.rounding) * unit, (value.ends[1] + value.rounding) * unit
            ends[k] = -round_up(-low), round_up(high)
            whole_error[k] = round_up(value.error * unit)
            whole_rounding[k] = round_up(value.rounding * unit)
        flow = ErrorFlow(
            self.circuit,
            {k: v.function for k, v in self.values.items() if v.function is not None},
            {k: made[k].plus(rounded[k]) for k in made},
            ends,
        )

        def both(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
            paths = flow.on(lower, upper, linear)
            return paths.carry(made, whole_error), paths.carry(rounded, whole_rounding)

        if not linear.terms:
            return arb(0), arb(0)
        inputs = [self.values[k].ends for k in range(len(self.circuit.variables))]
        lower = np.array([-round_up(-low) for low, _ in inputs])
        upper = np.array([round_up(high) for _, high in inputs])
        parts = worst_parts(lambda a, b: np.add(*both(a, b)), lower, upper)
        error, rounding = both(*parts)
        return arb(float(error.max())), arb(float(rounding.max()))


def _is_power_of_two(value: fmpz) -> bool:
    magnitude = abs(int(value))
    return magnitude & (magnitude - 1) == 0


def _widened(meant: tuple[float, float], shift: float, actual: tuple[arb, arb]) -> tuple[float, float]:
    """Where the argument can be: near what is meant, and within what its slots really hold.

    The meant range itself is kept whole, since the modulus compares with it.
    """
    low, high = meant
    if shift > 0:
        low, high = math.nextafter(low - shift, -math.inf), math.nextafter(high + shift, math.inf)
    least, most = -round_up(-actual[0]), round_up(actual[1])
    return min(max(low, least), meant[0]), max(min(high, most), meant[1])


def _outwards(low: float, high: float) -> tuple[float, float]:
    return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)


def _stretched(ends: tuple[float, float], scale: int) -> tuple[float, float]:
    """2^scale times an interval, rounded outwards where that is not exact."""
    factor = arb(2) ** scale
    return -round_up(-arb(ends[0]) * factor), round_up(arb(ends[1]) * factor)


def _scaled(function: Expr, scale: int, held: int) -> Expr:
    """2^held · f(u / 2^scale)."""
    u = ex.variable("u")
    argument = ex.mul(ex.number(Fraction(2) ** -scale), u)
    return ex.mul(ex.number(Fraction(2) ** held), substitute(function, {ARGUMENT: argument}))
