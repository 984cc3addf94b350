"""Static figures: curves and surfaces with the proven bound, attention over memory tokens, cells, samples, comparisons.

Each function takes numbers (`show.slices`) and returns a matplotlib figure in the colours of a `Palette`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from transformula.compiler.comparison import Comparison
from transformula.compiler.table_reading import TableHead
from transformula.formula.sample_target import Samples
from transformula.kernel.arithmetic import at_most
from transformula.kernel.folder.weights import FloatArray
from transformula.model import Model
from transformula.runtime.reference import softmax
from transformula.show.figure_style import (
    CARD_WIDTH,
    PRINT,
    WIDTH,
    Palette,
    diverging,
    line_colours,
    new_figure,
    one_plot,
    styled,
)
from transformula.show.slices import HeadAttention, Slice

#: Ratio of bound to error beyond which a linear axis would show the error as a flat line.
_FLAT = 25
#: Largest number of cells whose borders are drawn.
_CELLS_WITH_EDGES = 900
#: Largest number of variables in a figure of lines.
MAX_LINES = 10
#: Of more tokens than `MANY_TOKENS`, a figure shows those that ever get more attention than `FAINT`.
MANY_TOKENS = 64
FAINT = 1e-3


def curve_figure(cut: Slice, bound: float, status: str, palette: Palette = PRINT) -> Any:
    """Formula and model along one variable, and below them the error between the bounds."""
    (x,), (name,) = cut.axes, cut.variables
    with styled(palette):
        figure = new_figure(4.2)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        top.plot(x, cut.formula, color=palette.formula, linewidth=3.2, alpha=0.45, label="formula")
        top.plot(x, cut.model, color=palette.model, linewidth=1.1, label="Transformer")
        top.set_ylabel("value")
        top.legend(loc="best", frameon=False, ncols=2)
        bottom.plot(x, cut.error, color=palette.model, linewidth=1.1)
        _error_axis(bottom, cut.worst, bound, status, palette)
        bottom.set_xlabel(_where(name, cut.held))
        bottom.set_ylabel("error")
    return figure


def error_figure(cut: Slice, bound: float, status: str, palette: Palette = PRINT) -> Any:
    """Only the error along one variable between the bounds: for a card."""
    (x,), (name,) = cut.axes, cut.variables
    with one_plot(palette, 1.9, CARD_WIDTH) as (figure, axes):
        axes.plot(x, cut.error, color=palette.model, linewidth=1.1)
        _error_axis(axes, cut.worst, bound, status, palette)
        axes.set_xlabel(_where(name, cut.held, 1))
        axes.set_ylabel("error")
    return figure


def _error_axis(axes: Any, worst: float, bound: float, status: str, palette: Palette) -> None:
    """Lines at ± bound; a symmetric logarithm where the error is far below it."""
    for side in (-bound, bound):
        _bound_line(axes, side, palette)
    axes.axhline(0, color=palette.rule, linewidth=0.8, zorder=0)
    if bound <= 0:
        return
    if 0 < worst < bound / _FLAT:
        ticks = (-bound, -worst, 0, worst, bound)
        axes.set_yscale("symlog", linthresh=max(worst / 3, bound * 1e-12), linscale=1.2)
        axes.set_yticks(ticks, [f"{v:.1e}" if v else "0" for v in ticks])
        axes.minorticks_off()
        axes.set_ylim(-bound * (bound / worst) ** 0.6, bound * (bound / worst) ** 0.6)
        _beside_line(axes, -bound, "logarithmic on both sides of 0", palette.soft, above=False)
    else:
        reach = 1.7 * max(bound, worst if np.isfinite(worst) else 0.0)
        axes.set_ylim(-reach, reach)
    _beside_line(axes, bound, f"{status}: |error| ≤ {at_most(bound)}", palette.bound)


def _bound_line(axes: Any, height: float, palette: Palette) -> None:
    axes.axhline(height, color=palette.bound, linestyle=(0, (5, 3)), linewidth=1.2)


def _beside_line(axes: Any, height: float, text: str, colour: str, above: bool = True) -> None:
    axes.annotate(
        text, (1, height), xycoords=("axes fraction", "data"), xytext=(-2, 2 if above else -3),
        textcoords="offset points", ha="right", va="bottom" if above else "top", fontsize=8, color=colour,
    )  # fmt: skip


def surface_figure(cut: Slice, bound: float, status: str, palette: Palette = PRINT, width: float = WIDTH) -> Any:
    """The error over two variables as a heat map, with the bound above it."""
    with one_plot(palette, 0.77 * width, width) as (figure, axes):
        reach = cut.worst if np.isfinite(cut.worst) and cut.worst > 0 else max(bound, 1e-300)
        image = _image(axes, cut.error, _ends(cut.axes), diverging(), -reach, reach)
        _colour_bar(figure, image, "error: Transformer − formula", format="%.1e")
        axes.set_title(f"seen ≤ {at_most(cut.worst)}, {status} ≤ {at_most(bound)}", color=palette.bound)
        _name_axes(axes, cut, 4 if width == WIDTH else 1)
    return figure


def lines_figure(cuts: Sequence[Slice], bound: float, status: str, palette: Palette = PRINT) -> Any:
    """|error| along several variables through one point, each across its whole interval."""
    with one_plot(palette, 3.4) as (figure, axes):
        colours = line_colours(len(cuts))
        smallest = min((c.worst for c in cuts if c.worst > 0), default=bound) / 1e4
        for cut, colour in zip(cuts, colours, strict=True):
            across = np.linspace(0, 1, len(cut.error))
            size = np.maximum(np.abs(cut.error), smallest)
            flips = np.diff(np.sign(cut.error)) != 0  # of rounding errors: a line would only flicker
            noise = flips.mean() > 0.05
            look = {"marker": ".", "linestyle": "none", "markersize": 2.5} if noise else {"linewidth": 0.9}
            axes.plot(across, size, color=colour, label=cut.variables[0], **look)
        _bound_line(axes, bound, palette)
        axes.set_yscale("log")
        axes.set_ylim(smallest, bound * 30)
        _beside_line(axes, bound, f"{status}: |error| ≤ {at_most(bound)}", palette.bound)
        axes.set_xlabel("from the lower to the upper end of the interval")
        axes.set_ylabel("|error|")
        axes.legend(
            frameon=False, ncols=5, loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, markerscale=4,
            handlelength=1.2,
        )  # fmt: skip
    return figure


def _image(
    axes: Any,
    values: FloatArray,
    ends: Sequence[float],
    colours: Any,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Values over two variables, whose ends are (left, right, bottom, top)."""
    return axes.imshow(
        values.T, origin="lower", extent=tuple(ends), aspect="auto", cmap=colours, vmin=low, vmax=high,
        interpolation="nearest",
    )  # fmt: skip


def _ends(at: Sequence[FloatArray]) -> list[float]:
    return [float(axis[end]) for axis in at for end in (0, -1)]


def _colour_bar(figure: Any, image: Any, label: str, **options: Any) -> None:
    bar = figure.colorbar(image, ax=image.axes, fraction=0.05, pad=0.02, **options)
    bar.outline.set_visible(False)
    bar.set_label(label)


def _name_axes(axes: Any, cut: Slice, most: int = 4) -> None:
    axes.set_xlabel(_where(cut.variables[0], cut.held, most))
    axes.set_ylabel(cut.variables[1])
    axes.grid(False)


def _where(name: str, held: dict[str, float], most: int = 4) -> str:
    if len(held) > most:
        shown = [f"{k} = {v:.4g}" for k, v in list(held.items())[: most - 1]]
        return f"{name}   ({', '.join([*shown, f'{len(held) - most + 1} others held'])})"
    return f"{name}   ({', '.join(f'{k} = {v:.4g}' for k, v in held.items())})" if held else name


def attention_figure(axis: FloatArray, variable: str, head: HeadAttention, palette: Palette = PRINT) -> Any:
    """One head's attention over its memory tokens while a variable runs: tokens in order of their peaks."""
    order = token_order(head)
    if len(order) > MANY_TOKENS:
        order = [token for token in order if head.weights[:, token].max() > FAINT]
    weights = head.weights[:, order]
    with one_plot(palette, 2.2 + min(len(order), 24) * 0.05) as (figure, axes):
        ends = (float(axis[0]), float(axis[-1]), -0.5, len(order) - 0.5)
        image = _image(axes, weights, ends, "magma_r", 0, 1)
        _colour_bar(figure, image, "attention", ticks=[0, 0.5, 1])
        axes.set_xlabel(variable)
        axes.set_ylabel("memory token")
        if palette is PRINT:  # a page says it in the caption
            name = f": {head.name}" if 0 < len(head.name) <= 50 else ""
            axes.set_title(f"block {head.block}, head {head.head}{name}")
        if len(order) <= 12:
            axes.set_yticks(range(len(order)))
        axes.grid(False)
    return figure


def token_order(head: HeadAttention) -> list[int]:
    """Tokens by the place where they draw the attention: its centre of mass along the line."""
    weights = head.weights
    mass = weights.sum(axis=0)
    places = np.arange(len(weights)) @ weights / np.where(mass > 0, mass, 1)
    order: list[int] = np.argsort(places, kind="stable").tolist()
    return order


def cells_figure(model: Model, head: TableHead, palette: Palette = PRINT) -> Any:
    """Which token wins where, in the colour of its value; for a head that reads one or two variables."""
    names = [model.weights.inputs[next(iter(form))] for form in head.forms]
    ends = [model.box.floats()[next(iter(form))] for form in head.forms]
    with one_plot(palette, 3.9 if len(names) == 2 else 2.6) as (figure, axes):
        _cells(figure, axes, head, ends, palette)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1] if len(names) == 2 else "value looked up")
        axes.set_title(f"{head.tokens} cells")
        if isinstance(model.formula, Samples) and len(model.formula.x) <= 2_000 and len(names) == 2:
            x = model.formula.x[:, [next(iter(form)) for form in head.forms]]
            axes.scatter(*x.T, s=9, color=palette.ink, linewidths=0)
    return figure


def _cells(figure: Any, axes: Any, head: TableHead, ends: Sequence[tuple[float, float]], palette: Palette) -> None:
    points = [np.linspace(low, high, 2_001 if len(ends) == 1 else 241) for low, high in ends]
    mesh = [m.ravel() for m in np.meshgrid(*points, indexing="ij")]
    winner = np.empty(len(mesh[0]), dtype=int)
    offsets = head.offsets.sum(axis=1)
    step = max(1, 2_000_000 // head.tokens)
    for start in range(0, len(winner), step):
        block = np.stack([m[start : start + step] for m in mesh], axis=1)
        scale = np.array([float(next(iter(form.values()))) for form in head.forms])
        winner[start : start + step] = np.argmax((block * scale) @ head.slopes.T + offsets, axis=1)
    values = head.values[winner, 0]
    axes.grid(False)
    if len(ends) == 1:
        (factor,) = head.forms[0].values()
        scores = np.outer(points[0] * (int(factor.p) / int(factor.q)), head.slopes[:, 0]) + head.offsets[:, 0]
        smooth = softmax(scores) @ head.values[:, 0]
        axes.plot(points[0], smooth, color=palette.formula, linewidth=3.2, alpha=0.4, label="softmax mixes")
        axes.plot(points[0], values, color=palette.model, linewidth=1, label="the winner's value")
        axes.legend(frameon=False, loc="best")
        return
    shape = (len(points[0]), len(points[1]))
    image = _image(axes, values.reshape(shape), _ends(points), "viridis")
    _colour_bar(figure, image, "value of the cell")
    if head.tokens <= _CELLS_WITH_EDGES:
        cells = winner.reshape(shape)
        across, up = np.diff(cells, axis=0)[:, 1:] != 0, np.diff(cells, axis=1)[1:, :] != 0
        edges = np.where(across | up, 1.0, np.nan)
        _image(axes, edges, _ends(points), "Greys", 0, 1.4)


def samples_figure(
    errors: FloatArray, bound: float, status: str, palette: Palette = PRINT, noun: str = "sample"
) -> Any:
    """Errors of a memorised model, sample by sample, or at prompts, below the bound."""
    with one_plot(palette, 2.8) as (figure, axes):
        size = np.abs(errors).max(axis=1)
        axes.plot(np.arange(1, len(size) + 1), size, ".", markersize=5, color=palette.model, clip_on=False)
        _bound_line(axes, bound, palette)
        axes.set_yscale("symlog", linthresh=max(bound * 1e-12, 1e-300))
        axes.set_ylim(0, bound * 300)
        axes.set_yticks([0, bound * 1e-9, bound * 1e-6, bound * 1e-3, bound])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1e}" if value else "0")
        axes.minorticks_off()
        _beside_line(axes, bound, f"{status}: |error| ≤ {at_most(bound)}", palette.bound)
        axes.set_xlabel(noun)
        axes.set_ylabel("|error|")
    return figure


def comparison_figure(found: Comparison) -> Any:
    """Bars of parameters and of memory tokens, and the proven bounds; refused constructions have none."""
    entries = found.entries
    places = range(len(entries))
    with styled(PRINT):
        figure = new_figure(0.6 + 0.42 * len(entries), 9.0)
        sizes, tokens, bounds = figure.subplots(1, 3, sharey=True)
        for axes, title, values in (
            (sizes, "parameters", [e.parameters for e in entries]),
            (tokens, "memory tokens", [e.memory_tokens for e in entries]),
            (bounds, "proven bound", [e.bound for e in entries]),
        ):
            axes.barh(places, [value or 0 for value in values], height=0.6, color=PRINT.model)
            axes.set_title(title)
            if any(values):
                axes.set_xscale("log" if title == "proven bound" else "symlog")
            axes.margins(x=0.3)
            axes.minorticks_off()
            for place, value in zip(places, values, strict=True):
                text = "refused" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.2g}"
                text += " (mean)" if axes is bounds and entries[place].norm == "mean" and value is not None else ""
                axes.annotate(text, (value or 0, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
        sizes.set_yticks(list(places), [entry.name for entry in entries])
        sizes.invert_yaxis()
    return figure
