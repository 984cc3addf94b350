"""What people are used to: files and pipes in and out, plain lines, hints that fit, decimals, one warning."""

import io
import json
import sys
import warnings

import pytest

import transformula as tf
from transformula.cli.output import Output
from transformula.errors import FormulaError
from transformula.formula.hints import hint


@pytest.fixture
def folder(tmp_path):
    return tf.compile("x**2 + y", on="x=-1..1, y=0..1").save(tmp_path / "m")


@pytest.fixture
def stdin(monkeypatch):
    def give(data: bytes):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def test_formulas_from_a_file_and_from_stdin(cli, tmp_path, stdin):
    (tmp_path / "f.txt").write_text("# two outputs\nx*y\n\n  x + 1  \n")
    facts = json.loads(cli("compile", "--file", str(tmp_path / "f.txt"), "--on", "x=0..1,y=0..1", "--json").out)
    assert facts["formula"] == ["x*y", "x + 1"]
    for words in (["-"], ["--file", "-"]):
        stdin(b"x**2\n")
        facts = json.loads(cli("compile", *words, "--on", "x=0..1", "--json").out)
        assert facts["formula"] == ["x**2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no formula"),
        (["x", "--file", "f.txt"], "not both"),
        (["--file", "nowhere.txt"], "cannot read nowhere.txt: No such file"),
        (["--file", "."], "cannot read"),
        (["--file", "empty.txt"], "has no formula in it"),
        (["--file", "latin.txt"], "not a text in UTF-8"),
        (["--file", "named.txt"], "gives rel a value that no formula uses: write 'rel: ..' for the setting"),
    ],
)
def test_files_without_formulas(cli, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n# nothing\n")
    (tmp_path / "latin.txt").write_bytes(b"x + \xe9\n")
    (tmp_path / "named.txt").write_text("rel = 1e-9\nexp(-x)\n")
    result = cli("compile", *words, "--on", "x=0..1")
    assert result.code == 2 and said in result.err and result.err.count("\n") == 1


def test_results_to_stdout_come_alone(cli, folder, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,0\n")
    seen = cli("eval", str(folder), "--csv", str(tmp_path / "t.csv"), "--out", "-")
    assert seen.code == 0 and seen.out.splitlines()[0] == "x,y,f" and len(seen.out.splitlines()) == 2
    assert "evaluated" in seen.err
    seen = cli("report", str(folder), "--no-verify", "--out", "-")
    assert seen.out.startswith("<!doctype html>") and seen.out.rstrip().endswith("</html>") and "reported" in seen.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "t.csv"] and len(list(folder.iterdir())) == 4


def test_an_onnx_file_to_stdout(folder):
    import subprocess

    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    command = [sys.executable, "-c", "from transformula.cli import main; main()", "export", str(folder)]
    done = subprocess.run([*command, "--to", "onnx", "--out", "-"], capture_output=True, timeout=120, check=True)
    assert onnx.load_from_string(done.stdout).graph.node and b"exported" in done.stderr


@pytest.mark.parametrize("words", [["eval", "--csv", "t.csv"], ["report"], ["export", "--to", "onnx"]])
def test_stdout_takes_one_thing(cli, folder, words):
    refused = cli(words[0], str(folder), *words[1:], "--out", "-", "--json")
    assert refused.code == 2 and "both write to standard output" in refused.err
    assert cli("export", str(folder), "--to", "torch", "--out", "-").code == 2


def test_a_pipe_gets_whole_lines_without_padding(cli, tmp_path):
    formula = " + ".join(f"x**{k}" for k in range(1, 60))
    seen = cli("compile", formula, "--on", "x=0..1/2")
    line = next(line for line in seen.out.splitlines() if line.startswith("  formula"))
    assert line.endswith("x**59") and len(line) > 400
    assert all(line == line.rstrip() for line in seen.out.splitlines()) and "\x1b" not in seen.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sin x", "write sin(x)"),
        ("1 + cos 2", "write cos(2)"),
        ("2x", "write 2*x"),
        ("3(x + 1)", "write 3*(x + 1)"),
        ("gama(x)", "the nearest function is gamma"),
        ("Log10(x)", "write log10(x)"),
        ("|x|", "write abs(x)"),
        ("x + q", "add q=low..high to the box"),
    ],
)
def test_hints_fit_the_mistake(cli, text, said):
    refused = cli("compile", text, "--on", "x=1..2")
    assert refused.code == 2 and refused.err.rstrip().endswith(said), refused.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "where(x > 1/2, 1, 0)",
            "jumps by 1 at x = 1/2, .*: compile the pieces alone, 0 on x=0..1/2 and 1 on x=1/2..1, or join",
        ),
        ("x*floor(2*x)", "jumps by .*: end the box before it, x=.*, or join the pieces by a ramp"),
        ("where(sin(x) < 1/2, x, 1/2)", "linear in one of its variables, .*: write it as several conditions"),
        ("where(abs(x) < 1/2, x, 1/2)", "jumps by 1 at x = -1/2"),
    ],
)
def test_a_formula_that_jumps_is_refused_with_what_to_do(text, said):
    with pytest.raises(FormulaError, match=said):
        tf.compile(text, "x=0..1")


@pytest.mark.parametrize("text", ["1e5*x +", "x**", ""])
def test_no_hint_is_better_than_a_wrong_one(text):
    assert hint(text, ["x"]) == ""


def test_help_states_the_default_tolerance(cli):
    assert "1e-6" in cli("compile", "--help").out


def test_points_are_printed_as_decimals(cli, folder, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1.1,0\n")
    refused = cli("eval", str(folder), "--csv", str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.csv"))
    assert refused.code == 2 and "x = 1.1 is outside -1..1" in refused.err


def test_one_warning_for_points_outside_the_box():
    model = tf.compile("x**2 + y", on="x=-1..1, y=0..2*pi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model([[1, 6.283185307179586], [-1, 0]])  # the ends
    with pytest.warns(UserWarning, match="a value of x lies outside the box x=-1..1") as caught:
        model([[0, 0], [2, 0]])
        model([[3, 9]])
    assert len(caught) == 1


def test_values_are_named_on_the_command_line(cli):
    words = ["compile", "s*c", "--on", "x=0..1, y=0..1", "--let", "r=x+y", "--let", "s=r*r", "--const", "c"]
    assert json.loads(cli(*words, "--json").out)["formula"] == ["((x+y)*(x+y))*299792458"]


def test_a_file_holds_a_whole_model(cli, tmp_path):
    file = tmp_path / "dew.formula"
    file.write_text(
        "on: T=0..60, RH=20..100\neps: 1e-3\ns = log(RH/100) + 17.625*T/(243.04 + T)\n243.04*s/(17.625 - s)\n"
    )
    facts = json.loads(cli("compile", "--file", str(file), "--json").out)
    assert facts["eps"] == 1e-3 and facts["formula"][0].startswith(
        "243.04*(log(RH/100) + 17.625*T/(243.04 + T))/(17.625"
    )
    assert json.loads(cli("compile", "--file", str(file), "--eps", "0.01", "--json").out)["eps"] == 0.01
    assert "the box is missing" in cli("compile", "x").err


@pytest.mark.parametrize("most", range(20, 28))
def test_a_printed_bound_is_not_above_the_printed_tolerance(cli, most):
    said = cli("compile", "0.5*m*v^2", "--on", f"m=1..2, v=0..{most}").out.split()
    assert float(said[said.index("bound") + 1]) <= float(said[said.index("eps") + 1])


def test_a_named_value_that_is_not_read_is_listed(cli):
    seen = cli("compile", "x + d", "--on", "x=1..2", "--let", "k=3", "--let", "d=x/2", "--json")
    assert json.loads(seen.out)["unused_values"] == ["k"]
    assert "unused values  k\n" in cli("compile", "x", "--on", "x=1..2", "--let", "k=3").out
    assert "unused values" not in cli("compile", "d = x/2; x + d", "--on", "x=1..2").out


def test_lists_fit_80_columns(cli, folder):
    for words in (["reproduce", "--list"], ["export", str(folder), "--to", "onnx"], ["show", str(folder)]):
        lines = [line for line in cli(*words).out.splitlines() if str(folder) not in line]
        assert lines and max(map(len, lines)) <= 80, max(lines, key=len)


def test_sentences_are_wrapped_on_a_terminal_only(monkeypatch, capsys):
    said = "the best bound is 1, " * 8
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    Output.beside(said)
    assert max(map(len, capsys.readouterr().err.splitlines())) <= 60
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    Output.beside(said)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_long_study_says_how_far_it_is(monkeypatch):
    from transformula.budget import listening
    from transformula.studies import fang_study
    from transformula.studies.study_report import StudyRun

    monkeypatch.setattr(
        fang_study, "_fit", lambda target, degree, solver, sample: ([target, solver, len(sample.y), 7, 1.0, 0.1], "x9")
    )
    seen = []
    with listening(lambda *said: seen.append(said)):
        fang_study.fang_closed_form(StudyRun("fang-closed-form", 0, "quick"))
    assert seen == [("fitting", k, 5 - k) for k in range(5)]
