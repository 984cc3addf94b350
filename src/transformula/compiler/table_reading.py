"""Softmax Transformers read back as tables, head by head, for drawings, reports and exports.

Data tokens carry the inputs, a constant 1 and one slot a wire; memory tokens carry slopes, offsets and values.
`kernel.structures.network` checks the layout and reads a head as

    score_j(x) = Σ_axes (slope_j · form·x + offset_j) + gate_j,     gate_j = 0 or very negative

so the head reads its own table T(x) = Σ_j softmax_j(score) value_j. Tokens behind the gate leak in with weight e^gate,
which the proof bounds and floats do not hold. If the (slope, offset) pairs of the axes form a full grid, softmax
factorises over the axes and costs Σ M_k exponentials instead of Π M_k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from flint import fmpq

from transformula.errors import ModelFileError, RefutedError
from transformula.kernel.folder.weights import Block, FloatArray, Weights
from transformula.kernel.structures.network import ONE, HeadTable, Network, column_of, read_network, rows_of
from transformula.kernel.tables.table_error import Lattice, lattice

#: Σ coefficient · slot or input, by index.
SlotForm = Mapping[int, fmpq]


@dataclass(frozen=True, eq=False)
class TableHead:
    """One head's table.

    ``forms`` has one form an axis: of inputs in a one-layer model, of slots in a circuit. ``columns`` has a table for
    each of the written ``slots``, alike in all but their values.
    """

    forms: tuple[SlotForm, ...]
    columns: tuple[HeadTable, ...]
    slots: tuple[int, ...]

    @property
    def axes(self) -> int:
        """Number of linear forms that the table depends on."""
        return len(self.forms)

    @property
    def tokens(self) -> int:
        """Number of memory tokens of the table."""
        return len(self.slopes)

    @property
    def slopes(self) -> FloatArray:
        """Memory tokens × axes."""
        return self.columns[0].slopes

    @property
    def offsets(self) -> FloatArray:
        """Memory tokens × axes."""
        return self.columns[0].offsets

    @cached_property
    def values(self) -> FloatArray:
        """Memory tokens × written slots."""
        return np.stack([column.values for column in self.columns], axis=1)

    @cached_property
    def grid(self) -> Lattice | None:
        """The tokens as a tensor grid, if they are one (those of one axis always are)."""
        return lattice(self.slopes, self.offsets)


@dataclass(frozen=True, eq=False)
class CircuitBlock:
    """One block: heads, the slots that each hidden unit is added to (with factors), and the output bias by slot."""

    heads: tuple[TableHead, ...]
    units: tuple[SlotForm, ...]
    bias: SlotForm


@dataclass(frozen=True, eq=False)
class CircuitWeights:
    """The blocks, and each output as a form of slots plus a bias; of one position, if all positions do the same."""

    blocks: tuple[CircuitBlock, ...]
    readout: tuple[SlotForm, ...]
    bias: tuple[fmpq, ...]


def read_heads(weights: Weights) -> tuple[TableHead, ...]:
    """The heads of a one-layer model with their forms of the inputs, or raise `ModelFileError`."""
    if len(weights.blocks) != 1:
        raise ModelFileError(f"there are {len(weights.blocks)} layers, not one")
    try:
        network = read_network(weights)
    except RefutedError as error:
        raise ModelFileError(str(error)) from None
    if network.repeated:
        raise ModelFileError("every position carries its own inputs")
    asked = {wire.place[1]: wire.arguments for wire in network.wires if wire.table is not None}
    found = []
    for h, head in enumerate(_block_heads(weights, network, 0)):
        forms = tuple({k: term.coefficient for k, term in form.terms.items()} for form in asked[h])
        if not all(form and ONE not in form for form in forms):
            raise ModelFileError("an axis reads no inputs, or a constant")
        found.append(replace(head, forms=forms))
    return tuple(found)


def read_layers(weights: Weights) -> CircuitWeights:
    """The blocks of a table Transformer of any depth, or raise `ModelFileError`."""
    try:
        network = read_network(weights)
    except RefutedError as error:
        raise ModelFileError(str(error)) from None
    blocks = tuple(_block(block, _block_heads(weights, network, b)) for b, block in enumerate(weights.blocks))
    readout = _readout(weights)[: len(network.outputs)]
    added = column_of(weights.bias)
    return CircuitWeights(blocks, readout, tuple(added.get(o, fmpq(0)) for o in range(len(readout))))


def read_circuit(weights: Weights) -> CircuitWeights:
    """The blocks of a circuit, in which a head reads one table of one argument, or raise `ModelFileError`."""
    found = read_layers(weights)
    if any(head.axes != 1 or len(head.slots) != 1 for block in found.blocks for head in block.heads):
        raise ModelFileError("a head is not that of one table")
    return found


def _block_heads(weights: Weights, network: Network, b: int) -> tuple[TableHead, ...]:
    """The heads of a block, with their forms of slots."""
    held = {wire.place: wire.table for wire in network.wires if wire.table is not None}
    found = []
    for h, head in enumerate(weights.blocks[b].attention.heads):
        forms = tuple(dict(row) for row in rows_of(head.query)[:-1:2])
        slots = tuple(head.value.rows.tolist())
        first, *others = (held[b, h, column] for column in range(len(slots)))
        # slopes, offsets and gates are the same in all columns: keep them once
        more = (replace(first, values=t.values, foreign_values=t.foreign_values) for t in others)
        found.append(TableHead(forms, (first, *more), slots))
    return tuple(found)


def _block(block: Block, heads: tuple[TableHead, ...]) -> CircuitBlock:
    layer = block.feed_forward
    if layer is None:
        return CircuitBlock(heads, (), {})
    writes: list[dict[int, fmpq]] = [{} for _ in range(layer.output.shape[1])]
    for slot, unit, factor in layer.output.entries():
        writes[unit][slot] = factor
    return CircuitBlock(heads, tuple(writes), column_of(layer.output_bias))


def _readout(weights: Weights) -> tuple[SlotForm, ...]:
    """Each output as a form of the slots of the token it is read at."""
    forms: list[dict[int, fmpq]] = [{} for _ in range(weights.outputs)]
    for row, column, value in weights.readout.entries():
        slot = column % weights.width
        if slot in forms[row]:
            raise ModelFileError("an output reads a slot at two positions")
        forms[row][slot] = value
    return tuple(forms)
