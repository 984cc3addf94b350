"""Colours and style of all drawings: pages, explorer, notebook card, files.

Blue is below zero and red above it; the formula is blue, the Transformer orange, the proven bound crimson. Pages get
the colours as CSS variables, light and dark. A `Palette` gives a figure its colours: `PRINT` for files, `PAGE` for
figures inside a page, where every colour becomes a CSS variable and follows the reader's theme.
"""

from __future__ import annotations

import io
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from html import escape
from typing import Any

import numpy as np

from transformula.optional import require

#: Widths of figures in inches, of a page (about that of a phone) and of a card.
WIDTH = 5.2
CARD_WIDTH = 4.0
#: Colours of signed values: below, at and above zero. The same in both themes, since images cannot change theirs.
DIVERGING = ("#2166ac", "#f4f4f2", "#b2182b")

LIGHT = {
    "ink": "#1d2733", "soft": "#5d6876", "rule": "#d9dfe7", "paper": "#ffffff", "panel": "#f5f7fa",
    "formula": "#2f6db5", "model": "#d2581c", "bound": "#b3264e", "good": "#1a7a48", "good-bg": "#e5f5ec",
    "bad": "#b00d2b", "bad-bg": "#fde9ec", "input": "#dbe9f6", "memory": "#fbf0d4", "table": "#fde3c4",
    "relu": "#d9efd5", "output": "#eadcf4", "edge": "#7b8794",
}  # fmt: skip
DARK = {
    "ink": "#e4e9ef", "soft": "#9aa7b6", "rule": "#323c48", "paper": "#12171d", "panel": "#1a2129",
    "formula": "#6ea8ea", "model": "#f2935c", "bound": "#f0708f", "good": "#6fd09b", "good-bg": "#15301f",
    "bad": "#ff8095", "bad-bg": "#3a141c", "input": "#1f3a55", "memory": "#4a3d17", "table": "#573718",
    "relu": "#23452a", "output": "#40305a", "edge": "#8592a1",
}  # fmt: skip
_SIGNED = dict(zip(("negative", "neutral", "positive"), DIVERGING, strict=True))
#: Selectors of a notebook's theme, which may differ from the system's: Jupyter, VS Code, Colab.
_NOTEBOOKS = {
    "dark": ("[data-jp-theme-light=false]", ".vscode-dark", "html[theme=dark]"),
    "light": ("[data-jp-theme-light=true]", ".vscode-light", "html[theme=light]"),
}


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


def page_css() -> str:
    """The CSS variables of a page, or of a drawing on its own."""
    return (
        f":root {{ color-scheme: light dark; {_variables(LIGHT | _SIGNED)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}\n"
    )


def notebook_css(selector: str) -> str:
    """The CSS variables of one element inside a notebook, whose theme they follow."""
    css = [
        f"{selector} {{ {_variables(LIGHT)} }}",
        f"@media screen and (prefers-color-scheme: dark) {{ {selector} {{ {_variables(DARK)} }} }}",
    ]
    for theme, colours in (("dark", DARK), ("light", LIGHT)):
        places = ", ".join(f"{sign} {selector}" for sign in _NOTEBOOKS[theme])
        css.append(f"{places} {{ {_variables(colours)} }}")
    return "\n".join(css)


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def diverging() -> Any:
    """The scale of signed values for matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", DIVERGING)


def line_colours(count: int) -> Any:
    """Colours of lines in one figure, far apart."""
    import matplotlib

    return matplotlib.colormaps["turbo"](np.linspace(0.06, 0.76, count))


def new_figure(height: float, width: float = WIDTH) -> Any:
    """An empty figure, sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def one_plot(palette: Palette, height: float, width: float = WIDTH) -> Iterator[tuple[Any, Any]]:
    """A figure with one pair of axes, in the palette's style inside the block."""
    with styled(palette):
        figure = new_figure(height, width)
        yield figure, figure.subplots()


@contextmanager
def styled(palette: Palette) -> Iterator[None]:
    """Fonts, lines and colours of figures drawn inside the block."""
    require("a figure", "matplotlib")
    import matplotlib

    settings: Any = {
        "font.size": 9.5, "axes.titlesize": 9.5, "axes.labelsize": 9.5, "legend.fontsize": 9,
        "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "font.family": "sans-serif",
        "text.color": palette.ink, "axes.labelcolor": palette.ink, "axes.titlecolor": palette.ink,
        "xtick.color": palette.soft, "ytick.color": palette.soft,
        "axes.edgecolor": palette.rule, "axes.grid": True, "grid.color": palette.rule, "grid.linewidth": 0.5,
        "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
        "figure.facecolor": palette.paper, "axes.facecolor": palette.paper, "axes.formatter.limits": (-4, 5),
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        yield


def picture(figure: Any, form: str) -> bytes:
    """The figure as the content of a png or svg file."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "transformula"}):
        figure.savefig(buffer, format=form, dpi=160, metadata={"Date": None} if form == "svg" else None)
    return buffer.getvalue()


def inline_svg(figure: Any, title: str) -> str:
    """The figure as an ``<svg>`` element for a page with the variables --ink, --soft, --rule, ...

    Text stays text, in the page's font; ids are made of ``title``, which must be unique in a page.
    """
    import matplotlib

    buffer = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the page's font has it
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
