"""Nothing says "proven" that this process has not proven: a resealed folder is claimed, and is not exported."""

import json
import pickle
import subprocess
import sys

import pytest

import transformula as tf
from support.folders import open_folder
from transformula import proven
from transformula.errors import NotProvenError
from transformula.show.report_page import write_report


@pytest.fixture(scope="module")
def model():
    return tf.compile("sin(x1) + sin(x2)", on="x1=0..2*pi, x2=0..2*pi", eps=1e-6)


@pytest.fixture
def honest(model, tmp_path, monkeypatch):
    """A good folder, as a process finds it that has proven nothing yet."""
    folder = model.save(tmp_path / "m")
    monkeypatch.setattr(proven, "_proven", set())
    return folder


@pytest.fixture
def resealed(honest):
    """The readout doubled, every hash recomputed."""
    opened = open_folder(honest)
    opened.arrays["readout.values"] = 2 * opened.arrays["readout.values"]
    return opened.forge(honest)


def test_a_compiled_model_is_proven_and_a_loaded_one_claimed(model, honest):
    loaded = tf.load(honest)
    assert loaded.status == "claimed" and "claimed error <=" in repr(loaded) and "proven" not in repr(loaded)
    assert "claimed: |error|" in loaded._repr_html_() and "proven" not in loaded._repr_html_()
    assert tf.verify(loaded).verified
    assert loaded.status == "proven" and "proven error <=" in repr(loaded)
    fresh = tf.compile("x", on="x=0..1")
    assert fresh.status == "proven" and "proven error <=" in repr(fresh)


def test_what_another_process_has_proven_is_claimed_here(tmp_path):
    fresh = tf.compile("x + 1/3", on="x=0..1")
    (tmp_path / "m.pickle").write_bytes(pickle.dumps(fresh))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).status)"
    command = [sys.executable, "-c", code, str(tmp_path / "m.pickle")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "claimed\n" and fresh.status == "proven"


def test_no_verb_calls_a_resealed_folder_proven(cli, resealed, tmp_path):
    (tmp_path / "t.csv").write_text("x1,x2\n1,1\n")
    verbs = (
        ["show"],
        ["eval", "--at", "x1=1,x2=1"],
        ["eval", "--csv", str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.csv")],
    )
    for verb in verbs:
        for as_json in ([], ["--json"]):
            seen = cli(verb[0], str(resealed), *verb[1:], *as_json)
            assert seen.code == 0 and "claimed" in seen.out + seen.err
            assert "proven" not in seen.out + seen.err
    assert json.loads(cli("eval", str(resealed), "--at", "x1=1,x2=1", "--json").out)["status"] == "claimed"
    assert cli("verify", str(resealed)).code == 1
    assert tf.load(resealed).status == "claimed"


@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_export_proves_first(cli, honest, form):
    facts = json.loads(cli("export", str(honest), "--to", form, "--json").out)
    assert facts["claim"] == "proven when exported"


def test_a_resealed_folder_is_not_exported(cli, resealed):
    for form in ("onnx", "torch"):
        refused = cli("export", str(resealed), "--to", form)
        assert refused.code == 1 and "does not verify" in refused.err and refused.err.count("\n") == 1
    with pytest.raises(NotProvenError, match="does not verify"):
        tf.load(resealed).to_onnx(resealed / "model.onnx")
    assert len(list(resealed.iterdir())) == 4


def test_an_unverified_export_says_so(cli, resealed):
    onnx = pytest.importorskip("onnx")
    seen = cli("export", str(resealed), "--to", "onnx", "--unverified")
    assert (
        seen.code == 0 and "claimed, not verified" in seen.out and "proven" not in seen.out.replace("by the proof", "")
    )
    entries = {p.key: p.value for p in onnx.load(resealed / "model.onnx").metadata_props}
    assert entries["status"] == "claimed, not verified"
    seen = cli("export", str(resealed), "--to", "torch", "--unverified", "--json")
    assert json.loads(seen.out)["claim"] == "claimed, not verified"
    assert b"claimed, not verified" in (resealed / "torch" / "model.safetensors").read_bytes()


def test_an_unverified_export_of_a_good_folder_is_still_that_model(cli, honest):
    onnx = pytest.importorskip("onnx")
    path = honest / "model.onnx"
    assert cli("export", str(honest), "--to", "onnx", "--unverified").code == 0
    assert cli("verify", str(honest), "--onnx", str(path)).code == 0
    changed = onnx.load(path)
    next(p for p in changed.metadata_props if p.key == "status").value = "proven by somebody"
    onnx.save(changed, path)
    assert cli("verify", str(honest), "--onnx", str(path)).code == 1


def test_a_page_speaks_of_the_proof_only_after_it(honest, resealed, tmp_path):
    for verify in (False, True):
        page = write_report(resealed, tmp_path / "page.html", verify=verify).page.read_text()
        assert "claimed bound" in page and "proven bound" not in page and "proven: |error|" not in page
        assert "they are equal" not in page and "the folder&#x27;s own claim" in page


def test_a_verified_page_says_proven(honest, tmp_path):
    assert "proven bound" in write_report(honest, tmp_path / "page.html").page.read_text()


@pytest.mark.parametrize("compact", [False, True])
def test_a_point_that_is_no_sample_is_not_claimed(compact, tmp_path, cli):
    tf.memorize([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0], compact=compact).save(tmp_path / "m")
    assert "within" in cli("eval", str(tmp_path / "m"), "--at", "x1=0,x2=1").err
    assert "within" not in cli("eval", str(tmp_path / "m"), "--at", "x1=0.5,x2=1").err
