"""Open a model folder, change it, and put it back: naively, or with every checksum made to fit."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from transformula.kernel.folder.model_files import Packed


@dataclass
class Opened:
    """The four files as plain data."""

    arrays: dict[str, Any]
    body: dict[str, Any]
    claim: dict[str, Any] = field(default_factory=dict)
    evidence: Any = field(default_factory=dict)

    def forged(self) -> tuple[Packed, str]:
        """File contents with hashes and digest recomputed: only the maths can say no."""
        data = save({k: np.ascontiguousarray(v) for k, v in self.arrays.items()})
        packed = Packed(data, json.dumps(self.body, indent=1) + "\n", json.dumps(self.evidence) + "\n")
        claim = {k: v for k, v in self.claim.items() if k != "digest"} | packed.hashes
        digest = hashlib.sha256(json.dumps(claim, sort_keys=True).encode()).hexdigest()
        return packed, json.dumps({**claim, "digest": digest})

    def forge(self, folder: Path) -> Path:
        """Write them as a folder."""
        packed, claim = self.forged()
        (folder / "model.safetensors").write_bytes(packed.arrays)
        (folder / "model.json").write_text(packed.description)
        (folder / "evidence.json").write_text(packed.evidence)
        (folder / "certificate.json").write_text(claim)
        return folder

    def matrix(self, name: str) -> dict[tuple[int, int], float]:
        """Row, column -> value."""
        rows, cols, values = (self.arrays[f"{name}.{part}"].tolist() for part in ("rows", "cols", "values"))
        return dict(zip(zip(rows, cols, strict=True), values, strict=True))


def open_folder(folder: Path) -> Opened:
    return Opened(
        dict(load((folder / "model.safetensors").read_bytes())),
        *(json.loads((folder / name).read_text()) for name in ("model.json", "certificate.json", "evidence.json")),
    )


def open_model(model: Any) -> Opened:
    """The same of a model that is not saved."""
    texts = (model.packed.description, model.certificate.to_json(), model.packed.evidence)
    return Opened(dict(load(model.packed.arrays)), *map(json.loads, texts))


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}
