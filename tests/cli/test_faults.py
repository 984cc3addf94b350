"""How the command line ends: one sentence and an exit code for each kind of trouble, a traceback only when asked."""

import builtins
import json
import os
import subprocess
import sys

import pytest

import transformula as tf
from support.folders import open_folder
from transformula import proven
from transformula.cli import folder_verbs

START = "from transformula.cli import main; main()"


def _one_sentence(result, code):
    assert result.code == code, result
    assert result.err.startswith("error: ") and result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err and len(result.err) < 700


@pytest.fixture
def folder(tmp_path):
    return tf.compile("x**2 + y", on="x=-1..1, y=0..1").save(tmp_path / "m")


@pytest.fixture
def faulty(monkeypatch):
    def fail(*_):
        raise IndexError("list index\nout of range")

    monkeypatch.setattr(folder_verbs, "describe", fail)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_fault_of_ours_has_its_own_code_and_says_where_to_report(cli, folder, faulty, as_json):
    result = cli("show", str(folder), *["--json"] * as_json)
    _one_sentence(result, 70)
    assert "IndexError: list index out of range" in result.err and "report" in result.err
    assert not as_json or json.loads(result.out)["kind"] == "InternalFault"


@pytest.mark.parametrize("place", [0, 2])
def test_debug_shows_the_traceback_wherever_it_stands(cli, folder, faulty, place):
    words = ["show", str(folder)]
    result = cli(*words[:place], "--debug", *words[place:])
    assert result.code == 70 and "Traceback" in result.err and "raise IndexError" in result.err


@pytest.mark.parametrize("words", [["show"], ["verify"], ["--help"]])
def test_a_closed_pipe_is_141(words, folder):
    words = words if words == ["--help"] else [*words, str(folder)]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run([sys.executable, "-c", START, *words], stdout=pipe, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 141 and done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_a_sentence(folder):
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-c", START, "verify", str(folder), "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["compile", "x"],
        ["verify"],
        ["compile", "x", "--on", "x=0..1", "--dtype", "int8"],
        ["compile", "x", "--on", "x=0..1", "--eps", "small"],
        ["compile", "x", "--on", "x=0..1", "--shape", "²x1"],
        ["compile", "x", "--on", "x=0..1", "--shape", "9" * 5000 + "x1"],
        ["compile", "x1", "--on", f"x1..x{'9' * 5000}=0..1"],
        ["compile", "x1", "--on", f"x{'1' * 5000}..x2=0..1"],
    ],
)
def test_wrong_usage_is_a_sentence_and_an_object(cli, words):
    _one_sentence(cli(*words), 2)
    result = cli(*words, "--json")
    assert result.code == 2 and json.loads(result.out)["error"] in result.err


def test_no_words_at_all_give_three_commands_to_try(cli):
    result = cli()
    tried = [line.split()[1] for line in result.out.splitlines() if line.startswith("  transformula ")]
    assert result.code == 0 and tried == ["explore", "compile", "show"] and result.err == ""
    assert max(map(len, result.out.splitlines())) <= 80


@pytest.mark.parametrize("fault", [PermissionError(13, "Permission denied", "model.json"), MemoryError()])
def test_what_the_system_refuses_is_a_sentence(cli, folder, monkeypatch, fault):
    keep = builtins.open

    def refuse(path, *rest, **options):
        if str(path).endswith("model.json"):
            raise fault
        return keep(path, *rest, **options)

    monkeypatch.setattr(builtins, "open", refuse)
    for verb in (["show"], ["eval", "--at", "x=0,y=0"], ["export", "--to", "torch"], ["report", "--no-verify"]):
        _one_sentence(cli(verb[0], str(folder), *verb[1:]), 2)


MODELS = {
    "polynomial": lambda: tf.compile("x**2 + y", on="x=0..1, y=0..1"),
    "lookup": lambda: tf.compile("sin(x) + exp(y)", on="x=0..1, y=0..1", eps=1e-3),
    "circuit": lambda: tf.compile("sin(x*y)", on="x=0..1, y=0..1", eps=1e-2, construction="circuit"),
}


def _emptied(name):
    def damage(opened):
        for part in ("rows", "cols", "values"):
            opened.arrays[f"{name}.{part}"] = opened.arrays[f"{name}.{part}"][:0]

    return damage


def _junk(opened):
    opened.body["circuit"] = {"wires": [["junk", -1]], "outputs": "junk"}


@pytest.mark.parametrize("damage", [_emptied("embedding"), _emptied("readout"), _emptied("memory"), _junk])
@pytest.mark.parametrize("name", MODELS)
def test_resealed_junk_gives_no_traceback(cli, tmp_path, monkeypatch, name, damage):
    folder = MODELS[name]().save(tmp_path / "m")
    opened = open_folder(folder)
    damage(opened)
    opened.forge(folder)
    monkeypatch.setattr(proven, "_proven", set())
    for verb in (["show"], ["eval", "--at", "x=1/2,y=1/2"], ["export", "--to", "torch"], ["report", "--no-verify"]):
        result = cli(verb[0], str(folder), *verb[1:])
        assert result.code in (0, 1, 2) and "Traceback" not in result.err and "proven" not in result.out
        assert result.code == 0 or result.err.startswith("error: "), result
    assert cli("verify", str(folder)).code == 1 or (damage is _junk and name == "polynomial")


HOSTILE = """
import json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
import transformula as tf
from transformula.errors import TransformulaError

ten = "(" + "+".join(f"x{k}" for k in range(1, 11)) + ")"
try:
    tf.compile(ten + "**20", on="x1..x10=-1..1")
except TransformulaError as error:
    print(error)
folder = tf.compile(ten, on="x1..x10=-1..1").save(sys.argv[1])
text = (folder / "model.json").read_text()
wide = json.loads(text) | {"formulas": [ten + "**20"]}
(folder / "model.json").write_text(json.dumps(wide))
print(*tf.verify(folder).reasons)
(folder / "model.json").write_text(text)
entry = '"a%d":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}'
header = ("{" + ",".join(entry % k for k in range(10**6)) + "}").encode()
(folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
print(*tf.verify(folder).reasons)
"""


def test_what_would_grow_is_counted_first(tmp_path):
    """A polynomial of ten million terms and a header of a million arrays, with little memory and soon."""
    command = [sys.executable, "-c", HOSTILE, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    compiled, verified, header = done.stdout.splitlines()
    assert "products or too much memory" in compiled and "products or too much memory" in verified
    assert "its header is too long" in header
