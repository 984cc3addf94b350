"""Variables of the box that no formula uses: data sets have such columns. Every construction and executor takes them."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest
import torch

import transformula as tf
from transformula.runtime.reference import run

CASES = [
    ("x1*x3 + 1", "polynomial", {}),
    ("x1*x3 + 1", "polynomial", {"multi_head": True}),
    ("sin(x1)", "polynomial", {"eps": 1e-2}),
    ("sin(x1) + abs(x3)", "lookup", {"eps": 1e-2}),
    ("sin(x1*x3)", "lookup", {"eps": 1e-1}),
    ("sin(x1)", "partition", {"eps": 1e-1}),
    ("sin(x1)*exp(x3)", "circuit", {"eps": 1e-1}),
    ("x3", "circuit", {"eps": 1e-2}),
    ("pi", "polynomial", {}),
    ("3", "lookup", {"eps": 1e-2}),
    ("3", "circuit", {"eps": 1e-2}),
]


@pytest.mark.parametrize(("formula", "construction", "options"), CASES)
def test_every_construction_and_executor_takes_them(formula, construction, options, tmp_path):
    model = tf.compile(formula, "x1..x3=-1..1", construction=construction, **options)
    assert tf.verify(model.save(tmp_path / "model")).verified
    assert model.unused == tuple(n for n in ("x1", "x2", "x3") if n not in formula)
    x = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    truth = eval(formula, {**vars(np), **{f"x{k + 1}": x[:, k] for k in range(3)}})  # the test's own text
    session = onnxruntime.InferenceSession(str(model.to_onnx(tmp_path / "model.onnx")))
    outputs = [
        model(x),
        run(model.weights, x),
        model(torch.tensor(x)).numpy(),
        model.to_torch(blocks=True)(torch.tensor(x)).detach().numpy(),
        session.run(["y"], {"x": x})[0],
    ]
    for y in outputs:
        assert np.abs(np.ravel(y) - truth).max() <= model.certificate.bound


def test_the_command_line_names_them(capsys, monkeypatch):
    from transformula.cli import main

    monkeypatch.setattr("sys.argv", ["transformula", "compile", "x", "--on", "x=0..1, y=0..1", "--json"])
    with pytest.raises(SystemExit):
        main()
    assert json.loads(capsys.readouterr().out)["unused"] == ["y"]
