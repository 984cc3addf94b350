"""All files of a theorem: the library, the model, the generated lemmas, the verdict and a page that explains them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from transformula.coq.circuit_files import circuit_files
from transformula.coq.coq_source import Source, precision
from transformula.coq.coq_statement import allowed_bound, model_file
from transformula.coq.polynomial_theorem import polynomial_files

#: The library, in an order in which it can be compiled.
LIBRARY = ("Transformer.v", "Attention.v", "Analysis.v", "Reading.v", "Powers.v")
MODEL, PROOF, VERDICT, PAGE = "Model.v", "Proof.v", "Verdict.v", "README.md"
#: Bits of the numbers by which bounds are foreseen.
BITS = 200
_VERDICT = """Require Transformula.Model Transformula.Proof.
Definition accepted : Transformula.Model.claim := Transformula.Proof.certified.
Print Assumptions accepted.
"""
_PAGE = """# A theorem about a Transformer

`claim` in Model.v says: at every point of the box the formula is defined, and the Transformer whose stored numbers are
in Model.v, computed in real arithmetic as Transformer.v says, is within {bound:.6g} of it.

    formula   {formula}
    box       {box}
    bound     {bound:.6g} (eps {eps:g} less the rounding {rounding:.3g}, which is not part of the theorem)

Read Transformer.v and Model.v: nothing else has to be believed but Coq. Attention.v, Analysis.v, Reading.v and Powers.v
are lemmas proven once; Table_*.v and Proof.v are the proof of this model.

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
        bound = allowed_bound(source)
        model = model_file(source, bound)
        proof = polynomial_files(source) if source.is_polynomial else circuit_files(source)
    files = {name: library_file(name) for name in LIBRARY} | {MODEL: model} | proof | {VERDICT: _VERDICT}
    certificate = source.certificate
    page = _PAGE.format(
        formula="; ".join(source.typed),
        box=source.description.box,
        bound=float(bound),
        eps=certificate.eps,
        rounding=certificate.rounding,
        order=" ".join(files),
    )
    return files | {PAGE: page}
