"""The blocks on rationals, without any rounding.

Tokens are sparse (slot → rational), so a block costs about tokens² small products. Hardmax is a
comparison and linear attention a sum of products, hence exact; softmax is not rational and is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from flint import fmpq

from transformula.errors import InputError
from transformula.kernel.folder.weights import Attention, FeedForward, Head, Matrix, Weights

Token = dict[int, fmpq]
_Columns = Mapping[int, Sequence[tuple[int, fmpq]]]


def run_exact(weights: Weights, point: Sequence[fmpq]) -> list[fmpq]:
    """Evaluate one point; the answer is the model's value as a rational."""
    tokens = _embed(weights, point)
    for block in weights.blocks:
        if block.attention.kind == "softmax":
            raise InputError("exact evaluation needs hardmax or linear attention: softmax is not rational")
        tokens = _attend(block.attention, tokens)
        if block.feed_forward is not None:
            tokens = _feed_forward(block.feed_forward, tokens)
    return _read_out(weights, tokens)


def _embed(weights: Weights, point: Sequence[fmpq]) -> list[Token]:
    tokens: list[Token] = [defaultdict(fmpq) for _ in range(weights.tokens)]
    for token, slot, value in weights.memory.entries():
        tokens[token][slot] += value
    for row, column, value in weights.embedding.entries():
        tokens[row // weights.width][row % weights.width] += value * point[column]
    return tokens


def _by_column(matrix: Matrix) -> _Columns:
    columns: dict[int, list[tuple[int, fmpq]]] = defaultdict(list)
    for row, column, value in matrix.entries():
        columns[column].append((row, value))
    return columns


def _apply(columns: _Columns, token: Token) -> Token:
    result: Token = defaultdict(fmpq)
    for slot, value in token.items():
        for row, weight in columns.get(slot, ()):
            result[row] += weight * value
    return result


def _attend(attention: Attention, tokens: list[Token]) -> list[Token]:
    result: list[Token] = [defaultdict(fmpq, token) for token in tokens]
    for head in attention.heads:
        for token, written in zip(result, _run_head(head, attention, tokens), strict=True):
            for slot, value in written.items():
                token[slot] += value
    return result


def _run_head(head: Head, attention: Attention, tokens: list[Token]) -> list[Token]:
    query = _by_column(head.query)
    key = _by_column(head.key)
    value = _by_column(head.value)
    keys = [_apply(key, token) for token in tokens]
    values = [_apply(value, token) for token in tokens]
    if head.output is not None:
        output = _by_column(head.output)
        values = [_apply(output, v) for v in values]
    factor = fmpq(*attention.scale.as_integer_ratio())
    written = []
    for token in tokens:
        asked = [(slot, v) for slot, v in _apply(query, token).items() if v != 0]
        scores = [sum((v * k[slot] for slot, v in asked if slot in k), fmpq(0)) for k in keys]
        kept = range(len(scores)) if attention.kind == "linear" else [max(range(len(scores)), key=scores.__getitem__)]
        mixed: Token = defaultdict(fmpq)
        for place in kept:
            for slot, v in values[place].items() if scores[place] != 0 else ():
                mixed[slot] += v * scores[place] * factor
        written.append(mixed)
    return written


def _feed_forward(layer: FeedForward, tokens: list[Token]) -> list[Token]:
    hidden, output = _by_column(layer.hidden), _by_column(layer.output)
    hidden_bias = {row: v for row, _, v in layer.hidden_bias.entries()}
    output_bias = {row: v for row, _, v in layer.output_bias.entries()}
    result: list[Token] = []
    for token in tokens:
        inner = _apply(hidden, token)
        for row, bias in hidden_bias.items():
            inner[row] += bias
        active = {row: v for row, v in inner.items() if v > 0}
        new = defaultdict(fmpq, token)
        for written in (_apply(output, active), output_bias):
            for slot, v in written.items():
                new[slot] += v
        result.append(new)
    return result


def _read_out(weights: Weights, tokens: list[Token]) -> list[fmpq]:
    outputs = [fmpq(0)] * weights.outputs
    for row, _, value in weights.bias.entries():
        outputs[row] += value
    for row, column, value in weights.readout.entries():
        token = tokens[column // weights.width]
        outputs[row] += value * token.get(column % weights.width, fmpq(0))
    return outputs
