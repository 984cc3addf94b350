"""A Transformer as plain data: frozen dataclasses of arrays, no behaviour.

Conventions, as in both papers: a sample is a set of tokens, each a vector of the residual stream
whose coordinates are *named slots*. One block is ::

    ẑ_i = z_i + Σ_h O_h V_h Z m(scale · (Q_h z_i)ᵀ K_h Z)        attention with residual
    z'_i = ẑ_i + W₂ ReLU(W₁ ẑ_i + b₁) + b₂                        feed-forward with residual

where m is softmax (Gumaan eq. 5–8) or Fang's hardmax, which keeps the largest score and zeroes the
rest (Fang section 2.2). The embedding is affine in the inputs and the readout is affine in all tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.int32]
Kind = Literal["softmax", "hardmax"]

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

    @classmethod
    def of(
        cls,
        shape: tuple[int, int],
        entries: Iterable[tuple[int, int, Any]] = (),
        dtype: str = "float64",
    ) -> Matrix:
        """From (row, column, number) triples; rationals are kept exactly where floats are not."""
        triples = sorted((r, c, v) for r, c, v in entries if v != 0)
        rows = np.array([r for r, _, _ in triples], dtype=np.int32)
        cols = np.array([c for _, c, _ in triples], dtype=np.int32)
        exact = tuple(to_rational(v) for _, _, v in triples)
        values = nearest_floats(exact, dtype)
        if np.all(np.isfinite(values)) and all(
            to_rational(v) == e for v, e in zip(values.tolist(), exact, strict=True)
        ):
            return cls(shape, rows, cols, values)
        return cls(shape, rows, cols, values, exact)

    @classmethod
    def from_dense(cls, array: NDArray[Any], dtype: str = "float64") -> Matrix:
        """From a two-dimensional float array."""
        rows, cols = np.nonzero(array)
        values = np.ascontiguousarray(array[rows, cols]).astype(dtype)
        return cls(tuple(array.shape), rows.astype(np.int32), cols.astype(np.int32), values)

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
        if self.exact is not None:
            return self.exact
        return [to_rational(v) for v in self.values.tolist()]

    def entries(self) -> Iterator[tuple[int, int, fmpq]]:
        """(row, column, rational) triples."""
        return zip(self.rows.tolist(), self.cols.tolist(), self.exact_values(), strict=True)


def to_rational(value: Any) -> fmpq:
    """An int, a finite float or a rational, exactly."""
    if isinstance(value, fmpq):
        return value
    numerator, denominator = value.as_integer_ratio()
    return fmpq(numerator, denominator)


def nearest_floats(exact: Sequence[fmpq], dtype: str) -> FloatArray:
    """The nearest floats of a dtype; overflow becomes infinity, for the caller to refuse."""
    as_float64 = np.array([_nearest(v) for v in exact], dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return as_float64.astype(dtype)


def _nearest(value: fmpq) -> float:
    try:
        return int(value.p) / int(value.q)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head. ``output`` None means the value is written to the stream as it is."""

    query: Matrix
    key: Matrix
    value: Matrix
    output: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Attention:
    """Heads side by side; scores are multiplied by ``scale`` before softmax or hardmax."""

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

    Attributes
    ----------
    inputs : tuple of str
        The variables, in the order of the columns of X.
    slots : tuple of str
        Names of the residual stream's coordinates; their number is the width.
    tokens : int
        Length of the sequence, memory tokens included.
    embedding : Matrix
        (tokens · width) × inputs: what the inputs add to each token's slots.
    memory : Matrix
        tokens × width: the constant part of each token (one-hots, memory, positional encodings).
    readout, bias : Matrix
        outputs × (tokens · width) and outputs × 1.
    dtype : str
        The float format the numbers are stored in.
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
    def heads(self) -> int:
        """The most heads any block has."""
        return max((len(b.attention.heads) for b in self.blocks), default=0)

    @property
    def data_tokens(self) -> IntArray:
        """Indices of the tokens that depend on the input."""
        return np.unique(self.embedding.rows // self.width).astype(np.int32)

    @property
    def memory_tokens(self) -> int:
        """How many tokens are constant."""
        return self.tokens - len(self.data_tokens)

    @property
    def nonzeros(self) -> int:
        """Non-zero numbers in the whole model, its constant token parts left out (as Fang counts)."""
        return sum(m.nonzeros for name, m in named_matrices(self) if name != "memory")

    def slot(self, name: str) -> int:
        """Index of a named slot."""
        return self.slots.index(name)


def named_matrices(weights: Weights) -> Iterator[tuple[str, Matrix]]:
    """Every matrix with the name it has on disk."""
    yield "embedding", weights.embedding
    yield "memory", weights.memory
    for b, block in enumerate(weights.blocks):
        yield from ((f"blocks.{b}.{name}", m) for name, m in block_matrices(block))
    yield "readout", weights.readout
    yield "bias", weights.bias


def block_matrices(block: Block) -> Iterator[tuple[str, Matrix]]:
    """The matrices of one block with their names inside it."""
    for h, head in enumerate(block.attention.heads):
        for part in ("query", "key", "value", "output"):
            matrix = getattr(head, part)
            if matrix is not None:
                yield f"heads.{h}.{part}", matrix
    if block.feed_forward is not None:
        for part in ("hidden", "hidden_bias", "output", "output_bias"):
            yield f"feed_forward.{part}", getattr(block.feed_forward, part)
