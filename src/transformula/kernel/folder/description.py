"""model.json and certificate.json: dataclasses, read strictly. Whatever does not fit is refused by name.

The certificate: what is claimed of which files. And what a proof rule hands back.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from transformula.kernel.exceptions import ModelFileError
from transformula.kernel.folder.weights import DTYPES

VERSION = 3
WEIGHTS_FILE = "model.safetensors"
MODEL_FILE = "model.json"
EVIDENCE_FILE = "evidence.json"
CERTIFICATE_FILE = "certificate.json"
MAX_BYTES = {WEIGHTS_FILE: 1 << 27, MODEL_FILE: 32 << 20, EVIDENCE_FILE: 32 << 20, CERTIFICATE_FILE: 1 << 20}

_FORMULA = {"formulas", "box"}
#: What model.json states for each construction, and what it may state.
STATES: dict[str, tuple[set[str], set[str]]] = {
    "polynomial": (_FORMULA, set()),
    **dict.fromkeys(("corollary", "yun"), (_FORMULA, {"circuit"})),
    **dict.fromkeys(
        ("lookup", "partition", "circuit", "attention-only", "local-polynomials"), (_FORMULA | {"circuit"}, {"shape"})
    ),
    "linear-attention": (_FORMULA, set()),
    **dict.fromkeys(("memorize", "compact"), ({"samples"}, set())),
    "in-context": ({"task"}, set()),
}
#: Every key that some construction states.
_STATED = set[str]().union(*(must | may for must, may in STATES.values()))

MAX_BLOCKS, MAX_NAMES = 1_000, 100_000
#: Bytes that a JSON text may take once it is read, and what Python takes for each object, list, item, key and text.
MAX_MEMORY, _MEMORY = 128 << 20, {"{": 240, "[": 88, ",": 40, ":": 160, '"': 24}
#: Slots of all tokens together; also the entries of a matrix that a reader may want as a dense array.
MAX_DENSE = 50_000_000


def require(condition: object, message: str) -> None:
    """Refuse a file."""
    if not condition:
        raise ModelFileError(message)


def is_count(value: object, most: int, least: int = 0) -> bool:
    """Whether a JSON value is a whole number between two bounds."""
    return type(value) is int and least <= value <= most


def parse_json(text: str, name: str) -> dict[str, Any]:
    """A JSON object of finite numbers, all of them floats, without repeated keys, or `ModelFileError`."""
    memory = sum(size * text.count(mark) for mark, size in _MEMORY.items())
    memory += 0 if text.isascii() and "\\u" not in text else 8 * len(text)  # four bytes a character, here and there
    require(len(text) <= MAX_BYTES[name] and memory <= MAX_MEMORY, f"{name} is too large")
    try:
        numbers: Any = {"parse_float": _finite, "parse_int": _whole, "parse_constant": _finite}
        body = json.loads(text, object_pairs_hook=_object, **numbers)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name} cannot be read as JSON: {error}") from None
    require(isinstance(body, dict), f"{name} is not a JSON object")
    return dict(body)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return body


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return float(text)


def _whole(text: str) -> int:
    if len(text) > 15 and int(_finite(text)) != int(text):  # a float equals each of up to 15 digits
        raise ValueError(f"no float equals the whole number {text[:20]}")
    return int(text)


def _texts(value: object) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MAX_NAMES and all(isinstance(v, str) for v in value)


@dataclass(frozen=True)
class Description:
    """model.json: what the model computes, and the outline of its weights.

    A formula model has ``formulas`` and a ``box``, a memorised one ``samples`` (lists x and y), an in-context one a
    ``task`` (`in_context_blocks`); ``shape`` is that of a sequence, ``circuit`` what softmax models compute. The
    outline is filled in by the packer.
    """

    construction: str
    formulas: list[str] | None = None
    box: str | None = None
    samples: dict[str, Any] | None = None
    task: dict[str, Any] | None = None
    shape: list[int] | None = None
    circuit: dict[str, Any] | None = None
    inputs: list[str] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    tokens: int = 0
    dtype: str = "float64"
    blocks: list[Any] = field(default_factory=list)
    shapes: dict[str, list[int]] = field(default_factory=dict)
    exact: dict[str, list[str]] = field(default_factory=dict)
    format: str = "transformula"
    version: int = VERSION

    def to_json(self) -> str:
        """The file's text; what the construction does not have is left out."""
        kept = {key: value for key, value in vars(self).items() if value is not None}
        return json.dumps(kept, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Description:
        """Read model.json; a key too many or too few, or of the wrong kind, is refused."""
        body = parse_json(text, MODEL_FILE)
        require(body.get("format") == "transformula", f"{MODEL_FILE} does not describe a transformula model")
        version, construction = body.get("version"), body.get("construction")
        said = f"this folder has format version {str(version)[:20]}, not {VERSION}: compile the formula again"
        require(type(version) is int and version == VERSION, said)
        require(type(construction) is str and construction in STATES, f"{MODEL_FILE} names an unknown construction")
        must, may = STATES[str(construction)]
        known = {f.name for f in fields(cls)}
        wanted = (known - _STATED) | must | (may & set(body))
        wrong = sorted(wanted ^ {key for key, value in body.items() if value is not None or key not in known})
        require(not wrong, f"{MODEL_FILE} lacks, or should not have, {str(wrong[:1])[:60]}")
        for key, (fits, kind) in _KINDS.items():
            require(key not in wanted or fits(body[key]), f"{MODEL_FILE}: {key} is not {kind}")
        require(body["tokens"] * len(body["slots"]) <= MAX_DENSE, f"{MODEL_FILE}: tokens and slots are too many")
        return cls(**body)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("formulas", "inputs", "slots"), (_texts, "a list of texts")),
    **dict.fromkeys(("samples", "task", "circuit", "shapes", "exact"), (lambda v: isinstance(v, dict), "an object")),
    "box": (lambda v: isinstance(v, str), "a text"),
    "shape": (lambda v: isinstance(v, list) and [is_count(n, MAX_NAMES, 1) for n in v] == [True, True], "[n, d]"),
    "tokens": (lambda v: is_count(v, MAX_DENSE, 1), "a number of tokens"),
    "dtype": (lambda v: isinstance(v, str) and v in DTYPES, f"one of {DTYPES}"),
    "blocks": (lambda v: isinstance(v, list) and len(v) <= MAX_BLOCKS, f"a list of at most {MAX_BLOCKS} blocks"),
}


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
