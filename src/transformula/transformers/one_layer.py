"""One-layer softmax Transformers read back as tables, and evaluated without the n × n scores.

The layout (built by `constructions.one_layer`, checked here entry by entry): every data token carries
all inputs, a constant 1 and its position; a memory token carries slopes, offsets and values. A head's
query rows come in pairs, (a linear form of the inputs, 1) for each axis, and a last row that gates ::

    score_j(x) = Σ_axes (slope_j · form·x + offset_j) + gate_j,     gate_j = 0 or very negative

so head h reads its own table T_h(x) = Σ_j softmax_j(score) value_j, and tokens behind the gate leak in
with weight e^gate, which the proof bounds. If the (slope, offset) pairs of the axes form a full grid,
softmax factorises over the axes and costs Σ M_k exponentials instead of Π M_k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq

from transformula.transformers import reference
from transformula.transformers.weights import FloatArray, Head, IntArray, Matrix, Weights

#: Scores computed at a time when a table is evaluated.
CHUNK_FLOATS = 1 << 20


class NotOneLayerError(ValueError):
    """The weights are not a one-layer table Transformer; the message names what is out of place."""


@dataclass(frozen=True, eq=False)
class TableHead:
    """One head's table.

    ``forms[k]`` maps input index to coefficient; ``slopes`` and ``offsets`` are memory tokens × axes,
    ``values`` is memory tokens × written slots, ``slots`` names where they are written. ``foreign_gates``
    are the gate values of all other tokens, whose slopes and offsets are ``foreign``.
    """

    forms: tuple[Mapping[int, fmpq], ...]
    slopes: FloatArray
    offsets: FloatArray
    values: FloatArray
    slots: tuple[int, ...]
    foreign_gates: FloatArray
    foreign_slopes: FloatArray
    foreign_offsets: FloatArray
    foreign_values: FloatArray

    @property
    def axes(self) -> int:
        """How many linear forms the table depends on."""
        return len(self.forms)

    @property
    def tokens(self) -> int:
        """How many memory tokens the table has."""
        return len(self.slopes)

    @cached_property
    def grid(self) -> Grid | None:
        """The table as a tensor grid, if it is one (a table of one axis always is)."""
        return Grid.of(self)


@dataclass(frozen=True, eq=False)
class Grid:
    """Axis k has slopes[k] and offsets[k]; values has one dimension for each axis, slots last."""

    slopes: tuple[FloatArray, ...]
    offsets: tuple[FloatArray, ...]
    values: FloatArray

    @classmethod
    def of(cls, head: TableHead) -> Grid | None:
        """Find the product structure, or None."""
        pairs = [
            np.unique(np.stack([head.slopes[:, k], head.offsets[:, k]]), axis=1, return_inverse=True)
            for k in range(head.axes)
        ]
        shape = tuple(p[0].shape[1] for p in pairs)
        if np.prod(shape, dtype=float) != head.tokens:
            return None
        place = np.ravel_multi_index(tuple(p[1].ravel() for p in pairs), shape)
        if len(np.unique(place)) != head.tokens:
            return None
        values = np.empty_like(head.values)
        values[place] = head.values
        return cls(
            tuple(p[0][0] for p in pairs),
            tuple(p[0][1] for p in pairs),
            values.reshape(*shape, head.values.shape[1]),
        )


def read_heads(weights: Weights) -> tuple[TableHead, ...]:
    """Read every head's table out of the weights, or raise `NotOneLayerError`."""
    _require(len(weights.blocks) == 1, f"there are {len(weights.blocks)} layers, not one")
    attention = weights.blocks[0].attention
    _require(attention.kind == "softmax" and attention.scale == 1, "the attention is not plain softmax")
    _check_constants(weights)
    layout = _Layout.of(weights)
    return tuple(_read_head(head, layout, weights) for head in attention.heads)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise NotOneLayerError(message)


def _check_constants(weights: Weights) -> None:
    """What is read as floats must be floats: no rationals may stand beside them. Memory is not read out."""
    heads = weights.blocks[0].attention.heads
    read = np.unique(weights.readout.cols // weights.width)
    _require(bool(np.isin(read, weights.data_tokens).all()), "the readout uses a memory token")
    plain = [weights.embedding, weights.memory, *(m for head in heads for m in (head.key, head.value))]
    _require(all(m.exact is None for m in plain), "a constant holds rationals beside its floats")


@dataclass(frozen=True)
class _Layout:
    """Which slot carries which input, which carries the constant 1, and which tokens are memory."""

    input_slots: Mapping[int, int]
    one: int
    data: IntArray
    memory: IntArray
    constants: FloatArray

    @classmethod
    def of(cls, weights: Weights) -> _Layout:
        data = weights.data_tokens
        memory = np.setdiff1d(np.arange(weights.tokens, dtype=np.int32), data)
        constants = weights.memory.dense()
        input_slots: dict[int, int] = {}
        seen = set()
        for row, column, value in weights.embedding.entries():
            token, slot = divmod(row, weights.width)
            _require(value == 1, "an input is scaled by the embedding")
            _require(input_slots.setdefault(slot, column) == column, "data tokens disagree on slots")
            seen.add((token, slot))
        full = len(seen) == len(data) * len(input_slots) == len(data) * len(weights.inputs)
        _require(full, "a data token does not carry every input once")
        _require(not constants[:, list(input_slots)].any(), "an input slot is not empty")
        _require("one" in weights.slots, "there is no slot for the constant 1")
        one = weights.slot("one")
        ones = constants[:, one]
        _require(bool(np.all(ones[data] == 1) and not ones[memory].any()), "the constant 1 is not 1")
        return cls(input_slots, one, data, memory, constants)


def _read_head(head: Head, layout: _Layout, weights: Weights) -> TableHead:
    rows = head.query.shape[0]
    _require(rows % 2 == 1, "a head's query has an even number of rows")
    forms = tuple(_form(head.query, 2 * k, layout) for k in range(rows // 2))
    for k in range(1, rows, 2):
        _require(_is_constant_row(head.query, k, layout), "an offset row does not read the constant 1")
    _require(_is_constant_row(head.query, rows - 1, layout), "the gate does not read the constant 1")
    _require(not set(head.key.cols.tolist()) & set(layout.input_slots), "a key depends on the inputs")
    _require(head.output is None and bool(np.all(head.value.values == 1)), "a value is scaled")
    _require(not set(head.value.cols.tolist()) & set(layout.input_slots), "a value depends on the inputs")
    for k in range(rows - 1):
        entries = head.key.values[head.key.rows == k]
        _require(len(entries) == 1 and entries[0] == 1, "a key row does not read exactly one slot")
    keys = layout.constants @ head.key.dense().T  # gates: one non-zero term a token, so exact
    gates = keys[:, -1]
    _require(_gates_are_exact(head, layout), "a token passes two gates")
    own = np.zeros(weights.tokens, dtype=bool)
    own[layout.memory] = gates[layout.memory] == 0
    _require(bool(own.any()), "a head has no table")
    _require(bool(np.all(keys[layout.data][:, :-1] == 0)), "a data token has a slope or an offset")
    order = np.argsort(head.value.rows)
    slots = tuple(head.value.rows[order].tolist())
    _require(len(set(slots)) == len(slots), "a head writes one slot twice")
    written = layout.constants[:, head.value.cols[order]]
    _require(not layout.constants[np.ix_(layout.data, list(slots))].any(), "an output slot is not empty")
    return TableHead(
        forms=forms,
        slopes=keys[own][:, 0:-1:2],
        offsets=keys[own][:, 1:-1:2],
        values=written[own],
        slots=slots,
        foreign_gates=gates[~own],
        foreign_slopes=keys[~own][:, 0:-1:2],
        foreign_offsets=keys[~own][:, 1:-1:2],
        foreign_values=written[~own],
    )


def _form(query: Matrix, row: int, layout: _Layout) -> Mapping[int, fmpq]:
    form = {c: v for r, c, v in query.entries() if r == row}
    _require(bool(form) and set(form) <= set(layout.input_slots), "an axis row reads no inputs")
    return {layout.input_slots[c]: v for c, v in form.items()}


def _is_constant_row(query: Matrix, row: int, layout: _Layout) -> bool:
    chosen = query.rows == row
    return bool(chosen.sum() == 1 and query.cols[chosen][0] == layout.one and query.values[chosen][0] == 1)


def _gates_are_exact(head: Head, layout: _Layout) -> bool:
    """Each token carries at most one gate slot, with value 1, so its gate is a stored number."""
    last = head.key.rows == head.key.shape[0] - 1
    marks = layout.constants[:, head.key.cols[last]]
    return bool(np.all((marks == 0) | (marks == 1)) and np.all(marks.sum(axis=1) <= 1))


def run_one_layer(weights: Weights, heads: Sequence[TableHead], x: FloatArray) -> FloatArray:
    """Evaluate samples × inputs to samples × outputs: tables, feed-forward layer, readout."""
    x = np.asarray(x, dtype=weights.dtype)
    out = np.empty((len(x), weights.outputs), dtype=x.dtype)
    widest = max((_cost(head) for head in heads), default=1)
    step = max(16, CHUNK_FLOATS // (widest + len(weights.data_tokens) * weights.width))
    compact = _keep_data_tokens(weights)
    for start in range(0, len(x), step):
        chunk = x[start : start + step]
        stream = reference.embed(compact, chunk)
        for head in heads:
            stream[:, :, list(head.slots)] += read_table(head, chunk)[:, None, :]
        layer = weights.blocks[0].feed_forward
        if layer is not None:
            stream = stream + reference.feed_forward(layer, stream)
        out[start : start + step] = reference.read_out(compact, stream)
    return out


def _cost(head: TableHead) -> int:
    if head.grid is None:
        return head.tokens
    shape: tuple[int, ...] = head.grid.values.shape[:-1]
    return max(int(np.prod(shape)) // shape[0], *shape)


def _keep_data_tokens(weights: Weights) -> Weights:
    """The same model without its memory tokens, for everything that happens outside attention."""
    data, width = weights.data_tokens, weights.width
    place = {int(token): k for k, token in enumerate(data)}

    def renumber(index: IntArray) -> IntArray:
        tokens, slots = np.divmod(index, width)
        return np.array([place[int(t)] for t in tokens], dtype=np.int32) * width + slots

    inputs, outputs = len(weights.inputs), weights.outputs
    e, r = weights.embedding, weights.readout
    return Weights(
        inputs=weights.inputs,
        slots=weights.slots,
        tokens=len(data),
        embedding=Matrix((len(data) * width, inputs), renumber(e.rows), e.cols, e.values),
        memory=Matrix.from_dense(weights.memory.dense()[data], weights.dtype),
        blocks=(),
        readout=Matrix((outputs, len(data) * width), r.rows, renumber(r.cols), r.values),
        bias=weights.bias,
        dtype=weights.dtype,
    )


def read_table(head: TableHead, x: FloatArray) -> FloatArray:
    """T(x): samples × written slots. Grids by products of one-axis softmaxes."""
    arguments = [_argument(form, x) for form in head.forms]
    if head.grid is None:
        scores = np.stack(arguments, axis=1) @ head.slopes.T.astype(x.dtype)
        scores += head.offsets.sum(axis=1).astype(x.dtype)
        scattered: FloatArray = reference.softmax(scores) @ head.values.astype(x.dtype)
        return scattered
    grid = head.grid
    values = grid.values.astype(x.dtype)
    weights = [
        reference.softmax(u[:, None] * a.astype(x.dtype) + b.astype(x.dtype))
        for u, a, b in zip(arguments, grid.slopes, grid.offsets, strict=True)
    ]
    result = np.tensordot(weights[0], values, axes=(1, 0))  # samples × other axes × slots
    for w in weights[1:]:
        result = np.einsum("sj,sj...->s...", w, result)
    return result


def _argument(form: Mapping[int, fmpq], x: FloatArray) -> FloatArray:
    coefficients = np.array([float(v.p) / float(v.q) for v in form.values()], dtype=x.dtype)
    argument: FloatArray = x[:, list(form)] @ coefficients
    return argument
