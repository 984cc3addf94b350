"""A planned circuit as weights: tokens, slots and matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

from transformula.compiler.evidence.planned_ranges import Interval, largest
from transformula.compiler.lower.lowered_circuit import LoweredCircuit
from transformula.compiler.one_layer_parts import midpoint
from transformula.compiler.softmax_layout import GATE_MARGIN
from transformula.errors import NotProvenError
from transformula.kernel.enclosures.balls import enclose, to_fmpq
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.kernel.structures.stored_circuit import LinearForm, Wire
from transformula.runtime.matrices import dense_matrix, matrix_of


@dataclass
class Node:
    """The planner's facts about one wire."""

    wire: Wire
    time: int  # half-layers: odd for tables, even for ReLUs
    ends: Interval  # range of the argument
    size: float  # sup|meaning|
    slope: float  # sup|f'|, or a stand-in where that is infinite
    reads: list[tuple[int, float]] = field(default_factory=list)
    sensitivity: float = 0.0
    share: float = 0.0
    most: float = math.inf  # of error that those who read it can do with
    drift: float = 0.0  # about how far errors will move the argument
    singular: bool = False
    scale: Fraction = Fraction(1)  # the head reads scale · argument
    held: Fraction = Fraction(1)  # the wire holds held · meaning

    @property
    def is_table(self) -> bool:
        """Whether attention computes the wire."""
        return self.wire.function is not None


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Slopes, offsets and values of a table's tokens."""

    slopes: Any
    offsets: Any
    values: Any


class Layout:
    """Tokens, slots and matrices of the circuit."""

    def __init__(
        self,
        lowered: LoweredCircuit,
        nodes: dict[int, Node],
        tables: dict[int, tuple[object, NodeTable]],
        dtype: str,
        positions: int,
        inputs: tuple[str, ...],
    ) -> None:
        circuit = lowered.circuit
        self.circuit, self.layers = circuit, lowered.layers
        self.nodes, self.tables = nodes, tables
        self.dtype = dtype
        self.positions, self.inputs = positions, inputs
        self.repeated = len(circuit.variables) < len(inputs)
        self.shared: dict[object, tuple[int, NodeTable]] = {}
        for key, table in tables.values():
            self.shared.setdefault(key, (len(self.shared) + 1, table))
        names = [f"x.{name}" for name in circuit.variables] + ["one"]
        names += [f"w{k}" for k in nodes] + ["slope", "offset", "value"]
        names += [f"gate{g}" for g in range(len(self.shared) + 1)]
        self.slots = tuple(names)
        self.index = {name: k for k, name in enumerate(names)}
        self.tokens = positions + sum(len(t.slopes) for _, t in self.shared.values())

    @property
    def places(self) -> dict[int, list[int]]:
        """[block, head, column] of every table, [block, unit, position] of every ReLU."""
        found: dict[int, list[int]] = {}
        for number in range(1, self.layers + 1):
            for time in (2 * number - 1, 2 * number):
                wires = [k for k, n in self.nodes.items() if n.time == time]
                found |= {k: [number - 1, place, 0] for place, k in enumerate(wires)}
        return found

    def weights(self) -> Weights:
        """Everything as plain data."""
        circuit, width = self.circuit, len(self.slots)
        forms = [self._form(output) for output in circuit.outputs]
        forms = forms * self.positions if self.repeated else forms
        outputs, step = len(forms), len(circuit.variables) if self.repeated else 0
        embedding = [
            (p * width + self.index[f"x.{n}"], p * step + k, 1)
            for p in range(self.positions)
            for k, n in enumerate(circuit.variables)
        ]
        one, own = self.index["one"], outputs // self.positions
        readout = [(o, o // own * width + slot, v) for o, form in enumerate(forms) for slot, v in form if slot != one]
        bias = [(o, 0, v) for o, form in enumerate(forms) for slot, v in form if slot == one]
        return Weights(
            inputs=self.inputs,
            slots=self.slots,
            tokens=self.tokens,
            embedding=self._matrix((self.tokens * width, len(self.inputs)), embedding),
            memory=dense_matrix(self._checked(self._memory()), self.dtype),
            blocks=tuple(self._block(k) for k in range(1, self.layers + 1)),
            readout=self._matrix((outputs, self.tokens * width), readout),
            bias=self._matrix((outputs, 1), bias),
            dtype=self.dtype,
        )

    def _checked(self, numbers: Any) -> Any:
        """Numbers that are finite in the format."""
        if not np.abs(numbers).max() < float(np.finfo(self.dtype).max) / 2:
            raise NotProvenError(f"the values of a table are beyond {self.dtype}'s range: use a smaller box")
        return numbers

    def _matrix(self, shape: tuple[int, int], entries: list[tuple[int, int, Any]]) -> Matrix:
        return matrix_of(shape, entries, self.dtype)

    def _form(self, linear: LinearForm, scale: Fraction = Fraction(1)) -> list[tuple[int, fmpq]]:
        """scale · linear as coefficients of slots, which may hold multiples of their meanings."""
        factor = to_fmpq(scale)
        entries = []
        linear, _ = self.circuit.written_out(linear)
        for k, coefficient in linear.terms:
            name = f"w{k}" if k in self.nodes else f"x.{self.circuit.variables[k]}"
            held = to_fmpq(1 / self.nodes[k].held) if k in self.nodes else fmpq(1)
            if not enclose(coefficient).contains(0):  # else it cancels, though not to the last digit
                entries.append((self.index[name], midpoint(coefficient) * factor * held))
        return [*entries, (self.index["one"], midpoint(linear.constant) * factor)]

    def _memory(self) -> Any:
        memory = np.zeros((self.tokens, len(self.slots)))
        memory[: self.positions, [self.index["one"], self.index["gate0"]]] = 1
        start = self.positions
        for mark, table in self.shared.values():
            rows = slice(start, start + len(table.slopes))
            for name in ("slope", "offset", "value"):
                memory[rows, self.index[name]] = getattr(table, name + "s")
            memory[rows, self.index[f"gate{mark}"]] = 1
            start = rows.stop
        return memory

    def _block(self, number: int) -> Block:
        heads = [self._head(k) for k, n in self.nodes.items() if n.time == 2 * number - 1]
        bends = [k for k, n in self.nodes.items() if n.time == 2 * number]
        return Block(Attention(tuple(heads)), self._feed_forward(bends) if bends else None)

    def _head(self, k: int) -> Head:
        node = self.nodes[k]
        width, one = len(self.slots), self.index["one"]
        own, _ = self.shared[self.tables[k][0]]
        query: list[tuple[int, int, Any]] = [(1, one, 1), (2, one, 1)]
        query += [(0, slot, v) for slot, v in self._form(node.wire.arguments[0], node.scale)]
        key: list[tuple[int, int, Any]] = [(0, self.index["slope"], 1), (1, self.index["offset"], 1)]
        key += [(2, self.index[f"gate{g}"], self._gate()) for g in range(len(self.shared) + 1) if g != own]
        value = [(self.index[f"w{k}"], self.index["value"], 1)]
        return Head(
            self._matrix((3, width), query),
            self._matrix((3, width), key),
            self._matrix((width, width), value),
        )

    def _gate(self) -> float:
        """Low enough that no token of another table scores within `GATE_MARGIN` of a head's own."""
        far = max((largest(n.ends) + 2 * n.drift) * float(n.scale) for n in self.nodes.values())
        tables = [t for _, t in self.shared.values()]
        reach = max(float((np.abs(t.offsets) + 2 * far * np.abs(t.slopes)).max()) for t in tables)
        return -(2.0 ** math.ceil(math.log2(2 * reach + GATE_MARGIN)))  # a power of two: exact in any format

    def _feed_forward(self, bends: list[int]) -> FeedForward:
        width = len(self.slots)
        hidden = []
        for unit, k in enumerate(bends):
            hidden += [(unit, slot, v) for slot, v in self._form(self.nodes[k].wire.arguments[0])]
        output = [(self.index[f"w{k}"], unit, 1) for unit, k in enumerate(bends)]
        return FeedForward(
            self._matrix((len(bends), width), hidden),
            self._matrix((len(bends), 1), []),
            self._matrix((width, len(bends)), output),
            self._matrix((width, 1), []),
        )
