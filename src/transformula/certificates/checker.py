"""The checker: re-derives a certificate's claim from the files alone, and trusts nobody.

It reads the folder, takes the formula and the box from model.json, proves with Arb what the stored
weights achieve, and only then looks at the claim. It imports no construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformula.certificates.claim import Certificate
from transformula.certificates.proof import Proof
from transformula.certificates.rounding import describe
from transformula.certificates.rules import Target, prove
from transformula.errors import InputError, ModelFileError, NotProvenError, TransformulaError
from transformula.formulas.formula import Formula
from transformula.formulas.samples import Samples
from transformula.transformers.files import (
    CERTIFICATE_FILE,
    Packed,
    read_packed,
    read_text,
    unpack,
)
from transformula.transformers.weights import Weights


@dataclass(frozen=True)
class Verification:
    """The checker's answer; truthy when the claim holds.

    ``approximation`` and ``rounding`` are what the checker proved itself (None if it proved nothing);
    ``reasons`` says why not.
    """

    verified: bool
    approximation: float | None = None
    rounding: float | None = None
    bound: float | None = None
    eps: float | None = None
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.verified


#: Claims are this much above what was proven here, so that the last digits of another machine's
#: libraries can not make an honest certificate fail.
CLAIM_MARGIN = 1.001


def certify(
    construction: str,
    weights: Weights,
    target: Target,
    packed: Packed,
    eps: float | None,
    plan: Mapping[str, Any] | None = None,
) -> Certificate:
    """Prove and write down the claim; refuse if it does not meet the tolerance.

    Without a tolerance the proven bound itself becomes the claim.
    """
    proven = prove(construction, weights, target, plan)
    proof = Proof(proven.approximation * CLAIM_MARGIN, proven.rounding * CLAIM_MARGIN, proven.details)
    if eps is not None and proof.bound > eps:
        raise NotProvenError(
            _shortfall(proof, eps, weights.dtype), best_bound=proof.bound, rounding=proof.rounding
        )
    return Certificate(
        construction=construction,
        approximation=proof.approximation,
        rounding=proof.rounding,
        eps=proof.bound if eps is None else eps,
        dtype=weights.dtype,
        rounding_model=describe(weights.dtype),
        weights_sha256=packed.weights_sha256,
        model_sha256=packed.model_sha256,
        details=proof.details,
    )


def _shortfall(proof: Proof, eps: float, dtype: str) -> str:
    parts = f"approximation {proof.approximation:.3g} + rounding {proof.rounding:.3g}"
    advice = f"ask for eps >= {proof.bound:.2g}"
    if proof.rounding > eps and dtype != "float64":
        advice += ", or use float64"
    elif proof.rounding > eps:
        advice += ", or take a smaller box"
    return f"eps = {eps:g} is not proven: the best bound is {proof.bound:.3g} ({parts}); {advice}"


def verify_folder(folder: Path | str) -> Verification:
    """Check a model folder. Raises `ModelFileError` only where there is no whole folder to check."""
    folder = Path(folder)
    return verify_files(read_packed(folder), read_text(folder, CERTIFICATE_FILE))


def verify_files(packed: Packed, certificate_text: str) -> Verification:
    """Check file contents."""
    try:
        certificate = Certificate.from_json(certificate_text)
        weights, description = unpack(packed)
        target = stored_target(description)
        stored_shape(description, weights)
    except InputError as error:
        return Verification(False, reasons=(str(error),))
    reasons = []
    if packed.weights_sha256 != certificate.weights_sha256:
        reasons.append("model.safetensors is not the file the certificate speaks of (sha256 differs)")
    if packed.model_sha256 != certificate.model_sha256:
        reasons.append("model.json is not the file the certificate speaks of (sha256 differs)")
    if description.get("construction") != certificate.construction:
        reasons.append("the certificate is for another construction")
    if certificate.dtype != weights.dtype or certificate.rounding_model != describe(weights.dtype):
        reasons.append("the certificate's rounding model is not that of the weights' dtype")
    try:
        proof = prove(certificate.construction, weights, target, stored_plan(description))
    except TransformulaError as error:
        return Verification(False, eps=certificate.eps, reasons=(*reasons, str(error)))
    reasons += _unmet(certificate, proof)
    return Verification(
        not reasons,
        proof.approximation,
        proof.rounding,
        proof.bound,
        certificate.eps,
        tuple(reasons),
    )


def stored_plan(description: dict[str, Any]) -> Mapping[str, Any]:
    """The hints model.json holds for the proof; a circuit needs some, and believes none."""
    plan = description.get("plan")
    return plan if isinstance(plan, dict) else {}


def _unmet(certificate: Certificate, proof: Proof) -> list[str]:
    reasons = []
    for name in ("approximation", "rounding"):
        claimed, proven = getattr(certificate, name), getattr(proof, name)
        if proven > claimed:
            reasons.append(f"{name}: {claimed:.6g} is claimed, only {proven:.6g} is proven")
    if certificate.bound > certificate.eps:
        reasons.append(f"the claimed bound {certificate.bound:.6g} is above eps {certificate.eps:.6g}")
    return reasons


def stored_target(description: dict[str, Any]) -> Target:
    """What model.json says the model is to compute: formulas on a box, or samples."""
    samples = description.get("samples")
    if samples is not None:
        try:
            return Samples.of(samples["x"], samples["y"])
        except (KeyError, TypeError):
            raise ModelFileError("model.json states its samples without x or y") from None
    texts, box = description.get("formulas"), description.get("box")
    if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
        raise ModelFileError("model.json states no formulas")
    if not isinstance(box, str):
        raise ModelFileError("model.json states no box")
    return Formula.of(texts, box)


def stored_shape(description: dict[str, Any], weights: Weights) -> tuple[int, int] | None:
    """The sequence's (positions, features) that model.json states, if the weights have that shape."""
    shape = description.get("shape")
    if shape is None:
        if (
            description.get("construction") in ("lookup", "partition", "circuit")
            and len(weights.data_tokens) > 1
        ):
            raise ModelFileError("model.json states no shape, and the weights are those of a sequence")
        return None
    whole = isinstance(shape, list) and len(shape) == 2 and all(type(v) is int and v > 0 for v in shape)
    if not whole:
        raise ModelFileError("model.json states a shape that is not [positions, features]")
    positions, features = shape
    sizes = {positions * features, len(weights.inputs), weights.outputs}
    if len(sizes) > 1 or len(weights.data_tokens) != positions:
        raise ModelFileError(f"the weights are not those of a sequence of shape {positions} x {features}")
    return positions, features
