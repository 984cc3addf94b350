"""The figures of a model and their captions, for the report's page and for files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformula.compiler.constructions import CIRCUIT_FAMILY, TABLE_FAMILY
from transformula.compiler.table_reading import TableHead
from transformula.errors import InputError
from transformula.export.parity import sample_points
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import variables_of
from transformula.model import Model
from transformula.show import figures
from transformula.show.figure_style import Palette
from transformula.show.page_parts import counted, cut, percent
from transformula.show.slices import (
    HeadAttention,
    attention_along,
    head_meanings,
    point_in_box,
    slice_through,
)

#: Largest numbers of outputs and heads that are drawn, and of cells in a figure.
MAX_OUTPUTS = 6
MAX_HEADS = 6
MAX_CELLS = 20_000
#: With more outputs, each has only the figures of its curve and its error.
FEW_OUTPUTS = 3
#: Points along a variable at which attention is computed.
_LINE_POINTS = 161
_SIGNS = "Red: the Transformer is above the formula; blue: below."


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure, the name of its file and its caption."""

    name: str
    caption: str
    figure: Any


@dataclass(frozen=True, eq=False)
class Followed:
    """A head whose attention was followed along one variable."""

    variable: str
    axis: FloatArray
    head: HeadAttention


def output_drawings(model: Model, output: int, palette: Palette) -> Iterator[Drawing]:
    """Value and error of one output along and across its first variables, with the bound."""
    assert isinstance(model.formula, Formula)
    bound, status = model.pointwise
    prefix = f"output{output}_" if model.weights.outputs > 1 else ""
    used = [v for v in model.box.variables if v in variables_of(model.formula.outputs[output])]
    used = used or list(model.box.variables[:1])
    rest = resting_point(model)
    curve = slice_through(model, output, used[:1], rest)
    yield Drawing(f"{prefix}curve", _seen(curve.worst, model), figures.curve_figure(curve, bound, status, palette))
    if len(used) == 1:
        return
    surface = slice_through(model, output, used[:2], rest)
    drawn = figures.surface_figure(surface, bound, status, palette)
    yield Drawing(f"{prefix}error", f"{_SIGNS} {_seen(surface.worst, model)}", drawn)
    if model.weights.outputs > FEW_OUTPUTS:
        return
    lines = [slice_through(model, output, [name], rest) for name in used[: figures.MAX_LINES]]
    left = f"; {len(used) - len(lines)} further variables are not drawn" if len(lines) < len(used) else ""
    yield Drawing(
        f"{prefix}lines",
        f"Each line runs along one variable, the others at {_named(rest)}{left}.",
        figures.lines_figure(lines, bound, status, palette),
    )


def resting_point(model: Model) -> dict[str, float]:
    """The fixed values of variables while others vary: the centre, unless that is 0 for one of them.

    At 0 products vanish, and a figure through it would show nothing; then all are fixed at 70 % of their intervals.
    """
    ends = dict(zip(model.box.variables, model.box.floats(), strict=True))
    part = 0.7 if any(low + (high - low) / 2 == 0 for low, high in ends.values()) else 0.5
    return point_in_box(model, {name: low + part * (high - low) for name, (low, high) in ends.items()})


def _named(point: dict[str, float]) -> str:
    shown = ", ".join(f"{name} = {value:.4g}" for name, value in list(point.items())[:10])
    return shown + (", …" if len(point) > 10 else "")


def _seen(worst: float, model: Model) -> str:
    bound, status = model.pointwise
    share = f" ({percent(worst / bound)} of the {status} bound)" if bound > 0 and worst <= bound else ""
    return f"Largest |error| at the points drawn: {worst:.3g}{share}."


def follow_heads(model: Model) -> list[Followed]:
    """The first heads, each followed along the first variable it depends on."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    for place, variable in list(_head_variables(model).items())[:MAX_HEADS]:
        wanted.setdefault(variable, []).append(place)
    found = []
    for variable, places in wanted.items():
        axis, heads = attention_along(model, variable, resting_point(model), _LINE_POINTS)
        found += [Followed(variable, axis, h) for h in heads if (h.block, h.head) in places]
    return sorted(found, key=lambda f: (f.head.block, f.head.head))


def _head_variables(model: Model) -> dict[tuple[int, int], str]:
    """(block, head) → the first variable that the head depends on; empty for models without tables."""
    names = model.box.variables
    if model.family is TABLE_FAMILY:
        return {(0, h): model.weights.inputs[min(head.forms[0])] for h, head in enumerate(model.reading)}
    if model.family is not CIRCUIT_FAMILY:
        return {}
    used = {place: variables_of(meaning) for place, meaning in sorted(head_meanings(model).items())}
    return {place: next((v for v in names if v in found), names[0]) for place, found in used.items()}


def attention_drawings(followed: list[Followed], palette: Palette) -> Iterator[Drawing]:
    """Attention over memory tokens as a function of the input, a figure for each head."""
    for one in followed:
        head = one.head
        title = f"Block {head.block}, head {head.head}" + (f": {head.name}" if head.name else "")
        asked = f", asked by {head.query}" if head.query != "data" else ""
        yield Drawing(
            f"attention_block{head.block}_head{head.head}",
            f"{cut(title, 120)} ({_count(head)}{asked}).",
            figures.attention_figure(one.axis, one.variable, head, palette),
        )


def _count(head: HeadAttention) -> str:
    tokens = len(head.tokens)
    if tokens <= figures.MANY_TOKENS:
        return counted(tokens, "token")
    drawn = int((head.weights.max(axis=0) > figures.FAINT).sum())
    return f"{tokens} tokens, of which {drawn} get attention on this line and are drawn"


def cell_drawings(model: Model, palette: Palette) -> Iterator[Drawing]:
    """Cells of a partition or of memorised samples, where a head reads one or two variables."""
    if not model.made_by.sharp or model.family is not TABLE_FAMILY:
        return
    heads = [h for h in model.reading if _drawable(h, model)]
    for k, head in enumerate(heads[:2]):
        text = "Which token the attention settles on."
        yield Drawing(f"cells{k}", text, figures.cells_figure(model, head, palette))


def _drawable(head: TableHead, model: Model) -> bool:
    limit = 2 if isinstance(model.formula, Formula) or model.box.dimension == 2 else 1
    return head.axes <= limit and all(len(form) == 1 for form in head.forms) and head.tokens <= MAX_CELLS


def sample_errors(model: Model) -> FloatArray:
    """Model − target at every sample of a memorised model, or at some prompts of the box, samples × outputs."""
    assert not isinstance(model.formula, Formula)
    if isinstance(model.formula, Samples):
        x, y = model.formula.x, model.formula.y
    else:
        x = sample_points(model.formula, model.weights)[:: model.layers]
        y = model.formula.answers(x)
    answers = np.asarray(model(x), dtype=float).reshape(y.shape)
    errors: FloatArray = answers - y
    return errors


def sample_drawing(model: Model, palette: Palette) -> Drawing:
    """The errors of a memorised model at its samples, or of an in-context one at some prompts."""
    errors, noun = sample_errors(model), "prompt" if isinstance(model.formula, Prompts) else "sample"
    caption = f"Largest |error| at {'the ' * (noun == 'sample')}{len(errors):,} {noun}s: {np.abs(errors).max():.3g}."
    figure = figures.samples_figure(errors, model.certificate.bound, model.status, palette, noun)
    return Drawing(f"{noun}s", caption, figure)


def all_drawings(model: Model, palette: Palette) -> Iterator[Drawing]:
    """All figures of a model, within the limits of one page."""
    if not isinstance(model.formula, Formula):
        yield sample_drawing(model, palette)
    else:
        for output in range(min(len(model.formula.outputs), MAX_OUTPUTS)):
            yield from output_drawings(model, output, palette)
    yield from cell_drawings(model, palette)
    try:
        followed = follow_heads(model)
    except InputError:  # too many tokens to follow
        followed = []
    yield from attention_drawings(followed, palette)
