"""Forged folders that once cost far more time or memory than was counted, each a regression test."""

import tracemalloc

import numpy as np
import pytest

from transformula.errors import RefutedError
from transformula.kernel.folder.weights import Attention, Block, Head, Matrix, Weights
from transformula.kernel.rules.blocks import Runner
from transformula.kernel.rules.linear_attention import _polynomials
from transformula.kernel.work import limited


def _matrix(shape, rows=(), cols=()):
    """Ones at the given places."""
    places = (np.asarray(part, np.int32) for part in (rows, cols))
    return Matrix(shape, *places, np.ones(len(rows)))


def _weights(tokens, width, heads, outputs=1, kind="softmax"):
    """x in the first slot of all, a 1 in the first slot of every token, every token is read."""
    every, none = range(0, tokens * width, width), [0] * tokens
    slots, blocks = tuple(f"s{k}" for k in range(width)), (Block(Attention(tuple(heads), kind)),) if heads else ()
    embedding, memory = _matrix((tokens * width, 1), [0], [0]), _matrix((tokens, width), range(tokens), none)
    readout = _matrix((outputs, tokens * width), none, every)
    return Weights(("x",), slots, tokens, embedding, memory, blocks, readout, _matrix((outputs, 1)))


def _head(width, inner=0, value=(0,), output=(0,)):
    """A head of ``value[0]`` numbers, with entries at the other places (rows, cols) if there are any."""
    depth = value[0]
    asked = _matrix((inner, width))
    return Head(asked, asked, _matrix((depth, width), *value[1:]), _matrix((width, depth), *output[1:]))


def _run(weights, boxes=1):
    return Runner(weights).run(np.zeros((1, boxes)), np.ones((1, boxes)))


def test_the_numbers_of_all_heads_are_not_held_at_once():
    weights = _weights(1, 1, [_head(1, value=(20_000,)) for _ in range(40)])
    tracemalloc.start()
    try:
        _run(weights)
        assert tracemalloc.get_traced_memory()[1] < 20 * 20_000 * 8
    finally:
        tracemalloc.stop()


def test_every_head_reads_and_writes_a_whole_stream():
    with limited(150_000.0), pytest.raises(RefutedError, match="too much work"):
        _run(_weights(10, 10_000, [_head(10_000) for _ in range(30)]))


def test_entries_of_output_matrices_are_counted():
    places = np.divmod(np.arange(300 * 300), 300)
    with limited(10_000.0), pytest.raises(RefutedError, match="too much work"):
        _run(_weights(10, 300, [_head(300, value=(300,), output=(300, *places))]))


def test_outputs_that_read_nothing_take_memory_too():
    with limited(), pytest.raises(RefutedError, match="too many numbers"):
        _run(_weights(1, 1, [], outputs=1000), boxes=20_000)


@pytest.mark.parametrize(("most", "head"), [
    (1_000_000.0, lambda: _head(1, value=(120, range(120), [0] * 120))),
    (150_000.0, lambda: _head(1, value=(10_000,), output=(10_000, [0] * 10_000, range(10_000)))),
], ids=["scores that are 0", "an output of numbers that are 0"])  # fmt: skip
def test_linear_attention_counts_what_comes_to_nothing(most, head):
    with limited(most), pytest.raises(RefutedError, match="too much work"):
        list(_polynomials(_weights(100, 1, [head()], kind="linear")))
