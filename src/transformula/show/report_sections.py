"""Sections of a report: the drawn architecture, error figures, attention with its sliders, tables of the tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

import numpy as np
from flint import fmpq

from transformula.compiler.constructions import CIRCUIT_FAMILY, RIDGE_FAMILY
from transformula.compiler.table_reading import TableHead
from transformula.formula import parse
from transformula.formula.sample_target import Samples
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.structures.ridge_blocks import Ridge
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.show import page_parts as html
from transformula.show.architecture import architecture_svg
from transformula.show.circuit_view import Item, circuit_items, level_name, linear_text, table_numbers
from transformula.show.describe import THEOREM, describe, listing, summary
from transformula.show.drawings import (
    MAX_OUTPUTS,
    Drawing,
    Followed,
    attention_drawings,
    cell_drawings,
    output_drawings,
    sample_drawing,
    sample_errors,
)
from transformula.show.figure_style import PAGE, inline_svg
from transformula.show.figures import token_order
from transformula.show.page_parts import counted
from transformula.show.slices import head_names
from transformula.show.typeset import typeset

#: Largest numbers of tables, of rows of a table and of wires of a circuit that are shown.
MAX_TABLES = 24
MAX_ROWS = 64
MAX_WIRES = 120
#: Heads that are drawn outside a fold.
_OPEN_HEADS = 2
#: Largest number of bars below a slider.
MAX_BARS = 48
#: Points of a figure's axis for each step of its slider.
_SLIDER_STEP = 4
#: Length in characters beyond which a sub-expression is shown as text.
_LONGEST_MATH = 160
_SIZES = (
    "construction",
    "layers",
    "heads",
    "most_heads_in_a_block",
    "tokens",
    "memory_tokens",
    "parameters",
    "nonzeros",
    "dtype",
)
_HARDMAX = (
    "Fang's blocks use hardmax: each token attends to itself alone, and what it keeps is its score, the "
    "product of two powers of its own direction. There is nothing to mix, hence nothing to draw."
)


def inside_section(model: Model) -> str:
    """The architecture drawn, and its size."""
    facts = summary(model) | {"most_heads_in_a_block": model.most_heads}
    rows = [(key.replace("_", " "), html.short(facts[key])) for key in _SIZES]
    rows.insert(5, ("width of the residual stream", html.short(model.weights.width)))
    rows.append(("weights on disk", f"{len(model.packed.arrays):,} bytes"))
    theorem = ""
    if model.family is RIDGE_FAMILY:
        against = describe(model)[THEOREM]
        shown = [(key.replace("_", " "), html.short(value)) for key, value in against.items()]
        theorem = html.folded("Size against Fang et al., Theorem 3.5", html.facts(shown))
    items = circuit_items(model) if model.family is CIRCUIT_FAMILY else []
    if len(items) > MAX_WIRES:
        drawing = html.paragraph(f"The circuit has {len(items)} wires, too many to draw: see the table below.")
    else:
        drawing = f"<pan-zoom>{architecture_svg(model)}</pan-zoom>"
    return html.section("The Transformer", drawing, html.columns(html.facts(rows[:5]), html.facts(rows[5:])), theorem)


def error_section(model: Model) -> str:
    """Figures of every output's error against the bound; at samples or prompts where there is no formula."""
    if not isinstance(model.formula, Formula):
        return _sample_section(model)
    parts = []
    outputs = len(model.formula.outputs)
    for k, expr in enumerate(model.formula.outputs[:MAX_OUTPUTS]):
        if outputs > 1:
            parts.append(f"<h3>Output {k}: {typeset(expr)}</h3>")
        parts.append(_figures(output_drawings(model, k, PAGE)))
    if outputs > MAX_OUTPUTS:
        parts.append(html.paragraph(f"{outputs - MAX_OUTPUTS} further outputs are not drawn."))
    if cells := _figures(cell_drawings(model, PAGE)):
        parts.append("<h3>Cells</h3>" + cells)
    return html.section(f"The error, sampled, and the {model.status} bound", *parts)


def _figures(drawings: Iterator[Drawing] | Sequence[Drawing]) -> str:
    drawn = [html.figure(inline_svg(d.figure, d.name), d.caption) for d in drawings]
    return f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""


def _sample_section(model: Model) -> str:
    drawn = sample_drawing(model, PAGE)
    if not isinstance(model.formula, Samples):
        title = f"Errors at some prompts of the box, and the {model.status} bound"
        return html.section(title, _figures([drawn]))
    size = np.abs(sample_errors(model)).max(axis=1)
    worst = np.argsort(-size, kind="stable")[:10]
    rows = [[str(k), _row(model.formula.x[k]), _row(model.formula.y[k]), f"{size[k]:.3g}"] for k in worst.tolist()]
    return html.section(
        f"Errors at the samples, and the {model.status} bound",
        _figures([drawn, *cell_drawings(model, PAGE)]),
        html.folded("The samples with the largest errors", html.table(("sample", "x", "y", "|error|"), rows, (0, 3))),
    )


def _row(values: FloatArray) -> str:
    return escape(", ".join(f"{v:.6g}" for v in values[:6]) + (", …" if len(values) > 6 else ""))


def attention_section(model: Model, followed: Sequence[Followed]) -> str:
    """Attention over memory tokens: a figure and a slider for each head."""
    if model.family is RIDGE_FAMILY:
        return html.section("Attention", html.paragraph(_HARDMAX))
    if not followed:
        return ""
    left = f" The first {len(followed)} of {model.heads} heads are drawn." if len(followed) < model.heads else ""
    intro = (
        "How each head spreads its attention over its own memory tokens as one input varies and the others "
        f"stay where the figures above hold them.{left}"
    )
    widgets = []
    for k, (one, drawing) in enumerate(zip(followed, attention_drawings(list(followed), PAGE), strict=True)):
        widgets.append(
            f"<figure><figcaption>{escape(drawing.caption)}</figcaption>"
            f"{inline_svg(drawing.figure, drawing.name)}{_slider(k, one)}</figure>"
        )
    shown, more = (
        f'<div class="figures">{"".join(part)}</div>' for part in (widgets[:_OPEN_HEADS], widgets[_OPEN_HEADS:])
    )
    rest = html.folded(f"{counted(len(widgets) - _OPEN_HEADS, 'more head')}", more) if widgets[_OPEN_HEADS:] else ""
    return html.section("Attention over memory tokens", html.paragraph(intro), shown, rest)


def _slider(k: int, one: Followed) -> str:
    steps = len(one.axis[::_SLIDER_STEP])
    tokens = len(one.head.tokens)
    shown = f"the {MAX_BARS} of {tokens} tokens that get most" if tokens > MAX_BARS else "one bar for each token"
    label, last = f"Move {escape(one.variable)}: {shown}", min(tokens, MAX_BARS) - 1
    scale = "".join(f"<span>{value}</span>" for value in ("1", "0.5", "0"))
    return (
        f'<div class="needs-script" data-head="{k}"><div class="slider">'
        f'<input type="range" min="0" max="{steps - 1}" value="{steps // 2}" aria-label="{label}">'
        '<output></output></div><div class="bar-chart"><span class="up">attention</span>'
        f'<div class="scale">{scale}</div><div class="bars" role="img"></div>'
        f'<div class="across"><span>0</span><span>memory token</span><span>{last}</span></div></div>'
        f'<span class="soft">{label}</span></div>'
    )


def slider_data(one: Followed) -> dict[str, Any]:
    """Data of the page's script: attention at every few points, of the tokens that get most of it."""
    weights = np.nan_to_num(one.head.weights[::_SLIDER_STEP])  # weights that do not verify may give anything
    order = token_order(one.head)
    if len(order) > MAX_BARS:
        chosen = set(np.argsort(-weights.max(axis=0), kind="stable")[:MAX_BARS].tolist())
        order = [token for token in order if token in chosen]
    return {
        "variable": one.variable,
        "axis": [float(f"{v:.6g}") for v in one.axis[::_SLIDER_STEP]],
        "tokens": [one.head.tokens[token] for token in order],
        "weights": [[round(float(v), 4) for v in row] for row in weights[:, order]],
    }


def tables_section(model: Model) -> str:
    """The contents of the memory tokens by head or wire; a polynomial's directions; layers or heads of the gallery."""
    return _SECTIONS.get(model.family.name, _listing)(model)


def _layer_tables(model: Model) -> str:
    heads: tuple[TableHead, ...] = model.reading
    names = head_names(model)
    rows, folded = [], []
    for k, head in enumerate(heads[:MAX_TABLES]):
        reads = "; ".join(linear_text(form, model.weights.inputs) for form in head.forms[:4])
        more = f" and {head.axes - 4} more" if head.axes > 4 else ""
        ends = "; ".join(_ends(*_range(form, model)) for form in head.forms[:4])
        rows.append([
            str(k), _math(names.get((0, k), ""), model), escape(html.cut(reads, 160) + more), escape(ends),
            html.short(head.tokens), _span(head.slopes), _span(head.values),
        ])  # fmt: skip
        folded.append(_token_rows(f"Tokens of head {k}", head.slopes, head.offsets, head.values))
    columns = ("head", "summand", "reads", "range", "tokens", "score slopes", "values")
    note = f"{len(heads) - MAX_TABLES} further tables are left out." if len(heads) > MAX_TABLES else ""
    if not rows:
        return ""
    return html.section("Tables", html.table(columns, rows, (4,)), html.paragraph(note) if note else "", *folded)


def _range(form: Mapping[int, fmpq], model: Model) -> tuple[float, float]:
    ends = model.box.floats()
    low = high = 0.0
    for index, coefficient in form.items():
        both = sorted(int(coefficient.p) / int(coefficient.q) * end for end in ends[index])
        low, high = low + both[0], high + both[1]
    return low, high


def _ends(low: float, high: float) -> str:
    return f"{low:.4g}..{high:.4g}"


def _span(values: FloatArray) -> str:
    return _ends(float(values.min()), float(values.max()))


def _token_rows(title: str, slopes: FloatArray, offsets: FloatArray, values: FloatArray) -> str:
    """Tokens × axes, tokens × axes and tokens × written slots, in the order of the slopes."""
    tokens = len(slopes)
    shown = min(tokens, MAX_ROWS)
    axes, width = min(slopes.shape[1], 4), min(values.shape[1], 4)
    columns = ["token", *_numbered("slope", axes), *_numbered("offset", axes), *_numbered("value", width)]
    order = np.lexsort(slopes.T[::-1])[:shown]
    rows = [
        [
            str(k),
            *(f"{v:.6g}" for v in slopes[t, :axes]),
            *(f"{v:.6g}" for v in offsets[t, :axes]),
            *(f"{v:.6g}" for v in values[t, :width]),
        ]
        for k, t in enumerate(order.tolist())
    ]
    left = f" (the first {shown} of {tokens:,})" if shown < tokens else ""
    return html.folded(title + left, html.table(columns, rows, range(len(columns))))


def _numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name} {k}" for k in range(count)]


def _circuit_tables(model: Model) -> str:
    """A fold for each level of the circuit, and one for the tokens of all tables."""
    items = [item for item in circuit_items(model) if item.kind in ("table", "ReLU")]
    columns = ("wire", "function", "of u =", "range of u", "tokens", "table", "stands for")
    levels = []
    for _, level in groupby(sorted(items[:MAX_WIRES], key=lambda item: item.column), key=lambda item: item.column):
        own = list(level)
        size = counted(len(own), "ReLU" if own[0].table is None else "head")
        rows = [_wire_row(item, model) for item in own]
        title = f"{level_name(own[0]).capitalize()}: {size}"
        levels.append(html.folded(title, html.table(columns, rows, (4, 5), broad=(2, 6))))
    left = len(items) - MAX_WIRES
    note = html.paragraph(f"{left} further wires are left out.") if left > 0 else ""
    tables = table_numbers(model)
    shown = [
        _token_rows(f"Table {k}", table.slopes, table.offsets, table.values[:, None])
        for table, k in list(tables.items())[:MAX_TABLES]
    ]
    title = f"{counted(len(tables), 'table')}, {counted(model.memory_tokens, 'memory token')}"
    if len(shown) < len(tables):
        title += f" (the first {len(shown)} tables)"
    return html.section("Tables", *levels, note, html.folded(title, "".join(shown)) if shown else "")


def _wire_row(item: Item, model: Model) -> list[str]:
    function = _math(item.title, model) if item.kind == "table" else escape(item.title)
    tokens = html.short(item.tokens) if item.tokens else ""
    return [
        escape(item.name), function, escape(html.cut(item.argument, 120)),
        item.range, tokens, "" if item.table is None else str(item.table), _math(item.meaning, model),
    ]  # fmt: skip


def _directions(model: Model) -> str:
    ridge: Ridge = model.reading
    rows = []
    for token, direction in enumerate(ridge.directions[:MAX_ROWS]):
        for output in range(min(ridge.outputs, MAX_OUTPUTS)):
            powers = ridge.terms.get((output, token), {})
            terms = ", ".join(f"t^{s}: {_rational(v)}" for s, v in sorted(powers.items())[:12])
            if powers or output == 0:
                form = linear_text(direction, model.weights.inputs)
                rows.append([str(token), escape(form), str(output), escape(terms)])
    columns = ["token", "t =", "output", "coefficients in the readout"]
    keep = range(4) if ridge.outputs > 1 else (0, 1, 3)
    shown = html.table([columns[k] for k in keep], [[row[k] for k in keep] for row in rows], (0,))
    left = len(ridge.directions) - MAX_ROWS
    note = html.paragraph(f"{left} further directions are left out.") if left > 0 else ""
    bias = ", ".join(_rational(v) for v in ridge.bias[:6])
    intro = (
        f"The polynomial has degree {model.degree}; each token carries one linear form t of the inputs, the "
        f"blocks raise it to its powers, and the readout adds them up with the bias {bias}."
    )
    return html.section("Directions", html.paragraph(intro), shown, note)


def _listing(model: Model) -> str:
    """Layers, heads, stages or words of a model from the gallery."""
    found = listing(model)
    rows = [list(map(escape, row)) for row in found.rows[:MAX_ROWS]]
    note = html.paragraph(found.note) if found.note else ""
    return html.section(found.title, note, html.table(found.columns, rows, found.numeric))


def _rational(value: fmpq) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{int(value.p) / int(value.q):.12g}…"


_SECTIONS: dict[str, Callable[[Model], str]] = {
    "ridge": _directions,
    "tables": _layer_tables,
    "circuit": _circuit_tables,
}


def _math(text: str, model: Model) -> str:
    """A sub-expression typeset, or cut short where it is long."""
    if not text or len(text) > _LONGEST_MATH:
        return escape(html.cut(text, _LONGEST_MATH))
    return typeset(parse(text, [*model.box.variables, "u"]))
