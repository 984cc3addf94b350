"""Weights outside the proof: matrices from numbers, positional encodings, counts, and tokens that stay constant.

Memory tokens attend too, but what attention writes into them is often never read. Let the first ``lead`` tokens
include every token that depends on the inputs or is read out. If no block writes a slot that a *later* block's keys or
values read, the tokens after them answer with their constant part in every block, so one copy serves all samples
(`leading_tokens`). Only the places of zeros decide this: in exact arithmetic the function of the weights is the same,
and every number that is read is the same up to the order of summation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

from transformula.kernel.folder.weights import (
    Block,
    FloatArray,
    IntArray,
    Matrix,
    Weights,
    named_matrices,
    to_rational,
)


def matrix_of(shape: tuple[int, int], entries: Iterable[tuple[int, int, Any]] = (), dtype: str = "float64") -> Matrix:
    """A matrix from (row, column, number) triples; rationals that are no floats are kept exactly."""
    triples = sorted((r, c, v) for r, c, v in entries if v != 0)
    rows = np.array([r for r, _, _ in triples], dtype=np.int32)
    cols = np.array([c for _, c, _ in triples], dtype=np.int32)
    exact = tuple(to_rational(v) for _, _, v in triples)
    values = nearest_floats(exact, dtype)
    same = (to_rational(v) == e for v, e in zip(values.tolist(), exact, strict=True))
    if np.all(np.isfinite(values)) and all(same):
        return Matrix(shape, rows, cols, values)
    return Matrix(shape, rows, cols, values, exact)


def dense_matrix(array: NDArray[Any], dtype: str = "float64") -> Matrix:
    """A matrix from a two-dimensional float array."""
    rows, cols = np.nonzero(array)
    values = np.ascontiguousarray(array[rows, cols]).astype(dtype)
    return Matrix(tuple(array.shape), rows.astype(np.int32), cols.astype(np.int32), values)


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


def nonzeros(weights: Weights) -> int:
    """Number of non-zero entries of the model without the constant parts of its tokens, as Fang counts."""
    return sum(m.nonzeros for name, m in named_matrices(weights) if name != "memory")


def sinusoidal(tokens: int, width: int) -> FloatArray:
    """The fixed positional encoding of Vaswani et al. 2017: sines in even columns, cosines in odd ones.

    Examples
    --------
    >>> sinusoidal(2, 4).round(3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    positions = np.arange(tokens)[:, None]
    pairs = np.arange(width)[None, :] // 2
    angles = positions / 10_000.0 ** (2 * pairs / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


def read_tokens(weights: Weights) -> IntArray:
    """Indices of the tokens that the readout uses."""
    return np.unique(weights.readout.cols // weights.width).astype(np.int32)


def leading_tokens(weights: Weights) -> int:
    """Number of leading tokens that depend on the inputs; the tokens after them are constants to all blocks."""
    asked: set[int] = set()
    for block in reversed(weights.blocks):
        if _written(block) & asked:
            return weights.tokens
        asked |= _answered(block)
    used = (*weights.data_tokens.tolist(), *read_tokens(weights).tolist())
    return 1 + max(used, default=0)


def _written(block: Block) -> set[int]:
    rows = {int(r) for h in block.attention.heads for r in (h.value if h.output is None else h.output).rows}
    layer = block.feed_forward
    if layer is not None:
        rows |= {*layer.output.rows.tolist(), *layer.output_bias.rows.tolist()}
    return rows


def _answered(block: Block) -> set[int]:
    return {int(c) for head in block.attention.heads for m in (head.key, head.value) for c in m.cols}
