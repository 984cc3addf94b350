"""Sums of powers in NumPy, without any samples × tokens array that leaves the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from transformula.kernel.folder.weights import FloatArray
from transformula.runtime.program.program_steps import BLOCK_TOKENS, Powers


@dataclass(frozen=True, eq=False)
class _Block:
    """A few tokens: their directions, and for each output its coefficients and which tokens have each power.

    ``used[s]`` holds those with power s; the first ``active[s]`` have power s or more.
    """

    directions: FloatArray
    terms: tuple[tuple[FloatArray, tuple[slice, ...], tuple[int, ...]], ...]

    @classmethod
    def of(cls, step: Powers, tokens: slice) -> _Block:
        """Cut out some tokens, without the powers that none of them has."""
        terms = []
        for output in range(step.width):
            table = np.ascontiguousarray(step.coefficients[:, output, tokens])
            places = [np.flatnonzero(row) for row in table]
            used = [slice(int(k[0]), int(k[-1]) + 1) if len(k) else slice(0) for k in places]
            degree = max((s for s, part in enumerate(used) if part.stop), default=0)
            active = [max(part.stop for part in used[s:]) for s in range(degree + 1)]
            terms.append((table[: degree + 1], tuple(used[: degree + 1]), tuple(active)))
        return cls(np.ascontiguousarray(step.directions[tokens]), tuple(terms))


def powers_work(step: Powers, width: int) -> Callable[[FloatArray, int, bool], None]:
    """A function that adds up the powers of a chunk, block by block, in two buffers that stay in the cache."""
    starts = range(0, len(step.directions), BLOCK_TOKENS)
    blocks = [_Block.of(step, slice(start, start + BLOCK_TOKENS)) for start in starts]
    height = min(BLOCK_TOKENS, len(step.directions))
    buffers = [np.empty((height, width), dtype=step.directions.dtype) for _ in range(2)]
    inputs = slice(int(step.reads[0]), int(step.reads[-1]) + 1)  # they stand together

    def work(rows: FloatArray, first: int, inside: bool) -> None:
        out = rows[first : first + step.width]
        out[:] = 0
        for block in blocks:
            t, power = (b[: len(block.directions), : rows.shape[1]] for b in buffers)
            np.matmul(block.directions, rows[inputs], out=t)
            for output, (coefficients, used, active) in enumerate(block.terms):
                if len(used) > 1:
                    out[output] += _power_sum(coefficients, used, active, t, power)

    return work


def _power_sum(
    coefficients: FloatArray, used: tuple[slice, ...], active: tuple[int, ...], t: FloatArray, power: FloatArray
) -> FloatArray:
    """Σ_s Σ_k c_{s,k} t_k^s for s ≥ 1.

    Like Horner's rule it takes one product per power and token, but the coefficients enter through BLAS.
    """
    degree = len(used) - 1
    if not any(part.stop for part in used[1:degree]):
        alone: FloatArray = coefficients[degree] @ _raised(t, degree, power)
        return alone
    total: FloatArray = coefficients[1, used[1]] @ t[used[1]]
    base = t
    for s in range(2, degree + 1):
        base = np.multiply(base[: active[s]], t[: active[s]], out=power[: active[s]])
        if used[s].stop:
            total += coefficients[s, used[s]] @ power[used[s]]
    return total


def _raised(t: FloatArray, degree: int, power: FloatArray) -> FloatArray:
    """t^degree by repeated squaring."""
    base = t
    for bit in f"{degree:b}"[1:]:
        base = np.multiply(base, base, out=power)
        if bit == "1":
            power *= t
    return base
