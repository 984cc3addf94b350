"""A circuit drawn: columns are levels, boxes tables with their sub-expressions, lines who reads whom.

Colours are classes (input, table, ReLU, length, output). A page gives them colours in its own style sheet; a
drawing on its own carries the same rules, and follows the reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise

from transformula.model import Model
from transformula.show.circuit_view import Item, circuit_items, level_name
from transformula.show.colours import page_css

_BOX, _HEIGHT = 196, 60
_COLUMN, _ROW, _MARGIN, _HEADING = _BOX + 64, _HEIGHT + 16, 16, 34
_LETTER, _SMALL_LETTER = 7.0, 6.0  # widths of a letter, rather too wide than too narrow


def circuit_svg(model: Model) -> str:
    """The drawing as the content of an SVG file."""
    style = page_css() + (files("transformula.show") / "static" / "drawing.css").read_text(encoding="utf-8")
    element = circuit_element(model).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    opening, inside = element.split(">", 1)
    return f"{opening}>\n<style>\n{style}</style>{inside}\n"


def circuit_element(model: Model) -> str:
    """The drawing as an element of a page."""
    items = circuit_items(model)
    columns = _columns(items)
    tallest = max(len(column) for column in columns)
    width = 2 * _MARGIN + _COLUMN * (len(columns) - 1) + _BOX
    height = 2 * _MARGIN + _HEADING + _ROW * tallest
    places = {
        item.name: (_MARGIN + _COLUMN * x, _MARGIN + _HEADING + _ROW * (y + (tallest - len(column)) / 2))
        for x, column in enumerate(columns)
        for y, item in enumerate(column)
    }
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg class="architecture" role="img" {size} font-size="12">',
        f"<title>{escape(str(model.formula))}</title>",
    ]
    for x, column in enumerate(columns):
        place = _MARGIN + _COLUMN * x + _BOX / 2
        parts.append(_label(place, _MARGIN + 8, level_name(column[0]), ' font-weight="bold"'))
    parts += [_edge(places[name], places[item.name]) for item in items for name in item.reads]
    parts += [_drawn(item, *places[item.name]) for item in items]
    return "\n".join([*parts, "</svg>"])


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
    return f'<path d="M {x:g} {y:g} C {x + bend:g} {y:g} {z - bend:g} {w:g} {z:g} {w:g}"/>'


def _drawn(item: Item, x: float, y: float) -> str:
    """A box: what it computes, the sub-expression it stands for, its tokens or its range."""
    title = item.title if item.kind in ("input", "output") else f"{item.name} = {item.title}"
    whole = f"{title}, u = {item.argument}; it stands for {item.meaning}" if item.argument else item.meaning
    note = item.note or item.range
    lines = [line for line in (item.meaning if item.kind != "input" else "", note) if line]
    middle, top = x + _BOX / 2, y + _HEIGHT / 2 + 4 - 8.5 * len(lines)
    texts = [_label(middle, top, _fit(title, _LETTER))]
    texts += [
        _label(middle, top + 17 * k, _fit(line, _SMALL_LETTER), ' class="small"')
        for k, line in enumerate(lines, start=1)
    ]
    return (
        f'<g class="{item.kind}"><title>{escape(whole)}</title>'
        f'<rect x="{x:g}" y="{y:g}" width="{_BOX}" height="{_HEIGHT}" rx="6"/>{"".join(texts)}</g>'
    )


def _fit(text: str, letter: float) -> str:
    most = int((_BOX - 10) / letter)
    return text if len(text) <= most else text[: most - 1] + "…"


def _label(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{style}>{escape(text)}</text>'
