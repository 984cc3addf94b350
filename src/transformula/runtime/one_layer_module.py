"""One softmax layer as a torch module for training, and its parameters as weights again.

Memory tokens do not depend on the input and their own outputs are never read: `OneLayerModule` computes their keys and
values once per batch and only the data tokens' queries, O(batch · M) instead of O(batch · M²), with the parameters of
`torch_blocks`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.runtime.matrices import dense_matrix
from transformula.runtime.torch_blocks import BlockModule, HeadModule, TransformerModule


class OneLayerModule(TransformerModule):
    """One softmax layer, evaluated at the data tokens only."""

    data: Tensor
    constant: Tensor

    def __init__(self, weights: Weights) -> None:
        blocks = weights.blocks
        if len(blocks) != 1 or blocks[0].attention.kind != "softmax":
            raise ValueError("the weights are not one layer of softmax attention")
        super().__init__(weights)
        data = weights.data_tokens.astype(np.int64)
        place = {int(token): k for k, token in enumerate(data)}
        read = np.unique(weights.readout.cols // weights.width)
        if not set(read.tolist()) <= set(place):
            raise ValueError("the readout reads memory tokens")
        self.register_buffer("data", torch.from_numpy(data))
        self.register_buffer(
            "constant", torch.from_numpy(np.setdiff1d(np.arange(weights.tokens), data).astype(np.int64))
        )
        for buffer in (self.embedding_rows, self.readout_cols):
            token, slot = buffer // weights.width, buffer % weights.width
            buffer.copy_(torch.tensor([place[int(t)] for t in token]) * weights.width + slot)

    def forward(self, x: Tensor) -> Tensor:
        """Samples × inputs to samples × outputs."""
        n = len(self.data)
        flat = x.new_zeros(len(x), n * self.width)
        flat = flat.index_add(1, self.embedding_rows, x[:, self.embedding_cols] * self.embedding)
        z = flat.view(len(x), n, self.width) + self.memory[self.data]
        block = self.blocks[0]
        assert isinstance(block, BlockModule)
        fixed = self.memory[self.constant]
        added = torch.zeros_like(z)
        for head in block.heads:
            assert isinstance(head, HeadModule)
            query = z @ head.query.T * head.scale
            scores = torch.cat([query @ (z @ head.key.T).transpose(1, 2), query @ (fixed @ head.key.T).T], dim=2)
            pattern = torch.softmax(scores, dim=2)
            mixed = pattern[:, :, :n] @ (z @ head.value.T) + pattern[:, :, n:] @ (fixed @ head.value.T)
            added = added + (mixed if head.output is None else mixed @ head.output.T)
        z = z + added
        if block.feed_forward is not None:
            z = z + block.feed_forward(z)
        return self.read_out(z)


def trained_weights(start: Weights, module: OneLayerModule) -> Weights:
    """The module's parameters as weights again, in the layout it started from."""
    block = module.blocks[0]
    assert isinstance(block, BlockModule)
    heads = []
    for part in block.heads:
        assert isinstance(part, HeadModule)
        output = None if part.output is None else _matrix(part.output)
        heads.append(Head(_matrix(part.query), _matrix(part.key), _matrix(part.value), output))
    layer = None
    if block.feed_forward is not None:
        f = block.feed_forward
        biases = _matrix(f.hidden_bias[:, None]), _matrix(f.output_bias[:, None])
        layer = FeedForward(_matrix(f.hidden), biases[0], _matrix(f.output), biases[1])
    attention = start.blocks[0].attention
    return replace(
        start,
        embedding=replace(start.embedding, values=_array(module.embedding), exact=None),
        memory=_matrix(module.memory),
        blocks=(Block(Attention(tuple(heads), attention.kind, attention.scale), layer),),
        readout=replace(start.readout, values=_array(module.readout), exact=None),
        bias=_matrix(module.bias[:, None]),
    )


def _array(parameter: Tensor) -> NDArray[np.float64]:
    return parameter.detach().cpu().double().numpy().copy()


def _matrix(parameter: Tensor) -> Matrix:
    return dense_matrix(_array(parameter))
