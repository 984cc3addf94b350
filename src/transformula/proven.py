"""Proofs made by this process. Nothing else is called proven, whatever a folder says about itself.

A folder's certificate is a claim: anyone who changes the weights can recompute the hashes. So the word *proven* is
reserved for contents that the kernel has accepted in this process, known by their fingerprint; all others are
*claimed*.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from transformula import checker
from transformula.errors import NotProvenError
from transformula.kernel import check
from transformula.kernel.check import Verification
from transformula.kernel.folder.description import Certificate
from transformula.kernel.folder.model_files import Packed

_proven: set[str] = set()


def fingerprint(packed: Packed, certificate: Certificate) -> str:
    """A hash of a model's contents and of the claim about them."""
    parts = (certificate.to_json(), *packed.hashes.values())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def remember(packed: Packed, certificate: Certificate) -> None:
    """Note that this claim was proven from these contents."""
    _proven.add(fingerprint(packed, certificate))


def is_proven(name: str) -> bool:
    """Whether the contents with this fingerprint were proven by this process."""
    return name in _proven


def verify_files(packed: Packed, claim: str) -> Verification:
    """Run the kernel's check over file contents in a process of its own, and remember a proof."""
    result = checker.verify_files(packed, claim)
    if result.verified:
        remember(packed, Certificate.from_json(claim))
    return result


def verify_folder(folder: str | Path) -> Verification:
    """Run the kernel's check over a folder in a process of its own, and remember a proof."""
    return check.verify_folder(folder, verify_files)


def stated(claim: Certificate | Verification) -> dict[str, float | None]:
    """The numbers of a claim by name; those of a mean have separate names, so that none is taken for a bound on the
    error at every point.

    Examples
    --------
    >>> list(stated(Verification(True, 0.1, 0.0, 0.1, 0.2)))
    ['approximation', 'rounding', 'bound', 'eps']
    """
    facts = {named(claim, name): getattr(claim, name) for name in ("approximation", "rounding", "bound", "eps")}
    if claim.relative is not None:
        facts["relative"] = claim.relative
    if claim.mean is None:
        return facts
    beside = {f"{name}_seams" if name == "outside" else name: value for name, value in asdict(claim.mean).items()}
    return facts | beside


def norm_of(claim: Certificate | Verification) -> str:
    """The norm of a claim: the error at every point ("sup"), or its mean over the box ("mean")."""
    return "sup" if claim.mean is None else "mean"


def named(claim: Certificate | Verification, name: str) -> str:
    """The name of a number of a claim."""
    return name if claim.mean is None else f"mean_{name}"


def require_proof(packed: Packed, certificate: Certificate) -> None:
    """Prove a claim unless that was done before; `NotProvenError` gives the reason if it does not hold."""
    if not is_proven(fingerprint(packed, certificate)):
        result = verify_files(packed, certificate.to_json())
        if not result.verified:
            raise NotProvenError(f"the model does not verify: {'; '.join(result.reasons)}")
