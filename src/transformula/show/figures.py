"""Static figures: curves and surfaces with the proven bound, attention over memory tokens, cells, samples.

Each function takes numbers (`viewing.slices`) and gives a matplotlib figure. A `Palette` says in which
colours: `PRINT` for files, `PAGE` for figures inside a page, where every colour becomes a CSS variable and
the figure follows the reader's light or dark theme.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from html import escape
from typing import Any

import numpy as np

from transformula.formula.sample_target import Samples
from transformula.kernel.digits import at_most
from transformula.kernel.folder.weights import FloatArray
from transformula.model import Model
from transformula.optional import require
from transformula.runtime.table_reading import TableHead, read_table
from transformula.show.colours import LIGHT, diverging
from transformula.show.slices import HeadAttention, Slice

#: Text and lines are sized for this many inches, about the width of a phone.
WIDTH, CARD_WIDTH = 5.2, 4.0
#: Beyond this ratio of bound to error a linear axis shows the error as a flat line.
_FLAT = 25
_CELLS_WITH_EDGES = 900
MAX_LINES = 10
#: Of more tokens than this, a figure shows those that ever get more attention than `FAINT`.
MANY_TOKENS, FAINT = 64, 1e-3


@dataclass(frozen=True)
class Palette:
    """Colours by role."""

    ink: str
    soft: str
    rule: str
    paper: str
    formula: str
    model: str
    bound: str


PRINT = Palette(**{field.name: LIGHT[field.name] for field in fields(Palette)})
#: Stand-ins that no drawing uses by chance; `inline_svg` puts var(--role) in their place.
PAGE = Palette("#010203", "#010204", "#010205", "#010206", "#010207", "#010208", "#010209")


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
    with styled(palette):
        figure = new_figure(1.9, CARD_WIDTH)
        axes = figure.subplots()
        axes.plot(x, cut.error, color=palette.model, linewidth=1.1)
        _error_axis(axes, cut.worst, bound, status, palette)
        axes.set_xlabel(_where(name, cut.held, 1))
        axes.set_ylabel("error")
    return figure


def _error_axis(axes: Any, worst: float, bound: float, status: str, palette: Palette) -> None:
    """Lines at ± bound; a symmetric logarithm where the error is far below it."""
    for side in (-bound, bound):
        axes.axhline(side, color=palette.bound, linestyle=(0, (5, 3)), linewidth=1.2)
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


def _beside_line(axes: Any, height: float, text: str, colour: str, above: bool = True) -> None:
    axes.annotate(
        text, (1, height), xycoords=("axes fraction", "data"), xytext=(-2, 2 if above else -3),
        textcoords="offset points", ha="right", va="bottom" if above else "top", fontsize=8, color=colour,
    )  # fmt: skip


def surface_figure(cut: Slice, bound: float, status: str, palette: Palette = PRINT, width: float = WIDTH) -> Any:
    """The error over two variables as a heat map, with the bound above it."""
    with styled(palette):
        figure = new_figure(0.77 * width, width)
        axes = figure.subplots()
        reach = cut.worst if np.isfinite(cut.worst) and cut.worst > 0 else max(bound, 1e-300)
        image = _image(axes, cut.error, cut.axes, diverging(), -reach, reach)
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, format="%.1e")
        bar.outline.set_visible(False)
        bar.set_label("error: Transformer − formula")
        axes.set_title(f"seen ≤ {at_most(cut.worst)}, {status} ≤ {at_most(bound)}", color=palette.bound)
        _name_axes(axes, cut, 4 if width == WIDTH else 1)
    return figure


def lines_figure(cuts: Sequence[Slice], bound: float, status: str, palette: Palette = PRINT) -> Any:
    """|error| along several variables through one point, each across its whole interval."""
    with styled(palette):
        figure = new_figure(3.4)
        axes = figure.subplots()
        import matplotlib

        colours = matplotlib.colormaps["turbo"](np.linspace(0.06, 0.76, len(cuts)))
        smallest = min((c.worst for c in cuts if c.worst > 0), default=bound) / 1e4
        for cut, colour in zip(cuts, colours, strict=True):
            across = np.linspace(0, 1, len(cut.error))
            size = np.maximum(np.abs(cut.error), smallest)
            flips = np.diff(np.sign(cut.error)) != 0  # of rounding errors: a line would only flicker
            noise = flips.mean() > 0.05
            look = {"marker": ".", "linestyle": "none", "markersize": 2.5} if noise else {"linewidth": 0.9}
            axes.plot(across, size, color=colour, label=cut.variables[0], **look)
        axes.axhline(bound, color=palette.bound, linestyle=(0, (5, 3)), linewidth=1.2)
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


def value_figure(cut: Slice, palette: Palette = PRINT) -> Any:
    """The formula itself over two variables, with level lines."""
    with styled(palette):
        figure = new_figure(4.0)
        axes = figure.subplots()
        image = _image(axes, cut.formula, cut.axes, "viridis")
        finite = cut.formula[np.isfinite(cut.formula)]
        if finite.size and finite.max() > finite.min():
            axes.contour(*cut.axes, cut.formula.T, 8, colors="white", linewidths=0.5, alpha=0.6)
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label("value")
        axes.set_title("the formula")
        _name_axes(axes, cut)
    return figure


def _image(
    axes: Any, values: FloatArray, at: Sequence[FloatArray], colours: Any, low: Any = None, high: Any = None
) -> Any:
    ends = (float(at[0][0]), float(at[0][-1]), float(at[1][0]), float(at[1][-1]))
    return axes.imshow(
        values.T, origin="lower", extent=ends, aspect="auto", cmap=colours, vmin=low, vmax=high,
        interpolation="nearest",
    )  # fmt: skip


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
    with styled(palette):
        figure = new_figure(2.2 + min(len(order), 24) * 0.05)
        axes = figure.subplots()
        ends = (float(axis[0]), float(axis[-1]), 0.5, len(order) + 0.5)
        image = axes.imshow(
            weights.T, origin="lower", extent=ends, aspect="auto", cmap="magma_r", vmin=0, vmax=1,
            interpolation="nearest",
        )  # fmt: skip
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, ticks=[0, 0.5, 1])
        bar.outline.set_visible(False)
        bar.set_label("attention")
        axes.set_xlabel(variable)
        axes.set_ylabel("memory token")
        if palette is PRINT:  # a page says it in the caption
            name = f": {head.name}" if 0 < len(head.name) <= 50 else ""
            axes.set_title(f"layer {head.block + 1}, head {head.head + 1}{name}")
        if len(order) <= 12:
            axes.set_yticks(range(1, len(order) + 1))
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
    with styled(palette):
        figure = new_figure(3.9 if len(names) == 2 else 2.6)
        axes = figure.subplots()
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
        smooth = read_table(head, _inputs(head, points[0]))[:, 0]
        axes.plot(points[0], smooth, color=palette.formula, linewidth=3.2, alpha=0.4, label="softmax mixes")
        axes.plot(points[0], values, color=palette.model, linewidth=1, label="the winner's value")
        axes.legend(frameon=False, loc="best")
        return
    shape = (len(points[0]), len(points[1]))
    image = _image(axes, values.reshape(shape), points, "viridis")
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label("value of the cell")
    if head.tokens <= _CELLS_WITH_EDGES:
        cells = winner.reshape(shape)
        across, up = np.diff(cells, axis=0)[:, 1:] != 0, np.diff(cells, axis=1)[1:, :] != 0
        edges = np.where(across | up, 1.0, np.nan)
        axes.imshow(
            edges.T, origin="lower", extent=(*ends[0], *ends[1]), aspect="auto", cmap="Greys",
            vmin=0, vmax=1.4, interpolation="nearest",
        )  # fmt: skip


def _inputs(head: TableHead, u: FloatArray) -> FloatArray:
    """Rows of inputs at which the head's single variable is u."""
    (index,) = head.forms[0]
    rows = np.zeros((len(u), index + 1))
    rows[:, index] = u
    return rows


def samples_figure(
    errors: FloatArray, bound: float, status: str, palette: Palette = PRINT, noun: str = "sample"
) -> Any:
    """Errors of a memorised model, sample by sample, or at prompts, below the bound."""
    with styled(palette):
        figure = new_figure(2.8)
        axes = figure.subplots()
        size = np.abs(errors).max(axis=1)
        axes.plot(np.arange(1, len(size) + 1), size, ".", markersize=5, color=palette.model, clip_on=False)
        axes.axhline(bound, color=palette.bound, linestyle=(0, (5, 3)), linewidth=1.2)
        axes.set_yscale("symlog", linthresh=max(bound * 1e-12, 1e-300))
        axes.set_ylim(0, bound * 300)
        axes.set_yticks([0, bound * 1e-9, bound * 1e-6, bound * 1e-3, bound])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1e}" if value else "0")
        axes.minorticks_off()
        _beside_line(axes, bound, f"{status}: |error| ≤ {at_most(bound)}", palette.bound)
        axes.set_xlabel(noun)
        axes.set_ylabel("|error|")
    return figure


def new_figure(height: float, width: float = WIDTH) -> Any:
    """An empty figure, sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def styled(palette: Palette) -> Iterator[None]:
    """Fonts, lines and colours for what is drawn inside the block."""
    require("a figure", "matplotlib")
    import matplotlib

    ink, soft, rule = palette.ink, palette.soft, palette.rule
    settings: Any = {
        "font.size": 9.5, "axes.titlesize": 9.5, "axes.labelsize": 9.5, "legend.fontsize": 9,
        "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "font.family": "sans-serif",
        "text.color": ink, "axes.labelcolor": ink, "axes.titlecolor": ink,
        "xtick.color": soft, "ytick.color": soft,
        "axes.edgecolor": rule, "axes.grid": True, "grid.color": rule, "grid.linewidth": 0.5,
        "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
        "figure.facecolor": palette.paper, "axes.facecolor": palette.paper, "axes.formatter.limits": (-4, 5),
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        yield


def picture(figure: Any, form: str = "png", dots: int = 160) -> bytes:
    """The figure as a file's content: png or svg."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "transformula"}):
        figure.savefig(buffer, format=form, dpi=dots, metadata={"Date": None} if form == "svg" else None)
    return buffer.getvalue()


def inline_svg(figure: Any, title: str) -> str:
    """The figure as an ``<svg>`` element for a page with the variables --ink, --soft, --rule, ...

    Text stays text, in the page's font; ids are made of ``title``, which must be unique in a page.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", dpi=110, metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    salt = f"f{zlib.crc32(title.encode()):x}-"  # one id means one thing in a whole page
    text = re.sub(r'(\sid="|href="#|url\(#)', lambda match: match[0] + salt, text)
    for field in fields(Palette):
        text = text.replace(getattr(PAGE, field.name), f"var(--{field.name})")
    width, height = (float(v) * 72 for v in figure.get_size_inches())
    opening = f'<svg class="plot" role="img" aria-label="{escape(title)}" viewBox="0 0 {width:g} {height:g}">'
    return re.sub(r"<svg[^>]*>", opening, text, count=1)
