"""An ONNX file that takes raw rows: what became of the columns, then the Transformer's own graph.

Every column that occurs in the formula is an input of its own: numbers and dates (in days since 1970-01-01) as doubles
with NaN for empty cells, text as strings with "" for empty cells. The claim in the metadata is about the second part,
the graph that `export` writes as model.onnx; the first part looks levels up and fills empty cells, without rounding.
`register_skl2onnx` puts that graph into the files that skl2onnx makes of scikit-learn's pipelines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import brief
from transformula.export.onnx_files import onnx_bytes
from transformula.learn.classifier import PolynomialTransformerClassifier
from transformula.learn.fitted_table import TableModel
from transformula.learn.preparation import DATE, NUMBER, Column
from transformula.learn.raw_cells import BOOLEANS, EMPTY_TEXTS, Cells
from transformula.learn.regressor import PolynomialTransformerRegressor
from transformula.optional import require
from transformula.runtime.onnx_graph import OPSET, import_onnx

_ML_VERSION = 3
_OUTPUT = "y"


def raw_onnx_bytes(fitted: TableModel) -> bytes:
    """The file: columns in, ``y`` out (log odds or scores of classes, with their ``probabilities`` and ``label``)."""
    onnx = import_onnx()
    model = fitted.model
    inner = onnx.ModelProto.FromString(onnx_bytes(model.packed, model.certificate, proven=model.proven))
    opset = next(o.version for o in inner.opset_import if o.domain in ("", "ai.onnx"))
    inputs, nodes, blocks = [], [], []
    constants = {"places": np.array(fitted.places, dtype=np.int64), "axis": np.array([1], dtype=np.int64)}
    for k, column in enumerate(fitted.reads.used):
        text = column.kind not in (NUMBER, DATE)
        kind = onnx.TensorProto.STRING if text else onnx.TensorProto.DOUBLE
        unit = "text" if text else "days since 1970-01-01" if column.kind == DATE else "number"
        inputs.append(onnx.helper.make_tensor_value_info(column.name, kind, ["batch"], unit))
        made, numbers = (_looked_up if text else _filled)(onnx, column, f"column{k}")
        nodes += made
        constants |= numbers
        blocks.append(f"column{k}")
    nodes.append(onnx.helper.make_node("Concat", blocks, ["features"], axis=1))
    nodes.append(onnx.helper.make_node("Gather", ["features", "places"], ["variables"], axis=1))
    kept = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    width = onnx.helper.make_tensor_value_info("variables", onnx.TensorProto.DOUBLE, ["batch", len(fitted.places)])
    graph = onnx.helper.make_graph(nodes, "preparation", inputs, [width], kept)
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("ai.onnx.ml", _ML_VERSION)]
    first = onnx.helper.make_model(graph, opset_imports=imports, ir_version=inner.ir_version)
    if model.weights.dtype == "float32":
        first.graph.node[-1].output[0] = "doubles"
        first.graph.node.append(onnx.helper.make_node("Cast", ["doubles"], ["variables"], to=onnx.TensorProto.FLOAT))
        first.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    whole = _merged(onnx, first, inner)
    if fitted.classes:
        _add_classes(onnx, whole, np.array(fitted.classes, dtype=object))
    whole.graph.name = f"raw rows to {brief(fitted.target)}"
    data: bytes = whole.SerializeToString(deterministic=True)
    return data


def _merged(onnx: Any, first: Any, inner: Any) -> Any:
    """Both graphs in one file, with the metadata of the second."""
    inner = onnx.compose.add_prefix(inner, "model_", rename_inputs=True, rename_outputs=True)
    whole = onnx.compose.merge_models(first, inner, io_map=[("variables", inner.graph.input[0].name)])
    old = whole.graph.output[0].name
    whole.graph.node.append(onnx.helper.make_node("Identity", [old], [_OUTPUT]))
    whole.graph.output[0].name = _OUTPUT
    del whole.metadata_props[:]
    whole.metadata_props.extend(inner.metadata_props)
    return whole


def _add_classes(onnx: Any, whole: Any, classes: NDArray[Any]) -> None:
    """Two more outputs: probabilities (batch, classes), and the label of the largest (batch,)."""
    if len(classes) == 2:
        whole.graph.node.extend(
            [
                onnx.helper.make_node("Neg", [_OUTPUT], ["against"]),
                onnx.helper.make_node("Concat", ["against", _OUTPUT], ["both"], axis=1),
                onnx.helper.make_node("Sigmoid", ["both"], ["probabilities"]),
            ]
        )
    else:
        whole.graph.node.append(onnx.helper.make_node("Softmax", [_OUTPUT], ["probabilities"], axis=1))
    kind = whole.graph.output[0].type.tensor_type.elem_type
    labels = onnx.numpy_helper.from_array(classes, "classes")
    whole.graph.initializer.append(labels)
    whole.graph.node.append(onnx.helper.make_node("ArgMax", ["probabilities"], ["most"], axis=1, keepdims=0))
    whole.graph.node.append(onnx.helper.make_node("Gather", ["classes", "most"], ["label"]))
    shape = onnx.helper.make_tensor_value_info
    whole.graph.output.append(shape("probabilities", kind, ["batch", len(classes)]))
    whole.graph.output.append(shape("label", labels.data_type, ["batch"]))


def _filled(onnx: Any, column: Column, out: str) -> tuple[list[Any], dict[str, Any]]:
    """Nodes for a column of numbers: NaN becomes the column's fill."""
    node = onnx.helper.make_node
    made = [
        node("IsNaN", [column.name], [f"{out}_empty"]),
        node("Where", [f"{out}_empty", f"{out}_fill", column.name], [f"{out}_filled"]),
        node("Unsqueeze", [f"{out}_filled", "axis"], [out]),
    ]
    return made, {f"{out}_fill": np.array(column.fill, dtype=np.float64)}


def _looked_up(onnx: Any, column: Column, out: str) -> tuple[list[Any], dict[str, Any]]:
    """Nodes for a column of text: the place of its level, then that row of the table; the last row is for others."""
    places = {level: k for k, level in enumerate(column.levels)}
    empty = places.get("", places.get(str(column.fill), len(places)))
    also = dict.fromkeys(EMPTY_TEXTS, empty) | {text: places[text] for text in BOOLEANS if text in places}
    for text, place in also.items():
        for form in (text, text.upper(), text.title()):
            places.setdefault(form, place)
    made = [
        onnx.helper.make_node(
            "LabelEncoder",
            [column.name],
            [f"{out}_place"],
            domain="ai.onnx.ml",
            keys_strings=list(places),
            values_int64s=list(places.values()),
            default_int64=len(column.levels),
        ),
        onnx.helper.make_node("Gather", [f"{out}_table", f"{out}_place"], [out], axis=0),
    ]
    return made, {f"{out}_table": np.array([*column.values, column.other], dtype=np.float64)}


def raw_inputs(fitted: TableModel, cells: Cells) -> dict[str, Any]:
    """Raw rows as the file's inputs."""
    found = {}
    for column in fitted.reads.used:
        values = cells[column.name]
        if column.kind in (NUMBER, DATE):
            numbers, empty, _ = column.numbers(values)
            found[column.name] = np.where(empty, np.nan, numbers[:, 0])
        else:
            found[column.name] = np.array([str(text) for text in values], dtype=object)
    return found


def example_rows(fitted: TableModel, rows: int = 64) -> Cells:
    """Raw rows for a comparison of runtimes: levels, unknown texts, empty cells and numbers around the fill values."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    ends = dict(zip(fitted.places, fitted.model.box.floats(), strict=True))
    place = 0
    for column in fitted.reads.used:
        if column.kind in (NUMBER, DATE):
            low, high = ends.get(place, (float(column.fill), float(column.fill)))
            values = rng.uniform(low, high, rows)
            if column.kind == DATE:
                days = np.array(values.astype(int), dtype="datetime64[D]").astype("datetime64[s]").tolist()
                form = column.form
                texts = [day.isoformat() if form == "iso" else day.strftime(form) for day in days]
                found[column.name] = np.array(["", *texts[1:]], dtype=object)
            else:
                found[column.name] = np.where(np.arange(rows) % 9 == 0, np.nan, values)
        else:
            found[column.name] = np.array(rng.choice([*column.levels, "", "an unknown level"], rows), dtype=object)
        place += len(column.features)
    return found


def register_skl2onnx() -> None:
    """Teach skl2onnx the polynomial estimators: its ``to_onnx`` then converts pipelines that end in one.

    The file computes in float64 what `to_transformer` does; classifiers have scikit-learn's outputs.
    """
    require("register_skl2onnx", "onnx", "skl2onnx")
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator as shapes

    options = {"zipmap": [True, False, "columns"], "output_class_labels": [False, True], "nocl": [True, False]}
    for estimator, outputs, allowed in (
        (PolynomialTransformerRegressor, _regressed, None),
        (PolynomialTransformerClassifier, shapes.calculate_linear_classifier_output_shapes, options),
    ):
        update_registered_converter(estimator, f"Transformula{estimator.__name__}", outputs, _convert, options=allowed)


def _regressed(operator: Any) -> None:
    """Shape and type of a regressor's output, for skl2onnx."""
    given = operator.inputs[0].type
    kind = type(operator.outputs[0].type)
    operator.outputs[0].type = kind([given.shape[0], len(operator.raw_operator.target_spread_)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add an estimator's graph to what skl2onnx has of a pipeline."""
    from skl2onnx.common.data_types import guess_proto_type

    onnx, estimator = import_onnx(), operator.raw_operator
    node, stored = onnx.helper.make_node, onnx.numpy_helper.from_array
    model, names = estimator.to_transformer(), estimator._names()
    whole = onnx.ModelProto.FromString(onnx_bytes(model.packed, model.certificate, proven=True))
    graph, results = whole.graph, [_OUTPUT]
    columns = np.array([names.index(name) for name in model.weights.inputs], dtype=np.int64)
    graph.node.insert(0, node("Gather", ["rows", "columns"], [graph.input[0].name], axis=1))
    graph.initializer.append(stored(columns, "columns"))
    if (classes := getattr(estimator, "classes_", None)) is not None:
        _add_classes(onnx, whole, classes.astype(object if classes.dtype.kind in "OU" else np.int64))
        results = ["label", "probabilities"]
    prefix = scope.get_unique_variable_name("transformula") + "_"
    for one in graph.node:
        one.name, one.input[:], one.output[:] = "", [prefix + i for i in one.input], [prefix + o for o in one.output]
    for constant in graph.initializer:
        constant.name = prefix + constant.name
    container.add_node("Cast", operator.inputs[0].full_name, f"{prefix}rows", op_version=13, to=onnx.TensorProto.DOUBLE)
    container.nodes.extend(graph.node)
    container.initializers.extend(graph.initializer)
    container.node_domain_version_pair_sets.add(("", OPSET))
    for name, output in zip(results, operator.outputs, strict=True):
        kind = guess_proto_type(output.type)
        container.add_node("Cast", prefix + name, output.full_name, op_version=13, to=kind)
