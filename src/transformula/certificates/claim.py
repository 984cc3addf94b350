"""The certificate: what is claimed of which files."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from transformula.certificates.proof import add_up
from transformula.errors import ModelFileError

VERSION = 1


@dataclass(frozen=True)
class Certificate:
    """A claim: |computed − f| ≤ approximation + rounding ≤ eps at every point of the box.

    ``approximation`` bounds |T_w − f| for the exact real function T_w of the stored weights, ``rounding``
    bounds |computed − T_w| for the dtype under ``rounding_model``.
    """

    construction: str
    approximation: float
    rounding: float
    eps: float
    dtype: str
    rounding_model: dict[str, Any]
    weights_sha256: str
    model_sha256: str
    details: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION

    @property
    def bound(self) -> float:
        """approximation + rounding, rounded up."""
        return add_up(self.approximation, self.rounding)

    def to_json(self) -> str:
        """The file's text. The digest makes an accidental edit visible; the proof does the rest."""
        body = asdict(self)
        return json.dumps({**body, "digest": _digest(body)}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate; anything missing, extra, malformed or edited is refused."""
        try:
            body = json.loads(text)
            digest = body.pop("digest")
            certificate = cls(**body)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ModelFileError(f"certificate.json is not a certificate: {error}") from None
        if certificate.version != VERSION:
            raise ModelFileError(f"certificate.json has version {certificate.version}, not {VERSION}")
        numbers = (certificate.approximation, certificate.rounding, certificate.eps)
        if not all(isinstance(v, (int, float)) and math.isfinite(v) and v >= 0 for v in numbers):
            raise ModelFileError("certificate.json claims a bound that is not a number >= 0")
        if digest != _digest(body):
            raise ModelFileError("certificate.json was edited: its digest does not match its content")
        return certificate


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
