"""Multi-layer table Transformers on the data token alone, as the kernel reads them: what is shown of them.

The data token carries the inputs, the constant 1 and one slot a wire; memory tokens carry slopes, offsets and
values. In block k a head computes softmax over its table at u = Σ coefficient·slot and adds the result to a slot;
the ReLU layer then adds what its units make of other forms. `kernel.network` checks that the tables stay what
they are; here the same entries are put in order, block by block.

A sequence has one data token per position. Either each carries its own inputs, and the circuit computes the
same function at every position; or each carries all inputs, and each output is read at its own position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flint import fmpq

from transformula.errors import ModelFileError, RefutedError
from transformula.kernel.folder.weights import FeedForward, FloatArray, Matrix, Weights
from transformula.kernel.structures.network import read_network
from transformula.kernel.structures.network_wires import HeadTable


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
