"""The rows of a program in an ONNX graph, and linear forms of them.

Arrays are rows × batch. Inputs that few products read are transposed by these products, which takes less time than
transposing them once. A product is a Gemm that adds to the previous result. There is no MatMul, so that onnxruntime's
default optimiser has nothing to rewrite: it would move a scalar factor of one into a float32 attribute.
"""

from __future__ import annotations

import itertools

import numpy as np

from transformula.kernel.folder.weights import FloatArray
from transformula.runtime.onnx_graph import GraphWriter, is_mistaken
from transformula.runtime.program.program_steps import ONE, Program, Rows, Step, Tables

#: Arrays that a form reads without joining them, and products that read the inputs without transposing them once.
MOST_PRODUCTS = 3


class RowsWriter(GraphWriter):
    """Keeps track of which owner made which rows: owner 0 is the constant, 1 the inputs, then come the steps."""

    def __init__(self, program: Program, sequence: tuple[int, int] | None) -> None:
        super().__init__(program.dtype)
        self.program, self.sequence = program, sequence
        self.starts: Rows = np.cumsum([0, 1, program.inputs, *(step.width for step in program.steps)])
        self.made: dict[int, str] = {}
        self.joined: dict[tuple[int, ...], str] = {}
        self.turned_once = program.inputs == 1 or _readings(program) > MOST_PRODUCTS

    def owner(self, row: int) -> int:
        """The owner of a row: 0 is the constant, 1 the inputs, then the steps."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def array(self, owner: int) -> str:
        """The array of a step, written on first use; a step that is only read through `arguments` is never written."""
        if owner not in self.made:
            step = self.program.steps[owner - 2]
            self.made[owner] = self.written(f"steps.{owner - 2}", step)
        return self.made[owner]

    def written(self, name: str, step: Step) -> str:
        """The nodes of a step."""
        raise NotImplementedError

    def added(self, name: str, matrix: FloatArray, rows: str, more: FloatArray | str, turned: bool = False) -> str:
        """matrix @ rows + more: one Gemm; a matrix of one number is Mul and Add, which take half the time."""
        kept = is_mistaken(matrix, 1)  # in a Gemm no number is left out
        if isinstance(more, np.ndarray):
            kept = kept or is_mistaken(more, 0)
            more = self.constant(f"{name}.constant", more) if more.any() else ""
        if matrix.shape == (1, 1) and not turned and not kept:
            if matrix[0, 0] != 1:
                factor = self.constant(f"{name}.matrix", matrix)
                rows = self.node(f"{name}.scaled" if more else name, "Mul", rows, factor)
            return self.node(name, "Add", rows, more) if more else rows
        parts = [self.constant(f"{name}.matrix", matrix), rows, *([more] if more else [])]
        return self.node(name, "Gemm", *parts, **({"transB": 1} if turned else {}))

    def product(self, name: str, matrix: FloatArray, reads: Rows) -> str:
        """matrix @ rows[reads]; a form that reads a row twice keeps both coefficients, in two products."""
        constants = matrix[:, reads == ONE]
        matrix, reads = matrix[:, reads != ONE], reads[reads != ONE]
        wanted = [part for source in self.sources(reads) for part in self.parts(source, matrix, reads)]
        more: FloatArray | str = constants
        same = [k for k, (_, part) in enumerate(wanted) if np.array_equal(part, np.eye(len(part)))]
        as_it_is = [k for k in same if not self.rows(wanted[k][0])[1]]
        if len(wanted) > 1 and as_it_is and not constants.any():  # the others are added to it
            more, _ = self.rows(wanted.pop(as_it_is[0])[0])
        for k, (source, part) in enumerate(wanted, start=1):
            rows, turned = self.rows(source)
            more = self.added(name if k == len(wanted) else f"{name}.{k}", part, rows, more, turned)
        assert isinstance(more, str)
        return more

    def owners(self, reads: Rows) -> list[int]:
        """The owners of the rows."""
        return sorted({self.owner(row) for row in reads.tolist() if row != ONE})

    def sources(self, reads: Rows) -> list[tuple[int, ...]]:
        """The owners of the rows, in groups that take one product each: single ones, or joined if there are many."""
        owners = self.owners(reads)
        if len(owners) <= MOST_PRODUCTS:
            return [(k,) for k in owners] or [(1,)]
        for k in owners:
            self.rows((k,))  # written now, so that what they have joined is known
        found: list[tuple[int, ...]] = [(1,)] if 1 in owners and not self.turned_once else []
        for some in sorted(self.joined, key=len, reverse=True):
            if len(some) > 1 and {*some} <= {*owners}.difference(*found):
                found.append(some)
        rest = tuple(k for k in owners if k not in {*itertools.chain(*found)})
        return [*found, rest] if rest else found

    def parts(
        self, source: tuple[int, ...], matrix: FloatArray, reads: Rows
    ) -> list[tuple[tuple[int, ...], FloatArray]]:
        """The factors of all rows of a source; a second matrix for rows that a form reads twice, and so on."""
        held = np.concatenate([np.arange(self.starts[k], self.starts[k + 1]) for k in source]).tolist()
        times: dict[int, int] = {}
        parts = [np.zeros((len(matrix), len(held)))]
        for row, factors in zip(reads.tolist(), matrix.T, strict=True):
            if row in held:
                again = times[row] = times.get(row, -1) + 1
                if again == len(parts):
                    parts.append(np.zeros_like(parts[0]))
                parts[again][:, held.index(row)] = factors
        return [(source, part) for part in parts]

    def rows(self, owners: tuple[int, ...]) -> tuple[str, bool]:
        """The rows of some owners, one after the other, and whether they are still batch × rows."""
        if owners == (1,) and not self.turned_once:
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


def _readings(program: Program) -> int:
    """About how many products read inputs; linear forms that a layer of tables reads are part of its own product."""
    read = [bool(((s.reads > 0) & (s.reads <= program.inputs)).any()) for s in program.steps]
    within = [isinstance(s, Tables) and before for s, before in zip(program.steps, [False, *read], strict=False)]
    return sum(one and not part for one, part in zip(read, within, strict=True))
