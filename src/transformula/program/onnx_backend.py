"""A program as an ONNX graph of opset 17: what is exported by default.

Arrays are rows × batch. A layer is a product for its scores, Exp, two products for the sums and a quotient; the
constant 1 is a row, so that no product is followed by an Add, and none by a scalar factor: onnxruntime's default
optimiser has nothing to rewrite (it would move a scalar factor of a product into a float32 attribute).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from transformula.kernel.weights import FloatArray
from transformula.program.grids import crossings
from transformula.program.numpy_backend import scores_kept
from transformula.program.steps import ONE, Affine, Grid, Powers, Program, Rows, Step, Tables
from transformula.transformers.onnx_graph import BATCH, INPUT, OUTPUT, GraphWriter, file_bytes

_INT64 = 7  # of onnx.TensorProto, without importing it


def program_bytes(
    program: Program, metadata: Mapping[str, str], sequence: tuple[int, int] | None = None, version: str = ""
) -> bytes:
    """The ONNX file of a program; arguments as those of `transformers.onnx_graph.graph_bytes`."""
    needed = 8 * sum(_size(step) for step in program.steps)
    return file_bytes(_Writer(program, sequence), needed, metadata, version)


def _size(step: Step) -> int:
    if isinstance(step, Tables):
        return int(step.slopes.size) + 2 * step.width * step.tokens
    return sum(int(part.size) for part in vars(step).values() if isinstance(part, np.ndarray))


class _Writer(GraphWriter):
    def __init__(self, program: Program, sequence: tuple[int, int] | None) -> None:
        super().__init__(program.dtype)
        self.program, self.sequence = program, sequence
        self.starts: Rows = np.cumsum([0, 1, program.inputs, *(step.width for step in program.steps)])
        self.made: dict[int, str] = {}
        self.joined: dict[tuple[int, ...], str] = {}

    def graph(self, onnx: Any) -> Any:
        program = self.program
        x = INPUT
        if self.sequence is not None:
            x = self.node("x.rows", "Reshape", x, self.constant("x.shape", [-1, program.inputs]))
        batch = self.node("x.batch", "Shape", x, start=0, end=1)
        shape = self.node("one.shape", "Concat", self.constant("1", [1]), batch, axis=0)
        one = onnx.numpy_helper.from_array(np.ones(1, dtype=self.dtype))
        self.made[0] = self.node("one", "ConstantOfShape", shape, value=one)
        self.made[1] = self.node("inputs", "Transpose", x, perm=[1, 0])
        self.read_out()
        flat = len(program.outputs) * program.positions, program.inputs * program.positions
        ends = [[BATCH, flat[1]], [BATCH, flat[0]]] if self.sequence is None else [[BATCH, *self.sequence]] * 2
        return self.finished(onnx, ends)

    def read_out(self) -> None:
        reads = self.program.outputs
        source, columns = self.source(reads)
        if not np.array_equal(columns, np.arange(self.rows_of(reads))):
            source = self.node("outputs", "Gather", source, self.constant("outputs.rows", columns), axis=0)
        if self.sequence is None:
            self.node(OUTPUT, "Transpose", source, perm=[1, 0])
            return
        turned = self.node("outputs.T", "Transpose", source, perm=[1, 0])
        self.node(OUTPUT, "Reshape", turned, self.constant("y.shape", [-1, *self.sequence]))

    # Where rows are

    def owners(self, reads: Rows) -> tuple[int, ...]:
        """Who made some rows: 0 is the constant, 1 the inputs, then the steps."""
        return tuple(np.unique(np.searchsorted(self.starts, reads, side="right") - 1).tolist())

    def rows_of(self, reads: Rows) -> int:
        return int(sum(self.starts[k + 1] - self.starts[k] for k in self.owners(reads)))

    def source(self, reads: Rows) -> tuple[str, Rows]:
        """An array that holds the rows, and where they are in it."""
        owners = self.owners(reads)
        if owners not in self.joined:
            names = [self.array(k) for k in owners]
            joined = "rows." + ".".join(map(str, owners))
            self.joined[owners] = names[0] if len(names) == 1 else self.node(joined, "Concat", *names, axis=0)
        held = np.concatenate([np.arange(self.starts[k], self.starts[k + 1]) for k in owners])
        return self.joined[owners], np.searchsorted(held, reads)

    def array(self, owner: int) -> str:
        """What somebody made, written when it is first asked for: what is only read through `arguments` never is."""
        if owner not in self.made:
            step = self.program.steps[owner - 2]
            self.made[owner] = _WRITERS[type(step)](self, f"steps.{owner - 2}", step)
        return self.made[owner]

    def expanded(self, row: int) -> tuple[dict[int, float], bool]:
        """A row as a form of earlier rows (itself, if it is none), and whether it is a guard.

        A guard is ± an argument and a constant. It may be taken from what the argument reads: it is the same for
        all tokens of its table, so how it is rounded does not matter.
        """
        owner = int(np.searchsorted(self.starts, row, side="right")) - 1
        step = self.program.steps[owner - 2] if owner > 1 else None
        if not isinstance(step, Affine) or step.bend > step.guard or len({*step.reads}) < len(step.reads):
            return {row: 1.0}, False
        factors = step.matrix[row - self.starts[owner]].tolist()
        form = {int(r): f for r, f in zip(step.reads, factors, strict=True) if f}
        if not step.guard:
            return form, False
        ((argument, sign),) = ((r, f) for r, f in form.items() if r != ONE)
        outer = {r: sign * f for r, f in self.expanded(argument)[0].items()}
        outer[ONE] = outer.get(ONE, 0.0) + form.get(ONE, 0.0)
        return outer, True

    def arguments(self, name: str, reads: Rows) -> str:
        """The rows that a layer of tables reads, by one product and one Max; empty where there is nothing to gain."""
        forms = [self.expanded(row) for row in reads.tolist()]
        if all(form == {row: 1.0} for row, (form, _) in zip(reads.tolist(), forms, strict=True)):
            return ""
        base = np.array(sorted({r for form, _ in forms for r in form}))
        matrix = np.array([[form.get(int(r), 0.0) for r in base] for form, _ in forms])
        rows = self.product(f"{name}.arguments", matrix, base)
        if any(guard for _, guard in forms):
            floor = np.array([[0.0 if guard else -np.inf] for _, guard in forms])
            rows = self.node(f"{name}.guarded", "Max", rows, self.constant(f"{name}.floor", floor))
        return rows

    def product(self, name: str, matrix: FloatArray, reads: Rows) -> str:
        """matrix @ rows[reads]; a form that reads a row twice keeps both its numbers, in two products."""
        source, columns = self.source(reads)
        times: dict[int, int] = {}
        parts: list[FloatArray] = []
        for place, column in enumerate(columns.tolist()):
            again = times[column] = times.get(column, -1) + 1
            if again == len(parts):
                parts.append(np.zeros((len(matrix), self.rows_of(reads)), dtype=self.dtype))
            parts[again][:, column] = matrix[:, place]
        total = ""
        for k, part in enumerate(parts):
            own = name if not k else f"{name}.again{k}"
            made = self.node(own, "MatMul", self.constant(f"{own}.matrix", part), source)
            total = self.node(f"{own}.sum", "Add", total, made) if total else made
        return total

    # The steps

    def affine(self, name: str, step: Affine) -> str:
        made = self.product(name if not step.bend else f"{name}.inside", step.matrix, step.reads)
        return self.node(name, "Relu", made) if step.bend else made

    def tables(self, name: str, step: Tables) -> str:
        asked = self.arguments(name, step.reads)
        if not step.shifted:
            powers = self.node(f"{name}.exp", "Exp", self.scores(name, step.slopes, step.reads, asked))
            return self.quotient(name, powers, *step.dense)
        parts = []
        for g, (start, stop, values) in enumerate(zip(step.starts[:-1], step.starts[1:], step.values, strict=True)):
            scores = self.scores(f"{name}.{g}", step.slopes[start:stop], step.reads, asked)
            powers = self.shifted(f"{name}.{g}", scores)
            parts.append(self.quotient(f"{name}.{g}", powers, values, np.ones_like(values)))
        return parts[0] if len(parts) == 1 else self.node(name, "Concat", *parts, axis=0)

    def scores(self, name: str, slopes: FloatArray, reads: Rows, asked: str) -> str:
        if not asked:
            return self.product(f"{name}.scores", slopes, reads)
        return self.node(f"{name}.scores", "MatMul", self.constant(f"{name}.scores.matrix", slopes), asked)

    def quotient(self, name: str, powers: str, above: FloatArray, below: FloatArray) -> str:
        sums = [
            self.node(f"{name}.{side}", "MatMul", self.constant(f"{name}.{side}.matrix", matrix), powers)
            for side, matrix in (("above", above), ("below", below))
        ]
        return self.node(f"{name}.table", "Div", *sums)

    def shifted(self, name: str, scores: str) -> str:
        """exp(scores less the largest)."""
        largest = self.node(f"{name}.largest", "ReduceMax", scores, axes=[0], keepdims=1)
        moved = self.node(f"{name}.moved", "Sub", scores, largest)
        lowest = self.constant("lowest", scores_kept(np.dtype(self.dtype)))
        return self.node(f"{name}.exp", "Exp", self.node(f"{name}.kept", "Max", moved, lowest))

    def softmax(self, name: str, scores: str) -> str:
        powers = self.shifted(name, scores)
        total = self.node(f"{name}.total", "ReduceSum", powers, self.constant("axis0", [0]), keepdims=1)
        return self.node(f"{name}.weights", "Div", powers, total)

    def grid(self, name: str, step: Grid) -> str:
        if all(w is not None for w in step.windows):
            return self.windowed(name, step)
        shape, result = step.values.shape, ""
        for axis, (row, a, b) in enumerate(zip(step.reads, step.slopes, step.offsets, strict=True)):
            scores = self.product(f"{name}.{axis}.scores", np.stack([b, a], axis=1), np.array([0, row]))
            weights = self.softmax(f"{name}.{axis}", scores)
            if not result:
                flat = self.constant(f"{name}.values", step.values.reshape(shape[0], -1).T)
                result = self.node(f"{name}.{axis}.mixed", "MatMul", flat, weights)
                continue
            rest = int(np.prod(shape[axis + 1 :]))
            sizes = [self.constant(f"{name}.{axis}.shape{k}", [shape[axis], n, -1]) for k, n in enumerate((rest, 1))]
            stacked = self.node(f"{name}.{axis}.stacked", "Reshape", result, sizes[0])
            lifted = self.node(f"{name}.{axis}.lifted", "Reshape", weights, sizes[1])
            product = self.node(f"{name}.{axis}.product", "Mul", stacked, lifted)
            result = self.node(f"{name}.{axis}.mixed", "ReduceSum", product, self.constant("axis0", [0]), keepdims=0)
        return result

    def windowed(self, name: str, step: Grid) -> str:
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
        total = ""
        for s in range(1, max(step.degree, 1) + 1):
            if s > 1:
                power = self.node(f"{name}.power{s}", "Mul", power, t)
            if s <= step.degree and not step.coefficients[s].any():
                continue
            factors = self.constant(f"{name}.factors{s}", step.coefficients[min(s, step.degree)])
            added = self.node(f"{name}.sum{s}", "MatMul", factors, power)
            total = self.node(f"{name}.total{s}", "Add", total, added) if total else added
        return total


_WRITERS: dict[type[Step], Callable[..., str]] = {
    Affine: _Writer.affine,
    Tables: _Writer.tables,
    Grid: _Writer.grid,
    Powers: _Writer.powers,
}
