"""Fused kernels against plain torch: on a GPU where there is one, else in Triton's interpreter."""

import os
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from transformula.runtime.program import triton_ridge, triton_tables  # noqa: E402
from transformula.runtime.program.torch_backend import table_layout  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TYPES = {torch.float32: 3e-6, torch.float64: 1e-13}


def plain_ridge(rows, directions, coefficients):
    t = directions @ rows
    total = torch.zeros(coefficients.shape[1], rows.shape[1], dtype=rows.dtype, device=rows.device)
    for s in range(1, len(coefficients)):
        total = total + coefficients[s] @ t**s
    return total


def plain_tables(rows, slopes, values, starts):
    scores = slopes @ rows
    parts = [torch.softmax(scores[a:b], dim=0) for a, b in pairwise(starts)]
    which = [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 2)]
    return torch.stack([values[k, starts[g] : starts[g + 1]] @ parts[g] for k, g in which])


def drawn(rng, *shape, dtype, scale=1.0):
    return torch.from_numpy(rng.uniform(-scale, scale, shape)).to(DEVICE, dtype).requires_grad_()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 3), (3, 7, 2, 2, 77), (10, 70, 5, 1, 130)])
def test_ridge_sums_and_their_gradients(shape, dtype):
    inputs, tokens, degree, outputs, samples = shape
    rng = np.random.default_rng(0)
    rows = drawn(rng, inputs, samples, dtype=dtype)
    directions = drawn(rng, tokens, inputs, dtype=dtype, scale=1 / inputs)
    coefficients = drawn(rng, degree + 1, outputs, tokens, dtype=dtype, scale=1 / tokens)
    mine = triton_ridge.ridge_rows(rows, directions, coefficients)
    exact = [v.detach().double().requires_grad_() for v in (rows, directions, coefficients)]
    wanted = plain_ridge(*exact)
    given = torch.from_numpy(rng.normal(size=wanted.shape)).to(DEVICE)
    mine.backward(given.to(dtype))
    wanted.backward(given.to(dtype).double())
    assert (mine - wanted).abs().max() <= TYPES[dtype]
    for found, true in zip((rows, directions, coefficients), exact, strict=True):
        assert (found.grad - true.grad).abs().max() <= TYPES[dtype] * (1 + true.grad.abs().max()) * 10


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tables_and_their_gradients(dtype):
    rng = np.random.default_rng(1)
    slopes = np.zeros((13, 5))
    slopes[:, 0] = rng.normal(size=13)
    slopes[:3, 2] = 9 * rng.normal(size=3)
    slopes[3:5, [1, 4]] = 9 * rng.normal(size=(2, 2))
    slopes[5:, 3] = 200 * rng.normal(size=8)  # scores that need the shift
    starts = [0, 3, 5, 13]
    values = drawn(rng, 6, 13, dtype=dtype)
    layout = tuple(torch.from_numpy(part).to(DEVICE) for part in table_layout(slopes, starts, (2, 1, 3)))
    layout = (*layout[:2], layout[2].to(dtype), layout[3])
    slopes = torch.from_numpy(slopes).to(DEVICE, dtype).requires_grad_()
    rows = drawn(rng, 5, 300, dtype=dtype)
    rows.data[0] = 1  # the row that is always 1
    mine = triton_tables.table_rows(rows, slopes, values, layout)
    exact = [v.detach().double().requires_grad_() for v in (rows, slopes, values)]
    wanted = plain_tables(*exact, starts)
    given = torch.from_numpy(rng.normal(size=wanted.shape)).to(DEVICE)
    mine.backward(given.to(dtype))
    wanted.backward(given.to(dtype).double())
    assert (mine - wanted).abs().max() <= 100 * TYPES[dtype]
    exact[0].grad[0] = rows.grad[0] = 0
    for found, true in zip((rows, slopes, values), exact, strict=True):
        assert (found.grad - true.grad).abs().max() <= 300 * TYPES[dtype] * (1 + true.grad.abs().max())
