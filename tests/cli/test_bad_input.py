"""Bad input: exit code 2, one sentence on stderr, no traceback, nothing written."""

import json
import subprocess
import sys

import pytest

import transformula as tf
from transformula.errors import NotProvenError

BAD = {
    "unknown name": ("x + q", "x=0..1"),
    "unknown function": ("frobnicate(x)", "x=0..1"),
    "unbalanced": ("(x + 1", "x=0..1"),
    "unbalanced end": ("x + 1)", "x=0..1"),
    "empty formula": ("", "x=0..1"),
    "empty interval": ("x", "x=1..1"),
    "reversed interval": ("x", "x=2..1"),
    "missing variable": ("x + y", "x=0..1"),
    "nan in the box": ("x", "x=nan..1"),
    "inf in the box": ("x", "x=0..inf"),
    "nan in the formula": ("x + nan", "x=0..1"),
    "inf in the formula": ("x*inf", "x=0..1"),
    "code": ("__import__('os').system('x')", "x=0..1"),
    "code in the box": ("x", "x=0..__import__('os').system('x')"),
    "tower": ("9**9**9**9", "x=0..1"),
    "tower with x": ("x*9**9**9**9", "x=0..1"),
    "parentheses": ("(" * 10_000 + "x" + ")" * 10_000, "x=0..1"),
    "a million": ("x**1000000", "x=0..1"),
    "overflow": ("x**2", "x=0..1e200"),
    "overflow of everything": ("x", "x=-1e400..1e400"),
    "not a polynomial": ("sin(x)", "x=0..1"),
    "not a number": ("x*log(-1)", "x=0..1"),
    "no box": ("x", ""),
    "unicode": ("x☃", "x=0..1"),
    "newline": ("x\n+ ;", "x=0..1"),
}


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("case", BAD)
def test_compile_refuses(cli, tmp_path, case, as_json):
    formula, box = BAD[case]
    arguments = ["--construction", "polynomial"] if case == "not a polynomial" else []
    result = cli("compile", formula, "--on", box, "--out", str(tmp_path / "m"), *arguments, *["--json"] * as_json)
    _one_sentence(result)
    if as_json:
        assert json.loads(result.out)["error"] in result.err
    else:
        assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def _one_sentence(result, code=2):
    assert result.code == code, result
    assert result.err.startswith("error: ") and result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err and len(result.err) < 600


@pytest.mark.parametrize(
    "arguments",
    [
        ["--eps", "0"], ["--eps", "-1"], ["--eps", "nan"], ["--eps", "inf"],
        ["--construction", "magic"], ["--no-such-option"], ["--no-such=1"],
    ],
)  # fmt: skip
def test_compile_refuses_bad_options(cli, tmp_path, arguments):
    _one_sentence(cli("compile", "x", "--on", "x=0..1", "--out", str(tmp_path / "m"), *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "x"],
        ["compile", "x", "--on", "x=0..1", "--dtype", "int8"],
        ["nonsense"],
        ["eval"],
        ["verify"],
    ],
)
def test_wrong_usage_is_exit_code_two(cli, arguments):
    result = cli(*arguments)
    assert result.code == 2 and result.err and "Traceback" not in result.err


def test_a_tolerance_that_is_not_proven_is_exit_code_one(cli, tmp_path):
    result = cli("compile", "x**2/3", "--on", "x=0..1", "--eps", "1e-30", "--out", str(tmp_path / "m"), "--json")
    _one_sentence(result, code=1)
    assert json.loads(result.out)["best_bound"] < 1e-13
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_folder_is_not_overwritten(cli, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes").write_text("mine")
    _one_sentence(cli("compile", "x", "--on", "x=0..1", "--out", str(tmp_path / "m")))
    assert (tmp_path / "m" / "notes").read_text() == "mine"


@pytest.fixture
def folder(tmp_path):
    return tf.compile("x**2 + y", on="x=-1..1, y=0..2*pi").save(tmp_path / "m")


@pytest.mark.parametrize("verb", ["verify", "show", "eval"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "model.json").unlink(), "no model.json"),
        (lambda f: (f / "certificate.json").unlink(), "no certificate.json"),
        (lambda f: (f / "evidence.json").unlink(), "no evidence.json"),
        (lambda f: (f / "model.safetensors").unlink(), "no model.safetensors"),
    ],
)
def test_an_incomplete_folder_is_refused_by_name(cli, folder, verb, damage, said):
    damage(folder)
    result = cli(verb, str(folder), *(["--at", "x=0,y=1"] if verb == "eval" else []))
    _one_sentence(result)
    assert said in result.err


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("model.safetensors", b"garbage!", "model.safetensors is truncated"),
        ("model.json", b"{}", "does not describe a transformula model"),
        ("model.json", b"\x89PNG", "model.json is not UTF-8 text"),
        ("model.json", b"{", "model.json cannot be read as JSON"),
        ("certificate.json", b"[]", "certificate.json is not a JSON object"),
    ],
)
def test_a_damaged_folder_is_refused_by_name(cli, folder, name, data, said):
    (folder / name).write_bytes(data)
    for verb in (["show"], ["eval", "--at", "x=0,y=1"]):
        result = cli(verb[0], str(folder), *verb[1:])
        _one_sentence(result)
        assert said in result.err
    verified = cli("verify", str(folder), "--json")
    assert verified.code == 1
    facts = json.loads(verified.out)
    assert facts["verified"] is False and said in facts["reasons"][0]


def test_damaged_evidence_is_seen_by_its_fingerprint_and_by_the_checker(cli, folder):
    (folder / "evidence.json").write_bytes(b"{")
    shown = cli("show", str(folder))
    _one_sentence(shown)
    assert "evidence_sha256 differs" in shown.err
    verified = cli("verify", str(folder), "--json")
    assert verified.code == 1 and "evidence.json cannot be read as JSON" in json.loads(verified.out)["reasons"][0]


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("x=1/2", "no value for y"),
        ("x=1/2,y=1,z=3", "'z' is not a variable"),
        ("x=1/2,y=1,x=1", "gives x twice"),
        ("x=1/2,y", "write name=value"),
        ("", "no value for x, y"),
        ("x=2,y=1", "x = 2 is outside -1..1"),
        ("x=1,y=2*pi+1e-60", "outside 0..2*pi"),
        ("x=nan,y=1", "only finite numbers"),
        ("x=inf,y=1", "only finite numbers"),
        ("x=abc,y=1", "cannot be read"),
        ("x=,y=1", "cannot be read"),
        ("x=log(-1),y=1", "not a number"),
        ("x=9**9**9**9,y=1", "too large"),
        ("x=__import__('os'),y=1", "cannot be read"),
    ],
)
def test_a_bad_point_is_refused(cli, folder, at, said):
    result = cli("eval", str(folder), "--at", at)
    _one_sentence(result)
    assert said in result.err


@pytest.mark.parametrize("arguments", [[], ["--at", "x=0,y=0", "--csv", "a", "--out", "b"], ["--csv", "a.csv"]])
def test_eval_needs_a_point_or_a_table(cli, folder, arguments):
    _one_sentence(cli("eval", str(folder), *arguments))


def test_exact_needs_rationals(cli, folder):
    result = cli("eval", str(folder), "--exact", "--at", "x=0,y=pi")
    _one_sentence(result)
    assert "not a rational number" in result.err


def test_an_interrupt_leaves_nothing(cli, tmp_path, monkeypatch):
    def interrupt(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    result = cli("compile", "x", "--on", "x=0..1", "--out", str(tmp_path / "m"))
    assert result.code == 130 and "Traceback" not in result.err
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_search_says_how_close_it_came(cli, monkeypatch):
    said = iter([NotProvenError("not yet", best_bound=0.25), KeyboardInterrupt()])

    def package(*_arguments):
        raise next(said)

    monkeypatch.setattr("transformula.compiler.driver.package", package)
    result = cli("compile", "sin(x)", "--on", "x=0..1", "--eps", "0.01")
    assert result.code == 130 and "Traceback" not in result.err
    assert "interrupted: the best bound proven so far is 0.25" in result.err and "nothing was written" in result.err


def test_a_search_that_runs_out_of_time(cli):
    result = cli("compile", "sin(x*y)", "--on", "x=0..1, y=0..1", "--time-limit", "1e-9", "--json")
    assert result.code == 1 and 0.4 < json.loads(result.out)["best_bound"] < 1  # that of a constant
    assert "the search was ended after" in result.err and "allow more time than --time-limit 1e-09" in result.err
    _one_sentence(cli("compile", "x", "--on", "x=0..1", "--time-limit", "0"))


def test_a_file_that_would_be_cut_short_is_refused(cli, tmp_path):
    path = tmp_path / "long.formula"
    path.write_text("on: x=0..1\n" + "# a comment\n" * 200_000 + "x + 12345\n")
    result = cli("compile", "--file", str(path))
    _one_sentence(result)
    assert "too long" in result.err


def test_processes_of_a_command_run_nothing_of_the_working_directory(tmp_path):
    script, place = tmp_path / "script.py", tmp_path / "stranger"
    script.write_text("from transformula.cli import main\nmain()\n")
    place.mkdir()
    for name in ("joblib", "numpy", "transformula"):
        (place / f"{name}.py").write_text("import pathlib\npathlib.Path(__file__).with_suffix('.was_run').touch()\n")
    (place / "jobs.csv").write_text('name,formula,box,eps\na,x*y,"x=0..1,y=0..1",1e-3\n')
    command = [sys.executable, str(script), "batch", "jobs.csv", "--jobs", "1", "--out", "made"]
    run = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and not list(place.glob("*.was_run")), run


def test_a_formula_is_shown_without_characters_that_a_terminal_obeys(cli, tmp_path):
    model = tf.compile("7 + 0*(\rsin(x)         )", "x=0..1", eps=1e-2)  # which a terminal shows as sin(x)
    result = cli("show", str(model.save(tmp_path / "m")))
    assert result.code == 0 and "\r" not in result.out and "7 + 0*( sin(x)" in result.out
