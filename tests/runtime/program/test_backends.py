"""One program, three runtimes: each is compared with the blocks as written over the shared table of models."""

import itertools
import sys
import warnings
from dataclasses import replace

import flint
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import parity
import transformula as tf
from support.edge_models import equal_tokens
from support.export_models import BLOCKS_ONLY, exported, rows_of
from support.export_models import NAMES as MODELS
from support.forging import with_values
from support.nets import Layer, Net
from support.one_layer_models import model_named
from transformula.export.onnx_files import onnx_bytes
from transformula.runtime import reference
from transformula.runtime.onnx_graph import onnx_executor
from transformula.runtime.program import scalar_code, torch_backend
from transformula.runtime.program import score_bounds as bounds
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.onnx_backend import program_bytes
from transformula.runtime.program.program_steps import AffineStep, GridStep, Program, Tables
from transformula.runtime.program.torch_backend import only_numbers
from transformula.runtime.program.weights_program import read_tables

DTYPES = ("float64", "float32")
SEQUENCE = "same at each position"
NAMES = [name for name in MODELS if name not in BLOCKS_ONLY]


def _model(name, dtype, circuits):
    if name == SEQUENCE:
        eps = 1e-5 if dtype == "float64" else 1e-2
        formulas = [text for k in "123" for text in (f"a{k}*b{k}", f"b{k}")]
        box = ", ".join(f"a{k}=0..1, b{k}=-1..1" for k in "123")
        return tf.compile(formulas, on=box, shape=(3, 2), eps=eps, dtype=dtype, construction="circuit")
    return exported(name, dtype, circuits)


def _points(model, count=300):
    """Random points and corners of the box, or a memorised model's samples."""
    x = rows_of(model, count)
    if model.construction != "memorize":
        ends = zip(*np.array(model.box.floats()).T, strict=True)
        x = np.concatenate([x, np.array(list(itertools.product(*ends)), dtype=x.dtype)])
    return x


def _runs(model):
    """Every back-end as a function from rows to rows."""
    module, execute = model.to_torch(), onnx_executor(onnx_bytes(model.packed, model.certificate, proven=True))

    def in_torch(x):
        with torch.no_grad():
            return module(torch.from_numpy(x)).numpy()

    def in_onnx(x):
        return execute(x.reshape(len(x), *(model.sequence or x.shape[1:]))).reshape(len(x), model.weights.outputs)

    def in_scalars(x):
        with torch.no_grad():
            return module.written(torch.from_numpy(x)).reshape(len(x), model.weights.outputs).numpy()

    runs = {"numpy": lambda x: run_numpy(model.program, x), "torch": in_torch, "onnx": in_onnx}
    return runs if model.program.positions > 1 else runs | {"scalars": in_scalars}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*NAMES, SEQUENCE])
def test_every_back_end_is_the_blocks_within_the_proven_rounding(name, dtype, circuits):
    model = _model(name, dtype, circuits)
    x = _points(model)
    wanted = reference.run(model.weights, x).astype(float)
    for runtime, run in _runs(model).items():
        for rows in (1, len(x)):
            found = run(x[:rows])
            assert found.dtype == dtype and found.shape == (rows, model.weights.outputs), runtime
            assert np.abs(found - wanted[:rows]).max() <= 2 * model.certificate.rounding, runtime
        assert run(x[:0]).shape == (0, model.weights.outputs), runtime


@pytest.mark.parametrize("name", ["lookup", "lookup in two variables", "partition", "circuit"])
def test_outside_the_box_every_back_end_still_computes_the_weights(name, circuits):
    """Scores that are not shifted would overflow there; nothing is certified, but the function is the same.

    Only what leaks through the gates, which are weak so far outside, is left to the blocks.
    """
    model = _model(name, "float64", circuits)
    near = np.random.default_rng(1).uniform(-3, 3, size=(400, len(model.weights.inputs)))
    shifted = read_tables(model.weights)
    np.testing.assert_allclose(run_numpy(shifted, near), reference.run(model.weights, near), rtol=1e-9, atol=1e-9)
    far = 1000 * near
    wanted = run_numpy(shifted, far)
    scale = 1 + np.abs(wanted).max()
    for runtime, run in _runs(model).items():
        np.testing.assert_allclose(run(far), wanted, rtol=0, atol=1e-9 * scale, err_msg=runtime)


def test_scores_are_shifted_only_where_they_must_be(circuits):
    model = circuits("product")
    known = [s for s in model.program.steps if isinstance(s, Tables)]
    unknown = [s for s in read_tables(model.weights).steps if isinstance(s, Tables)]
    assert not any(s.shifted for s in known) and all(s.shifted for s in unknown)
    x = rows_of(model, 50)
    np.testing.assert_allclose(
        run_numpy(model.program, x), run_numpy(read_tables(model.weights), x), rtol=0, atol=model.certificate.rounding
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["lookup", "circuit"])
def test_in_the_box_nothing_is_clamped(name, dtype, circuits):
    """NumPy asks once whether the inputs are in the box: its shortcut must change nothing, not even a last bit."""
    model = _model(name, dtype, circuits)
    tables = [s for s in model.program.steps if isinstance(s, Tables)]
    assert any(s.clamps is not None for s in tables)
    x = _points(model, 2000)
    np.testing.assert_array_equal(run_numpy(model.program, x), run_numpy(replace(model.program, box=None), x))


@pytest.mark.parametrize(
    ("formula", "box"), [("sin(1000*abs(x))", "x=-1/250..1/250"), ("sin(20*abs(x))", "x=100..101")]
)
def test_clamped_arguments_leave_the_constant_alone(formula, box):
    """Ends that do not hold 1 are not for the constant, which brings the offsets."""
    model = tf.compile(formula, on=box, eps=1e-3, construction="circuit")
    ends = np.concatenate([s.clamps[:, 1:] for s in model.program.steps if isinstance(s, Tables)], axis=1)
    assert not ((ends[0] <= 1) & (ends[1] >= 1)).any()
    x = _points(model)
    wanted = reference.run(model.weights, x)
    for runtime, run in _runs(model).items():
        assert np.abs(run(x) - wanted).max() <= 2 * model.certificate.rounding, runtime


def test_anchors_take_no_exponential():
    model = tf.compile("tanh(50*x)", on="x=-1..1", eps=1e-3, construction="lookup")
    (table,) = (s for s in model.program.steps if isinstance(s, Tables))
    assert table.tokens == model.program.tokens == len(table.slopes) + 1 and not table.shifted


def test_a_table_of_one_token_is_a_constant():
    model = tf.compile("sin(x)/100 + y/3", on="x=0..1, y=0..1", eps=0.1, construction="lookup", dtype="float32")
    assert model.tokens == 2 and not any(isinstance(s, Tables) for s in model.program.steps)
    x = _points(model)
    wanted = reference.run(model.weights, x)
    for runtime, run in _runs(model).items():
        assert np.abs(run(x) - wanted).max() <= 2 * model.certificate.rounding, runtime


def test_a_table_is_the_same_beyond_its_reach():
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(200):
        slopes, offsets, values = rng.normal(size=(3, 4)) * [[20], [5], [30]]
        slopes[1] = offsets[1] = 0
        for dtype, digits in (("float64", 1e-14), ("float32", 1e-6)):
            reach = bounds.reach(slopes, offsets, values, (-0.1, 0.2), (-np.inf, np.inf), dtype)
            if reach is None:
                continue
            found += 1
            low, high = reach
            assert low < -0.1 and high > 0.2
            for end in filter(np.isfinite, reach):
                u = end * np.array([1, 1.001, 3, 1000])
                assert np.exp(slopes * end + offsets).max() * np.abs(values).max() < np.finfo(dtype).max
                at = reference.softmax(np.outer(u, slopes) + offsets) @ values
                assert np.ptp(at) <= digits * np.abs(values).max()
    assert found > 100


def test_a_table_without_anchor_or_whose_tokens_lead_too_little_is_shifted():
    slopes, offsets, values = np.array([[1.0], [0.0]]), np.zeros((2, 1)), np.array([[1.0, 2.0]])
    assert bounds.anchor(slopes, offsets) == 1 and bounds.anchor(slopes + 1, offsets) is None
    assert bounds.anchor(slopes[1:], offsets[1:]) is None  # nothing would be left
    line = slopes[:, 0], offsets[:, 0], values
    assert bounds.reach(*line, (0.0, 10.0), (0.0, 20.0), "float64") == (-np.inf, np.inf)
    for dtype, far in (("float64", 1000.0), ("float32", 100.0)):  # arguments of the box that are clamped
        low, high = bounds.reach(*line, (0.0, far), (0.0, 2 * far), dtype)
        assert low == -np.inf and 0.9 * far > high > 0.6 * far
    others = np.array([[0.0, 2.0]]), np.array([[1.0, 2.0], [1e-300, 1.0]])  # what is cut off is seen in these
    assert all(bounds.reach(*line[:2], v, (0.0, 1000.0), (0.0, 2000.0), "float64") is None for v in others)
    near = np.array([1.0, 0.0, 0.97]), np.zeros(3), np.array([[1.0, 2.0, 3.0]])  # a lead of 21 at the end
    assert bounds.reach(*near, (0.0, 1000.0), (0.0, 2000.0), "float64") is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("last", [1.0, 1e-6])
def test_arguments_are_clamped_in_the_box_where_one_token_is_all_that_counts(dtype, last):
    """Beyond the end the table is the leading token's value, to a thousandth of a rounding of it."""
    slopes, offsets = np.array([0.0, 3.0, 1.0]), np.array([0.0, -4.0, 1.0])
    values = np.array([[-1.0, last, 1.0]])
    end = bounds.reach(slopes, offsets, values, (-5.0, 1e5), (-np.inf, np.inf), dtype)[1]
    with flint.ctx.workprec(300):
        at = [_exact_table(slopes, offsets, values[0], u) for u in (end, 1.5 * end, 1e5)]
        most = bounds.SPARE * np.finfo(dtype).eps / 2 * last
        assert 20 < end < 1000 and all(abs(t - at[0]) < most for t in at)


#: Scores of a third token that are nothing like what they are in exact arithmetic where the second one's overflow; and an
#: argument whose rounding is a quarter of itself, because the values behind it cancel.
BEYOND = {
    "float32": ([(0, 0, 90), (1, 0, 100)], [(0, 0, 1), (1, 0, 1), (-1388921472, 116832296960, 3.065340280532837)], -3),
    "float64": (
        [(0, 0, 750), (1, 0, 800)],
        [(0, 0, 1), (1, 0, 1), (-1.9127555772777219e18, 1.347423361649961e21, 3.4398107176008175)],
        -3,
    ),
    "cancelling": ([(0, 0, 2**23), (2**-24, -1.5 * 2**-23, -(2**23))], [(0, 0, 1), (80, 0, 1)], -1),
}


@pytest.mark.parametrize("case", BEYOND)
def test_computed_scores_decide_what_is_clamped(case):
    *tables, low = BEYOND[case]
    dtype = "float64" if case == "float64" else "float32"
    layers = [Layer([(0, {"x.x": 1}, "a")]), Layer([(1, {"a": 1}, "b")])]
    net = Net(["x"], ["a", "b"], tables, layers, [{(0, "b"): 1}], [0], dtype=dtype, gate=-(2.0**80))
    program = read_tables(net.weights(), ((low, -low),))
    x = np.linspace(low, -low, 501)[:, None].astype(dtype)
    module = torch_backend.ProgramModule(program).requires_grad_(False)
    executors = run_numpy(program, x), *(run(torch.from_numpy(x)).numpy() for run in (module, module.written))
    for found in (*executors, onnx_executor(program_bytes(program, {}))(x)):
        np.testing.assert_array_equal(found, 1)


def _exact_table(slopes, offsets, values, u):
    scores = [flint.arb(a) * u + b for a, b in zip(slopes, offsets, strict=True)]
    powers = [(s - scores[1]).exp() for s in scores]
    return sum((p * v for p, v in zip(powers, values, strict=True)), flint.arb(0)) / sum(powers, flint.arb(0))


def test_a_step_beyond_the_range_of_exponentials_is_neither_shifted_nor_wrong():
    """At 100 scores of float32 exp overflows; the box reaches further, and every back-end clamps there."""
    model = tf.compile("tanh(50*x)", on="x=-5..5", eps=1e-3, dtype="float32", construction="lookup")
    (step,) = [s for s in model.program.steps if isinstance(s, Tables)]
    assert not step.shifted and step.clamped_inside
    assert parity.within(parity.measure(model, points=4000, alone=20, tie=10))


def test_a_tensor_of_numbers_is_evaluated_by_numpy_and_nothing_else_is():
    model = tf.compile("sin(x)*y", on="x=-1..1, y=-1..1", eps=1e-4)
    x = torch.rand(7, 2, dtype=torch.float64)
    wanted = torch.from_numpy(model(x.numpy()))
    assert only_numbers(x) and torch.equal(model(x), wanted)
    assert not only_numbers(x.clone().requires_grad_())
    rows, near = torch.func.vmap(lambda row: model(row[None])[0])(x), 2 * model.certificate.rounding
    assert torch.allclose(rows, wanted, rtol=0, atol=near)
    slope = torch.func.jvp(model, (x,), (torch.ones_like(x),))[1]
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(model(forward_ad.make_dual(x, torch.ones_like(x)))).tangent
    true = torch.cos(x[:, 0]) * x[:, 1] + torch.sin(x[:, 0])
    assert (slope - true).abs().max() < 0.01 and torch.allclose(slope, dual)
    graph = make_fx(model)(x)  # a recorded calculation holds for other points
    assert torch.allclose(graph(x / 2), model(x / 2), rtol=0, atol=near)


def test_a_table_lies_where_it_is_said_to_lie():
    rng = np.random.default_rng(0)
    for _ in range(20):
        slopes, offsets, values = rng.normal(size=(3, 5)) * 30
        where = tuple(sorted(rng.normal(size=2)))
        low, high = bounds.table_range(slopes, offsets, values, where, "float64")
        u = np.linspace(*where, 20_011)
        scores = np.outer(u, slopes) + offsets
        found = reference.softmax(scores) @ values
        assert low <= found.min() and found.max() <= high


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e305])
def test_boxes_next_to_underflow_and_overflow(size):
    """Slopes go with 1/size; the ranges of their tables overflowed."""
    table = [(0.0, 0.0, 0.0), (1 / size, 0.0, 1e3), (3 / size, -2.0, 2e3)]
    net = Net(["x"], ["w"], [table], [Layer([(0, {"x.x": 1}, "w")])], [{(0, "w"): 1}])
    x = np.linspace(-size, size, 9)[:, None]
    scores = x / size * [0, 1, 3] + [0, 0, -2]
    wanted = reference.softmax(scores) @ [[0.0], [1e3], [2e3]]
    assert np.allclose(run_numpy(read_tables(net.weights(), ((-size, size),)), x), wanted, rtol=1e-12)


def test_values_next_to_overflow_are_still_a_program():
    """Of a folder that nobody has verified: it is refused, but may be run."""
    weights, _ = equal_tokens(1023, "float64", tokens=2)
    memory = weights.memory.dense()
    memory[memory > 1e300] *= 1.999
    program = read_tables(replace(weights, memory=with_values(weights.memory, memory)), ((-1.0, 1.0),))
    assert all(step.shifted for step in program.steps if isinstance(step, Tables))


def test_what_heads_share_is_computed_once():
    """Two outputs that read one table at one argument: one softmax, one exponential a token."""
    one = tf.compile("sin(3*x)", on="x=-1..1", eps=1e-3, construction="lookup")
    two = tf.compile(["sin(3*x)", "2*sin(3*x)"], on="x=-1..1", eps=1e-3, construction="lookup")
    assert two.program.tokens <= 2 * one.program.tokens
    repeated = _model(SEQUENCE, "float64", None)
    assert repeated.program.positions == 3 and repeated.program.inputs == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fine_partition_looks_at_few_tokens(dtype):
    model = tf.compile("x*sin(y)", on="x=0..1, y=0..2", eps=0.06, construction="partition", dtype=dtype)
    (grid,) = (s for s in model.program.steps if isinstance(s, GridStep))
    assert all(w is not None and 2 * w + 1 < len(a) for w, a in zip(grid.windows, grid.slopes, strict=True))
    low, high = np.array(model.box.floats()).T
    edges = [np.concatenate([-np.diff(b) / np.diff(a), [low[k], high[k], -1, 4]]) for k, (a, b) in
             enumerate(zip(grid.slopes, grid.offsets, strict=True))]  # fmt: skip
    x = np.random.default_rng(0).uniform(low, high, size=(400, 2))
    x[:200, 0], x[200:, 1] = np.resize(edges[0], 200), np.resize(edges[1], 200)  # where two tokens weigh the same
    x = x.astype(dtype)
    wanted = reference.run(model.weights, x).astype(float)
    for runtime, run in _runs(model).items():
        assert np.abs(run(x) - wanted).max() <= 2 * model.certificate.rounding, runtime


def test_chunks_bound_the_memory_of_a_tensor_and_change_nothing(circuits, monkeypatch):
    model = circuits("quotient")
    x = torch.from_numpy(rows_of(model, 500)).requires_grad_()
    whole = model(x)
    (wanted,) = torch.autograd.grad(whole.sum(), x)
    sizes = []
    evaluate = torch_backend.ProgramModule.evaluate
    monkeypatch.setattr(torch_backend, "CPU_FLOATS", 1)
    monkeypatch.setattr(
        torch_backend.ProgramModule, "evaluate", lambda self, rows: (sizes.append(len(rows)), evaluate(self, rows))[1]
    )
    parts = model(x)
    assert max(sizes) == 64 and torch.allclose(parts, whole, rtol=0, atol=1e-12)
    (found,) = torch.autograd.grad(parts.sum(), x)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["polynomial", "lookup in two variables", "partition", "circuit"])
def test_gradients_are_those_of_the_blocks(name, circuits):
    model = exported(name, "float64", circuits)
    x = torch.from_numpy(rows_of(model, 20))
    gradients = []
    for module in (model.to_torch(), model.to_torch(blocks=True)):
        point = x.clone().requires_grad_()
        gradients.append(torch.autograd.grad(module(point).sum(), point)[0])
    assert torch.allclose(*gradients, rtol=1e-6, atol=1e-6 * float(gradients[1].abs().max()))


@pytest.mark.parametrize("name", ["lookup", "partition", "circuit", "polynomial"])
def test_a_module_may_be_cast_to_a_narrower_format(name, circuits):
    """Scores that need no shift in float64 would overflow in float32."""
    model = exported(name, "float64", circuits)
    x = rows_of(model, 50)
    with torch.no_grad():
        found = model.to_torch().float()(torch.from_numpy(x).float()).numpy()
    assert found.dtype == np.float32
    assert np.abs(found - reference.run(model.weights, x)).max() < 0.1


def test_a_form_that_reads_a_row_twice_keeps_both_numbers():
    """Two slots may hold the same; their factors are not added up, as that would round."""
    twice = np.array([1, 2, 2, 2]), np.array([[1.0, 0.1, 0.2, 0.3]])
    program = Program(
        2, 1, (AffineStep(*twice), AffineStep(np.array([0, 3]), np.array([[1.0, 1.0]]))), np.array([4]), "float64"
    )
    x = np.random.default_rng(0).normal(size=(40, 2))
    wanted = 1 + x[:, :1] + 0.6 * x[:, 1:]
    found = [
        run_numpy(program, x),
        torch_backend.ProgramModule(program)(torch.from_numpy(x)).detach().numpy(),
        onnx_executor(program_bytes(program, {}))(x),
    ]
    for values in found:
        np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-15)


def test_one_layer_models_without_tables_are_programs_too():
    model = model_named("no table")
    assert model.program.tokens == 0
    x = rows_of(model, 100)
    assert np.abs(run_numpy(model.program, x) - reference.run(model.weights, x)).max() <= model.certificate.rounding


def test_scalars_have_the_gradients_of_the_arrays(circuits):
    model = circuits("kinks")
    module, x = model.to_torch(), torch.from_numpy(rows_of(model, 60)).requires_grad_()
    leaves = [x, module.numbers]
    for found, wanted in zip(
        torch.autograd.grad(module.written(x).sum(), leaves), torch.autograd.grad(module(x).sum(), leaves), strict=True
    ):
        assert (found - wanted).abs().max() <= 1e-11 * wanted.abs().max()
    assert not module.kept.all()  # zeros that stay zero: no scalar expression holds them
    assert not torch.autograd.grad(module(x).sum(), module.numbers)[0][module.kept == 0].any()


def test_what_is_too_long_to_write_out_runs_as_arrays(circuits, monkeypatch):
    model = circuits("product")
    x = torch.from_numpy(rows_of(model, 60))
    monkeypatch.setattr(scalar_code, "MOST_NUMBERS", 3)
    module = model.to_torch().requires_grad_(False)
    assert ".run(" in module.text("torch", x.dtype) and not module.text("triton", x.dtype)
    assert torch.equal(module.written(x), module(x))


def test_without_triton_one_note_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton.runtime", None)
    torch_backend.kernels_work.cache_clear()
    with pytest.warns(UserWarning, match="which is slower: no Triton"):
        assert not torch_backend.kernels_work()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not torch_backend.kernels_work()
    torch_backend.kernels_work.cache_clear()
