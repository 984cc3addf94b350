"""The checker: re-derives a certificate's claim from the files alone.

It reads the folder, takes formula, box and weights from it, proves what the stored weights achieve with one
rule for each construction, and only then looks at the claim. It imports no construction and searches
nothing: the same files get the same answer everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformula.kernel.arithmetic import precision
from transformula.kernel.exceptions import ModelFileError, TransformulaError
from transformula.kernel.folder.description import (
    CERTIFICATE_FILE,
    EVIDENCE_FILE,
    MAX_BYTES,
    Certificate,
    Description,
    Mean,
    Proof,
    parse_json,
)
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed, read_packed, read_text, unpack
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rounding.formats import describe
from transformula.kernel.rules.rule_table import RULES

#: The reason where a check was stopped at a limit of its process (`isolation`).
OUT_OF_RESOURCES = "out of resources: the check needs more processor time or memory than it may use"
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


def verify_folder(folder: Path | str, verify: Callable[[Packed, str], Verification] | None = None) -> Verification:
    """Check a model folder, in this process unless ``verify`` checks its contents elsewhere (`isolation`).

    Raises `ModelFileError` only where there is no whole folder to check.
    """
    folder = Path(folder)
    try:
        packed, claim = read_packed(folder), read_text(folder, CERTIFICATE_FILE)
    except ModelFileError as error:
        if not all((folder / name).is_file() for name in MAX_BYTES):
            raise
        return Verification(False, reasons=(str(error),))
    return (verify or verify_files)(packed, claim)


def verify_files(packed: Packed, certificate_text: str) -> Verification:
    """Check file contents."""
    try:
        certificate = Certificate.from_json(certificate_text)
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
    """Reasons against the numbers beside a mean; a mean proves nothing about every point."""
    if claimed is None or proven is None:
        return [] if claimed is proven else ["the certificate and the proof are not both about the mean over the box"]
    pairs = ((name, getattr(claimed, name), getattr(proven, name)) for name in vars(claimed))
    return [f"{name}: {a:.6g} is claimed, only {b:.6g} is proven" for name, a, b in pairs if not 0 <= b <= a]


def _reason(error: Exception) -> str:
    """Why a check ended; a hostile folder may exhaust memory or depth, and that is a refusal as well."""
    if isinstance(error, TransformulaError):
        return str(error)
    if isinstance(error, MemoryError):
        return OUT_OF_RESOURCES
    if isinstance(error, RecursionError):
        return "a file of the folder is nested too deeply"
    return f"the check stopped: {type(error).__name__}: {error}"[:300]


def prove(weights: Weights, description: Description, evidence: Evidence) -> Proof:
    """Prove what these weights achieve, or raise `NotProvenError`. Evidence says where to cut, no more."""
    with precision(BITS):
        return RULES[description.construction](weights, description, evidence)
