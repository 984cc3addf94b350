"""Every verb on a folder of learned heads."""

import json

import pytest

from support.attention_models import attention_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(attention_model("two heads").save(tmp_path_factory.mktemp("learned") / "heads"))


def test_the_folder_verifies_and_is_shown(cli, folder):
    found = json.loads(cli("verify", folder, "--json").out)
    assert found["verified"] is True and found["approximation"] > 0 and found["rounding"] > 0
    shown = cli("show", folder).out
    assert "linear-attention" in shown and "0: 2 linear heads, 32 non-zeros" in shown
    assert shown.count("key z1; z2; z3") == 2 and "*z3 to y1" in shown


def test_exports_run_as_the_blocks_do(cli, folder):
    for kind in ("onnx", "torch"):
        facts = json.loads(cli("export", folder, "--to", kind, "--json").out)
        assert facts["within_rounding"] is True and facts["parity"] <= facts["rounding"]
    assert cli("verify", folder, "--onnx", folder + "/model.onnx").code == 0


def test_a_point_in_floats_and_exactly(cli, folder):
    point = ", ".join(f"x{k}=1/{k + 1}" for k in range(1, 13))
    computed, exact = cli("eval", folder, "--at", point), cli("eval", folder, "--at", point, "--exact")
    top, _, bottom = exact.out.strip().partition("/")
    assert abs(float(computed.out.split()[0]) - int(top) / int(bottom)) < 1e-13
    missing = cli("eval", folder, "--at", "x1=0")
    assert missing.code == 2 and "no value for x2" in missing.err


def test_a_report_draws_heads_and_tokens(cli, tmp_path):
    folder = attention_model("one head").save(tmp_path / "heads")
    facts = json.loads(cli("report", str(folder), "--json").out)
    with open(facts["page"], encoding="utf-8") as file:
        page = file.read()
    assert facts["verified"] is True and "what it does at every token z" in page
    assert all(word in page for word in ("head 0", "position 0", "of the token position 2"))
