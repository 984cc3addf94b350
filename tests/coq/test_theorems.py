"""Theorems that Coq accepts, theorems it does not, and what is said where none can be written."""

import json
import re
import shutil
import subprocess
from itertools import pairwise

import pytest

import transformula as tf
from support.coq_folders import case_folder, case_names, change_array, change_json, compiled_theorem, coq_contents
from transformula.coq import coq_compiler
from transformula.coq.coq_check import REALS, CoqVerdict, assumptions, is_accepted, prove_files, prove_folder
from transformula.coq.coq_compiler import Coq, Workshop, find_coqc, refusal, run_coqc
from transformula.coq.coq_files import LIBRARY, MODEL, PROOF, coq_files, library_file, without_native_floats
from transformula.coq.coq_statement import OTHER_NAMES, SHORT
from transformula.coq.transcription import expected
from transformula.errors import ExportError, InputError, NotProvenError

needs_coq = pytest.mark.usefixtures("coq")


@needs_coq
def test_coq_accepts_and_lists_its_axioms(tmp_path):
    """A table up to the edge of its function's domain, and with a kink; the list alone takes 8 s."""
    folder = tmp_path / "model"
    tf.compile("sqrt(x) + abs(x - 1/2)**3", on="x=0..1", construction="lookup", eps=0.05).save(folder)
    verdict = prove_folder(folder)
    assert verdict.proven and not verdict.reasons
    assert all(map(is_accepted, verdict.axioms)) and "ClassicalDedekindReals.sig_forall_dec" in verdict.axioms
    assert {file.name for file in verdict.files} >= {"Transformer.v", "Typed.v", MODEL, PROOF, "Verdict.v"}


@pytest.mark.parametrize("name", [name for name in case_names() if name.endswith("float64")][::2])
def test_every_second_case_has_a_theorem(name, tmp_path):
    """What Coq is asked to believe, without asking it; benchmarks/coq.py asks it, of all cases."""
    files = coq_files(case_folder(name, tmp_path))
    assert {MODEL, PROOF} <= files.keys()


def test_a_length_is_proven_by_its_folds(tmp_path):
    proof = coq_files(case_folder("I.29.16-float64", tmp_path))[PROOF]
    assert "measured ah_26 bh_26 10 units_26 turns_26 gauge_26" in proof
    assert len(re.findall(r"^Lemma J_", proof, re.M)) == 11  # ten folds and the length


def test_many_tokens_are_proven_in_pieces(tmp_path):
    table = coq_files(case_folder("sin20pi-float64", tmp_path))["Table_0.v"]
    cuts = re.findall(r"^Lemma P_0_\d+ u : (.*) <= u <= (.*) ->", table, re.M)
    assert len(cuts) > 1 and all(here[1] == there[0] for here, there in pairwise(cuts))
    assert cuts[0][0] == "0" and cuts[-1][1] == "1"


def test_a_kink_between_steep_scores_is_proven_in_pieces(tmp_path):
    """`coqc` takes a second for each; in one piece it had not ended after ten minutes."""
    tf.compile("max(sin(x), 1/3)*exp(x)", on="x=-1..1", eps=1e-3).save(tmp_path / "model")
    table = coq_files(tmp_path / "model")["Table_0.v"]
    cuts = re.findall(r"^Lemma P_0_\d+ u : (.*) <= u <= (.*) ->", table, re.M)
    assert len(cuts) > 8 and all(here[1] == there[0] for here, there in pairwise(cuts))


@pytest.mark.parametrize(
    ("formula", "cuts", "zeros"),
    [("x**(3/2) + exp(x)", ["(1 / 8388608)"], 1), ("sqrt(2*x)*sqrt(1 - x)", ["(1 / 8388608)", "(8388607 / 8388608)"], 2),
     ("exp(-sqrt((x - 1/4)**2))", ["(2097151 / 8388608)", "(2097153 / 8388608)"], 1), ("sqrt(x + 1/100)", [], 0)],
)  # fmt: skip
def test_roots_of_nothing_are_bounded_by_plain_intervals(formula, cuts, zeros, tmp_path):
    """Taylor models of a root end where its argument may be negative by rounding."""
    tf.compile(formula, on="x=0..1", eps=0.05, construction="lookup").save(tmp_path / "model")
    lemma = coq_files(tmp_path / "model")["Table_0.v"].partition("Lemma T_0")[2]
    assert re.findall(r"Rle_lt_dec u (.*?\))", lemma) == cuts
    assert lemma.count("i_depth 20") == zeros


def test_short_functions_are_the_kernels():
    """Typed.v has what the generator lets through, and the kernel defines the same names."""
    from transformula.kernel.syntax.definitions import ALIASES, DEFINITIONS

    _, _, written = library_file("Typed.v").partition("Section Short.")
    short, _, other = written.partition("End Short.")
    assert re.findall(r"^Definition v_(\w+) :=", short, re.M) == SHORT and set(SHORT) <= DEFINITIONS.keys()
    same = dict(re.findall(r"^Definition v_(\w+) := v_(\w+)\.", other, re.M))
    assert list(same) == OTHER_NAMES and same.items() <= ALIASES.items()


#: Cases multiply within an output, and proving that it means its formula takes each of them.
OUTPUTS = [
    "(x - 2)*log2(x + 3) + radians(x) + asin(x/2)", "clip(x, -1/2, 1/2) + Max(x, -x, 1/4)",
    "where(x > 0, exp(x), 1 + x)", "Piecewise((0, x < 1/2), (x - 1/2, True))",
]  # fmt: skip


@needs_coq
@pytest.mark.parametrize(
    ("formula", "options"),
    [
        (OUTPUTS, {"eps": 0.01}),
        ("pi*x**3 - sqrt(2)*x/3", {"construction": "polynomial"}),
        ("sin(x) + exp(x)/2", {"construction": "corollary", "eps": 1e-3}),
    ],
)
def test_coq_accepts_formulas_of_other_kinds(formula, options, tmp_path):
    tf.compile(formula, on="x=-1..1", **options).save(tmp_path / "model")
    assert compiled_theorem(tmp_path / "model", coq_files(tmp_path / "model"))[0] == []


#: What `meaning`, `squares_of`, `sign` and `atoms` of Analysis.v show, for x and y from 1 to 2 and z from -1 to 1.
SHOWN = {
    "a kink in a denominator": ("/ (exp y / (exp y + 1 / 4) + Rmax 0 (x + -1 * (exp y / (exp y + 1 / 4)))) = / Rmax x (exp y / (exp y + 1 / 4))", "meaning"),
    "a length that is 0, and one with its sign": ("Rmax (z ^ 4) 0 + Rabs (z - z) = z ^ 4", "meaning"),
    "powers a whole number apart": ("exp (-3 / 10 * ln (x + y)) = Rpower (x + y) (7 / 10) / (x + y)", "meaning"),
    "arguments of tangents": ("tan (x * (y + 1)) + x = x + tan (x * y + x)", "meaning"),
    "a root less its term": ("sqrt y * tan (1 / 4 * PI + -1 / 2 * atan (x * / sqrt y)) = sqrt (x ^ 2 + y) - x", "meaning"),
    "a triangle's side": (
        "0 <= z * z + y ^ 2 - 2 * z * y * cos z",
        "squares_of ((z + -1 * y) ^ 2 * cos (1 / 2 * z) ^ 2 + (z + y) ^ 2 * sin (1 / 2 * z) ^ 2)",
    ),
    "one and a square": ("1 + sqrt (z * y) ^ 2 <> 0", "sign"),
    "an even power": ("0 <= (z + y - z) ^ 4 * / (z ^ 2 * exp z + 1)", "sign"),
    "asin up to its ends": ("asin (sin x * 1) = 2 * atan (sin x / (1 + sqrt (1 - sin x * sin x)))", "meaning"),
    "irrational multiples of wires": ("0 <= f x <= 1 -> -1 / 1000 <= PI * f x <= 32 / 10", "intros; atoms; interval"),
}  # fmt: skip


@needs_coq
def test_tactics_show_what_circuits_need(tmp_path):
    """One file; each of these was refused in a random formula."""
    lemmas = "".join(f"Lemma L_{k} : {what}.\nProof. {by}. Qed.\n" for k, (what, by) in enumerate(SHOWN.values()))
    text = (
        "Require Import Reals Lra Coquelicot.Coquelicot Interval.Tactic Transformula.Analysis.\nOpen Scope R_scope.\n"
        "Section Box.\nVariables (x y z : R) (f : R -> R).\nHypothesis X : 1 <= x <= 2.\nHypothesis Y : 1 <= y <= 2.\n"
        f"Hypothesis Z : -1 <= z <= 1.\n{lemmas}End Box.\n"
    )
    files = {name: library_file(name) for name in ("Transformer.v", "Typed.v", "Analysis.v")} | {"Part_0.v": text}
    found = Workshop(files, frozenset(LIBRARY)).compile(tmp_path, files)
    assert [file.why for file in found if file.printed is None] == [] and len(found) == len(files)


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """A memorised table of two outputs."""
    folder = tmp_path_factory.mktemp("memory") / "model"
    tf.memorize(
        [[0, 0], [0, 1], [1, 0], [1, 1.5]], [[0, 1], [1, 1], [1, 0.25], [0, -3]], dtype="float32", eps=1e-4
    ).save(folder)
    return folder


@needs_coq
def test_coq_accepts_every_sample_of_a_memorised_table(memory):
    verdict = prove_folder(memory)
    assert verdict.proven and set(verdict.axioms) <= set(REALS)


@needs_coq
def test_a_sample_that_is_not_remembered_is_refused(memory, tmp_path):
    """Faithful transcriptions of another sample, and by the same computation of another model and bound."""
    folder = tmp_path / "model"
    shutil.copytree(memory, folder)
    change_json(folder, "model.json", lambda m: m["samples"]["y"][2].__setitem__(1, 0.251))
    files = coq_files(folder)
    assert "matches" in files[MODEL] and files[MODEL] == expected(*coq_contents(folder))
    questions = {
        "this sample": ("model_", "ready", "bound", "rows"),
        "a bound of nothing": ("model_", "ready", "0", "(firstn 1 rows)"),
        "another readout": ("(but (blocks model_) (double (readout model_)))", "ready", "bound", "(firstn 2 rows)"),
        "hardmax": ("(but (map hard (blocks model_)) (readout model_))", "ready", "bound", "(firstn 1 rows)"),
        "no block": ("(but [] (readout model_))", "ready", "bound", "(firstn 1 rows)"),
        "keys of nobody": (
            "model_",
            "(map (map (fun f => Lookup (unit_of f) (slots_of f) [])) ready)",
            "bound",
            "(firstn 1 rows)",
        ),
    }
    head, _, _ = files["Part_0.v"].partition("Definition part_0")
    bound = re.search(r"Q2R (\(.*?\))\) rows", files["Statement.v"])[1]
    asked = [
        head,
        f"Definition bound : Q := {bound}.",
        "Definition but b r := Model (tokens model_) (width model_) (embedding_) (memory_) b r bias_.",
        "Definition double := map (fun e => Entry (at_row e) (at_column e) (2 * numerator e) (denominator e)).",
        "Definition hard (b : block) := Block Hardmax (heads b) (feed_forward b).",
        "Lemma the_first : forallb (recalls model_ ready bound) (firstn 2 rows) = true. Proof. vm_compute. reflexivity. Qed.",
        *(
            f"Lemma false_{n} : forallb (recalls {m} {r} {b}) {rows} = false. Proof. vm_compute. reflexivity. Qed."
            for n, (m, r, b, rows) in enumerate(questions.values())
        ),
    ]
    checked = {name: text for name, text in files.items() if name not in (PROOF, "Verdict.v", "README.md")}
    workshop = Workshop(checked | {"Part_1.v": "\n".join(asked)}, frozenset(LIBRARY))
    found = {file.name: file for file in workshop.compile(tmp_path, workshop.files)}
    assert found["Part_1.v"].printed is not None, found["Part_1.v"].why
    assert found["Part_0.v"].printed is None and "recalled_0" in found["Part_0.v"].why


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m["samples"].update(x=[], y=[]), None),
        (lambda m: m["samples"]["x"][0].append(0.0), "sample"),
        (lambda m: m["samples"]["y"].pop(), "zip"),
        (lambda m: m.update(box="x1..x2=0..1", formulas=["x1"]), None),
        (lambda m: m["samples"]["x"][0].__setitem__(0, float("nan")), "NaN"),
        (lambda m: m.pop("samples"), None),
    ],
)
def test_samples_that_cannot_be_stated(change, reason, memory, tmp_path):
    """The transcription alone refuses them."""
    folder = tmp_path / "model"
    shutil.copytree(memory, folder)
    change_json(folder, "model.json", change)
    with pytest.raises((AssertionError, ValueError), match=reason):
        expected(*coq_contents(folder))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("MAX_PRODUCTS", 10, "over 10 products in their scores: these have 100"),
        ("allowed_bound", lambda _: 0, "smaller eps"),
    ],
)
def test_a_memorised_table_out_of_reach_is_refused(name, value, reason, memory, monkeypatch):
    """Before Coq is asked."""
    from transformula.coq import sample_theorem

    monkeypatch.setattr(sample_theorem, name, value)
    with pytest.raises((ExportError, NotProvenError), match=reason):
        coq_files(memory)


@pytest.fixture(scope="module")
def partition(tmp_path_factory):
    """Sharp cells, and a variable beside them."""
    folder = tmp_path_factory.mktemp("partition") / "model"
    tf.compile("x**3 + y", on="x=-1..1, y=0..1", eps=0.3, construction="partition").save(folder)
    return folder


@needs_coq
def test_coq_accepts_a_partition(partition):
    assert compiled_theorem(partition, coq_files(partition))[0] == []


@needs_coq
def test_a_partition_of_other_cells_is_refused(partition, tmp_path):
    """A smaller error; cells whose neighbours are not heard; none nearby."""
    files = coq_files(partition)
    table = files["Table_0.v"]
    near = re.search(r"Lemma C_0_\d+ u .* <= (\(.*?\))\.$", table, re.M)[1]
    edits = {
        "in C_0_": table.replace(near, f"({near} * 9 / 10)"),
        "in S_0": re.sub(r"exp \(- Q2R \(\d+ # 1\)", "exp (- Q2R (9 # 1)", table),
        "in P_0_": re.sub(r"tab_0 \[\(.*?\); ", "tab_0 [", table, count=1),
    }
    lemmas = {name: text for name, text in files.items() if name in LIBRARY}
    workshop = Workshop(lemmas | {f"Part_{n}.v": text for n, text in enumerate(edits.values())}, frozenset(LIBRARY))
    found = {file.name: file.why for file in workshop.compile(tmp_path, workshop.files) if file.printed is None}
    assert len(found) == len(edits) and all(
        place in why for place, why in zip(edits, map(found.get, sorted(found)), strict=True)
    )


@pytest.mark.parametrize(
    ("formula", "box", "options", "reason"),
    [
        ("sin(x)/x", "x=-1..1", {}, "undefined at points of the box"),
        ("x**(1/3) + x", "x=0..1", {}, "the power u.* whose base touches 0"),
        ("gamma(x)", "x=1..2", {}, "Interval library cannot bound gamma"),
        ("floor(x) - floor(x)", "x=0..2", {}, "cannot bound floor"),
        ("exp(-x*y)*sin(3*x + y)", "x=0..1, y=0..1", {"construction": "lookup"}, "tables of several axes"),
        ("sin(x*y)", "x=0..1, y=0..1", {"construction": "partition"}, "tables of several axes"),
        ("sin(6*x)", "x=0..9", {"construction": "partition"}, "over 300 cells"),
        ("sin(x)", "x=0..6", {"construction": "yun"}, "the construction yun"),
        ("exp(x*y)", "x=0..1, y=0..1", {"construction": "corollary"}, "a formula of several variables"),
    ],
)
def test_a_model_without_a_theorem_is_refused_by_name(formula, box, options, reason, tmp_path):
    """One sentence, before Coq is asked."""
    tf.compile(formula, on=box, eps=0.05, **options).save(tmp_path / "model")
    with pytest.raises(ExportError, match=reason):
        coq_files(tmp_path / "model")


@needs_coq
def test_coq_refuses_other_weights(tmp_path):
    """A faithful transcription of weights that compute something else; the lemma is named."""
    folder = case_folder("abs-float64", tmp_path)
    files = coq_files(folder)
    change_array(folder, "readout.values", 0, lambda v: v * (1 + 2.0**-20))
    verdict = prove_files(folder, files | {MODEL: expected(*coq_contents(folder))})
    assert not verdict.proven and verdict.reasons[0].startswith(f"coqc does not accept {PROOF}, in O_0: ")


@needs_coq
def test_an_edited_export_is_noticed(tmp_path):
    folder = case_folder("abs-float64", tmp_path)
    exported = tmp_path / "coq"
    exported.mkdir()
    for name, text in coq_files(folder).items():
        (exported / name).write_text(text.replace("lra", "nra"))
    verdict = prove_folder(folder, exported)
    assert not verdict.proven and "export it again" in verdict.reasons[0]


def test_without_coq_the_verb_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="apt-get install coq libcoq-interval") as caught:
        prove_folder(case_folder("abs-float64", tmp_path))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("printed", "names"),
    [
        ("Closed under the global context\n", []),
        ("Axioms:\nProof.free : False\nUint63.add_spec\n  : forall x,\n    y\n", ["Proof.free", "Uint63.add_spec"]),
        ("", ["something unknown"]),
        ("Closed under the global context\nAxioms:\nx : False\n", ["something unknown"]),
        ("Section Variables:\nx : R\n", ["something unknown"]),
    ],
)
def test_assumptions_are_read(printed, names):
    assert assumptions(printed) == names


def test_only_axioms_of_reals_and_native_numbers_are_accepted():
    assert is_accepted("Classical_Prop.classic") and is_accepted("PrimFloat.add")
    assert not is_accepted("Proof.free") and not is_accepted("something unknown") and not is_accepted("classic")


def test_export_writes_a_folder_that_may_be_replaced(tmp_path, monkeypatch, capfd):
    import sys

    from transformula.cli import main

    folder = case_folder("abs-float64", tmp_path)
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["transformula", "export", str(folder), "--to", "coq", "--json"])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        facts = json.loads(capfd.readouterr().out)
        assert facts["format"] == "coq" and facts["out"] == str(folder / "coq")
        assert {path.name for path in (folder / "coq").iterdir()} == set(coq_files(folder))


@needs_coq
def test_rounding_is_proven_from_the_axioms_of_the_reals(tmp_path):
    """Rounding.v stands alone: dot products in any order, and a softmax head in binary64."""
    (tmp_path / "Rounding.v").write_text(library_file("Rounding.v"))
    question = "Require Transformula.Rounding.\nPrint Assumptions Transformula.Rounding.{}.\n"
    for name, text in {"Rounding.v": "", "Verdict.v": question.format("head_in_binary64")}.items():
        if text:
            (tmp_path / name).write_text(text)
        compiled = run_coqc(find_coqc(), tmp_path, name, text)
        assert compiled.printed is not None, compiled.why
    assert set(assumptions(compiled.printed)) <= set(REALS)


@pytest.mark.parametrize(
    ("tactic", "integers"),
    [
        ("interval.", "interval with (i_prec 60)."),
        ("interval with (i_bisect u).", "interval with (i_bisect u, i_prec 60)."),
        ("interval with (i_prec 53, i_taylor u).", "interval with (i_taylor u, i_prec 60)."),
        ("interval with (i_prec 110).", "interval with (i_prec 110)."),
        ("Require Import Interval.Tactic.", "Require Import Interval.Tactic."),
    ],
)
def test_intervals_without_native_floats(tactic, integers):
    assert without_native_floats({"A.v": tactic}) == {"A.v": integers}


def test_an_old_coq_is_refused_in_one_sentence(tmp_path, monkeypatch):
    program = tmp_path / "coqc"
    program.write_text("#!/bin/sh\necho 8.15.2 4.13.1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"Coq 8\.15\.2 is installed, 8\.16 or later is needed"):
        find_coqc()


def test_a_refusal_names_its_lemma_or_its_limit():
    text = "Lemma T_0 : True.\nProof. exact I. Qed.\nLemma T_1 : False.\nProof. exact I. Qed.\n"
    said = 'File "./Table_0.v", line 4, characters 7-15:\nError: The term "I" has\n type "True".\n'
    assert refusal(1, said, text) == 'in T_1: The term "I" has type "True".'
    passed = f"Chars 0 - {text.index('Proof')} [(Lemma~T_0)] 0. secs\n"
    assert refusal(-9, "", text, passed).startswith("in T_0: it took over 600 s")
    assert refusal(2, "Fatal error: out of memory. Out of memory", text, passed).startswith(
        "in T_0: it needs more than 6 G"
    )


@needs_coq
def test_a_lemma_that_takes_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(coq_compiler, "MAX_SECONDS", 1)
    text = "Lemma quick : True.\nProof. exact I. Qed.\nLemma slow : True.\nProof. do 1000000000 idtac. exact I. Qed.\n"
    (tmp_path / "Part_1.v").write_text(text)
    assert run_coqc(find_coqc(), tmp_path, "Part_1.v", text).why.startswith("in slow: it took over 1 s")


@needs_coq
@pytest.mark.skipif(shutil.which("coqchk") is None, reason="coqchk is not installed")
def test_the_independent_checker_agrees(tmp_path):
    """`coqchk` reads every compiled file of one theorem again; the installed libraries are admitted."""
    files = {n: t for n, t in coq_files(case_folder("abs-float64", tmp_path)).items() if n.endswith(".v")}
    workshop = Workshop(files, frozenset(LIBRARY))
    assert all(file.printed is not None for file in workshop.compile(tmp_path, files))
    modules = [part for name in files for part in ("-norec", f"Transformula.{name[:-2]}")]
    command = ["coqchk", "-silent", "-o", "-bytecode-compiler", "yes", "-Q", ".", "Transformula", *modules]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0
    printed = run.stdout + run.stderr
    assert "Transformula." not in printed.partition("* Axioms:")[2]
    assert printed.count(": <none>") == 3  # nothing relies on type-in-type, unsafe recursion or assumed positivity


@pytest.mark.parametrize("proven", [True, False])
def test_the_first_line_says_what_is_proven(proven, tmp_path, monkeypatch, capfd):
    import sys

    from transformula.cli import folder_verbs, main

    verdict = CoqVerdict(proven, () if proven else ("coqc does not accept Proof.v, in O_0: no",), REALS)
    monkeypatch.setattr(folder_verbs, "prove_folder", lambda *_, **__: verdict)
    monkeypatch.setattr(folder_verbs, "find_coqc", lambda: Coq("coqc", "8.16.1", ""))
    folder = case_folder("abs-float64", tmp_path)
    monkeypatch.setattr(sys, "argv", ["transformula", "verify", str(folder), "--coq"])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capfd.readouterr().out
    assert (end.value.code or 0) == (0 if proven else 1)
    first = next(line for line in printed.splitlines() if line.strip())
    assert ("proven in real arithmetic, not in floating point" if proven else "does NOT verify") in first
