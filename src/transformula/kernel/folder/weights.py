"""A Transformer as plain data: frozen dataclasses of arrays, no behaviour.

Conventions, as in both papers: a sample is a set of tokens, each a vector of the residual stream
whose coordinates are *named slots*. One block is ::

    ẑ_i = z_i + Σ_h O_h V_h Z m(scale · (Q_h z_i)ᵀ K_h Z)        attention with residual
    z'_i = ẑ_i + W₂ ReLU(W₁ ẑ_i + b₁) + b₂                        feed-forward with residual

where m is softmax (Gumaan eq. 5–8), Fang's hardmax, which keeps the largest score and zeroes the rest (Fang
section 2.2), or linear: the scores as they are. The embedding is affine in the inputs and the readout in all tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.int32]
Kind = Literal["softmax", "hardmax", "linear"]
DTYPES = ("float64", "float32")


@dataclass(frozen=True, eq=False)
class Matrix:
    """A sparse matrix: entries ``values`` at (``rows``, ``cols``), everything else zero.

    ``exact`` holds the rational entries where ``values`` are only their nearest floats; None means
    that the floats are the entries.
    """

    shape: tuple[int, int]
    rows: IntArray
    cols: IntArray
    values: FloatArray
    exact: tuple[fmpq, ...] | None = None

    @property
    def nonzeros(self) -> int:
        """How many entries are stored (none of them is zero)."""
        return len(self.values)

    def dense(self, dtype: Any = None) -> FloatArray:
        """The full array."""
        full = np.zeros(self.shape, dtype=dtype or self.values.dtype)
        full[self.rows, self.cols] = self.values
        return full

    def exact_values(self) -> Sequence[fmpq]:
        """The entries as rationals."""
        return [to_rational(v) for v in self.values.tolist()] if self.exact is None else self.exact

    def entries(self) -> Iterator[tuple[int, int, fmpq]]:
        """(row, column, rational) triples."""
        return zip(self.rows.tolist(), self.cols.tolist(), self.exact_values(), strict=True)


def to_rational(value: Any) -> fmpq:
    """An int, a finite float or a rational, exactly."""
    return value if isinstance(value, fmpq) else fmpq(*value.as_integer_ratio())


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head. ``output`` None means the value is written to the stream as it is."""

    query: Matrix
    key: Matrix
    value: Matrix
    output: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Attention:
    """Heads side by side; scores are multiplied by ``scale`` before m."""

    heads: tuple[Head, ...]
    kind: Kind = "softmax"
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class FeedForward:
    """W₂ ReLU(W₁ z + b₁) + b₂, token by token."""

    hidden: Matrix
    hidden_bias: Matrix
    output: Matrix
    output_bias: Matrix


@dataclass(frozen=True, eq=False)
class Block:
    """One Transformer encoder block."""

    attention: Attention
    feed_forward: FeedForward | None = None


@dataclass(frozen=True, eq=False)
class Weights:
    """A whole Transformer.

    ``inputs`` are the variables in the order of the columns of X, ``slots`` the names of the stream's coordinates.
    ``embedding`` is (tokens · width) × inputs, what the inputs add to each token's slots; ``memory`` is tokens ×
    width, the constant part of each token; ``readout`` is outputs × (tokens · width), ``bias`` outputs × 1. One
    block at several places is a loop: its weights are stored once.
    """

    inputs: tuple[str, ...]
    slots: tuple[str, ...]
    tokens: int
    embedding: Matrix
    memory: Matrix
    blocks: tuple[Block, ...]
    readout: Matrix
    bias: Matrix
    dtype: str = "float64"

    @property
    def width(self) -> int:
        """Dimension of the residual stream."""
        return len(self.slots)

    @property
    def outputs(self) -> int:
        """How many numbers come out."""
        return self.readout.shape[0]

    @property
    def data_tokens(self) -> IntArray:
        """Indices of the tokens that depend on the input."""
        tokens = np.sort(self.embedding.rows // self.width)
        return tokens[np.diff(tokens, prepend=-1) > 0].astype(np.int32)

    @property
    def first_places(self) -> list[int]:
        """For each block, where it stands for the first time."""
        first: dict[int, int] = {}
        return [first.setdefault(id(block), b) for b, block in enumerate(self.blocks)]

    def slot(self, name: str) -> int:
        """Index of a named slot."""
        return self.slots.index(name)


def named_matrices(weights: Weights) -> Iterator[tuple[str, Matrix]]:
    """Every matrix with the name it has on disk; those of a loop once."""
    yield from (("embedding", weights.embedding), ("memory", weights.memory))
    for b in sorted(set(weights.first_places)):
        yield from ((f"blocks.{b}.{name}", m) for name, m in block_matrices(weights.blocks[b]))
    yield from (("readout", weights.readout), ("bias", weights.bias))


def block_matrices(block: Block) -> Iterator[tuple[str, Matrix]]:
    """The matrices of one block with their names inside it."""
    heads = [(f"heads.{h}", head) for h, head in enumerate(block.attention.heads)]
    for prefix, part in [*heads, ("feed_forward", block.feed_forward)]:
        for name, matrix in vars(part).items() if part is not None else ():
            if matrix is not None:
                yield f"{prefix}.{name}", matrix
