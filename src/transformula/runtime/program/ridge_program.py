"""From Fang's blocks to a program: the kernel's reading as one step of powers and a bias."""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import fmpq

from transformula.kernel.structures.ridge_blocks import Ridge
from transformula.runtime.program.program_steps import ONE, Affine, Powers, Program


def ridge_program(ridge: Ridge) -> Program:
    """Σ_k Σ_s β_{k,s} (ξ_k·x)^s + b, tokens sorted by their powers and rationals rounded."""
    dtype, inputs = ridge.weights.dtype, len(ridge.weights.inputs)
    top = np.zeros(len(ridge.directions), dtype=int)
    low = np.full(len(ridge.directions), ridge.degree)
    for (_, token), powers in ridge.terms.items():
        top[token] = max(top[token], *powers)
        low[token] = min(low[token], *powers)
    order = np.lexsort((low, -top))[: int((top > 0).sum())]  # tokens that nobody reads come last
    place = {int(token): k for k, token in enumerate(order)}
    coefficients = np.zeros((ridge.degree + 1, ridge.outputs, len(order)), dtype=dtype)
    for (output, token), powers in ridge.terms.items():
        for s, value in powers.items():
            coefficients[s, output, place[token]] = _as_float(value, dtype)
    directions = np.zeros((len(order), inputs), dtype=dtype)
    for token, k in place.items():
        for column, value in ridge.directions[token].items():
            directions[k, column] = _as_float(value, dtype)
    active = tuple(int((top >= s).sum()) for s in range(ridge.degree + 1))
    first = 1 + inputs
    sums = np.arange(first, first + ridge.outputs, dtype=np.int64)
    bias = np.array([_as_float(b, dtype) for b in ridge.bias], dtype=dtype)
    raised = Powers(np.arange(1, first, dtype=np.int64), directions, coefficients, active)
    if not bias.any():
        return Program(inputs, 1, (raised,), sums, dtype)
    added = Affine(np.array([ONE, *sums]), np.concatenate([bias[:, None], np.eye(len(sums), dtype=dtype)], axis=1))
    return Program(inputs, 1, (raised, added), sums + ridge.outputs, dtype)


def _as_float(value: fmpq, dtype: str) -> Any:
    return np.dtype(dtype).type(int(value.p) / int(value.q))
