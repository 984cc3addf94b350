"""compile, verify, eval and show: what they print for people and for scripts."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import transformula as tf

F2 = "x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4 + 3*x5**2 + 2*x6*x7*x8 + 2*x9"
AT = "x1=1/2,x2=1,x3=0,x4=2,x5=1,x6=1,x7=1,x8=1,x9=1"


def _json(result):
    assert result.code == 0, result
    assert result.out.count("\n") == 1
    return json.loads(result.out)


def test_the_issues_own_session(cli, tmp_path):
    folder = str(tmp_path / "f2")
    facts = _json(cli("compile", F2, "--on", "x1..x9=-3..3", "--out", folder, "--json"))
    needed = "construction layers heads tokens memory_tokens parameters eps approximation rounding bound seconds"
    assert set(needed.split()) <= set(facts)
    assert facts["construction"] == "polynomial" and facts["tokens"] == 11
    assert facts["approximation"] == 0 and 0 < facts["bound"] <= facts["eps"] < 1e-10

    shown = _json(cli("show", folder, "--json"))
    assert shown["nonzeros_per_head"] == [30] * 5 and shown["lemma_nonzeros_per_head"] == 2 * 11 + 8
    assert shown["parameters_within"] and shown["nonzeros_within"] and shown["n_q"] == 1287

    value = cli("eval", folder, "--at", AT, "--exact").out.strip()
    assert Fraction(value) == Fraction(1, 32) + 3 + 3 + 2 + 2
    near = _json(cli("eval", folder, "--at", AT, "--json"))
    assert abs(near["values"][0] - float(Fraction(value))) <= near["bound"]

    facts = _json(cli("verify", folder, "--json"))
    assert {"verified", "approximation", "rounding", "bound", "eps"} <= set(facts)
    assert facts["verified"] is True and facts["reasons"] == []


def test_people_get_text(cli, tmp_path):
    folder = str(tmp_path / "m")
    compiled = cli("compile", "x*y", "--on", "x=0..1,y=0..1", "--out", folder)
    assert compiled.code == 0 and "tokens" in compiled.out
    shown = cli("show", folder)
    for word in ("x*y", "layers", "non-zeros", "parameters bound", "proven"):
        assert word in shown.out
    assert "verified" in cli("verify", folder).out
    evaluated = cli("eval", folder, "--at", "x=1/2, y=1/2")
    assert float(evaluated.out) == 0.25 and "proven" in evaluated.err


def test_formulas_may_begin_with_a_minus_and_be_several(cli, tmp_path):
    folder = str(tmp_path / "m")
    facts = _json(cli("compile", "-x**2", "-x + y", "--on", "x=0..1,y=0..1", "--out", folder, "--json"))
    assert facts["formula"] == ["-x**2", "-x + y"]
    assert _json(cli("eval", folder, "--at", "x=1/2,y=1", "--json"))["values"] == pytest.approx([-0.25, 0.5])
    assert cli("eval", folder, "--at", "x=1/2,y=1", "--exact").out.split() == ["-1/4", "1/2"]


def test_without_out_nothing_is_written(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("compile", "x", "--on", "x=0..1").code == 0
    assert list(tmp_path.iterdir()) == []


def test_options_reach_the_compiler(cli, tmp_path):
    facts = _json(
        cli(
            "compile",
            "x**8",
            "--on",
            "x=-1..1",
            "--multi-head",
            "--dtype",
            "float32",
            "--eps",
            "0.01",
            "--json",
        )
    )
    assert (facts["layers"], facts["heads"], facts["dtype"], facts["eps"]) == (3, 7, "float32", 0.01)


def test_a_model_that_does_not_verify_is_exit_code_one(cli, tmp_path):
    folder = tf.compile("x", on="x=0..1").save(tmp_path / "m")
    text = (folder / "certificate.json").read_text()
    (folder / "certificate.json").write_text(text.replace('"eps"', '"esp"'))
    result = cli("verify", str(folder))
    assert result.code == 1 and "NOT" in result.out
    facts = json.loads(cli("verify", str(folder), "--json").out)
    assert facts["verified"] is False and facts["reasons"]


def test_an_end_of_the_box_may_be_given_exactly(cli, tmp_path):
    folder = str(tf.compile("x**2", on="x=0..2*pi").save(tmp_path / "m"))
    for end in ("0", "2*pi"):
        assert cli("eval", folder, "--at", f"x={end}").code == 0


@pytest.mark.parametrize("verb", [[], ["compile"], ["verify"], ["eval"], ["show"]])
def test_help_works_for_every_verb(cli, verb):
    result = cli(*verb, "--help")
    assert result.code == 0 and "Usage" in result.out


def test_version(cli):
    assert cli("--version").out.strip() == tf.__version__


def _run(*arguments, **options):
    command = [sys.executable, "-c", "from transformula.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def test_through_a_real_process(tmp_path):
    done = _run("compile", "x**2 - 1/3", "--on", "x=-1..1", "--out", str(tmp_path / "m"), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["tokens"] == 1 and done.stderr == ""
    assert _run("verify", str(tmp_path / "m")).returncode == 0
    bad = _run("compile", "__import__('os').system('x')", "--on", "x=0..1")
    assert bad.returncode == 2 and bad.stdout == "" and bad.stderr.startswith("error: ")
    assert _run("eval", str(tmp_path / "m"), "--at", "x=7").returncode == 2


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['transformula', '--help']\n"
        "from transformula.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('torch', 'numpy', 'sympy', 'flint', 'scipy')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "compile" in done.stdout and done.stderr.strip().endswith("[]")


def test_the_list_of_verbs_says_what_their_own_help_says():
    """The list is shown without importing the verbs, so it has its own copy of their first lines."""
    from transformula.cli.app import _VERBS, _verb

    for name, (_, about) in _VERBS.items():
        assert _verb(name).help.split("\n\n")[0] == about


def test_the_installed_command_is_there():
    command = Path(sys.executable).with_name("transformula")
    if not os.access(command, os.X_OK):
        pytest.skip("the package is not installed with its command")
    done = subprocess.run([command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "verify" in done.stdout


def test_a_reader_that_goes_away_is_no_crash(tmp_path):
    folder = tf.compile("x", on="x=0..1").save(tmp_path / "m")
    code = f"from transformula.cli import main; import sys; sys.argv = ['t', 'show', {str(folder)!r}]; main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.wait()
    process.stderr.close()


@pytest.mark.parametrize("arguments", [["--version"], ["-h"], ["verify", "-h"]], ids=" ".join)
def test_python_m_is_the_command(arguments):
    done = subprocess.run([sys.executable, "-m", "transformula", *arguments], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    expected = tf.__version__ if arguments == ["--version"] else "Usage: transformula"
    assert expected in done.stdout


def test_the_shell_can_complete_verbs():
    environment = os.environ | {
        "_TRANSFORMULA_COMPLETE": "complete_bash",
        "COMP_WORDS": "transformula ver",
        "COMP_CWORD": "1",
    }
    command = [sys.executable, "-m", "transformula"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["verify"]
