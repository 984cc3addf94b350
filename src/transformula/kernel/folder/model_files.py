"""A model on disk, read with every size bounded: nothing in the folder is trusted, nothing is executed.

``model.safetensors`` holds, for every matrix, its rows, columns and values: eight bytes with the length of
a JSON header, the header (name → dtype, shape, place), then the numbers, without gaps. ``model.json`` is a
`Description`; rationals that are not floats stand there as text. ``evidence.json`` is the prover's. Whatever
does not fit is refused by name with `ModelFileError`, before memory is taken for it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flint import fmpq, fmpz
from numpy.typing import NDArray

from transformula.kernel.exceptions import ModelFileError
from transformula.kernel.folder.description import (
    EVIDENCE_FILE,
    MAX_BYTES,
    MAX_DENSE,
    MAX_NAMES,
    MODEL_FILE,
    WEIGHTS_FILE,
    Description,
    is_count,
    parse_json,
    require,
)
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights

MAX_HEADER, MAX_TENSORS = 4 << 20, 20_000
#: Characters of one rational: far more than any formula's own numbers may have.
MAX_RATIONAL = 50_000
_DTYPES: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_RATIONAL = re.compile(r"-?[0-9]+(/0*[1-9][0-9]*)?")


@dataclass(frozen=True)
class Packed:
    """The files' content: bytes of the arrays, texts of the description and the evidence."""

    arrays: bytes
    description: str
    evidence: str = "{}\n"

    @property
    def hashes(self) -> dict[str, str]:
        """Fingerprint of each file, by the name it has in a certificate."""
        contents = (self.arrays, self.description.encode(), self.evidence.encode())
        names = ("weights_sha256", "model_sha256", "evidence_sha256")
        return {n: hashlib.sha256(c).hexdigest() for n, c in zip(names, contents, strict=True)}


def read_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The one-dimensional arrays of a safetensors file: I32, F32 and F64, without gaps or overlaps."""
    length = int.from_bytes(data[:8], "little")
    fits = len(data) >= 8 and length <= min(MAX_HEADER, len(data) - 8)
    require(fits, f"{WEIGHTS_FILE} is truncated, or its header is too long")
    header = parse_json(_text(data[8 : 8 + length], f"the header of {WEIGHTS_FILE}"), WEIGHTS_FILE)
    require(len(header) <= MAX_TENSORS, f"{WEIGHTS_FILE} has more than {MAX_TENSORS} arrays")
    arrays, places = {}, []
    size = len(data) - 8 - length
    for name, entry in header.items():
        start, stop, kind, count = _entry(entry, size, name)
        places.append((start, stop))
        arrays[name] = np.frombuffer(data, kind, count, 8 + length + start).astype(kind.newbyteorder("="))
    reached = 0
    for start, stop in sorted(places):
        require(start == reached, f"{WEIGHTS_FILE} has arrays that overlap or leave a gap")
        reached = stop
    require(reached == size, f"{WEIGHTS_FILE} has bytes that belong to no array")
    return arrays


def _entry(entry: object, size: int, name: str) -> tuple[int, int, np.dtype[Any], int]:
    """Begin and end of an array, its dtype and its length."""
    malformed = f"{WEIGHTS_FILE}: the array {name[:80]} is malformed"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(malformed)
    kind = entry["dtype"]
    shape = entry["shape"]
    place = entry["data_offsets"]
    require(isinstance(kind, str) and kind in _DTYPES, malformed)
    require(isinstance(shape, list) and len(shape) == 1 and is_count(shape[0], size), malformed)
    require(isinstance(place, list) and len(place) == 2 and all(is_count(p, size) for p in place), malformed)
    require(place[1] - place[0] == shape[0] * _DTYPES[kind].itemsize, malformed)
    return place[0], place[1], _DTYPES[kind], shape[0]


def unpack(packed: Packed) -> tuple[Weights, Description]:
    """Weights and description from file contents, or `ModelFileError`."""
    description = Description.from_json(packed.description)
    require(len(packed.arrays) <= MAX_BYTES[WEIGHTS_FILE], f"{WEIGHTS_FILE} is too large")
    return _Unpacker(description, read_arrays(packed.arrays)).weights(), description


class _Unpacker:
    """Takes every array once, and knows the shape that each matrix must have."""

    def __init__(self, description: Description, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.description, self.arrays = description, dict(arrays)
        self.shapes, self.exact = dict(description.shapes), dict(description.exact)
        self.width = len(description.slots)

    def weights(self) -> Weights:
        given, width = self.description, self.width
        everything = given.tokens * width
        outputs = self._rows("bias", MAX_NAMES)
        embedding = self._matrix("embedding", (everything, len(given.inputs)))
        memory = self._matrix("memory", (given.tokens, width))
        blocks: list[Block] = []
        for k, outline in enumerate(given.blocks):  # a number is an earlier block, once more
            blocks.append(blocks[outline] if is_count(outline, k - 1) else self._block(f"blocks.{k}", outline))
        readout, bias = self._matrix("readout", (outputs, everything)), self._matrix("bias", (outputs, 1))
        left = [*self.arrays, *self.shapes, *self.exact]
        require(not left, f"{WEIGHTS_FILE} or {MODEL_FILE} has an array too many: {str(left[:1])[:80]}")
        names = tuple(given.inputs), tuple(given.slots)
        return Weights(*names, given.tokens, embedding, memory, tuple(blocks), readout, bias, given.dtype)

    def _rows(self, name: str, most: int, least: int = 1) -> int:
        """The rows of a matrix, where model.json has the choice."""
        shape = self.shapes.get(name)
        fits = isinstance(shape, list) and len(shape) == 2 and is_count(shape[0], most, least)
        require(fits, f"{MODEL_FILE}: {name} has no shape, or is too large")
        return int(self.description.shapes[name][0])

    def _block(self, prefix: str, outline: object) -> Block:
        malformed = f"{MODEL_FILE}: {prefix} is malformed"
        if not isinstance(outline, dict) or set(outline) != {"kind", "scale", "heads", "feed_forward"}:
            raise ModelFileError(malformed)
        kind = outline["kind"]
        scale = outline["scale"]
        heads = outline["heads"]
        require(kind in ("softmax", "hardmax", "linear") and isinstance(heads, list), malformed)
        require(type(scale) is float or is_count(scale, 1 << 53), malformed)
        require(type(outline["feed_forward"]) is bool and len(heads) <= MAX_TENSORS, malformed)
        own = tuple(self._head(f"{prefix}.heads.{h}", head) for h, head in enumerate(heads))
        layer = None
        if outline["feed_forward"]:
            name = f"{prefix}.feed_forward"
            units = self._rows(f"{name}.hidden", MAX_DENSE // self.width, 0)
            shapes = ((units, self.width), (units, 1), (self.width, units), (self.width, 1))
            parts = zip(("hidden", "hidden_bias", "output", "output_bias"), shapes, strict=True)
            layer = FeedForward(*(self._matrix(f"{name}.{part}", shape) for part, shape in parts))
        return Block(Attention(own, kind, float(scale)), layer)

    def _head(self, prefix: str, outline: object) -> Head:
        if not isinstance(outline, dict) or set(outline) != {"output"} or type(outline["output"]) is not bool:
            raise ModelFileError(f"{MODEL_FILE}: {prefix} is malformed")
        width = self.width
        most = MAX_DENSE // max(width, self.description.tokens)
        inner = self._rows(f"{prefix}.query", most, 0)
        depth = self._rows(f"{prefix}.value", most, 0) if outline["output"] else width
        query, key = (self._matrix(f"{prefix}.{part}", (inner, width)) for part in ("query", "key"))
        value = self._matrix(f"{prefix}.value", (depth, width))
        return Head(query, key, value, self._matrix(f"{prefix}.output", (width, depth)) if outline["output"] else None)

    def _matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        require(self.shapes.pop(name, None) == list(shape), f"{MODEL_FILE}: {name} has not the shape {shape}")
        parts = [self.arrays.pop(f"{name}.{part}", None) for part in ("rows", "cols", "values")]
        if any(part is None for part in parts):
            raise ModelFileError(f"{WEIGHTS_FILE} misses an array of {name}")
        rows, cols, values = (np.asarray(part) for part in parts)
        places = np.sort(rows.astype(np.int64) * shape[1] + cols) if len(rows) == len(cols) else rows
        fits = (
            rows.dtype == cols.dtype == np.int32
            and values.dtype == self.description.dtype
            and len(rows) == len(cols) == len(values)
            and bool(np.all((rows >= 0) & (rows < shape[0]) & (cols >= 0) & (cols < shape[1])))
            and bool(np.isfinite(values).all())
            and bool(np.all(places[1:] > places[:-1]))  # no entry twice; np.unique takes a hundred times as long
        )
        require(fits, f"{WEIGHTS_FILE}: the array {name} is malformed")
        exact = self.exact.pop(name, None)
        return Matrix(shape, rows, cols, values, None if exact is None else _rationals(exact, len(values), name))


def _rationals(texts: object, count: int, name: str) -> tuple[fmpq, ...]:
    if not isinstance(texts, list) or len(texts) != count:
        raise ModelFileError(f"{MODEL_FILE}: {name} has not one rational for each number")
    found = []
    for text in texts:
        fits = isinstance(text, str) and len(text) <= MAX_RATIONAL and _RATIONAL.fullmatch(text)
        require(fits, f"{MODEL_FILE}: {name} has a rational that is malformed or too long")
        numerator, _, denominator = text.partition("/")
        found.append(fmpq(fmpz(numerator), fmpz(denominator or "1")))  # fmpz reads any number of digits
    return tuple(found)


def read_bytes(folder: Path, name: str) -> bytes:
    """One file of a model folder, unless it is larger than such a file may be."""
    require(folder.is_dir(), f"there is no model folder {folder}")
    require((folder / name).is_file(), f"{folder} has no {name}: it is not a whole model folder")
    try:
        with open(folder / name, "rb") as file:
            data = file.read(MAX_BYTES[name] + 1)
    except OSError as error:
        raise ModelFileError(f"{folder / name} cannot be read: {error.strerror or error}") from None
    require(len(data) <= MAX_BYTES[name], f"{folder / name} is too large to be a {name}")
    return data


def read_text(folder: Path, name: str) -> str:
    """One text file of a model folder."""
    return _text(read_bytes(folder, name), name)


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelFileError(f"{name} is not UTF-8 text") from None


def read_packed(folder: Path) -> Packed:
    """The files of a model folder, unread."""
    arrays, description = read_bytes(folder, WEIGHTS_FILE), read_text(folder, MODEL_FILE)
    if not (folder / EVIDENCE_FILE).exists():
        Description.from_json(description)  # version 1 had no such file: then that is the reason to give
    return Packed(arrays, description, read_text(folder, EVIDENCE_FILE))
