"""Theorems that Coq accepts, theorems it does not, and what is said where none can be written."""

import json
import shutil

import pytest

from support.coq_folders import case_folder, change_array
from transformula.coq.coq_check import assumptions, is_accepted, prove_files, prove_folder
from transformula.coq.coq_files import MODEL, PROOF, coq_files
from transformula.coq.transcription import expected
from transformula.errors import ExportError, InputError

needs_coq = pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not installed")


@needs_coq
@pytest.mark.parametrize("name", ["sqrt", "II.15.4", "I.14.3", "abs"])
def test_coq_accepts(name, tmp_path):
    verdict = prove_folder(case_folder(f"{name}-float64", tmp_path))
    assert verdict.proven and not verdict.reasons
    assert all(map(is_accepted, verdict.axioms)) and "ClassicalDedekindReals.sig_forall_dec" in verdict.axioms
    assert {file.name for file in verdict.files} >= {"Transformer.v", MODEL, PROOF, "Verdict.v"}


@needs_coq
def test_coq_refuses_other_weights(tmp_path):
    """A faithful transcription of weights that compute something else."""
    folder = case_folder("abs-float64", tmp_path)
    files = coq_files(folder)
    from fractions import Fraction

    change_array(folder, "readout.values", 0, lambda v: v * (1 + 2.0**-20))
    tampered = files | {MODEL: expected(folder, Fraction(9999, 10**13))}
    verdict = prove_files(folder, tampered)
    assert not verdict.proven and verdict.reasons == (f"coqc does not accept {PROOF}",)


@needs_coq
def test_an_edited_export_is_noticed(tmp_path):
    folder = case_folder("abs-float64", tmp_path)
    exported = tmp_path / "coq"
    exported.mkdir()
    for name, text in coq_files(folder).items():
        (exported / name).write_text(text.replace("lra", "nra"))
    verdict = prove_folder(folder, exported)
    assert not verdict.proven and "export it again" in verdict.reasons[0]


def test_lengths_are_refused_by_name(tmp_path):
    with pytest.raises(ExportError, match="lengths made of ReLUs"):
        coq_files(case_folder("I.29.16-float64", tmp_path))


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
