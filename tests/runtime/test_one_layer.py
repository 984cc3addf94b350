"""Every kind of one-layer model, run by every executor and judged by Arb on the stored weights.

The two halves of a certificate are tested apart: |T_w − f| ≤ approximation in 300 bits, and
|computed − T_w| ≤ rounding for the reference, for torch and for the fast path.
"""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from flint import arb, fmpq

import transformula as tf
from support.balls import BallTransformer
from support.one_layer_models import DTYPES, NAMES, model_named, points_of, truth
from transformula.compiler.certify import pack
from transformula.compiler.table_reading import read_heads
from transformula.errors import ModelFileError, PointError
from transformula.kernel.arithmetic import precision
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.folder.weights import Attention, Block
from transformula.runtime import reference
from transformula.runtime.matrices import dense_matrix
from transformula.runtime.program import numpy_backend
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.weights_program import read_tables

EACH = pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in NAMES for d in DTYPES])


def _largest(rows, others) -> float:
    """max |a − b| over balls so narrow that only the weights decide; rounded down."""
    with precision(300):
        sizes = [abs(a - b) for pair in zip(rows, others, strict=True) for a, b in zip(*pair, strict=True)]
        assert all(s.is_finite() and s.rad() < 1e-60 for s in sizes)
        return max(float(s.lower()) for s in sizes)


@EACH
def test_the_stored_weights_are_within_the_approximation(name, dtype):
    model = model_named(name, dtype)
    exact = BallTransformer(model.weights)
    x = points_of(model, 20, seed=1)
    assert model.layers == 1
    wrong = _largest([exact(point) for point in x], [truth(model, point) for point in x])
    assert wrong <= model.certificate.approximation


@EACH
def test_every_executor_is_within_the_rounding(name, dtype):
    model = model_named(name, dtype)
    x = points_of(model)
    exact = BallTransformer(model.weights)
    rows = [exact(point) for point in x]
    results = {
        "reference": reference.run(model.weights, x),
        "fast": run_numpy(model.program, x),
        "torch": model.to_torch()(torch.from_numpy(x.astype(dtype))).detach().numpy(),
        "model": np.asarray(model(x)).reshape(len(x), -1),
        "model on tensors": model(torch.from_numpy(x)).detach().numpy().reshape(len(x), -1),
    }
    for executor, values in results.items():
        assert values.dtype == dtype and values.shape == (len(x), model.weights.outputs), executor
        computed = [[arb(float(v)) for v in row] for row in values]
        assert _largest(computed, rows) <= model.certificate.rounding, executor


@EACH
def test_files_give_the_same_model_back(name, dtype, tmp_path):
    model = model_named(name, dtype)
    loaded = tf.load(model.save(tmp_path / "model"))
    x = points_of(model)
    assert np.array_equal(loaded(x), model(x)) and loaded.sequence == model.sequence
    weights, _ = unpack(pack(model.weights, model.description, {}))
    assert np.array_equal(reference.run(weights, x), reference.run(model.weights, x))
    assert tf.verify(tmp_path / "model").verified


@EACH
def test_the_claim_meets_the_tolerance(name, dtype):
    claim = model_named(name, dtype).certificate
    assert 0 < claim.bound <= claim.eps and claim.approximation + claim.rounding <= claim.bound


@pytest.mark.parametrize("name", ["two variables", "partition in two", "memorize", "sequence"])
def test_evaluation_does_not_depend_on_its_chunks(name, monkeypatch):
    model = model_named(name)
    x = points_of(model, 60)
    whole = model(x)
    monkeypatch.setattr(numpy_backend, "CHUNK_FLOATS", 1)
    monkeypatch.setattr(numpy_backend, "FEWEST", 7)
    np.testing.assert_allclose(model(x), whole, rtol=1e-11, atol=1e-13)
    monkeypatch.setattr(reference, "CHUNK_FLOATS", 1)
    np.testing.assert_allclose(reference.run(model.weights, x), np.reshape(whole, (len(x), -1)), rtol=1e-9, atol=1e-11)


def test_a_grid_is_found_and_a_scatter_is_not():
    (head,) = read_heads(model_named("three variables").weights)
    assert head.grid is not None and head.axes == 3
    assert head.grid.arranged(head.values).shape[:-1] == tuple(map(len, head.grid.slopes))
    (head,) = read_heads(model_named("memorize").weights)
    assert head.grid is None and head.tokens == 24


def test_one_point_many_points_and_no_points():
    model = model_named("two heads")
    x = points_of(model)
    assert model(x[0]).shape == () and model(x[:0]).shape == (0,) and model(x[:1]).shape == (1,)
    several = model_named("two outputs")
    assert several(x[0]).shape == (3,) and several(x[:0]).shape == (0, 3)


# Sequences


@pytest.mark.parametrize(("name", "n", "d"), [("sorting", 2, 1), ("sequence", 2, 1), ("wide sequence", 2, 2)])
def test_sequences_go_in_and_come_out(name, n, d):
    model = model_named(name)
    flat = points_of(model, 30)
    x = flat.reshape(len(flat), n, d)
    y = model(x)
    assert y.shape == x.shape and np.array_equal(y, model(flat))
    assert model(x[0]).shape == (n, d) and np.array_equal(model(x[:1])[0], model(x[0]))
    tensor = model(torch.from_numpy(x))
    assert tuple(tensor.shape) == x.shape
    np.testing.assert_allclose(tensor.detach().numpy(), y, atol=1e-10)
    wanted = [[float(v.mid()) for v in truth(model, point)] for point in flat]
    np.testing.assert_allclose(y.reshape(len(flat), -1), wanted, rtol=0, atol=model.certificate.bound)


def test_sorting_two_numbers_is_exact():
    model = model_named("sorting")
    assert model.certificate.approximation == 0 and model.memory_tokens == 0 and model.certificate.rounding < 1e-12
    x = np.random.default_rng(0).uniform(-1, 1, size=(500, 2, 1))
    np.testing.assert_allclose(model(x), np.sort(x, axis=1), rtol=0, atol=1e-12)


def test_each_position_ends_with_its_own_row():
    """Theorem 1: data token p carries row p of the result, and only that, in its output slots."""
    model = model_named("wide sequence")
    weights, x = model.weights, points_of(model)[:5]
    stream = reference.trace(weights, x).residuals[-1]
    for p in range(2):
        slots = [weights.slot(f"out{c + 1}") for c in range(2)]
        np.testing.assert_allclose(stream[:, p, slots], model(x)[:, p], atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (2, 3, 1), (5, 1, 2), (4,), (2, 2, 2, 2), ()])
def test_arrays_of_another_shape_are_refused(shape):
    with pytest.raises(PointError, match="rows of 2 numbers"):
        model_named("sequence")(np.zeros(shape))


# Reading weights back: whatever is out of place is named


def _changed(model, **parts):
    return dataclasses.replace(model.weights, **parts)


def _head_changed(model, **parts):
    (block,) = model.weights.blocks
    heads = (dataclasses.replace(block.attention.heads[0], **parts), *block.attention.heads[1:])
    return _changed(model, blocks=(dataclasses.replace(block, attention=Attention(heads)),))


def _with_entry(matrix, row, col, value):
    dense = matrix.dense()
    dense[row, col] = value
    return dense_matrix(dense)


def test_what_is_not_one_layer_is_refused_by_name():
    model = model_named("one variable")
    weights = model.weights
    (block,) = weights.blocks
    head, slot = block.attention.heads[0], weights.slot
    rows = head.query.shape[0]
    change, entry, at_head = partial(_changed, model), _with_entry, partial(_head_changed, model)
    cases = [
        (change(blocks=(block, block)), "2 layers"),
        (change(blocks=()), "0 layers"),
        (change(blocks=(Block(Attention(block.attention.heads, "hardmax")),)), "plain softmax"),
        (change(blocks=(Block(Attention(block.attention.heads, "softmax", 0.5)),)), "plain softmax"),
        (change(embedding=entry(weights.embedding, slot("x.x"), 0, 2.0)), "an input is scaled"),
        (change(embedding=entry(weights.embedding, weights.width, 0, 1.0)), "constant 1 is not 1"),
        (change(memory=entry(weights.memory, 0, slot("one"), 2.0)), "constant 1 is not 1"),
        (change(memory=entry(weights.memory, 1, slot("one"), 1.0)), "memory token carries the constant 1"),
        (change(memory=entry(weights.memory, 0, slot("x.x"), 0.5)), "shares its slot with a constant"),
        (change(memory=entry(weights.memory, 0, slot("gate0"), 0.5)), "passes two gates"),
        (at_head(query=entry(head.query, rows - 1, slot("one"), 2.0)), "query row does not read 1"),
        (at_head(query=entry(head.query, 1, slot("one"), 0.0)), "query row does not read 1"),
        (at_head(query=entry(head.query, 0, slot("one"), 1.0)), "axis reads no inputs"),
        (at_head(key=entry(head.key, 0, slot("x.x"), 1.0)), "slot that keys or values read is written"),
        (at_head(key=entry(head.key, 0, slot("slope1"), 2.0)), "key row does not read one slot"),
        (at_head(key=entry(head.key, 0, slot("offset1"), 1.0)), "key row does not read one slot"),
        (at_head(value=entry(head.value, slot("y1"), slot("value1"), 2.0)), "value is scaled"),
        (at_head(value=entry(head.value, slot("y1"), slot("slope1"), 1.0)), "one slot twice"),
        (at_head(value=entry(head.value, slot("y1"), slot("x.x"), 1.0)), "slot that keys or values read is written"),
        (at_head(output=dense_matrix(np.eye(weights.width))), "value is not a table's"),
        (change(readout=entry(weights.readout, 0, weights.width + slot("y1"), 1.0)), "memory token"),
        (change(slots=tuple("1" if s == "one" else s for s in weights.slots)), "no slot for the constant"),
    ]  # fmt: skip
    for changed, said in cases:
        try:
            read_heads(changed)
        except ModelFileError as error:
            assert said in str(error)
        else:
            pytest.fail(f"not noticed: {said}")


def test_what_nobody_reads_and_what_is_added_up_makes_no_difference():
    """Not as it is laid out, but still tables: read, and run as the definition says."""
    model = model_named("one variable")
    x, slot, edit = points_of(model), model.weights.slot, partial(_with_entry, model.weights.memory)
    plain = model(x)[:, None]
    for memory, wanted in [
        (edit(1, slot("x.x"), 0.5), plain),
        (edit(0, slot("slope1"), 0.5), plain),  # of the data token, which is behind the gate
        (edit(0, slot("y1"), 0.5), plain + 0.5),
    ]:
        changed = _changed(model, memory=memory)
        found = run_numpy(read_tables(changed), x)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found, reference.run(changed, x), rtol=0, atol=1e-12)


def test_rationals_beside_constants_are_refused():
    model = model_named("one variable")
    memory = model.weights.memory
    shadow = dataclasses.replace(memory, exact=tuple(fmpq(1) for _ in memory.values))
    with pytest.raises(ModelFileError, match="holds rationals"):
        read_heads(_changed(model, memory=shadow))
