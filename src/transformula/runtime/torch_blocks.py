"""The same weights as a PyTorch module: trainable, any dtype, any device."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights


def _dense(matrix: Matrix) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(matrix.dense()))


def _sparse(matrix: Matrix) -> tuple[torch.Tensor, torch.Tensor, nn.Parameter]:
    rows, cols = torch.from_numpy(matrix.rows).long(), torch.from_numpy(matrix.cols).long()
    return rows, cols, nn.Parameter(torch.from_numpy(matrix.values.copy()))


def _placed(values: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """The matrix with these entries; as large as one sample for each of its rows or columns that is short.

    Samples are multiplied by it, and not scattered with index_add, which torch.compile cannot put into one column.
    """
    return values.new_zeros(shape).index_put((rows, cols), values)


class PatternModule(nn.Module):
    """Scores to attention weights, a module of its own so that hooks can read and change the pattern."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        """Samples × asking tokens × all tokens, to the same shape."""
        if self.kind == "softmax":
            return torch.softmax(scores, dim=-1)
        if self.kind == "linear":
            return scores
        best = scores.argmax(dim=-1, keepdim=True)
        return torch.where(torch.arange(scores.shape[-1], device=scores.device) == best, scores, 0.0)


class HeadModule(nn.Module):
    """One attention head."""

    def __init__(self, head: Head, kind: str, scale: float) -> None:
        super().__init__()
        self.pattern, self.scale = PatternModule(kind), scale
        self.query = _dense(head.query)
        self.key = _dense(head.key)
        self.value = _dense(head.value)
        self.output = None if head.output is None else _dense(head.output)

    def forward(self, z: torch.Tensor, asking: torch.Tensor) -> torch.Tensor:
        """The head's contribution to the asking tokens."""
        scores = (asking @ self.query.T) @ (z @ self.key.T).transpose(1, 2) * self.scale
        mixed: torch.Tensor = self.pattern(scores) @ (z @ self.value.T)
        return mixed if self.output is None else mixed @ self.output.T


class FeedForwardModule(nn.Module):
    """W₂ ReLU(W₁ z + b₁) + b₂."""

    def __init__(self, layer: FeedForward) -> None:
        super().__init__()
        self.hidden, self.output = _dense(layer.hidden), _dense(layer.output)
        self.hidden_bias = nn.Parameter(_dense(layer.hidden_bias).data[:, 0].clone())
        self.output_bias = nn.Parameter(_dense(layer.output_bias).data[:, 0].clone())

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """The layer's contribution to the stream."""
        hidden = torch.relu(z @ self.hidden.T + self.hidden_bias)
        return hidden @ self.output.T + self.output_bias


class BlockModule(nn.Module):
    """Attention and feed-forward, each with its residual."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        attention: Attention = block.attention
        self.heads = nn.ModuleList(HeadModule(h, attention.kind, attention.scale) for h in attention.heads)
        self.feed_forward = None if block.feed_forward is None else FeedForwardModule(block.feed_forward)

    def forward(self, z: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Samples × tokens × width to the same shape, or to some of the tokens only."""
        asking = z if tokens is None else z[:, tokens]
        new = asking
        for head in self.heads:
            new = new + head(z, asking)
        return new if self.feed_forward is None else new + self.feed_forward(new)


class TransformerModule(nn.Module):
    """A Transformer with the given weights; ``config`` names its sizes and the slots of its residual stream.

    Hooks see the stream after ``blocks[b]`` and the attention of ``blocks[b].heads[h].pattern``.

    Examples
    --------
    >>> import transformula as tf, torch
    >>> module = tf.compile("x**2", on="x=-1..1").to_torch(blocks=True)
    >>> module(torch.tensor([[0.5]], dtype=torch.float64)).item()
    0.25
    """

    embedding_rows: torch.Tensor
    embedding_cols: torch.Tensor
    read_tokens: torch.Tensor
    readout_rows: torch.Tensor
    readout_cols: torch.Tensor

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.tokens = weights.tokens
        self.width = weights.width
        self.outputs = weights.outputs
        self.config: dict[str, Any] = {
            "hidden_size": weights.width,
            "num_hidden_layers": len(weights.blocks),
            "num_attention_heads": max((len(block.attention.heads) for block in weights.blocks), default=0),
            "slots": list(weights.slots),
        }
        rows, cols, self.embedding = _sparse(weights.embedding)
        self.register_buffer("embedding_rows", rows)
        self.register_buffer("embedding_cols", cols)
        self.memory = _dense(weights.memory)
        made = {b: BlockModule(weights.blocks[b]) for b in set(weights.first_places)}
        self.blocks = nn.ModuleList(made[b] for b in weights.first_places)
        rows, cols, self.readout = _sparse(weights.readout)
        read, place = torch.unique(cols // self.width, return_inverse=True)
        self.register_buffer("read_tokens", read)
        self.register_buffer("readout_rows", rows)
        self.register_buffer("readout_cols", place * self.width + cols % self.width)
        self.bias = nn.Parameter(_dense(weights.bias).data[:, 0].clone())

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        """Samples × inputs to samples × tokens × width."""
        shape = self.tokens * self.width, x.shape[1]
        flat = x @ _placed(self.embedding, self.embedding_rows, self.embedding_cols, shape).T
        return flat.view(x.shape[0], self.tokens, self.width) + self.memory  # not len(x), which torch.export would fix

    def read_out(self, stream: torch.Tensor) -> torch.Tensor:
        """Samples × read tokens × width to samples × outputs."""
        flat = stream.reshape(stream.shape[0], -1)
        shape = self.outputs, flat.shape[1]
        return flat @ _placed(self.readout, self.readout_rows, self.readout_cols, shape).T + self.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Samples × inputs to samples × outputs."""
        stream = self.embed(x)
        for block in self.blocks[:-1]:
            stream = block(stream)
        # the other tokens are not read after the last block
        read = self.blocks[-1](stream, self.read_tokens) if len(self.blocks) else stream[:, self.read_tokens]
        return self.read_out(read)
