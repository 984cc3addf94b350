"""How an ONNX file is called: named inputs, float32 inputs, a guard around the box, the bound beside the values.

The graph of the model stays as it is, under names that begin with ``model/``. Nodes before it join the inputs, convert
them and compare them with the ends of the box; nodes after it turn the values of guarded rows into NaN.

A float32 number is a float64 number, so the claim holds at the point that the file is given. An end of the box may have
no float32 number at it: the one nearest to it counts as the end, and with a guard it is moved there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import ExportError, brief
from transformula.kernel.folder.description import Certificate
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.runtime.onnx_graph import BATCH, INPUT, OUTPUT, GraphWriter

#: The metadata entry that describes the interface, where it is not the usual one.
INTERFACE = "interface"
GUARDS = ("none", "nan", "clip")
_KINDS = ("named", "float32")
_PREFIX = "model/"


@dataclass(frozen=True)
class Interface:
    """Inputs and outputs of an ONNX file.

    Parameters
    ----------
    named : one input of shape (batch,) for each variable, under its name, in place of x (batch × variables).
    narrow : inputs are float32 whatever the weights are.
    guard : rows outside the box: ``none`` computes them without a claim, ``nan`` answers NaN, ``clip`` moves them to
        the nearest point of the box. With a guard, NaN gives NaN.
    bound : a second output ``bound``, the proven bound on |value − formula| for rows in the box, infinite elsewhere.

    Examples
    --------
    >>> Interface.of("named, float32", "nan")
    Interface(named=True, narrow=True, guard='nan', bound=False)
    """

    named: bool = False
    narrow: bool = False
    guard: str = "none"
    bound: bool = False

    @classmethod
    def of(cls, inputs: str = "", guard: str = "none", bound: bool = False) -> Interface:
        """From a list such as ``named,float32``, the name of a guard, and whether the bound is an output."""
        kinds = [kind.strip() for kind in inputs.split(",") if kind.strip()] if isinstance(inputs, str) else [inputs]
        if unknown := [kind for kind in kinds if kind not in _KINDS]:
            raise ExportError(f"unknown kind of inputs {brief(unknown[0])}: choose named, float32 or named,float32")
        if guard not in GUARDS:
            raise ExportError(f"unknown guard {brief(guard)}: choose none, nan or clip")
        return cls("named" in kinds, "float32" in kinds, guard, bool(bound))

    @classmethod
    def stated(cls, entry: str | None) -> Interface:
        """From a file's metadata, which anybody may have written: the usual interface where it cannot be read."""
        try:
            said = json.loads(entry or "{}")
            named, narrow = bool(said.get("named")), bool(said.get("narrow"))
            return cls(named, narrow, said.get("guard", "none"), bool(said["bound"]))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return cls()

    @property
    def entries(self) -> dict[str, str]:
        """Metadata that describe the interface; none of the usual one."""
        return {} if self == Interface() else {INTERFACE: json.dumps(asdict(self))}

    def around(self, target: Any, certificate: Certificate, sequence: tuple[int, int] | None) -> Wrapper | None:
        """The nodes around a model's graph; None of the usual interface."""
        if self == Interface():
            return None
        if not isinstance(target, Formula):
            raise ExportError("named inputs, guards and bounds are for models of formulas")
        if self.named and sequence is not None:
            raise ExportError("a sequence has no named inputs: its positions are one array")
        if self.bound and certificate.mean is not None:
            raise ExportError("the bound is on the mean over the box: there is none for a single row")
        return Wrapper(self, target, certificate, sequence)


class Wrapper(GraphWriter):
    """The nodes around a model's graph."""

    def __init__(
        self, interface: Interface, target: Formula, certificate: Certificate, sequence: tuple[int, int] | None
    ) -> None:
        super().__init__(certificate.dtype)
        self.interface, self.sequence, self.certificate = interface, sequence, certificate
        self.names, self.outputs = target.box.variables, len(target.outputs)
        self.ends = _nearest(target.box, np.dtype(self.dtype))
        moved = interface.narrow and interface.guard != "none"
        self.given_ends = _nearest(target.box, np.dtype("float32")) if moved else self.ends

    def wrapped(self, onnx: Any, graph: Any) -> Any:
        """The model's graph with the nodes around it."""
        self.helper = onnx.helper
        core = onnx.compose.add_prefix_graph(graph, _PREFIX)
        rows, inside = self.before()
        before, self.nodes = self.nodes, []
        outputs = self.after(rows, inside)
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        given = onnx.helper.np_dtype_to_tensor_dtype(np.dtype("float32")) if self.interface.narrow else kind
        info = onnx.helper.make_tensor_value_info
        shape = [BATCH, len(self.names)] if self.sequence is None else [BATCH, *self.sequence]
        made = [BATCH, self.outputs] if self.sequence is None else shape
        named = self.interface.named
        return onnx.helper.make_graph(
            [*before, *core.node, *self.nodes],
            "transformula",
            [info(n, given, [BATCH]) for n in self.names] if named else [info(INPUT, given, shape)],
            [info(n, kind, made) for n in outputs],
            initializer=[
                *(onnx.numpy_helper.from_array(a, name) for name, a in self.constants.items()),
                *core.initializer,
            ],
        )

    def before(self) -> tuple[str, str]:
        """Rows as they were given in the model's format, and which of them lie in the box."""
        if self.interface.named:
            column = self.constant("rows/column", [-1, 1])
            columns = [self.node(f"rows/{name}", "Reshape", name, column) for name in self.names]
            rows = self.node("rows", "Concat", *columns, axis=1)
        else:
            rows = self.node("rows", "Reshape", INPUT, self.constant("rows/shape", [-1, len(self.names)]))
        kind = self.helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        rows = self.node("rows/cast", "Cast", rows, to=kind)
        low, high = (self.constant(f"rows/{end}", at) for end, at in zip(("low", "high"), self.given_ends, strict=True))
        above = self.node("rows/above", "GreaterOrEqual", rows, low)
        below = self.node("rows/below", "LessOrEqual", rows, high)
        inside = self.all("rows/inside", self.node("rows/between", "And", above, below))
        if self.interface.guard == "none":
            kept = rows
        else:
            least, most = (self.constant(f"box/{n}", at) for n, at in zip(("low", "high"), self.ends, strict=True))
            raised = self.node("rows/raised", "Where", self.node("rows/under", "Less", rows, least), least, rows)
            over = self.node("rows/over", "Greater", raised, most)
            kept = self.node("rows/kept", "Where", over, most, raised)
        shape = self.constant("model/shape", [-1, *(self.sequence or [len(self.names)])])
        self.node(f"{_PREFIX}{INPUT}", "Reshape", kept, shape)
        return rows, inside

    def after(self, rows: str, inside: str) -> list[str]:
        """The values, NaN where the guard says so, and the bound; the names of the outputs."""
        each = [1] * (1 if self.sequence is None else 2)
        like = self.constant("mask/shape", [-1, *each])
        output, bound = self.free(OUTPUT), self.free("bound")
        values = f"{_PREFIX}{OUTPUT}"
        if self.interface.guard == "none":
            self.node(output, "Identity", values)
        else:
            known = inside
            if self.interface.guard == "clip":
                known = self.all("rows/known", self.node("rows/numbers", "Not", self.node("rows/nan", "IsNaN", rows)))
            mask = self.node("values/known", "Reshape", known, like)
            self.node(output, "Where", mask, values, self.constant("values/nan", np.array(np.nan)))
        if not self.interface.bound:
            return [output]
        claimed = self.certificate.bound
        least = np.array(claimed, dtype=self.dtype)
        least = np.nextafter(least, np.array(np.inf, dtype=self.dtype)) if least < claimed else least
        sizes = [self.outputs] if self.sequence is None else list(self.sequence)
        held = self.constant("bound/inside", np.full([1, *sizes], least))
        mask = self.node("bound/mask", "Reshape", inside, like)
        self.node(bound, "Where", mask, held, self.constant("bound/outside", np.array(np.inf)))
        return [output, bound]

    def all(self, name: str, mask: str) -> str:
        """Whether a mask holds in every column."""
        ones = self.node(f"{name}/ones", "Cast", mask, to=1)  # float32
        least = self.node(f"{name}/least", "ReduceMin", ones, axes=[1], keepdims=1)
        return self.node(name, "Cast", least, to=9)  # bool

    def free(self, name: str) -> str:
        """A name of an output that no named input has."""
        while self.interface.named and name in self.names:
            name += "_"
        return name


def _nearest(box: Box, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The ends of a box rounded once to a format, as rows; of two nearest numbers the one inside the box."""
    exact = np.array(box.floats()).T
    ends = []
    for at, inward in zip(exact, (np.inf, -np.inf), strict=True):
        near = at.astype(dtype)
        other = np.nextafter(near, np.array(inward, dtype=dtype))
        tie = (near != at) & (near.astype(float) + other.astype(float) == 2 * at)
        ends.append(np.where(tie, other, near)[None, :])
    return ends[0], ends[1]
