"""Open a model folder, change it, and put it back: naively, or with every checksum made to fit."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save


@dataclass
class Opened:
    """The three files as plain data."""

    arrays: dict[str, Any]
    body: dict[str, Any]
    claim: dict[str, Any] = field(default_factory=dict)

    def forge(self, folder: Path) -> Path:
        """Write the folder with hashes and digest recomputed: only the maths can say no."""
        data = save({k: np.ascontiguousarray(v) for k, v in self.arrays.items()})
        text = json.dumps(self.body, indent=1) + "\n"
        claim = {k: v for k, v in self.claim.items() if k != "digest"}
        claim["weights_sha256"] = hashlib.sha256(data).hexdigest()
        claim["model_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        digest = hashlib.sha256(json.dumps(claim, sort_keys=True).encode()).hexdigest()
        (folder / "model.safetensors").write_bytes(data)
        (folder / "model.json").write_text(text)
        (folder / "certificate.json").write_text(json.dumps({**claim, "digest": digest}))
        return folder


def open_folder(folder: Path) -> Opened:
    return Opened(
        dict(load((folder / "model.safetensors").read_bytes())),
        json.loads((folder / "model.json").read_text()),
        json.loads((folder / "certificate.json").read_text()),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}
