"""The blocks of a softmax model at its data token, in real numbers or with rounding errors that an adversary chooses.

Written from the definition of the blocks, operation by operation: it shares no reading of the weights and no count of
roundings with the kernel. Memory tokens whose gate is closed for a head are left out: their weight is zero in floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from flint import fmpq

from transformula.kernel.folder.weights import Block, FeedForward, Head, Matrix, Weights

Tensor = torch.Tensor
#: What a slot holds: numbers, or nothing at all.
Held = torch.Tensor | None
#: Roundings of exp (within 4 units in the last place), and of a product with a float that stands for a rational.
EXP, RATIONAL = 8, 3


class Rounding:
    """fl(v) = v (1 + u d) with abs(d) <= 1, one d for each operation and sample; exact if u = 0."""

    def __init__(self, unit: float, digits: int) -> None:
        self.unit, self.digits, self.chosen, self.used = unit, digits, list[Tensor](), 0

    def __call__(self, value: Tensor, times: int = 1) -> Tensor:
        if not self.unit or not times:
            return value
        if self.used == len(self.chosen):
            self.chosen.append(torch.zeros_like(value).requires_grad_())
        self.used += 1
        return value * (1 + times * self.unit * self.chosen[self.used - 1])

    def roundings(self, entry: fmpq) -> int:
        """How often a product with a stored number is rounded: never if that is a power of two."""
        above, below = abs(int(entry.p)), int(entry.q)
        odd = above // (above & -above)
        if odd == 1 and below & (below - 1) == 0:
            return 0
        return 1 if below & (below - 1) == 0 and odd.bit_length() <= self.digits else RATIONAL

    def follow(self, goal: Tensor) -> None:
        """Choose all errors so that, to first order, they enlarge the goal."""
        slopes = torch.autograd.grad(goal, self.chosen, allow_unused=True)
        pairs = zip(self.chosen, slopes, strict=True)
        self.chosen = [d if g is None else torch.sign(g).detach().requires_grad_() for d, g in pairs]


class Blocks:
    """A softmax model with one data token, whose keys and values are constants."""

    def __init__(self, weights: Weights) -> None:
        self.weights, self.memory = weights, torch.from_numpy(weights.memory.dense(np.float64))

    def run(self, x: Tensor, fl: Rounding) -> Tensor:
        """Samples × inputs to samples × outputs."""
        fl.used = 0
        stream = [
            value * torch.ones(len(x), dtype=torch.float64) if value else None for value in self.memory[0].tolist()
        ]
        for slot, column, _ in self.weights.embedding.entries():
            stream[slot] = fl(x[:, column])
        for block in self.weights.blocks:
            self._attend(block, stream, fl)
            if block.feed_forward is not None:
                _bend(block.feed_forward, stream, fl)
        outputs = [_sum(row, fl) for row in _rows(self.weights.readout, self.weights.bias, stream, fl)]
        return torch.stack([torch.zeros_like(x[:, 0]) if out is None else out for out in outputs], dim=1)

    def _attend(self, block: Block, stream: list[Held], fl: Rounding) -> None:
        added = [pair for head in block.attention.heads for pair in self._read(head, stream, fl)]
        for slot, read in added:
            stream[slot] = _sum([stream[slot], read], fl)

    def _read(self, head: Head, stream: list[Held], fl: Rounding) -> list[tuple[int, Tensor]]:
        """What a head writes into which slot."""
        keys = self.memory @ torch.from_numpy(head.key.dense(np.float64)).T
        own = keys[:, -1] == 0
        own[0] = False
        products: list[Held] = []
        for row, key in zip(_rows(head.query, None, stream, fl), keys[own].T, strict=True):
            asked = _sum(row, fl)
            if asked is not None and bool((key != 0).any()):
                products.append(fl(asked[:, None] * key, times=0 if bool((asked == 1).all()) else 1))
        total = _sum(products, fl)
        assert total is not None
        powers = fl(torch.exp(fl(total - total.max(dim=1, keepdim=True).values.detach())), EXP)
        adds, values = powers.shape[1] - 1, self.memory[own]
        below = fl(powers, adds).sum(dim=1)
        return [
            (slot, fl(fl(fl(powers * values[:, source]), adds).sum(dim=1) / below))
            for slot, source, _ in head.value.entries()
        ]


def _bend(layer: FeedForward, stream: list[Held], fl: Rounding) -> None:
    inner = [_sum(row, fl) for row in _rows(layer.hidden, layer.hidden_bias, stream, fl)]
    units = [None if value is None else torch.relu(value) for value in inner]
    for slot, row in enumerate(_rows(layer.output, layer.output_bias, units, fl)):
        if row:
            stream[slot] = _sum([stream[slot], *row], fl)


def _rows(matrix: Matrix, bias: Matrix | None, stream: list[Held], fl: Rounding) -> list[list[Held]]:
    """The products of each row with the stream, and its bias; zeros are left out."""
    rows: list[list[Held]] = [[] for _ in range(matrix.shape[0])]
    for row, column, entry in matrix.entries():
        if (value := stream[column % len(stream)]) is not None:
            rows[row].append(fl(value * (int(entry.p) / int(entry.q)), fl.roundings(entry)))
    for row, _, entry in [] if bias is None else bias.entries():
        constant = torch.full_like(next(v for v in stream if v is not None), int(entry.p) / int(entry.q))
        rows[row].append(fl(constant, 2 if fl.roundings(entry) == RATIONAL else 0))
    return rows


def _sum(parts: Sequence[Held], fl: Rounding) -> Held:
    """One after the other; what is zero is left out."""
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else fl(total + part)
    return total
