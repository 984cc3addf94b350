"""Layout: tables, heads and hidden units as the weights of a Transformer, by one assembler with one gate.

Every data token carries [x, 1] (and its position, in a sequence of one layer); each memory token carries the slopes,
offsets and values of a table and the mark of that table. A head reads its own table: a gate keeps all other tokens
below the smallest float.

One layer (Gumaan, Theorem 1) has output o = Σ tables + affine(x) + Σ ReLUs:

* As a function (no ``shape``): one data token; tables write into y_o, ReLUs are added to y_o by the feed-forward layer,
  the readout adds the affine part.
* As a sequence n × d: data token p must end with row p in the slots out_1..out_d. Every token receives vec Y; the ReLU
  layer hands it its row: for |v| ≤ R, ReLU(v + R + 2R(e_p − 1)) − R e_p is v where e_p = 1 and 0 elsewhere, and
  ReLU(z) with z ≤ Z becomes ReLU(z + Z(e_p − 1)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from flint import arb, fmpq

from transformula.compiler.refusal import beyond_format
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose, to_fmpq
from transformula.kernel.folder.weights import Attention, Block, FeedForward, FloatArray, Head, Weights, to_rational
from transformula.kernel.syntax.expression import Expr
from transformula.runtime.matrices import dense_matrix, matrix_of

#: Precision of irrational constants, in bits: their error is then far below that of any float format.
CONSTANT_BITS = 320
#: exp(−800) is below the smallest double: behind the gate nothing is left.
GATE_MARGIN = 800.0

Entries = list[tuple[int, int, Any]]
#: Coefficients of slots by their names.
Reads = Mapping[str, Any]
#: A hidden unit: coefficients of the slots it reads, its bias, and its coefficients in the slots it adds to.
Unit = tuple[Reads, Any, Reads]


def midpoint_rational(ball: arb) -> fmpq:
    """The exact rational in the middle of a ball."""
    mantissa, exponent = ball.mid().man_exp()
    return fmpq(mantissa) * fmpq(2) ** int(exponent)


def midpoint(constant: Expr) -> fmpq:
    """The constant's rational value, or a rational within 2^-300 of it."""
    if constant.number is not None:
        return to_fmpq(constant.number)
    with precision(CONSTANT_BITS):
        return midpoint_rational(enclose(constant))


@dataclass(frozen=True, eq=False)
class TableTokens:
    """A table's memory tokens: slopes and offsets are tokens × axes, values tokens × columns.

    ``linear`` is the slope of the linear function that the residual stream carries beside a table of one axis, ``kind``
    the name of the slots of its values: heads see the values of all tables with the same kind, as foreign ones.
    """

    slopes: FloatArray
    offsets: FloatArray
    values: FloatArray
    linear: float = 0.0
    kind: str = "value"

    @property
    def columns(self) -> list[str]:
        """The slots of its values."""
        return [f"{self.kind}{k + 1}" for k in range(self.values.shape[1])]


@dataclass(frozen=True, eq=False)
class HeadSpec:
    """A head: its block, the number of its table, what each axis reads and how far that goes, and what it writes."""

    block: int
    table: int
    arguments: tuple[Reads, ...]
    reach: tuple[float, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class ReluSpec:
    """coefficient · ReLU(form·x + constant) for one output; ``reach`` bounds the inside from above."""

    output: int
    coefficient: fmpq
    form: tuple[fmpq, ...]
    constant: fmpq
    reach: float


@dataclass(frozen=True, eq=False)
class OneLayerSpec:
    """Everything one layer is to compute; ``affine[o]`` is (form, constant). Heads write into y1, y2, ..."""

    inputs: tuple[str, ...]
    affine: Sequence[tuple[tuple[fmpq, ...], fmpq]]
    tables: Sequence[TableTokens]
    heads: Sequence[HeadSpec]
    relus: Sequence[ReluSpec] = ()
    linears: Sequence[Sequence[float]] = ()  # slope of the linear function beside each table, by output
    shape: tuple[int, int] | None = None
    reach: float = 0.0  # bound of |affine| + |tables| on the box, for every output; needed for sequences
    dtype: str = "float64"


def assemble(spec: OneLayerSpec) -> Weights:
    """The weights of one layer."""
    columns = spec.shape[1] if spec.shape else 0

    def inside(form: Sequence[fmpq]) -> dict[str, Any]:
        return {f"x.{name}": v for name, v in zip(spec.inputs, form, strict=True) if v != 0}

    units: list[Unit] = []
    for relu in spec.relus:
        reads, bias, slot = inside(relu.form), relu.constant, f"y{relu.output + 1}"
        if spec.shape:
            p, c = divmod(relu.output, columns)
            limit = power_of_two(relu.reach)
            reads[f"position{p + 1}"] = limit
            bias, slot = bias - to_rational(limit), f"out{c + 1}"
        units.append((reads, bias, {slot: relu.coefficient}))
    written = {slot for head in spec.heads for slot in head.writes} | {slot for *_, adds in units for slot in adds}
    values = [{f"y{o + 1}": fmpq(1)} if f"y{o + 1}" in written else {} for o in range(len(spec.affine))]
    readout: list[tuple[Reads, fmpq]] = []
    for o, (form, constant) in enumerate(spec.affine):
        if not spec.shape:
            readout.append((values[o] | inside(form), constant))
            continue
        p, c = divmod(o, columns)
        limit = power_of_two(spec.reach)
        reads = inside(form) | values[o] | {f"position{p + 1}": 2 * limit}
        units.append((reads, constant - to_rational(limit), {f"out{c + 1}": 1}))
        # − R e_p: a unit that is R at position p and 0 elsewhere
        units.append(({f"position{p + 1}": limit}, 0, {f"out{c + 1}": -1}))
        readout.append(({f"out{c + 1}": fmpq(1)}, fmpq(0)))
    layer = [(0, unit) for unit in units]
    positions = spec.shape[0] if spec.shape else 1
    return assembled(
        Design(spec.inputs, spec.tables, spec.heads, readout, layer, positions, bool(spec.shape)), spec.dtype
    )


@dataclass(frozen=True, eq=False)
class Design:
    """A Transformer of tables before it has matrices."""

    inputs: Sequence[str]
    tables: Sequence[TableTokens]
    heads: Sequence[HeadSpec]
    #: A form of slots and a constant for each output; those of position p are read from data token p.
    readout: Sequence[tuple[Reads, fmpq]]
    #: Hidden units, each with the number of its block.
    units: Sequence[tuple[int, Unit]] = ()
    #: Number of data tokens, and whether each holds a 1 in a slot of its own (position1, position2, ..).
    positions: int = 1
    marked: bool = False
    #: Inputs that each data token carries as x.NAME: all, or as many as there are at one position.
    variables: Sequence[str] | None = None

    @cached_property
    def slots(self) -> dict[str, int]:
        """The numbers of the slots by their names."""
        axes = max((table.slopes.shape[1] for table in self.tables), default=0)
        names = [f"x.{name}" for name in self.variables or self.inputs] + ["one"]
        names += [f"position{p + 1}" for p in range(self.positions)] if self.marked else []
        names += dict.fromkeys(slot for head in self.heads for slot in head.writes)
        names += dict.fromkeys(slot for _, (_, _, adds) in self.units for slot in adds)
        names += [f"{kind}{k + 1}" for kind in ("slope", "offset") for k in range(axes)]
        names += dict.fromkeys(name for table in self.tables for name in table.columns)
        names += [f"gate{g}" for g in range(len(self.tables) + 1)]
        return {name: k for k, name in enumerate(dict.fromkeys(names))}

    def memory(self) -> FloatArray:
        """The constant part of every token."""
        at = self.slots
        tokens = self.positions + sum(len(table.slopes) for table in self.tables)
        memory = np.zeros((tokens, len(at)))
        for p in range(self.positions):
            memory[p, [at["one"], at["gate0"], *([at[f"position{p + 1}"]] if self.marked else [])]] = 1
        start = self.positions
        for g, table in enumerate(self.tables, 1):
            rows = slice(start, start + len(table.slopes))
            for kind, numbers in (("slope", table.slopes), ("offset", table.offsets)):
                for k, column in enumerate(numbers.T):
                    memory[rows, at[f"{kind}{k + 1}"]] = column
            memory[rows, [at[name] for name in table.columns]] = table.values
            memory[rows, at[f"gate{g}"]] = 1
            start = rows.stop
        return memory

    def gate(self, dtype: str) -> float:
        """Low enough that no token of another table scores within `GATE_MARGIN` of a head's own; one for all heads.

        Heads over the same table then have the same keys, and share its proof. Arguments may go half as far again as
        the heads' ``reach``.
        """
        most = 0.0
        for head, table in product(self.heads, self.tables):
            axes = min(len(head.reach), table.slopes.shape[1])
            with np.errstate(over="ignore"):
                scores = np.abs(table.offsets[:, :axes]) + np.array(head.reach[:axes]) * np.abs(table.slopes[:, :axes])
                most = max(most, float(scores.sum(axis=1).max()))
        return gate_below(1.5 * most, dtype)


def assembled(design: Design, dtype: str) -> Weights:
    """The matrices of a design."""
    at, positions, memory = design.slots, design.positions, design.memory()
    width = len(at)
    tokens = len(memory)
    outputs = len(design.readout)
    if not np.abs(memory).max() < float(np.finfo(dtype).max) / 2:
        raise beyond_format("numbers", dtype)
    carried = design.variables or design.inputs
    step, own = len(carried) if len(carried) < len(design.inputs) else 0, outputs // positions
    embedding = [
        (p * width + at[f"x.{name}"], p * step + k, 1) for p in range(positions) for k, name in enumerate(carried)
    ]
    readout = [(o, o // own * width + at[s], v) for o, (form, _) in enumerate(design.readout) for s, v in form.items()]
    last = max((block for block, _ in [*design.units, *((head.block, head) for head in design.heads)]), default=0)
    blocks, gate = [], design.gate(dtype)
    for b in range(last + 1):
        heads = [_head(head, design, gate, dtype) for head in design.heads if head.block == b]
        units = [unit for block, unit in design.units if block == b]
        blocks.append(Block(Attention(tuple(heads)), feed_forward(units, at, dtype) if units else None))
    return Weights(
        inputs=tuple(design.inputs),
        slots=tuple(at),
        tokens=tokens,
        embedding=matrix_of((tokens * width, len(design.inputs)), embedding, dtype),
        memory=dense_matrix(memory, dtype),
        blocks=tuple(blocks),
        readout=matrix_of((outputs, tokens * width), readout, dtype),
        bias=matrix_of((outputs, 1), [(o, 0, constant) for o, (_, constant) in enumerate(design.readout)], dtype),
        dtype=dtype,
    )


def _head(head: HeadSpec, design: Design, gate: float, dtype: str) -> Head:
    """A head over one table: an argument for each axis, and for each slot it writes a column of the values."""
    at, columns = design.slots, design.tables[head.table].columns
    last, width = 2 * len(head.arguments), len(at)
    others = [slot for name, slot in at.items() if name.startswith("gate") and name != f"gate{head.table + 1}"]
    query: Entries = [(last, at["one"], 1)]
    key: Entries = [(last, slot, gate) for slot in others]
    for k, reads in enumerate(head.arguments):
        query += [(2 * k, at[slot], v) for slot, v in reads.items()] + [(2 * k + 1, at["one"], 1)]
        key += [(2 * k, at[f"slope{k + 1}"], 1), (2 * k + 1, at[f"offset{k + 1}"], 1)]
    value = [(at[slot], at[column], 1) for slot, column in zip(head.writes, columns, strict=False)]
    shapes = ((last + 1, width), (last + 1, width), (width, width))
    return Head(*(matrix_of(shape, part, dtype) for shape, part in zip(shapes, (query, key, value), strict=True)))


def feed_forward(units: Sequence[Unit], at: Mapping[str, int], dtype: str) -> FeedForward:
    """The feed-forward layer of hidden units; ``at`` numbers the slots."""
    width, count = len(at), len(units)
    hidden = [(u, at[slot], v) for u, (reads, _, _) in enumerate(units) for slot, v in reads.items()]
    output = [(at[slot], u, v) for u, (_, _, writes) in enumerate(units) for slot, v in writes.items()]
    return FeedForward(
        matrix_of((count, width), hidden, dtype),
        matrix_of((count, 1), [(u, 0, bias) for u, (_, bias, _) in enumerate(units)], dtype),
        matrix_of((width, count), output, dtype),
        matrix_of((width, 1), [], dtype),
    )


def gate_below(reach: float, dtype: str) -> float:
    """A gate that no score up to ``reach`` can make up for, exact in the format: a whole number or a power of two."""
    if not reach < float(np.finfo(dtype).max) / 8:
        raise beyond_format("scores", dtype)
    gate = float(np.ceil(2 * reach + GATE_MARGIN))
    return -gate if float(np.dtype(dtype).type(gate)) == gate else -power_of_two(gate)


def power_of_two(bound: float) -> float:
    """A power of two above a bound: exact in every format."""
    return float(2.0 ** np.ceil(np.log2(max(bound, 2.0**-100) * 1.0001)))


def places(blocks: Sequence[int]) -> list[tuple[int, int]]:
    """(block, number within it) of heads or units, given their blocks in the order of the design."""
    return [(block, blocks[:k].count(block)) for k, block in enumerate(blocks)]
