"""From weights to a program: Fang's blocks as sums of powers, softmax models slot by slot.

`kernel.structures.network` checks that the weights are a table Transformer and yields the tables. Here every slot of
every data token is followed through the blocks as a *content*: a constant, or the number of a node that computes it.
Equal nodes are one node, so tables, arguments and units that heads or positions share are computed once, and nodes
that no output reads are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import fmpq

from transformula.kernel.folder.weights import Block, Matrix, Weights
from transformula.kernel.structures.network import read_network
from transformula.kernel.structures.ridge_blocks import Ridge
from transformula.runtime.program.nodes import Content, Nodes
from transformula.runtime.program.program_steps import ONE, AffineStep, Powers, Program
from transformula.runtime.program.score_bounds import Interval


def read_tables(weights: Weights, box: tuple[Interval, ...] | None = None) -> Program:
    """The program of a softmax model of any depth; raises `RefutedError` for weights of another layout.

    ``box`` is where the inputs are meant to lie. Without it every softmax is shifted by its largest score.
    """
    network = read_network(weights)
    held = {wire.place: wire.table for wire in network.wires if wire.table is not None}
    positions = network.positions if network.repeated else 1
    if box is not None:  # of one position: the smallest that contains the boxes of all positions
        parts = [box[k :: network.inputs] for k in range(network.inputs)]
        box = tuple((min(low for low, _ in part), max(high for _, high in part)) for part in parts)
    nodes = Nodes(network.inputs, box, weights.dtype)
    streams = _streams(weights, 1 if network.repeated else network.positions)
    for b, block in enumerate(weights.blocks):
        written: dict[int, list[Content]] = {}
        for h, head in enumerate(block.attention.heads):
            asked = _rows(head.query)[:-1:2]
            arguments = [nodes.linear(_terms(row, streams[0]), 0.0, (b, "arguments")) for row in asked]
            for column, slot in enumerate(head.value.rows.tolist()):
                table = held[b, h, column]
                read = nodes.table(arguments, table.slopes, table.offsets, table.values, (b, "tables"))
                written.setdefault(slot, []).append(read)
        for stream in streams:
            for slot, added in written.items():
                stream[slot] = nodes.linear([(c, 1.0) for c in (stream[slot], *added)], 0.0, (b, "attended"))
            _feed_forward(nodes, b, block, stream)
    return nodes.program(_outputs(weights, nodes, streams, len(network.outputs)), positions)


def _streams(weights: Weights, count: int) -> list[list[Content]]:
    """The slots of the data tokens as they come in."""
    streams: list[list[Content]] = [list(map(float, row)) for row in weights.memory.dense()[:count]]
    for row, column in zip(weights.embedding.rows.tolist(), weights.embedding.cols.tolist(), strict=True):
        token, slot = divmod(row, weights.width)
        if token < count:
            streams[token][slot] = column
    return streams


def _feed_forward(nodes: Nodes, b: int, block: Block, stream: list[Content]) -> None:
    """The feed-forward layer at one position, in place."""
    layer = block.feed_forward
    if layer is None:
        return
    inside, added = layer.hidden_bias.dense()[:, 0].tolist(), layer.output_bias.dense()[:, 0].tolist()
    units = [
        nodes.relu(_terms(row, stream), bias, (b, "units"))
        for row, bias in zip(_rows(layer.hidden), inside, strict=True)
    ]
    for slot, row in enumerate(_rows(layer.output)):
        if row or added[slot]:
            terms = [(stream[slot], 1.0), *_terms(row, units)]
            stream[slot] = nodes.linear(terms, added[slot], (b, "added"))


def _outputs(weights: Weights, nodes: Nodes, streams: list[list[Content]], count: int) -> list[Content]:
    flat = [content for stream in streams for content in stream]
    bias, rows = weights.bias.dense()[:, 0].tolist(), _rows(weights.readout)
    last = len(weights.blocks)
    return [nodes.linear(_terms(rows[o], flat), bias[o], (last, "outputs")) for o in range(count)]


def _rows(matrix: Matrix) -> list[list[tuple[int, float]]]:
    rows: list[list[tuple[int, float]]] = [[] for _ in range(matrix.shape[0])]
    for row, column, value in zip(matrix.rows.tolist(), matrix.cols.tolist(), matrix.values.tolist(), strict=True):
        rows[row].append((column, value))
    return rows


def _terms(row: list[tuple[int, float]], contents: list[Content]) -> list[tuple[Content, float]]:
    return [(contents[column], value) for column, value in row]


def ridge_program(ridge: Ridge) -> Program:
    """Σ_k Σ_s β_{k,s} (ξ_k·x)^s + b, tokens sorted by their powers and rationals rounded."""
    dtype, inputs = ridge.weights.dtype, len(ridge.weights.inputs)
    top = np.zeros(len(ridge.directions), dtype=int)
    low = np.full(len(ridge.directions), ridge.degree)
    for (_, token), powers in ridge.terms.items():
        top[token] = max(top[token], *powers)
        low[token] = min(low[token], *powers)
    order = np.lexsort((low, -top))[: int((top > 0).sum())]  # tokens that nobody reads come last
    place = {int(token): k for k, token in enumerate(order)}
    coefficients = np.zeros((ridge.degree + 1, ridge.outputs, len(order)), dtype=dtype)
    for (output, token), powers in ridge.terms.items():
        for s, value in powers.items():
            coefficients[s, output, place[token]] = _as_float(value, dtype)
    directions = np.zeros((len(order), inputs), dtype=dtype)
    for token, k in place.items():
        for column, value in ridge.directions[token].items():
            directions[k, column] = _as_float(value, dtype)
    active = tuple(int((top >= s).sum()) for s in range(ridge.degree + 1))
    first = 1 + inputs
    sums = np.arange(first, first + ridge.outputs, dtype=np.int64)
    bias = np.array([_as_float(b, dtype) for b in ridge.bias], dtype=dtype)
    raised = Powers(np.arange(1, first, dtype=np.int64), directions, coefficients, active)
    if not bias.any():
        return Program(inputs, 1, (raised,), sums, dtype)
    added = AffineStep(np.array([ONE, *sums]), np.concatenate([bias[:, None], np.eye(len(sums), dtype=dtype)], axis=1))
    return Program(inputs, 1, (raised, added), sums + ridge.outputs, dtype)


def _as_float(value: fmpq, dtype: str) -> Any:
    return np.dtype(dtype).type(int(value.p) / int(value.q))
