"""A circuit as text: the sub-expression of each table, level by level; `architecture` draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flint import fmpq

from transformula.compiler.constructions import CIRCUIT_FAMILY
from transformula.compiler.table_reading import CircuitBlock, TableHead
from transformula.errors import InputError
from transformula.internals import summands
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.structures.network import HeadTable
from transformula.kernel.structures.stored_circuit import Circuit, LinearForm, Wire, single
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, short_text
from transformula.model import Model
from transformula.show.page_parts import counted, cut
from transformula.show.slices import own_tokens

#: Length in characters at which a text is cut.
LONGEST = 72


@dataclass(frozen=True)
class Item:
    """One box of the drawing: an input, a table, a ReLU, a length (many ReLUs) or an output."""

    name: str
    kind: str
    column: int
    title: str  # its function of u
    argument: str  # u as a form of the wires it reads
    reads: tuple[str, ...]
    meaning: str
    ends: tuple[float, float] | None = None
    tokens: int = 0
    table: int | None = None

    @property
    def note(self) -> str:
        """The second line of its box."""
        if self.kind != "table":
            return ""
        return f"{counted(self.tokens, 'token')}, table {self.table}"

    @property
    def range(self) -> str:
        """The ends as text; an end that is zero but for rounding is shown as zero."""
        if self.ends is None:
            return ""
        tiny = 1e-15 * (self.ends[1] - self.ends[0])
        low, high = (0.0 if abs(end) < tiny else end + 0.0 for end in self.ends)
        return f"{low:.4g}..{high:.4g}"


def circuit_items(model: Model) -> list[Item]:
    """Inputs, wires and outputs; columns are half-layers: attention, then feed-forward."""
    if model.family is not CIRCUIT_FAMILY:
        raise InputError(f"only circuits can be drawn, and this is not one: its construction is {model.construction}")
    return _Drawn(model).items()


class _Drawn:
    """The stored circuit with the names that its wires have in the weights."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.circuit = model.circuit
        self.wires = model.wires
        self.tables = table_numbers(model)
        self.units = {k for wire in self.circuit.wires if wire.is_norm for k, _ in wire.parts}
        self.names = [*self.circuit.variables]
        for k, wire in list(enumerate(self.circuit.wires))[len(self.names) :]:
            self.names.append(self._slot(wire) if wire.place is not None else f"n{k}")

    def _slot(self, wire: Wire) -> str:
        """The slot that a wire is written to."""
        assert wire.place is not None
        block: CircuitBlock = self.model.reading.blocks[wire.place[0]]
        if wire.function is not None:
            return self.model.weights.slots[block.heads[wire.place[1]].slots[0]]
        return self.model.weights.slots[next(iter(block.units[wire.place[1]]))]

    def items(self) -> list[Item]:
        circuit, model = self.circuit, self.model
        ends = model.position_formula.box.floats()
        items = [Item(name, "input", 0, name, "", (), name, ends[k]) for k, name in enumerate(circuit.variables)]
        for k, wire in list(enumerate(circuit.wires))[len(items) :]:
            if wire.is_norm:
                items.append(self._length(k, wire))
            elif wire.place is not None and k not in self.units:
                items.append(self._wire(k, wire))
            # a product is drawn as its squares, a length as one box
        last = max(item.column for item in items) + 1
        texts = model.position_formula.texts
        for o, (linear, text) in enumerate(zip(circuit.outputs, texts, strict=True)):
            name = f"output {o}" if len(circuit.outputs) > 1 else "output"
            items.append(Item(name, "output", last, name, *self._read([linear]), text))
        return items

    def _wire(self, k: int, wire: Wire) -> Item:
        assert wire.place is not None
        argument, reads = self._read(wire.arguments)
        meaning, ends = short_text(self.wires.meanings[k]), self.wires.arguments.get(k)
        block, place = wire.place[:2]
        if wire.function is None:
            return Item(self.names[k], "ReLU", 2 * block + 2, "ReLU(u)", argument, reads, meaning, ends)
        head = self.model.reading.blocks[block].heads[place]
        return Item(
            self.names[k], "table", 2 * block + 1, str(wire.function), argument, reads, meaning, ends,
            head.tokens, self.tables[head.columns[0]],
        )  # fmt: skip

    def _length(self, k: int, wire: Wire) -> Item:
        unit, measure = self.circuit.wires[wire.parts[-1][0]], wire.measure
        assert unit.place is not None and measure is not None
        title = f"length by {measure.units - 2} folds"
        meaning = short_text(self.wires.meanings[k])
        argument, reads = self._read(wire.arguments)
        return Item(self.names[k], "length", 2 * unit.place[0] + 2, title, argument, reads, meaning)

    def _read(self, linears: Sequence[LinearForm]) -> tuple[str, tuple[str, ...]]:
        """Forms as text, and the names of what they read."""
        written = [_without_products(self.circuit, linear) for linear in linears]
        names = dict.fromkeys(self.names[k] for linear in written for k, _ in linear.terms)
        return ", ".join(_form(linear, self.names) for linear in written), tuple(names)


def _without_products(circuit: Circuit, linear: LinearForm) -> LinearForm:
    """The form with products replaced by the squares that the weights hold; lengths stay."""
    totals = {k: wire.total for k, wire in enumerate(circuit.wires) if not wire.is_norm}
    while any(totals.get(k) for k, _ in linear.terms):
        parts = [(ex.number(1), LinearForm((), linear.constant))]
        for k, c in linear.terms:
            total = totals.get(k)
            parts.append((c, single(k) if total is None else total))
        linear = LinearForm.sum(parts)
    return linear


def table_numbers(model: Model) -> dict[HeadTable, int]:
    """Tables in the order of their tokens."""
    first = {}
    for block, read in zip(model.weights.blocks, model.reading.blocks, strict=True):
        for head, found in zip(block.attention.heads, read.heads, strict=True):
            first[found.columns[0]] = int(own_tokens(head, model.weights).min(initial=model.tokens))
    return {table: k for k, table in enumerate(sorted(first, key=lambda table: first[table]))}


def _form(linear: LinearForm, names: Sequence[str]) -> str:
    constant = _number(linear.constant)
    terms = [(_number(c), names[k]) for k, c in linear.terms]
    return _joined(terms + ([(constant, "")] if constant else []))


def _joined(terms: Sequence[tuple[float, str]]) -> str:
    """Σ coefficient·name with short numbers: for reading, not for computing."""
    text = ""
    for value, name in terms:
        size = f"{abs(value):.4g}"
        piece = size if not name else name if size == "1" else f"{size} {name}"
        sign = "-" if value < 0 else "+"
        text += f" {sign} {piece}" if text else piece if value >= 0 else f"-{piece}"
    return text or "0"


def _number(constant: Expr) -> float:
    return float(enclose(constant).mid())


def circuit_lines(model: Model, longest: int = LONGEST) -> list[str]:
    """The circuit as an indented list: a line for each half of a block, one for each of its tables and ReLUs.

    Texts are cut to ``longest`` characters.
    """
    items = circuit_items(model)
    lines = []
    for column in sorted({item.column for item in items} - {0}):
        level = [item for item in items if item.column == column]
        for k, item in enumerate(level):
            if k == 0:
                lines.append(level_name(item))
            branch = "└─" if item is level[-1] else "├─"
            lines.append(f"{branch} {_line(item, longest)}")
    return lines


def level_name(item: Item) -> str:
    """The heading of an item's column."""
    if item.kind == "input":
        return "inputs"
    if item.kind == "output":
        return "readout"
    part = "attention" if item.kind == "table" else "feed-forward"
    return f"block {(item.column - 1) // 2}, {part}"


def _line(item: Item, longest: int) -> str:
    if item.kind == "output":
        return f"{item.name} = {item.argument}"
    if item.kind == "length":
        return f"{item.name} = {item.title} of ({cut(item.argument, longest)}): {cut(item.meaning, longest)}"
    place = f"u = {cut(item.argument, longest)}"
    if item.ends is not None:
        place += f" in {item.range}"
    note = f" ({item.note})" if item.note else ""
    return f"{item.name} = {item.title}, {place}{note}: {cut(item.meaning, longest)}"


def table_lines(model: Model, longest: int = LONGEST) -> list[str]:
    """A line for every head of a one-layer model: its table's tokens, and its summand where that is clear."""
    heads = model.reading
    known = summands(model.formula, len(heads))
    return [
        f"head {k}: {counted(head.tokens, 'token')} on {_axes(head, model, longest)}"
        + (f": {cut(text, longest)}" if text else "")
        for k, (head, text) in enumerate(zip(heads, known, strict=True))
    ]


def _axes(head: TableHead, model: Model, longest: int) -> str:
    names = model.weights.inputs
    return " and ".join(cut(linear_text(form, names), longest) for form in head.forms)


def linear_text(form: Mapping[int, fmpq], names: Sequence[str]) -> str:
    """Σ coefficient·name of a stored form, with short numbers."""
    return _joined([(int(c.p) / int(c.q), names[k]) for k, c in form.items()])
