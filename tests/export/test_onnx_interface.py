"""How an ONNX file is called: names, float32, guards, bounds, and what the checker says of each."""

import json

import numpy as np
import pytest

import transformula as tf
from transformula.errors import ExportError
from transformula.export.onnx_files import onnx_differences

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

#: Rows: inside, a corner, beyond one end, NaN, an infinity, and one float beyond an end.
ROWS = np.array([[0.5, 0.05], [1, 0.1], [1.1, 0.05], [np.nan, 0], [-np.inf, 0.1], [0.2, np.nextafter(0.1, 1)]])


@pytest.fixture(scope="module")
def model():
    return tf.compile(["exp(-x)*y", "x"], on="x=0..1, y=0..0.1", eps=1e-3)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return model.save(tmp_path_factory.mktemp("called") / "m")


def _run(model, path, rows=ROWS, **asked):
    session = ort.InferenceSession(str(model.to_onnx(path, **asked)))
    inputs = session.get_inputs()
    rows = rows.astype("float32" if inputs[0].type == "tensor(float)" else "float64")
    feed = dict(zip([i.name for i in inputs], rows.T, strict=True)) if len(inputs) > 1 else {inputs[0].name: rows}
    return [one.name for one in inputs], [one.name for one in session.get_outputs()], session.run(None, feed)


def test_every_variable_is_an_input_by_its_name(model, tmp_path):
    given, made, (values,) = _run(model, tmp_path / "a.onnx", ROWS[:2], inputs="named")
    assert given == ["x", "y"] and made == ["y_"]  # y is an input
    assert values == pytest.approx(model(ROWS[:2]), abs=1e-12)


@pytest.mark.parametrize("blocks", [False, True])
def test_a_guard_of_nan_answers_in_the_box_only(model, tmp_path, blocks):
    _, _, (values,) = _run(model, tmp_path / "a.onnx", guard="nan", blocks=blocks)
    assert np.isnan(values).all(axis=1).tolist() == [False, False, True, True, True, True]
    assert values[:2] == pytest.approx(model(ROWS[:2]), abs=1e-12)


def test_a_guard_that_clips_moves_rows_into_the_box(model, tmp_path):
    _, _, (values,) = _run(model, tmp_path / "a.onnx", guard="clip")
    assert np.isnan(values).all(axis=1).tolist() == [False] * 3 + [True] + [False] * 2
    assert values[[2, 4, 5]] == pytest.approx(model([[1, 0.05], [0, 0.1], [0.2, 0.1]]), abs=1e-12)


def test_the_bound_is_infinite_where_nothing_is_claimed(model, tmp_path):
    given, made, (_, bound) = _run(model, tmp_path / "a.onnx", bound=True)
    assert (given, made) == (["x"], ["y", "bound"]) and bound.shape == (6, 2)
    assert (bound[:2] == model.certificate.bound).all() and np.isinf(bound[2:]).all()


def test_float32_rows_are_answered_by_a_float64_model(model, tmp_path):
    _, _, (values, bound) = _run(model, tmp_path / "a.onnx", inputs="float32", guard="nan", bound=True)
    # the float32 number nearest to 0.1 is above it, and counts as the end of the box
    assert np.isnan(values).all(axis=1).tolist() == [False, False, True, True, True, False]
    assert values.dtype == np.float64 and np.isfinite(bound[1]).all()
    narrow = ROWS[:1].astype("float32").astype(float)
    assert values[:1] == pytest.approx(model(narrow), abs=1e-12)


def test_float32_rows_just_outside_have_no_bound_without_a_guard(model, tmp_path):
    _, _, (_, bound) = _run(model, tmp_path / "a.onnx", inputs="float32", bound=True)
    assert np.isinf(bound[1]).all()


def test_the_bound_of_a_float32_model_is_rounded_up(tmp_path):
    narrow = tf.compile("exp(-x)", on="x=0..0.1", eps=1e-3, dtype="float32")
    _, _, (values, bound) = _run(narrow, tmp_path / "a.onnx", np.array([[0.1], [0.2]]), guard="nan", bound=True)
    assert bound.dtype == np.float32 and float(bound[0, 0]) >= narrow.certificate.bound
    assert np.isfinite(values[0, 0]) and np.isnan(values[1, 0])


def test_sequences_are_guarded_position_by_position(tmp_path):
    model = tf.compile("sin(x)", on="x=0..1", eps=1e-2, shape=(2, 1))
    rows = np.array([[[0.5], [1.0]], [[0.5], [1.5]]])
    session = ort.InferenceSession(str(model.to_onnx(tmp_path / "a.onnx", guard="nan", bound=True)))
    values, bound = session.run(None, {"x": rows})
    assert np.isfinite(values[0]).all() and np.isnan(values[1]).all() and np.isinf(bound[1]).all()
    with pytest.raises(ExportError, match="a sequence has no named inputs"):
        model.to_onnx(tmp_path / "b.onnx", inputs="named")


@pytest.mark.parametrize("asked", [{"inputs": "named,float32", "guard": "nan", "bound": True}, {"guard": "clip"}])
def test_the_checker_knows_the_interface(model, folder, tmp_path, asked):
    path = model.to_onnx(tmp_path / "a.onnx", **asked)
    assert onnx_differences(folder, path) == ()
    file = onnx.load(path)
    entry = next(p for p in file.metadata_props if p.key == "interface")
    for said in (
        json.dumps({**json.loads(entry.value), "guard": "none"}),
        "[",
        '{"bound": 1, "guard": []}',
        "[" * 9999,
    ):
        entry.value = said
        onnx.save(file, tmp_path / "b.onnx")
        assert onnx_differences(folder, tmp_path / "b.onnx")


def test_a_widened_guard_is_seen(model, folder, tmp_path):
    file = onnx.load(model.to_onnx(tmp_path / "a.onnx", guard="nan"))
    high = next(t for t in file.graph.initializer if t.name == "rows/high")
    high.CopyFrom(onnx.numpy_helper.from_array(np.array([[9.0, 9.0]]), "rows/high"))
    onnx.save(file, tmp_path / "a.onnx")
    assert "rows/high" in onnx_differences(folder, tmp_path / "a.onnx")[0]


def test_unknown_interfaces_are_refused(model, tmp_path):
    for asked, said in (
        ({"inputs": "float16"}, "choose named, float32 or named,float32"),
        ({"guard": "zero"}, "choose none, nan or clip"),
        ({"inputs": 3}, "unknown kind of inputs 3"),
    ):
        with pytest.raises(ExportError, match=said):
            model.to_onnx(tmp_path / "a.onnx", **asked)
    mean = tf.compile("sin(x)", on="x=0..1", eps=0.2, construction="yun")
    with pytest.raises(ExportError, match="the mean over the box"):
        mean.to_onnx(tmp_path / "a.onnx", bound=True)
