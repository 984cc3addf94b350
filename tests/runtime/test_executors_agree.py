"""One table of models, run by every executor."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import fmpq

from support.table import NAMES, POLYNOMIALS, compiled, table
from transformula.compiler.certify import pack
from transformula.errors import InputError
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.structures.ridge_blocks import read_ridge
from transformula.runtime.exact import run_exact
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.torch_backend import ProgramModule
from transformula.runtime.program.weights_program import ridge_program
from transformula.runtime.reference import run, trace
from transformula.runtime.torch_blocks import TransformerModule

CASES = {case.name: case for case in table()}
RATIONAL = [name for name in NAMES if CASES[name].is_rational]


def _close(a, b, tolerance=1e-12):
    scale = 1 + np.abs(np.asarray(a, dtype=float)).max()
    np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=0, atol=tolerance * scale)


def _exact_points(case, count=6):
    for row in case.x[:count]:
        yield [fmpq(*float(v).as_integer_ratio()) for v in row]


@pytest.mark.parametrize("name", NAMES)
def test_torch_in_float64_is_the_reference(name):
    case = CASES[name]
    module = TransformerModule(case.weights)
    _close(run(case.weights, case.x), module(torch.from_numpy(case.x)).detach())


@pytest.mark.parametrize("name", NAMES)
def test_torch_in_float32_is_near_the_reference(name):
    case = CASES[name]
    module = TransformerModule(case.weights).to(torch.float32)
    result = module(torch.from_numpy(case.x).float())
    assert result.dtype == torch.float32
    _close(run(case.weights, case.x), result.detach(), 1e-4)


@pytest.mark.parametrize("name", RATIONAL)
def test_exact_is_the_reference_without_rounding(name):
    case = CASES[name]
    exact = [[float(Fraction(int(v.p), int(v.q))) for v in run_exact(case.weights, p)] for p in _exact_points(case)]
    _close(exact, run(case.weights, case.x[:6]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("multi_head", [False, True])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_fast_paths_are_the_blocks(name, multi_head, dtype):
    case = compiled(name, multi_head, dtype)
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    program = ridge_program(read_ridge(case.weights))
    blocks = run(case.weights, case.x)
    assert blocks.dtype == dtype
    quick = run_numpy(program, case.x)
    assert quick.dtype == dtype and quick.shape == blocks.shape
    _close(blocks, quick, tolerance)
    _close(blocks, ProgramModule(program)(torch.from_numpy(case.x)).detach(), tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_files_give_the_same_function_back(name):
    case = CASES[name]
    weights, _ = unpack(pack(case.weights, Description("polynomial", formulas=["x"], box="x=0..1"), {}))
    assert np.array_equal(run(weights, case.x), run(case.weights, case.x))


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_ends_in_the_outputs(name):
    case = CASES[name]
    seen = trace(case.weights, case.x)
    assert np.array_equal(seen.outputs, run(case.weights, case.x))
    for patterns, block in zip(seen.patterns, case.weights.blocks, strict=True):
        for pattern in patterns:
            if block.attention.kind == "softmax":
                np.testing.assert_allclose(pattern.sum(axis=-1), 1)
            elif block.attention.kind == "hardmax":
                assert ((pattern != 0).sum(axis=-1) <= 1).all()


def test_exact_refuses_softmax():
    case = CASES["one softmax head"]
    with pytest.raises(InputError, match="softmax is not rational"):
        run_exact(case.weights, [fmpq(0), fmpq(0)])


def test_the_fast_path_handles_every_number_of_rows():
    case = compiled("f2")
    program = ridge_program(read_ridge(case.weights))
    x = np.random.default_rng(1).uniform(-3, 3, size=(7003, 9))
    whole = run_numpy(program, x)
    for rows in (0, 1, 63, 64, 65, 2978, 2979, 2980):
        assert np.allclose(run_numpy(program, x[:rows]), whole[:rows], rtol=1e-13, atol=1e-11)
    _close(whole, run(case.weights, x))


def test_the_reference_does_not_depend_on_its_chunks(monkeypatch):
    case = CASES["softmax heads with feed-forward"]
    whole = run(case.weights, case.x)
    monkeypatch.setattr("transformula.runtime.reference.CHUNK_FLOATS", 1)
    np.testing.assert_allclose(run(case.weights, case.x), whole, rtol=1e-12)
