"""Attempts to have a false theorem accepted. Files are handed to the check as if the generator had been taken over."""

import os
import re
import shutil

import pytest

from support.coq_folders import case_folder, change_json, coq_contents
from transformula.coq import coq_check, coq_compiler
from transformula.coq.coq_check import SAID, assumptions, is_accepted, objection, prove_files, prove_folder
from transformula.coq.coq_compiler import Compiled, Coq, Workshop, cache_folder, find_coqc, is_private, run_coqc
from transformula.coq.coq_files import LIBRARY, MODEL, PROOF, STATEMENT, VERDICT, VERDICT_TEXT, coq_files
from transformula.coq.transcription import expected

needs_coq = pytest.mark.usefixtures("coq")
CASE = "abs-float64"
#: Files of the library that only prove something.
LEMMAS = frozenset(LIBRARY) - set(SAID)


@pytest.fixture
def folder(tmp_path):
    return case_folder(CASE, tmp_path)


def _false_claim(folder):
    """The files of a claim that is false, |x| + 1 for |x|, with a transcription that is faithful."""
    files = coq_files(folder)
    change_json(folder, "model.json", lambda m: m.update(formulas=["abs(x) + 1"]))
    return files | {MODEL: expected(*coq_contents(folder))}


@pytest.fixture
def false_claim(folder):
    return _false_claim(folder)


EDITS = {
    "a verdict about something else": {VERDICT: "Definition accepted : True := I.\nPrint Assumptions accepted.\n"},
    "a verdict that prints what it likes": {VERDICT: 'Goal True. idtac "Closed under the global context". Abort.\n'},
    "a goal that is always met": {"Typed.v": "Definition matches (a b c : nat) := True."},
    "a file like one of Coq's": {"Reals.v": ""},
    "axioms under an accepted name": {"Uint63.v": "Axiom free : False."},
    "a variable under an accepted name": {"PrimFloat.v": "Variable free : False."},
    "a path": {"../Model.v": ""},
    "an option for all files": {PROOF: "#[global] Unset Guard Checking."},
    "an option, set": {PROOF: "Set Printing Width 1."},
    "an unchecked recursion": {PROOF: "#[bypass_check(guard)] Fixpoint f (n : nat) : False := f n."},
    "a proof given up": {PROOF: "Lemma free : False. Proof. give_up. Admitted."},
    "code of a plugin": {PROOF: 'Declare ML Module "ltac_plugin".'},
    "a file written by Coq": {PROOF: 'Require Extraction. Extraction "Model.v" nat.'},
    "a file read by Coq": {PROOF: "Load Other."},
    "a folder of compiled files": {PROOF: 'Add LoadPath "/tmp" as Other.'},
    "a command behind a comment": {PROOF: "(* *) Lemma a : True. exact I. Qed."},
}


@pytest.mark.parametrize("attack", EDITS)
def test_files_that_are_refused_unread(folder, attack):
    assert objection(folder, coq_files(folder) | EDITS[attack]) != ""


BEFORE = "Require Import Reals Transformula.Model Transformula.Statement.\nOpen Scope R_scope.\n"
PROOFS = {
    "an axiom called a hypothesis": "Hypothesis certified : claim.\n",
    "an axiom called a variable": "Variable free : False.\nTheorem certified : claim.\nProof. destruct free. Qed.\n",
    "a section that is left open": "Section S.\nVariable certified : claim.\n",
    "a proof that is not checked at once": "Theorem certified : claim.\nProof. exact_no_check I. Qed.\n",
    "a computation that is not checked": "Theorem certified : claim.\nProof. vm_cast_no_check I. Qed.\n",
    "a claim of its own": "Definition claim := True.\nTheorem certified : claim.\nProof. exact I. Qed.\n",
    "a notation for the claim": "Notation \"'claim'\" := True.\nTheorem certified : True.\nProof. exact I. Qed.\n",
    "a coercion to the claim": (
        "Definition other := True.\nTheorem certified : other.\nProof. exact I. Qed.\n"
        "Definition to : other -> Model.claim -> Model.claim := fun _ c => c.\n"
    ),
    "an instance that is not given": "Class free := it : False.\nInstance free_ : free.\nTheorem certified : claim.\nProof. destruct it. Qed.\n",
    "an obligation that is left": "Require Import Program.\nProgram Definition certified : claim := _.\n",
    "a recursion without end": "Fixpoint certified (n : nat) : claim := certified n.\n",
}


@pytest.fixture(scope="module")
def stated(coq, tmp_path_factory):
    """A place in which a false claim is compiled, without any proof of it."""
    place = tmp_path_factory.mktemp("stated")
    files = _false_claim(case_folder(CASE, tmp_path_factory.mktemp("folder")))
    done = Workshop(files, LEMMAS).compile(place, [*LEMMAS, *SAID, STATEMENT])
    assert all(file.printed is not None for file in done)
    return place


@needs_coq
@pytest.mark.parametrize("attack", PROOFS)
def test_proofs_that_coq_or_the_axioms_refuse(stated, attack):
    (stated / PROOF).write_text(BEFORE + PROOFS[attack])
    (stated / VERDICT).write_text(VERDICT_TEXT)
    (stated / "Proof.vo").unlink(missing_ok=True)
    if run_coqc(find_coqc(), stated, PROOF, "").printed is not None:
        verdict = run_coqc(find_coqc(), stated, VERDICT, "")
        assert verdict.printed is None or not all(map(is_accepted, assumptions(verdict.printed)))


@needs_coq
def test_a_statement_that_does_not_suffice(stated, folder, false_claim):
    """Statement.v is generated too: what it calls the claim must imply that of Model.v."""
    lines = false_claim[STATEMENT].partition("Lemma restated")[0].replace("claim : Prop :=", "claim : Prop := True \\/")
    forged = lines + "Lemma restated : claim -> Model.claim.\nProof. intros _. unfold Model.claim. tauto. Qed.\n"
    (stated / "Part_1.v").write_text(forged)
    assert "in restated" in run_coqc(find_coqc(), stated, "Part_1.v", forged).why


@needs_coq
def test_a_cached_lemma_with_an_axiom_is_noticed(folder, tmp_path, monkeypatch):
    """A stranger's compiled file in the cache: the axioms of the whole proof are read in the end."""
    filled = cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if filled.is_dir():
        shutil.copytree(filled, cache_folder())
    files = {name: text for name, text in coq_files(folder).items() if name.endswith(".v")}
    assumed = re.sub(r"(Theorem reading\b.*?\n)Proof\..*?Qed\.", r"\1Admitted.", files["Reading.v"], flags=re.DOTALL)
    assert assumed != files["Reading.v"]
    (tmp_path / "poisoned").mkdir()
    poisoned = Workshop(files | {"Reading.v": assumed}, LEMMAS - {"Reading.v"})
    poisoned.compile(tmp_path / "poisoned", ["Transformer.v", "Attention.v", "Reading.v"])
    shutil.copy(tmp_path / "poisoned" / "Reading.vo", cache_folder() / f"{Workshop(files).key('Reading.v')}.vo")
    verdict = prove_files(folder, files)
    assert {file.name for file in verdict.files if file.cached} >= {"Reading.v"}
    assert not verdict.proven and "Reading.reading" in verdict.reasons[0]


def test_a_cached_statement_is_not_used(folder, tmp_path, monkeypatch):
    """Every file stands in the cache, as if compiled from another text: all but lemmas are compiled nevertheless."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(coq_check, "find_coqc", lambda: None)
    monkeypatch.setattr(coq_compiler, "find_coqc", lambda: Coq("coqc", "8.16", "one installation"))
    ran = []

    def compiled(coq, place, name, text):
        ran.append(name)
        (place / name).with_suffix(".vo").write_bytes(b"")
        return Compiled(name, "Closed under the global context\n", 0.0, 0)

    monkeypatch.setattr(coq_compiler, "run_coqc", compiled)
    files = {name: text for name, text in coq_files(folder).items() if name.endswith(".v")}
    cache_folder().mkdir(parents=True, mode=0o700)
    for name in files:
        (cache_folder() / f"{Workshop(files).key(name)}.vo").write_bytes(b"forged")
    verdict = prove_files(folder, files)
    assert {file.name for file in verdict.files if file.cached} == LEMMAS
    assert sorted(ran) == sorted([*SAID, STATEMENT, PROOF, VERDICT])


def test_a_cache_that_others_may_write_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True, mode=0o700)
    assert is_private(cache_folder())
    os.chmod(cache_folder(), 0o777)
    assert not is_private(cache_folder())
    assert not is_private(tmp_path / "nowhere")


@needs_coq
def test_a_search_path_of_the_environment_is_not_used(tmp_path, monkeypatch):
    """COQPATH with a library of the same name as one of Coq's."""
    other = tmp_path / "path"
    other.mkdir()
    (other / "Shadow.v").write_text("Definition x := 1.\n")
    coq = find_coqc()
    assert run_coqc(coq, other, "Shadow.v", "").printed is not None
    monkeypatch.setenv("COQPATH", str(other))
    place = tmp_path / "place"
    place.mkdir()
    (place / "User.v").write_text("Require Shadow.\n")
    assert run_coqc(coq, place, "User.v", "").printed is None


@needs_coq
def test_a_folder_that_changes_meanwhile_is_refused(folder, monkeypatch):
    def meanwhile(copy, files, jobs):
        change_json(folder, "model.json", lambda m: m.update(formulas=["abs(x) + 1"]))
        return coq_check.CoqVerdict(True)

    monkeypatch.setattr(coq_check, "prove_files", meanwhile)
    verdict = prove_folder(folder)
    assert not verdict.proven and "changed" in verdict.reasons[0]


@needs_coq
def test_a_box_stated_the_wrong_way_round_restricts_nothing(stated):
    """No point lies between ends that are reversed, equal or undefined: a claim about those would be empty."""
    text = """Require Import Reals Lra Transformula.Typed.
Open Scope R_scope.
Lemma reversed low high x : result high <= result low -> inside low x high.
Proof. unfold inside. intros. exfalso. lra. Qed.
Lemma nowhere low high x : ~ (domain low /\\ domain high) -> inside low x high.
Proof. unfold inside. tauto. Qed.
"""
    (stated / "Part_2.v").write_text(text)
    assert run_coqc(find_coqc(), stated, "Part_2.v", text).why == ""
