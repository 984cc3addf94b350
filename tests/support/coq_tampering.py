"""Tampered inputs of `verify --coq`, seeded: in a folder, in an export, in Model.v, in a proof file, in one of two places.

Each is a false claim, or files that do not belong together. `caught` says which line of defence refuses it, and
"accepted" must never be among them.
"""

import hashlib
import json
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from support.coq_folders import case_folder, change_array, change_json, coq_contents
from transformula.coq.coq_check import differing, objection, prove_files
from transformula.coq.coq_files import MODEL, PROOF, STATEMENT, coq_files
from transformula.coq.transcription import expected
from transformula.errors import TransformulaError
from transformula.kernel.folder.description import Certificate
from transformula.proven import verify_folder

CASES = ("abs-float64", "sqrt-float64", "I.14.3-float64", "II.34.2a-float64", "test_5-float32")
#: Cases whose files `coqc` reads in seconds.
SMALL = ("abs-float64", "I.14.3-float64")
HASHES = {"weights_sha256": "model.safetensors", "model_sha256": "model.json", "evidence_sha256": "evidence.json"}


@dataclass(frozen=True)
class Tampering:
    """One tampered input: what is changed, where, and in which case."""

    what: str
    where: str
    case: str
    seed: int

    @property
    def needs_coqc(self):
        return self.where in ("a proof file", "folder and Model.v")


def tamperings():
    """All of them; the seed picks the place and the size of the change."""
    plan = [("folder", what, CASES, 3) for what in FOLDER]
    plan += [("folder, signed again", what, CASES[:4], 2) for what in FOLDER if what not in ("evidence", "derivation")]
    plan += [
        ("export", what, CASES, 1)
        for what in ("Model.v", "Proof.v", "Statement.v", "Verdict.v", "Transformer.v", "a file more")
    ]
    plan += [("Model.v", what, CASES, 2) for what in TEXT]
    plan += [("a proof file", what, SMALL, 1) for what in PROOFS]
    plan += [("folder and Model.v", what, SMALL, 1) for what in ("weight", "sign", "formula", "box", "bound")]
    return [Tampering(what, where, case, seed) for where, what, cases, n in plan for case in cases for seed in range(n)]


def _weight(folder, rng, change):
    """A number of the readout or of the memory that counts."""
    header = _header(folder)
    array = rng.choice([a for a in ("readout.values", "memory.values") if header[a]["shape"][0]])
    change_array(folder, array, rng.randrange(header[array]["shape"][0]), change)


def _header(folder):
    data = (folder / "model.safetensors").read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def _index(folder, rng):
    header = _header(folder)
    array = rng.choice([a for a in ("readout.cols", "embedding.rows") if header[a]["shape"][0]])
    change_array(folder, array, rng.randrange(header[array]["shape"][0]), lambda i: i + 1)


def _formula(folder, rng):
    change = rng.choice(["{} + 1/10", "2*({})", "({})**2 + 1", "-({}) - 1", "({}) - 1/3"])
    change_json(folder, "model.json", lambda m: m.update(formulas=[change.format(text) for text in m["formulas"]]))


def _box(folder, rng):
    """Another upper end of the last variable."""
    end = rng.choice(["100", "7*pi", "1e3", "50"])
    change_json(folder, "model.json", lambda m: m.update(box=re.sub(r"\.\.[^,.]+$", f"..{end}", m["box"])))


def _bound(folder, rng):
    """A tolerance below the proven rounding."""
    change_json(folder, "certificate.json", lambda c: c.update(eps=c["rounding"] * rng.uniform(0.1, 0.9)))


def _derivation(folder, rng):
    def change(model):
        circuit = model.get("circuit") or {"wires": []}
        for output in circuit.get("outputs", []):
            output["plus"] = str(rng.randrange(2, 9))
        model["circuit"] = circuit

    change_json(folder, "model.json", change)


def _evidence(folder, rng):
    change_json(folder, "evidence.json", lambda e: e.update(defined=[[rng.randrange(1, 9)]]))


FOLDER = {
    "weight": lambda folder, rng: _weight(
        folder, rng, lambda v: v * (1 + rng.choice([-1, 1]) * 2.0 ** -rng.randrange(1, 6)) + 1
    ),
    "sign": lambda folder, rng: _weight(folder, rng, lambda v: -v - 1),
    "index": _index,
    "formula": _formula,
    "box": _box,
    "bound": _bound,
    "derivation": _derivation,
    "evidence": _evidence,
}


def _digits(text, rng, pattern):
    """Another digit in one of the places that a pattern finds."""
    found = rng.choice(list(re.finditer(pattern, text)))
    at = rng.randrange(found.start(1), found.end(1))
    return text[:at] + rng.choice([d for d in "123456789" if d != text[at]]) + text[at + 1 :]


TEXT = {
    "weight": lambda text, rng: _digits(text, rng, r"Entry \d+ \d+ \(-?(\d+)\)"),
    "denominator": lambda text, rng: _digits(text, rng, r"Entry \d+ \d+ \(-?\d+\) (\d+)"),
    "sign": lambda text, rng: re.sub(r"(Entry \d+ \d+ \()(-?)", lambda m: m[1] + ("" if m[2] else "-"), text, count=1),
    "row": lambda text, rng: _digits(text, rng, r"Entry (\d+)"),
    "column": lambda text, rng: _digits(text, rng, r"Entry \d+ (\d+)"),
    "formula": lambda text, rng: text.replace("%typed", " + (literal 1 7)%typed"),
    "box": lambda text, rng: _digits(text, rng, r"inside .*\(literal (\d+)"),
    "bound": lambda text, rng: text.replace("bound : R := ", f"bound : R := {rng.randrange(1, 9)}"),
    "attention": lambda text, rng: re.sub(
        "Softmax|Hardmax", lambda m: {"Softmax": "Hardmax"}.get(m[0], "Softmax"), text, count=1
    ),
    "goal": lambda text, rng: text.replace(") bound /\\", ") (bound + bound) /\\", 1),
    "an axiom": lambda text, rng: text + "Axiom free : claim.\n",
    "a notation": lambda text, rng: text.replace("Definition bound", 'Notation "x <= y" := True.\nDefinition bound'),
    "a comment": lambda text, rng: text.replace("\n", f"\n(* {rng.randrange(99)} *)", 1),
}
PROOFS = {
    "nothing proven": lambda files: files | {PROOF: files[PROOF].replace("Theorem certified : claim.", "Theorem certified : True.")},
    "proof cut off": lambda files: files | {PROOF: files[PROOF].rpartition("Qed.")[0]},
    "half the bound": lambda files: files | {STATEMENT: files[STATEMENT].replace("Definition bound : R := ", "Definition bound : R := 3 * ")},
    "another formula": lambda files: files | {STATEMENT: files[STATEMENT].replace(" in Typed.result ", " in 1 + Typed.result ")},
    "another box": lambda files: files | {STATEMENT: re.sub(r"<= (v_\w+) <= ", r"<= \1 + 1 <= ", files[STATEMENT], count=1)},
    "a variable for an axiom": lambda files: files | {PROOF: files[PROOF].partition("Theorem certified")[0] + "Variable certified : claim.\n"},
    "a hypothesis more": lambda files: files | {STATEMENT: files[STATEMENT].replace("Definition claim : Prop := forall", "Definition claim : Prop := 1 = 0 -> forall")},
    "no proof": lambda files: files | {PROOF: ""},
}  # fmt: skip


def sign_again(folder):
    """Hashes and digest of a certificate made to fit the changed files, as anyone can."""
    body = json.loads((folder / "certificate.json").read_text())
    body.pop("digest")
    body |= {key: hashlib.sha256((folder / name).read_bytes()).hexdigest() for key, name in HASHES.items()}
    (folder / "certificate.json").write_text(Certificate(**body).to_json())


def caught(tampering, place):
    """The line of defence that refuses a tampered input; "accepted" if none does."""
    rng = random.Random(f"{tampering}")
    folder = case_folder(tampering.case, Path(place) / "tampered")
    try:
        return _caught(tampering, folder, rng)
    finally:
        shutil.rmtree(folder.parent)


def _caught(tampering, folder, rng):
    if tampering.where.startswith("folder"):
        files = coq_files(folder) if tampering.needs_coqc else {}
        before = [*coq_contents(folder), (folder / "evidence.json").read_bytes()]
        FOLDER[tampering.what](folder, rng)
        assert before != [*coq_contents(folder), (folder / "evidence.json").read_bytes()], "nothing was changed"
        if tampering.needs_coqc:  # the kernel left out: Coq alone has to notice
            return judged(folder, files | {MODEL: expected(*coq_contents(folder))})
        return verified(folder, signed="signed" in tampering.where)
    files = coq_files(folder)
    if tampering.where == "export":
        return exported(folder, files, tampering.what)
    if tampering.where == "Model.v":
        changed = files | {MODEL: TEXT[tampering.what](files[MODEL], rng)}
    else:
        changed = PROOFS[tampering.what](files)
    assert changed != files, "nothing was changed"
    return judged(folder, changed)


def verified(folder, signed):
    """What `verify --coq` does with a folder first: hashes and digest, then the kernel's proof."""
    if signed:
        sign_again(folder)
    try:
        reason = "; ".join(map(str, verify_folder(folder).reasons))
    except TransformulaError as error:
        reason = str(error)
    if not reason:
        return "accepted"
    return "hash" if re.search("sha256|digest|changed|belong", reason) else "kernel"


def exported(folder, files, name):
    """An export beside the folder with one file changed, or one more."""
    place = folder / "coq"
    place.mkdir()
    for file, text in files.items():
        (place / file).write_text(text)
    path = place / (name if name in files else "Reals.v")
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    return "export" if differing(files, place) else "accepted"


def judged(folder, files):
    """Files handed to the check as if the generator had made them."""
    if reason := objection(folder, files):
        return "transcription" if "the folder" in reason else "rules"
    return "accepted" if prove_files(folder, files).proven else "coqc"
