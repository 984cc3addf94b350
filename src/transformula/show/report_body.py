"""The body of a report: error figures, the drawn architecture, attention with its sliders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from transformula.compiler.constructions import CIRCUIT_FAMILY, RIDGE_FAMILY
from transformula.formula.sample_target import Samples
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.show import page_parts as html
from transformula.show.architecture import architecture_svg
from transformula.show.circuit_view import circuit_items
from transformula.show.describe import THEOREM, describe, summary
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
from transformula.show.figures import PAGE, inline_svg, token_order
from transformula.show.report_tables import MAX_WIRES
from transformula.show.typeset import typeset

MAX_BARS = 48
_SLIDER_STEP = 4
_SIZES = ("construction", "layers", "heads", "tokens", "memory_tokens", "parameters", "nonzeros", "dtype")
_HARDMAX = (
    "Fang's blocks use hardmax: each token attends to itself alone, and what it keeps is its score, the "
    "product of two powers of its own direction. There is nothing to mix, hence nothing to draw."
)


def inside_section(model: Model) -> str:
    """The architecture drawn, and its size."""
    facts = summary(model)
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
            parts.append(f"<h3>Output {k + 1}: {typeset(expr)}</h3>")
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
    rows = [[str(k + 1), _row(model.formula.x[k]), _row(model.formula.y[k]), f"{size[k]:.3g}"] for k in worst.tolist()]
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
    total = sum(len(block.attention.heads) for block in model.weights.blocks)
    left = f" The first {len(followed)} of {total} heads are drawn." if len(followed) < total else ""
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
    return html.section(
        "Attention over memory tokens",
        html.paragraph(intro),
        f'<div class="figures">{"".join(widgets)}</div>',
    )


def _slider(k: int, one: Followed) -> str:
    steps = len(one.axis[::_SLIDER_STEP])
    tokens = len(one.head.tokens)
    shown = f"the {MAX_BARS} of {tokens} tokens that get most" if tokens > MAX_BARS else "one bar for each token"
    label = f"Move {escape(one.variable)}: {shown}"
    scale = "".join(f"<span>{value}</span>" for value in ("1", "0.5", "0"))
    return (
        f'<div class="needs-script" data-head="{k}"><div class="slider">'
        f'<input type="range" min="0" max="{steps - 1}" value="{steps // 2}" aria-label="{label}">'
        '<output></output></div><div class="bar-chart"><span class="up">attention</span>'
        f'<div class="scale">{scale}</div><div class="bars" role="img"></div>'
        f'<div class="across"><span>1</span><span>memory token</span><span>{min(tokens, MAX_BARS)}</span></div></div>'
        f'<span class="soft">{label}</span></div>'
    )


def slider_data(one: Followed) -> dict[str, Any]:
    """What the script shows: attention at every few points, the tokens with the most of it."""
    weights = np.nan_to_num(one.head.weights[::_SLIDER_STEP])  # of weights that do not verify, anything may come
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
