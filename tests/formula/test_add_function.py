"""A new function is one entry in the kernel's table of functions: everything else follows from it."""

import numpy as np
import pytest
import torch
from flint import arb, arb_series

import transformula as tf
from transformula.export.onnx_files import onnx_bytes
from transformula.formula.evaluation import evaluate
from transformula.kernel.check import verify_files
from transformula.kernel.functions.function_table import FUNCTIONS
from transformula.kernel.functions.smooth_functions import from_taylor, primitive
from transformula.runtime.onnx_graph import onnx_executor

BOX = "x=-2..2, y=0..1"


def _gd(x: arb) -> arb:
    """The Gudermannian function, which has no entry."""
    return 2 * (x / 2).tanh().atan()


def _slope(u: arb_series) -> arb_series:
    return 2 / (u.exp() + (-u).exp())


@pytest.fixture
def gd(monkeypatch):
    """The entry of docs/architecture.md, "Adding a function"."""
    entry = from_taylor("gd", _gd, primitive(_gd, _slope), monotone=True, analytic=True, odd=True)
    monkeypatch.setitem(FUNCTIONS, "gd", entry)


def test_without_its_entry_the_function_is_unknown():
    with pytest.raises(tf.errors.FormulaError, match="gd"):
        tf.compile("gd(x)", on=BOX)


@pytest.mark.parametrize("text", ["gd(x) + y", "y*gd(x)"])
def test_one_entry_is_enough(gd, text):
    model = tf.compile(text, on=BOX, eps=1e-3)
    assert verify_files(model.packed, model.certificate.to_json()).verified
    x = np.random.default_rng(0).uniform([-2, 0], [2, 1], (200, 2))
    angle = 2 * np.arctan(np.tanh(x[:, 0] / 2))
    truth = angle + x[:, 1] if text == "gd(x) + y" else x[:, 1] * angle
    np.testing.assert_allclose(evaluate(model.formula.outputs[0], ("x", "y"), list(x.T)), truth, rtol=1e-12)
    runtimes = {
        "NumPy": model(x),
        "torch": model.to_torch()(torch.from_numpy(x)).detach().numpy(),
        "ONNX": onnx_executor(onnx_bytes(model.packed, model.certificate, proven=True))(x),
    }
    for name, values in runtimes.items():
        assert np.abs(values.ravel() - truth).max() <= model.certificate.bound, name
