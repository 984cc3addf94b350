"""An ONNX file is data nobody trusts: whatever is changed in it, the checker says no and says where."""

import hashlib
import re

import numpy as np
import pytest

import transformula as tf
from transformula.errors import ModelFileError
from transformula.export.onnx_files import onnx_bytes, onnx_differences

onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tf.compile(["sin(x) + abs(y)", "x*y"], on="x=0..3, y=-1..1", eps=1e-3, construction="lookup")
    place = model.save(tmp_path_factory.mktemp("exported") / "m")
    model.to_onnx(place / "model.onnx")
    return place


def test_an_honest_file_passes_however_it_is_written_again(folder, tmp_path):
    assert onnx_differences(folder, folder / "model.onnx") == ()
    onnx.save(onnx.load(folder / "model.onnx"), tmp_path / "again.onnx")
    assert onnx_differences(folder, tmp_path / "again.onnx") == ()


def test_the_certificate_in_the_metadata_is_the_one_on_disk(folder):
    said = {p.key: p.value for p in onnx.load(folder / "model.onnx").metadata_props}
    for file, key in (
        ("certificate.json", "certificate"),
        ("model.safetensors", "weights"),
        ("model.json", "model"),
        ("evidence.json", "evidence"),
    ):
        assert said[f"{key}_sha256"] == hashlib.sha256((folder / file).read_bytes()).hexdigest()


def test_a_file_of_another_version_is_compared_with_what_that_version_says(folder, tmp_path):
    model = tf.load(folder)
    (tmp_path / "old.onnx").write_bytes(onnx_bytes(model.packed, model.certificate, "0.0.9", proven=True))
    assert onnx_differences(folder, tmp_path / "old.onnx") == ()


def test_a_file_of_the_blocks_is_recognised_too(folder, tmp_path):
    path = tf.load(folder).to_onnx(tmp_path / "blocks.onnx", blocks=True)
    assert onnx_differences(folder, path) == ()
    assert path.read_bytes() != (folder / "model.onnx").read_bytes()
    model = onnx.load(path)
    _say("graph", "program")(model)
    onnx.save(model, path)
    assert onnx_differences(folder, path)


def _initializer(m, end):
    return next(t for t in m.graph.initializer if t.name.endswith(end))


def _nudge(m):
    tensor = _initializer(m, ".scores.matrix")
    array = onnx.numpy_helper.to_array(tensor).copy()
    array.flat[np.flatnonzero(array)[0]] *= 1 + 2**-52
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _external(m):
    tensor = _initializer(m, ".scores.matrix")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "/etc/hostname"), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)


def _swap_inputs(m):
    node = next(n for n in m.graph.node if n.op_type == "Div")
    node.input[0], node.input[1] = node.input[1], node.input[0]


def _shadow(m):
    """A second tensor with the name of a first: which of them a runtime takes is its own affair."""
    twin = m.graph.initializer.add()
    first = _initializer(m, ".matrix")
    twin.CopyFrom(onnx.numpy_helper.from_array(7 * onnx.numpy_helper.to_array(first), first.name))


def _say(key, value):
    return lambda m: setattr(next(p for p in m.metadata_props if p.key == key), "value", value)


def _unknown_field(m):
    m.MergeFromString(b"\xfa\x7f\x03abc")  # field 2047: no field of any ONNX


MUTATIONS = {
    "a weight by one ulp": (_nudge, "initializer .*scores.matrix is not that"),
    "external data": (_external, "another file, which is not read"),
    "an operator": (lambda m: setattr(m.graph.node[-1], "op_type", "Sub"), "node y .* is changed"),
    "inputs of a node": (_swap_inputs, r"\(Div\) is changed"),
    "an attribute": (
        lambda m: setattr(next(n for n in m.graph.node if n.op_type == "Gemm").attribute.add(), "name", "transB"),
        r"\(Gemm\) is changed",
    ),
    "a domain": (lambda m: setattr(m.graph.node[3], "domain", "com.evil"), "is changed"),
    "one node less": (lambda m: m.graph.node.pop(), "nodes, not"),
    "one node more": (
        lambda m: m.graph.node.append(onnx.helper.make_node("Identity", ["y"], ["z"])), "nodes, not",
    ),
    "an initializer less": (lambda m: m.graph.initializer.pop(0), "is missing"),
    "an initializer more": (
        lambda m: m.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2), "more")),
        "'more' is not part of this model",
    ),
    "an initializer twice": (_shadow, "two initializers have one name"),
    "the order": (lambda m: m.graph.initializer.reverse(), "another order"),
    "the claim": (_say("eps", "1e-09"), "metadata eps is not that"),
    "the formula": (_say("formula", "[]"), "metadata formula is not that"),
    "no claim": (lambda m: m.ClearField("metadata_props"), "metadata formula is missing"),
    "metadata more": (lambda m: m.metadata_props.add(key="note", value="trust me"), "'note' is not part of this model"),
    "metadata twice": (lambda m: m.metadata_props.add(key="eps", value="0.001"), "given twice"),
    "the version": (_say("transformula_version", "1\nby nobody"), "transformula_version is not that"),
    "the output's shape": (
        lambda m: setattr(m.graph.output[0].type.tensor_type.shape.dim[1], "dim_value", 3), "output is not y",
    ),
    "the input's type": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 1), "input is not x",
    ),
    "an input more": (
        lambda m: m.graph.input.append(onnx.helper.make_tensor_value_info("memory", 11, [None, None])),
        "input is not x",
    ),
    "the operator set": (lambda m: setattr(m.opset_import[0], "version", 12), "other operator sets"),
    "a local function": (lambda m: m.functions.add(name="MatMul", domain=""), "something else"),
    "a sparse initializer": (lambda m: m.graph.sparse_initializer.add(), "something else"),
    "a description": (lambda m: setattr(m, "doc_string", "exact"), "something else"),
    "the producer": (lambda m: setattr(m, "producer_name", "somebody"), "something else"),
    "a field nobody knows": (_unknown_field, "something else"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_file_is_refused_with_the_place(name, folder, tmp_path):
    change, wanted = MUTATIONS[name]
    model = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes())
    change(model)
    path = tmp_path / "changed.onnx"
    path.write_bytes(model.SerializeToString())
    reasons = onnx_differences(folder, path)
    assert any(re.search(wanted, text) for text in reasons), reasons


def test_no_changed_byte_passes(folder, tmp_path):
    honest = (folder / "model.onnx").read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "changed.onnx"
    for _ in range(150):
        data = bytearray(honest)
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(data))
        try:
            assert onnx_differences(folder, path)
        except ModelFileError as error:
            assert "not an ONNX file" in str(error)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00" * 100, b"PK\x03\x04", b"\x08\x08"])
def test_what_is_no_onnx_file_gets_a_sentence(data, folder, tmp_path):
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(ModelFileError, match="is not an ONNX file"):
        onnx_differences(folder, tmp_path / "m.onnx")


def test_half_a_file_gets_a_sentence_or_reasons(folder, tmp_path):
    honest = (folder / "model.onnx").read_bytes()
    for length in range(1, len(honest), len(honest) // 20):
        (tmp_path / "m.onnx").write_bytes(honest[:length])
        try:
            assert onnx_differences(folder, tmp_path / "m.onnx")
        except ModelFileError:
            continue


def test_a_missing_file_and_a_folder_get_a_sentence(folder, tmp_path):
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(ModelFileError, match="there is no file"):
            onnx_differences(folder, path)
