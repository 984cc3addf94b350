"""The checker: re-derives a certificate's claim from the files alone.

It reads the folder, takes formula, box and weights from it, proves what the stored weights achieve with one
rule for each construction, and only then looks at the claim. It imports no construction and searches
nothing: the same files get the same answer everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.expression_ranges import range_on
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import ModelFileError, NotProvenError, RefutedError, TransformulaError
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
from transformula.kernel.rules.rule_table import RULES, target
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, short_text

#: The reason where a check was stopped at a limit of its process (`isolation`).
OUT_OF_RESOURCES = "out of resources: the check needs more processor time or memory than it may use"
#: Working precision on entry; rules that need more ask for it. So nobody's own setting changes the answer.
BITS = 128


@dataclass(frozen=True)
class Verification:
    """The checker's answer; truthy when the claim holds.

    ``approximation`` and ``rounding`` are what the checker proved itself (None if it proved nothing), at every point of
    the box or, if there is a ``mean``, on average; ``relative`` is the claim relative to |f|, if there is one and it is
    proven; ``reasons`` says why not.
    """

    verified: bool
    approximation: float | None = None
    rounding: float | None = None
    bound: float | None = None
    eps: float | None = None
    mean: Mean | None = None
    relative: float | None = None
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
        relative = None if certificate.relative is None else relative_error(certificate, description, evidence)
    except Exception as error:
        return Verification(False, eps=certificate.eps, reasons=(*reasons, _reason(error)))
    for name in ("approximation", "rounding"):
        claimed, proven = getattr(certificate, name), getattr(proof, name)
        if not 0 <= proven <= claimed:
            reasons.append(f"{name}: {claimed:.6g} is claimed, only {proven:.6g} is proven")
    reasons += _wrong_mean(certificate.mean, proof.mean)
    shown = certificate.relative
    if shown is not None and (relative is None or not relative <= shown):
        reasons.append(f"relative: {shown:.6g} is claimed, which is not proven")
        shown = None
    if not certificate.bound <= certificate.eps:
        reasons.append(f"the claimed bound {certificate.bound:.6g} is above eps {certificate.eps:.6g}")
    proven = proof.approximation, proof.rounding, proof.bound
    return Verification(not reasons, *proven, certificate.eps, proof.mean, shown, tuple(reasons))


def _wrong_mean(claimed: Mean | None, proven: Mean | None) -> list[str]:
    """Reasons against the numbers beside a mean; a mean proves nothing about every point."""
    if claimed is None or proven is None:
        return [] if claimed is proven else ["the certificate and the proof are not both about the mean over the box"]
    pairs = ((name, getattr(claimed, name), getattr(proven, name)) for name in vars(claimed))
    return [f"{name}: {a:.6g} is claimed, only {b:.6g} is proven" for name, a, b in pairs if not 0 <= b <= a]


def relative_error(certificate: Certificate, description: Description, evidence: Evidence) -> Fraction:
    """A bound of |computed − f| / |f| over the box.

    If |computed − f| ≤ bound and |1/f| ≤ s on the box, then f is not 0 there, and |computed − f| ≤ bound · s · |f|.
    """
    if certificate.mean is not None:
        raise RefutedError("a bound of the mean says nothing about relative errors at every point")
    with precision(BITS):
        return Fraction(certificate.bound) * largest_inverse(target(description), evidence)


def largest_inverse(formula: Formula, evidence: Evidence) -> Fraction:
    """A bound of |1/f| over the box, for all outputs, on the given parts of it; refused where an f may be 0."""
    region, largest = Region.of_box(formula.box), Fraction(0)
    for output, expr in enumerate(formula.outputs):
        low, high = range_on(inverse_of(expr), region, evidence.inverse(output))
        if low <= 0 <= high:
            raise NotProvenError(f"{short_text(expr)} may have no bounded inverse on the box")
        largest = max(largest, Fraction(high if low > 0 else -low))
    return largest


def inverse_of(expr: Expr) -> Expr:
    """1/f; a formula that is 0 everywhere is refused."""
    if expr.number == 0:
        raise NotProvenError("the formula is 0, and no relative error can be promised")
    return ex.div(ex.number(1), expr)


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
