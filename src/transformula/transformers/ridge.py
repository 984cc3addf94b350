"""Fang's polynomial models evaluated fast: Σ_k Σ_s β_{k,s} (ξ_k·x)^s + b, as the kernel reads it.

Without any n × n array: T = X Fᵀ and a sweep over its powers, O(n (d + q)) a sample.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq
from threadpoolctl import threadpool_limits

from transformula.kernel import ridge as reading
from transformula.kernel.ridge import Monomial, NotRidgeError, ProductHead
from transformula.kernel.weights import FloatArray, Weights

__all__ = [
    "FastRidge",
    "Monomial",
    "NotRidgeError",
    "ProductHead",
    "Ridge",
    "read_ridge",
    "run_fast",
    "run_fast_torch",
]


@dataclass(frozen=True, eq=False)
class Ridge(reading.Ridge):
    """What the kernel reads, with the arrays of the fast path."""

    @cached_property
    def fast(self) -> FastRidge:
        """The arrays of the fast path."""
        return FastRidge.of(self)


def read_ridge(weights: Weights) -> Ridge:
    """Read the polynomial out of the weights, or raise `NotRidgeError`."""
    return Ridge(**vars(reading.read_ridge(weights)))


@dataclass(frozen=True, eq=False)
class FastRidge:
    """Arrays for the sweep: tokens sorted by their powers, so that alike ones stay together.

    ``directions`` is tokens × inputs; ``coefficients[s]`` is outputs × tokens and belongs to t^s, of
    which only the first ``active[s]`` tokens have power s or more.
    """

    directions: FloatArray
    coefficients: FloatArray
    active: tuple[int, ...]
    bias: FloatArray

    @classmethod
    def of(cls, ridge: reading.Ridge) -> FastRidge:
        """Sort the tokens and round the rationals."""
        dtype = ridge.weights.dtype
        top = np.zeros(len(ridge.directions), dtype=int)
        low = np.full(len(ridge.directions), ridge.degree)
        for (_, token), powers in ridge.terms.items():
            top[token] = max(top[token], *powers)
            low[token] = min(low[token], *powers)
        order = np.lexsort((low, -top))
        place = np.argsort(order)
        shape = (ridge.degree + 1, ridge.outputs, len(order))
        exact = np.zeros(shape, dtype=dtype)
        for (output, token), powers in ridge.terms.items():
            for s, value in powers.items():
                exact[s, output, place[token]] = _as_float(value, dtype)
        directions = np.zeros((len(order), len(ridge.weights.inputs)), dtype=dtype)
        for token, direction in enumerate(ridge.directions):
            for column, value in direction.items():
                directions[place[token], column] = _as_float(value, dtype)
        active = tuple(int((top >= s).sum()) for s in range(ridge.degree + 1))
        bias = np.array([_as_float(b, dtype) for b in ridge.bias], dtype=dtype)
        return cls(directions, exact, active, bias)

    @cached_property
    def blocks(self) -> tuple[FastBlock, ...]:
        """The tokens in groups that fit the cache."""
        starts = range(0, len(self.directions), BLOCK_TOKENS)
        return tuple(FastBlock.of(self, slice(start, start + BLOCK_TOKENS)) for start in starts)


@dataclass(frozen=True, eq=False)
class FastBlock:
    """A few tokens: their directions, and for each output (coefficients, tokens used by each power)."""

    directions: FloatArray
    terms: tuple[tuple[FloatArray, tuple[int, ...]], ...]

    @classmethod
    def of(cls, fast: FastRidge, tokens: slice) -> FastBlock:
        """Cut out some tokens and leave the powers that none of them has."""
        terms = []
        for output in range(fast.coefficients.shape[1]):
            table = np.ascontiguousarray(fast.coefficients[:, output, tokens])
            used = [int(np.flatnonzero(row).max(initial=-1)) + 1 for row in table]
            degree = max((s for s, count in enumerate(used) if count), default=0)
            terms.append((table[: degree + 1], tuple(used[: degree + 1])))
        return cls(np.ascontiguousarray(fast.directions[tokens]), tuple(terms))


def _as_float(value: fmpq, dtype: str) -> Any:
    return np.dtype(dtype).type(int(value.p) / int(value.q))


#: Tokens in a block of the sweep, and floats of T in a block: small enough for the cache of one core.
BLOCK_TOKENS = 256
BLOCK_FLOATS = 1 << 17
#: Below this many floats of T a second thread is not worth starting.
THREAD_FLOATS = 1 << 22


def run_fast(fast: FastRidge, x: FloatArray) -> FloatArray:
    """Evaluate samples × inputs to samples × outputs without building any n × n array."""
    x = np.ascontiguousarray(x, dtype=fast.directions.dtype)
    outputs, tokens = fast.coefficients.shape[1:]
    out = np.zeros((outputs, len(x)), dtype=x.dtype)
    step = max(64, BLOCK_FLOATS // min(max(tokens, 1), BLOCK_TOKENS))
    threads = _cores() if len(x) * tokens > THREAD_FLOATS else 1
    share = -(-len(x) // threads) or 1
    pieces = [slice(start, min(start + share, len(x))) for start in range(0, len(x), share)]

    def work(piece: slice) -> None:
        _sweep(fast, x[piece], out[:, piece], step)

    if threads == 1:
        for piece in pieces:
            work(piece)
    else:
        # BLAS must not start threads of its own beside ours
        with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, pieces))
    return (out + fast.bias[:, None]).T


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _sweep(fast: FastRidge, x: FloatArray, out: FloatArray, step: int) -> None:
    """Add every block's share to out, a few points at a time, in two buffers that stay in the cache."""
    height = min(BLOCK_TOKENS, len(fast.directions))
    buffers = [np.empty((height, step), dtype=x.dtype) for _ in range(2)]
    for start in range(0, len(x), step):
        columns = np.ascontiguousarray(x[start : start + step].T)
        for block in fast.blocks:
            t, power = (b[: len(block.directions), : columns.shape[1]] for b in buffers)
            np.matmul(block.directions, columns, out=t)
            for output, (coefficients, used) in enumerate(block.terms):
                if len(used) > 1:
                    out[output, start : start + step] += _power_sum(coefficients, used, t, power)


def _power_sum(coefficients: FloatArray, used: tuple[int, ...], t: FloatArray, power: FloatArray) -> FloatArray:
    """Σ_s Σ_k c_{s,k} t_k^s for s ≥ 1; only the first used[s] tokens have power s.

    Like Horner's rule it takes one product a power and token, but the coefficients enter through BLAS.
    """
    degree = len(used) - 1
    if not any(used[:degree]):
        alone: FloatArray = coefficients[degree] @ _raised(t, degree, power)
        return alone
    total: FloatArray = coefficients[1, : used[1]] @ t[: used[1]]
    base = t
    for s in range(2, degree + 1):
        base = np.multiply(base, t, out=power)
        total += coefficients[s, : used[s]] @ power[: used[s]]
    return total


def _raised(t: FloatArray, degree: int, power: FloatArray) -> FloatArray:
    """t^degree by repeated squaring."""
    base = t
    for bit in f"{degree:b}"[1:]:
        base = np.multiply(base, base, out=power)
        if bit == "1":
            power *= t
    return base


def run_fast_torch(fast: FastRidge, x: Any) -> Any:
    """The same sweep on tensors, differentiable in x; the result is on x's device."""
    import torch

    def like(array: FloatArray) -> Any:
        return torch.as_tensor(array).to(dtype=x.dtype, device=x.device)

    t = x @ like(fast.directions).T
    outputs = []
    for output in range(fast.coefficients.shape[1]):
        total = torch.zeros_like(t)
        for s in range(len(fast.active) - 1, 0, -1):
            total = (total * t) + like(fast.coefficients[s, output])
        outputs.append((total * t).sum(dim=1) + float(fast.bias[output]))
    return torch.stack(outputs, dim=1)
