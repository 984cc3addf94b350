"""One-layer models from the command line: options, facts, refusals, and nothing half-written."""

import json

import pytest

import transformula as tf

KEYS = {
    "formula", "box", "construction", "layers", "heads", "tokens", "memory_tokens", "parameters", "nonzeros",
    "dtype", "eps", "approximation", "rounding", "bound", "seconds", "out",
}  # fmt: skip


def _json(result):
    assert result.code == 0, result
    return json.loads(result.out)


def test_the_issues_own_session(cli, tmp_path):
    formula, box = "sin(x1) + sin(x2)", "x1=0..2*pi, x2=0..2*pi"
    kept, theorem = str(tmp_path / "sum"), str(tmp_path / "theorem")
    arguments = ["compile", formula, "--on", box, "--json"]
    solved = _json(cli(*arguments, "--eps", "1e-6", "--construction", "lookup", "--out", kept))
    cells = _json(cli(*arguments, "--eps", "0.05", "--construction", "partition", "--out", theorem))
    for facts in (solved, cells):
        assert set(facts) >= KEYS and facts["layers"] == 1 and facts["heads"] == 2
        assert 0 < facts["approximation"] <= facts["bound"] <= facts["eps"]
    assert solved["memory_tokens"] <= 40 < 150 < cells["memory_tokens"] <= 176
    assert solved["tokens"] == solved["memory_tokens"] + 1
    for folder in (kept, theorem):
        checked = _json(cli("verify", folder, "--json"))
        assert checked["verified"] is True and checked["bound"] <= checked["eps"]
    value = _json(cli("eval", kept, "--at", "x1=1, x2=2", "--json"))
    assert abs(value["values"][0] - 1.7507684116335782) <= 1e-6
    shown = _json(cli("show", kept, "--json"))
    assert shown["construction"] == "lookup" and len(shown["tables"]) == 2


def test_sequences(cli, tmp_path):
    folder = str(tmp_path / "sort")
    facts = _json(
        cli("compile", "min(x1,x2)", "max(x1,x2)", "--on", "x1..x2=-1..1", "--shape", "2x1", "--eps", "0.02",
            "--out", folder, "--json")
    )  # fmt: skip
    assert facts["approximation"] == 0 and facts["memory_tokens"] == 0
    assert _json(cli("eval", folder, "--at", "x1=1/2, x2=-1/4", "--json"))["values"] == [-0.25, 0.5]
    assert tf.load(folder).sequence == (2, 1)
    assert cli("verify", folder).code == 0 and "min(x1,x2)" in cli("show", folder).out


def test_layers_one_insists(cli):
    facts = _json(cli("compile", "x**2", "--on", "x=0..1", "--layers", "1", "--eps", "1e-3", "--json"))
    assert facts["construction"] == "lookup" and facts["layers"] == 1
    facts = _json(cli("compile", "x**2", "--on", "x=0..1", "--json"))
    assert facts["construction"] == "polynomial" and facts["layers"] == 2


def test_the_polynomial_route_to_the_same_tolerance(cli):
    facts = _json(
        cli(
            "compile",
            "sin(x)",
            "--on",
            "x=-pi..pi",
            "--eps",
            "1e-4",
            "--construction",
            "polynomial",
            "--json",
        )
    )
    assert facts["construction"] == "corollary" and facts["layers"] <= 9 and 0 < facts["bound"] <= 1e-4


def test_people_get_text(cli):
    result = cli("compile", "exp(x)", "--on", "x=0..1", "--eps", "1e-3")
    assert result.code == 0 and "memory tokens" in result.out and "lookup" in result.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["1/x", "--on", "x=-1..1", "--eps", "1e-3"], 1, "1/x is undefined or unbounded"),
        (["log(x)", "--on", "x=0..1", "--eps", "1e-3"], 1, "log(x) is undefined or unbounded near x = 0: narrow the box"),
        (["tan(x)", "--on", "x=0..2", "--eps", "1e-3"], 1, "tan(x) could not be shown to be defined: it may be undefined or unbounded"),
        (["sqrt(x)", "--on", "x=-1..1", "--eps", "1e-3"], 1, "sqrt(x) is undefined or unbounded"),
        (["asin(x)", "--on", "x=0..2", "--eps", "1e-3"], 1, "asin(x) is undefined or unbounded"),
        (["sin(x)", "--on", "x=0..1", "--eps", "0"], 2, "eps must be a number above 0"),
        (["sin(x)", "--on", "x=0..1", "--eps", "-1"], 2, "eps must be a number above 0"),
        (["sin(x)", "--on", "x=0..1", "--eps", "1e-20", "--construction", "lookup"], 1, "ask for --eps 1"),
        (["sin(x)", "--on", "x=0..1", "--eps", "1e-9", "--dtype", "float32"], 1, "or use --dtype float64"),
        (["sin(a*b*c*d*f)", "--on", "a=0..1,b=0..1,c=0..1,d=0..1,f=0..1", "--eps", "0.1",
          "--construction", "lookup"], 2, "at most 4"),
        (["x/abs(x)", "--on", "x=-1..1", "--eps", "0.1"], 1, "x/abs(x) is undefined or unbounded"),
        (["sin(x)", "--on", "x=0..1", "--shape", "two"], 2, "cannot read the shape"),
        (["sin(x)", "--on", "x=0..1", "--shape", "2x2"], 2, "needs 4 variables"),
        (["sin(x)", "--on", "x=0..1", "--layers", "3"], 2, "layers"),
        (["sin(x)", "--on", "x=0..1", "--construction", "magic"], 2, "unknown construction"),
        (["sin(x)", "--on", "x=0..1", "--construction", "polynomial"], 2, "Give a tolerance"),
        (["sin(x)", "--on", "x=0..1", "--eps", "1e-3", "--construction", "polynomial", "--layers", "1"], 2,
         "a single layer needs the construction lookup or partition"),
        (["exp(-x*y)", "--on", "x=0..1, y=0..1", "--eps", "1e-6", "--construction", "partition"], 1,
         "tokens"),
    ],
)  # fmt: skip
def test_refusals_are_one_sentence_and_write_nothing(cli, tmp_path, arguments, code, said):
    result = cli("compile", *arguments, "--out", str(tmp_path / "m"))
    assert result.code == code and result.out == ""
    assert result.err.startswith("error: ") and said in result.err and result.err.count("\n") == 1
    assert "Traceback" not in result.err and list(tmp_path.iterdir()) == []


def test_a_refusal_in_json_carries_the_best_bound(cli, tmp_path):
    result = cli("compile", "tanh(x)", "--on", "x=-1..1", "--eps", "1e-9", "--dtype", "float32",
                 "--construction", "lookup", "--json", "--out", str(tmp_path / "m"))  # fmt: skip
    facts = json.loads(result.out)
    assert result.code == 1 and facts["kind"] == "NotProvenError" and 1e-9 < facts["best_bound"] < 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stage", ["solving", "proving"])
def test_an_interrupt_leaves_nothing(cli, tmp_path, monkeypatch, stage):
    from contextlib import contextmanager

    from transformula.budget import listening
    from transformula.cli import compile_verb

    def interrupt(now, done, left):
        if now == stage:
            raise KeyboardInterrupt

    @contextmanager
    def impatient(quiet):
        with listening(interrupt):
            yield

    monkeypatch.setattr(compile_verb, "progress_bar", impatient)
    result = cli("compile", "exp(-x*y)", "--on", "x=0..1,y=0..1", "--eps", "1e-2", "--construction", "lookup",
                 "--out", str(tmp_path / "m"))  # fmt: skip
    assert result.code == 130 and "Traceback" not in result.err
    assert list(tmp_path.iterdir()) == []


def test_the_bar_is_shown_to_people_and_names_what_is_left(monkeypatch):
    from transformula.budget import _listener, report
    from transformula.cli.output import progress_bar

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress_bar(quiet=False):
        assert _listener.get() is not None
        report("proving", 3, 4)
        report("solving", 1, None)
    assert _listener.get() is None
    with progress_bar(quiet=True):
        assert _listener.get() is None
