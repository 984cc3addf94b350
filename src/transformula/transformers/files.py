"""Folders and files written whole or not at all; reading a model is the kernel's (`kernel.files`)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from transformula.errors import ModelFileError
from transformula.kernel.description import MAX_BYTES, MODEL_FILE, WEIGHTS_FILE, parse_json
from transformula.kernel.files import read_text

#: What exporting, reporting and fitting write into a model folder.
ONNX_FILE, TORCH_FOLDER, LOADER_FILE = "model.onnx", "torch", "load.py"
REPORT_FILE, FIT_FILE = "report.html", "fit.json"
EXPORTS = (ONNX_FILE, TORCH_FOLDER, REPORT_FILE, FIT_FILE)


def is_torch_export(folder: Path) -> bool:
    """Whether a folder is empty or holds what an export to torch writes, and nothing of others'."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    return names - {"__pycache__"} in (set(), {WEIGHTS_FILE, LOADER_FILE})


def write_folder(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write a whole folder or nothing: into a temporary one beside it, then renamed into place.

    An existing model folder is replaced by a model, an export by an export; anything else in the way is
    left alone and refused.
    """
    replaceable = is_torch_export if LOADER_FILE in files else _is_replaceable
    if folder.exists() and not replaceable(folder):
        raise ModelFileError(f"{folder} exists and is not a model folder alone: choose another folder")
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
    if MODEL_FILE not in names or not names <= {*MAX_BYTES, *EXPORTS}:
        return False
    if TORCH_FOLDER in names and not is_torch_export(folder / TORCH_FOLDER):
        return False
    try:
        body = parse_json(read_text(folder, MODEL_FILE), MODEL_FILE)
    except ModelFileError:
        return False
    return body.get("format") == "transformula"


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
