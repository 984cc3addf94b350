"""Forged folders that once cost far more time or memory than was counted, each a regression test."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from flint import arb, fmpq

from support.kernel_models import cubic, memory_weights, ridge_weights
from transformula.errors import ModelFileError, RefutedError
from transformula.kernel.folder.description import MAX_BYTES, MAX_MEMORY, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import _rationals
from transformula.kernel.folder.weights import Attention, Block, Head, Matrix, Weights
from transformula.kernel.gallery.boxed_blocks import Runner
from transformula.kernel.gallery.compact_rule import prove_compact
from transformula.kernel.gallery.linear_attention_rule import _polynomials
from transformula.kernel.gallery.memorize_rule import prove_memorize
from transformula.kernel.rounding.formats import FORMATS, check_stored
from transformula.kernel.rounding.softmax import Arithmetic, rounding_bound
from transformula.kernel.rules.corollary_rule import prove_corollary
from transformula.kernel.rules.polynomial_rule import checked_ridge, ridge_polynomial, ridge_rounding
from transformula.kernel.structures.network import _NetworkReader
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import number
from transformula.kernel.tables.grid_error import bounds_on
from transformula.kernel.tables.table_error import SoftmaxTable
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
    with limited(), pytest.raises(RefutedError, match="too many"):
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


def test_long_rationals_are_counted():
    """1,300 of them took seven seconds to read and to compare with their floats, and counted as nothing."""
    value = fmpq(3**52_000, 5**35_495)
    with limited() as reading:
        _rationals([f"{value.p}/{value.q}"] * 20, 20, "bias")
    weights = cubic()[0]
    bias = Matrix((1, 1), *(np.zeros(1, np.int32) for _ in range(2)), np.array([int(value.p) / int(value.q)]), (value,))
    with limited() as comparing:
        check_stored(replace(weights, bias=bias))
    assert reading[0] > 20 * 2000 and comparing[0] > 2000


def test_every_output_looks_at_its_own_terms_only():
    """A thousand outputs of 300 tokens took 44 seconds: each looked at the terms of all others."""
    outputs, tokens = 30, 20
    terms = {(o, k, 1): 1 for o in range(outputs) for k in range(tokens)}
    ridge = checked_ridge(ridge_weights(("x",), [{0: k + 1} for k in range(tokens)], terms, [0] * outputs))
    assert [list(powers) for powers in ridge.by_output] == [list(range(tokens))] * outputs
    with limited() as meter:
        checked_ridge(ridge.weights)
    assert meter[0] > 30 * outputs * tokens


def test_sums_of_long_polynomials_are_counted(monkeypatch):
    """Every token's polynomial was added to all before: 1,000 tokens in 1,000 inputs took 54 seconds."""
    names = tuple(f"x{k}" for k in range(100))
    directions = [{k: 1, k + 1: 1} for k in range(99)]
    ridge = checked_ridge(ridge_weights(names, directions, {(0, k, 3): 1 for k in range(99)}, [0]))
    with limited() as meter:
        terms = len(ridge_polynomial(ridge, 0, 100))
    assert meter[0] > 99 / 2 * terms * 100 / 1500
    monkeypatch.setattr("transformula.kernel.rules.polynomial_rule.MAX_NUMBERS", 100 * terms // 2)
    with limited() as half, pytest.raises(RefutedError, match="too many terms"):
        ridge_polynomial(ridge, 0, 100)
    assert half[0] < meter[0] / 2


def test_the_slots_of_all_tokens_are_counted():
    """100 heads of 6,900 tokens took five seconds, and counted as nothing."""
    ridge = checked_ridge(ridge_weights(("x",), [{0: 1}] * 50, {(0, 0, 3): 1}, [0]))
    with limited() as meter:
        ridge_rounding(ridge, Formula.of("x", "x=0..1").box)
    assert meter[0] >= 7 * 50 * sum(map(len, ridge.heads))


@pytest.mark.parametrize(("prove", "each"), [(prove_memorize, 75), (prove_compact, 90)])
def test_the_columns_of_a_memory_are_counted(prove, each):
    """99,000 outputs took nine seconds, of which six were counted."""
    spent = []
    for outputs in (1, 101):
        weights = memory_weights([[0.0], [4.0]], np.ones((2, outputs)), 50.0)
        with limited() as meter:
            prove(weights, {"x": [[0.0], [4.0]], "y": [[1.0] * outputs] * 2})
        spent.append(meter[0])
    assert spent[1] > spent[0] + 100 * each


def test_the_difference_of_a_corollary_is_counted():
    """50,000 terms of a polynomial became as many expressions: 12 seconds."""
    directions, names = [{0: 1, 1: 1}], ("x", "y")
    weights = ridge_weights(names, directions, {(0, 0, 4): 1}, [0])
    evidence = Evidence({"defined": [[-1]], "corollary": [{"edges": [[0.0, 0.5]] * 2, "trees": [[-1]]}]})
    with limited() as meter:
        prove_corollary(weights, Formula.of("exp(x + y)", "x=0..1/2, y=0..1/2"), {}, evidence)
    assert meter[0] > 4_000 + 300 * 5


def test_the_heads_of_a_loop_are_counted_before_they_are_looked_at(monkeypatch):
    """1,600 heads a thousand times over took three seconds before any work was counted."""
    weights = _weights(1, 1, [_head(1)] * 20)
    monkeypatch.setattr(Runner, "_parts", lambda self: pytest.fail("looked at"))
    with limited(2 * 20 * 999), pytest.raises(RefutedError, match="too much work"):
        _run(replace(weights, blocks=weights.blocks * 1000))


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
