"""Contents of a model folder, and the models that may replace it; `kernel.folder.model_files` reads models."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transformula import files
from transformula.errors import ModelFileError
from transformula.kernel.folder.description import CERTIFICATE_FILE, MAX_BYTES, MODEL_FILE, WEIGHTS_FILE, parse_json
from transformula.kernel.folder.model_files import read_text

#: Files and folders that exporting, reporting and fitting write into a model folder.
ONNX_FILE = "model.onnx"
RAW_ONNX_FILE = "raw.onnx"
TORCH_FOLDER = "torch"
LOADER_FILE = "load.py"
REPORT_FILE = "report.html"
FIT_FILE = "fit.json"
#: The folder of a Coq theorem, the file that every theorem has, and the names of what belongs to it.
COQ_FOLDER = "coq"
COQ_PROOF = "Proof.v"
_COQ_NAME = re.compile(r"[A-Z]\w*\.v|README\.md")
#: The folder of a model for transformers, and its files beside weights and certificate.
HF_FOLDER = "hf"
HF_CONFIG, HF_CARD, HF_CIRCUIT, HF_CODE = "config.json", "README.md", "circuit.json", "modeling_formula.py"
HF_TEXT = frozenset({"generation_config.json", "tokenizer.json", "tokenizer_config.json"})
#: The folder of a polynomial's formula as a circuit, for architectures without hardmax attention.
CIRCUIT_FOLDER = "circuit"
#: Keys of model.json that state the target: a formula on a box, samples or an algorithm.
_TARGET = ("formulas", "box", "shape", "samples", "task")
EXPORTS = (ONNX_FILE, RAW_ONNX_FILE, TORCH_FOLDER, HF_FOLDER, COQ_FOLDER, CIRCUIT_FOLDER, REPORT_FILE, FIT_FILE)


def is_torch_export(folder: Path) -> bool:
    """Whether a folder is empty or holds what an export to torch writes, and nothing of others'."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    return names - {"__pycache__"} in (set(), {WEIGHTS_FILE, LOADER_FILE})


def is_hf_export(folder: Path) -> bool:
    """Whether a folder is empty or holds what an export to Hugging Face writes, and nothing of others'."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    shared = {WEIGHTS_FILE, CERTIFICATE_FILE, HF_CONFIG, HF_CARD}
    return names in (set(), shared | {HF_CIRCUIT}, shared | {HF_CIRCUIT, HF_CODE}, shared | HF_TEXT)


def is_coq_export(folder: Path) -> bool:
    """Whether a folder is empty or holds a Coq theorem and what `coqc` makes of it, and nothing of others'."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    made = {name for name in names if name.endswith((".vo", ".vok", ".vos", ".glob", ".aux", ".cache"))}
    return not names or (COQ_PROOF in names and all(map(_COQ_NAME.fullmatch, names - made)))


def write_folder(folder: Path, contents: Mapping[str, bytes | str], force: bool = False) -> None:
    """Write a model folder or an export, whole or not at all.

    A model takes the place of a model of the same formula, an export that of an export; with ``force`` also of another
    formula's. Anything else in the way is left alone and refused.
    """
    if COQ_PROOF in contents:
        files.write_folder(folder, contents, _keeps_theorem)
    elif LOADER_FILE in contents:
        data = contents[WEIGHTS_FILE]
        assert isinstance(data, bytes)
        files.write_folder(folder, contents, partial(_keeps_export, stated=_exported(data), force=force))
    elif HF_CONFIG in contents:
        files.write_folder(
            folder, contents, partial(_keeps_hf, stated=_hf_stated(str(contents[HF_CONFIG])), force=force)
        )
    else:
        stated = _target(parse_json(str(contents[MODEL_FILE]), MODEL_FILE))
        files.write_folder(folder, contents, partial(_keeps_model, stated=stated, force=force))


def check_folder(folder: Path, stated: Mapping[str, Any] | None = None, force: bool = False) -> None:
    """Refuse, before any work, a folder whose contents a model may not replace.

    ``stated`` is what model.json will state, as far as it says what the model stands for; None if that is not known.
    """
    target = None if stated is None else _target(stated)
    files.check_folder(folder, partial(_keeps_model, stated=target, force=force))


def _target(body: Mapping[str, Any]) -> dict[str, Any]:
    """The target of a model, out of its description."""
    return {key: body[key] for key in _TARGET if body.get(key) is not None}


def _keeps_model(folder: Path, stated: Mapping[str, Any] | None, force: bool) -> str:
    """Why a folder must stay: it is not empty, nor a model of ours with nothing in it but exports, which go with it; or
    the model is another formula's."""
    others = "is not a model folder, or holds other files: choose another folder"
    if not folder.is_dir():
        return others
    names = {path.name for path in folder.iterdir()}
    if not names:
        return ""
    if MODEL_FILE not in names or not names <= {*MAX_BYTES, *EXPORTS}:
        return others
    if TORCH_FOLDER in names and not is_torch_export(folder / TORCH_FOLDER):
        return others
    if HF_FOLDER in names and not is_hf_export(folder / HF_FOLDER):
        return others
    if COQ_FOLDER in names and not is_coq_export(folder / COQ_FOLDER):
        return others
    if CIRCUIT_FOLDER in names and _keeps_model(folder / CIRCUIT_FOLDER, None, force):
        return others
    try:
        body = parse_json(read_text(folder, MODEL_FILE), MODEL_FILE)
    except ModelFileError:
        return others
    if body.get("format") != "transformula":
        return others
    held = _target(body)
    return "" if force or stated is None or held == stated else _another(_name(held))


def _keeps_theorem(folder: Path) -> str:
    """Why a folder must stay: it is not empty, nor an exported theorem."""
    return "" if is_coq_export(folder) else "is not an earlier export: choose another folder"


def _keeps_export(folder: Path, stated: object, force: bool) -> str:
    """Why a folder must stay: it is not empty, nor an export; or it is an export of another formula's model."""
    if not is_torch_export(folder):
        return "is not an earlier export: choose another folder"
    path = folder / WEIGHTS_FILE
    held = _exported(path.read_bytes()) if path.is_file() else stated
    return "" if force or held == stated else _another("another export")


def _keeps_hf(folder: Path, stated: object, force: bool) -> str:
    """Why a folder must stay: it is not empty, nor an export to Hugging Face; or it is that of another formula's."""
    if not is_hf_export(folder):
        return "is not an earlier export: choose another folder"
    path = folder / HF_CONFIG
    held = _hf_stated(path.read_text(encoding="utf-8")) if path.is_file() else stated
    return "" if force or held == stated else _another("another export")


def _hf_stated(config: str) -> Any:
    """Formula and box, as the config of an export states them; None if it states none."""
    try:
        claim = json.loads(config)["transformula"]
        return claim["formula"], claim["box"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _exported(data: bytes) -> Any:
    """Formula and box, as an export states them; None if it states none."""
    try:
        size = int.from_bytes(data[:8], "little")
        claim = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["config"])["claim"]
        return claim["formula"], claim["box"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _name(held: Mapping[str, Any]) -> str:
    if "task" in held:
        return "an in-context model"
    if "samples" in held:
        return "a memorised table"
    text = f"{'; '.join(map(str, held.get('formulas', ())))} on {held.get('box')}"
    return f"the model of {text if len(text) <= 80 else f'{text[:77]}...'}"


def _another(held: str) -> str:
    return f"holds {held}: choose another folder, or replace it with --force (in Python, force=True)"
