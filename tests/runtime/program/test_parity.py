"""A slice of benchmarks/parity.py: every back-end is within the certified rounding of the exact function."""

import numpy as np
import pytest

import parity
import transformula as tf
from support.export_models import exported
from transformula.runtime import reference

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 2.0**-60, reason="longdouble has no more digits than float64 here"
)


@pytest.mark.parametrize("dtype", parity.DTYPES)
@pytest.mark.parametrize("name", ["polynomial", "lookup", "lookup in two variables", "circuit"])
def test_every_back_end_is_within_the_rounding_of_the_exact_function(name, dtype, circuits):
    row = parity.measure(exported(name, dtype, circuits), points=4000, alone=20, tie=10)
    assert parity.within(row)
    assert row["tied"] <= 0.1 * row["rounding"]  # the program is the blocks


def test_an_error_above_the_rounding_is_seen(monkeypatch):
    model = tf.compile("sin(x)", on="x=-1..1", eps=1e-3, construction="lookup")
    runs, off = parity.back_ends(model), 1.1 * model.certificate.rounding
    monkeypatch.setattr(parity, "back_ends", lambda _: runs | {"onnx": lambda x: runs["onnx"](x) + off})
    assert not parity.within(parity.measure(model, points=500, alone=4, tie=4))


def test_transitions_are_where_two_tokens_weigh_the_same():
    model = tf.compile("tanh(50*x - 10)", on="x=-1..1", eps=1e-3, construction="lookup")
    x = parity.transitions(model, np.array([-1.0]), np.array([1.0]), np.random.default_rng(0))
    assert len(x) > 30 and np.abs(x - 0.2).max() < 1e-12
    seen = reference.trace(model.weights, x[:1]).patterns[0][0][0, 0]
    assert np.sort(seen)[-2:] == pytest.approx(0.5, abs=1e-9)
