"""export --text and verify --hf of what it wrote."""

import json

import pytest

import transformula as tf


@pytest.fixture(scope="module")
def wave(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text") / "wave"
    tf.compile("sin(x)", on="x=-3..3").save(folder)
    return str(folder)


def test_export_and_verify(cli, wave):
    done = cli("export", wave, "--to", "hf", "--arch", "gpt2", "--text", "--decimals", "4", "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["decimals"] == 4 and 5e-5 < facts["bound"] < 5.1e-5
    done = cli("verify", wave, "--hf", f"{wave}/hf", "--json")
    assert done.code == 0 and json.loads(done.out)["hf_bound"] == facts["bound"]
    shown = cli("verify", wave, "--hf", f"{wave}/hf").out.split("hf bound")[1].split()[0]
    assert float(shown) >= facts["bound"]  # six digits of it, rounded up
    assert cli("export", wave, "--to", "hf", "--text").code == 0  # in place of the other


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--to", "onnx", "--text"], 2, "--text only applies to --to hf"),
        (["--to", "hf", "--arch", "t5", "--text"], 2, "takes a causal model"),
        (["--to", "hf", "--decimals", "5"], 2, "--decimals only applies to --text"),
        (["--to", "hf", "--arch", "gpt2", "--text", "--decimals", "13"], 2, "from 1 to 12"),
        (["--to", "hf", "--arch", "gpt2", "--text", "--decimals", "9"], 1, "--decimals 9 is too many"),
    ],
)
def test_refusals(cli, wave, options, code, message):
    done = cli("export", wave, *options)
    assert done.code == code and message in " ".join(done.err.split())
