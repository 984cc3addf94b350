"""Multi-layer table Transformers read back as wires, and evaluated on the data token alone.

The data token carries the inputs, the constant 1 and one slot a wire; memory tokens carry a slope, an
offset, a value and the mark of their table. In block k a head computes softmax over its table at
u = Σ coefficient·slot and writes the result into an empty wire; the ReLU layer then writes max(u, 0) into
others. Nothing ever writes the slots that keys and values read, so the tables stay what they are.

A sequence has one data token a position. Either each carries its own inputs, and the circuit computes the
same function at every position; or each carries all inputs, and each output is read at its own position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flint import fmpq

from transformula.transformers import reference
from transformula.transformers.weights import FeedForward, FloatArray, Head, Weights

CHUNK_FLOATS = 1 << 20
_MEMORY_SLOTS = ("slope", "offset", "value")


class NotCircuitError(ValueError):
    """The weights are not a table circuit; the message names what is out of place."""


@dataclass(frozen=True, eq=False)
class CircuitHead:
    """A head: its argument as a form of slots, its table, where it writes, and its gate."""

    form: Mapping[int, fmpq]
    slopes: FloatArray
    offsets: FloatArray
    values: FloatArray
    slot: int
    foreign_reach: tuple[float, float, float]  # largest |slope|, |offset|, |value| of other tokens
    gate: float  # the weakest gate of any other token
    strongest_gate: float
    table: int


@dataclass(frozen=True)
class Unit:
    """A hidden unit: ReLU of a form of slots, written to one slot."""

    form: Mapping[int, fmpq]
    slot: int


@dataclass(frozen=True, eq=False)
class CircuitWeights:
    """What the blocks compute; ``inputs`` maps slots to inputs, ``one`` is the slot of the constant.

    If ``repeated``, inputs and readout are those of one position, and all positions do the same.
    """

    positions: int
    repeated: bool
    inputs: Mapping[int, int]
    one: int
    blocks: tuple[tuple[tuple[CircuitHead, ...], tuple[Unit, ...]], ...]
    readout: tuple[Mapping[int, fmpq], ...]


def read_circuit(weights: Weights) -> CircuitWeights:
    """Read the wires out of the weights, or raise `NotCircuitError`."""
    positions = len(weights.data_tokens)
    _require(weights.data_tokens.tolist() == list(range(positions)), "the data tokens do not lead")
    _require(all(name in weights.slots for name in (*_MEMORY_SLOTS, "one")), "a slot is missing")
    one = weights.slot("one")
    inputs, repeated = _read_embedding(weights, positions)
    constants = weights.memory.dense()
    marks = [k for k, name in enumerate(weights.slots) if name.startswith("gate")]
    fixed = {one, *inputs, *(weights.slot(n) for n in _MEMORY_SLOTS), *marks}
    data = np.zeros(weights.width)
    data[[one, weights.slot("gate0")]] = 1
    _require(bool(np.all(constants[:positions] == data)), "a data token's constant part is not (1, gate0)")
    _require(not constants[positions:, [one, *inputs]].any(), "a memory token carries an input or 1")
    _require(bool(np.all(constants[:, marks].sum(axis=1) == 1)), "a token is in no table, or in two")
    _require(bool(np.isin(constants[:, marks], (0, 1)).all()), "a mark is not 0 or 1")
    _require(not np.delete(constants, sorted(fixed), axis=1).any(), "a wire is not empty at the start")
    written: set[int] = set()
    blocks = []
    for block in weights.blocks:
        _require(block.attention.kind == "softmax" and block.attention.scale == 1, "not plain softmax")
        heads = tuple(_read_head(h, weights, constants, fixed | written) for h in block.attention.heads)
        written |= {h.slot for h in heads}
        _require(len({h.slot for h in heads}) == len(heads), "two heads write one wire")
        units = () if block.feed_forward is None else _read_units(block.feed_forward, fixed | written)
        _require(len({u.slot for u in units}) == len(units), "two hidden units write one wire")
        written |= {u.slot for u in units}
        blocks.append((heads, units))
    readout = _read_readout(weights, positions, repeated, one, written | set(inputs))
    return CircuitWeights(positions, repeated, inputs, one, tuple(blocks), readout)


def _read_embedding(weights: Weights, positions: int) -> tuple[dict[int, int], bool]:
    """Slots and inputs of the first position, and whether the others carry their own inputs there."""
    carried: list[dict[int, int]] = [{} for _ in range(positions)]
    for row, col, value in weights.embedding.entries():
        _require(value == 1, "an input is scaled")
        carried[row // weights.width][row % weights.width] = col
    _require(weights.embedding.nonzeros == sum(map(len, carried)), "a slot carries two inputs")
    first = carried[0]
    _require(sorted(first.values()) == list(range(len(first))), "the inputs are not carried once each")
    repeated = len(first) * positions == len(weights.inputs) and positions > 1
    _require(repeated or len(first) == len(weights.inputs), "a data token does not carry its inputs")
    for p, own in enumerate(carried):
        shift = p * len(first) if repeated else 0
        _require(own == {slot: col + shift for slot, col in first.items()}, "positions carry other inputs")
    return first, repeated


def _read_readout(
    weights: Weights, positions: int, repeated: bool, one: int, wires: set[int]
) -> tuple[Mapping[int, fmpq], ...]:
    """Each output as a form of slots; of the first position only, where the others do the same."""
    forms: list[dict[int, fmpq]] = [{} for _ in range(weights.outputs)]
    own = weights.outputs // positions
    for row, column, value in weights.readout.entries():
        token, slot = divmod(column, weights.width)
        _require(token < positions, "the readout uses a memory token")
        _require(slot in wires, "the readout uses a slot that is no wire")
        _require(not repeated or token == row // own, "an output is read at another position")
        _require(slot not in forms[row], "an output reads a wire at two positions")
        forms[row][slot] = value
    for row, _, value in weights.bias.entries():
        forms[row][one] = value
    if not repeated:
        return tuple(forms)
    _require(own * positions == weights.outputs, "the positions have different numbers of outputs")
    for p in range(1, positions):
        _require(forms[p * own : (p + 1) * own] == forms[:own], "the positions are read differently")
    return tuple(forms[:own])


def _require(condition: object, message: str) -> None:
    if not condition:
        raise NotCircuitError(message)


def _read_head(head: Head, weights: Weights, constants: FloatArray, used: set[int]) -> CircuitHead:
    one = weights.slot("one")
    allowed = used - {weights.slot(n) for n in _MEMORY_SLOTS}
    rows: list[dict[int, fmpq]] = [{}, {}, {}]
    _require(head.query.shape[0] == 3 and head.output is None, "a head is not a table's")
    for row, col, value in head.query.entries():
        rows[row][col] = value
    _require(rows[1] == rows[2] == {one: 1}, "an offset or gate row does not read the constant")
    _require(rows[0] and set(rows[0]) <= allowed, "a head's argument reads a slot that is no wire")
    keys: list[dict[int, fmpq]] = [{}, {}, {}]
    for row, col, value in head.key.entries():
        keys[row][col] = value
    _require(keys[0] == {weights.slot("slope"): 1}, "a key does not read the slope")
    _require(keys[1] == {weights.slot("offset"): 1}, "a key does not read the offset")
    gates = np.zeros(weights.width)
    for slot, value in keys[2].items():
        _require(weights.slots[slot].startswith("gate"), "a gate reads something else")
        gates[slot] = float(value.p) / float(value.q)
    _require(head.key.exact is None, "a key holds rationals")
    ((target, source, factor),) = head.value.entries() if head.value.nonzeros == 1 else ((-1, -1, 0),)
    _require(source == weights.slot("value") and factor == 1, "a head's value is not the table's")
    _require(target not in used and not weights.slots[target].startswith("gate"), "a head writes a used slot")
    scores = constants @ gates
    own = scores == 0
    _require(own.any() and not own[weights.data_tokens].any(), "a head has no table of its own")
    slope, offset, values = (constants[:, weights.slot(n)] for n in _MEMORY_SLOTS)
    marks = np.flatnonzero([name.startswith("gate") for name in weights.slots])
    tables = {int(marks[np.argmax(row)]) for row in constants[own][:, marks]}
    _require(len(tables) == 1, "a head reads two tables")
    reach = tuple(float(np.abs(v[~own]).max(initial=0.0)) for v in (slope, offset, values))
    return CircuitHead(
        rows[0], slope[own], offset[own], values[own], target,
        (reach[0], reach[1], reach[2]), float(scores[~own].max()), float(np.abs(scores).max()), tables.pop(),
    )  # fmt: skip


def _read_units(layer: FeedForward, used: set[int]) -> tuple[Unit, ...]:
    _require(layer.hidden_bias.nonzeros == layer.output_bias.nonzeros == 0, "a bias is not zero")
    _require(bool(np.all(layer.output.values == 1)), "a hidden unit's output is scaled")
    forms: dict[int, dict[int, fmpq]] = {}
    for unit, slot, value in layer.hidden.entries():
        _require(slot in used, "a hidden unit reads an empty slot")
        forms.setdefault(unit, {})[slot] = value
    units = []
    for slot, unit, _ in layer.output.entries():
        _require(slot not in used and unit in forms, "a hidden unit writes a used slot")
        units.append(Unit(forms.pop(unit), slot))
    _require(not forms, "a hidden unit writes nowhere")
    return tuple(units)


def run_circuit(weights: Weights, circuit: CircuitWeights, x: FloatArray) -> FloatArray:
    """Evaluate samples × inputs to samples × outputs on the data token alone."""
    x = np.asarray(x, dtype=weights.dtype)
    samples = len(x)
    x = x.reshape(-1, len(circuit.inputs))  # a row a position, where each has its own inputs
    out = np.empty((len(x), len(circuit.readout)), dtype=x.dtype)
    widest = max((len(h.slopes) for heads, _ in circuit.blocks for h in heads), default=1)
    step = max(64, CHUNK_FLOATS // (widest + weights.width))
    for start in range(0, len(x), step):
        out[start : start + step] = _run_chunk(weights, circuit, x[start : start + step])
    return out.reshape(samples, weights.outputs)


def _run_chunk(weights: Weights, circuit: CircuitWeights, x: FloatArray) -> FloatArray:
    slots = np.zeros((weights.width, len(x)), dtype=x.dtype)
    slots[circuit.one] = 1
    for slot, column in circuit.inputs.items():
        slots[slot] = x[:, column]
    for heads, units in circuit.blocks:
        results = [(head.slot, _table(head, _form(head.form, slots))) for head in heads]
        for slot, values in results:
            slots[slot] = values
        bends = [(unit.slot, np.maximum(_form(unit.form, slots), 0)) for unit in units]
        for slot, values in bends:
            slots[slot] = values
    return np.stack([_form(form, slots) for form in circuit.readout], axis=1)


def _form(form: Mapping[int, fmpq], slots: FloatArray) -> FloatArray:
    if not form:
        return np.zeros(slots.shape[1], dtype=slots.dtype)
    coefficients = np.array([int(v.p) / int(v.q) for v in form.values()], dtype=slots.dtype)
    result: FloatArray = coefficients @ slots[list(form)]
    return result


def _table(head: CircuitHead, u: FloatArray) -> FloatArray:
    scores = u[:, None] * head.slopes.astype(u.dtype) + head.offsets.astype(u.dtype)
    result: FloatArray = reference.softmax(scores) @ head.values.astype(u.dtype)
    return result
