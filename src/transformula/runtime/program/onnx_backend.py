"""A program as an ONNX graph of opset 17, the default export.

A layer of tables is a product for its arguments, Clip (or Max and Min) where they may lie outside of the safe range, a
product for the scores, Exp, two products for the sums and a quotient. Exp takes most of the time: 4 to 5 ns per float64
number on one core, where NumPy's takes 1; an anchor needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from transformula.kernel.folder.weights import FloatArray
from transformula.runtime.onnx_graph import BATCH, INPUT, OUTPUT, Wrapping, file_bytes
from transformula.runtime.program.numpy_backend import scores_kept
from transformula.runtime.program.onnx_rows import RowsWriter
from transformula.runtime.program.program_steps import AffineStep, GridStep, Powers, Program, Step, Tables
from transformula.runtime.program.score_bounds import crossings

#: Tokens up to which a softmax is one node, which is slow where exponentials vanish, as those of many tokens do.
FEW_TOKENS = 16
#: Operators whose result has the shape of their inputs; constants beside them are single numbers.
_BY_NUMBERS = ("Add", "Mul", "Div")
_INT64 = 7  # of onnx.TensorProto, without importing it


def program_bytes(
    program: Program,
    metadata: Mapping[str, str],
    sequence: tuple[int, int] | None = None,
    version: str = "",
    wrapper: Wrapping | None = None,
) -> bytes:
    """The ONNX file of a program; arguments as those of `onnx_blocks.graph_bytes`."""
    needed = 8 * sum(_size(step) for step in program.steps)
    return file_bytes(_ProgramWriter(program, sequence), needed, metadata, version, wrapper)


def _size(step: Step) -> int:
    if isinstance(step, Tables):
        return int(step.slopes.size) + 2 * step.width * step.tokens
    return sum(int(part.size) for part in vars(step).values() if isinstance(part, np.ndarray))


class _ProgramWriter(RowsWriter):
    """The steps of a program."""

    def graph(self, onnx: Any) -> Any:
        program = self.program
        self.made[1] = INPUT
        if self.sequence is not None:
            self.made[1] = self.node("x.rows", "Reshape", INPUT, self.constant("x.shape", [-1, program.inputs]))
        self.read_out()
        flat = len(program.outputs) * program.positions, program.inputs * program.positions
        ends = [[BATCH, flat[1]], [BATCH, flat[0]]] if self.sequence is None else [[BATCH, *self.sequence]] * 2
        return self.finished(onnx, ends)

    def read_out(self) -> None:
        reads = self.program.outputs
        owner = self.owner(int(reads[0]))
        whole = owner > 1 and np.array_equal(reads, np.arange(self.starts[owner], self.starts[owner + 1]))
        source = self.array(owner) if whole else self.product("outputs", np.eye(len(reads)), reads)
        if len(reads) > 1:
            source = self.node(OUTPUT if self.sequence is None else "outputs.T", "Transpose", source, perm=[1, 0])
            if self.sequence is None:
                return
        shape = self.constant("y.shape", [-1, *(self.sequence or [1])])
        last = self.nodes[-1] if self.nodes else None
        if last is None or last.op_type not in _BY_NUMBERS or last.output[0] != source:
            self.node(OUTPUT, "Reshape", source, shape)
            return
        self.nodes.pop()  # in place of its result its inputs are reshaped, of which no copies are made
        named = {p: p if p in self.constants else f"{p}.column" for p in last.input}
        for part, column in named.items():
            if part != column:
                self.node(column, "Reshape", part, shape)
        self.node(OUTPUT, last.op_type, *(named[p] for p in last.input))

    def expanded(self, row: int) -> dict[int, float]:
        """A row as a linear form of earlier rows; the row itself if it is not one."""
        owner = self.owner(row)
        step = self.program.steps[owner - 2] if owner > 1 else None
        if not isinstance(step, AffineStep) or step.relu or len({*step.reads}) < len(step.reads):
            return {row: 1.0}
        factors = step.matrix[row - self.starts[owner]].tolist()
        return {int(r): f for r, f in zip(step.reads, factors, strict=True) if f}

    def arguments(self, name: str, step: Tables) -> str:
        """The rows that a layer of tables reads, the constant first, clamped."""
        forms = [self.expanded(row) for row in step.reads.tolist()]
        base = np.array(sorted({r for form in forms for r in form}))
        matrix = np.array([[form.get(int(r), 0.0) for r in base] for form in forms])
        rows = self.product(f"{name}.arguments", matrix, base)
        if step.clamps is None:
            return rows
        clamps = step.clamps.copy()
        if clamps[0, 1] <= 1 <= clamps[1, 1]:  # the constant may be clamped like the others, which leaves it as it is
            clamps[:, 0] = clamps[:, 1]
        return self.clamped(name, rows, clamps)

    def clamped(self, name: str, rows: str, clamps: FloatArray) -> str:
        """Rows clamped to their ends: by Clip if these are the same for all rows."""
        if (clamps == clamps[:, :1]).all():
            ends = [
                self.constant(f"{name}.{end}", np.array(at)) if np.isfinite(at) else ""
                for end, at in zip(("low", "high"), clamps[:, 0], strict=True)
            ]
            return self.node(f"{name}.clamped", "Clip", rows, *ends)
        for operator, at in zip(("Max", "Min"), clamps, strict=True):
            if np.isfinite(at).any():
                end = self.constant(f"{name}.{operator}.end", at[:, None])
                rows = self.node(f"{name}.{operator}", operator, rows, end)
        return rows

    def all_scores(self, name: str, step: Tables) -> str:
        """The scores of a layer of tables."""
        same = step.clamps is None or (step.clamps[:, 1:] == step.clamps[:, 1:2]).all()
        if not same or not np.array_equal(step.reads, np.arange(1 + self.program.inputs)):
            return self.added(f"{name}.scores", step.slopes, self.arguments(name, step), "")
        rows, turned = self.rows((1,))  # read as they are
        if step.clamps is not None:
            rows = self.clamped(name, rows, step.clamps[:, 1:])
        return self.added(f"{name}.scores", step.slopes[:, 1:], rows, step.slopes[:, :1], turned)

    def written(self, name: str, step: Step) -> str:
        return _WRITERS[type(step)](self, name, step)

    def affine(self, name: str, step: AffineStep) -> str:
        made = self.product(name if not step.relu else f"{name}.inside", step.matrix, step.reads)
        return self.node(name, "Relu", made) if step.relu else made

    def tables(self, name: str, step: Tables) -> str:
        if not step.shifted:
            scores = self.all_scores(name, step)
            if step.sinks:
                scores = self.node(f"{name}.kept", "Clip", scores, self.lowest())
            above, below = step.sums
            powers = self.node(f"{name}.exp", "Exp", scores)
            return self.quotient(name, powers, (above[:, :-1], above[:, -1:]), (below[:, :-1], below[:, -1:]))
        rows, parts = self.arguments(name, step), []
        for g, (start, stop, values) in enumerate(zip(step.starts[:-1], step.starts[1:], step.values, strict=True)):
            scores = self.added(f"{name}.{g}.scores", step.slopes[start:stop], rows, "")
            if stop - start <= FEW_TOKENS:
                weights = self.node(f"{name}.{g}.weights", "Softmax", scores, axis=0)
                parts.append(self.added(f"{name}.{g}.table", values, weights, ""))
                continue
            powers = self.shifted(f"{name}.{g}", scores)
            parts.append(self.quotient(f"{name}.{g}", powers, (values, ""), (np.ones_like(values), "")))
        return parts[0] if len(parts) == 1 else self.node(name, "Concat", *parts, axis=0)

    def quotient(self, name: str, powers: str, above: tuple[FloatArray, Any], below: tuple[FloatArray, Any]) -> str:
        """The quotient of two sums; each has its factors, and what anchors add to it."""
        sums = [
            self.added(f"{name}.{side}", factors, powers, anchors)
            for side, (factors, anchors) in (("above", above), ("below", below))
        ]
        return self.node(f"{name}.table", "Div", *sums)

    def lowest(self) -> str:
        return self.constant("lowest", scores_kept(np.dtype(self.dtype)))

    def shifted(self, name: str, scores: str) -> str:
        """exp(scores less the largest)."""
        largest = self.node(f"{name}.largest", "ReduceMax", scores, axes=[0], keepdims=1)
        moved = self.node(f"{name}.moved", "Sub", scores, largest)
        return self.node(f"{name}.exp", "Exp", self.node(f"{name}.kept", "Max", moved, self.lowest()))

    def softmax(self, name: str, scores: str) -> str:
        powers = self.shifted(name, scores)
        total = self.node(f"{name}.total", "ReduceSum", powers, self.constant("axis0", [0]), keepdims=1)
        return self.node(f"{name}.weights", "Div", powers, total)

    def grid(self, name: str, step: GridStep) -> str:
        if all(w is not None for w in step.windows):
            return self.windowed(name, step)
        shape, result = step.values.shape, ""
        for axis, (row, a, b) in enumerate(zip(step.reads, step.slopes, step.offsets, strict=True)):
            scores = self.product(f"{name}.{axis}.scores", np.stack([b, a], axis=1), np.array([0, row]))
            weights = self.softmax(f"{name}.{axis}", scores)
            if not result:
                result = self.added(f"{name}.{axis}.mixed", step.values.reshape(shape[0], -1).T, weights, "")
                continue
            rest = int(np.prod(shape[axis + 1 :]))
            sizes = [self.constant(f"{name}.{axis}.shape{k}", [shape[axis], n, -1]) for k, n in enumerate((rest, 1))]
            stacked = self.node(f"{name}.{axis}.stacked", "Reshape", result, sizes[0])
            lifted = self.node(f"{name}.{axis}.lifted", "Reshape", weights, sizes[1])
            product = self.node(f"{name}.{axis}.product", "Mul", stacked, lifted)
            result = self.node(f"{name}.{axis}.mixed", "ReduceSum", product, self.constant("axis0", [0]), keepdims=0)
        return result

    def windowed(self, name: str, step: GridStep) -> str:
        """The tokens around the leading one of each axis."""
        total = place = ""
        count = 1
        for axis, (a, b) in enumerate(zip(step.slopes, step.offsets, strict=True)):
            n, width = f"{name}.{axis}", 2 * (step.windows[axis] or 0) + 1
            u = self.product(f"{n}.argument", np.ones((1, 1)), step.reads[axis : axis + 1])
            index = self.window(n, u, crossings(a, b), width)
            slopes, offsets = (
                self.node(f"{n}.{what}", "Gather", self.constant(f"{n}.{what}.all", line), index)
                for what, line in (("slopes", a), ("offsets", b))
            )
            scores = self.node(f"{n}.scores", "Add", self.node(f"{n}.scaled", "Mul", slopes, u), offsets)
            weights = self.softmax(n, scores)
            if not total:
                total, place = weights, index
            else:
                total = self.outer(f"{n}.joint", "Mul", total, weights, count, width)
                far = self.node(f"{n}.far", "Mul", place, self.constant(f"{n}.tokens", np.array(len(a))))
                place = self.outer(f"{n}.place", "Add", far, index, count, width)
            count *= width
        flat, mixed = step.values.reshape(-1, step.width), []
        for column in range(step.width):
            n = f"{name}.column{column}"
            values = self.node(f"{n}.values", "Gather", self.constant(f"{n}.all", flat[:, column]), place)
            product = self.node(f"{n}.product", "Mul", values, total)
            mixed.append(self.node(n, "ReduceSum", product, self.constant("axis0", [0]), keepdims=1))
        return mixed[0] if len(mixed) == 1 else self.node(name, "Concat", *mixed, axis=0)

    def window(self, name: str, u: str, edges: FloatArray, width: int) -> str:
        """The tokens of the window, width × batch: the leader is after all crossings that u has passed."""
        passed = self.node(f"{name}.passed", "Greater", u, self.constant(f"{name}.crossings", edges[:, None]))
        ones = self.node(f"{name}.passed.ones", "Cast", passed, to=_INT64)
        leader = self.node(f"{name}.leader", "ReduceSum", ones, self.constant("axis0", [0]), keepdims=1)
        low = self.node(f"{name}.low", "Sub", leader, self.constant(f"{name}.reach", np.array(width // 2)))
        most = self.constant(f"{name}.most", np.array(len(edges) + 1 - width))
        capped = self.node(f"{name}.capped", "Min", low, most)
        first = self.node(f"{name}.first", "Max", capped, self.constant("zero", np.array(0)))
        return self.node(f"{name}.index", "Add", first, self.constant(f"{name}.places", np.arange(width)[:, None]))

    def outer(self, name: str, operator: str, left: str, right: str, rows: int, columns: int) -> str:
        """Every row of one with every row of the other, rows · columns × batch."""
        one = self.node(f"{name}.left", "Reshape", left, self.constant(f"{name}.tall", [rows, 1, -1]))
        two = self.node(f"{name}.right", "Reshape", right, self.constant(f"{name}.wide", [1, columns, -1]))
        both = self.node(f"{name}.both", operator, one, two)
        return self.node(name, "Reshape", both, self.constant(f"{name}.flat", [rows * columns, -1]))

    def powers(self, name: str, step: Powers) -> str:
        t = power = self.product(f"{name}.t", step.directions, step.reads)
        total: list[str] = []
        count = len(step.directions)
        for s in range(1, max(step.degree, 1) + 1):  # a constant has no directions: then a sum of none
            if s > 1:
                if 2 * step.active[s] <= count:  # the first tokens only, where that is worth a copy
                    count = step.active[s]
                    t, power = (self.first(f"{name}.{k}{s}", p, count) for k, p in (("t", t), ("before", power)))
                power = self.node(f"{name}.power{s}", "Mul", power, t)
            factors = step.coefficients[min(s, step.degree)][:, :count]
            if factors.any() or (s >= step.degree and not total):
                total = [
                    self.node(f"{name}.sum{s}", "Gemm", self.constant(f"{name}.factors{s}", factors), power, *total)
                ]
        return total[0]

    def first(self, name: str, rows: str, count: int) -> str:
        ends = [self.constant(f"slice{k}", [k]) for k in (0, count)]
        return self.node(name, "Slice", rows, *ends, self.constant("slice0", [0]))


_WRITERS: dict[type[Step], Callable[..., str]] = {
    AffineStep: _ProgramWriter.affine,
    Tables: _ProgramWriter.tables,
    GridStep: _ProgramWriter.grid,
    Powers: _ProgramWriter.powers,
}
