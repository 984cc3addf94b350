"""The Transformer drawn: inputs, tokens, heads with their memory, feed-forward layer, readout.

Small layouts of our own. Colours are classes (input, memory, table, ReLU, output) that the page gives colours
to; circuits have their own drawing in `circuit_drawing`, and use the same classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from transformula.compiler.gallery.compact_memory import stored_words
from transformula.compiler.gallery.yun import stages
from transformula.internals import tables_of
from transformula.kernel.folder.weights import Block
from transformula.model import Model
from transformula.show.circuit_drawing import circuit_element
from transformula.show.circuit_view import linear_text
from transformula.show.slices import head_names, own_tokens

MAX_HEADS = 10
MAX_SQUARES = 28
MAX_DIRECTIONS = 12
MAX_BLOCKS = 10
_BOX, _GAP, _SQUARE = 150, 46, 11
#: A box: its class, the title above it, and the lines in it.
Step = tuple[str, str, list[str]]


def architecture_svg(model: Model) -> str:
    """An ``<svg>`` element for a page; colours come from its style sheet."""
    return _DRAWINGS[model.family.name](model)


class _Drawing:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.width = self.height = 0.0

    def box(self, x: float, y: float, wide: float, high: float, kind: str, lines: Sequence[str]) -> None:
        self.width, self.height = max(self.width, x + wide), max(self.height, y + high)
        self.parts.append(
            f'<g class="{kind}"><title>{escape("; ".join(lines))}</title>'
            f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="7"/></g>'
        )
        top = y + high / 2 - 8 * (len(lines) - 1) + 4
        for k, line in enumerate(lines):
            self.text(x + wide / 2, top + 16 * k, _fit(line, wide), small=k > 0)

    def text(self, x: float, y: float, text: str, small: bool = False, bold: bool = False) -> None:
        style = ' font-weight="bold"' if bold else ' class="small"' if small else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{style}>{escape(text)}</text>')

    def line(self, x: float, y: float, z: float, w: float) -> None:
        bend = (z - x) / 2
        path = f"M {x:g} {y:g} C {x + bend:g} {y:g} {z - bend:g} {w:g} {z:g} {w:g}"
        self.parts.insert(0, f'<path d="{path}" class="wire"/>')

    def squares(self, x: float, y: float, count: int) -> None:
        """Memory tokens in rows of fourteen; the rest as a number."""
        shown = min(count, MAX_SQUARES)
        for k in range(shown):
            left, top = x + (k % 14) * (_SQUARE + 2), y + (k // 14) * (_SQUARE + 2)
            place = f'x="{left:g}" y="{top:g}" width="{_SQUARE}" height="{_SQUARE}"'
            self.parts.append(f'<g class="memory"><rect {place} rx="2"/></g>')

    def row(self, steps: Sequence[Step]) -> None:
        """Boxes of one size with titles above them, one after the other."""
        for k, (kind, title, lines) in enumerate(steps):
            left = k * (_BOX + _GAP)
            self.text(left + _BOX / 2, 12, title, bold=True)
            self.box(left, 26, _BOX, 60, kind, lines)
            if k:
                self.line(left - _GAP, 56, left, 56)

    def svg(self, title: str) -> str:
        width, height = self.width + 8, self.height + 8
        return (
            f'<svg class="architecture" role="img" width="{width:g}" height="{height:g}" '
            f'viewBox="-4 -4 {width:g} {height:g}" font-size="12"><title>{escape(title)}</title>'
            + "".join(self.parts)
            + "</svg>"
        )


def _fit(text: str, wide: float) -> str:
    most = int(wide / 6.4)
    return text if len(text) <= most else text[: most - 1] + "…"


def _listed(names: Sequence[str]) -> str:
    if len(names) > 5:
        return f"{names[0]}, {names[1]}, …, {names[-1]} ({len(names)})"
    return ", ".join(names)


def _one_layer(model: Model) -> str:
    weights, drawing = model.weights, _Drawing()
    names = head_names(model)
    block = weights.blocks[0] if weights.blocks else None
    heads = block.attention.heads if block else ()
    shown = heads[:MAX_HEADS]
    sizes = [len(own_tokens(head, weights)) for head in shown]
    rows = [26 + 13 * (-(-min(size, MAX_SQUARES) // 14)) + 24 for size in sizes]
    tall = max(sum(rows) + 14 * max(len(rows) - 1, 0) + (24 if len(heads) > len(shown) else 0), 96)
    middle = 26 + tall / 2
    columns = ["data token", "attention: heads and their memory tokens", "feed-forward", "readout"]
    positions = len(weights.data_tokens)
    if positions > 1:
        columns[0] = f"{positions} data tokens"
    x = 0.0
    drawing.text(_BOX / 2, 12, columns[0], bold=True)
    listed = ", ".join(weights.inputs[:6]) + (f", … ({len(weights.inputs)})" if len(weights.inputs) > 6 else "")
    lines = [listed, "and a constant 1"] + (["and its position"] if positions > 1 else [])
    drawing.box(0, middle - 35, _BOX, 70, "input", lines)
    left, wide = _BOX + _GAP, 210.0
    drawing.text(left + wide / 2, 12, columns[1], bold=True)
    y = middle - (sum(rows) + 14 * max(len(rows) - 1, 0)) / 2
    right = left + wide + _GAP
    for k, (size, high) in enumerate(zip(sizes, rows, strict=True)):
        label = names.get((0, k), "")
        drawing.box(left, y, wide, high, "table", [])
        drawing.text(left + wide / 2, y + 16, _fit(f"head {k + 1}" + (f": {label}" if label else ""), wide))
        drawing.squares(left + 14, y + 24, size)
        drawing.text(left + wide / 2, y + high - 7, f"softmax over {size} memory tokens", small=True)
        drawing.line(_BOX, middle, left, y + high / 2)
        drawing.line(left + wide, y + high / 2, right, middle)
        y += high + 14
    if not shown:
        drawing.box(left, middle - 25, wide, 50, "table", ["no head: nothing to look up"])
        drawing.line(_BOX, middle, left, middle)
        drawing.line(left + wide, middle, right, middle)
    if len(heads) > len(shown):
        drawing.text(left + wide / 2, y + 10, f"and {len(heads) - len(shown)} further heads", small=True)
    x = right
    if block is not None and block.feed_forward is not None:
        x = _feed_forward(drawing, block, x, middle)
    drawing.text(x + _BOX / 2, 12, columns[3], bold=True)
    outputs = f"{weights.outputs} outputs" if weights.outputs > 1 else "1 output"
    drawing.box(x, middle - 25, _BOX, 50, "output", [outputs, "affine in the tokens"])
    drawing.height = max(drawing.height, 26 + tall)
    return drawing.svg("one attention layer over memory tokens")


def _feed_forward(drawing: _Drawing, block: Block, x: float, middle: float) -> float:
    assert block.feed_forward is not None
    units = block.feed_forward.hidden.shape[0]
    drawing.text(x + _BOX / 2, 12, "feed-forward", bold=True)
    drawing.box(x, middle - 25, _BOX, 50, "ReLU", [f"{units} ReLU unit{'s' if units != 1 else ''}"])
    drawing.line(x + _BOX, middle, x + _BOX + _GAP, middle)
    return x + _BOX + _GAP


def _polynomial(model: Model) -> str:
    weights, drawing = model.weights, _Drawing()
    ridge = model.reading
    inputs, directions = weights.inputs, ridge.directions
    shown = directions if len(directions) <= MAX_DIRECTIONS else directions[: MAX_DIRECTIONS - 1]
    tall = 34.0 * len(shown) + (22 if len(shown) < len(directions) else 0)
    middle = 26 + max(tall, 80) / 2
    drawing.text(_BOX / 2, 12, "inputs", bold=True)
    drawing.box(0, middle - 20, _BOX, 40, "input", [_listed(inputs)])
    left, wide = _BOX + _GAP, 230.0
    drawing.text(left + wide / 2, 12, f"{len(directions)} tokens, one for each direction", bold=True)
    y = middle - tall / 2
    right = left + wide + _GAP
    for k, direction in enumerate(shown):
        form = linear_text(direction, inputs)
        drawing.box(left, y, wide, 28, "memory", [f"t{k + 1} = {form}"])
        drawing.line(_BOX, middle, left, y + 14)
        drawing.line(left + wide, y + 14, right, middle)
        y += 34
    if len(shown) < len(directions):
        drawing.text(left + wide / 2, y + 12, f"and {len(directions) - len(shown)} further tokens", small=True)
    x = right
    for k, heads in enumerate(ridge.heads[:MAX_BLOCKS]):
        products = [f"t^{h.left.power} · t^{h.right.power} → t^{h.left.power + h.right.power}" for h in heads]
        others = [f"and {len(heads) - 3} further heads"] if len(heads) > 3 else []
        lines = [f"block {k + 1}", *products[:3], *others]
        drawing.box(x, middle - 12 - 9 * len(lines), 130, 24 + 18 * len(lines), "table", lines)
        drawing.line(x + 130, middle, x + 130 + 28, middle)
        x += 130 + 28
    if len(ridge.heads) > MAX_BLOCKS:
        drawing.text(x + 30, middle + 4, f"… {len(ridge.heads) - MAX_BLOCKS} more", small=True)
        x += 80
    if ridge.heads:
        drawing.text((right + x - 28) / 2, 12, "hardmax attention + ReLU", bold=True)
    drawing.text(x + _BOX / 2, 12, "readout", bold=True)
    outputs = f"{weights.outputs} outputs" if weights.outputs > 1 else "1 output"
    drawing.box(x, middle - 25, _BOX, 50, "output", [outputs, "Σ β t^s + b"])
    drawing.height = max(drawing.height, 26 + tall)
    return drawing.svg("blocks that multiply, one degree after another")


def _prompts(model: Model) -> str:
    """The tokens of a prompt, the layers that are carried out on all of them, and the readout."""
    weights, drawing = model.weights, _Drawing()
    labels = model.token_labels
    shown = labels if len(labels) <= MAX_DIRECTIONS else (*labels[: MAX_DIRECTIONS - 5], "…", *labels[-4:])
    tall = 34.0 * len(shown)
    middle, right = 26 + max(tall, 80) / 2, _BOX + _GAP
    drawing.text(_BOX / 2, 12, f"{len(labels)} token{'s'[: len(labels) != 1]}", bold=True)
    for k, label in enumerate(shown):
        top = middle - tall / 2 + 34 * k
        drawing.box(0, top, _BOX, 28, "memory" if label.startswith("weight") else "input", [label])
        drawing.line(_BOX, top + 14, right, middle)
    for k, block in enumerate(weights.blocks[:MAX_BLOCKS]):
        output = block.attention.heads[0].output
        written = sorted({weights.slots[r] for r in output.rows.tolist()}) if output else []
        lines = [f"layer {k + 1}", f"writes {_listed(written)}"] + (["and ReLU"] if block.feed_forward else [])
        drawing.box(right, middle - 12 - 9 * len(lines), 130, 24 + 18 * len(lines), "table", lines)
        drawing.line(right + 130, middle, right + 158, middle)
        right += 158
    if len(weights.blocks) > MAX_BLOCKS:
        drawing.text(right + 30, middle + 4, f"… {len(weights.blocks) - MAX_BLOCKS} more", small=True)
        right += 80
    kind = weights.blocks[0].attention.kind
    drawing.text((_BOX + _GAP + right - 28) / 2, 12, f"{kind} attention, one head a layer", bold=True)
    drawing.text(right + _BOX / 2, 12, "readout", bold=True)
    outputs = f"{weights.outputs} outputs" if weights.outputs > 1 else "1 output"
    read = labels[int(weights.readout.cols[0]) // weights.width]
    drawing.box(right, middle - 25, _BOX, 50, "output", [outputs, f"of the token {read}"])
    drawing.height = max(drawing.height, 26 + tall)
    return drawing.svg("an algorithm, layer by layer, on the tokens of a prompt")


def _heads(model: Model) -> str:
    """The tokens of a sequence, the heads that all of them feed, and the readout."""
    weights, labels, drawing = model.weights, model.token_labels, _Drawing()
    heads = weights.blocks[0].attention.heads
    boxes = [(f"head {h + 1}", "V Z Zᵀ Q z") for h in range(min(len(heads), MAX_HEADS))]
    more = f"and {len(heads) - MAX_HEADS} further heads" if len(heads) > MAX_HEADS else ""
    shown = labels if len(labels) <= MAX_DIRECTIONS else (*labels[: MAX_DIRECTIONS - 3], "…", *labels[-2:])
    middle = 26 + max(34.0 * len(shown), 60.0 * len(boxes) + 20 * bool(more), 80) / 2
    left, right = _BOX + _GAP, 2 * (_BOX + _GAP)
    titles = (f"{len(labels)} token{'s'[: len(labels) != 1]}", "linear attention", "readout")
    for k, title in enumerate(titles):
        drawing.text(k * left + _BOX / 2, 12, title, bold=True)
    tops = [middle + 34 * (k - len(shown) / 2) for k in range(len(shown))]
    for top, label in zip(tops, shown, strict=True):
        drawing.box(0, top, _BOX, 28, "input", [label])
        drawing.line(_BOX, top + 14, left, middle)
    for k, lines in enumerate(boxes):
        top = middle + 60 * (k - len(boxes) / 2)
        drawing.box(left, top, _BOX, 48, "table", lines)
        drawing.line(left + _BOX, top + 24, right, middle)
    if more:
        drawing.text(left + _BOX / 2, middle + 30 * len(boxes) + 14, more, small=True)
    read = {labels[c // weights.width] for c in weights.readout.cols.tolist()}
    said = f"of the token {next(iter(read))}" if len(read) == 1 else "of every token"
    outputs = f"{weights.outputs} outputs" if weights.outputs > 1 else "1 output"
    drawing.box(right, middle - 25, _BOX, 50, "output", [outputs, said])
    drawing.height = max(drawing.height, 2 * middle - 26)
    return drawing.svg("heads of linear attention")


def _layers(model: Model) -> str:
    """Softmax layers, the tables of each with their tokens, and the readout."""
    drawing = _Drawing()
    tables = list(tables_of(model))
    columns = [("input", "data token", [[_listed(model.weights.inputs), "and a constant 1"]])]
    for b in range(len(model.weights.blocks)):
        own = [t for t in tables if t.block == b]
        lines = [[f"{len(t.slopes)} tokens", f"writes {_listed(t.writes)}"] for t in own[:MAX_HEADS]]
        more = [[f"and {len(own) - MAX_HEADS} more heads"]] if len(own) > MAX_HEADS else []
        columns.append(("table", f"layer {b + 1}: softmax", lines + more))
    columns.append(
        ("output", "readout", [["1 output" if model.weights.outputs == 1 else f"{model.weights.outputs} outputs"]])
    )
    for k, (kind, title, boxes) in enumerate(columns):
        left = k * (_BOX + _GAP)
        drawing.text(left + _BOX / 2, 12, title, bold=True)
        for i, said in enumerate(boxes):
            drawing.box(left, 26 + 58 * i, _BOX, 48, kind, said)
            for j in range(len(columns[k - 1][2]) if k else 0):
                drawing.line(left - _GAP, 50 + 58 * j, left, 50 + 58 * i)
    return drawing.svg("layers of softmax heads, without feed-forward layers")


def _words(model: Model) -> str:
    """Two heads that find run and bucket, the layers that take a word apart, and the one that picks a bit."""
    (bits, runs, _), drawing = stored_words(model.weights), _Drawing()
    steps: list[Step] = [
        ("input", "data token", [_listed(model.weights.inputs), "and a constant 1"]),
        ("table", "which run", [f"softmax over {len(runs)} tokens", "reads word and offset"]),
        ("table", "which bucket", [f"softmax over {bits} tokens", "reads j and j²"]),
        ("table", "feed-forward", [f"{bits - 1} layers", "a bit of the word each"]),
        ("table", "feed-forward", ["picks bit j"]),
        ("output", "readout", ["the label"]),
    ]
    drawing.row(steps)
    return drawing.svg("labels as bits of words")


def _stages(model: Model) -> str:
    """The stages of Yun's construction, one after the other."""
    weights, drawing = model.weights, _Drawing()
    count = f"{weights.tokens} token{'s'[: weights.tokens != 1]}"
    steps = [("input", count, [_listed(weights.inputs), "and positional encodings"])]
    steps += [("table", stage.name, [f"layers {stage.layers}", stage.what]) for stage in stages(weights)]
    drawing.row([*steps, ("output", "readout", ["of the last token"])])
    return drawing.svg("quantisation, contextual mapping and value mapping")


_DRAWINGS: dict[str, Callable[[Model], str]] = {
    "ridge": _polynomial,
    "tables": _one_layer,
    "circuit": circuit_element,
    "prompts": _prompts,
    "words": _words,
    "stages": _stages,
    "heads": _heads,
    "layers": _layers,
}
