r"""How large a model's residual stream may become, and how it is written for LayerNorm.

LayerNorm subtracts a mean that is rounded beside the *largest* slot, from all of them (`norm_rounding`). So a stream
with numbers of many sizes is written differently:

* *Scales.* Slot i holds d_i·z_i, d_i a power of two: whatever writes it is multiplied by d_i, and whatever reads it
  divided, both exactly. d_i is 1 unless slot i is far from 1 (`stream_scales`).
* *Bands.* Tables share slots for slopes, offsets and values. Where their sizes are far apart, each size has a slot of
  its own, which is 0 at tokens of other tables (`banded`). These weights are another Transformer: the kernel's rule
  proves it like the first, as one of the same circuit.
* *Gates.* A head's gate is a sum of several marks of a token, at most one of which is not 0, times large numbers. It
  gets a slot of its own that holds gate/2^k, at most 1, and is read with 2^k. At the head's own tokens this slot is 0,
  like the slot *zero*: both are read as the same number, whose products with ±2^k are exact, so that 0 is read.
* *Sink.* In a stock layer memory tokens ask, too, and what they are told would be added to their streams. One more
  memory token (`with_sink`) is foreign to every head, as a data token is, and its values are 0. Memory tokens attend
  to it alone: their slot *memory* is 1, its slot *sink* is 1, both are 0 elsewhere, and a row of queries and keys
  multiplies them with 2^c (`Sizes.sink`). Data tokens read exactly 0 there, as at their gates. So all other weights of
  a memory token are exp of less than −`_SILENT`: nothing but what underflows is added, at most 3η a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from flint import arb

from transformula.errors import ExportError
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.folder.weights import Attention, Block, FloatArray, Head, IntArray, Matrix, Weights
from transformula.kernel.rounding.formats import FORMATS, QUERY_FACTOR
from transformula.kernel.structures.stored_circuit import Place
from transformula.kernel.syntax.boxes import Box
from transformula.runtime.matrices import dense_matrix

#: Possible gains of the norms, whose squares are the ε of the config; the larger one only in float64.
GAINS = (2.0**50, 2.0**100)
#: Slots that LayerNorm needs beside those of the weights: zero, balance, memory and sink.
CENTRE_SLOTS = 4
#: By how much a score is below another, if its exponential is to underflow in any format.
_SILENT = 1000.0
#: Slots of sizes up to this, and down to its inverse, are not scaled; nor are tables that near split into bands.
_NEAR = 2.0**4


def gate_slots(weights: Weights) -> dict[bytes, FloatArray]:
    """The gates of all heads as they are held, at most 1, one number a token; by the bytes of `gate_of`."""
    constants = weights.memory.dense(np.float64)
    gates = {gate.tobytes(): gate for gate in (gate_of(head, constants) for head in heads_of(weights))}
    return {key: gate / gate_power(gate) for key, gate in gates.items()}


def gate_of(head: Head, constants: FloatArray) -> FloatArray:
    """The gate of a head, its key's last row, as one number a token."""
    gate: FloatArray = constants @ head.key.dense(np.float64)[-1] + 0.0
    return gate


def gate_power(gate: FloatArray) -> float:
    """2^k, at least the largest size of a gate."""
    return 2.0 ** math.frexp(float(np.abs(gate).max(initial=0.0)))[1]


def with_sink(weights: Weights) -> Weights:
    """The weights with one more memory token, foreign to every head."""
    constants = weights.memory.dense()
    gates = ((head.key, head.key.shape[0] - 1) for head in heads_of(weights))
    marks = sorted({int(c) for key, last in gates for c in key.cols[key.rows == last]})
    sink = np.zeros((1, weights.width), constants.dtype)
    sink[0, marks] = constants[0, marks]
    tokens, embedding, readout = weights.tokens + 1, weights.embedding, weights.readout
    return replace(
        weights,
        tokens=tokens,
        embedding=replace(embedding, shape=(tokens * weights.width, embedding.shape[1])),
        memory=dense_matrix(np.concatenate([constants, sink]), weights.dtype),
        readout=replace(readout, shape=(weights.outputs, tokens * weights.width)),
    )


def banded(weights: Weights) -> Weights:
    """The weights with further slots for slopes, offsets and values whose sizes are far from those of other tables."""
    constants, slots = weights.memory.dense(np.float64), list(weights.slots)
    own = {id(head): _own(head, constants, len(weights.data_tokens)) for head in heads_of(weights)}
    sizes = {(id(head), column): float(np.abs(constants[own[id(head)], column]).max(initial=0.0))
             for head in heads_of(weights) for column in _columns(head)}  # fmt: skip
    bands, places, extra = dict[int, tuple[float, int]](), dict[tuple[int, int], int](), list[FloatArray]()
    for (head, column), size in sorted(sizes.items(), key=lambda one: -one[1]):
        top, slot = bands.setdefault(column, (size, column))
        if 0 < size * _NEAR**2 < top:
            slot = len(slots)
            bands[column] = size, slot
            slots.append(f"{weights.slots[column]} to {size:.2g}")
            extra.append(np.zeros(len(constants)))
        if slot != column:
            tokens = own[head]
            extra[slot - weights.width][tokens] = constants[tokens, column]
        places[head, column] = slot
    if not extra:
        return weights
    return _widened(weights, slots, np.column_stack([constants, *extra]), places)


def _columns(head: Head) -> set[int]:
    """The slots of slopes, offsets and values that a head reads."""
    return {*head.key.cols[head.key.rows < head.key.shape[0] - 1].tolist(), *head.value.cols.tolist()}


def _own(head: Head, constants: FloatArray, data: int) -> IntArray:
    """The tokens of a head's tables: memory tokens that pass its gate."""
    return np.flatnonzero(gate_of(head, constants)[data:] == 0).astype(np.int32) + data


def _widened(
    weights: Weights, slots: list[str], constants: FloatArray, places: Mapping[tuple[int, int], int]
) -> Weights:
    """The weights with more slots, from which heads read what ``places`` says: by head and old slot."""
    width, old = len(slots), weights.width

    def wide(matrix: Matrix, rows: bool = False) -> Matrix:
        return replace(matrix, shape=(width if rows else matrix.shape[0], matrix.shape[1] if rows else width))

    def read(matrix: Matrix, head: Head, rows: int) -> Matrix:
        moved = np.array([places.get((id(head), c), c) for c in matrix.cols.tolist()], dtype=np.int32)
        return replace(matrix, shape=(rows, width), cols=moved)

    def one(block: Block) -> Block:
        heads = tuple(
            Head(wide(h.query), read(h.key, h, h.key.shape[0]), read(h.value, h, width)) for h in block.attention.heads
        )
        layer = block.feed_forward
        rows = layer and replace(
            layer, hidden=wide(layer.hidden), output=wide(layer.output, True), output_bias=wide(layer.output_bias, True)
        )
        return Block(Attention(heads, block.attention.kind, block.attention.scale), rows)

    def flat(places: IntArray) -> IntArray:
        return (places // old * width + places % old).astype(np.int32)

    embedding, readout = weights.embedding, weights.readout
    blocks = {id(block): one(block) for block in weights.blocks}  # those of a loop stay the same
    return replace(
        weights,
        slots=tuple(slots),
        embedding=replace(embedding, shape=(weights.tokens * width, embedding.shape[1]), rows=flat(embedding.rows)),
        memory=dense_matrix(constants, weights.dtype),
        blocks=tuple(blocks[id(block)] for block in weights.blocks),
        readout=replace(readout, shape=(weights.outputs, weights.tokens * width), cols=flat(readout.cols)),
    )


def stream_scales(weights: Weights, box: Box, tables: Mapping[Place, float]) -> FloatArray:
    """d_i for every slot: the inverse of what it may hold, at data tokens if it holds anything there."""
    with np.errstate(over="ignore", invalid="ignore"):
        data, memory = Sizes(weights, box, tables, None).held
    sizes = np.where(data > 0, data, memory)
    far = (sizes > 0) & np.isfinite(sizes) & ((sizes > _NEAR) | (sizes < 1 / _NEAR))
    powers = np.zeros(weights.width, dtype=np.int64)
    powers[far] = -np.round(np.log2(sizes[far])).astype(np.int64)
    return np.ldexp(1.0, powers)


class Sizes:
    """Bounds of |slot|, in floats too, of data tokens (0) and memory tokens (1), from the weights and ``tables``.

    ``held`` are the slots at the end, when they are largest, before scaling. ``sums`` are the sums over all slots and
    ``written`` adds them up over all sublayers, both with ``scales``, or None where no mean is subtracted. ``asked``
    are the sizes of each head's queries at data tokens, and c = ``sink`` is what keeps memory tokens to the sink. What
    reading through LayerNorm adds to queries and hidden units is counted as it arises (`_slip`): large weights on small
    slots make it far larger than what is meant.
    """

    def __init__(self, weights: Weights, box: Box, tables: Mapping[Place, float], scales: FloatArray | None) -> None:
        constants = np.abs(weights.memory.dense(np.float64))
        data = len(weights.data_tokens)
        held = np.stack([constants[:data].max(axis=0), constants[data:].max(axis=0, initial=0.0)])
        held[:, weights.slot("one")] += 1  # the constant 1 may have another slot, and is a bias of all tokens' queries
        for row, column in zip(weights.embedding.rows.tolist(), weights.embedding.cols.tolist(), strict=True):
            slot = row % weights.width
            held[0, slot] = max(held[0, slot], round_up(box.magnitude(column)))
        answers = constants.max(axis=0, initial=0.0)
        self.asked, self.terms = list[FloatArray](), len(weights.inputs)
        self.form, self.centred, self.widest = FORMATS[weights.dtype], scales is not None, widest(weights)
        self.scales = np.ones(weights.width) if scales is None else scales
        for block in weights.blocks:
            units = 0 if block.feed_forward is None else block.feed_forward.hidden.shape[0]
            self.terms = max(self.terms, units, sum(head.value.nonzeros for head in block.attention.heads))
        self.marks = float(len(gate_slots(weights)) + 2)  # gates, memory and sink: at most 1 each, at all times
        faint = 4 * weights.tokens * round_up(self.form.faint)
        self.sink = 0
        self.written = held @ self.scales + (2 * len(weights.blocks) + 1) * self.marks
        for b, block in enumerate(weights.blocks):
            heads = block.attention.heads
            for h, head in enumerate(heads):
                slips = self._slip(head.query, held)
                asked = [2 * (times(head.query, of) + slip) for of, slip in zip(held, slips, strict=True)]
                self.asked.append(asked[0])
                scores = 4 * (float((asked[1] * times(head.key, answers)).sum()) + _SILENT)
                self.sink = max(self.sink, math.frexp(scores)[1] if scores < math.inf else self.form.largest_exponent)
                added = np.stack([times(head.value, answers)] * 2)
                added[1] *= faint if self.centred else 1.0
                for column, slot in enumerate(head.value.rows.tolist()):
                    added[0, slot] = tables.get((b, h, column), added[0, slot])
                held = held + added
            self.written = self.written + held @ self.scales
            if (layer := block.feed_forward) is not None:
                bias, added = (np.abs(m.dense(np.float64)[:, 0]) for m in (layer.hidden_bias, layer.output_bias))
                slips = self._slip(layer.hidden, held, bias)
                hidden = [times(layer.hidden, one) + bias + slip for one, slip in zip(held, slips, strict=True)]
                held = held + np.stack([times(layer.output, one) + added for one in hidden])
                self.written = self.written + held @ self.scales
        self.held, self.sums = held, 2 * (held @ self.scales + self.marks)  # computed: at most twice

    def _slip(self, matrix: Matrix, held: FloatArray, bias: FloatArray | float = 0.0) -> list[FloatArray]:
        """e of the theorem for every row of a matrix, on data and on memory tokens, before the width is known."""
        if not self.centred:
            return [np.zeros(matrix.shape[0])] * 2
        totals, gamma = times(matrix, 1 / self.scales) + bias, self.form.gamma
        flush, reading = 2 * arb(GAINS[-1 if self.form.digits > 24 else 0]) * self.form.normal, gamma(self.widest + 8)
        means = [4 * gamma(self.terms + 4) * arb(float(w)) for w in self.written]
        sums = held @ self.scales + self.marks
        means = [m + 2 * reading * arb(float(one)) for m, one in zip(means, sums, strict=True)]
        return [totals * round_up(2 * reading * mean + flush) * (1 + 2.0**-20) for mean in means]

    def gain(self) -> float:
        """The smallest gain that no stream of this size disturbs."""
        most = float(self.sums.max() if self.centred else 2 * self.held.max(initial=0.0))
        digits = self.form.digits if self.centred else FORMATS["float32"].digits  # in which the mean square is computed
        gains = GAINS if digits == FORMATS["float64"].digits else GAINS[:1]
        fitting = [gain for gain in gains if 16 * arb(most) ** 2 < arb(gain) ** 2 * arb(2) ** -digits]
        if not fitting:
            raise ExportError(f"the residual stream of this model may reach {most:.2g}, too large to switch off a norm")
        if self.centred and self.sink + QUERY_FACTOR.bit_length() >= self.form.largest_exponent:
            raise ExportError(f"the scores of this model may reach 2^{self.sink}, too large for LayerNorm's sink")
        return fitting[0]

    def mean(self, kind: int, width: int) -> arb:
        """M of the theorem."""
        unbalanced = self.form.gamma(self.terms + 4) * 4 * arb(float(self.written[kind])) / width
        return (unbalanced + self.form.gamma(width + 8) * arb(float(self.sums[kind]))).upper()


def widest(weights: Weights) -> int:
    """No layer is wider: heads have at most 16 times as many coordinates as queries have rows (`stock_packing`)."""
    rows = max((head.query.shape[0] for head in heads_of(weights)), default=1)
    pieces = max((sum(h.value.nonzeros for h in block.attention.heads) for block in weights.blocks), default=0)
    return weights.width + CENTRE_SLOTS + len(gate_slots(weights)) + 1 + 16 * rows * (1 + pieces)


def times(matrix: Matrix, sizes: FloatArray) -> FloatArray:
    """|matrix|·sizes, a little above what it is: rounding, and floats that stand for rationals."""
    products = np.abs(matrix.values.astype(np.float64)) * sizes[matrix.cols]
    sums: FloatArray = np.bincount(matrix.rows, products, matrix.shape[0]) * (1 + 2.0**-20)
    return sums


def heads_of(weights: Weights) -> Iterator[Head]:
    """All heads, block by block."""
    for block in weights.blocks:
        yield from block.attention.heads
