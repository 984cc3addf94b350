"""Stock torch.nn modules with the compiled weights, and what to_torch() can be put through."""

import copy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from support.export_models import NAMES as MODELS
from support.export_models import exported, rows_of
from support.table import NAMES, table
from transformula.errors import ExportError
from transformula.export import stock_packing, stock_torch
from transformula.export.parity import largest_difference, sample_points
from transformula.export.stock_packing import pack_stock, stock_files, stock_module
from transformula.model_folder import write_folder
from transformula.runtime.reference import run

CASES = {case.name: case for case in table()}
KINDS = ("polynomial", "lookup", "sequence", "circuit")


@pytest.mark.parametrize("name", NAMES)
def test_stock_modules_are_the_reference(name):
    case = CASES[name]
    wanted = run(case.weights, case.x)
    found = stock_module(case.weights)(torch.from_numpy(case.x)).detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * (1 + np.abs(wanted).max()))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_every_construction_is_within_its_proven_rounding(name, dtype, circuits):
    model = exported(name, dtype, circuits)
    module = stock_module(model.weights, model.sequence)
    x = rows_of(model, 500)
    with torch.no_grad():
        found = module(torch.from_numpy(x))
    assert found.shape == (500, *(model.sequence or (model.weights.outputs,))) and str(found.dtype)[6:] == dtype
    difference = np.abs(found.numpy().reshape(500, -1) - run(model.weights, x)).max()
    assert difference <= model.certificate.rounding
    hard = any(block.attention.kind != "softmax" for block in model.weights.blocks)
    assert all(isinstance(b.self_attn, nn.MultiheadAttention) != hard for b in module.blocks)


@pytest.mark.parametrize("name", ["lookup with kinks", "sequence", "circuit"])
def test_a_block_is_a_transformer_encoder_layer_without_its_norms(name, circuits):
    """The recipe of docs/export.md: stock layer, norms replaced by nn.Identity, every token asking."""
    model = exported(name, "float64", circuits)
    module = stock_module(model.weights)
    block = module.blocks[0]
    width, units = block.linear1.in_features, block.linear1.out_features
    layer = nn.TransformerEncoderLayer(
        width, block.self_attn.num_heads, units, dropout=0, batch_first=True, bias=False, dtype=torch.float64
    )
    layer.norm1 = layer.norm2 = nn.Identity()
    layer.linear1, layer.linear2 = nn.Linear(width, units), nn.Linear(units, width)
    layer.double().load_state_dict(block.state_dict())
    z = torch.randn(3, 7, width, dtype=torch.float64)
    for mode in (layer.train(), layer.eval()):
        torch.testing.assert_close(mode(z), block(z, z), rtol=0, atol=1e-10)


def test_scaling_heads_is_exact(circuits):
    """√D and D^(1/4) are powers of two, so packing rounds nothing: the weights come back bit for bit."""
    model = exported("lookup", "float64", circuits)
    config, state = pack_stock(model.weights)
    heads = model.weights.blocks[0].attention.heads
    dim = config["width"] // config["blocks"][0]["heads"]
    assert dim in stock_packing.HEAD_DIMS and float(dim**0.25).is_integer()
    queries = state["blocks.0.self_attn.in_proj_weight"][: config["width"]].reshape(-1, dim, config["width"])
    for packed, head in zip(queries, heads, strict=False):
        rows, slots = head.query.shape
        assert np.array_equal(packed[:rows, :slots] / dim**0.5, head.query.dense())
        assert not packed[rows:].any() and not packed[:, slots:].any()


def test_a_head_that_writes_many_slots_becomes_several():
    case = CASES["softmax without output projection"]
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(stock_packing, "HEAD_DIMS", (4, 256))
        module = stock_module(case.weights)
        assert module.blocks[0].self_attn.num_heads == 4  # two heads write six slots each
    found = module(torch.from_numpy(case.x)).detach().numpy()
    np.testing.assert_allclose(found, run(case.weights, case.x), rtol=0, atol=1e-11)


def test_what_can_not_be_packed_is_refused(monkeypatch):
    monkeypatch.setattr(stock_packing, "HEAD_DIMS", (2,))
    with pytest.raises(ExportError, match="a head's query has 3 rows"):
        pack_stock(CASES["one softmax head"].weights)
    monkeypatch.setattr(stock_packing, "_MAX_NUMBERS", 10)
    with pytest.raises(ExportError, match="compile a smaller one"):
        pack_stock(CASES["square sum float64"].weights)


@pytest.mark.parametrize("name", ["polynomial", "sequence"])
def test_the_exported_code_runs_without_transformula(name, circuits, tmp_path):
    model = exported(name, "float64", circuits)
    write_folder(tmp_path / "torch", stock_files(model.weights, model.sequence))
    x = rows_of(model, 1)
    code = (
        "import sys; sys.modules['transformula'] = None; sys.argv[0] = 'load.py'\n"
        "import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "torch" / "load.py"), *map(repr, x[0].tolist())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = [float(line) for line in done.stdout.split()]
    assert np.abs(np.array(found) - run(model.weights, x)[0]).max() <= model.certificate.rounding


def test_loading_gives_the_same_module(circuits, tmp_path):
    model = exported("circuit", "float32", circuits)
    write_folder(tmp_path / "torch", stock_files(model.weights))
    loaded = stock_torch.load(tmp_path / "torch")
    x = torch.from_numpy(rows_of(model, 9))
    assert torch.equal(loaded(x), stock_module(model.weights)(x)) and loaded.dtype == torch.float32
    assert stock_files(model.weights) == stock_files(model.weights)


def _modules(name, circuits):
    model = exported(name, "float64", circuits)
    return model, (model.to_torch(), stock_module(model.weights))


@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_those_of_the_function(name, circuits):
    model, modules = _modules(name, circuits)
    x = torch.from_numpy(rows_of(model, 2)).requires_grad_()
    for module in modules:
        assert torch.autograd.gradcheck(module, (x,))
        module(x).sum().backward()
        assert all(p.grad is not None for p in module.parameters() if p.numel())


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_with_any_batch(name, strict, circuits):
    model, modules = _modules(name, circuits)
    x = torch.from_numpy(rows_of(model, 8))
    for module in modules:
        batch = {0: torch.export.Dim("batch")}
        program = torch.export.export(module, (x,), dynamic_shapes=(batch,), strict=strict).module()
        for rows in (1, 3, 8):
            torch.testing.assert_close(program(x[:rows]), module(x[:rows]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["polynomial", "lookup"])
def test_torch_compile_without_graph_breaks(name, circuits):
    model, modules = _modules(name, circuits)
    x = torch.from_numpy(rows_of(model, 8))
    for module in modules:
        torch.compiler.reset()
        compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
        for rows in (8, 3):
            torch.testing.assert_close(compiled(x[:rows]), module(x[:rows]), rtol=0, atol=1e-12)


@pytest.mark.skipif(
    shutil.which("g++") is None or not (Path(sysconfig.get_path("include")) / "Python.h").exists(),
    reason="the default backend needs a C++ compiler and Python's headers",
)
def test_torch_compile_as_it_comes(circuits, monkeypatch, tmp_path):
    """The default backend: it writes scatters atomically for many rows on several threads, and only then could it fail.

    One test for all kinds, so that the headers are compiled once.
    """
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for name in ("polynomial", "circuit"):
            model = exported(name, "float64", circuits)
            module, rows = model.to_torch(), torch.from_numpy(rows_of(model, 2000))
            torch.compiler.reset()
            with torch.no_grad():
                torch.testing.assert_close(
                    torch.compile(module, fullgraph=True)(rows), module(rows), rtol=0, atol=1e-11
                )
    finally:
        torch.set_num_threads(threads)
        torch.compiler.reset()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", KINDS)
def test_narrow_formats_run_and_lose_what_they_must(name, dtype, circuits):
    """Not proven, only measured: the loss is worse than float32's rounding, and sometimes everything."""
    model, modules = _modules(name, circuits)
    x = sample_points(model.formula, model.weights)[:50]
    for module in modules:
        narrow = copy.deepcopy(module).to(dtype)

        def execute(rows, narrow=narrow):
            return narrow(torch.from_numpy(rows).to(dtype)).detach().double().numpy()

        loss = largest_difference(model.weights, x, execute)
        assert not loss < 1e-5
