"""The certificate: what is claimed of which files. And what a proof rule hands back."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from transformula.kernel.folder.description import CERTIFICATE_FILE, VERSION, parse_json, require


@dataclass(frozen=True)
class Mean:
    """Bounds beside a claim about the mean over the box: |computed − f| <= ``outside`` at every point outside the
    seams, which are at most the part ``seams`` of the box, and |computed| <= ``largest`` at every point."""

    outside: float
    seams: float
    largest: float


@dataclass(frozen=True)
class Proof:
    """Proven bounds, rounded up: sup|T_w − f| and sup|computed − T_w| over the box, or with ``mean`` their means."""

    approximation: float
    rounding: float
    mean: Mean | None = None

    @property
    def bound(self) -> float:
        """Proven bound of |computed − f|, or of its mean: the sum, rounded up."""
        return add_up(self.approximation, self.rounding)


def add_up(left: float, right: float) -> float:
    """A float that is at least the sum."""
    return left + right if left == 0 or right == 0 else math.nextafter(left + right, math.inf)


@dataclass(frozen=True)
class Certificate:
    """A claim: |computed − f| ≤ approximation + rounding ≤ eps at every point of the box.

    ``approximation`` bounds |T_w − f| for the exact real function T_w of the stored weights, ``rounding``
    bounds |computed − T_w| for the dtype under ``rounding_model``. With ``mean`` all of this is said of the mean over
    the box (the L¹ norm divided by the volume) and *not* of every point. ``relative``, if there is one, claims that
    |computed − f| ≤ relative · |f| at every point of the box, for every output.
    """

    construction: str
    approximation: float
    rounding: float
    eps: float
    dtype: str
    rounding_model: dict[str, Any]
    weights_sha256: str
    model_sha256: str
    evidence_sha256: str
    version: int = VERSION
    mean: Mean | None = None
    relative: float | None = None

    @property
    def bound(self) -> float:
        """approximation + rounding, rounded up."""
        return add_up(self.approximation, self.rounding)

    def to_json(self) -> str:
        """The file's text. The digest makes an accidental edit visible; the proof does the rest."""
        body = {key: value for key, value in asdict(self).items() if key not in _OPTIONAL or value is not None}
        return json.dumps({**body, "digest": _digest(body)}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate; anything missing, extra, malformed or edited is refused."""
        body, name = parse_json(text, CERTIFICATE_FILE), CERTIFICATE_FILE
        said = str(body.get("version"))[:20]
        require(body.get("version") == VERSION, f"{name} has version {said}, not {VERSION}: compile again")
        wanted = {f.name for f in fields(cls)} - _OPTIONAL | _OPTIONAL & set(body)
        wrong = sorted(wanted ^ (set(body) - {"digest"}))
        require(not wrong, f"{name} misses or should not have {''.join(wrong[:1])[:40]!r}")
        bounds, mean = _floats(body, "approximation", "rounding", "eps", *({"relative"} & set(body))), None
        if "mean" in body:
            beside, given = [f.name for f in fields(Mean)], body["mean"]
            require(isinstance(given, dict) and set(given) == {*beside}, f"{name} has a malformed mean")
            mean = Mean(**_floats(given, *beside))
        texts = ("construction", "dtype", "weights_sha256", "model_sha256", "evidence_sha256")
        kinds = all(isinstance(body[key], str) for key in texts) and isinstance(body["rounding_model"], dict)
        require(kinds, f"{name} has a field of the wrong kind")
        digest = body.pop("digest", None)
        require(digest == _digest(body), f"{name} was edited: its digest does not match its content")
        return cls(**{**body, **bounds, "mean": mean})


#: Claims that not every certificate makes.
_OPTIONAL = {"mean", "relative"}


def _floats(body: dict[str, Any], *keys: str) -> dict[str, float]:
    for key in keys:
        number = type(body[key]) in (int, float) and 0 <= body[key] <= 2**1023
        require(number, f"{CERTIFICATE_FILE} claims {key}: that is not a number >= 0")
    return {key: float(body[key]) for key in keys}


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
