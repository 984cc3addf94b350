"""The rule for softmax models of any depth: lookup, partition and circuit.

`network` reads what the weights compute, `stored_circuit` what they are meant to compute, and `derivations` shows that
the latter is the formula. Wire k is meant to be M_k on the box and holds M_k up to an error. In order:

* *Argument.* A linear form of wires, off by what `carried_errors` says.
* *Table.* `head_proofs` bounds |T − f| wherever a computed argument can be; a moved argument changes f by its modulus
  of continuity; foreign tokens leak next to nothing. Several axes must read exact linear forms of the inputs.
* *ReLU* does not enlarge an error. The readout is one more linear form.

Rounding is carried the same way. This first walk multiplies the largest slopes, wherever they are. With the
errors it found, `error_flow` then follows the errors made at each wire to the outputs on given parts of the box.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.circuit.carried_errors import Argument, Carrier, Value
from transformula.kernel.circuit.error_flow import Fuzz
from transformula.kernel.circuit.head_proofs import HeadProofs, Leak, Question, grid_value, leak
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.enclosures.balls import float_above, float_below, round_up
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.description import Proof, add_up
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rounding.formats import FORMATS, QUERY_FACTOR, FloatFormat, check_memory
from transformula.kernel.structures.network import Network, NetworkWire, Reading, read_network, wire_form
from transformula.kernel.structures.stored_circuit import SQUARE, Circuit, CircuitReader, Wire
from transformula.kernel.syntax.boxes import Formula, formula_of_a_position

BITS = 128


class NormReading(NamedTuple):
    """The arithmetic of an executor that reads slots through a norm: its format, and what a reader rounds.

    For exports to architectures with norms (`export.norm_rounding`); no certificate is made with one.
    """

    form: FloatFormat
    reading: Reading


def prove_softmax(weights: Weights, formula: Formula, circuit: Any, evidence: Evidence, sharp: bool = False) -> Proof:
    """Prove a softmax model, or raise `RefutedError` or `NotProvenError` with the place where it fails.

    ``sharp`` takes the last block's tables as Gumaan's sharp cells instead of smooth ones.
    """
    form, network = FORMATS[weights.dtype], read_network(weights)
    if network.repeated:
        formula = formula_of_a_position(formula, network.positions)
    wires = CircuitReader(formula.box.variables).read(circuit)
    if len(wires.outputs) != len(network.outputs) or len(formula.outputs) != len(wires.outputs):
        raise RefutedError("the circuit has another number of outputs than the formula or the weights")
    with precision(BITS):
        meanings = Meanings(formula, wires, circuit, evidence, floors=True)
        check_memory(weights)
        walk = Walk(form, network, wires, meanings, evidence, sharp)
        walk.run()
        results = [walk.output(o) for o in range(len(wires.outputs))]
    approximation = add_up(float(np.max([error for error, _ in results])), meanings.facts.apart)
    return Proof(approximation, float(np.max([wrong for _, wrong in results])))


class _Reading(NamedTuple):
    """The reading of a table of one axis: its argument, the argument's rounding, error and range, and the leak.

    ``question`` is what `HeadProofs` answers about the table.
    """

    question: Question
    argument: Argument
    rounding: arb
    shift: float
    wide: tuple[float, float]
    leak: Leak


class Walk(Carrier):
    """Bounds every wire in turn."""

    def __init__(
        self,
        form: FloatFormat,
        network: Network,
        circuit: Circuit,
        meanings: Meanings,
        evidence: Evidence,
        sharp: bool,
    ) -> None:
        super().__init__(form, circuit, meanings, evidence)
        self.network, self.sharp = network, sharp
        self.heads = HeadProofs(form, evidence)
        self.index |= self._matched()
        self.found = {self.index[network.inputs + i]: wire for i, wire in enumerate(network.wires)}

    def _matched(self) -> dict[int, int]:
        """Every wire of the weights has its one place in the circuit, and the other way round."""
        held = [(wire.function is None, wire.place, k) for k, wire in enumerate(self.circuit.wires) if wire.place]
        places = {(bent, place): k for bent, place, k in held}
        found = [(wire.table is None, wire.place) for wire in self.network.wires]
        if len(places) != len(held) or len(set(found)) != len(found) or set(places) != set(found):
            raise RefutedError("the wires of the circuit are not those of the weights")
        return {self.network.inputs + i: places[key] for i, key in enumerate(found)}

    def run(self) -> None:
        """All wires, in the circuit's order."""
        for k, wire in enumerate(self.circuit.wires):
            self.ranges.add(k)
            if wire.place is not None:
                self.values[k] = self._value(k, wire, self.found[k])
        self.check_overflow(self.network.held)

    def _value(self, k: int, wire: Wire, found: NetworkWire) -> Value:
        if (wire.function is None) != (found.table is None) or len(found.arguments) != len(wire.arguments):
            raise RefutedError("a table of the circuit is a ReLU of the weights, or has other axes")
        if self._is_table(wire):
            return self._table(k, wire)
        arguments = [self.argument(a, f) for a, f in zip(wire.arguments, found.arguments, strict=True)]
        if wire.function is None:
            return self._relu(k, arguments[0])
        return grid_value(self, k, wire, found, arguments)

    def _is_table(self, wire: Wire) -> bool:
        if wire.function is None or wire.place is None or len(wire.arguments) != 1:
            return False
        return not (self.sharp and wire.place[0] == self.network.blocks - 1)

    def _relu(self, k: int, argument: Argument) -> Value:
        low, high = self.ranges.values[k]
        zero = arb(0)
        # off: meant, in exact arithmetic and computed; a length's also at what its other wires hold (`stored_circuit`)
        held = zero if k in self.meanings.wires else argument.error + argument.rounding
        if self.ranges.arguments[k][1] + held <= 0 and argument.ends[1] + argument.rounding <= 0:
            return Value(zero, zero, zero, (zero, zero), nonnegative=True)
        ends = argument.ends[0].max(zero).min(arb(low)), argument.ends[1].max(zero).max(arb(high))
        made, rounded = Fuzz(round_up(argument.made)), Fuzz(round_up(argument.rounded))
        error, rounding = argument.error, argument.rounding
        return Value(arb(high), error, rounding, ends, made, rounded, None, None, True, argument.relative)

    def _reading(self, k: int) -> _Reading:
        """The question about a table of one axis, now that the wires it reads are bounded."""
        wire, found = self.circuit.wires[k], self.found[k]
        assert wire.function is not None and found.table is not None
        argument = self.argument(wire.arguments[0], found.arguments[0])
        self.check_overflow(found.arguments, QUERY_FACTOR)
        error, rounding = argument.error, argument.rounding
        followed = self.followed(f"u{k}", wire.arguments[0])
        if followed is not None:
            error = error.min(argument.made + followed[0]).upper()
            rounding = rounding.min(argument.rounded + followed[1]).upper()
        shift, off = round_up(error), round_up(rounding)
        wide = _widened(self.ranges.arguments[k], shift, argument.ends)
        reach = math.nextafter(wide[0] - off, -math.inf), math.nextafter(wide[1] + off, math.inf)
        if argument.nonnegative:
            reach = max(reach[0], 0.0), reach[1]
        lost = leak(found.table, [max(abs(reach[0]), abs(reach[1]))], self.form)
        first = next(iter(found.arguments[0].terms), -1)
        given = 0 <= first < self.network.inputs and found.arguments[0] == wire_form(first)
        plain = given and self.network.blocks == 1
        near = argument.relative
        relative = None if near is None else (near.roundings, round_up(near.lost))
        table = self.heads.table(found.table)
        question = Question(k, table, wire.function, reach, self.ranges.meant(k), plain, relative)
        return _Reading(question, argument, rounding, shift, wide, lost)

    def _table(self, k: int, wire: Wire) -> Value:
        function, meant = wire.function, self.ranges.arguments[k]
        question, argument, rounding, shift, wide, lost = self._reading(k)
        found = self.heads.answer(question)
        inside = found.inside
        cells = found.cells
        reach = question.reach
        change = cells.modulus(max(wide[0], inside[0]), min(wide[1], inside[1]), shift)
        values = self.ranges.found(k, cells.values(np.array([meant[0]]), np.array([meant[1]])))
        if not (math.isfinite(change) and math.isfinite(values[1] - values[0])):
            raise NotProvenError(
                f"{function} could not be bounded on u = {wide[0]:.6g}..{wide[1]:.6g} with an argument off by "
                f"{shift:.2g}", place=str(function),
            )  # fmt: skip
        own, moved = (arb(found.own) + lost.real).upper(), arb(found.moved)
        fresh, computed = found.rounding(question, rounding, own + moved, self.form)
        total = (own + moved + arb(change)).upper()
        ends = (arb(values[0]) - total).lower(), (arb(values[1]) + total).upper()
        # beyond D the table is that of the nearest point of D, at both of two arguments that are compared; if D is what
        # is meant, it may have exact ends between floats
        exact = found.where.exact[0] if inside == meant else None
        edge = inside if exact is None else (float_above(exact[0]), float_below(exact[1]))
        beyond = arb(max(edge[0] - reach[0], reach[1] - edge[1], 0.0)) * (1 + self.form.unit_roundoff)
        off, blur = argument.made + beyond, argument.rounded + 2 * beyond
        if function == SQUARE:  # `error_flow` says why
            near = argument.error + argument.rounding
            own, fresh = own + off * argument.error, fresh + 2 * off * argument.rounding + blur * near
        fresh, computed = fresh + lost.computed, (computed + lost.computed).upper()
        made, rounded = Fuzz(round_up(off), round_up(own + moved)), Fuzz(round_up(blur), round_up(fresh))
        return Value(_size(values), total, computed, ends, made, rounded, cells, reach)

    def output(self, number: int) -> tuple[float, float]:
        """Error and rounding of an output: the walk's, or better ones followed through parts of the box."""
        linear = self.circuit.outputs[number]
        argument = self.argument(linear, self.network.outputs[number])
        followed = self.followed(f"o{number}", linear)
        if followed is None:
            return round_up(argument.error), round_up(argument.rounding)
        error = argument.error.min(argument.made + followed[0])
        return round_up(error), round_up(argument.rounding.min(argument.rounded + followed[1]))


def _size(ends: tuple[float, float]) -> arb:
    return arb(max(abs(ends[0]), abs(ends[1])))


def _widened(meant: tuple[float, float], shift: float, actual: tuple[arb, arb]) -> tuple[float, float]:
    """The interval of the argument: near what is meant, and within what its wires really hold.

    The meant range itself is kept whole, since the modulus compares with it.
    """
    low, high = meant
    if shift > 0:
        low, high = math.nextafter(low - shift, -math.inf), math.nextafter(high + shift, math.inf)
    least, most = -round_up(-actual[0]), round_up(actual[1])
    return min(max(low, least), meant[0]), max(min(high, most), meant[1])
