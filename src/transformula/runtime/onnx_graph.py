"""ONNX graphs of opset 17, node by node: names, initializers and the file, for any runtime that reads them.

onnxruntime's default optimiser rewrites some nodes. Its MatMulScaleFusion moves a scalar factor of a product into a
float32 attribute, which would spoil float64 (measured: 1e-8). Its NoopElimination leaves out a single number that is 0
or 1 *in float32* where it is added or multiplied by, so that x·1.00000001 would be x: see `is_mistaken`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from transformula.errors import ExportError
from transformula.optional import require

OPSET = 17
IR_VERSION = 8
#: Names of the graph's input, of its output, and of the axis of samples.
INPUT = "x"
OUTPUT = "y"
BATCH = "batch"
#: Bytes of all matrices: protocol buffers hold two gigabytes, of which the rest of the file needs a little.
MAX_BYTES = 2_000_000_000


def import_onnx(runtime: bool = False) -> Any:
    """The onnx package (or onnxruntime), or one sentence that says how to get it."""
    name = "onnxruntime" if runtime else "onnx"
    require("ONNX", name)
    return import_module(name)


class Wrapping(Protocol):
    """Nodes around a graph."""

    def wrapped(self, onnx: Any, graph: Any) -> Any:
        """The graph with the nodes around it."""


def file_bytes(
    writer: GraphWriter, needed: int, metadata: Mapping[str, str], version: str, wrapper: Wrapping | None = None
) -> bytes:
    """The checked file of a graph; ``needed`` is the size of its numbers in bytes."""
    onnx = import_onnx()
    if needed > MAX_BYTES:
        raise ExportError(
            f"the matrices take {needed / 1e9:.1f} GB written out, and an ONNX file holds at most 2 GB: "
            "compile with fewer tokens"
        )
    writer.helper = onnx.helper
    graph = writer.graph(onnx)
    graph = graph if wrapper is None else wrapper.wrapped(onnx, graph)
    model = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="transformula",
        producer_version=version,
    )
    onnx.helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def onnx_executor(data: bytes, options: Any = None) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """An ONNX file's bytes in onnxruntime on the CPU, with default session options unless given."""
    runtime = import_onnx(runtime=True)
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(x: NDArray[Any]) -> NDArray[Any]:
        result: NDArray[Any] = session.run([OUTPUT], {INPUT: x})[0]
        return result

    return run


def is_mistaken(number: NDArray[Any], neutral: int) -> bool:
    """Whether onnxruntime's default optimiser mistakes a constant for 0 (in a sum) or 1 (in a product)."""
    return number.size == 1 and number.item() != neutral and np.float32(number.item()) == neutral


class GraphWriter:
    """Nodes and initializers of a graph; every method returns the name of the array it adds."""

    helper: Any

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def graph(self, onnx: Any) -> Any:
        """The whole graph."""
        raise NotImplementedError

    def finished(self, onnx: Any, ends: Sequence[Sequence[Any]]) -> Any:
        """The graph of all nodes, with the shapes of its input and its output."""
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return onnx.helper.make_graph(
            self.nodes,
            "transformula",
            [onnx.helper.make_tensor_value_info(INPUT, kind, ends[0])],
            [onnx.helper.make_tensor_value_info(OUTPUT, kind, ends[1])],
            initializer=[onnx.numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )

    def constant(self, name: str, array: Any) -> str:
        """An initializer."""
        array = np.asarray(array)
        if array.dtype.kind == "f":
            array = array.astype(self.dtype)
        self.constants[name] = np.ascontiguousarray(array)
        return name

    def node(self, name: str, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node of one output, both of the same name."""
        self.nodes.append(self.helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def sum(self, name: str, rows: str, constant: str) -> str:
        """The sum of rows and a constant."""
        return self.node(name, "Sum" if is_mistaken(self.constants[constant], 0) else "Add", rows, constant)
