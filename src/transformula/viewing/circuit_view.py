"""A circuit drawn: which sub-expression each table is, level by level, as text and as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from flint import fmpq

from transformula.errors import InputError
from transformula.formulas.circuits import Circuit
from transformula.formulas.enclosures import enclose
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.formulas.wires import Linear, Norm, Wire
from transformula.inside import summands
from transformula.model import Model
from transformula.taylor.box_ranges import BoxRanges
from transformula.transformers.circuit import read_circuit
from transformula.transformers.one_layer import TableHead, read_heads

_LONGEST = 72
_COLUMN, _ROW, _BOX, _HEIGHT, _MARGIN = 230, 56, 170, 42, 30
_COLOURS = {
    "input": "#dbe9f6",
    "table": "#fde8c8",
    "ReLU": "#d9efd5",
    "length": "#d9efd5",
    "output": "#eadcf4",
}


@dataclass(frozen=True)
class Item:
    """One box of the drawing: an input, a table, a ReLU, a length (many ReLUs) or an output."""

    name: str
    kind: str
    column: int
    title: str  # what it does to u
    argument: str  # u as a form of what it reads
    reads: tuple[str, ...]
    meaning: str
    ends: tuple[float, float] | None = None
    tokens: int = 0
    table: int = 0

    @property
    def note(self) -> str:
        """The second line of its box."""
        if self.kind != "table":
            return ""
        return f"{self.tokens} tokens, table {self.table}"


def circuit_items(model: Model) -> list[Item]:
    """Inputs, wires and outputs; columns are half-layers: attention, then feed-forward."""
    if model.construction != "circuit" or not isinstance(model.formula, Formula):
        raise InputError(f"a {model.construction} model is no circuit: only circuits can be drawn")
    circuit = model.circuit
    ranges = BoxRanges(model.box)
    network = read_circuit(model.weights)
    heads = {model.weights.slots[h.slot]: h for block, _ in network.blocks for h in block}
    tables = {mark: k + 1 for k, mark in enumerate(sorted({h.table for h in heads.values()}))}
    names = [*circuit.variables, *(f"w{k}" for k in range(len(circuit.variables), len(circuit.wires)))]
    items = [_input(name, model.box.floats()[k]) for k, name in enumerate(circuit.variables)]
    units = {k for wire in circuit.wires if wire.norm for k in wire.norm.units}
    for k, (name, wire) in list(enumerate(zip(names, circuit.wires, strict=True)))[len(items) :]:
        if wire.norm is not None:
            items.append(_length(name, wire.norm, wire, circuit, names))
        if wire.joined is not None or k in units:  # a product is drawn as its squares, a length as one box
            continue
        head = heads.get(name)
        tokens, table = (len(head.slopes), tables[head.table]) if head is not None else (0, 0)
        items.append(_wire(name, wire, circuit, names, ranges, tokens, table))
    last = max(item.column for item in items) + 1
    outputs = [circuit.for_reading(linear) for linear in circuit.outputs]
    texts = model.formula.texts[: len(outputs)]  # those of the first position, where all do the same
    for k, (linear, text) in enumerate(zip(outputs, texts, strict=True)):
        name = f"output {k + 1}" if len(circuit.outputs) > 1 else "output"
        reads = tuple(names[w] for w, _ in linear.terms)
        items.append(Item(name, "output", last, name, _form(linear, names), reads, text))
    return items


def _input(name: str, ends: tuple[float, float]) -> Item:
    return Item(name, "input", 0, name, "", (), name, ends)


def _wire(
    name: str,
    wire: Wire,
    circuit: Circuit,
    names: Sequence[str],
    ranges: BoxRanges,
    tokens: int,
    table: int,
) -> Item:
    assert wire.argument is not None
    argument = circuit.for_reading(wire.argument)
    return Item(
        name,
        "table" if wire.is_table else "ReLU",
        wire.time,
        str(wire.function) if wire.is_table else "ReLU(u)",
        _form(argument, names),
        tuple(names[k] for k, _ in argument.terms),
        str(wire.meaning),
        ranges.of(wire.argument.meaning),
        tokens,
        table,
    )


def _length(name: str, norm: Norm, wire: Wire, circuit: Circuit, names: Sequence[str]) -> Item:
    parts = [circuit.for_reading(part) for part in (norm.left, norm.right)]
    return Item(
        name,
        "length",
        wire.time,
        f"length in {len(norm.units)} directions",
        ", ".join(_form(part, names) for part in parts),
        tuple(dict.fromkeys(names[k] for part in parts for k, _ in part.terms)),
        str(wire.meaning),
    )


def _form(linear: Linear, names: Sequence[str]) -> str:
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


def circuit_lines(model: Model) -> list[str]:
    """The circuit as an indented list: a line for each layer, one for each of its tables and ReLUs."""
    items = circuit_items(model)
    lines = []
    for column in sorted({item.column for item in items} - {0}):
        level = [item for item in items if item.column == column]
        for k, item in enumerate(level):
            if k == 0:
                lines.append(_level_name(item))
            branch = "└─" if item is level[-1] else "├─"
            lines.append(f"{branch} {_line(item)}")
    return lines


def _level_name(item: Item) -> str:
    if item.kind == "output":
        return "readout"
    part = "attention" if item.kind == "table" else "feed-forward"
    return f"layer {(item.column + 1) // 2}, {part}"


def _line(item: Item) -> str:
    if item.kind == "output":
        return f"{item.name} = {item.argument}"
    if item.kind == "length":
        return f"{item.name} = {item.title} of ({_short(item.argument)}): {_short(item.meaning)}"
    assert item.ends is not None
    place = f"u = {_short(item.argument)} in {item.ends[0] + 0.0:.4g}..{item.ends[1] + 0.0:.4g}"
    note = f" ({item.note})" if item.note else ""
    return f"{item.name} = {item.title}, {place}{note}: {_short(item.meaning)}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def table_lines(model: Model) -> list[str]:
    """A line for every head of a one-layer model: its table's tokens, and its summand where that is clear."""
    heads = read_heads(model.weights)
    known = summands(model.formula, len(heads))
    return [
        f"head {k}: {head.tokens} tokens on {_axes(head, model)}" + (f": {_short(text)}" if text else "")
        for k, (head, text) in enumerate(zip(heads, known, strict=True), start=1)
    ]


def _axes(head: TableHead, model: Model) -> str:
    names = model.weights.inputs
    return " and ".join(_short(linear_text(form, names)) for form in head.forms)


def linear_text(form: Mapping[int, fmpq], names: Sequence[str]) -> str:
    """Σ coefficient·name of a stored form, with short numbers."""
    return _joined([(int(c.p) / int(c.q), names[k]) for k, c in form.items()])


def circuit_svg(model: Model) -> str:
    """A drawing of its own small layout: columns are levels, boxes tables, lines who reads whom."""
    items = circuit_items(model)
    columns = _columns(items)
    tallest = max(len(column) for column in columns)
    width = _MARGIN * 2 + _COLUMN * (len(columns) - 1) + _BOX
    height = _MARGIN * 3 + _ROW * tallest
    places = {
        item.name: (_MARGIN + _COLUMN * x, 2 * _MARGIN + _ROW * (y + (tallest - len(column)) / 2))
        for x, column in enumerate(columns)
        for y, item in enumerate(column)
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(str(model.formula))}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for x, column in enumerate(columns):
        name = "inputs" if column[0].kind == "input" else _level_name(column[0])
        parts.append(_label(_MARGIN + _COLUMN * x + _BOX / 2, _MARGIN, name, bold=True))
    parts += [_edge(places[name], places[item.name]) for item in items for name in item.reads]
    parts += [_drawn(item, *places[item.name]) for item in items]
    return "\n".join([*parts, "</svg>", ""])


def _columns(items: Sequence[Item]) -> list[list[Item]]:
    """Items by column, each near the middle of what it reads, so that few lines cross."""
    numbers = sorted({item.column for item in items})
    columns = [[item for item in items if item.column == number] for number in numbers]
    height: dict[str, float] = {item.name: k for k, item in enumerate(columns[0])}
    for _, column in pairwise(columns):
        middles = {i.name: sum(height.get(r, 0.0) for r in i.reads) / max(len(i.reads), 1) for i in column}
        column.sort(key=lambda item, at=middles: at[item.name])  # type: ignore[misc]
        height |= {item.name: k for k, item in enumerate(column)}
    return columns


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y = start[0] + _BOX, start[1] + _HEIGHT / 2
    z, w = end[0], end[1] + _HEIGHT / 2
    bend = max((z - x) / 2, 20)
    path = f"M {x:g} {y:g} C {x + bend:g} {y:g} {z - bend:g} {w:g} {z:g} {w:g}"
    return f'<path d="{path}" fill="none" stroke="#888" stroke-opacity="0.6"/>'


def _drawn(item: Item, x: float, y: float) -> str:
    full = (
        f"{item.name}: {item.title}, u = {item.argument}; {item.meaning}" if item.argument else item.meaning
    )
    title = item.title if item.kind in ("input", "output") else f"{item.name}: {item.title}"
    middle = x + _BOX / 2
    note = item.note or ("" if item.ends is None else f"{item.ends[0]:.4g}..{item.ends[1]:.4g}")
    lines = [_label(middle, y + (17 if note else 25), title if len(title) <= 26 else title[:23] + "...")]
    if note:
        lines.append(_label(middle, y + 33, note, small=True))
    return (
        f'<g class="{item.kind}"><title>{escape(full)}</title>'
        f'<rect x="{x:g}" y="{y:g}" width="{_BOX}" height="{_HEIGHT}" rx="6" '
        f'fill="{_COLOURS[item.kind]}" stroke="#555"/>' + "".join(lines) + "</g>"
    )


def _label(x: float, y: float, text: str, bold: bool = False, small: bool = False) -> str:
    style = ' font-weight="bold"' if bold else ' font-size="10" fill="#444"' if small else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{style}>{escape(text)}</text>'
