"""Compact memories: every label comes out exactly, in few parameters, and nothing else passes."""

import copy
import tracemalloc

import numpy as np
import pytest

import transformula as tf
from support.folders import open_model
from transformula.compiler import policy
from transformula.compiler.gallery import memories as compact
from transformula.errors import InputError, NotProvenError
from transformula.kernel.check import verify_files
from transformula.kernel.folder.model_files import unpack
from transformula.runtime import reference


def _samples(count, inputs=3, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (count, inputs)).astype(dtype), rng.integers(0, 2, count)


@pytest.fixture(scope="module")
def model():
    return tf.memorize(*_samples(60), compact=True)


def test_a_thousand_labels_in_fewer_than_a_thousand_parameters(monkeypatch):
    monkeypatch.setattr(policy, "DIRECTIONS", 1)  # along others there may be fewer still
    x, y = _samples(1000, 4)
    model = tf.memorize(x, y, compact=True)
    assert model.parameter_count < 1000
    assert tf.verify(model).verified and model.certificate.bound < 1e-250
    for values in (model(x), reference.run(model.weights, x)[:, 0]):
        assert np.array_equal(values, y)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("count", "inputs"), [(1, 1), (2, 1), (40, 1), (100, 2), (100, 7)])
def test_all_executors_give_the_labels(count, inputs, dtype):
    torch = pytest.importorskip("torch")
    runtime = pytest.importorskip("onnxruntime")
    from transformula.export.onnx_files import onnx_bytes

    x, y = _samples(count, inputs, dtype, seed=count)
    y = 3.0 * y - 1.0  # any two values
    model = tf.memorize(x, y, compact=True, dtype=dtype)
    found = [model(x).ravel(), reference.run(model.weights, x)[:, 0]]
    found += [model.to_torch(blocks=b)(torch.from_numpy(x)).detach().numpy().ravel() for b in (False, True)]
    for blocks in (False, True):
        graph = onnx_bytes(model.packed, model.certificate, blocks=blocks, proven=True)
        found.append(runtime.InferenceSession(graph).run(None, {"x": x})[0].ravel())
    for values in found:
        assert np.array_equal(values, y)


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_scale_does_not_matter(scale):
    x, y = _samples(50)
    model = tf.memorize(scale * x, y, compact=True)
    assert np.array_equal(model(scale * x), y)


def test_lattices_have_ties_along_many_directions():
    x = np.stack(np.meshgrid(*[np.arange(6.0)] * 3), axis=-1).reshape(-1, 3)
    y = (x.sum(axis=1) % 2).astype(int)
    assert np.array_equal(tf.memorize(x, y, compact=True)(x), y)


def test_a_changed_label_is_refused(model):
    data = open_model(model)
    for k in (0, 17, 59):
        changed = copy.deepcopy(data)
        changed.body["samples"]["y"][k] = [1 - changed.body["samples"]["y"][k][0]]
        assert not verify_files(*changed.forged()).verified


def test_a_moved_sample_is_refused_or_true(model):
    data = open_model(model)
    rng = np.random.default_rng(0)
    for _ in range(30):
        changed = copy.deepcopy(data)
        k = rng.integers(60)
        changed.body["samples"]["x"][k] = rng.uniform(-1, 1, 3).tolist()
        _true_or_refused(changed)


def _true_or_refused(changed):
    packed, claim = changed.forged()
    if verify_files(packed, claim).verified:
        weights, description = unpack(packed)
        x, y = (np.array(description.samples[name]) for name in ("x", "y"))
        assert np.array_equal(reference.run(weights, x), y)
        return True
    return False


def test_every_number_matters_or_does_no_harm(model):
    """Each stored number changed in turn: a little, to a neighbour, by its sign, to something large."""
    data = open_model(model)
    rng = np.random.default_rng(1)
    passed = 0
    names = [name for name in data.arrays if name.endswith(".values") and len(data.arrays[name])]
    for name in names:
        for change in (np.negative, lambda v: np.nextafter(v, 9), lambda v: v + 1, lambda v: v * 1e30, lambda v: v / 2):
            changed = copy.deepcopy(data)
            values = changed.arrays[name]
            k = rng.integers(len(values))
            values[k] = change(values[k])
            passed += _true_or_refused(changed)
    assert passed < len(names)  # a hair more on a score, a bit that no sample reads


@pytest.mark.parametrize("part", ["rows", "cols"])
def test_every_place_matters_or_does_no_harm(model, part):
    data = open_model(model)
    rng = np.random.default_rng(2)
    for array in [a for a in data.arrays if a.endswith(f".{part}") and len(data.arrays[a])]:
        limit = data.body["shapes"][array.rsplit(".", 1)[0]][part == "cols"]
        if limit > 1:
            changed = copy.deepcopy(data)
            k = rng.integers(len(changed.arrays[array]))
            changed.arrays[array][k] = (changed.arrays[array][k] + rng.integers(1, limit)) % limit
            _true_or_refused(changed)


def test_words_that_the_format_cannot_carry_are_refused(monkeypatch):
    monkeypatch.setattr(compact, "MOST_BITS", {"float64": 30})
    monkeypatch.setattr(policy, "BUCKET_WIDTHS", (0.1,))  # narrow buckets want many bits
    real = compact._Cutter.cut
    monkeypatch.setattr(
        compact._Cutter, "cut", lambda self, bits, limit: real(self, bits, limit) if bits == 30 else None
    )
    with pytest.raises(NotProvenError, match="whole numbers that float64 holds"):
        tf.memorize(*_samples(300), compact=True)


def test_halves_that_add_up_to_whole_numbers_are_refused(model):
    """A half in the data token, doubled later, would be rounded away beside a large number."""
    data = open_model(model)
    memory, slots = "memory", data.body["slots"]
    for name, value in (("rows", 0), ("cols", slots.index("label")), ("values", 0.5)):
        array = data.arrays[f"{memory}.{name}"]
        data.arrays[f"{memory}.{name}"] = np.append(array, np.array(value, dtype=array.dtype))
    data.arrays["readout.values"] = 2 * data.arrays["readout.values"]
    result = verify_files(*data.forged())
    assert not result.verified


def test_what_it_is_not_for():
    x, y = _samples(20)
    for labels in (np.arange(20), np.column_stack([y, y])):
        with pytest.raises(InputError, match="one output with two values"):
            tf.memorize(x, labels, compact=True)
    close = np.array([[0.0], [np.nextafter(0.0, 1.0)], [1.0]])
    with pytest.raises((InputError, NotProvenError), match="too close"):
        tf.memorize(close, [0, 1, 0], compact=True)
    with pytest.raises(InputError, match="same point in this dtype"):
        tf.memorize([[1.0], [1.0 + 1e-12]], [0, 1], compact=True, dtype="float32")


# -- folders that keep a checker busy -----------------------------------------------------------------------------


def _with_units(block, slot, count, to=None):
    """A model of two samples with more hidden units, which read one slot and write to another or nowhere."""
    data = open_model(tf.memorize([[0.0], [1.0]], [0, 1], compact=True))
    _add_units(data, block, slot, count, to)
    return data


def _add_units(data, block, slot, count, to=None):
    slots, prefix = data.body["slots"], f"blocks.{block}.feed_forward."
    units = data.body["shapes"][prefix + "hidden"][0] + np.arange(count)
    added = [("hidden", units, np.full(count, slots.index(slot)))]
    if to is not None:
        added.append(("output", np.full(count, slots.index(to)), units))
    for name, rows, cols in added:
        for part, values in (("rows", rows), ("cols", cols), ("values", np.ones(count))):
            array = data.arrays[f"{prefix}{name}.{part}"]
            data.arrays[f"{prefix}{name}.{part}"] = np.append(array, values).astype(array.dtype)
    for name, axis in (("hidden", 0), ("hidden_bias", 0), ("output", 1)):
        data.body["shapes"][prefix + name][axis] += count


def test_many_samples_of_many_units_do_not_fill_the_memory():
    data = _with_units(2, "rest", 600)
    assert verify_files(*data.forged()).verified
    data.body["samples"] = {"x": [[0], [1]] * 20_000, "y": [[0], [1]] * 20_000}
    result = verify_files(*data.forged())
    assert not result.verified and "too many" in result.reasons[0]


@pytest.mark.parametrize("compact", [False, True])
def test_a_small_folder_of_many_tokens_does_not_fill_the_memory(compact):
    data = open_model(tf.memorize([[0.0], [1.0]], [0, 1], compact=compact))
    width = len(data.body["slots"])
    data.body["tokens"] = tokens = 50_000_000 // width
    shapes = data.body["shapes"]
    shapes["memory"][0] = tokens
    shapes["embedding"][0] = shapes["readout"][1] = tokens * width
    packed, claim = data.forged()
    tracemalloc.start()
    assert "too large" in verify_files(packed, claim).reasons[0]
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()
