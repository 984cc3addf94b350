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

from collections.abc import Sequence
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


@dataclass(frozen=True, eq=False)
class TableSpec:
    """A table for one head: slopes and offsets are tokens × axes, values tokens × its outputs."""

    forms: tuple[Form, ...]
    slopes: FloatArray
    offsets: FloatArray
    values: FloatArray
    outputs: tuple[int, ...]
    ranges: tuple[tuple[float, float], ...]  # of the forms on the box: the gate must exceed the scores


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
    return _Assembler(spec).weights()


class _Assembler:
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
        start = self.positions
        for h, table in enumerate(self.spec.tables):
            rows = slice(start, start + len(table.slopes))
            for k in range(len(table.forms)):
                memory[rows, self.index[f"slope{k + 1}"]] = table.slopes[:, k]
                memory[rows, self.index[f"offset{k + 1}"]] = table.offsets[:, k]
            for column, output in enumerate(table.outputs):
                memory[rows, self.index[f"value{output + 1}"]] = table.values[:, column]
            memory[rows, self.index[f"gate{h + 1}"]] = 1
            start = rows.stop
        return memory

    def _heads(self) -> tuple[Head, ...]:
        spec, width = self.spec, len(self.slots)
        gate = self._gate()
        heads = []
        for h, table in enumerate(spec.tables):
            rows = 2 * len(table.forms) + 1
            query: Entries = [(rows - 1, self.index["one"], 1)]
            key: Entries = [(rows - 1, self.index[f"gate{g}"], gate) for g in range(len(spec.tables) + 1) if g != h + 1]
            for k, form in enumerate(table.forms):
                query += [
                    (2 * k, self.index[f"x.{name}"], to_fmpq(v)) for name, v in zip(spec.inputs, form, strict=True)
                ]
                query.append((2 * k + 1, self.index["one"], 1))
                key += [(2 * k, self.index[f"slope{k + 1}"], 1), (2 * k + 1, self.index[f"offset{k + 1}"], 1)]
            value = [(self.index[f"y{o + 1}"], self.index[f"value{o + 1}"], 1) for o in table.outputs]
            heads.append(
                Head(
                    self._matrix((rows, width), query),
                    self._matrix((rows, width), key),
                    self._matrix((width, width), value),
                )
            )
        return tuple(heads)

    def _gate(self) -> float:
        """What no score can make up for: a whole number, or a power of two where the format has not all of these."""
        gate = float(np.ceil(2 * self._score_reach() + GATE_MARGIN))
        return -gate if float(np.dtype(self.spec.dtype).type(gate)) == gate else -power_of_two(gate)

    def _score_reach(self) -> float:
        """The largest |score| any head gives to any token, without gates."""
        tables = self.spec.tables
        far = max((abs(end) for t in tables for pair in t.ranges for end in pair), default=0.0)
        with np.errstate(over="ignore"):
            scores = [np.abs(t.offsets).sum(axis=1) + far * np.abs(t.slopes).sum(axis=1) for t in tables]
        reach = max((float(s.max()) for s in scores), default=0.0)
        if not reach < float(np.finfo(self.spec.dtype).max) / 8:
            raise NotProvenError(f"the scores of a table are beyond {self.spec.dtype}'s range: rescale the variables")
        return reach

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
        spec, width = self.spec, len(self.slots)
        units: list[tuple[Entries, Any, Entries]] = []
        for relu in spec.relus:
            reads, slot = self._inside(relu.form), f"y{relu.output + 1}"
            bias = relu.constant
            if spec.shape:
                p, c = divmod(relu.output, spec.shape[1])
                limit = power_of_two(relu.reach)
                reads.append((0, self.index[f"position{p + 1}"], limit))
                bias, slot = bias - to_rational(limit), f"out{c + 1}"
            units.append((reads, bias, [(self.index[slot], 0, relu.coefficient)]))
        if spec.shape:
            limit = power_of_two(spec.reach)
            for o, (form, constant) in enumerate(spec.affine):
                p, c = divmod(o, spec.shape[1])
                out = self.index[f"out{c + 1}"]
                reads = self._inside(form)
                reads += [(0, self.index[f"y{o + 1}"], 1), (0, self.index[f"position{p + 1}"], 2 * limit)]
                units.append((reads, constant - to_rational(limit), [(out, 0, 1)]))
                # − R e_p: a unit that is R at position p and 0 elsewhere
                units.append(([(0, self.index[f"position{p + 1}"], limit)], 0, [(out, 0, -1)]))
        if not units:
            return None
        hidden = [(u, c, v) for u, (reads, _, _) in enumerate(units) for _, c, v in reads]
        bias_entries = [(u, 0, b) for u, (_, b, _) in enumerate(units)]
        output = [(r, u, v) for u, (_, _, writes) in enumerate(units) for r, _, v in writes]
        return FeedForward(
            self._matrix((len(units), width), hidden),
            self._matrix((len(units), 1), bias_entries),
            self._matrix((width, len(units)), output),
            self._matrix((width, 1), []),
        )

    def _inside(self, form: Sequence[fmpq]) -> Entries:
        return [(0, self.index[f"x.{name}"], v) for name, v in zip(self.spec.inputs, form, strict=True) if v != 0]


def power_of_two(bound: float) -> float:
    """A power of two above a bound: exact in every format."""
    return float(2.0 ** np.ceil(np.log2(max(bound, 2.0**-100) * 1.0001)))
