"""Forged folders that once cost far more time or memory than honest ones, each a regression test."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from flint import arb

from support.kernel_models import ridge_weights
from transformula.errors import ModelFileError, RefutedError
from transformula.kernel.folder.description import MAX_BYTES, MAX_MEMORY, parse_json
from transformula.kernel.folder.weights import Attention, Block, Head, Matrix, Weights
from transformula.kernel.gallery.yun_rule import Runner
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.rounding.softmax import Arithmetic, rounding_bound
from transformula.kernel.rules.polynomial_rule import checked_ridge, ridge_polynomial
from transformula.kernel.structures.network import _NetworkReader
from transformula.kernel.syntax.expression import number
from transformula.kernel.tables.grid_error import bounds_on
from transformula.kernel.tables.table_error import SoftmaxTable


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


def test_outputs_that_read_nothing_take_memory_too():
    with pytest.raises(RefutedError, match="too many numbers"):
        _run(_weights(1, 1, [], outputs=1000), boxes=20_000)


def silent(tokens):
    """Slopes and offsets of an axis whose first token is alone; the others are far below."""
    return np.zeros(tokens), np.where(np.arange(tokens) > 0, -1e4 - np.arange(tokens), 0.0)


def test_the_rounding_of_many_tokens_on_many_intervals_is_bounded_part_by_part():
    """It took 2.7 GB for eleven thousand tokens on a thousand intervals."""
    slopes, offsets = silent(4000)
    table, edges = SoftmaxTable((slopes,), (offsets,), np.ones(4000)), np.linspace(0, 1, 1501).tolist()
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
    table = SoftmaxTable((a, np.zeros(1)), (b, np.zeros(1)), np.ones((11_000, 1)))
    lower, upper = (np.stack([e, np.full(600, v)]) for e, v in ((edges[:-1], 0.0), (edges[1:], 1.0)))
    with pytest.raises(RefutedError, match="too many"):
        bounds_on(table, number(1), ("u1", "u2"), lower, upper)


WIDE = {
    "one text": lambda: '"\U0001f600' + "a" * (17 << 20) + '"',
    "one text of escapes": lambda: r'"\ud83d\ude00' + "a" * (17 << 20) + '"',
    "many texts": lambda: "[" + ",".join(f'"{k:08d}"' for k in range(1_600_000)) + "]",
}


@pytest.mark.parametrize("name", WIDE)
def test_texts_are_counted_as_what_they_take(name):
    """One character beyond 16 bits makes four bytes of each: two files of 52 MB took 1.4 GB."""
    with pytest.raises(ModelFileError, match="too large"):
        parse_json('{"a": ' + WIDE[name]() + "}", "evidence.json")


def test_all_files_together_leave_room_for_the_proof():
    """The bytes of the arrays are held twice, the texts of two files beside what was read of them."""
    texts = MAX_BYTES["model.json"] + MAX_BYTES["evidence.json"]
    assert 2 * MAX_BYTES["model.safetensors"] + texts + 2 * MAX_MEMORY <= 600 << 20


def test_every_output_looks_at_its_own_terms_only():
    """A thousand outputs of 300 tokens took 44 seconds: each looked at the terms of all others."""
    outputs, tokens = 30, 20
    terms = {(o, k, 1): 1 for o in range(outputs) for k in range(tokens)}
    ridge = checked_ridge(ridge_weights(("x",), [{0: k + 1} for k in range(tokens)], terms, [0] * outputs))
    assert [list(powers) for powers in ridge.by_output] == [list(range(tokens))] * outputs


def test_sums_of_long_polynomials_are_refused(monkeypatch):
    """Every token's polynomial was added to all before: 1,000 tokens in 1,000 inputs took 54 seconds."""
    names = tuple(f"x{k}" for k in range(100))
    directions = [{k: 1, k + 1: 1} for k in range(99)]
    ridge = checked_ridge(ridge_weights(names, directions, {(0, k, 3): 1 for k in range(99)}, [0]))
    terms = len(ridge_polynomial(ridge, 0, 100))
    monkeypatch.setattr("transformula.kernel.rules.polynomial_rule.MAX_NUMBERS", 100 * terms // 2)
    with pytest.raises(RefutedError, match="too many terms"):
        ridge_polynomial(ridge, 0, 100)


def test_the_slots_that_a_loop_reads_are_collected_once():
    """300 heads of 300 entries a thousand times over took three seconds, and counted as nothing."""
    looked = []

    class Columns:
        def tolist(self):
            looked.append(1)
            return [0]

    head = Head(None, SimpleNamespace(exact=None, cols=Columns()), _matrix((1, 1)))
    weights = _weights(1, 1, [head])
    reader = _NetworkReader(replace(weights, slots=("one",), blocks=weights.blocks * 1000))
    with pytest.raises(RefutedError, match="is written"):
        reader._check_constants()
    assert len(looked) == 1
