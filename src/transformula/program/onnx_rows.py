"""Where the rows of a program are in an ONNX graph, and linear forms of them.

Arrays are rows × batch. A product is a Gemm that adds to what came before it. There is no MatMul, so that onnxruntime's
default optimiser has nothing to rewrite: it would move a scalar factor of one into a float32 attribute.
"""

from __future__ import annotations

import numpy as np

from transformula.kernel.weights import FloatArray
from transformula.program.steps import ONE, Program, Rows, Step
from transformula.transformers.onnx_graph import GraphWriter


class RowsWriter(GraphWriter):
    """Knows who made which rows: owner 0 is the constant, 1 the inputs, then come the steps."""

    def __init__(self, program: Program, sequence: tuple[int, int] | None) -> None:
        super().__init__(program.dtype)
        self.program, self.sequence = program, sequence
        self.starts: Rows = np.cumsum([0, 1, program.inputs, *(step.width for step in program.steps)])
        self.made: dict[int, str] = {}
        self.joined: dict[tuple[int, ...], str] = {}
        reading = [s for s in program.steps if ((s.reads > 0) & (s.reads <= program.inputs)).any()]
        self.often = program.inputs == 1 or len(reading) > 1  # then the inputs are turned into rows once

    def owner(self, row: int) -> int:
        """Who made a row: 0 is the constant, 1 the inputs, then the steps."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def array(self, owner: int) -> str:
        """What a step made, written when it is first asked for: what is only read through `arguments` never is."""
        if owner not in self.made:
            step = self.program.steps[owner - 2]
            self.made[owner] = self.written(f"steps.{owner - 2}", step)
        return self.made[owner]

    def written(self, name: str, step: Step) -> str:
        """The nodes of a step."""
        raise NotImplementedError

    def added(self, name: str, matrix: FloatArray, rows: str, more: FloatArray | str, turned: bool = False) -> str:
        """matrix @ rows + more: one Gemm; a matrix of one number is Mul and Add, which take half the time."""
        if isinstance(more, np.ndarray):
            more = self.constant(f"{name}.constant", more) if more.any() else ""
        if matrix.shape == (1, 1) and not turned:
            if matrix[0, 0] != 1:
                factor = self.constant(f"{name}.matrix", matrix)
                rows = self.node(f"{name}.scaled" if more else name, "Mul", rows, factor)
            return self.node(name, "Add", rows, more) if more else rows
        parts = [self.constant(f"{name}.matrix", matrix), rows, *([more] if more else [])]
        return self.node(name, "Gemm", *parts, **({"transB": 1} if turned else {}))

    def product(self, name: str, matrix: FloatArray, reads: Rows) -> str:
        """matrix @ rows[reads]; a form that reads a row twice keeps both its numbers, in two products."""
        more: FloatArray | str = matrix[:, reads == ONE]
        matrix, reads = matrix[:, reads != ONE], reads[reads != ONE]
        owners = sorted({self.owner(row) for row in reads.tolist()})
        sources = (
            [(k,) for k in owners] if len(owners) < 3 else [tuple(owners)]
        )  # two products, or one of joined arrays
        wanted = []
        for source in sources or [(1,)]:
            held = np.concatenate([np.arange(self.starts[k], self.starts[k + 1]) for k in source]).tolist()
            times: dict[int, int] = {}
            parts = [np.zeros((len(matrix), len(held)))]
            for row, factors in zip(reads.tolist(), matrix.T, strict=True):
                if row in held:
                    again = times[row] = times.get(row, -1) + 1
                    if again == len(parts):
                        parts.append(np.zeros_like(parts[0]))
                    parts[again][:, held.index(row)] = factors
            wanted += [(source, part) for part in parts]
        for k, (source, part) in enumerate(wanted, start=1):
            rows, turned = self.rows(source)
            more = self.added(name if k == len(wanted) else f"{name}.{k}", part, rows, more, turned)
        assert isinstance(more, str)
        return more

    def rows(self, owners: tuple[int, ...]) -> tuple[str, bool]:
        """The rows of some owners, one after the other, and whether they are still batch × rows."""
        if owners == (1,) and not self.often:
            return self.made[1], True
        if owners not in self.joined:
            joined = "rows." + ".".join(map(str, owners))
            if owners == (1,) and self.program.inputs == 1:
                self.joined[owners] = self.node("inputs", "Reshape", self.made[1], self.constant("row", [1, -1]))
            elif owners == (1,):
                self.joined[owners] = self.node("inputs", "Transpose", self.made[1], perm=[1, 0])
            elif len(owners) == 1:
                self.joined[owners] = self.array(owners[0])
            else:
                parts = (self.rows((k,))[0] for k in owners)
                self.joined[owners] = self.node(joined, "Concat", *parts, axis=0)
        return self.joined[owners], False
