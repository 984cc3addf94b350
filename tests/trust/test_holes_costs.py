"""Forged folders that once cost far more time or memory than was counted, each a regression test."""

import tracemalloc

import numpy as np
import pytest
from flint import arb

from transformula.errors import RefutedError
from transformula.kernel.folder.weights import Attention, Block, Head, Matrix, Weights
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.rounding.softmax import Arithmetic, rounding_bound
from transformula.kernel.rules.blocks import Runner
from transformula.kernel.rules.linear_attention import _polynomials
from transformula.kernel.syntax.expression import number
from transformula.kernel.tables.grids import bounds_on
from transformula.kernel.tables.tables import Table
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


def silent(tokens):
    """Slopes and offsets of an axis whose first token is alone; the others are far below."""
    return np.zeros(tokens), np.where(np.arange(tokens) > 0, -1e4 - np.arange(tokens), 0.0)


def test_the_rounding_of_many_tokens_on_many_intervals_is_bounded_part_by_part():
    """It took 2.7 GB for eleven thousand tokens on a thousand intervals."""
    slopes, offsets = silent(4000)
    table, edges = Table((slopes,), (offsets,), np.ones(4000)), np.linspace(0, 1, 1501).tolist()
    tracemalloc.start()
    try:
        bound = rounding_bound(table, [(arb(0), arb(1))], [edges], Arithmetic(FORMATS["float64"]))
        assert tracemalloc.get_traced_memory()[1] < 6e8
    finally:
        tracemalloc.stop()
    assert bound == rounding_bound(table, [(arb(0), arb(1))], [edges[:2] + edges[-1:]], Arithmetic(FORMATS["float64"]))


def test_a_grid_of_many_tokens_on_many_intervals_is_refused():
    """Few boxes fit into a chunk, and each chunk went through all intervals: two minutes."""
    (a, b), edges = silent(11_000), np.linspace(0, 1, 601)
    table = Table((a, np.zeros(1)), (b, np.zeros(1)), np.ones((11_000, 1)))
    lower, upper = (np.stack([e, np.full(600, v)]) for e, v in ((edges[:-1], 0.0), (edges[1:], 1.0)))
    with limited(), pytest.raises(RefutedError, match="too many"):
        bounds_on(table, number(1), ("u1", "u2"), lower, upper)
