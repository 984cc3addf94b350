import numpy as np
import pytest

import transformula as tf
from transformula.errors import InputError
from transformula.runtime import reference
from transformula.show.slices import attention_along, attention_at, point_in_box, slice_through


@pytest.fixture(scope="module")
def sine_sum():
    return tf.compile("sin(x1) + sin(x2)", on="x1..x2=0..2*pi", eps=1e-5)


def test_curve_and_surface_have_the_default_grids(sine_sum):
    surface = slice_through(sine_sum)
    assert surface.variables == ("x1", "x2") and surface.error.shape == (61, 61) and surface.held == {}
    curve = slice_through(sine_sum, variables=["x2"], at={"x1": 1.0})
    assert curve.held == {"x1": 1.0} and curve.error.shape == (401,)
    np.testing.assert_allclose(curve.formula, np.sin(1.0) + np.sin(curve.axes[0]), atol=1e-15)
    np.testing.assert_array_equal(curve.error, curve.model - curve.formula)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_points_are_floats_of_the_model_inside_the_box_and_errors_within_the_bound(dtype):
    model = tf.compile("log(x) + y/3", on="x=1/3..2, y=-pi..pi", eps=1e-2, dtype=dtype)
    surface = slice_through(model)
    for axis, (low, high) in zip(surface.axes, model.box.floats(), strict=True):
        assert axis.dtype == dtype and low <= float(axis[0]) and float(axis[-1]) <= high
    assert surface.accurate and surface.worst <= model.certificate.bound


def test_polynomial_errors_are_measured_below_the_rounding_of_numpy():
    model = tf.compile("(x - 2*y)**5", on="x=-1..1, y=-1..1")
    assert slice_through(model).worst <= model.certificate.bound


def test_undefined_places_are_nan():
    model = tf.compile("log(x) + y", on="x=1..2, y=0..1", eps=1e-3)
    assert np.isfinite(slice_through(model).error).all()
    held = slice_through(model, 0, ["y"], {"x": -1.0})
    assert np.isnan(held.error).all() and np.isnan(held.worst)


def test_a_long_formula_is_evaluated_in_floats():
    terms = " + ".join(f"{k}*x**{k % 5}*y" for k in range(1, 300))
    assert not slice_through(tf.compile(terms, on="x=0..1, y=0..1")).accurate


@pytest.mark.parametrize(
    "asked",
    [
        {"variables": ["z"]},
        {"variables": ["x1", "x1"]},
        {"variables": []},
        {"at": {"y": 1}},
        {"at": {"x1": float("nan")}},
        {"at": {"x1": "a"}},
        {"points": 1},
        {"points": 10_000},
        {"output": 3},
    ],
)
def test_what_can_not_be_sliced_is_refused(sine_sum, asked):
    with pytest.raises(InputError):
        slice_through(sine_sum, **asked)


def test_a_memorised_model_has_no_formula():
    with pytest.raises(InputError, match="samples"):
        slice_through(tf.memorize([[0.0], [1.0]], [1, 2]))


MODELS = {
    "lookup": lambda: tf.compile("sin(x) + cos(y)", on="x=0..3, y=0..3", eps=1e-4),
    "float32": lambda: tf.compile("sin(x)", on="x=0..3", eps=1e-2, dtype="float32"),
    "partition": lambda: tf.compile("sin(x)", on="x=0..3", eps=5e-2, construction="partition"),
    "circuit": lambda: tf.compile("exp(-x*y)*sin(x)", on="x=0..1, y=0..1", eps=1e-3, construction="circuit"),
    "polynomial": lambda: tf.compile("x**3*y", on="x=-1..2, y=0..1"),
    "sequence": lambda: tf.compile(["exp(a)", "max(a, b)"], on="a=0..1, b=0..1", eps=1e-3, shape=(2, 1)),
    "memorize": lambda: tf.memorize([[0, 0], [0, 1], [1, 1]], [[0, 1], [1, 0], [2, 2]]),
}


@pytest.mark.parametrize("name", MODELS)
def test_attention_is_what_the_definition_says(name):
    model = MODELS[name]()
    ends = zip(model.box.variables, model.box.floats(), strict=True)
    point = {v: low + 0.3 * (high - low) for v, (low, high) in ends}
    held = point_in_box(model, point)
    rows = np.array([[held[v] for v in model.weights.inputs]], dtype=model.weights.dtype)
    traced = reference.trace(model.weights, rows)
    heads = attention_at(model, point)
    assert len(heads) == sum(len(b.attention.heads) for b in model.weights.blocks)
    for head in heads:
        pattern = traced.patterns[head.block][head.head][0, 0]
        kept = np.sort(pattern)[::-1][: len(head.tokens)]
        np.testing.assert_allclose(np.sort(head.weights)[::-1], kept, rtol=1e-5, atol=1e-300)
        assert len(head.tokens) == len(head.weights) == len(head.values)
        if head.kind == "softmax":  # all of it goes to the head's own table
            assert head.weights.sum() == pytest.approx(1, abs=1e-6)


def test_heads_write_what_they_mix(sine_sum):
    held = {"x1": 1.0, "x2": 2.0}
    rows = np.array([[1.0, 2.0]])
    traced = reference.trace(sine_sum.weights, rows)
    slot = sine_sum.weights.slots.index("y1")
    written = sum(float(head.contributions.sum()) for head in attention_at(sine_sum, held))
    assert written == pytest.approx(float(traced.residuals[1][0, 0, slot]), rel=1e-12)
    assert [head.name for head in attention_at(sine_sum, held)] == ["sin(x1)", "sin(x2)"]


def test_attention_along_a_line_equals_its_points(sine_sum):
    axis, heads = attention_along(sine_sum, "x2", {"x1": 1.0}, points=7)
    for k, value in enumerate(axis):
        alone = attention_at(sine_sum, {"x1": 1.0, "x2": float(value)})
        for head, single in zip(heads, alone, strict=True):
            np.testing.assert_allclose(head.weights[k], single.weights, rtol=1e-12)


def test_circuit_heads_are_named_by_their_sub_expressions():
    heads = attention_at(MODELS["circuit"](), {})
    assert any("sin(x)" in head.name for head in heads) and all(head.name for head in heads)


def test_a_position_of_a_sequence_can_ask():
    model = MODELS["sequence"]()
    assert [h.query for h in attention_at(model, {}, query=1)] == ["position 1"]
    with pytest.raises(InputError, match="no data token"):
        attention_at(model, {}, query=2)
