"""Attention that no stock architecture has, in a file of code that transformers loads; polynomials as circuits."""

import numpy as np
import pytest

import transformula as tf
from support.in_context_models import learner
from transformula.compiler.stock_form import circuit_form, stock_form
from transformula.errors import ExportError, ModelFileError
from transformula.export.hf_files import hf_differences
from transformula.export.parity import sample_points
from transformula.runtime import reference

transformers = pytest.importorskip("transformers")
MODELS = {
    "hardmax": lambda: tf.compile("x*y - y**3/3", on="x=-1..1, y=0..2"),
    "float32": lambda: tf.compile("x**2 + y", on="x=0..1, y=0..1", dtype="float32"),
    "sequence": lambda: tf.compile(["a*b", "b"], on="a=0..1, b=0..1", shape=(2, 2)),
    "linear attention": lambda: learner("descent"),
    "a loop": lambda: learner("looped lasso"),
    "softmax": lambda: tf.compile("sin(x)", on="x=0..1"),
}


@pytest.mark.parametrize("name", MODELS)
def test_transformers_runs_the_file_of_code(name, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    model = MODELS[name]()
    folder = model.to_hf(tmp_path / "hf", arch="transformula")
    assert hf_differences(model, folder) == ()
    loaded = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True, local_files_only=True)
    x = sample_points(model.formula, model.weights)[:50]
    with torch.no_grad():
        found = loaded(torch.from_numpy(x)).logits.numpy().reshape(len(x), -1)
    wanted = reference.run(model.weights, x)
    assert found.dtype == model.weights.dtype
    assert np.abs(found - wanted).max() <= 2 * model.certificate.rounding
    code = folder / "modeling_formula.py"
    code.write_text(code.read_text().replace("torch.relu", "torch.tanh"))
    assert hf_differences(model, folder) == ("modeling_formula.py is not the one of this model",)


def test_default_architectures(tmp_path):
    """Linear attention has no stock architecture; a polynomial's formula has one, as a circuit."""
    with pytest.raises(ExportError, match="--arch transformula"):
        learner("descent").to_hf("nowhere", arch="t5")
    model = MODELS["hardmax"]()
    assert hf_differences(circuit_form(model), model.to_hf(tmp_path / "hf")) == ()


def test_another_circuit_is_refused(tmp_path):
    """A circuit beside a polynomial is believed if it is that of the formula, and proven."""
    model = MODELS["hardmax"]()
    tf.compile("x*y - y**3/4", on="x=-1..1, y=0..2", construction="circuit").save(tmp_path / "circuit")
    with pytest.raises(ModelFileError, match="not the circuit of this formula"):
        stock_form(model, tmp_path, "t5")


def test_a_tolerance_that_is_not_proven_is_loosened():
    """Without a tolerance of its own a float32 polynomial takes what can be proven of its circuit."""
    model = MODELS["float32"]()
    assert 1e-6 < circuit_form(model).certificate.bound < 1e-4
