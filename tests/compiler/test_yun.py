"""Yun's construction: its stages, its sizes, what it refuses, and that nobody takes its mean for more."""

import json

import numpy as np
import pytest

import transformula as tf
from transformula.compiler.gallery.yun import Shifts, YunPlan, assemble, stages
from transformula.errors import InputError, NotProvenError
from transformula.runtime import reference
from transformula.show.card import card
from transformula.show.describe import describe, summary
from transformula.show.report_page import report_page


@pytest.fixture(scope="module")
def model():
    return tf.compile("x*y", on="x=0..1, y=0..1", eps=0.05, construction="yun")


def test_sizes(model):
    """Eight layers whatever the tolerance, a unit for each context; twice as fine takes four times as many."""
    finer = tf.compile("x*y", on="x=0..1, y=0..1", eps=0.025, construction="yun")
    assert (
        model.layers == finer.layers == 8 and model.most_heads == 2 and model.tokens == 2 and model.memory_tokens == 0
    )
    found = {one: [stage.what for stage in stages(one.weights)] for one in (model, finer)}
    assert found[model] == ["11 steps", "selective shifts", "36 contexts", "smallest and largest value"]
    assert found[finer][2] == "121 contexts"
    assert (model.parameter_count, finer.parameter_count) == (310, 880)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("counts", [(2, 2), (3, 5), (4, 1, 3), (1, 1), (2, 2, 2, 2)])
def test_contexts_are_told_apart_by_attention(counts, narrow):
    """At the middle of every cell the last token's z is the number that the plan gives this context, no other has it."""
    values = np.random.default_rng(0).uniform(-1, 1, (*counts, 1))
    names = tuple(f"x{k}" for k in range(len(counts)))
    limits = values.min(axis=tuple(range(len(counts)))), values.max(axis=tuple(range(len(counts))))
    plan = YunPlan(names, ((0.0, 1.0),) * len(counts), counts, values, limits, 1024.0, "float64", narrow)
    weights, shifts = assemble(plan), Shifts.of(plan)
    grid = np.meshgrid(*((np.arange(c) + 0.5) / c for c in counts), indexing="ij")
    x = np.stack([axis.ravel() for axis in grid], axis=1)
    found = {stage.name: stage for stage in stages(weights)}
    after = found["contextual mapping"].last
    z = reference.trace(weights, x).residuals[after + 1][:, -1, weights.slot("z")]
    assert len(set(shifts.ids)) == len(x) and np.abs(z - np.array(shifts.ids, dtype=float)).max() < 1e-3
    assert np.abs(reference.run(weights, x) - values.reshape(-1, 1)).max() < 1e-12
    steps, contexts = sum(counts) - 1, len(x)
    shifted = after - found["contextual mapping"].first + 1
    assert shifted == (sum(counts) if narrow else len(counts))
    assert len(weights.blocks) == (2 * steps + shifted + 2 * contexts if narrow else 4 + shifted + 2 * (contexts > 1))


def test_one_variable_needs_no_attention():
    model = tf.compile("exp(x)", on="x=-1..1", eps=0.1, construction="yun")
    assert model.layers == 6 and model.heads == 0
    assert [stage.name for stage in stages(model.weights)] == ["quantisation", "value mapping", "limits"]


@pytest.mark.parametrize("formula", ["2/3", "x", "x + 0*y"])
def test_unused_variables_and_constants(formula):
    model = tf.compile(formula, on="x=0..1, y=0..1", eps=0.1, construction="yun")
    assert tf.verify(model).verified and model.certificate.bound <= 0.1
    assert np.abs(model([[0.3, 0.9]]) - (2 / 3 if formula == "2/3" else 0.3)).max() <= model.certificate.mean.outside


def test_far_from_zero_and_wide_boxes():
    for formula, box in (("x/1000 - 1", "x=1000..1001"), ("x*y/1e12", "x=-1e6..1e6, y=-1e6..1e6"), ("y", "y=-pi..e")):
        for dtype in ("float64", "float32"):
            if (formula, dtype) == ("x/1000 - 1", "float32"):
                continue
            assert tf.compile(formula, box, 0.2, "yun", dtype).certificate.bound <= 0.2


def test_auto_never_takes_it():
    assert tf.compile("sin(x*y)", on="x=0..1, y=0..1", eps=0.3).certificate.mean is None


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"eps": 1e-4}, NotProvenError, r"more than 1024 contexts \(about 6\.\de\+06\): ask for a larger eps"),
        ({}, NotProvenError, "contexts"),
        ({"eps": 0.1, "layers": 1}, InputError, "several layers"),
        ({"eps": 0.1, "multi_head": True}, InputError, "polynomial"),
    ],
)
def test_refusals(arguments, error, said):
    with pytest.raises(error, match=said):
        tf.compile("x*y", on="x=0..1, y=0..1", construction="yun", **arguments)


def test_too_many_variables_and_sequences_are_refused():
    with pytest.raises(InputError, match="at most 6 variables, not 7"):
        tf.compile("x1*x7", on="x1..x7=0..1", eps=0.5, construction="yun")
    with pytest.raises(InputError, match="sequences"):
        tf.compile(["x", "y"], on="x=0..1, y=0..1", eps=0.5, construction="yun", shape=(2, 1))


def test_whoever_names_the_bound_names_the_mean(model):
    """No "bound" that a script could take for one at every point, and the word in every text."""
    assert "proven mean error <= 0.0432" in repr(model)
    facts = summary(model)
    assert not {"bound", "eps", "approximation", "rounding"} & set(facts)
    assert facts["mean_bound"] <= facts["mean_eps"] == 0.05 and 0 < facts["seams"] < 1e-3
    assert facts["outside_seams"] > facts["mean_bound"] and facts["largest"] < 1
    assert "mean_bound" in describe(model)["proven"] and describe(model)["stages"]["stages"][1].startswith(
        "2 to 3: con"
    )
    page = report_page(model, "folder", tf.verify(model))
    assert "mean of |computed − formula| ≤" in page and "claimed over the box, not at every point" in page
    assert "On average over the box (and not at every point)" in page and "means over the box" in page
    assert "outside seams" in page and "quantisation" in page
    assert "mean |error| ≤ 0.0432" in card(model)
    assert "mean" in json.loads(model.certificate.to_json())


def test_exported_files_name_the_mean(model):
    onnx = pytest.importorskip("onnx")
    from transformula.export.onnx_files import onnx_bytes

    graph = onnx.ModelProto.FromString(onnx_bytes(model.packed, model.certificate, proven=True))
    said = {entry.key: entry.value for entry in graph.metadata_props}
    assert "bound" not in said and float(said["mean_bound"]) == model.certificate.bound
    assert float(said["outside_seams"]) == model.certificate.mean.outside
