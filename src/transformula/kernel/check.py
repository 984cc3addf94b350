"""The checker: re-derives a certificate's claim from the files alone, and trusts nobody.

It reads the folder, takes formula, box and weights from it, proves what the stored weights achieve with one
rule for each construction, and only then looks at the claim. It imports no construction and searches
nothing: the same files get the same answer everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformula.kernel.balls import precision
from transformula.kernel.boxes import Formula
from transformula.kernel.claim import Certificate, Mean, Proof
from transformula.kernel.description import CERTIFICATE_FILE, EVIDENCE_FILE, MAX_BYTES, Description, parse_json
from transformula.kernel.errors import ModelFileError, RefutedError, TransformulaError
from transformula.kernel.evidence import Evidence
from transformula.kernel.files import Packed, read_packed, read_text, unpack
from transformula.kernel.rounding import FORMATS, check_stored, describe
from transformula.kernel.weights import Weights
from transformula.kernel.work import limited

#: Working precision on entry; rules that need more ask for it. So nobody's own setting changes the answer.
BITS = 128


@dataclass(frozen=True)
class Verification:
    """The checker's answer; truthy when the claim holds.

    ``approximation`` and ``rounding`` are what the checker proved itself (None if it proved nothing), at every point of
    the box or, if there is a ``mean``, on average; ``reasons`` says why not.
    """

    verified: bool
    approximation: float | None = None
    rounding: float | None = None
    bound: float | None = None
    eps: float | None = None
    mean: Mean | None = None
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.verified


def verify_folder(folder: Path | str) -> Verification:
    """Check a model folder. Raises `ModelFileError` only where there is no whole folder to check."""
    folder = Path(folder)
    try:
        packed, claim = read_packed(folder), read_text(folder, CERTIFICATE_FILE)
    except ModelFileError as error:
        if not all((folder / name).is_file() for name in MAX_BYTES):
            raise
        return Verification(False, reasons=(str(error),))
    return verify_files(packed, claim)


def verify_files(packed: Packed, certificate_text: str) -> Verification:
    """Check file contents."""
    try:
        certificate = Certificate.from_json(certificate_text)
        with limited():
            weights, description = unpack(packed)
        evidence = Evidence(parse_json(packed.evidence, EVIDENCE_FILE))
    except Exception as error:
        return Verification(False, reasons=(_reason(error),))
    reasons = []
    for name, found in packed.hashes.items():
        if found != getattr(certificate, name):
            file = {"weights_sha256": "model.safetensors", "model_sha256": "model.json"}.get(name, EVIDENCE_FILE)
            reasons.append(f"{file} is not the file the certificate speaks of (sha256 differs)")
    if description.construction != certificate.construction:
        reasons.append("the certificate is for another construction")
    if certificate.dtype != weights.dtype or certificate.rounding_model != describe(weights.dtype):
        reasons.append("the certificate's rounding model is not that of the weights' dtype")
    try:
        proof = prove(weights, description, evidence)
    except Exception as error:
        return Verification(False, eps=certificate.eps, reasons=(*reasons, _reason(error)))
    for name in ("approximation", "rounding"):
        claimed, proven = getattr(certificate, name), getattr(proof, name)
        if not 0 <= proven <= claimed:
            reasons.append(f"{name}: {claimed:.6g} is claimed, only {proven:.6g} is proven")
    reasons += _wrong_mean(certificate.mean, proof.mean)
    if not certificate.bound <= certificate.eps:
        reasons.append(f"the claimed bound {certificate.bound:.6g} is above eps {certificate.eps:.6g}")
    proven = proof.approximation, proof.rounding, proof.bound
    return Verification(not reasons, *proven, certificate.eps, proof.mean, tuple(reasons))


def _wrong_mean(claimed: Mean | None, proven: Mean | None) -> list[str]:
    """What is wrong with the numbers beside a mean; a mean proves nothing about every point."""
    if claimed is None or proven is None:
        return [] if claimed is proven else ["the certificate and the proof are not both about the mean over the box"]
    pairs = ((name, getattr(claimed, name), getattr(proven, name)) for name in vars(claimed))
    return [f"{name}: {a:.6g} is claimed, only {b:.6g} is proven" for name, a, b in pairs if not 0 <= b <= a]


def _reason(error: Exception) -> str:
    """Why a check ended; a hostile folder may exhaust memory or depth, and that is a refusal as well."""
    if isinstance(error, TransformulaError):
        return str(error)
    if isinstance(error, RecursionError):
        return "a file of the folder is nested too deeply"
    return f"the check stopped: {type(error).__name__}: {error}"[:300]


def prove(weights: Weights, description: Description, evidence: Evidence) -> Proof:
    """Prove what these weights achieve, or raise `NotProvenError`. Evidence says where to cut, no more."""
    from transformula.kernel.compact import prove_compact
    from transformula.kernel.corollary import prove_corollary
    from transformula.kernel.heads import check_size
    from transformula.kernel.in_context import prove_in_context
    from transformula.kernel.linear_attention import prove_linear_attention
    from transformula.kernel.memorize import prove_memorize
    from transformula.kernel.polynomial import prove_polynomial
    from transformula.kernel.prompts import Task

    name = description.construction
    with precision(BITS), limited(evidence.most_work):
        if name in ("memorize", "compact", "in-context"):
            check_stored(weights)
            if name != "in-context":
                rule = prove_memorize if name == "memorize" else prove_compact
                return rule(weights, description.samples or {})
            return prove_in_context(weights, Task.of(description.task or {}))
        formula = target(description)
        if weights.inputs != formula.box.variables:
            raise RefutedError("the weights' inputs are not the box's variables")
        if weights.outputs != len(formula.outputs):
            raise RefutedError(f"the weights have {weights.outputs} outputs, not {len(formula.outputs)}")
        for k in range(formula.box.dimension):  # used or not: a dense product multiplies infinity by 0
            check_size(FORMATS[weights.dtype], formula.box.magnitude(k))
        if name in ("polynomial", "corollary"):
            check_stored(weights, ("readout", "bias"))
            if name == "corollary":
                return prove_corollary(weights, formula, description.circuit or {}, evidence)
            return prove_polynomial(weights, formula)
        if name == "yun":
            from transformula.kernel.yun import prove_yun

            check_stored(weights)
            return prove_yun(weights, formula, description.circuit or {}, evidence)
        from transformula.kernel.local import prove_local
        from transformula.kernel.softmax_rule import prove_softmax

        check_stored(weights)
        if name == "linear-attention":
            return prove_linear_attention(weights, formula)
        check_shape(description, weights)
        if name in ("attention-only", "local-polynomials") and any(b.feed_forward is not None for b in weights.blocks):
            raise RefutedError("a model without feed-forward layers has one")
        if name == "local-polynomials":
            return prove_local(weights, formula, description.circuit, evidence)
        sharp = name in ("partition", "attention-only")
        return prove_softmax(weights, formula, description.circuit, evidence, sharp)


def target(description: Description) -> Formula:
    """The formulas on their box, as model.json states them."""
    if description.formulas is None or description.box is None:
        raise ModelFileError("model.json states no formulas on a box")
    return Formula.of(description.formulas, description.box)


def check_shape(description: Description, weights: Weights) -> None:
    """A sequence of shape (positions, features) has one data token and that many numbers a position."""
    positions = len(weights.data_tokens)
    if description.shape is None:
        if positions > 1:
            raise RefutedError("model.json states no shape, and the weights are those of a sequence")
        return
    n, d = description.shape
    if not (positions == n and n * d == len(weights.inputs) == weights.outputs):
        raise RefutedError(f"the weights are not those of a sequence of shape {n} x {d}")
