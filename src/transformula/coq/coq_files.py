"""All files of a theorem: the library, the model, the generated lemmas, the verdict and a page that explains them."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from transformula.coq.circuit_files import circuit_files
from transformula.coq.coq_source import Source, precision
from transformula.coq.coq_statement import allowed_bound, refuse_unknown_words, statement_file
from transformula.coq.polynomial_theorem import polynomial_files
from transformula.coq.sample_theorem import sample_files
from transformula.coq.transcription import expected
from transformula.errors import ExportError

#: The library, in an order in which it can be compiled.
LIBRARY = ("Transformer.v", "Typed.v", "Attention.v", "Analysis.v", "Reading.v", "Powers.v", "Folds.v", "Samples.v")
MODEL, STATEMENT, PROOF, VERDICT, PAGE = "Model.v", "Statement.v", "Proof.v", "Verdict.v", "README.md"
#: The files of a folder that a theorem is about, and the evidence that the generator takes ranges from.
CHECKED = ("model.safetensors", "model.json", "certificate.json", "evidence.json")
#: Precision above which Interval does not use native floats.
INTEGER_BITS = 60
#: Bits of the numbers by which bounds are foreseen.
BITS = 200
VERDICT_TEXT = """Require Transformula.Model Transformula.Statement Transformula.Proof.
Definition accepted : Transformula.Model.claim := Transformula.Statement.restated Transformula.Proof.certified.
Print Assumptions accepted.
"""
_PAGE = """# A theorem about a Transformer

`claim` in Model.v says: at every point of the box (of a memorised table: at every sample) the formula is defined, and
the Transformer whose stored numbers are in Model.v, computed in real arithmetic as Transformer.v says, is within
{bound:.6g} of it. Typed.v says
when a formula is defined.

    formula   {formula}
    box       {box}
    bound     {bound:.6g} (eps {eps:g} less the rounding {rounding:.3g}, which is not part of the theorem)

Read Transformer.v, Typed.v and Model.v: nothing else has to be believed but Coq. Attention.v, Analysis.v, Reading.v,
Powers.v, Folds.v and Samples.v are lemmas proven once; Statement.v, Table_*.v and Proof.v are the proof of this model.

    for f in {order}; do coqc -Q . Transformula $f; done

The last file prints the axioms that the proof uses. `transformula verify FOLDER --coq` does all of this, and checks
that Model.v is what the folder holds.
"""


def library_file(name: str) -> str:
    """The text of a file of the library."""
    return resources.files("transformula.coq").joinpath("theories", name).read_text(encoding="utf-8")


def coq_files(folder: Path) -> dict[str, str]:
    """The files of a model's theorem by name, or the reason why none can be written."""
    with precision(BITS):
        source = Source.of(folder)
        refuse_unknown_words(source)
        proof = (sample_files if source.samples else polynomial_files if source.is_polynomial else circuit_files)(
            source
        )
    try:
        model = expected(*((folder / name).read_bytes() for name in CHECKED[:3]))
    except (SyntaxError, ValueError, LookupError, AttributeError, AssertionError) as error:
        raise ExportError(
            f"the formula or the box cannot be written for Coq: {error or type(error).__name__}"
        ) from None
    files = {name: library_file(name) for name in LIBRARY} | {MODEL: model, STATEMENT: statement_file(source)}
    files |= proof | {VERDICT: VERDICT_TEXT}
    certificate = source.certificate
    page = _PAGE.format(
        formula="; ".join(source.typed) or "none: a memorised table",
        box=source.description.box or f"{len(source.samples)} samples, and nothing between them",
        bound=float(allowed_bound(source)),
        eps=certificate.eps,
        rounding=certificate.rounding,
        order=" ".join(files),
    )
    return files | {PAGE: page}


def theorem_archive(folder: Path) -> bytes:
    """The files as a zip, to be offered where there is no folder to export to."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in coq_files(folder).items():
            archive.writestr(f"coq/{name}", text)
    return written.getvalue()


def without_native_floats(files: Mapping[str, str]) -> dict[str, str]:
    """The files with every call of `interval` at a precision at which Interval computes in native integers instead."""

    def precise(found: re.Match[str]) -> str:
        options = [option.strip() for option in (found[1] or "").split(",") if option.strip()]
        bits = [int(option[7:]) for option in options if option.startswith("i_prec ")]
        kept = [option for option in options if not option.startswith("i_prec ")]
        return f"interval with ({', '.join([*kept, f'i_prec {max([*bits, INTEGER_BITS])}'])})"

    call = re.compile(r"\binterval\b(?: with \(([^()]*)\))?")
    return {name: call.sub(precise, text) if name.endswith(".v") else text for name, text in files.items()}
