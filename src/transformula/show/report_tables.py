"""What a model's tokens hold, as tables of a page: by summand, by sub-expression, by direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

import numpy as np
from flint import fmpq

from transformula.compiler.gallery.yun import stages
from transformula.formula import parse
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.structures.network_wires import HeadTable
from transformula.kernel.structures.ridge_blocks import Ridge
from transformula.model import Model
from transformula.runtime.table_reading import TableHead
from transformula.show import page_parts as html
from transformula.show.circuit_view import Item, circuit_items, linear_text
from transformula.show.describe import head_lines, layer_lines, softmax_lines, word_lines
from transformula.show.drawings import MAX_OUTPUTS
from transformula.show.slices import head_names
from transformula.show.typeset import typeset

MAX_TABLES = 24
MAX_ROWS = 64
MAX_WIRES = 120
_LONGEST_MATH = 160


def tables_section(model: Model) -> str:
    """What the memory tokens hold, by head or wire; a polynomial's directions; what layers or heads do."""
    return _SECTIONS[model.family.name](model)


def _layer_tables(model: Model) -> str:
    heads: tuple[TableHead, ...] = model.reading
    names = head_names(model)
    rows, folded = [], []
    for k, head in enumerate(heads[:MAX_TABLES]):
        reads = "; ".join(linear_text(form, model.weights.inputs) for form in head.forms[:4])
        more = f" and {head.axes - 4} more" if head.axes > 4 else ""
        ends = "; ".join(_ends(*_range(form, model)) for form in head.forms[:4])
        rows.append([
            str(k + 1), _math(names.get((0, k), ""), model), escape(cut(reads, 160) + more), escape(ends),
            html.short(head.tokens), _span(head.slopes), _span(head.values),
        ])  # fmt: skip
        folded.append(_token_rows(f"Tokens of head {k + 1}", head.slopes, head.offsets, head.values))
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
            str(k + 1),
            *(f"{v:.6g}" for v in slopes[t, :axes]),
            *(f"{v:.6g}" for v in offsets[t, :axes]),
            *(f"{v:.6g}" for v in values[t, :width]),
        ]
        for k, t in enumerate(order.tolist())
    ]
    left = f" (the first {shown} of {tokens:,})" if shown < tokens else ""
    return html.folded(title + left, html.table(columns, rows, range(len(columns))))


def _numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name} {k + 1}" for k in range(count)]


def _circuit_tables(model: Model) -> str:
    items = [item for item in circuit_items(model) if item.kind in ("table", "ReLU")]
    columns = ("wire", "layer", "function", "of u =", "range of u", "tokens", "table", "stands for")
    rows = [_wire_row(item, model) for item in items[:MAX_WIRES]]
    left = len(items) - len(rows)
    note = html.paragraph(f"{left} further wires are left out.") if left else ""
    folded: dict[HeadTable, str] = {}
    for block in model.reading.blocks:
        for head in block.heads:
            table = head.table
            if table not in folded and len(folded) < MAX_TABLES:
                title = f"Tokens read by wire {model.weights.slots[head.slot]}"
                folded[table] = _token_rows(title, table.slopes, table.offsets, table.values[:, None])
    return html.section("Tables", html.table(columns, rows, (1, 5, 6)), note, *folded.values())


def _wire_row(item: Item, model: Model) -> list[str]:
    function = _math(item.title, model) if item.kind == "table" else escape(item.title)
    tokens = html.short(item.tokens) if item.tokens else ""
    return [
        escape(item.name), str((item.column + 1) // 2), function, escape(cut(item.argument, 120)),
        item.range, tokens, str(item.table or ""), _math(item.meaning, model),
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
                rows.append([str(token + 1), escape(form), str(output + 1), escape(terms)])
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


def _prompt_layers(model: Model) -> str:
    rows = [list(map(escape, line.split(": ", 1))) for line in layer_lines(model)[:MAX_ROWS]]
    return html.section("Layers", html.table(("layer", "what it does at every token"), rows))


def _heads(model: Model) -> str:
    rows = [[*map(escape, f"{line}: ".split(": ")[:2])] for line in head_lines(model)]
    return html.section("Heads", html.table(("head", "what it does at every token z"), rows))


def _words(model: Model) -> str:
    lines = word_lines(model)
    rows = [[run, f"<code>{word}</code>", place] for run, word, place in lines[:MAX_ROWS]]
    note = (
        f"{len(lines)} runs of neighbouring samples, {len(lines[0][1])} buckets each; a bit is the label of a bucket."
    )
    return html.section("Words", html.paragraph(note), html.table(("run", "word", "begins at bucket"), rows, (0, 2)))


def _stages(model: Model) -> str:
    rows = [[stage.layers, escape(stage.name), escape(stage.what)] for stage in stages(model.weights)]
    return html.section("Stages", html.table(("layers", "stage", "size"), rows))


def _layers(model: Model) -> str:
    rows = [list(map(escape, line)) for line in softmax_lines(model)[:MAX_ROWS]]
    return html.section("Heads", html.table(("layer", "tokens", "reads", "writes"), rows, (0, 1)))


def _rational(value: fmpq) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{int(value.p) / int(value.q):.12g}…"


_SECTIONS: dict[str, Callable[[Model], str]] = {
    "ridge": _directions,
    "tables": _layer_tables,
    "circuit": _circuit_tables,
    "prompts": _prompt_layers,
    "words": _words,
    "stages": _stages,
    "heads": _heads,
    "layers": _layers,
}


def _math(text: str, model: Model) -> str:
    """A sub-expression typeset, or cut short where it is long."""
    if not text or len(text) > _LONGEST_MATH:
        return escape(cut(text, _LONGEST_MATH))
    return typeset(parse(text, [*model.box.variables, "u"]))


def cut(text: str, most: int) -> str:
    """At most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
