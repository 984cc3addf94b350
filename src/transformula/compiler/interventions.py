"""Interventions on a circuit: wires held at numbers of one's own choice, with a proven prediction of the outputs.

*Cutting* a wire turns its slot of the residual stream into an input. The head or unit that wrote the slot writes into a
slot that nothing reads, and the embedding puts the new input in its place; no other weight changes. The cut Transformer
computes g(x, w): the formula's circuit with the wire as a variable of its own. The kernel proves its distance to g by
the rule for circuits, over the box of the inputs and an interval of values of the wire, which may be one number or all
that the wire ever holds; the bound holds for the computed numbers of that Transformer.

Limits: a product is two squares, and a length is many ReLUs. A product of which one square is cut is a sum of what is
left; a ReLU of a length cannot be cut.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from flint import fmpq

from transformula.compiler.attempts import Built, Options
from transformula.compiler.certify import claimed, package
from transformula.compiler.constructions import CIRCUIT, CIRCUIT_FAMILY
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.evidence.range_search import WireSearch, function_range
from transformula.compiler.lower.derivation_hints import signs_of
from transformula.compiler.lower.store_circuit import store_circuit
from transformula.compiler.prepare import Prepared, proven_signs
from transformula.errors import InputError, brief
from transformula.formula.sample_target import is_tensor
from transformula.internals import Wires, written_slot
from transformula.kernel.folder.description import Certificate
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Matrix, Weights
from transformula.kernel.structures.stored_circuit import Circuit, LinearForm, Wire, single
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr
from transformula.model import Model
from transformula.runtime.input_rows import as_rows
from transformula.runtime.matrices import matrix_of


@dataclass(frozen=True, eq=False)
class Intervention:
    """A model with some wires held at given numbers; call it with the model's own inputs.

    Attributes
    ----------
    cut : Model
        The Transformer whose further inputs are the wires, with its certificate over all values in ``cut.box``.
    values : dict
        The number that each wire is held at, by its name.
    """

    cut: Model
    values: Mapping[str, float]

    @property
    def certificate(self) -> Certificate:
        """The claim: how far the outputs can be from `formula`."""
        return self.cut.certificate

    @cached_property
    def formula(self) -> tuple[str, ...]:
        """The predicted outputs, with the numbers in place of the wires."""
        assert isinstance(self.cut.formula, Formula)
        names = self.cut.box.variables[-len(self.values) :]  # a wire's own name may be that of an input
        held = zip(names, self.values.values(), strict=True)
        numbers = {ex.variable(name): ex.number(Fraction(value)) for name, value in held}
        return tuple(str(ex.substitute(expr, numbers)) for expr in self.cut.formula.outputs)

    def __call__(self, x: Any) -> Any:
        """Evaluate points of the model's box, given as to the model."""
        values = list(self.values.values())
        points = as_rows(x, self.cut.weights.inputs[: -len(values)], None)
        if is_tensor(points.rows):
            from torch import cat

            found = self.cut(cat([points.rows, points.rows.new_tensor([values] * len(points.rows))], dim=-1))
        else:
            found = self.cut(np.column_stack([points.rows, np.full((len(points.rows), len(values)), values)]))
        return found[0] if points.single else found


def patched(model: Model, values: Mapping[str, float]) -> Intervention:
    """The model with wires, named by their slots, held at numbers."""
    if not values:
        raise InputError("name at least one wire and its value, such as patch(w4=0.5)")
    numbers = {name: _number(name, value, model.weights.dtype) for name, value in values.items()}
    return Intervention(cut_model(model, {name: (number, number) for name, number in numbers.items()}), numbers)


def ablated(model: Model, block: int, head: int) -> Intervention:
    """The model with the slots that one head writes held at 0."""
    written = [name for name, wire in slot_wires(model).items() if _is_head(model, wire, block, head)]
    if not written:
        raise InputError(f"there is no head {head} in block {block}: heads and blocks are counted from 0")
    return patched(model, dict.fromkeys(written, 0.0))


def slot_wires(model: Model) -> dict[str, int]:
    """The wires of the stored circuit that have a slot of their own, by its name."""
    if model.family is not CIRCUIT_FAMILY or model.sequence is not None:
        raise InputError("wires can be set in a circuit without positions: compile with construction='circuit'")
    slots, found = model.weights.slots, dict[str, int]()
    for k, wire in enumerate(model.circuit.wires):
        if wire.place is not None:
            found[slots[written_slot(model.weights, wire)]] = k
    return found


def wire_range(model: Model, name: str) -> tuple[float, float]:
    """The values that a wire takes on the box, as far as the evidence shows."""
    wire, ends = _wire(model, name), model.wires.arguments.get(slot_wires(model)[name])
    if ends is None:
        raise InputError(f"the range of {name} is not known: verify the model first")
    return (max(ends[0], 0.0), max(ends[1], 0.0)) if wire.function is None else function_range(wire.function, *ends)


def cut_model(model: Model, ranges: Mapping[str, tuple[float, float]]) -> Model:
    """The Transformer with wires as further inputs in given ranges, proven against the circuit that is left."""
    wires = slot_wires(model)
    for name in ranges:
        _wire(model, name)
    cut = tuple(wires[name] for name in ranges)
    names = tuple(_free_name(name, model.box.variables) for name in ranges)
    circuit = _cut_circuit(model.circuit, cut, names)
    box = Box.of(f"{model.box}, " + ", ".join(_interval(n, e) for n, e in zip(names, ranges.values(), strict=True)))
    meant = Wires(circuit, Formula((), box), None, model.wires.evidence)
    formula = Formula.of([str(meant.meaning(output)) for output in circuit.outputs], box)
    built = _built(_cut_weights(model.weights, [model.circuit.wires[k] for k in cut], names), circuit, meant, formula)
    # every finite bound meets this tolerance: the claim is whatever is proven
    found = package(CIRCUIT, built, formula, Options(eps=sys.float_info.max, dtype=model.weights.dtype))
    return claimed(found, found.certificate.bound)


def _built(weights: Weights, circuit: Circuit, meant: Wires, formula: Formula) -> Built:
    """The weights, their circuit and the search for evidence."""
    ground = Prepared(formula)
    signs = proven_signs(signs_of(ground.extended.outputs, formula.box), ground)
    places = {k: wire.place for k, wire in enumerate(circuit.wires) if wire.place is not None}
    data = store_circuit(circuit, places) | ground.stored(signs)
    meanings, functions = dict[int, tuple[Expr, Fraction]](), dict[int, Expr]()
    for k, wire in enumerate(circuit.wires):
        if wire.total is not None:
            meanings[k] = meant.meanings[k], Fraction(1)
        elif wire.arguments and wire.inside is None:
            meanings[k] = meant.meaning(wire.arguments[0]), Fraction(1)
        if wire.function is not None:
            functions[k] = wire.function
    search = WireSearch(meanings, functions)
    return Built(weights, data, Finder(search, trees=signs, terms=costs.terms_of(circuit)))


def _cut_circuit(circuit: Circuit, cut: Sequence[int], names: Sequence[str]) -> Circuit:
    """The circuit in which the cut wires are inputs; they stay where they are, and nothing reads them."""
    inputs = len(circuit.variables)
    broken = {k for k, wire in enumerate(circuit.wires) if any(part in cut for part, _ in wire.parts)}
    kept = [k for k in range(inputs, len(circuit.wires)) if k not in broken]
    moved = {k: k for k in range(inputs)} | {k: inputs + len(cut) + i for i, k in enumerate(kept)}
    read = moved | {k: inputs + i for i, k in enumerate(cut)}

    def rewritten(form: LinearForm) -> LinearForm:
        parts = [(ex.number(1), LinearForm((), form.constant))]
        for k, c in form.terms:
            total = circuit.wires[k].total
            parts.append((c, rewritten(total) if k in broken and total is not None else single(read[k])))
        return LinearForm.sum(parts)

    def again(wire: Wire) -> Wire:
        return replace(
            wire,
            arguments=tuple(map(rewritten, wire.arguments)),
            total=None if wire.total is None else rewritten(wire.total),
            parts=tuple((moved[k], c) for k, c in wire.parts),
            inside=wire.inside and (rewritten(wire.inside[0]), rewritten(wire.inside[1]), wire.inside[2]),
        )

    variables = (*circuit.variables, *names)
    wires = (*(Wire() for _ in variables), *(again(circuit.wires[k]) for k in kept))
    return Circuit(variables, wires, tuple(map(rewritten, circuit.outputs)))


def _cut_weights(weights: Weights, cut: Sequence[Wire], names: Sequence[str]) -> Weights:
    """The weights with one more slot for each cut wire, which its head or unit writes, and one more input."""
    width = weights.width
    wider = weights.width + len(cut)
    dtype = weights.dtype
    slots = [written_slot(weights, wire) for wire in cut]
    new = {slot: width + i for i, slot in enumerate(slots)}

    def flat(place: int) -> int:
        token, slot = divmod(place, width)
        return token * wider + slot

    def grown(matrix: Matrix, rows: bool = False, cols: bool = False, written: bool = False) -> Matrix:
        shape = (wider if rows else matrix.shape[0], wider if cols else matrix.shape[1])
        entries = [(new.get(r, r) if written else r, c, v) for r, c, v in matrix.entries()]
        return matrix_of(shape, entries, dtype)

    def block(one: Block) -> Block:
        heads = tuple(
            replace(
                head,
                query=grown(head.query, cols=True),
                key=grown(head.key, cols=True),
                value=grown(head.value, rows=True, cols=True, written=True),
            )
            for head in one.attention.heads
        )
        layer = one.feed_forward
        units = layer and FeedForward(
            grown(layer.hidden, cols=True),
            layer.hidden_bias,
            grown(layer.output, rows=True, written=True),
            grown(layer.output_bias, rows=True),
        )
        return Block(Attention(heads, one.attention.kind, one.attention.scale), units)

    inputs = len(weights.inputs)
    embedding = [(flat(r), c, v) for r, c, v in weights.embedding.entries()]
    embedding += [(slot, inputs + i, fmpq(1)) for i, slot in enumerate(slots)]
    readout = [(r, flat(c), v) for r, c, v in weights.readout.entries()]
    return replace(
        weights,
        inputs=(*weights.inputs, *names),
        slots=(*weights.slots, *(f"cut.{weights.slots[slot]}" for slot in slots)),
        embedding=matrix_of((weights.tokens * wider, inputs + len(cut)), embedding, dtype),
        memory=grown(weights.memory, cols=True),
        blocks=tuple(map(block, weights.blocks)),
        readout=matrix_of((weights.outputs, weights.tokens * wider), readout, dtype),
    )


def _is_head(model: Model, k: int, block: int, head: int) -> bool:
    wire = model.circuit.wires[k]
    return wire.function is not None and wire.place is not None and wire.place[:2] == (block, head)


def _wire(model: Model, name: str) -> Wire:
    """The wire of a slot that may be cut."""
    wires = slot_wires(model)
    if name not in wires:
        raise InputError(f"there is no wire {brief(name)}: the wires are {', '.join(wires)}")
    wire = model.circuit.wires[wires[name]]
    if wire.inside is not None:
        raise InputError(f"{name} is one of the ReLUs that measure a length, which cannot be set alone")
    return wire


def _number(name: str, value: float, dtype: str) -> float:
    """A finite number of the format."""
    found = float(np.dtype(dtype).type(value)) if isinstance(value, Real) else math.nan
    if not math.isfinite(found):
        raise InputError(f"{name} must be set to a finite number, not {brief(value)}")
    return found


def _free_name(name: str, taken: Sequence[str]) -> str:
    """A name for a new variable: the slot's, unless the formula has it."""
    while name in taken:
        name += "_set"
    return name


def _interval(name: str, ends: tuple[float, float]) -> str:
    """An interval as text, its ends exact; one that is a single number is widened by the next one."""
    low, high = ends if ends[0] < ends[1] else (ends[0], math.nextafter(ends[1], math.inf))
    return f"{name}={Fraction(low)}..{Fraction(high)}"
