"""Softmax models of any depth, read out of the weights entry by entry.

The data tokens come first. Each slot of a data token is always a linear form of *wires*: the inputs, what a
head read from a table, and what a hidden unit made of its argument. The layout that makes this true is
checked, not assumed:

* no slot that a key or a value reads is ever written or carries an input, so keys and values are constants;
* a head's query rows come in pairs, (a linear form of the stream, the constant 1) for each axis, and a last
  row that reads the constant 1; its keys read one slot each: slope, offset, .., and a gate. So token j's
  score is

      Σ_axes (slope_j · u + offset_j) + gate_j,       gate_j = 0 for the head's own tokens;

* values are copied unchanged into slots of the stream, and every head writes at least one;
* an output reads one position only: the same wire may be rounded differently at another.

*Roundings.* A product with a power of two is exact, with another float it is rounded once, and with a float that stands
for a rational three times: once itself, and twice for the stored number, which is within 1.01u of the
rational (`formats.check_stored`). A sum of n numbers, in any order, rounds each at most n − 1 times
(Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1). A product that underflows is off by
at most the format's smallest number; sums do not underflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flint import fmpq

from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.folder.weights import Block, Head, Matrix, Weights
from transformula.kernel.rounding.formats import FORMATS, FloatFormat
from transformula.kernel.structures.stored_circuit import Place

#: The wire that is always 1.
ONE = -1


@dataclass(frozen=True)
class Term:
    """coefficient · wire; ``size`` bounds |coefficient| of every partial sum, ``roundings`` counts them."""

    coefficient: fmpq
    size: fmpq
    roundings: int


@dataclass(frozen=True)
class WireForm:
    """Σ terms; ``underflow`` is how many smallest numbers the computed form may be off by."""

    terms: Mapping[int, Term] = field(default_factory=dict)
    underflow: fmpq = field(default_factory=fmpq)

    def times(self, factor: fmpq, roundings: int) -> WireForm:
        """The form times a stored number."""
        size = abs(factor)
        terms = {k: Term(t.coefficient * factor, t.size * size, t.roundings + roundings) for k, t in self.terms.items()}
        lost = fmpq((self.underflow * size).ceil())  # whole numbers: sums of long rationals are longer still
        return WireForm(terms, lost + (1 if roundings or size < 1 else 0))

    @property
    def constant(self) -> fmpq | None:
        """Its value, if no wire but ONE occurs."""
        if set(self.terms) <= {ONE}:
            return self.terms[ONE].coefficient if self.terms else fmpq(0)
        return None


#: The form of an empty slot.
ZERO = WireForm()


def total(forms: Iterable[WireForm]) -> WireForm:
    """The computed sum of computed forms; forms without terms are zero and cost nothing."""
    parts = [form for form in forms if form.terms]
    if not parts:
        return ZERO
    adds = max(len(parts) - 1, 0)
    terms: dict[int, Term] = {}
    for form in parts:
        for k, t in form.terms.items():
            other = terms.get(k, Term(fmpq(0), fmpq(0), 0))
            roundings = max(other.roundings, t.roundings + adds)
            terms[k] = Term(other.coefficient + t.coefficient, other.size + t.size, roundings)
    return WireForm(terms, sum((form.underflow for form in parts), fmpq(0)))


def wire_form(wire: int) -> WireForm:
    """One wire as it is."""
    return WireForm({wire: Term(fmpq(1), fmpq(1), 0)})


def roundings(value: fmpq, form: FloatFormat) -> int:
    """Number of roundings of a product with this stored number."""
    if not form.holds(value):
        return 3
    p, q = abs(int(value.p)), int(value.q)
    return 0 if p & (p - 1) == 0 and q & (q - 1) == 0 else 1


@dataclass(frozen=True, eq=False)
class HeadTable:
    """A head's tokens: slopes and offsets (M, axes), values (M,); and all other tokens, with their gates."""

    slopes: Floats
    offsets: Floats
    values: Floats
    foreign_slopes: Floats
    foreign_offsets: Floats
    foreign_values: Floats
    gates: Floats


@dataclass(frozen=True)
class NetworkWire:
    """A table read at its arguments, or (without a table) ReLU of its one argument."""

    place: Place
    arguments: tuple[WireForm, ...]
    table: HeadTable | None = None


@dataclass(frozen=True, eq=False)
class Network:
    """The function of the weights: wire k is an input for k < inputs, then ``wires`` in order.

    ``held`` is all that slots and hidden units ever hold, read or not: an infinity there would spread to others,
    as a dense product multiplies it by zero. If ``repeated`` the positions of a sequence all compute the same from
    their own inputs, and inputs and outputs are those of one position.
    """

    inputs: int
    wires: tuple[NetworkWire, ...]
    outputs: tuple[WireForm, ...]
    held: tuple[WireForm, ...]
    positions: int
    repeated: bool
    blocks: int


def rows_of(matrix: Matrix) -> list[list[tuple[int, fmpq]]]:
    """The entries of every row: (column, rational) pairs."""
    rows: list[list[tuple[int, fmpq]]] = [[] for _ in range(matrix.shape[0])]
    for row, column, value in matrix.entries():
        rows[row].append((column, value))
    return rows


def column_of(matrix: Matrix) -> dict[int, fmpq]:
    """The entries of a matrix of one column, by row."""
    return {row: value for row, _, value in matrix.entries()}


#: tokens × width of the dense constants: at most 160 MB.
MAX_CONSTANTS = 20_000_000
MAX_AXES = 64
MAX_UNITS = 100_000

#: A form as it is read by a row of a "query" (block, head, row), "hidden" (block, unit) or "output" (output).
Reading = Callable[[WireForm, str, tuple[int, ...]], WireForm]


def _unchanged(form: WireForm, kind: str, place: tuple[int, ...]) -> WireForm:
    return form


def read_network(weights: Weights, reading: Reading = _unchanged) -> Network:
    """Read the wires, or raise `RefutedError` naming what is out of place.

    ``reading`` adds what a norm in front of every reader rounds (`export.norm_rounding`).
    """
    return _NetworkReader(weights, reading).read()


def _require(condition: object, message: str) -> None:
    if not condition:
        raise RefutedError(f"the weights are not a table Transformer: {message}")


class _NetworkReader:
    def __init__(self, weights: Weights, reading: Reading = _unchanged) -> None:
        self.weights = weights
        self.reading = reading
        self.form = FORMATS[weights.dtype]
        self.positions = len(weights.data_tokens)
        leading = list(range(self.positions))
        _require(leading and weights.data_tokens.tolist() == leading, "the data tokens do not lead")
        _require(weights.tokens * weights.width <= MAX_CONSTANTS, "it is too large")
        _require("one" in weights.slots, "there is no slot for the constant 1")
        self.one = weights.slot("one")
        _require(weights.memory.exact is None and weights.embedding.exact is None, "a token holds rationals")
        self.constants = weights.memory.dense(np.float64)
        self.wires: list[NetworkWire] = []
        self.tables: dict[object, dict[int, HeadTable]] = {}
        self.units: dict[tuple[int, int], list[tuple[WireForm, int]]] = {}
        self.held: list[WireForm] = []
        self.stored = 0

    def read(self) -> Network:
        blocks = self.weights.blocks
        self._check_constants()
        inputs, repeated = self._embedding()
        streams = [self._stream(p) for p in range(1 if repeated else self.positions)]
        self.held += [form for stream in streams for form in stream if form.terms]
        for b, block in enumerate(blocks):
            _require(block.attention.kind == "softmax" and block.attention.scale == 1, "not plain softmax")
            streams = self._attended(b, block, streams)
            streams = [self._bent(b, block, p, stream) for p, stream in enumerate(streams)]
        outputs = self._readout(streams, repeated)
        return Network(inputs, tuple(self.wires), outputs, tuple(self.held), self.positions, repeated, len(blocks))

    def _check_constants(self) -> None:
        """Keys and values read only slots that no head, unit or input writes."""
        answered: set[int] = {self.one}
        written: set[int] = set((self.weights.embedding.rows % self.weights.width).tolist())
        for block in dict.fromkeys(self.weights.blocks):  # those of a loop once
            for head in block.attention.heads:
                _require(head.output is None and head.key.exact is None, "a key or value is not a table's")
                answered |= {*head.key.cols.tolist(), *head.value.cols.tolist()}
                written |= set(head.value.rows.tolist())
            if (layer := block.feed_forward) is not None:
                _require(layer.hidden.shape[0] <= MAX_UNITS, "it has too many hidden units")
                written |= {*layer.output.rows.tolist(), *layer.output_bias.rows.tolist()}
        _require(not answered & written, "a slot that keys or values read is written")
        ones = self.constants[:, self.one]
        _require(bool(np.all(ones[: self.positions] == 1)), "the constant 1 is not 1")
        _require(not ones[self.positions :].any(), "a memory token carries the constant 1")

    def _embedding(self) -> tuple[int, bool]:
        """Number of inputs that a position reads, and whether every position has its own."""
        weights = self.weights
        carried: list[dict[int, int]] = [{} for _ in range(self.positions)]
        for row, column, value in weights.embedding.entries():
            token, slot = divmod(row, weights.width)
            _require(value == 1 and slot not in carried[token], "an input is scaled or shares its slot")
            carried[token][slot] = column
        first, count = carried[0], len(weights.inputs)
        _require(sorted(first.values()) == list(range(len(first))), "the inputs are not carried once each")
        repeated = self.positions > 1 and len(first) * self.positions == count
        _require(repeated or len(first) == count, "a data token does not carry its inputs")
        for p, own in enumerate(carried):
            shift = p * len(first) if repeated else 0
            _require(own == {slot: c + shift for slot, c in first.items()}, "positions carry other inputs")
        if repeated:
            data = self.constants[: self.positions]
            _require(bool(np.all(data == data[0])), "positions of a repeated circuit differ")
        self.carried = first
        return len(first), repeated

    def _stream(self, position: int) -> list[WireForm]:
        stream = [self._number(fmpq(*v.as_integer_ratio())) if v else ZERO for v in self.constants[position].tolist()]
        for slot, column in self.carried.items():
            _require(not stream[slot].terms, "an input shares its slot with a constant")
            stream[slot] = wire_form(column)
        return stream

    def _number(self, value: fmpq) -> WireForm:
        return WireForm({ONE: Term(value, abs(value), 0)}) if value != 0 else ZERO

    def _dot(self, row: Sequence[tuple[int, fmpq]], stream: Sequence[WireForm], bias: fmpq) -> WireForm:
        return total(self._products(row, stream, bias))

    def _products(self, row: Sequence[tuple[int, fmpq]], stream: Sequence[WireForm], bias: fmpq) -> list[WireForm]:
        """The summands of a dot product; a bias that stands for a rational is off like one of its products."""
        products = [stream[slot].times(value, roundings(value, self.form)) for slot, value in row]
        if bias != 0:
            products.append(self._number(bias).times(fmpq(1), 2 if roundings(bias, self.form) == 3 else 0))
        return products

    def _attended(self, b: int, block: Block, streams: list[list[WireForm]]) -> list[list[WireForm]]:
        written: dict[int, list[int]] = {}
        for h, head in enumerate(block.attention.heads):
            rows = head.query.shape[0]
            _require(rows % 2 == 1 and 3 <= rows <= 2 * MAX_AXES + 1, "a query has a wrong number of rows")
            query = rows_of(head.query)
            for k in (*range(1, rows, 2), rows - 1):
                _require(query[k] == [(self.one, fmpq(1))], "a query row does not read 1")
            asked = [
                [self.reading(self._dot(query[k], s, fmpq(0)), "query", (b, h, k)) for k in range(0, rows - 1, 2)]
                for s in streams
            ]
            _require(all(forms == asked[0] for forms in asked), "positions ask a head different things")
            tables = self._tables(head)
            _require(tables, "a head writes nothing")
            for column, (slot, table) in enumerate(tables):
                wire = self._add(NetworkWire((b, h, column), tuple(asked[0]), table))
                written.setdefault(slot, []).append(wire)
        result = []
        for stream in streams:
            new = {slot: total([stream[slot], *map(wire_form, read)]) for slot, read in written.items()}
            self.held += new.values()
            result.append([new.get(slot, form) for slot, form in enumerate(stream)])
        return result

    def _add(self, wire: NetworkWire) -> int:
        self.wires.append(wire)
        return len(self.carried) + len(self.wires) - 1

    def _tables(self, head: Head) -> list[tuple[int, HeadTable]]:
        """For every slot the head writes: its table."""
        _require(head.key.shape[0] == head.query.shape[0], "query and key do not match")
        keys = rows_of(head.key)
        _require(all(len(r) == 1 and r[0][1] == 1 for r in keys[:-1]), "a key row does not read one slot")
        columns = [row[0][0] for row in keys[:-1]]
        marks = self.constants[:, [slot for slot, _ in keys[-1]]]
        _require(np.isin(marks, (0.0, 1.0)).all() and (marks.sum(axis=1) <= 1).all(), "a token passes two gates")
        gates = marks @ np.array([int(v.p) / int(v.q) for _, v in keys[-1]])  # one stored number a token: exact
        own = gates == 0
        own[: self.positions] = False
        _require(bool(own.any()), "a head has no table")
        _require(bool((head.value.values == 1).all()) and head.value.exact is None, "a value is scaled")
        targets = head.value.rows.tolist()
        _require(len(set(targets)) == len(targets), "a head writes one slot twice")
        tables = self.tables.setdefault((tuple(columns), gates.tobytes()), {})
        found = []
        for slot, source in zip(targets, head.value.cols.tolist(), strict=True):
            if source not in tables:
                self.stored += len(own) * (len(columns) + 2)
                _require(self.stored <= MAX_CONSTANTS, "it is too large")
                scores = self.constants[:, columns]
                slopes = scores[:, 0::2]
                offsets = scores[:, 1::2]
                values = self.constants[:, source]
                tables[source] = HeadTable(
                    slopes[own], offsets[own], values[own], slopes[~own], offsets[~own], values[~own], gates[~own]
                )
            found.append((slot, tables[source]))
        return found

    def _bent(self, b: int, block: Block, position: int, stream: list[WireForm]) -> list[WireForm]:
        if (layer := block.feed_forward) is None:
            return stream
        bias, added = column_of(layer.hidden_bias), column_of(layer.output_bias)
        units = []
        for unit, row in enumerate(rows_of(layer.hidden)):
            inside = self.reading(self._dot(row, stream, bias.get(unit, fmpq(0))), "hidden", (b, unit))
            value = inside.constant
            self.held += [inside] if inside.terms else []
            if value is None:
                units.append(wire_form(self._unit(b, unit, position, inside)))
            elif value > 0 or not inside.terms:
                units.append(inside)
            else:  # zero, but the computed argument may be off
                off = inside.terms[ONE]
                units.append(WireForm({ONE: Term(fmpq(0), off.size, off.roundings)}, inside.underflow))
        result = list(stream)
        for slot, row in enumerate(rows_of(layer.output)):
            if row or slot in added:
                result[slot] = total([stream[slot], *self._products(row, units, added.get(slot, fmpq(0)))])
                self.held.append(result[slot])
        return result

    def _unit(self, b: int, unit: int, position: int, inside: WireForm) -> int:
        """A hidden unit that makes the same of all positions is one wire, placed at the first."""
        for form, wire in self.units.setdefault((b, unit), []):
            if form == inside:
                return wire
        self.units[b, unit].append((inside, self._add(NetworkWire((b, unit, position), (inside,)))))
        return self.units[b, unit][-1][1]

    def _readout(self, streams: list[list[WireForm]], repeated: bool) -> tuple[WireForm, ...]:
        weights = self.weights
        rows: list[list[tuple[int, int, fmpq]]] = [[] for _ in range(weights.outputs)]
        for row, column, value in weights.readout.entries():
            token, slot = divmod(column, weights.width)
            _require(token < self.positions, "the readout uses a memory token")
            rows[row].append((token, slot, value))
        _require(all(len({token for token, _, _ in row}) < 2 for row in rows), "an output reads two positions")
        bias = column_of(weights.bias)
        if repeated:
            own = weights.outputs // self.positions
            _require(own * self.positions == weights.outputs, "positions have different numbers of outputs")
            for o in range(weights.outputs):
                here = [(slot, value) for token, slot, value in rows[o] if token == o // own]
                first = [(slot, value) for _, slot, value in rows[o % own]]
                same = len(here) == len(rows[o]) and here == first and bias.get(o) == bias.get(o % own)
                _require(same, "the positions are read differently")
            rows = rows[:own]
        forms = (
            self._dot([(s, v) for _, s, v in row], streams[row[0][0] if row else 0], bias.get(o, fmpq(0)))
            for o, row in enumerate(rows)  # of one position each
        )
        return tuple(self.reading(form, "output", (o,)) for o, form in enumerate(forms))
