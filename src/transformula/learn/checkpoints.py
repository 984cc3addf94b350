"""What is saved of a training run, whole or not at all, and how it is found to belong to the same run."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from transformula.files import write_file

if TYPE_CHECKING:
    from transformula.learn.training import Batchable, History, Plan


@dataclass
class Run:
    """What training has come to, beside the module and its optimiser."""

    history: History
    best: dict[str, Tensor] | None
    fingerprint: str


def fingerprint(module: nn.Module, data: Batchable, plan: Plan) -> str:
    """Of the settings, the sizes and the rows; how many processes train is no part of it."""
    digest = hashlib.sha256()
    settings = {k: v for k, v in vars(plan).items() if k not in ("checkpoint", "every", "verbose")}
    digest.update(repr(sorted(settings.items(), key=lambda item: item[0])).encode())
    digest.update(repr([(n, tuple(p.shape)) for n, p in module.named_parameters()]).encode())
    for tensor in (data.x, data.y, data.weight):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save(module: nn.Module, optimizer: torch.optim.Optimizer, run: Run, epochs: int, path: Path) -> None:
    """Replace the checkpoint."""
    content = io.BytesIO()
    torch.save(
        {
            "fingerprint": run.fingerprint,
            "epochs": epochs,
            "module": module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "best": run.best,
            "history": vars(run.history),
        },
        content,
    )
    write_file(path, content.getvalue(), parents=True)


def read(path: Path | None, run: Run) -> dict[str, Any] | None:
    """The checkpoint, if there is one; refused if it is of another run."""
    if path is None or not Path(path).exists():
        return None
    try:
        saved: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        same = saved["fingerprint"] == run.fingerprint
    except Exception as error:
        raise ValueError(f"{path} is not a checkpoint of this library: {error}") from None
    if not same:
        raise ValueError(f"{path} belongs to other data or other settings: delete it or name another file")
    return saved
