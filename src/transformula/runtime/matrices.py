"""Matrices of Transformers from numbers, and how many there are: what a proof does not need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

from transformula.kernel.folder.weights import FloatArray, Matrix, Weights, named_matrices, to_rational


def matrix_of(shape: tuple[int, int], entries: Iterable[tuple[int, int, Any]] = (), dtype: str = "float64") -> Matrix:
    """From (row, column, number) triples; rationals are kept exactly where floats are not."""
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
    """From a two-dimensional float array."""
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


def most_heads(weights: Weights) -> int:
    """The most heads any block has."""
    return max((len(b.attention.heads) for b in weights.blocks), default=0)


def memory_tokens(weights: Weights) -> int:
    """How many tokens are constant."""
    return weights.tokens - len(weights.data_tokens)


def nonzeros(weights: Weights) -> int:
    """Non-zero numbers in the whole model, its constant token parts left out (as Fang counts)."""
    return sum(m.nonzeros for name, m in named_matrices(weights) if name != "memory")
