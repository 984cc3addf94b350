"""A compiled Transformer in plain torch.nn: load the state_dict beside this file and run it.

    from load import load
    model = load()                                         # an nn.Module with the certified weights
    model(torch.tensor([[0.5, 1.0]], dtype=model.dtype))   # batch × inputs to batch × outputs

or ``python load.py 0.5 1.0``. This needs torch and safetensors, not transformula.

Attention is torch.nn.MultiheadAttention where the model is softmax attention. A block has the parameters
of torch.nn.TransformerEncoderLayer under the same names, and no LayerNorm: the compiled weights speak
about z + attention(z) and z + W₂ ReLU(W₁ z + b₁) + b₂ as they stand. A polynomial's attention is hardmax
(the largest score stays, the others become 0), that of learning in context linear (scores stay as they are).
torch.nn has neither: `Scored` is both.

Exported with LayerNorm in place, a block is torch.nn.TransformerEncoderLayer itself, its pre-norms included.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn


class Scored(nn.Module):
    """Heads that mix by scores: by the largest of a row (hardmax) or all; called like MultiheadAttention."""

    def __init__(self, width: int, heads: int, keys: int, values: int, hard: bool) -> None:
        super().__init__()
        self.hard = hard
        self.query = nn.Parameter(torch.empty(heads, width, keys))
        self.key = nn.Parameter(torch.empty(heads, width, keys))
        self.value = nn.Parameter(torch.empty(heads, width, values))
        self.output = nn.Parameter(torch.empty(heads, values, width))

    def forward(
        self, asking: torch.Tensor, key: torch.Tensor, value: torch.Tensor, need_weights: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The sum that the heads add to the asking tokens, and the patterns of all heads if they are wanted."""
        queries, keys = asking.unsqueeze(1) @ self.query, key.unsqueeze(1) @ self.key
        scores = queries @ keys.transpose(-1, -2)
        pattern = scores
        if self.hard:
            best = scores.argmax(dim=-1, keepdim=True)
            pattern = torch.where(torch.arange(scores.shape[-1], device=key.device) == best, scores, 0.0)
        mixed = pattern @ (value.unsqueeze(1) @ self.value) @ self.output
        return mixed.sum(dim=1), pattern if need_weights else None


class EncoderBlock(nn.Module):
    """An encoder layer without LayerNorm; parameters named as in torch.nn.TransformerEncoderLayer."""

    def __init__(self, width: int, units: int, attention: nn.Module) -> None:
        super().__init__()
        self.self_attn = attention
        self.linear1, self.linear2 = nn.Linear(width, units), nn.Linear(units, width)

    def forward(self, z: torch.Tensor, asking: torch.Tensor) -> torch.Tensor:
        """The asking tokens after the layer; all tokens z answer."""
        new: torch.Tensor = asking + self.self_attn(asking, z, z, need_weights=False)[0]
        added: torch.Tensor = self.linear2(torch.relu(self.linear1(new)))
        return new + added


class Transformer(nn.Module):
    """Embedding, blocks and readout.

    ``embedding`` makes the tokens that depend on the input, ``memory`` holds the constant ones, which
    every block reads and none changes.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width = config["width"]
        self.tokens = config["tokens"]
        self.read = config["read"]
        self.shape = config["shape"]
        self.embedding = nn.Linear(config["inputs"], self.tokens * width)
        self.memory = nn.Parameter(torch.empty(config["memory"], width))
        self.blocks = nn.ModuleList()
        for outline in config["blocks"]:  # a number is an earlier block, once more
            self.blocks.append(self.blocks[outline] if isinstance(outline, int) else _block(width, outline))
        self.readout = nn.Linear(len(self.read) * width, config["outputs"])

    @property
    def dtype(self) -> torch.dtype:
        """The format of the numbers."""
        return self.memory.dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch × inputs to batch × outputs (both batch × positions × features for a sequence)."""
        batch = x.shape[0]
        stream = self.embedding(x.reshape(batch, -1)).view(batch, self.tokens, -1)
        memory = self.memory.expand(batch, -1, -1)
        for k, block in enumerate(self.blocks):
            last = k == len(self.blocks) - 1  # the other tokens are not read after the last block
            everything = torch.cat([stream, memory], dim=1)
            if isinstance(block, EncoderBlock):
                stream = block(everything, stream[:, self.read] if last else stream)
            else:
                stream = block(everything)[:, self.read if last else range(self.tokens)]
        if not self.blocks:
            stream = stream[:, self.read]
        out: torch.Tensor = self.readout(stream.reshape(batch, -1))
        return out if self.shape is None else out.view(batch, *self.shape)


def _block(width: int, outline: dict[str, Any]) -> nn.Module:
    heads, units = outline["heads"], outline["units"]
    if outline["kind"] in ("hardmax", "linear"):
        hard = outline["kind"] == "hardmax"
        return EncoderBlock(width, units, Scored(width, heads, outline["keys"], outline["values"], hard))
    if outline["kind"] == "layer norm":
        eps = outline["eps"]  # so large that nothing is divided: see transformula's docs/export.md
        return nn.TransformerEncoderLayer(width, heads, units, 0, layer_norm_eps=eps, batch_first=True, norm_first=True)
    return EncoderBlock(width, units, nn.MultiheadAttention(width, heads, bias=False, batch_first=True))


def load(folder: str | Path | None = None) -> Transformer:
    """The module with the weights of ``model.safetensors``, beside this file unless a folder is given."""
    path = Path(__file__).parent if folder is None else Path(folder)
    with safe_open(path / "model.safetensors", framework="pt") as file:
        config = json.loads(file.metadata()["config"])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return build(config, state)


def build(config: dict[str, Any], state: dict[str, torch.Tensor]) -> Transformer:
    """The module of a configuration with a state_dict."""
    with torch.device("meta"):  # nothing is drawn at random only to be overwritten
        model = Transformer(config)
    state = dict(state)
    for k, first in enumerate(config["blocks"]):
        if isinstance(first, int):
            own = f"blocks.{first}."
            state |= {f"blocks.{k}.{n.removeprefix(own)}": v for n, v in state.items() if n.startswith(own)}
    model.load_state_dict(state, assign=True)
    return model.eval()


if __name__ == "__main__":
    loaded, numbers = load(), []
    try:
        numbers = [float(value) for value in sys.argv[1:]]
    except ValueError as error:
        sys.exit(f"error: {error}")
    if len(numbers) != loaded.embedding.in_features:
        sys.exit(f"error: give {loaded.embedding.in_features} numbers, one for each input, not {len(numbers)}")
    row = torch.tensor([numbers], dtype=loaded.dtype)
    with torch.no_grad():
        print(*loaded(row).flatten().tolist(), sep="\n")
