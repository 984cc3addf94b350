"""export and verify --onnx: what they write, measure, print and refuse."""

import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

import transformula as tf

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def model():
    return tf.compile("sin(x1) + sin(x2)", on="x1=0..2*pi, x2=0..2*pi", eps=1e-6)


@pytest.fixture
def folder(model, tmp_path):
    return model.save(tmp_path / "sum")


def _json(result):
    assert result.code == 0, result
    return json.loads(result.out)


def test_the_issues_own_session(cli, folder):
    facts = _json(cli("export", str(folder), "--to", "onnx", "--json"))
    assert facts["out"] == str(folder / "model.onnx") and facts["opset"] == 17
    assert facts["bytes"] == (folder / "model.onnx").stat().st_size
    assert 0 <= facts["parity"] <= facts["rounding"] and facts["within_rounding"] is True
    assert facts["points"] > 2000 and "default session options are safe" in facts["session_options"]
    session = runtime.InferenceSession(str(folder / "model.onnx"))
    found = session.run(["y"], {"x": np.array([[0.5, 1.0]])})[0]
    assert found[0, 0] == pytest.approx(np.sin(0.5) + np.sin(1.0), abs=1e-6)

    facts = _json(cli("export", str(folder), "--to", "torch", "--json"))
    assert facts["out"] == str(folder / "torch") and facts["within_rounding"] is True
    assert "torch.nn.MultiheadAttention" in facts["attention"] and facts["narrow_formats"].startswith("measured")
    assert sorted(p.name for p in (folder / "torch").iterdir()) == ["load.py", "model.safetensors"]

    facts = _json(cli("verify", str(folder), "--onnx", str(folder / "model.onnx"), "--json"))
    assert facts["verified"] is True and facts["onnx"] == str(folder / "model.onnx")


def test_the_graph_is_the_program_or_on_request_the_blocks(cli, folder, tmp_path):
    graphs = {}
    for graph, options in (("program", ()), ("blocks", ("--blocks",))):
        path = tmp_path / f"{graph}.onnx"
        facts = _json(cli("export", str(folder), "--to", "onnx", "--out", str(path), *options, "--json"))
        assert facts["graph"] == graph and facts["within_rounding"] is True
        assert cli("verify", str(folder), "--onnx", str(path)).code == 0
        graphs[graph] = {node.op_type for node in onnx.load(path).graph.node}
    assert "Softmax" in graphs["blocks"] and "Softmax" not in graphs["program"]
    refused = cli("export", str(folder), "--to", "torch", "--blocks")
    assert refused.code == 2 and "--blocks only applies to --to onnx" in refused.err


def test_how_a_file_is_called_is_up_to_the_user(cli, folder):
    asked = ["--inputs", "named,float32", "--guard", "nan", "--bound"]
    facts = _json(cli("export", str(folder), "--to", "onnx", *asked, "--json"))
    assert facts["input"] == "x1 float32 (batch); x2 float32 (batch)" and facts["guard"] == "nan"
    assert facts["output"] == "y float64 (batch, 1); bound float64 (batch, 1)"
    assert facts["bytes"] == (folder / "model.onnx").stat().st_size
    assert cli("verify", str(folder), "--onnx", str(folder / "model.onnx")).code == 0
    refused = cli("export", str(folder), "--to", "torch", "--guard", "nan")
    assert refused.code == 2 and "only apply to --to onnx" in refused.err


def test_people_get_text(cli, folder):
    shown = cli("export", str(folder), "--to", "onnx").out
    for word in ("exported", "parity", "rounding", "session options", "opset"):
        assert word in shown
    shown = cli("export", str(folder), "--to", "torch").out
    for word in ("MultiheadAttention", "layer norm", "load.py 3.14159 3.14159", "float16 loss", "not proven"):
        assert word in shown


def test_the_printed_command_can_be_pasted(cli, folder):
    use = shlex.split(_json(cli("export", str(folder), "--to", "torch", "--json"))["use"])
    assert use[0] == "python"
    done = subprocess.run([sys.executable, *use[1:]], capture_output=True, text=True)
    assert done.returncode == 0 and float(done.stdout) == pytest.approx(2 * np.sin(3.14159), abs=1e-6)
    for wrong in (["x1", "x2"], ["1"]):
        done = subprocess.run([sys.executable, use[1], *wrong], capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_exports_go_where_they_are_told_and_can_be_repeated(cli, folder, tmp_path):
    for _ in range(2):
        assert cli("export", str(folder), "--to", "onnx", "--out", str(tmp_path / "a.onnx")).code == 0
        assert cli("export", str(folder), "--to", "torch", "--out", str(tmp_path / "t")).code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "sum", "t"]
    assert cli("verify", str(folder), "--onnx", str(tmp_path / "a.onnx")).code == 0


def test_a_model_folder_with_exports_is_still_a_model_folder(cli, folder):
    for kind in ("onnx", "torch"):
        assert cli("export", str(folder), "--to", kind).code == 0
    (folder / "torch" / "__pycache__").mkdir()
    assert cli("verify", str(folder)).code == 0 and tf.load(folder).tokens
    assert cli("compile", "x", "--on", "x=0..1", "--out", str(folder), "--force").code == 0
    assert not (folder / "model.onnx").exists() and not (folder / "torch").exists()  # they were of another model


def test_somebody_elses_files_are_left_alone(cli, folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    for place in (other, folder):
        refused = cli("export", str(folder), "--to", "torch", "--out", str(place))
        assert refused.code == 2 and "not an earlier export" in refused.err
    refused = cli("export", str(folder), "--to", "onnx", "--out", str(folder / "certificate.json"))
    assert refused.code == 2 and "named like model.onnx" in refused.err
    (folder / "torch").mkdir()
    (folder / "torch" / "thesis.txt").write_text("mine")
    assert cli("compile", "x", "--on", "x=0..1", "--out", str(folder)).code == 2
    assert (folder / "torch" / "thesis.txt").exists() and (other / "thesis.txt").exists()
    assert cli("verify", str(folder)).code == 0


def test_a_changed_file_does_not_verify(cli, folder):
    path = folder / "model.onnx"
    cli("export", str(folder), "--to", "onnx")
    model = onnx.load(path)
    model.graph.node[-1].op_type = "Sub"
    onnx.save(model, path)
    result = cli("verify", str(folder), "--onnx", str(path))
    assert result.code == 1 and "NOT" in result.out and "is changed" in result.out
    assert json.loads(cli("verify", str(folder), "--onnx", str(path), "--json").out)["verified"] is False


def test_a_file_of_weights_that_do_not_verify_does_not_verify(cli, folder):
    cli("export", str(folder), "--to", "onnx")
    text = (folder / "certificate.json").read_text()
    (folder / "certificate.json").write_text(text.replace('"eps"', '"esp"'))
    assert cli("verify", str(folder), "--onnx", str(folder / "model.onnx")).code == 1


@pytest.mark.parametrize("data", [b"", b"garbage", b"\xff" * 1000])
def test_garbage_is_a_sentence_and_exit_code_two(data, cli, folder, tmp_path):
    (tmp_path / "g.onnx").write_bytes(data)
    result = cli("verify", str(folder), "--onnx", str(tmp_path / "g.onnx"))
    assert result.code == 2 and "not an ONNX file" in result.err and "Traceback" not in result.err


def test_refusals(cli, folder, tmp_path, monkeypatch):
    assert cli("export", str(tmp_path / "none"), "--to", "onnx").code == 2
    assert cli("export", str(folder), "--to", "tensorflow").code == 2
    assert cli("export", str(folder)).code == 2
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = cli("export", str(folder), "--to", "onnx")
    assert result.code == 2 and "pip install 'transformula[onnx]'" in result.err
    assert not (folder / "model.onnx").exists()


def test_a_runtime_that_computes_something_else_is_caught(cli, folder, monkeypatch):
    from transformula.cli import export_verb

    honest = export_verb.onnx_executor
    monkeypatch.setattr(export_verb, "onnx_executor", lambda data: lambda x: honest(data)(x) + 1e-8)
    result = cli("export", str(folder), "--to", "onnx")
    assert result.code == 1 and "nothing was written" in result.err
    assert not (folder / "model.onnx").exists()


def test_a_polynomial_says_that_its_attention_is_not_stock(cli, tmp_path):
    folder = str(tf.compile("x**3 - y", on="x=-1..1, y=0..1").save(tmp_path / "m"))
    assert "hardmax" in _json(cli("export", folder, "--to", "torch", "--json"))["attention"]


def test_memorised_models_are_compared_at_their_samples(cli, tmp_path):
    folder = str(tf.memorize([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0]).save(tmp_path / "m"))
    facts = _json(cli("export", folder, "--to", "onnx", "--json"))
    assert facts["points"] == 4 and facts["within_rounding"]


def test_layer_norm_in_place(cli, folder):
    facts = _json(cli("export", str(folder), "--to", "torch", "--layer-norm", "--json"))
    assert "TransformerEncoderLayer" in facts["attention"] and "unmodified" in facts["attention"]
    assert facts["parity"] <= facts["rounding"] and facts["bound"] <= 1e-6
    plain = _json(cli("export", str(folder), "--to", "torch", "--json"))
    assert plain["rounding"] < facts["rounding"] and plain["bound"] < facts["bound"]
    assert cli("export", str(folder), "--to", "onnx", "--layer-norm").code == 2


def test_layer_norm_in_circuits_but_not_in_polynomials(cli, tmp_path):
    model = tf.compile("x*exp(y)", on="x=0..1, y=0..1", eps=1e-4, construction="circuit")
    facts = _json(cli("export", str(model.save(tmp_path / "m")), "--to", "torch", "--layer-norm", "--json"))
    assert facts["parity"] <= facts["rounding"] and facts["bound"] <= 1e-4
    folder = str(tf.compile("x**3 - y", on="x=-1..1, y=0..1").save(tmp_path / "p"))
    refused = cli("export", folder, "--to", "torch", "--layer-norm")
    assert refused.code == 2 and "leave --layer-norm out" in refused.err


def test_the_claim_travels_with_the_state_dict(cli, folder):
    from safetensors import safe_open

    cli("export", str(folder), "--to", "torch")
    with safe_open(folder / "torch" / "model.safetensors", framework="np") as file:
        claim = json.loads(file.metadata()["config"])["claim"]
    certificate = tf.load(folder).certificate
    assert float(claim["rounding"]) == certificate.rounding and float(claim["bound"]) == certificate.bound
    assert claim["weights_sha256"] == certificate.weights_sha256


def test_help(cli):
    assert "--to" in cli("export", "--help").out


@pytest.mark.parametrize("runtime", ["onnxruntime", "torch.export", "transformers"])
def test_a_runtime_is_measured_against_the_certificate(runtime, cli, folder):
    before = sorted(folder.iterdir())
    facts = _json(cli("export", str(folder), "--check", runtime, "--json"))
    assert facts["runtime"].startswith(runtime) and facts["within_rounding"] and facts["points"] > 100
    assert sorted(folder.iterdir()) == before


def test_runtimes_that_lower_the_precision_are_named(cli, folder):
    assert "never in float64" in cli("export", str(folder), "--check", "openvino").err
    assert cli("export", str(folder), "--check", "nothing").code == 2
    both = cli("export", str(folder), "--check", "onnxruntime", "--to", "onnx")
    assert both.code == 2 and "either --to" in both.err and cli("export", str(folder)).code == 2
    assert cli("export", str(folder), "--to", "onnx", "--arch", "gpt2").code == 2


def test_a_polynomial_as_a_circuit(cli, tmp_path):
    folder = str(tf.compile("x**2 + y", on="x=0..1, y=0..1", dtype="float32").save(tmp_path / "square"))
    for asked, architecture in (([], "T5ForTokenClassification"), (["--arch", "llama"], "LlamaForCausalLM")):
        facts = _json(cli("export", folder, "--to", "hf", *asked, "--json"))
        assert facts["architecture"] == architecture and facts["parity"] <= facts["rounding"]
        assert cli("verify", folder, "--hf", facts["out"]).code == 0
    assert cli("verify", f"{folder}/circuit").code == 0
    tf.compile("x**2 + y", on="x=0..1, y=0..1", dtype="float32").save(folder)  # takes its exports along


def test_a_hugging_face_folder_is_written_and_verified(cli, folder):
    facts = _json(cli("export", str(folder), "--to", "hf", "--json"))
    assert facts["architecture"] == "T5ForTokenClassification" and facts["parity"] <= facts["rounding"]
    checked = _json(cli("verify", str(folder), "--hf", str(folder / "hf"), "--json"))
    assert checked["verified"] and checked["hf_bound"] == facts["bound"]
    (folder / "hf" / "evil.py").write_text("import os")
    refused = cli("verify", str(folder), "--hf", str(folder / "hf"))
    assert refused.code == 1 and "evil.py is not a file of this export" in refused.out + refused.err
    assert cli("verify", str(folder), "--hf", str(folder / "nowhere")).code == 2
