"""A model on disk: ``model.safetensors`` (all arrays) and ``model.json`` (the rest, as plain data).

Every matrix is stored as rows, columns and values; rationals that are not floats stand in model.json
as text. Loading checks names, shapes, ranges and finiteness, and executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flint import fmpq, fmpz

from transformula.errors import ModelFileError
from transformula.transformers.weights import (
    DTYPES,
    Attention,
    Block,
    FeedForward,
    Head,
    Matrix,
    Weights,
    named_matrices,
)

VERSION = 1
WEIGHTS_FILE, MODEL_FILE, CERTIFICATE_FILE = "model.safetensors", "model.json", "certificate.json"
#: What ``export`` and ``report`` write into a model folder.
ONNX_FILE, TORCH_FOLDER, LOADER_FILE = "model.onnx", "torch", "load.py"
REPORT_FILE = "report.html"
EXPORTS = (ONNX_FILE, TORCH_FOLDER, REPORT_FILE)
_MAX_JSON_BYTES = 200_000_000


@dataclass(frozen=True)
class Packed:
    """The two files' content: bytes of the arrays, text of the description."""

    arrays: bytes
    description: str

    @property
    def weights_sha256(self) -> str:
        """Fingerprint of model.safetensors."""
        return hashlib.sha256(self.arrays).hexdigest()

    @property
    def model_sha256(self) -> str:
        """Fingerprint of model.json."""
        return hashlib.sha256(self.description.encode()).hexdigest()


def pack(weights: Weights, description: Mapping[str, Any]) -> Packed:
    """Turn weights and what describes them into file contents."""
    from safetensors.numpy import save

    arrays: dict[str, Any] = {}
    shapes: dict[str, list[int]] = {}
    exact: dict[str, list[str]] = {}
    for name, matrix in named_matrices(weights):
        shapes[name] = list(matrix.shape)
        if matrix.exact is not None:
            exact[name] = [str(v) for v in matrix.exact]
        for part in ("rows", "cols", "values"):
            arrays[f"{name}.{part}"] = np.ascontiguousarray(getattr(matrix, part))
    body = {
        "format": "transformula",
        "version": VERSION,
        **description,
        "inputs": list(weights.inputs),
        "slots": list(weights.slots),
        "tokens": weights.tokens,
        "dtype": weights.dtype,
        "blocks": [_block_outline(block) for block in weights.blocks],
        "shapes": shapes,
        "exact": exact,
    }
    return Packed(save(arrays), json.dumps(body, indent=1) + "\n")


def _block_outline(block: Block) -> dict[str, Any]:
    return {
        "kind": block.attention.kind,
        "scale": block.attention.scale,
        "heads": [{"output": head.output is not None} for head in block.attention.heads],
        "feed_forward": block.feed_forward is not None,
    }


def unpack(packed: Packed) -> tuple[Weights, dict[str, Any]]:
    """Read file contents back, refusing whatever does not fit by name."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        body = json.loads(packed.description)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{MODEL_FILE} is not JSON: {error}") from None
    if not isinstance(body, dict) or body.get("format") != "transformula":
        raise ModelFileError(f"{MODEL_FILE} does not describe a transformula model")
    if body.get("version") != VERSION:
        raise ModelFileError(f"{MODEL_FILE} has version {body.get('version')}, not {VERSION}")
    try:
        arrays = load(packed.arrays)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{WEIGHTS_FILE} is truncated or not safetensors: {error}") from None
    try:
        return _Unpacker(body, arrays).weights(), body
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{MODEL_FILE} misses or misstates {error}") from None


class _Unpacker:
    def __init__(self, body: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.body, self.arrays = body, dict(arrays)
        self.dtype = body["dtype"]
        if self.dtype not in DTYPES:
            raise ModelFileError(f"{MODEL_FILE} names the dtype {self.dtype!r}, not one of {DTYPES}")

    def weights(self) -> Weights:
        body = self.body
        weights = Weights(
            inputs=self._names("inputs"),
            slots=self._names("slots"),
            tokens=int(body["tokens"]),
            embedding=self._matrix("embedding"),
            memory=self._matrix("memory"),
            blocks=tuple(self._block(k, outline) for k, outline in enumerate(body["blocks"])),
            readout=self._matrix("readout"),
            bias=self._matrix("bias"),
            dtype=self.dtype,
        )
        if self.arrays:
            raise ModelFileError(f"{WEIGHTS_FILE} has an array too many: {min(self.arrays)}")
        _check_shapes(weights)
        return weights

    def _names(self, key: str) -> tuple[str, ...]:
        names = self.body[key]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"{MODEL_FILE}: {key} is not a list of names")
        return tuple(names)

    def _block(self, index: int, outline: dict[str, Any]) -> Block:
        if outline["kind"] not in ("softmax", "hardmax"):
            raise ModelFileError(f"{MODEL_FILE}: block {index} has kind {outline['kind']!r}")
        heads = []
        for h, head in enumerate(outline["heads"]):
            prefix = f"blocks.{index}.heads.{h}"
            query, key, value = (self._matrix(f"{prefix}.{p}") for p in ("query", "key", "value"))
            output = self._matrix(f"{prefix}.output") if head["output"] else None
            heads.append(Head(query, key, value, output))
        feed_forward = None
        if outline["feed_forward"]:
            parts = ("hidden", "hidden_bias", "output", "output_bias")
            feed_forward = FeedForward(*(self._matrix(f"blocks.{index}.feed_forward.{p}") for p in parts))
        scale = float(outline["scale"])
        return Block(Attention(tuple(heads), outline["kind"], scale), feed_forward)

    def _matrix(self, name: str) -> Matrix:
        try:
            rows, cols, values = (self.arrays.pop(f"{name}.{p}") for p in ("rows", "cols", "values"))
        except KeyError as missing:
            raise ModelFileError(f"{WEIGHTS_FILE} has no array {missing}") from None
        height, width = (int(v) for v in self.body["shapes"][name])
        fits = (
            rows.dtype == cols.dtype == np.int32
            and str(values.dtype) == self.dtype
            and rows.ndim == 1
            and rows.shape == cols.shape == values.shape
            and bool(np.all((rows >= 0) & (rows < height) & (cols >= 0) & (cols < width)))
            and bool(np.all(np.isfinite(values)))
            and len(np.unique(rows.astype(np.int64) * width + cols)) == len(rows)
        )
        if not fits:
            raise ModelFileError(f"{WEIGHTS_FILE}: the array {name} is malformed")
        exact = self.body["exact"].get(name)
        if exact is not None and len(exact) != len(values):
            raise ModelFileError(f"{MODEL_FILE}: {name} has {len(exact)} rationals, not {len(values)}")
        return Matrix(
            (height, width),
            rows,
            cols,
            values,
            None if exact is None else tuple(map(_rational, exact)),
        )


def _rational(text: str) -> fmpq:
    numerator, _, denominator = text.partition("/")
    return fmpq(fmpz(numerator), fmpz(denominator or "1"))  # fmpz reads any number of digits


def _check_shapes(weights: Weights) -> None:
    tokens, width, outputs = weights.tokens, weights.width, weights.outputs
    wanted = {
        "embedding": (tokens * width, len(weights.inputs)),
        "memory": (tokens, width),
        "readout": (outputs, tokens * width),
        "bias": (outputs, 1),
    }
    for b, block in enumerate(weights.blocks):
        for h, head in enumerate(block.attention.heads):
            inner = head.query.shape[0]
            depth = head.value.shape[0]
            wanted[f"blocks.{b}.heads.{h}.query"] = (inner, width)
            wanted[f"blocks.{b}.heads.{h}.key"] = (inner, width)
            wanted[f"blocks.{b}.heads.{h}.value"] = (depth if head.output else width, width)
            wanted[f"blocks.{b}.heads.{h}.output"] = (width, depth)
        if block.feed_forward is not None:
            units = block.feed_forward.hidden.shape[0]
            prefix = f"blocks.{b}.feed_forward"
            wanted[f"{prefix}.hidden"] = (units, width)
            wanted[f"{prefix}.hidden_bias"] = (units, 1)
            wanted[f"{prefix}.output"] = (width, units)
            wanted[f"{prefix}.output_bias"] = (width, 1)
    for name, matrix in named_matrices(weights):
        if matrix.shape != wanted[name]:
            raise ModelFileError(f"{MODEL_FILE}: {name} has shape {matrix.shape}, not {wanted[name]}")


def read_text(folder: Path, name: str) -> str:
    """One text file of a model folder."""
    return _read(folder, name).decode("utf-8", errors="replace")


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is not a model folder")
    if not path.is_file():
        raise ModelFileError(f"{folder} has no {name}: it is not a whole model folder")
    if name != WEIGHTS_FILE and path.stat().st_size > _MAX_JSON_BYTES:
        raise ModelFileError(f"{path} is too large to be a {name}")
    return path.read_bytes()


def read_packed(folder: Path) -> Packed:
    """The two files of a model folder, unread."""
    return Packed(_read(folder, WEIGHTS_FILE), read_text(folder, MODEL_FILE))


def is_torch_export(folder: Path) -> bool:
    """Whether a folder is empty or holds what ``export --to torch`` writes, and nothing of others'."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    return names - {"__pycache__"} in (set(), {WEIGHTS_FILE, LOADER_FILE})


def write_folder(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write a whole folder or nothing: into a temporary one beside it, then renamed into place.

    An existing model folder is replaced by a model, an export by an export; anything else in the way is
    left alone and refused.
    """
    replaceable = is_torch_export if LOADER_FILE in files else _is_replaceable
    if folder.exists() and not replaceable(folder):
        raise ModelFileError(f"{folder} exists and is not a model folder alone: choose another --out")
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            with open(staging / name, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        staging.chmod(0o755)
        _swap(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: beside its place, then renamed into it."""
    handle, staging = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(staging, 0o644)
        os.replace(staging, path)
    except BaseException:
        os.unlink(staging)
        raise


def _is_replaceable(folder: Path) -> bool:
    """Empty, or a model of ours with nothing else in it but its exports, which go with it."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    if MODEL_FILE not in names or not names <= {WEIGHTS_FILE, MODEL_FILE, CERTIFICATE_FILE, *EXPORTS}:
        return False
    if TORCH_FOLDER in names and not is_torch_export(folder / TORCH_FOLDER):
        return False
    try:
        body = json.loads(read_text(folder, MODEL_FILE))
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("format") == "transformula"


def _swap(staging: Path, folder: Path) -> None:
    if not folder.exists():
        staging.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
    folder.rename(old / "model")
    try:
        staging.rename(folder)
    except BaseException:
        (old / "model").rename(folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
