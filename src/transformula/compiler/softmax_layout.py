"""Tables and kinks assembled into one layer of attention and one feed-forward layer (Gumaan, Thm 1).

Every data token carries [x, 1, position]; each memory token carries slopes, offsets, values and the
mark of its table. Output o is Σ tables + affine(x) + Σ kinks.

* As a function (no ``shape``): one data token; tables write into y_o, kinks are added to y_o by the
  feed-forward layer, the readout adds the affine part.
* As a sequence n × d: data token p must end with row p in the slots out_1..out_d. Every token receives
  vec Y; the ReLU layer hands it its row: for |v| ≤ R, ReLU(v + R + 2R(e_p − 1)) − R e_p is v where
  e_p = 1 and 0 elsewhere, and a kink ReLU(z) with z ≤ Z becomes ReLU(z + Z(e_p − 1)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpq

from transformula.compiler.lower.additive import Form
from transformula.errors import NotProvenError
from transformula.kernel.enclosures.balls import to_fmpq
from transformula.kernel.folder.weights import (
    Attention,
    Block,
    FeedForward,
    FloatArray,
    Head,
    Matrix,
    Weights,
    to_rational,
)
from transformula.runtime.matrices import dense_matrix, matrix_of

#: exp(−800) is below the smallest double: behind the gate nothing is left.
GATE_MARGIN = 800.0

Entries = list[tuple[int, int, Any]]
#: A hidden unit: coefficients of the slots it reads, its bias, and its coefficients in the slots it adds to.
Unit = tuple[Mapping[str, Any], Any, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class TableSpec:
    """A table for one head: slopes and offsets are tokens × axes, values tokens × its outputs."""

    forms: tuple[Form, ...]
    slopes: FloatArray
    offsets: FloatArray
    values: FloatArray
    outputs: tuple[int, ...]
    ranges: tuple[tuple[float, float], ...]  # of the forms on the box: the gate must exceed the scores

    @property
    def columns(self) -> list[str]:
        """The slots of its values."""
        return [f"value{output + 1}" for output in self.outputs]


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
    """Everything one layer is to compute; ``affine[o]`` is (form, constant)."""

    inputs: tuple[str, ...]
    outputs: int
    tables: Sequence[TableSpec]
    relus: Sequence[ReluSpec]
    affine: Sequence[tuple[tuple[fmpq, ...], fmpq]]
    linears: Sequence[Sequence[float]] = ()  # slope of the linear function beside each table, by output
    shape: tuple[int, int] | None = None
    reach: float = 0.0  # bound of |affine| + |tables| on the box, for every output; needed for sequences
    dtype: str = "float64"


def assemble(spec: OneLayerSpec) -> Weights:
    """Lay out tokens and slots, and fill in the matrices."""
    return _OneLayerBuilder(spec).weights()


class _OneLayerBuilder:
    def __init__(self, spec: OneLayerSpec) -> None:
        self.spec = spec
        self.positions = spec.shape[0] if spec.shape else 1
        axes = max((len(t.forms) for t in spec.tables), default=0)
        names = [f"x.{name}" for name in spec.inputs] + ["one"]
        names += [f"position{p + 1}" for p in range(self.positions)] if spec.shape else []
        names += [f"slope{k + 1}" for k in range(axes)] + [f"offset{k + 1}" for k in range(axes)]
        names += [f"value{o + 1}" for o in range(spec.outputs)] if spec.tables else []
        names += ["gate0"] + [f"gate{h + 1}" for h in range(len(spec.tables))]
        names += [f"y{o + 1}" for o in range(spec.outputs)]
        names += [f"out{c + 1}" for c in range(spec.shape[1])] if spec.shape else []
        self.slots = tuple(names)
        self.index = {name: k for k, name in enumerate(names)}
        self.tokens = self.positions + sum(len(t.slopes) for t in spec.tables)

    def weights(self) -> Weights:
        spec, width = self.spec, len(self.slots)
        embedding = [
            (p * width + self.index[f"x.{name}"], i, 1)
            for p in range(self.positions)
            for i, name in enumerate(spec.inputs)
        ]
        readout, bias = self._readout()
        return Weights(
            inputs=spec.inputs,
            slots=self.slots,
            tokens=self.tokens,
            embedding=self._matrix((self.tokens * width, len(spec.inputs)), embedding),
            memory=dense_matrix(self._memory(), spec.dtype),
            blocks=(Block(Attention(self._heads()), self._feed_forward()),),
            readout=self._matrix((spec.outputs, self.tokens * width), readout),
            bias=self._matrix((spec.outputs, 1), bias),
            dtype=spec.dtype,
        )

    def _matrix(self, shape: tuple[int, int], entries: Entries) -> Matrix:
        return matrix_of(shape, entries, self.spec.dtype)

    def _memory(self) -> FloatArray:
        memory = np.zeros((self.tokens, len(self.slots)))
        for p in range(self.positions):
            memory[p, self.index["one"]] = memory[p, self.index["gate0"]] = 1
            if self.spec.shape:
                memory[p, self.index[f"position{p + 1}"]] = 1
        fill_tables(memory, self.spec.tables, self.index, self.positions)
        return memory

    def _heads(self) -> tuple[Head, ...]:
        gate = gate_below(self._score_reach(), self.spec.dtype)
        inputs = [f"x.{name}" for name in self.spec.inputs]
        heads = []
        for h, table in enumerate(self.spec.tables):
            reads = [{slot: to_fmpq(v) for slot, v in zip(inputs, form, strict=True)} for form in table.forms]
            copies = {f"y{o + 1}": slot for o, slot in zip(table.outputs, table.columns, strict=True)}
            heads.append(softmax_head(h, reads, copies, self.index, gate, self.spec.dtype))
        return tuple(heads)

    def _score_reach(self) -> float:
        """The largest |score| any head gives to any token, without gates."""
        tables = self.spec.tables
        far = max((abs(end) for t in tables for pair in t.ranges for end in pair), default=0.0)
        with np.errstate(over="ignore"):
            scores = [np.abs(t.offsets).sum(axis=1) + far * np.abs(t.slopes).sum(axis=1) for t in tables]
        return max((float(s.max()) for s in scores), default=0.0)

    def _readout(self) -> tuple[Entries, Entries]:
        spec, width = self.spec, len(self.slots)
        entries: Entries = []
        if spec.shape:
            d = spec.shape[1]
            for o in range(spec.outputs):
                entries.append((o, (o // d) * width + self.index[f"out{o % d + 1}"], 1))
            return entries, []
        for o, (form, _) in enumerate(spec.affine):
            entries.append((o, self.index[f"y{o + 1}"], 1))
            entries += [(o, self.index[f"x.{name}"], v) for name, v in zip(spec.inputs, form, strict=True) if v != 0]
        return entries, [(o, 0, constant) for o, (_, constant) in enumerate(spec.affine)]

    def _feed_forward(self) -> FeedForward | None:
        spec = self.spec
        units: list[Unit] = []
        for relu in spec.relus:
            reads, bias, slot = self._inside(relu.form), relu.constant, f"y{relu.output + 1}"
            if spec.shape:
                p, c = divmod(relu.output, spec.shape[1])
                limit = power_of_two(relu.reach)
                reads[f"position{p + 1}"] = limit
                bias, slot = bias - to_rational(limit), f"out{c + 1}"
            units.append((reads, bias, {slot: relu.coefficient}))
        if spec.shape:
            limit = power_of_two(spec.reach)
            for o, (form, constant) in enumerate(spec.affine):
                p, c = divmod(o, spec.shape[1])
                reads = self._inside(form) | {f"y{o + 1}": 1, f"position{p + 1}": 2 * limit}
                units.append((reads, constant - to_rational(limit), {f"out{c + 1}": 1}))
                # − R e_p: a unit that is R at position p and 0 elsewhere
                units.append(({f"position{p + 1}": limit}, 0, {f"out{c + 1}": -1}))
        return feed_forward(units, self.index, spec.dtype) if units else None

    def _inside(self, form: Sequence[fmpq]) -> dict[str, Any]:
        return {f"x.{name}": v for name, v in zip(self.spec.inputs, form, strict=True) if v != 0}


def fill_tables(memory: FloatArray, tables: Sequence[TableSpec | Tokens], at: Mapping[str, int], start: int) -> None:
    """Write each table's slopes, offsets, values and mark into its memory tokens, from row ``start`` on."""
    for g, table in enumerate(tables, 1):
        rows = slice(start, start + len(table.slopes))
        for k in range(table.slopes.shape[1]):
            memory[rows, at[f"slope{k + 1}"]] = table.slopes[:, k]
            memory[rows, at[f"offset{k + 1}"]] = table.offsets[:, k]
        for column, slot in enumerate(table.columns):
            memory[rows, at[slot]] = table.values[:, column]
        memory[rows, at[f"gate{g}"]] = 1
        start = rows.stop


def softmax_head(
    table: int, arguments: Sequence[Reads], copies: Mapping[str, str], at: Mapping[str, int], gate: float, dtype: str
) -> Head:
    """A head over one table: an argument for each axis, and for each slot it writes the slot of the values."""
    last, width = 2 * len(arguments), len(at)
    others = [slot for name, slot in at.items() if name.startswith("gate") and name != f"gate{table + 1}"]
    query: Entries = [(last, at["one"], 1)]
    key: Entries = [(last, slot, gate) for slot in others]
    for k, reads in enumerate(arguments):
        query += [(2 * k, at[slot], v) for slot, v in reads.items()] + [(2 * k + 1, at["one"], 1)]
        key += [(2 * k, at[f"slope{k + 1}"], 1), (2 * k + 1, at[f"offset{k + 1}"], 1)]
    value = [(at[target], at[source], 1) for target, source in copies.items()]
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
        raise NotProvenError(f"the scores of a table are beyond {dtype}'s range: rescale the variables")
    gate = float(np.ceil(2 * reach + GATE_MARGIN))
    return -gate if float(np.dtype(dtype).type(gate)) == gate else -power_of_two(gate)


def power_of_two(bound: float) -> float:
    """A power of two above a bound: exact in every format."""
    return float(2.0 ** np.ceil(np.log2(max(bound, 2.0**-100) * 1.0001)))


#: Coefficients of slots by their names.
Reads = Mapping[str, fmpq]


@dataclass(frozen=True, eq=False)
class Tokens:
    """A table: slopes and offsets are tokens × axes, values tokens × columns, in slots of that name."""

    slopes: FloatArray
    offsets: FloatArray
    values: FloatArray
    name: str = "value"

    @property
    def columns(self) -> list[str]:
        """The slots of its values."""
        return [f"{self.name}{k + 1}" for k in range(self.values.shape[1])]


@dataclass(frozen=True, eq=False)
class HeadSpec:
    """A head: its block, the number of its table, what each axis reads and how far that goes, and what it writes."""

    block: int
    table: int
    arguments: tuple[Reads, ...]
    reach: tuple[float, ...]
    writes: tuple[str, ...]


def assembled(
    inputs: Sequence[str],
    tables: Sequence[Tokens],
    heads: Sequence[HeadSpec],
    readout: Sequence[tuple[Reads, fmpq]],
    dtype: str,
) -> Weights:
    """The weights; ``readout`` has a form of slots and a constant for each output. Inputs are read as x.NAME."""
    axes = max((t.slopes.shape[1] for t in tables), default=0)
    names = [f"x.{name}" for name in inputs] + ["one", *dict.fromkeys(slot for h in heads for slot in h.writes)]
    names += [f"{kind}{k + 1}" for kind in ("slope", "offset") for k in range(axes)]
    names += dict.fromkeys(slot for t in tables for slot in t.columns)
    names += [f"gate{g}" for g in range(len(tables) + 1)]
    at = {name: k for k, name in enumerate(names)}
    width, tokens = len(names), 1 + sum(len(t.slopes) for t in tables)
    memory = np.zeros((tokens, width))
    memory[0, [at["one"], at["gate0"]]] = 1
    fill_tables(memory, tables, at, 1)
    if not np.abs(memory).max() < float(np.finfo(dtype).max) / 2:
        raise NotProvenError(f"the numbers of a table are beyond {dtype}'s range: rescale the variables")

    def matrix(shape: tuple[int, int], entries: Entries) -> Matrix:
        return matrix_of(shape, entries, dtype)

    def made(head: HeadSpec) -> Head:
        copies = dict(zip(head.writes, tables[head.table].columns, strict=True))
        return softmax_head(head.table, head.arguments, copies, at, _gate(tables, head.reach, dtype), dtype)

    layers = 1 + max((head.block for head in heads), default=0)
    blocks = [Block(Attention(tuple(made(h) for h in heads if h.block == b)), None) for b in range(layers)]
    return Weights(
        inputs=tuple(inputs),
        slots=tuple(names),
        tokens=tokens,
        embedding=matrix((tokens * width, len(inputs)), [(at[f"x.{name}"], k, 1) for k, name in enumerate(inputs)]),
        memory=dense_matrix(memory, dtype),
        blocks=tuple(blocks),
        readout=matrix(
            (len(readout), tokens * width),
            [(o, at[s], v) for o, (form, _) in enumerate(readout) for s, v in form.items()],
        ),
        bias=matrix((len(readout), 1), [(o, 0, constant) for o, (_, constant) in enumerate(readout)]),
        dtype=dtype,
    )


def places(heads: Sequence[HeadSpec]) -> list[tuple[int, int]]:
    """[block, head] of each, as `assembled` lays them out."""
    seen: dict[int, int] = {}
    found = []
    for head in heads:
        found.append((head.block, seen.get(head.block, 0)))
        seen[head.block] = found[-1][1] + 1
    return found


def _gate(tables: Sequence[Tokens], reach: Sequence[float], dtype: str) -> float:
    """The gate of a head: arguments may go half as far again as ``reach``."""
    most = 0.0
    for table in tables:
        axes = min(len(reach), table.slopes.shape[1])
        scores = np.abs(table.offsets[:, :axes]) + np.asarray(reach[:axes]) * np.abs(table.slopes[:, :axes])
        most = max(most, float(scores.sum(axis=1).max()))
    return gate_below(1.5 * most, dtype)
