"""Drawings of a Transformer as SVG: columns of boxes (tokens, heads with their memory, layers, readout) and lines.

Colours are classes (input, memory, table, ReLU, length, output). A page gives them colours in its own style sheet; a
drawing on its own carries the same rules, and follows the reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from itertools import pairwise

from transformula.kernel.folder.weights import Weights
from transformula.model import Model
from transformula.show.circuit_view import Item, circuit_items, level_name, linear_text
from transformula.show.describe import listing
from transformula.show.figure_style import page_css
from transformula.show.page_parts import counted
from transformula.show.slices import head_names, own_tokens

#: Largest numbers of boxes of each kind, and of squares in a box; a note counts the rest.
MAX_HEADS = 10
MAX_TOKENS = 12
MAX_BLOCKS = 10
MAX_SQUARES = 28

#: Lengths in pixels: the width of a box and the gaps between columns and between boxes.
_WIDTH = 160
_GAP = 46
_NARROW_GAP = 28
_ROW_GAP = 12
#: Height of the titles above the columns, and of a line of text.
_HEADING = 26
_LINE = 16
#: Distance between the squares of memory tokens, and their number in a row.
_SQUARE = 13
_SQUARES_IN_ROW = 14
#: Mean width of a letter in pixels, in the first line of a box and in the smaller ones below it.
_LETTER = 6.6
_SMALL_LETTER = 6.0

Place = tuple[float, float]


@dataclass(frozen=True)
class _Tile:
    """A box with lines of text and squares for memory tokens; ``told`` is its tooltip, by default the lines."""

    kind: str
    lines: Sequence[str]
    tokens: int = 0
    told: str = ""

    @property
    def height(self) -> float:
        """Height in pixels."""
        rows = -(-min(self.tokens, MAX_SQUARES) // _SQUARES_IN_ROW)
        return _LINE * (len(self.lines) + 1) + _SQUARE * rows

    def svg(self, x: float, y: float, wide: float) -> str:
        """The box as an element; the squares stand below its first line."""
        size = f'width="{wide:g}" height="{self.height:g}" rx="7"'
        parts = [
            f'<g class="{self.kind}"><title>{escape(self.told or "; ".join(self.lines))}</title>',
            f'<rect x="{x:g}" y="{y:g}" {size}/>',
        ]
        for k, line in enumerate(self.lines):
            below = y + self.height - 12 - _LINE * (len(self.lines) - 1 - k)
            parts.append(_text(x + wide / 2, below if k else y + 20, _fit(line, wide, k > 0), small=k > 0))
        parts.append("</g>")
        for k in range(min(self.tokens, MAX_SQUARES)):
            row, column = divmod(k, _SQUARES_IN_ROW)
            place = f'x="{x + 14 + _SQUARE * column:g}" y="{y + 27 + _SQUARE * row:g}"'
            parts.append(f'<g class="memory"><rect {place} width="{_SQUARE - 2}" height="{_SQUARE - 2}" rx="2"/></g>')
        return "".join(parts)


@dataclass(frozen=True)
class _Column:
    """Boxes below a title, with the gap before them and a note below them."""

    title: str
    tiles: Sequence[_Tile]
    width: float = _WIDTH
    gap: float = _GAP
    note: str = ""

    @property
    def height(self) -> float:
        """Height in pixels, without the title."""
        boxes = sum(tile.height for tile in self.tiles) + _ROW_GAP * (len(self.tiles) - 1)
        return boxes + (24 if self.note else 0)


def _drawn(
    columns: Sequence[_Column], title: str, edges: Sequence[tuple[tuple[int, int], tuple[int, int]]] | None = None
) -> str:
    """The columns as an ``<svg>`` element, each centred.

    ``edges`` are pairs of boxes, each given by its column and its row; by default every box is connected to all boxes
    of the next column.
    """
    tall = max(column.height for column in columns)
    starts: dict[tuple[int, int], Place] = {}
    ends: dict[tuple[int, int], Place] = {}
    parts = []
    right = -columns[0].gap
    for c, column in enumerate(columns):
        left, y = right + column.gap, _HEADING + (tall - column.height) / 2
        right = left + column.width
        parts.append(_text((left + right) / 2, 12, column.title, bold=True))
        for row, tile in enumerate(column.tiles):
            parts.append(tile.svg(left, y, column.width))
            ends[c, row] = left, y + tile.height / 2
            starts[c, row] = right, y + tile.height / 2
            y += tile.height + _ROW_GAP
        if column.note:
            parts.append(_text((left + right) / 2, y + 10, column.note, small=True))
    if edges is None:
        edges = [(start, end) for start in starts for end in ends if end[0] == start[0] + 1]
    lines = [_edge(starts[start], ends[end]) for start, end in edges]
    width, height = right + 8, _HEADING + tall + 8
    return (
        f'<svg class="architecture" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="-4 -4 {width:g} {height:g}" font-size="12"><title>{escape(title)}</title>'
        + "".join([*lines, *parts])
        + "</svg>"
    )


def _edge(start: Place, end: Place) -> str:
    (x, y), (z, w) = start, end
    bend = max((z - x) / 2, 20)
    return f'<path d="M {x:g} {y:g} C {x + bend:g} {y:g} {z - bend:g} {w:g} {z:g} {w:g}"/>'


def _text(x: float, y: float, text: str, small: bool = False, bold: bool = False) -> str:
    style = ' font-weight="bold"' if bold else ' class="small"' if small else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{style}>{escape(text)}</text>'


def _fit(text: str, wide: float, small: bool) -> str:
    most = int((wide - 8) / (_SMALL_LETTER if small else _LETTER))
    return text if len(text) <= most else text[: most - 1] + "…"


def _listed(names: Sequence[str]) -> str:
    if len(names) > 5:
        return f"{names[0]}, {names[1]}, …, {names[-1]} ({len(names)})"
    return ", ".join(names)


def _more(count: int, shown: int, noun: str) -> str:
    return f"and {count - shown} further {noun}" if count > shown else ""


def _readout(weights: Weights, told: str = "") -> _Column:
    return _Column("readout", [_Tile("output", [counted(weights.outputs, "output"), *([told] if told else [])])])


def architecture_svg(model: Model) -> str:
    """The model as an ``<svg>`` element for a page; colours come from its style sheet."""
    return _DRAWINGS.get(model.family.name, _row_by_row)(model)


def _one_layer(model: Model) -> str:
    """The data token, heads with their memory tokens, the feed-forward layer if there is one, and the readout."""
    weights, names = model.weights, head_names(model)
    block = weights.blocks[0] if weights.blocks else None
    heads = block.attention.heads if block else ()
    tiles = []
    for k, head in enumerate(heads[:MAX_HEADS]):
        size, name = len(own_tokens(head, weights)), names.get((0, k), "")
        title = f"head {k}" + (f": {name}" if name else "")
        tiles.append(_Tile("table", [title, f"softmax over {counted(size, 'memory token')}"], size))
    tiles = tiles or [_Tile("table", ["no head: nothing to look up"])]
    positions = len(weights.data_tokens)
    lines = [_listed(weights.inputs), "and a constant 1", *(["and its position"] if positions > 1 else [])]
    columns = [
        _Column("data token" if positions == 1 else f"{positions} data tokens", [_Tile("input", lines)]),
        _Column("attention: heads and their memory tokens", tiles, 210, note=_more(len(heads), MAX_HEADS, "heads")),
    ]
    if block is not None and block.feed_forward is not None:
        units = counted(block.feed_forward.hidden.shape[0], "ReLU unit")
        columns.append(_Column("feed-forward", [_Tile("ReLU", [units])]))
    return _drawn([*columns, _readout(weights, "affine in the tokens")], "one attention layer over memory tokens")


def _polynomial(model: Model) -> str:
    """The inputs, a token for each direction, blocks that multiply powers, and the readout."""
    weights, ridge = model.weights, model.reading
    directions, blocks = ridge.directions, ridge.heads
    shown = directions if len(directions) <= MAX_TOKENS else directions[: MAX_TOKENS - 1]
    tokens = [_Tile("memory", [f"t{k} = {linear_text(form, weights.inputs)}"]) for k, form in enumerate(shown)]
    layers = []
    for k, heads in enumerate(blocks[:MAX_BLOCKS]):
        products = [f"t^{h.left.power} · t^{h.right.power} → t^{h.left.power + h.right.power}" for h in heads]
        further = [f"and {len(heads) - 3} further heads"] if len(heads) > 3 else []
        layers.append([f"block {k}", *products[:3], *further])
    columns = [
        _Column("inputs", [_Tile("input", [_listed(weights.inputs)])]),
        _Column(
            f"{len(directions)} tokens, one for each direction",
            tokens,
            230,
            note=_more(len(directions), len(shown), "tokens"),
        ),
        *_layer_columns(layers, len(blocks)),
        _readout(weights, "Σ β t^s + b"),
    ]
    return _drawn(columns, "blocks that multiply, one degree after another")


def _layer_columns(layers: Sequence[Sequence[str]], count: int) -> list[_Column]:
    """A narrow column for each hardmax layer; the title stands above the middle one, a note below the last."""
    columns = []
    for k, lines in enumerate(layers):
        last = k == len(layers) - 1
        columns.append(
            _Column(
                "hardmax attention + ReLU" if k == (len(layers) - 1) // 2 else "",
                [_Tile("table", lines)],
                130,
                _NARROW_GAP if k else _GAP,
                _more(count, len(layers), "layers") if last else "",
            )
        )
    return columns


def _row_by_row(model: Model) -> str:
    """The tokens of a model from the gallery, its layers, heads, stages or words in a row, and the readout."""
    labels, found = model.token_labels, listing(model)
    shown = labels if len(labels) <= MAX_TOKENS else (*labels[: MAX_TOKENS - 5], "…", *labels[-4:])
    memory = ("weight", "table")
    tokens = [_Tile("memory" if label.startswith(memory) else "input", [label]) for label in shown]
    rows = found.rows[:MAX_BLOCKS]
    steps = [
        _Column("", [_Tile("table", [f"{found.columns[0]} {row[0]}", *row[1:]])], _WIDTH, _NARROW_GAP if k else _GAP)
        for k, row in enumerate(rows)
    ]
    note = _more(len(found.rows), len(rows), found.title.lower())
    if steps:
        middle = (len(steps) - 1) // 2
        steps[middle] = replace(steps[middle], title=found.title.lower())
        steps[-1] = replace(steps[-1], note=note)
    read = {labels[c // model.weights.width] for c in model.weights.readout.cols.tolist()}
    readout = _readout(model.weights, f"of the token {next(iter(read))}" if len(read) == 1 else "of every token")
    return _drawn([_Column(counted(len(labels), "token"), tokens), *steps, readout], found.note or found.title)


def circuit_svg(model: Model) -> str:
    """The drawing of a circuit as the content of an SVG file."""
    style = page_css() + (files("transformula.show") / "static" / "drawing.css").read_text(encoding="utf-8")
    element = circuit_element(model).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    opening, inside = element.split(">", 1)
    return f"{opening}>\n<style>\n{style}</style>{inside}\n"


def circuit_element(model: Model) -> str:
    """The drawing of a circuit as an element of a page: columns are its levels, lines show which wire reads which."""
    items = circuit_items(model)
    levels = _levels(items)
    places = {item.name: (c, row) for c, level in enumerate(levels) for row, item in enumerate(level)}
    columns = [_Column(level_name(level[0]), [_wire_tile(item) for item in level], 196, 64) for level in levels]
    edges = [(places[name], places[item.name]) for item in items for name in item.reads]
    return _drawn(columns, str(model.formula), edges)


def _levels(items: Sequence[Item]) -> list[list[Item]]:
    """Items by column, each near the middle of the items it reads, so that few lines cross."""
    numbers = sorted({item.column for item in items})
    levels = [[item for item in items if item.column == number] for number in numbers]
    height: dict[str, float] = {item.name: k for k, item in enumerate(levels[0])}
    for _, level in pairwise(levels):
        middles = {i.name: sum(height.get(r, 0.0) for r in i.reads) / max(len(i.reads), 1) for i in level}
        level.sort(key=lambda item, at=middles: at[item.name])  # type: ignore[misc]
        height |= {item.name: k for k, item in enumerate(level)}
    return levels


def _wire_tile(item: Item) -> _Tile:
    """A wire: its function, the sub-expression it stands for, its tokens or its range."""
    title = item.title if item.kind in ("input", "output") else f"{item.name} = {item.title}"
    told = f"{title}, u = {item.argument}; it stands for {item.meaning}" if item.argument else item.meaning
    lines = [item.meaning if item.kind != "input" else "", item.note or item.range]
    return _Tile(item.kind, [title, *filter(None, lines)], told=told)


_DRAWINGS: dict[str, Callable[[Model], str]] = {"ridge": _polynomial, "tables": _one_layer, "circuit": circuit_element}
