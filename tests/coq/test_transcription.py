"""Model.v against the folder: the same numbers and formulas pass, and any change on one side is noticed; no Coq needed."""

import math

import pytest

from support.coq_folders import case_folder, case_names, change_array, change_json
from transformula.coq.coq_check import objection
from transformula.coq.coq_files import LIBRARY, MODEL, PROOF, coq_files, library_file
from transformula.coq.coq_source import Source, precision
from transformula.coq.coq_statement import allowed_bound, model_file
from transformula.coq.coq_terms import TypedFormula
from transformula.coq.transcribed_terms import TranscribedTerm, transcribed_box
from transformula.coq.transcription import check

CASE = "II.34.2a-float64"  # q*v/(2*pi*r)


def _model(folder):
    with precision(200):
        source = Source.of(folder)
        return model_file(source, allowed_bound(source))


@pytest.fixture
def folder(tmp_path):
    return case_folder(CASE, tmp_path)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return _model(case_folder(CASE, tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("name", case_names())
def test_every_case_is_transcribed(name, tmp_path):
    folder = case_folder(name, tmp_path)
    assert check(folder, _model(folder)) == ""


EDITS = {
    "a weight by one unit": ("Entry 0 0 (1) 1", "Entry 0 0 (2) 1"),
    "a sign": ("(-1024) 1", "(1024) 1"),
    "a row": ("Entry 0 0", "Entry 1 0"),
    "a column": ("Entry 0 0", "Entry 0 1"),
    "an entry lost": ("[Entry 0 0 (1) 1; ", "["),
    "the attention": ("Block Softmax", "Block Hardmax"),
    "a head lost": ("[head_0_0; ", "["),
    "a head twice": ("[head_0_0; head_0_1", "[head_0_0; head_0_0"),
    "the tokens": ("Model 10 ", "Model 11 "),
    "the width": ("Model 10 15 ", "Model 10 16 "),
    "an operator": ("(v_q * v_v)", "(v_q + v_v)"),
    "a variable": ("(v_q * v_v)", "(v_q * v_r)"),
    "a factor": ("(2 * PI)", "(3 * PI)"),
    "a constant": ("(2 * PI)", "(2 * exp (1))"),
    "a condition lost": ("  ((2 * PI) * v_r) <> 0 /\\\n", ""),
    "a condition turned": ("v_r) <> 0 /\\", "v_r) <> 1 /\\"),
    "the box": ("1 <= v_r <= 5", "2 <= v_r <= 5"),
    "the box of another variable": ("1 <= v_q <= 5", "1 <= v_v <= 5"),
    "the bound": ("bound : R := (", "bound : R := (9"),
    "no bound": ("<= bound /\\", "<= bound + 1 /\\"),
    "another output": ("(inputs [v_q; v_v; v_r]) 0", "(inputs [v_q; v_v; v_r]) 1"),
    "inputs exchanged": ("(inputs [v_q; v_v; v_r])", "(inputs [v_v; v_q; v_r])"),
    "a second statement": ("  True.\n", "  True.\nAxiom free : claim.\n"),
    "another library": ("Transformula.Transformer", "Transformula.Attention"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_statement_is_noticed(folder, text, edit):
    before, after = EDITS[edit]
    assert before in text
    assert check(folder, text.replace(before, after, 1)) != ""


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
    "eps": lambda f: change_json(f, "certificate.json", lambda c: c.update(eps=1e-7)),
    "the rounding": lambda f: change_json(f, "certificate.json", lambda c: c.update(rounding=1e-6)),
}


@pytest.mark.parametrize("edit", FOLDER_EDITS)
def test_a_changed_folder_is_noticed(folder, text, edit):
    FOLDER_EDITS[edit](folder)
    assert objection(folder, {name: library_file(name) for name in LIBRARY} | {MODEL: text}) != ""


@pytest.mark.parametrize("command", ["Admitted.", "Axiom free : False.", "Parameter p : R.", "Declare ML Module x."])
def test_a_proof_may_not_assume_anything(folder, text, command):
    files = {name: library_file(name) for name in LIBRARY} | {MODEL: text, PROOF: command}
    assert PROOF in objection(folder, files)


def test_the_library_must_be_ours(folder):
    files = coq_files(folder)
    assert objection(folder, files) == ""
    assert "Transformer.v" in objection(folder, files | {"Transformer.v": files["Transformer.v"] + " "})


@pytest.mark.parametrize(
    "formula",
    [
        "-x**2",
        "x**-2",
        "x^(3/2)",
        "x**(-1/2)",
        "2**x",
        "1/3*x",
        "1e-3*x - .5",
        "max(x, 0, -y)",
        "tan(x)/log(y)",
        "E*pi + e",
    ],
)
def test_both_writers_agree_on_a_formula(formula):
    typed, read = TypedFormula(formula, ["x", "y"]), TranscribedTerm(formula, ["x", "y"])
    assert typed.term == read.coq
    assert list(dict.fromkeys(typed.conditions)) == list(read.conditions)


def test_boxes_are_read_as_typed():
    assert list(transcribed_box("x=0..2*pi, y1..y2=-1/3..0.5")) == [
        ("x", "0", "(2 * PI)"),
        ("y1", "((- 1) / 3)", "(1 / 2)"),
        ("y2", "((- 1) / 3)", "(1 / 2)"),
    ]
