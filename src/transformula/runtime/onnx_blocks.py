"""The blocks as an ONNX graph, node by node, for any runtime that reads opset 17.

One input ``x`` (batch × inputs, or batch × positions × features for a sequence), one output ``y`` (batch ×
outputs, or batch × positions × features), any batch. The embedding, every block and the readout are in
the graph; its initializers are the stored weights, transposed, with nothing multiplied into them.

Attention is spelled out as softmax(QKᵀ)V, and a scale other than 1 is a vector over the tokens, so that onnxruntime's
optimiser has nothing to rewrite (`onnx_graph`). Tokens that stay constant (`leading_tokens`) are kept once instead of
once per sample, and only tokens that are read are computed in the last block, as in the reference. Fang's hardmax is
``where(argmax == 0..n-1, scores, 0)``; of equal scores the first wins, as in NumPy. Linear attention mixes by the
scores themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from transformula.errors import ExportError
from transformula.kernel.folder.weights import (
    Attention,
    Block,
    FeedForward,
    Head,
    IntArray,
    Matrix,
    Weights,
    named_matrices,
)
from transformula.runtime.matrices import leading_tokens, read_tokens
from transformula.runtime.onnx_graph import BATCH, INPUT, OUTPUT, GraphWriter, Wrapping, file_bytes


def graph_bytes(
    weights: Weights,
    metadata: Mapping[str, str],
    sequence: tuple[int, int] | None = None,
    version: str = "",
    wrapper: Wrapping | None = None,
) -> bytes:
    """The ONNX file of some weights, the same bytes each time; a ``sequence`` (n, d) takes and gives batch × n × d.

    ``metadata`` and the producer's ``version`` stand in the file, and a ``wrapper`` puts nodes around the graph.
    """
    needed = sum(8 * int(np.prod(m.shape, dtype=float)) for n, m in named_matrices(weights) if _dense(n))
    return file_bytes(_BlocksWriter(weights.dtype, weights, sequence), needed, metadata, version, wrapper)


def _dense(name: str) -> bool:
    """Embedding and readout are written without their empty rows and columns."""
    return name not in ("embedding", "readout")


class _BlocksWriter(GraphWriter):
    """The graph of the blocks."""

    def __init__(self, dtype: str, weights: Weights, sequence: tuple[int, int] | None) -> None:
        super().__init__(dtype)
        self.weights, self.sequence = weights, sequence

    def graph(self, onnx: Any) -> Any:
        weights = self.weights
        self.lead = leading_tokens(weights)
        read = read_tokens(weights)
        stream, tokens = self.embed(), np.arange(self.lead, dtype=np.int32)
        for b, first in enumerate(weights.first_places):
            if b == len(weights.blocks) - 1 and len(read) < self.lead and len(read):
                tokens = read  # the other tokens are not read after the last block
            self.here, self.first = f"blocks.{b}.", f"blocks.{first}."
            stream = self.block(f"blocks.{b}", weights.blocks[b], stream, tokens)
        self.read_out(stream, tokens)
        ends = [[BATCH, len(weights.inputs)], [BATCH, weights.outputs]]
        if self.sequence is not None:
            ends = [[BATCH, *self.sequence]] * 2
        return self.finished(onnx, ends)

    # The parts of a Transformer

    def embed(self) -> str:
        """x to batch × leading tokens × width: numbers for the slots inputs reach, then those slots."""
        weights, width = self.weights, self.weights.width
        self.memory = ""
        constants = weights.memory.dense()
        if self.lead < weights.tokens:
            self.memory = self.constant("memory", constants[self.lead :])
        x = INPUT
        if self.sequence is not None:
            x = self.node("x.rows", "Reshape", x, self.constant("x.shape", [-1, len(weights.inputs)]))
        tokens, slots = np.divmod(weights.embedding.rows, width)
        used, place = np.unique(slots, return_inverse=True)
        if not len(used):
            used = np.zeros(1, dtype=np.int32)
        dense = np.zeros((len(weights.inputs), self.lead, len(used)), dtype=weights.dtype)
        dense[weights.embedding.cols, tokens, place] = weights.embedding.values
        linear = self.constant("embedding", dense.reshape(len(weights.inputs), -1))
        flat = self.node("embedded.flat", "MatMul", x, linear)
        shape = self.constant("embedded.shape", [-1, self.lead, len(used)])
        given = self.node("embedded", "Reshape", flat, shape)
        spread = self.constant("embedding.slots", np.eye(width)[used])
        stream = self.node("embedded.stream", "MatMul", given, spread)
        return self.sum("stream", stream, self.constant("tokens", constants[: self.lead]))

    def shared(self, name: str, array: Any) -> str:
        """An initializer of a block, under the name it has where the block stands first: a loop has one set of them."""
        return self.constant(name.replace(self.here, self.first, 1), array)

    def block(self, name: str, block: Block, stream: str, tokens: IntArray) -> str:
        asking = stream
        if len(tokens) < self.lead:
            asking = self.node(f"{name}.asking", "Gather", stream, self.constant("read", tokens), axis=1)
        new = ""
        for h, head in enumerate(block.attention.heads):
            mixed = self.head(f"{name}.heads.{h}", block.attention, head, stream, asking)
            if mixed:
                new = self.node(f"{name}.heads.{h}.sum", "Add", new, mixed) if new else mixed
        stream = self.node(f"{name}.attended", "Add", asking, new) if new else asking
        if block.feed_forward is not None:
            added = self.feed_forward(f"{name}.feed_forward", block.feed_forward, stream)
            stream = self.node(f"{name}.stream", "Add", stream, added)
        return stream

    def head(self, name: str, attention: Attention, head: Head, stream: str, asking: str) -> str:
        """The contribution of a head to the asking tokens; empty if its values are all zero."""
        rows = np.unique(head.value.rows)
        if not len(rows):
            return ""
        query = self.shared(f"{name}.query", head.query.dense().T)
        key = self.shared(f"{name}.key", head.key.dense().T)
        value = self.shared(f"{name}.value", head.value.dense()[rows].T)
        wanted = np.eye(self.weights.width) if head.output is None else head.output.dense().T
        output = self.shared(f"{name}.output", wanted[rows])
        queries = self.node(f"{name}.queries", "MatMul", asking, query)
        keys = self.node(f"{name}.keys", "MatMul", stream, key)
        values = self.node(f"{name}.values", "MatMul", stream, value)
        turned = self.node(f"{name}.keys.T", "Transpose", keys, perm=[0, 2, 1])
        scores = self.node(f"{name}.scores", "MatMul", queries, turned)
        if self.memory:
            fixed = self.node(f"{name}.memory.keys", "MatMul", self.memory, key)
            turned = self.node(f"{name}.memory.keys.T", "Transpose", fixed, perm=[1, 0])
            extra = self.node(f"{name}.memory.scores", "MatMul", queries, turned)
            scores = self.node(f"{name}.all.scores", "Concat", scores, extra, axis=2)
        if attention.scale != 1:
            factor = np.full(self.weights.tokens, attention.scale)
            if self.weights.tokens == 1 and attention.scale != float(np.float32(attention.scale)):
                raise ExportError("a single token with a scale beyond float32 cannot be kept from fusion")
            scores = self.node(f"{name}.scaled", "Mul", scores, self.shared(f"{name}.scale", factor))
        mixed = self.mix(name, self.pattern(name, attention, scores), values, value)
        return self.node(f"{name}.written", "MatMul", mixed, output)

    def pattern(self, name: str, attention: Attention, scores: str) -> str:
        if attention.kind == "softmax":
            return self.node(f"{name}.pattern", "Softmax", scores, axis=-1)
        if attention.kind == "linear":
            return scores
        best = self.node(f"{name}.best", "ArgMax", scores, axis=2, keepdims=1, select_last_index=0)
        places = self.constant("places", np.arange(self.weights.tokens))
        chosen = self.node(f"{name}.chosen", "Equal", best, places)
        return self.node(f"{name}.pattern", "Where", chosen, scores, self.constant("zero", np.zeros(1)))

    def mix(self, name: str, pattern: str, values: str, value: str) -> str:
        """Pattern times values: the leading tokens' of each sample, and the constant ones of all."""
        if not self.memory:
            return self.node(f"{name}.mixed", "MatMul", pattern, values)
        sizes = self.constant("parts", [self.lead, self.weights.tokens - self.lead])
        parts = [f"{name}.pattern.leading", f"{name}.pattern.memory"]
        split = self.helper.make_node("Split", [pattern, sizes], parts, name=f"{name}.parts", axis=2)
        self.nodes.append(split)
        fixed = self.node(f"{name}.memory.values", "MatMul", self.memory, value)
        first = self.node(f"{name}.mixed.leading", "MatMul", parts[0], values)
        second = self.node(f"{name}.mixed.memory", "MatMul", parts[1], fixed)
        return self.node(f"{name}.mixed", "Add", first, second)

    def feed_forward(self, name: str, layer: FeedForward, stream: str) -> str:
        hidden = self.affine(f"{name}.hidden", layer.hidden, layer.hidden_bias, stream)
        active = self.node(f"{name}.relu", "Relu", hidden)
        return self.affine(f"{name}.output", layer.output, layer.output_bias, active)

    def affine(self, name: str, matrix: Matrix, bias: Matrix, stream: str) -> str:
        product = self.node(f"{name}.product", "MatMul", stream, self.shared(name, matrix.dense().T))
        if not bias.nonzeros:
            return product
        return self.sum(f"{name}.shifted", product, self.shared(f"{name}.bias", bias.dense()[:, 0]))

    def read_out(self, stream: str, tokens: IntArray) -> None:
        weights, width = self.weights, self.weights.width
        place = np.searchsorted(tokens, weights.readout.cols // width) * width
        used, column = np.unique(place + weights.readout.cols % width, return_inverse=True)
        if not len(used):
            used = np.zeros(1, dtype=np.int64)
        dense = np.zeros((len(used), weights.outputs))
        dense[column, weights.readout.rows] = weights.readout.values
        shape = self.constant("stream.shape", [-1, len(tokens) * width])
        flat = self.node("stream.flat", "Reshape", stream, shape)
        picked = self.node("stream.read", "Gather", flat, self.constant("readout.slots", used), axis=1)
        product = self.node("outputs", "MatMul", picked, self.constant("readout", dense))
        bias = self.constant("bias", weights.bias.dense()[:, 0])
        if self.sequence is None:
            self.sum(OUTPUT, product, bias)
            return
        rows = self.sum("outputs.rows", product, bias)
        self.node(OUTPUT, "Reshape", rows, self.constant("y.shape", [-1, *self.sequence]))
