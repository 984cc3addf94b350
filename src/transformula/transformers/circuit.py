"""Multi-layer table Transformers evaluated on the data token alone, as the kernel reads them.

The data token carries the inputs, the constant 1 and one slot a wire; memory tokens carry slopes, offsets and
values. In block k a head computes softmax over its table at u = Σ coefficient·slot and adds the result to a slot;
the ReLU layer then adds what its units make of other forms. `kernel.network` checks that the tables stay what
they are; here the same entries are put in the order in which floats are added up.

A sequence has one data token per position. Either each carries its own inputs, and the circuit computes the
same function at every position; or each carries all inputs, and each output is read at its own position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpq

from transformula.errors import ModelFileError, RefutedError
from transformula.kernel.network import read_network
from transformula.kernel.weights import FeedForward, FloatArray, Matrix, Weights
from transformula.kernel.wires import HeadTable
from transformula.transformers import reference

CHUNK_FLOATS = 1 << 20


class NotCircuitError(ModelFileError):
    """The weights are not a table circuit; the message names what is out of place."""


@dataclass(frozen=True, eq=False)
class CircuitHead:
    """A head: its argument as a form of slots, its table (one object for all that share it), where it writes."""

    form: Mapping[int, fmpq]
    table: HeadTable
    slot: int

    @property
    def slopes(self) -> FloatArray:
        """One a token."""
        return self.table.slopes[:, 0]

    @property
    def offsets(self) -> FloatArray:
        """One a token."""
        return self.table.offsets[:, 0]

    @property
    def values(self) -> FloatArray:
        """One a token."""
        return self.table.values


@dataclass(frozen=True)
class Unit:
    """A hidden unit: ReLU of a form of slots plus a bias, and the slots it is added to, with factors."""

    form: Mapping[int, fmpq]
    bias: fmpq
    writes: Mapping[int, fmpq]


@dataclass(frozen=True, eq=False)
class CircuitBlock:
    """One block: heads, hidden units, and what the feed-forward layer adds to slots beside its units."""

    heads: tuple[CircuitHead, ...]
    units: tuple[Unit, ...]
    bias: Mapping[int, fmpq]


@dataclass(frozen=True, eq=False)
class CircuitWeights:
    """What the blocks compute; ``inputs`` maps slots to inputs, ``constants`` is the data token's constant part.

    If ``repeated``, inputs, readout and bias are those of one position, and all positions do the same.
    """

    positions: int
    repeated: bool
    inputs: Mapping[int, int]
    constants: FloatArray
    blocks: tuple[CircuitBlock, ...]
    readout: tuple[Mapping[int, fmpq], ...]
    bias: tuple[fmpq, ...]


def read_circuit(weights: Weights) -> CircuitWeights:
    """Read the blocks, or raise `NotCircuitError`."""
    try:
        network = read_network(weights)
    except RefutedError as error:
        raise NotCircuitError(str(error)) from None
    tables = {wire.place: wire.table for wire in network.wires if wire.table is not None}
    constants = weights.memory.dense()[: network.positions]
    _require(bool(np.all(constants == constants[0])), "the positions of a sequence differ")
    blocks = []
    for b, block in enumerate(weights.blocks):
        heads = []
        for h, head in enumerate(block.attention.heads):
            _require(head.query.shape[0] == 3 and head.value.nonzeros == 1, "a head is not that of one table")
            heads.append(CircuitHead(_rows(head.query)[0], tables[b, h, 0], int(head.value.rows[0])))
        layer = block.feed_forward
        bias = {} if layer is None else _column(layer.output_bias)
        blocks.append(CircuitBlock(tuple(heads), () if layer is None else _units(layer), bias))
    inputs = {row: column for row, column, _ in weights.embedding.entries() if row < weights.width}
    outputs = len(network.outputs)  # those of one position, where all do the same
    readout, added = _readout(weights)[:outputs], _column(weights.bias)
    return CircuitWeights(
        network.positions,
        network.repeated,
        inputs,
        constants[0],
        tuple(blocks),
        readout,
        tuple(added.get(o, fmpq(0)) for o in range(outputs)),
    )


def _require(condition: object, message: str) -> None:
    if not condition:
        raise NotCircuitError(message)


def _units(layer: FeedForward) -> tuple[Unit, ...]:
    bias, writes = _column(layer.hidden_bias), _rows(layer.output, transposed=True)
    return tuple(Unit(form, bias.get(unit, fmpq(0)), writes[unit]) for unit, form in enumerate(_rows(layer.hidden)))


def _readout(weights: Weights) -> tuple[dict[int, fmpq], ...]:
    """Each output as a form of the slots of the token it is read at."""
    forms: list[dict[int, fmpq]] = [{} for _ in range(weights.outputs)]
    for row, column, value in weights.readout.entries():
        slot = column % weights.width
        _require(slot not in forms[row], "an output reads a slot at two positions")
        forms[row][slot] = value
    return tuple(forms)


def _rows(matrix: Matrix, transposed: bool = False) -> list[dict[int, fmpq]]:
    rows: list[dict[int, fmpq]] = [{} for _ in range(matrix.shape[int(transposed)])]
    for row, column, value in matrix.entries():
        if transposed:
            row, column = column, row
        rows[row][column] = value
    return rows


def _column(matrix: Matrix) -> dict[int, fmpq]:
    return {row: value for row, _, value in matrix.entries()}


def run_circuit(weights: Weights, circuit: CircuitWeights, x: FloatArray) -> FloatArray:
    """Evaluate samples × inputs to samples × outputs on the data token alone."""
    x = np.asarray(x, dtype=weights.dtype)
    samples = len(x)
    x = x.reshape(-1, len(circuit.inputs))  # one row per position, where each has its own inputs
    out = np.empty((len(x), len(circuit.readout)), dtype=x.dtype)
    widest = max((len(h.slopes) for block in circuit.blocks for h in block.heads), default=1)
    step = max(64, CHUNK_FLOATS // (widest + weights.width))
    for start in range(0, len(x), step):
        out[start : start + step] = _run_chunk(circuit, x[start : start + step])
    return out.reshape(samples, weights.outputs)


def _run_chunk(circuit: CircuitWeights, x: FloatArray) -> FloatArray:
    slots = np.repeat(circuit.constants.astype(x.dtype)[:, None], len(x), axis=1)
    for slot, column in circuit.inputs.items():
        slots[slot] = x[:, column]
    for block in circuit.blocks:
        results = [(head.slot, _table(head, _form(head.form, slots))) for head in block.heads]
        for slot, values in results:
            slots[slot] += values
        bends = [(unit.writes, np.maximum(_form(unit.form, slots, unit.bias), 0)) for unit in block.units]
        for writes, values in bends:
            for slot, factor in writes.items():
                slots[slot] += values if factor == 1 else _number(factor, x) * values
        for slot, added in block.bias.items():
            slots[slot] += _number(added, x)
    forms = zip(circuit.readout, circuit.bias, strict=True)
    return np.stack([_form(form, slots, bias) for form, bias in forms], axis=1)


def _form(form: Mapping[int, fmpq], slots: FloatArray, bias: fmpq | None = None) -> FloatArray:
    result: FloatArray = np.zeros(slots.shape[1], dtype=slots.dtype)
    if form:
        coefficients = np.array([_number(v, slots) for v in form.values()], dtype=slots.dtype)
        result = coefficients @ slots[list(form)]
    return result + _number(bias, slots) if bias else result


def _number(value: fmpq, like: FloatArray) -> np.floating[Any]:
    return like.dtype.type(int(value.p) / int(value.q))


def _table(head: CircuitHead, u: FloatArray) -> FloatArray:
    scores = u[:, None] * head.slopes.astype(u.dtype) + head.offsets.astype(u.dtype)
    result: FloatArray = reference.softmax(scores) @ head.values.astype(u.dtype)
    return result
