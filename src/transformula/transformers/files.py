"""What may stand in a model folder, and what may replace it; `kernel.folder.files` reads models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transformula import saving
from transformula.errors import ModelFileError
from transformula.kernel.folder.description import MAX_BYTES, MODEL_FILE, WEIGHTS_FILE, parse_json
from transformula.kernel.folder.files import read_text

#: What exporting, reporting and fitting write into a model folder.
ONNX_FILE, TORCH_FOLDER, LOADER_FILE = "model.onnx", "torch", "load.py"
REPORT_FILE, FIT_FILE = "report.html", "fit.json"
EXPORTS = (ONNX_FILE, TORCH_FOLDER, REPORT_FILE, FIT_FILE)


def is_torch_export(folder: Path) -> bool:
    """Whether a folder is empty or holds what an export to torch writes, and nothing of others'."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    return names - {"__pycache__"} in (set(), {WEIGHTS_FILE, LOADER_FILE})


def write_folder(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write a model folder or an export, whole or not at all.

    An existing model folder is replaced by a model, an export by an export; anything else in the way is
    left alone and refused.
    """
    if LOADER_FILE in files:
        saving.write_folder(folder, files, is_torch_export, "is not an earlier export: choose another folder")
    else:
        saving.write_folder(
            folder, files, _is_replaceable, "is not a model folder, or holds other files: choose another folder"
        )


def _is_replaceable(folder: Path) -> bool:
    """Empty, or a model of ours with nothing else in it but its exports, which go with it."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    if MODEL_FILE not in names or not names <= {*MAX_BYTES, *EXPORTS}:
        return False
    if TORCH_FOLDER in names and not is_torch_export(folder / TORCH_FOLDER):
        return False
    try:
        body = parse_json(read_text(folder, MODEL_FILE), MODEL_FILE)
    except ModelFileError:
        return False
    return body.get("format") == "transformula"
