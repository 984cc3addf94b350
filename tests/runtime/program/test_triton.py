"""One kernel for a whole program against the blocks and plain torch: on a GPU, else in Triton's interpreter."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported
pytest.importorskip("triton", reason="Triton is not installed")

import transformula as tf  # noqa: E402
from support.edge_models import EXPONENTS, logistic, two_layers  # noqa: E402
from support.export_models import exported, rows_of  # noqa: E402
from support.runtimes import sealed  # noqa: E402
from transformula.errors import TransformulaError  # noqa: E402
from transformula.runtime import reference  # noqa: E402
from transformula.runtime.program import packed_steps, scalar_code, torch_backend, triton_program  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = ("float64", "float32")
FUSED = ["polynomial", "lookup", "circuit"]


def fused(module, x):
    """The rows from the kernel, whatever the device."""
    text = module.text("triton", x.dtype)
    return triton_program.FusedRows.apply(x, module.numbers, text, len(module.outputs))


def on_device(model, rows):
    return model.to_torch().to(DEVICE), torch.from_numpy(rows).to(DEVICE)


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    monkeypatch.setattr(torch_backend, "kernels_work", lambda: True)  # in the interpreter they do


@pytest.fixture(params=[False, True], ids=["written out", "loops"])
def loops(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(packed_steps, "UNROLLED", 0)
        monkeypatch.setattr(scalar_code, "UNROLLED", 0)
        monkeypatch.setattr(triton_program, "UNROLLED", 0)
    return request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUSED)
def test_a_kernel_is_the_blocks_within_the_proven_rounding(name, dtype, loops, circuits):
    model = exported(name, dtype, circuits)
    rows = rows_of(model, 300)
    module, x = on_device(model, rows)
    assert ("for j in" in module.text("triton", x.dtype).partition("def backward")[0]) == loops
    wanted = reference.run(model.weights, rows).astype(float)
    for count in (0, 1, len(rows)):
        found = fused(module, x[:count]).detach().cpu().numpy()
        assert found.shape == (count, model.weights.outputs)
        assert np.abs(found - wanted[:count]).max(initial=0) <= 2 * model.certificate.rounding


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUSED)
def test_gradients_are_those_of_plain_torch(name, dtype, loops, circuits):
    module, x = on_device(exported(name, dtype, circuits), rows_of(exported(name, dtype, circuits), 150))
    given = torch.from_numpy(np.random.default_rng(0).normal(size=(150, len(module.outputs)))).to(x)
    leaves = [x.requires_grad_(), module.numbers]
    pairs = zip(
        torch.autograd.grad(fused(module, x), leaves, given),
        torch.autograd.grad(module.in_chunks(x), leaves, given),
        strict=True,
    )
    for found, wanted in pairs:
        assert (found - wanted).abs().max() <= (1e-4 if dtype == "float32" else 1e-11) * wanted.abs().max()
    alone = torch.autograd.grad(fused(module.requires_grad_(False), x), x, given)[0]
    assert torch.allclose(alone, torch.autograd.grad(fused(module, x), x, given)[0])


def test_sums_of_one_table_with_many_numbers(monkeypatch):
    """The table is row 2 of the program, and its numbers take registers 0, 1 and 2: each has a name of its own."""
    monkeypatch.setattr(triton_program, "SUMMED_BYTES", 0)
    model = tf.compile("sin(100*x)", on="x=0..3", eps=1e-3)
    module, x = on_device(model, rows_of(model, 150))
    assert len(module.numbers) > 64, len(module.numbers)
    found, wanted = (
        torch.autograd.grad(f(x).sum(), module.numbers)[0] for f in (lambda x: fused(module, x), module.in_chunks)
    )
    assert (found - wanted).abs().max() <= 1e-11 * wanted.abs().max()


def test_sums_over_more_blocks_than_there_is_room_for(monkeypatch, loops, circuits):
    monkeypatch.setattr(triton_program, "SUMS", 1)
    model = exported("lookup", "float64", circuits)
    module, x = on_device(model, rows_of(model, 1000))
    wanted = torch.autograd.grad(module.in_chunks(x).sum(), module.numbers)[0]
    found = torch.autograd.grad(fused(module, x).sum(), module.numbers)[0]
    assert (found - wanted).abs().max() <= 1e-11 * wanted.abs().max()


@pytest.mark.parametrize("name", ["lookup", "circuit"])
def test_outside_the_box_and_in_a_narrower_format(name, circuits):
    model = exported(name, "float64", circuits)
    module, x = on_device(model, 1000 * rows_of(model, 60))
    wanted = module.in_chunks(x)
    assert (fused(module, x) - wanted).abs().max() <= 1e-9 * (1 + wanted.abs().max())
    narrow, inside = module.float(), torch.from_numpy(rows_of(model, 60)).to(DEVICE)
    near = torch.from_numpy(reference.run(model.weights, inside.cpu().numpy())).to(DEVICE)
    assert (fused(narrow, inside.float()) - near).abs().max() < 0.1


def test_what_is_not_a_number_stays_so(circuits):
    model = exported("circuit", "float64", circuits)
    module, x = on_device(model, rows_of(model, 40))
    x[::2] = torch.nan
    assert torch.equal(fused(module, x).isnan().any(dim=1), x.isnan().any(dim=1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_next_to_overflow_and_underflow_a_kernel_is_within_the_claim(dtype):
    proven = 0
    for make in (logistic, two_layers):
        for exponent in EXPONENTS[dtype]:
            try:
                model = sealed(*make(exponent, dtype))
            except TransformulaError:
                continue
            proven += 1
            rows = np.random.default_rng(0).uniform(*np.array(model.box.floats()).T, (50, len(model.weights.inputs)))
            module, x = on_device(model, rows.astype(dtype))
            exact = reference.run(model.weights, rows.astype(dtype), np.longdouble)
            off = np.abs(fused(module, x).detach().cpu().numpy() - exact).max()
            assert off <= 1.01 * model.certificate.rounding, (make, exponent)
    assert proven > 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's interpreter divides as NumPy does")
def test_quotients_are_rounded_once():
    """Three equal weights and one value: its third, as IEEE division gives it in float32."""
    text = """launches = {"forward": (256, 4, 1 << 30)}
@kernel
def forward(x, w, y, samples):
    place = tl.program_id(0)*256 + tl.arange(0, 256)
    value = tl.load(x + place, mask=place < samples, other=1.0)
    tl.store(y + place, div(value, value*0.0 + 3.0), mask=place < samples)
"""
    values = np.random.default_rng(2).normal(size=(3000, 1)).astype(np.float32)
    x = torch.from_numpy(values).to(DEVICE)
    assert np.array_equal(triton_program.forward_rows(x, x, text, 1).cpu().numpy(), values / np.float32(3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_module_on_the_gpu_takes_the_kernel_compiled_or_not(circuits):
    model = exported("circuit", "float32", circuits)
    module, x = on_device(model, rows_of(model, 500))
    wanted = fused(module, x)
    assert torch.equal(module(x), wanted) and torch.equal(torch.compile(module, fullgraph=True)(x), wanted)
    rows = torch.func.vmap(lambda row: module(row[None])[0])(x)
    assert torch.allclose(rows, wanted, rtol=0, atol=2 * model.certificate.rounding)


def test_torch_compile_does_not_look_inside_a_kernel(circuits):
    model = exported("lookup", "float64", circuits)
    module, x = on_device(model, rows_of(model, 30))
    x.requires_grad_()
    compiled = torch.compile(lambda x: fused(module, x), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), fused(module, x))
    leaves = [x, module.numbers]
    for found, wanted in zip(
        torch.autograd.grad(compiled(x).sum(), leaves), torch.autograd.grad(fused(module, x).sum(), leaves), strict=True
    ):
        assert torch.allclose(found, wanted)
