"""What a program becomes in ONNX: how many nodes of which kind, which is what a batch of one waits for."""

from collections import Counter

import numpy as np
import onnx
import pytest

import transformula as tf
from support.export_models import exported
from transformula.export.onnx_files import onnx_bytes
from transformula.runtime.onnx_graph import onnx_executor
from transformula.runtime.program.onnx_backend import program_bytes
from transformula.runtime.program.program_steps import AffineStep, Program, Tables

SUMS = ["Gemm", "Gemm", "Div"]


def _operators(data):
    return [node.op_type for node in onnx.load_from_string(data).graph.node]


@pytest.mark.parametrize(
    ("formula", "box", "wanted"),
    [
        # no Reshape copies: the first and those before the last node only rename the axes
        ("tanh(50*x)", "x=-1..1", ["Reshape", "Clip", "Mul", "Exp", "Add", "Add", "Reshape", "Reshape", "Div"]),
        # inputs are turned by the products that read them, and tables are added to one of these
        ("sin(x1) + sin(x2)", "x1..x2=-3..3", ["Clip", "Gemm", "Exp", *SUMS, "Gemm", "Gemm", "Reshape"]),
    ],
)
def test_a_graph_has_these_nodes(formula, box, wanted):
    model = tf.compile(formula, on=box, eps=1e-6)
    data = onnx_bytes(model.packed, model.certificate, proven=True)
    assert sorted(_operators(data)) == sorted(wanted)
    x = np.random.default_rng(0).uniform(*np.array(model.box.floats()).T, size=(50, len(model.weights.inputs)))
    assert np.abs(onnx_executor(data)(x)[:, 0] - model(x)).max() <= 2 * model.certificate.rounding


def test_tables_of_a_layer_are_evaluated_together_though_some_of_them_vanish():
    """The root's exponentials sink below the smallest number, those of the sine do not."""
    model = tf.compile("sqrt(x) + sin(y)", on="x=0..1, y=-1..1", eps=1e-4, construction="lookup")
    (step,) = [s for s in model.program.steps if isinstance(s, Tables)]
    assert step.sinks and len(step.values) == 2
    assert Counter(_operators(onnx_bytes(model.packed, model.certificate, proven=True)))["Exp"] == 1


def test_inputs_that_many_products_read_are_turned_once(circuits):
    few = Counter(_operators(_file(exported("circuit", "float64", circuits))))
    assert few["Transpose"] == few["Softmax"] == few["Concat"] == 0
    x = np.array([[1.0, 2.0], [-3.0, 1.0]])
    for count, turned in ((3, 0), (4, 1)):
        read = [AffineStep(np.array([1, 2]), np.full((1, 2), k + 1.0), relu=True) for k in range(count)]
        total = AffineStep(np.arange(3, 3 + count), np.ones((1, count)))
        data = program_bytes(Program(2, 1, (*read, total), np.array([3 + count]), "float64"), {})
        assert _operators(data).count("Transpose") == turned
        assert onnx_executor(data)(x)[:, 0] == pytest.approx(np.maximum(x.sum(axis=1), 0) * sum(range(count + 1)))


def _file(model):
    return onnx_bytes(model.packed, model.certificate, proven=True)


@pytest.mark.parametrize("factors", [(1.0, 1.0), (2.0, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_a_row_that_is_added_as_it_is_needs_no_product(factors, constant):
    """y = a r + b x + c, and y = r + r: what has the factor one is added to the other product."""
    bent = AffineStep(np.array([1]), np.array([[3.0]]), relu=True)
    last = AffineStep(np.array([0, 1, 2]), np.array([[constant, *factors]]))
    twice = AffineStep(np.array([2, 2]), np.array([[1.0, 1.0]]))
    x = np.array([[1.0], [-2.0], [0.5]])
    r = np.maximum(3 * x, 0)
    for form, wanted in ((last, factors[0] * x + factors[1] * r + constant), (twice, 2 * r)):
        program = Program(1, 1, (bent, form), np.array([3]), "float64")
        assert onnx_executor(program_bytes(program, {}))(x) == pytest.approx(wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("widths", [(1,) * 9, (1, 2, 1, 3, 1, 1, 2, 1), (2, 2, 2, 2, 2)])
def test_forms_that_read_one_another(widths, dtype):
    """Integers are added up exactly in any order: each form reads the constant, the inputs and all before it."""
    rng = np.random.default_rng(0)
    steps, rows = [], 3
    for k, width in enumerate(widths):
        read = np.concatenate([[0], rng.permutation(np.arange(1, rows))])
        steps.append(AffineStep(read, rng.integers(-2, 3, (width, rows)).astype(dtype), relu=k < len(widths) - 1))
        rows += width
    program = Program(2, 1, tuple(steps), np.arange(rows - widths[-1], rows), dtype)
    x = rng.integers(-3, 4, (40, 2)).astype(dtype)
    held = [np.ones(len(x)), *x.T.astype(float)]
    for step in steps:
        made = step.matrix.astype(float) @ np.array(held)[step.reads]
        held.extend(np.maximum(made, 0) if step.relu else made)
    assert np.array_equal(onnx_executor(program_bytes(program, {}))(x).astype(float), np.array(held[-widths[-1] :]).T)


def test_the_folds_of_a_length_join_no_array_twice():
    """Each joined all that came before it: copies that took more time than the products."""
    model = tf.compile("sqrt(x**2 + y**2)", on="x=-1..1, y=-1..1", eps=1e-9)
    graph = onnx.load_from_string(_file(model)).graph
    joined = [name for node in graph.node if node.op_type == "Concat" for name in node.input]
    assert model.layers > 12 and len(joined) == len({*joined})
    x = np.random.default_rng(0).uniform(-1, 1, (1_000, 2))
    assert np.abs(onnx_executor(_file(model))(x)[:, 0] - model(x)).max() <= 2 * model.certificate.rounding


@pytest.mark.parametrize(("factor", "constant"), [(1.00000001, 0.0), (1.0, 1e-60), (1 - 1e-9, -1e-50), (1.0, 1.0)])
def test_no_number_is_taken_for_zero_or_one(factor, constant):
    """In float32 they are 0 and 1, and onnxruntime's default optimiser left out what it took for these."""
    step = AffineStep(np.array([0, 1]), np.array([[constant, factor]]), True)
    x = np.array([[3e-60], [1.0], [2.0]])
    found = onnx_executor(program_bytes(Program(1, 1, (step,), np.array([2]), "float64"), {}))(x)
    assert np.allclose(found, np.maximum(factor * x + constant, 0), rtol=1e-14, atol=0)


@pytest.mark.parametrize("blocks", [False, True])
def test_an_exported_factor_next_to_one_is_kept(blocks):
    model = tf.compile("max(1.00000001*x, 0) + 1e-50", on="x=-1..100")
    x = np.linspace(-1, 100, 102)[:, None]
    found = onnx_executor(onnx_bytes(model.packed, model.certificate, blocks=blocks, proven=True))(x)
    assert np.abs(found[:, 0] - np.maximum(1.00000001 * x[:, 0], 0)).max() <= model.certificate.bound
    assert found[0, 0] == 1e-50
