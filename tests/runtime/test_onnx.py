"""ONNX files in stock onnxruntime: another executor, at default session options."""

import json
import sys

import numpy as np
import pytest

import transformula as tf
from support.export_models import NAMES as MODELS
from support.export_models import exported, rows_of
from support.table import NAMES, hand_made, random_block, table
from transformula.errors import ExportError, SavingError
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.optional import MissingPackageError
from transformula.runtime import onnx_graph
from transformula.runtime.matrices import dense_matrix, leading_tokens
from transformula.runtime.onnx_blocks import graph_bytes
from transformula.runtime.onnx_graph import onnx_executor
from transformula.runtime.reference import run

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
CASES = {case.name: case for case in table()}
DTYPES = ("float64", "float32")


def _close(found, wanted, tolerance=1e-12):
    scale = 1 + np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", NAMES)
def test_onnx_in_float64_is_the_reference(name):
    case = CASES[name]
    _close(onnx_executor(graph_bytes(case.weights, {}))(case.x), run(case.weights, case.x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_every_construction_is_within_its_proven_rounding(name, dtype, circuits, tmp_path):
    model = exported(name, dtype, circuits)
    path = model.to_onnx(tmp_path / "model.onnx")
    execute = onnx_executor(path.read_bytes())
    x = rows_of(model, 10_000)
    wanted = run(model.weights, x)
    for rows in (1, 10_000):
        shaped = x[:rows].reshape(rows, *(model.sequence or (x.shape[1],)))
        found = execute(shaped)
        assert found.dtype == dtype
        assert found.shape == (rows, *(model.sequence or (model.weights.outputs,)))
        difference = np.abs(found.reshape(rows, -1).astype(float) - wanted[:rows]).max()
        assert difference <= model.certificate.rounding
    np.testing.assert_allclose(found.squeeze(), model(x).squeeze(), rtol=0, atol=2 * model.certificate.rounding)


@pytest.mark.parametrize("level", ["DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL"])
def test_no_optimisation_level_spoils_float64(level):
    case = CASES["softmax heads with feed-forward"]  # its scale is not a power of two
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, f"ORT_{level}")
    _close(onnx_executor(graph_bytes(case.weights, {}), options)(case.x), run(case.weights, case.x))


def test_a_scalar_scale_would_be_spoiled():
    """Why the scale is a vector. If this fails, onnxruntime has learned better: change docs/export.md."""
    case = CASES["softmax heads with feed-forward"]
    file = onnx.ModelProto.FromString(graph_bytes(case.weights, {}))
    for tensor in file.graph.initializer:
        if tensor.name.endswith(".scale"):
            scalar = onnx.numpy_helper.to_array(tensor).max().reshape(())
            tensor.CopyFrom(onnx.numpy_helper.from_array(scalar, tensor.name))
    difference = onnx_executor(file.SerializeToString())(case.x) - run(case.weights, case.x)
    assert 1e-10 < np.abs(difference).max() < 1e-5


def _sparse(rng, *shape, density=0.4) -> Matrix:
    return dense_matrix(rng.normal(size=shape) * (rng.random(shape) < density))


def _random_weights(seed: int) -> Weights:
    """Sparse everything, memory tokens, several blocks of either kind: what no construction makes."""
    rng = np.random.default_rng(seed)
    width, tokens, inputs = int(rng.integers(2, 7)), int(rng.integers(1, 7)), int(rng.integers(1, 4))
    data = int(rng.integers(0, tokens + 1))
    reach = np.zeros((tokens, width, inputs))
    reach[:data] = rng.normal(size=(data, width, inputs)) * (rng.random((data, width, inputs)) < 0.5)

    def head() -> Head:
        depth, rows = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        query, key = _sparse(rng, depth, width), _sparse(rng, depth, width)
        if rng.random() < 0.5:
            return Head(query, key, _sparse(rng, width, width, density=0.2))
        return Head(query, key, _sparse(rng, rows, width), _sparse(rng, width, rows))

    def block() -> Block:
        units = int(rng.integers(0, 4))
        shapes = ((units, width), (units, 1), (width, units), (width, 1))
        layer = FeedForward(*(_sparse(rng, *s) for s in shapes)) if units else None
        kind = "softmax" if rng.random() < 0.6 else "hardmax"
        heads = tuple(head() for _ in range(int(rng.integers(1, 3))))
        return Block(Attention(heads, kind, float(rng.choice([1, 0.5, 2]))), layer)

    read = np.zeros((2, tokens, width))
    read[:, : int(rng.integers(1, tokens + 1))] = rng.normal(size=width)
    return Weights(
        inputs=tuple(f"x{k}" for k in range(inputs)),
        slots=tuple(f"s{k}" for k in range(width)),
        tokens=tokens,
        embedding=dense_matrix(reach.reshape(-1, inputs)),
        memory=_sparse(rng, tokens, width, density=0.8),
        blocks=tuple(block() for _ in range(int(rng.integers(0, 4)))),
        readout=dense_matrix(read.reshape(2, -1)),
        bias=_sparse(rng, 2, 1),
    )


@pytest.mark.parametrize("seed", range(40))
def test_any_weights_can_be_written(seed):
    weights = _random_weights(seed)
    x = np.random.default_rng(seed).normal(size=(9, len(weights.inputs)))
    _close(onnx_executor(graph_bytes(weights, {}))(x), run(weights, x))


def test_random_weights_keep_tokens_constant_sometimes():
    kept = [w.tokens - leading_tokens(w) for w in map(_random_weights, range(40))]
    assert any(kept) and not all(kept)


def test_constant_tokens_are_kept_once(circuits):
    model = circuits("kinks")
    assert model.tokens > 4 and leading_tokens(model.weights) == 1
    late = random_block(np.random.default_rng(0), 6, 1, 3, 4)
    assert leading_tokens(hand_made("two dense blocks", [late, late]).weights) == 5


def test_of_equal_scores_the_first_wins():
    eye = dense_matrix(np.eye(1))
    one_token_each = dense_matrix(np.array([[1.0, 2.0, 4.0]]).T)
    block = Block(Attention((Head(Matrix((1, 1), *(eye.rows, eye.cols), eye.values * 0), eye, eye),), "hardmax"))
    weights = Weights(
        ("x",), ("s",), 3, dense_matrix(np.ones((3, 1))), one_token_each, (block,),
        dense_matrix(np.eye(3)), dense_matrix(np.zeros((3, 1))),
    )  # fmt: skip
    x = np.array([[0.5], [-3.0]])
    assert np.array_equal(onnx_executor(graph_bytes(weights, {}))(x), run(weights, x))


def test_ties_between_scores_that_are_not_zero():
    one, two = dense_matrix(np.array([[1.0, 0.0]])), dense_matrix(np.array([[0.0, 1.0]]))
    write = dense_matrix(np.array([[0.0], [1.0]]))
    memory = dense_matrix(np.array([[3.0, 5.0], [3.0, 7.0], [3.0, 11.0]]))
    weights = Weights(
        ("x",), ("score", "value"), 3, dense_matrix(np.zeros((6, 1))), memory,
        (Block(Attention((Head(one, one, two, write),), "hardmax")),),
        dense_matrix(np.eye(6)[[1, 3, 5]]), dense_matrix(np.zeros((3, 1))),
    )  # fmt: skip
    x = np.zeros((2, 1))
    assert run(weights, x)[0].tolist() == [5 + 45, 7 + 45, 11 + 45]
    assert np.array_equal(onnx_executor(graph_bytes(weights, {}))(x), run(weights, x))


def test_the_same_model_gives_the_same_bytes(circuits, tmp_path):
    model = circuits("kinks")
    first = model.to_onnx(tmp_path / "a.onnx").read_bytes()
    model.save(tmp_path / "m")
    assert first == tf.load(tmp_path / "m").to_onnx(tmp_path / "b.onnx").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "b.onnx", "m"]


def test_the_file_says_what_it_is(circuits, tmp_path):
    model = circuits("two outputs")
    file = onnx.load(model.to_onnx(tmp_path / "m.onnx"))
    onnx.checker.check_model(file, full_check=True)
    assert [(o.domain, o.version) for o in file.opset_import] == [("", 17)]
    said = {p.key: p.value for p in file.metadata_props}
    claim = model.certificate
    assert json.loads(said["formula"]) == list(model.formula.texts) and said["box"] == str(model.box)
    for name in ("approximation", "rounding", "bound", "eps"):
        assert float(said[name]) == getattr(claim, name)
    assert said["transformula_version"] == tf.__version__ == file.producer_version
    assert said["weights_sha256"] == claim.weights_sha256 and said["model_sha256"] == claim.model_sha256
    assert said["evidence_sha256"] == claim.evidence_sha256
    assert said["construction"] == "circuit" and said["dtype"] == "float64"
    (x,), (y,) = file.graph.input, file.graph.output
    assert (x.name, y.name) == ("x", "y")
    assert [d.dim_param or d.dim_value for d in y.type.tensor_type.shape.dim] == ["batch", 2]


def test_an_empty_batch_is_a_batch():
    case = CASES["square sum float64"]
    assert onnx_executor(graph_bytes(case.weights, {}))(case.x[:0]).shape == (0, 1)


def test_refusals_are_sentences(monkeypatch, tmp_path):
    model = tf.compile("x**2", on="x=0..1")
    with pytest.raises(ExportError, match=r"named like model\.onnx"):
        model.to_onnx(tmp_path / "certificate.json")
    with pytest.raises(SavingError, match="cannot write"):
        model.to_onnx(tmp_path / "no" / "folder.onnx")
    block = random_block(np.random.default_rng(0), 6, 1, 3, 0, "hardmax", scale=0.3)
    with pytest.raises(ExportError, match="single token"):
        graph_bytes(hand_made("one", [block], tokens=1).weights, {})
    monkeypatch.setattr(onnx_graph, "MAX_BYTES", 10)
    with pytest.raises(ExportError, match="at most 2 GB"):
        model.to_onnx(tmp_path / "large.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"onnx, which is not installed: pip install 'transformula\[onnx\]'"):
        model.to_onnx(tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []
