"""Circuits run by every executor, judged by Arb on the stored weights; misplaced entries are refused."""

import dataclasses

import numpy as np
import pytest
import torch
from flint import arb

import transformula as tf
from support.balls import BallTransformer
from support.circuit_models import SMALL
from support.one_layer_models import DTYPES, points_of, truth
from transformula.compiler.certify import pack
from transformula.compiler.table_reading import read_circuit
from transformula.errors import ModelFileError
from transformula.kernel.arithmetic import precision
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.folder.weights import Attention, Block
from transformula.runtime import reference
from transformula.runtime.matrices import dense_matrix
from transformula.runtime.program import numpy_backend
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.weights_program import read_tables

EACH = pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in SMALL for d in DTYPES])


def _largest(rows, others) -> float:
    with precision(300):
        sizes = [abs(a - b) for pair in zip(rows, others, strict=True) for a, b in zip(*pair, strict=True)]
        assert all(s.is_finite() and s.rad() < 1e-60 for s in sizes)
        return max(float(s.lower()) for s in sizes)


@EACH
def test_both_halves_of_the_claim(name, dtype, circuits, tmp_path):
    """|T_w − f| ≤ approximation in 300 bits, |computed − T_w| ≤ rounding for every executor."""
    model = circuits(name, dtype)
    assert model.construction == "circuit" and model.weights.dtype == dtype
    x = points_of(model, 10, seed=1).astype(dtype).astype(float)
    low, high = np.array(model.box.floats()).T
    x = np.clip(x, low, high)  # all of these boxes have ends that float32 knows
    exact = BallTransformer(model.weights)
    rows = [exact(point) for point in x]
    assert _largest(rows, [truth(model, point) for point in x]) <= model.certificate.approximation
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
    again, _ = unpack(pack(model.weights, model.description, {}))
    assert np.array_equal(reference.run(again, x), results["reference"])
    loaded = tf.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded(x), model(x))


def test_chunks_do_not_change_the_numbers(circuits, monkeypatch):
    model = circuits("kinks")
    x = points_of(model, 500)
    whole = model(x)
    monkeypatch.setattr(numpy_backend, "CHUNK_FLOATS", 1)
    monkeypatch.setattr(numpy_backend, "FEWEST", 7)
    np.testing.assert_allclose(model(x), whole, rtol=0, atol=1e-12)


def test_gradients_follow_the_formula(circuits):
    model = circuits("product")
    x = torch.tensor([[1.0, 2.0], [0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    model(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[2, 1], [1, 0.5]], atol=1e-3)


def _with(weights, **changes):
    return dataclasses.replace(weights, **changes)


def _edited(matrix, edit):
    dense = matrix.dense().astype(float)
    edit(dense)
    return dense_matrix(dense, str(matrix.values.dtype))


def _head_changed(weights, part, edit, block=0, head=0):
    heads = list(weights.blocks[block].attention.heads)
    heads[head] = dataclasses.replace(heads[head], **{part: _edited(getattr(heads[head], part), edit)})
    blocks = list(weights.blocks)
    blocks[block] = dataclasses.replace(blocks[block], attention=Attention(tuple(heads)))
    return _with(weights, blocks=tuple(blocks))


def _attention_changed(weights, **changes):
    first = weights.blocks[0]
    first = dataclasses.replace(first, attention=dataclasses.replace(first.attention, **changes))
    return _with(weights, blocks=(first, *weights.blocks[1:]))


def _set(row, column, value):
    def edit(dense):
        dense[row, column] = value

    return edit


@pytest.fixture(scope="module")
def kinks(circuits):
    return circuits("kinks").weights


def test_the_reader_refuses_what_is_out_of_place(kinks):
    w = kinks
    slot = w.slot
    wire = next(k for k, name in enumerate(w.slots) if name.startswith("w") and name[1:].isdigit())
    first = w.blocks[0].attention.heads[0]
    written = int(first.value.rows[0])
    cases = {
        "input scaled": _with(w, embedding=_edited(w.embedding, _set(slot("x.x"), 0, 2.0))),
        "input twice": _with(w, embedding=_edited(w.embedding, _set(slot("value1"), 0, 1.0))),
        "a second data token": _with(w, embedding=_edited(w.embedding, _set(w.width + slot("x.x"), 0, 1.0))),
        "data token has a value": _with(w, memory=_edited(w.memory, _set(0, slot("value1"), 1.0))),
        "one is two": _with(w, memory=_edited(w.memory, _set(0, slot("one"), 2.0))),
        "memory carries the constant": _with(w, memory=_edited(w.memory, _set(1, slot("one"), 1.0))),
        "memory carries an input": _with(w, memory=_edited(w.memory, _set(1, slot("x.y"), 0.1))),
        "a wire is not empty": _with(w, memory=_edited(w.memory, _set(0, wire, 0.1))),
        "a memory token's wire is not empty": _with(w, memory=_edited(w.memory, _set(1, wire, 0.1))),
        "two tables": _with(w, memory=_edited(w.memory, _set(1, slot("gate0"), 1.0))),
        "half a mark": _with(w, memory=_edited(w.memory, _set(0, slot("gate0"), 0.5))),
        "offset row scaled": _head_changed(w, "query", _set(1, slot("one"), 2.0)),
        "gate row reads an input": _head_changed(w, "query", _set(2, slot("x.x"), 1.0)),
        "argument reads a mark's neighbour": _head_changed(w, "query", _set(0, slot("value1"), 1.0)),
        "argument reads an empty wire": _head_changed(w, "query", _set(0, written, 1.0)),
        "key reads an input": _head_changed(w, "key", _set(0, slot("x.x"), 1.0)),
        "key scaled": _head_changed(w, "key", _set(0, slot("slope1"), 2.0)),
        "gate reads the value": _head_changed(w, "key", _set(2, slot("value1"), 1.0)),
        "value scaled": _head_changed(w, "value", _set(written, slot("value1"), 2.0)),
        "value writes twice": _head_changed(w, "value", _set(wire + 1, slot("value1"), 1.0)),
        "value writes an input": _head_changed(
            w, "value", lambda d: (d.fill(0), d.__setitem__((slot("x.x"), slot("value1")), 1))
        ),
        "value writes a mark": _head_changed(
            w, "value", lambda d: (d.fill(0), d.__setitem__((slot("gate1"), slot("value1")), 1))
        ),
        "no table": _head_changed(w, "key", lambda d: d.__setitem__((2, slice(None)), -1e5)),
        "readout of memory": _with(w, readout=_edited(w.readout, _set(0, w.width + wire, 1.0))),
        "readout of the slope": _with(w, readout=_edited(w.readout, _set(0, slot("slope1"), 1.0))),
        "hardmax": _attention_changed(w, kind="hardmax"),
        "scaled scores": _attention_changed(w, scale=0.5),
    }  # fmt: skip
    harmless = {  # what nobody reads, or what is added up as the definition says
        "data token has a value", "memory carries an input", "a wire is not empty",
        "a memory token's wire is not empty", "argument reads a mark's neighbour", "argument reads an empty wire",
        "value writes an input", "readout of the slope",
    }  # fmt: skip
    x = np.random.default_rng(0).uniform([-1, 0], [1, 2], size=(20, 2))
    for what, changed in cases.items():
        if what in harmless:
            np.testing.assert_allclose(
                run_numpy(read_tables(changed), x),
                reference.run(changed, x),
                rtol=0,
                atol=1e-9,
                err_msg=what,
            )
            continue
        with pytest.raises(ModelFileError):
            read_circuit(changed)
            pytest.fail(f"accepted: {what}")


def test_another_feed_forward_layer_is_run_as_defined_or_refused(kinks):
    place = next(k for k, b in enumerate(kinks.blocks) if b.feed_forward is not None)
    layer = kinks.blocks[place].feed_forward

    def changed(**parts):
        blocks = list(kinks.blocks)
        blocks[place] = Block(blocks[place].attention, dataclasses.replace(layer, **parts))
        return _with(kinks, blocks=tuple(blocks))

    wire = int(layer.output.rows[0])
    cases = [
        changed(hidden_bias=_edited(layer.hidden_bias, _set(0, 0, 1.0))),
        changed(output_bias=_edited(layer.output_bias, _set(wire, 0, 1.0))),
        changed(output=_edited(layer.output, _set(wire, 0, 2.0))),
        changed(output=_edited(layer.output, lambda d: d.fill(0))),
        changed(hidden=_edited(layer.hidden, _set(0, wire, 1.0))),
        changed(hidden=_edited(layer.hidden, lambda d: d.fill(0))),
    ]
    x = np.random.default_rng(0).uniform([-1, 0], [1, 2], size=(20, 2))
    for case in cases:
        np.testing.assert_allclose(run_numpy(read_tables(case), x), reference.run(case, x), rtol=0, atol=1e-11)
    with pytest.raises(ModelFileError, match="is written"):
        read_circuit(changed(output=_edited(layer.output, _set(kinks.slot("one"), 0, 1.0))))
