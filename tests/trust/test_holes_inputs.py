"""Inputs beyond the format's range: a dense product multiplies them by zero, and infinity times zero is not a number."""

import copy

import numpy as np
import pytest

import transformula as tf
from support.attention_models import attention_model
from support.folders import open_model
from transformula.errors import NotProvenError
from transformula.kernel.check import verify_files
from transformula.kernel.folder.model_files import unpack
from transformula.runtime import reference

CASES = {
    "polynomial": lambda: tf.compile("x*x", on="x=0..1, y=0..1", dtype="float32"),
    "lookup": lambda: tf.compile("sin(x)", on="x=0..1, y=0..1", dtype="float32", eps=1e-2, construction="lookup"),
    "linear attention": lambda: attention_model("one head", "float32"),
}
BEYOND = {"y=0..1": "y=0..10**39", "x1=-1..1": "x1=-10**39..1"}


@pytest.mark.parametrize("name", CASES)
def test_an_input_beyond_the_format_that_nobody_reads(name):
    """Everything else stands: the formula does not use the input, and the embedding holds nothing for it."""
    data = open_model(CASES[name]())
    if name == "linear attention":  # its heads use every input: take one away, from weights and formula
        keep = data.arrays["embedding.cols"] != 0
        for part in ("rows", "cols", "values"):
            data.arrays[f"embedding.{part}"] = data.arrays[f"embedding.{part}"][keep]
        data.body["formulas"] = ["0*x1"]
    data.claim |= {"approximation": 100.0, "rounding": 1.0, "eps": 102.0}
    assert verify_files(*data.forged()).verified
    wide = copy.deepcopy(data)
    for old, new in BEYOND.items():
        wide.body["box"] = wide.body["box"].replace(old, new, 1)
    assert wide.body["box"] != data.body["box"]
    packed, claim = wide.forged()
    weights = unpack(packed)[0]
    rows = np.full((1, len(weights.inputs)), 0.5)
    rows[0, list(weights.inputs).index("y" if "y" in weights.inputs else "x1")] = 1e39
    with np.errstate(all="ignore"):
        assert not np.isfinite(reference.run(weights, rows)).all()
    result = verify_files(packed, claim)
    assert not result.verified and "beyond float32's range" in " ".join(result.reasons)


def test_a_sample_beyond_the_format():
    data = open_model(tf.memorize([[0, 1], [1, 1]], [0, 1], dtype="float32"))
    assert verify_files(*data.forged()).verified
    for row in data.body["samples"]["x"]:
        row[1] = 1e39
    result = verify_files(*data.forged())
    assert not result.verified and "beyond float32's range" in " ".join(result.reasons)


@pytest.mark.parametrize("given", [{"a": "1e39", "x": "1e-39"}, {"x": "1e39", "a": "1e-39"}])
def test_a_factor_of_a_recurrence_beyond_the_format(given):
    """The product is small, its factor is infinite."""
    with pytest.raises(NotProvenError, match="beyond float32's range"):
        tf.in_context("recurrence", steps=1, dtype="float32", **given)
