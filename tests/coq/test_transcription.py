"""Model.v against the folder: the same numbers and formulas pass, any change on one side is noticed; no Coq needed."""

import json
import math
import struct

import pytest

from support.coq_folders import case_folder, case_names, change_array, change_json, coq_contents
from transformula.coq import transcription
from transformula.coq.coq_check import objection
from transformula.coq.coq_compiler import Workshop
from transformula.coq.coq_files import (
    LIBRARY,
    MODEL,
    PROOF,
    STATEMENT,
    VERDICT,
    VERDICT_TEXT,
    coq_files,
    library_file,
)
from transformula.coq.transcription import expected, transcribed

CASE = "II.34.2a-float64"  # q*v/(2*pi*r)


def _files(text, **more):
    return {name: library_file(name) for name in LIBRARY} | {MODEL: text, VERDICT: VERDICT_TEXT} | more


@pytest.fixture
def folder(tmp_path):
    return case_folder(CASE, tmp_path)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return expected(*coq_contents(case_folder(CASE, tmp_path_factory.mktemp("model"))))


@pytest.mark.parametrize("name", case_names())
def test_every_number_of_every_case_is_in_the_text(name, tmp_path):
    """Read back by other means: numpy's reader of safetensors files, and the numbers between the brackets."""
    import re

    from safetensors.numpy import load_file

    folder = case_folder(name, tmp_path)
    text, arrays = expected(*coq_contents(folder)), load_file(folder / "model.safetensors")
    exact = json.loads((folder / "model.json").read_text())["exact"]
    written = dict(re.findall(r"^Definition (\w+)_ : matrix := \[(.*)\]\.$", text, re.MULTILINE))
    assert set(written) == {array.rpartition(".")[0].replace(".", "_") for array in arrays}
    for array in {array.rpartition(".")[0] for array in arrays}:
        found = re.findall(r"Entry (\d+) (\d+) \((-?\d+)\) (\d+)", written[array.replace(".", "_")])
        assert [int(row) for row, *_ in found] == arrays[f"{array}.rows"].tolist()
        assert [int(column) for _, column, *_ in found] == arrays[f"{array}.cols"].tolist()
        if array not in exact:
            assert [int(n) / int(d) for *_, n, d in found] == arrays[f"{array}.values"].tolist()
            assert all(int(d) & (int(d) - 1) == 0 for *_, d in found)


EDITS = {
    "a weight by one unit": ("Entry 0 0 (1) 1", "Entry 0 0 (2) 1"),
    "a number in another notation": ("Entry 0 0 (1) 1", "Entry 0 0 (0x1) 1"),
    "a sign": ("(-1024) 1", "(1024) 1"),
    "a row": ("Entry 0 0", "Entry 1 0"),
    "a column": ("Entry 0 0", "Entry 0 1"),
    "an entry lost": ("[Entry 0 0 (1) 1; ", "["),
    "the attention": ("Block Softmax", "Block Hardmax"),
    "a head twice": ("heads_0_key_ blocks_0_heads_0_value_", "heads_0_key_ blocks_0_heads_0_key_"),
    "the tokens": ("Model 10 ", "Model 11 "),
    "the width": ("Model 10 15 ", "Model 10 16 "),
    "an operator": ("(v_q * v_v)", "(v_q + v_v)"),
    "a variable": ("(v_q * v_v)", "(v_q * v_r)"),
    "a factor": ("(literal 2 1)", "(literal 3 1)"),
    "a constant": ("v_pi", "v_e"),
    "the box": ("inside (literal 1 1) x_r", "inside (literal 2 1) x_r"),
    "the box of another variable": ("x_q (literal 5 1)", "x_v (literal 5 1)"),
    "the bound": ("bound : R := ", "bound : R := 9"),
    "a looser goal": (" bound /\\", " (bound + 1) /\\"),
    "another output": ("[x_q; x_v; x_r]) 0", "[x_q; x_v; x_r]) 1"),
    "inputs exchanged": ("(inputs [x_q; x_v; x_r])", "(inputs [x_v; x_q; x_r])"),
    "a second statement": ("  True.\n", "  True.\nAxiom free : claim.\n"),
    "another library": ("Transformula.Typed", "Transformula.Attention"),
    "a shadowing module": (
        "Require Import Transformula.Typed.",
        "Require Import Transformula.Typed Transformula.Table_0.",
    ),
    "a comment": ("Open Scope R_scope.", "(* x *) Open Scope R_scope."),
    "a comment that swallows": ("Definition bound", "(* Definition bound"),
    "a notation": ("Open Scope R_scope.", 'Notation "x <= y" := True : R_scope.\nOpen Scope R_scope.'),
    "an option": ("Open Scope R_scope.", "Unset Guard Checking.\nOpen Scope R_scope."),
    "another scope": ("Open Scope R_scope.", "Open Scope R_scope. Open Scope nat_scope."),
    "an operator redefined": ("Definition formula_0", "Definition Rabs (x : R) : R := 0.\nDefinition formula_0"),
    "a definition more": (
        "Definition bound",
        "Definition matches (a : R) (b : typed) (c : R) := True.\nDefinition bound",
    ),
    "a letter of another alphabet": ("v_r", "v_г"),
    "a space more": (" /\\\n", "  /\\\n"),
    "a line break of another kind": (".\nImport", ".\r\nImport"),
    "a byte order mark": ("Require Import Transformula.Typed", "\ufeffRequire Import Transformula.Typed"),
    "the end lost": ("  True.\n", "  True."),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_statement_is_noticed(folder, text, edit):
    before, after = EDITS[edit]
    assert before in text and objection(folder, _files(text)) == ""
    assert objection(folder, _files(text.replace(before, after, 1))) != ""


SAMPLE_EDITS = {
    "an input": ("map result [(literal (0) 1); (literal (1) 2)]", "map result [(literal (0) 1); (literal (1) 3)]"),
    "an input's sign": ("(literal (1) 2)", "(literal (-1) 2)"),
    "an output": (") 0) (literal (3) 1)", ") 0) (literal (2) 1)"),
    "an output's index": (") 1) (literal (-1) 4)", ") 0) (literal (-1) 4)"),
    "inputs exchanged": ("[(literal (0) 1); (literal (1) 2)]", "[(literal (1) 2); (literal (0) 1)]"),
    "a sample lost": ("claim : Prop :=\n  matches", "claim : Prop :=\n  True \\/ matches"),
    "a looser goal": (" bound /\\", " (bound + 1) /\\"),
    "the bound": ("bound : R := ", "bound : R := 9"),
}


@pytest.mark.parametrize("edit", SAMPLE_EDITS)
def test_a_changed_sample_is_noticed(tmp_path, edit):
    """A memorised table: every sample and output is a line of the claim."""
    import transformula as tf

    tf.memorize([[0, 0.5], [1, 1]], [[3, -0.25], [1, 2]]).save(tmp_path / "model")
    text, (before, after) = expected(*coq_contents(tmp_path / "model")), SAMPLE_EDITS[edit]
    assert text.count("\n  matches (output model_ (inputs (map result [") == 4 and "forall" not in text
    assert before in text and objection(tmp_path / "model", _files(text)) == ""
    assert objection(tmp_path / "model", _files(text.replace(before, after, 1))) != ""


def test_a_sample_without_outputs_is_no_claim(tmp_path):
    """Each row of outputs is whole: an empty one would claim nothing about its sample."""
    import transformula as tf

    tf.memorize([[0, 0.5], [1, 1]], [[3, -0.25], [1, 2]]).save(tmp_path / "model")
    for row in ([], [3], [3, -0.25, 0]):
        change_json(tmp_path / "model", "model.json", lambda m, row=row: m["samples"]["y"].__setitem__(0, row))
        with pytest.raises(AssertionError, match="too few numbers, or too many"):
            expected(*coq_contents(tmp_path / "model"))


FOLDER_EDITS = {
    "a memory value by one ulp": lambda f: change_array(f, "memory.values", 4, lambda v: math.nextafter(v, math.inf)),
    "a readout sign": lambda f: change_array(f, "readout.values", 0, lambda v: -v),
    "a query column": lambda f: change_array(f, "blocks.0.heads.0.query.cols", 0, lambda c: c + 1),
    "a key row": lambda f: change_array(f, "blocks.0.heads.0.key.rows", 0, lambda r: r + 1),
    "the formula": lambda f: change_json(f, "model.json", lambda m: m.update(formulas=["q*v/(2*pi*r)+0"])),
    "the box": lambda f: change_json(f, "model.json", lambda m: m.update(box="q=1..5, v=1..5, r=1..6")),
    "the inputs": lambda f: change_json(f, "model.json", lambda m: m["inputs"].reverse()),
    "the tokens": lambda f: change_json(f, "model.json", lambda m: m.update(tokens=11)),
    "the attention": lambda f: change_json(f, "model.json", lambda m: m["blocks"][0].update(kind="hardmax")),
    "the scale": lambda f: change_json(f, "model.json", lambda m: m["blocks"][0].update(scale=2.0)),
    "a sequence": lambda f: change_json(f, "model.json", lambda m: m.update(shape=[1, 3])),
    "eps": lambda f: change_json(f, "certificate.json", lambda c: c.update(eps=1e-7)),
    "an infinite eps": lambda f: change_json(f, "certificate.json", lambda c: c.update(eps=math.inf)),
    "no number": lambda f: change_json(f, "certificate.json", lambda c: c.update(eps=math.nan)),
    "an input twice": lambda f: change_json(f, "model.json", lambda m: m["inputs"].append(m["inputs"][0])),
    "an output without a formula": lambda f: change_json(f, "model.json", lambda m: m["shapes"]["readout"].reverse()),
    "the rounding": lambda f: change_json(f, "certificate.json", lambda c: c.update(rounding=1e-6)),
}


@pytest.mark.parametrize("edit", FOLDER_EDITS)
def test_a_changed_folder_is_noticed(folder, text, edit):
    FOLDER_EDITS[edit](folder)
    assert objection(folder, _files(text)) != ""


def test_a_negative_rounding_buys_nothing(folder):
    change_json(folder, "certificate.json", lambda c: c.update(eps=1.0, rounding=-0.5))
    assert "bound : R := 1/2." in expected(*coq_contents(folder))


#: Variables that mean something in Coq, in Typed.v, in the generated files or in the ends of the box.
NASTY = ["pi", "e", "E", "ln", "forall", "Type", "R", "IZR", "model_", "bound", "w", "W_1", "I_0", "x_pi", "v_pi", "_"]


@pytest.mark.usefixtures("coq")
def test_names_of_variables_hide_nothing(tmp_path):
    """A box whose ends use constants that are names of variables too; Coq reads what is stated."""
    import transformula as tf

    box = ", ".join(f"{name}={end}" for name, end in zip(NASTY, ["-pi/2..pi", "0..exp(1)"] * 8, strict=True))
    formula = " + ".join(f"{k + 2}*{name}" for k, name in enumerate(NASTY))
    tf.compile(formula, on=box, eps=1).save(tmp_path / "model")
    files = coq_files(tmp_path / "model")
    assert " x_pi v_pi ->" in files[MODEL]  # the variable, and an end of its interval
    assert "formula_0 (v_pi v_e" in files[MODEL] and "(formula_0 (variable x_pi) (variable x_e)" in files[MODEL]
    said = {name: files[name] for name in (*LIBRARY, MODEL, STATEMENT)}
    workshop = Workshop(said, frozenset(LIBRARY))
    assert [file.why for file in workshop.compile(tmp_path, said) if file.printed is None] == []


def _header(folder, change):
    """Rewrite the header of model.safetensors."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    text = change(data[8:start].decode())
    path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + data[start:])


def _overlapping(text):
    header = json.loads(text)
    header["readout.values"]["data_offsets"] = header["memory.values"]["data_offsets"][:1] * 2
    return json.dumps(header)


def _of_two_axes(text):
    header = json.loads(text)
    header["readout.values"]["shape"].append(1)
    return json.dumps(header)


def _exchanged(text):
    header = json.loads(text)
    left, right = header["memory.rows"]["data_offsets"], header["memory.cols"]["data_offsets"]
    header["memory.rows"]["data_offsets"], header["memory.cols"]["data_offsets"] = right, left
    return json.dumps(header)


HEADERS = {
    "an array twice": lambda t: t[:-1].rstrip() + "," + t.strip()[1:],
    "arrays that overlap": _overlapping,
    "arrays of two axes": _of_two_axes,
    "rows and columns exchanged": _exchanged,
    "floats read as integers": lambda t: t.replace('"F64"', '"I64"', 1),
    "metadata": lambda t: '{"__metadata__": {"a": "b"},' + t.strip()[1:],
    "an array of no matrix": lambda t: t.replace("readout.rows", "readouts.rows"),
}


@pytest.mark.parametrize("edit", HEADERS)
def test_a_changed_header_is_noticed(folder, text, edit):
    _header(folder, HEADERS[edit])
    assert objection(folder, _files(text)) != ""


def test_bytes_behind_the_arrays_are_noticed(folder, text):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"\0" * 8)
    assert objection(folder, _files(text)) != ""


def test_a_key_that_stands_twice_is_refused(folder, text):
    path = folder / "model.json"
    path.write_text(path.read_text().replace('"box"', '"box": "q=1..2, v=1..2, r=1..2", "box"', 1))
    assert "twice" in objection(folder, _files(text))


@pytest.mark.parametrize("key", ["tokens", "inputs", "shapes"])
def test_text_of_the_folder_cannot_become_a_command(folder, key):
    """A number, a variable and a matrix whose names are Coq commands."""
    command = "x. Axiom free : False. Definition y"

    def change(model):
        if key == "tokens":
            model["tokens"] = command
        elif key == "inputs":
            model["inputs"], model["box"], model["formulas"] = [command], f"{command}=0..1", [command]
        else:
            for part in (model["shapes"], model["exact"]):
                part.update({command: part.pop("bias")} if "bias" in part else {})

    change_json(folder, "model.json", change)
    if key == "shapes":
        _header(folder, lambda t: t.replace('"bias.', f'"{command}.'))
        assert "Axiom" not in expected(*coq_contents(folder))
        return
    with pytest.raises((ValueError, AssertionError)):
        expected(*coq_contents(folder))


@pytest.mark.parametrize("command", ["Admitted.", "Axiom free : False.", "Parameter p : R.", "Declare ML Module x."])
def test_a_proof_may_not_assume_anything(folder, text, command):
    assert PROOF in objection(folder, _files(text, **{PROOF: command}))


def test_the_library_must_be_ours(folder):
    files = coq_files(folder)
    assert objection(folder, files) == ""
    assert "Transformer.v" in objection(folder, files | {"Transformer.v": files["Transformer.v"] + " "})


def test_the_program_is_short_and_stands_alone():
    """Below 100 lines, and the standard library alone."""
    import ast
    import sys
    from pathlib import Path

    source = Path(transcription.__file__).read_text()
    assert len(source.splitlines()) < 100
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name if isinstance(node, ast.Import) else node.module for node in imports for alias in node.names}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("formula", "term"),
    [
        ("-x**2", "(- (v_x ^ (literal 2 1)))"),
        ("x^-2*y", "((v_x ^ (- (literal 2 1))) * v_y)"),
        ("x**y**2", "(v_x ^ (v_y ^ (literal 2 1)))"),
        ("1e-3*x - .5", "(((literal 1 1000) * v_x) - (literal 1 2))"),
        ("x/y/2", "((v_x / v_y) / (literal 2 1))"),
        ("max(x, -y)", "(v_max [v_x; (- v_y)])"),
        ("Min(x, y, z, 2)", "(v_Min [v_x; v_y; v_z; (literal 2 1)])"),
        ("max*y", "(v_max * v_y)"),  # a variable of that name
        ("where(x >= y + 1, x, y)*2", "((v_where (v_x >= (v_y + (literal 1 1))) v_x v_y) * (literal 2 1))"),
        ("Piecewise((x, x<1), (y, True))", "(v_Piecewise [(v_x , (v_x < (literal 1 1))); (v_y , v_True)])"),
        ("tan(x)/log(y)", "((v_tan v_x) / (v_log v_y))"),
        ("lambda*if", "(v_lambda * v_if)"),
        ("0.1000000000000000000000001", "(literal 1000000000000000000000001 10000000000000000000000000)"),
    ],
)
def test_formulas_are_read_node_by_node(formula, term):
    assert transcribed(formula) == term


@pytest.mark.parametrize(
    "formula",
    ["0 < x < 1", "x <= y <= z", "x <> y", "x << y", "x >> y", "x == y", "x != y", "sin((x, y, z))", "+x", "f(x, **y)",
     "Piecewise((x, y, z), (y, True))", "x = 1", "Piecewise(*x)", "x,",
     "x # y", "x if y else z", "x and y", "f(*x)", "f(x, y=1)", "x // y", "x % y", "[x]", "x.y",
     "2x", "1.2.3", ".5.5", "1e", "x３ + y + z + w", "1_0", "x; y", "ｓin(x)", "λ0", "x := y", "", "x\ny", "\"x\"", "x @ y", "~x", "not x", "lambda: x"],
)  # fmt: skip
def test_other_syntax_is_refused(formula):
    with pytest.raises((AssertionError, AttributeError, KeyError, SyntaxError, ValueError, IndexError)):
        transcribed(formula)
