"""The result of a study: tables, numbers and one figure, written as JSON, PNG, Markdown and HTML."""

from __future__ import annotations

import base64
import io
import json
import platform
import re
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from transformula.files import write_file

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


@dataclass(frozen=True)
class StudyRun:
    """The study that was asked for, its seed and its size."""

    name: str
    seed: int = 0
    size: str = "normal"
    started: float = field(default_factory=time.perf_counter)

    def pick(self, quick: Any, normal: Any, full: Any = None) -> Any:
        """One value for each size; ``full`` defaults to ``normal``."""
        return {"quick": quick, "normal": normal, "full": normal if full is None else full}[self.size]


@dataclass(frozen=True)
class StudyTable:
    """Rows of numbers and words under named columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def markdown(self) -> str:
        """The table for a page."""
        rows = [[_marked(_cell(v)).replace("|", "\\|") for v in row] for row in (self.columns, *self.rows)]
        head, *lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([f"**{self.title}**", "", head, "|" + " --- |" * len(self.columns), *lines])


@dataclass
class Report:
    """The result of one study.

    Attributes
    ----------
    question : the paper's claim or open question.
    setting : the experiment, in words and numbers.
    findings : sentences with the measured numbers in them.
    facts : the numbers, for JSON.
    figure : a matplotlib figure, or None.
    """

    run: StudyRun
    title: str
    question: str
    setting: str
    tables: list[StudyTable]
    findings: list[str]
    facts: dict[str, Any]
    figure: Any = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.seconds = time.perf_counter() - self.run.started

    def to_json(self) -> dict[str, Any]:
        """Everything but the figure."""
        return {
            "study": self.run.name,
            "seed": self.run.seed,
            "size": self.run.size,
            "title": self.title,
            "setting": self.setting,
            "findings": self.findings,
            "tables": [{"title": t.title, "columns": list(t.columns), "rows": t.rows} for t in self.tables],
            "facts": self.facts,
            "seconds": round(self.seconds, 1),
            "versions": _versions(),
        }

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.json, NAME.png, NAME.md and NAME.html, each whole or not at all."""
        picture = self._picture()
        contents = {
            "json": (json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n").encode(),
            "png": picture,
            "md": self.page().encode(),
            "html": self.html(picture).encode(),
        }
        paths = []
        for ending, content in contents.items():
            if content:
                paths.append(folder / f"{self.run.name}.{ending}")
                write_file(paths[-1], content, parents=True)
        return paths

    def _picture(self) -> bytes:
        if self.figure is None:
            return b""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, dpi=110, format="png")
        return buffer.getvalue()

    def html(self, picture: bytes) -> str:
        """The study as one self-contained page: no network, no scripts."""
        parts = [f"<h1>{escape(self.title)}</h1>", f"<p>{escape(self.question)}</p>"]
        parts.append(f"<p><em>Setting.</em> {escape(self.setting)}</p>")
        for table in self.tables:
            head = "".join(f"<th>{escape(c)}</th>" for c in table.columns)
            rows = ("".join(f"<td>{escape(_cell(v))}</td>" for v in row) for row in table.rows)
            body = "".join(f"<tr>{row}</tr>" for row in rows)
            parts.append(f"<h2>{escape(table.title)}</h2><table><tr>{head}</tr>{body}</table>")
        parts.append("<ul>" + "".join(f"<li>{escape(s)}</li>" for s in self.findings) + "</ul>")
        if picture:
            data = base64.b64encode(picture).decode()
            parts.append(f'<img alt="{escape(self.title)}" src="data:image/png;base64,{data}">')
        style = "body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        style += "td,th{padding:.2em .8em;text-align:right}img{max-width:100%}"
        title = f"<meta charset=utf-8><title>{escape(self.title)}</title><style>{style}</style>"
        return f"<!doctype html>\n<html lang=en>{title}<body>{''.join(parts)}</body></html>\n"

    def page(self) -> str:
        """The study as a Markdown page."""
        option = "" if self.run.size == "normal" else f" --{self.run.size}"
        parts = [f"# {self.title}", _marked(self.question), f"*Setting.* {_marked(self.setting)}"]
        parts.append(
            "<!-- not run: it may take minutes or a GPU; tests/studies runs every study at its quick size -->\n"
            f"```bash\ntransformula reproduce {self.run.name}{option} --seed {self.run.seed}\n```"
        )
        parts += [t.markdown() for t in self.tables]
        parts.append("\n".join(f"- {_marked(sentence)}" for sentence in self.findings))
        if self.figure is not None:
            parts.append(f"![{self.title}]({self.run.name}.png)")
        versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
        parts.append(f"Measured in {self.seconds:.0f} s with {versions}.")
        return "\n\n".join(parts) + "\n"

    def print(self) -> None:
        """Show tables and findings on the terminal."""
        console = Console(highlight=False)
        console.print(f"[bold]{self.title}[/bold]")
        for table in self.tables:
            rows = [[_cell(v) for v in row] for row in table.rows]
            titles = [_folded(title, [row[k] for row in rows]) for k, title in enumerate(table.columns)]
            console.print(f"\n{table.title}", style="italic", markup=False)
            for chosen in fitting_columns(titles, rows, console.width):
                grid = RichTable(box=SIMPLE_HEAD, pad_edge=False)
                for k in chosen:
                    grid.add_column(titles[k], justify="right" if k else "left", no_wrap=True)
                for row in rows:
                    grid.add_row(*(row[k] for k in chosen))
                console.print(grid)
        for sentence in self.findings:
            console.print(f"- {sentence}", markup=False)


def fitting_columns(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Columns side by side within a width in characters, the first of them in every group; no number is ever cut.

    Examples
    --------
    >>> fitting_columns(["name", "proven\\nerror", "seconds"], [["sine", "1.234e-09", "0.1"]], 20)
    [[0, 1], [0, 2]]
    """
    cells = [[*title.split("\n"), *(row[k] for row in rows)] for k, title in enumerate(titles)]
    needed = [max(map(len, column)) + 3 for column in cells]  # a blank on either side, and one between columns
    groups = [[0]]
    for k in range(1, len(titles)):
        if len(groups[-1]) > 1 and sum(needed[j] for j in groups[-1]) + needed[k] > width:
            groups.append([0])
        groups[-1].append(k)
    return groups


def _folded(title: str, cells: Sequence[str]) -> str:
    """The title of a column in lines that are not longer than its cells or its longest word."""
    width = max(map(len, [*title.split(), *cells]))
    return textwrap.fill(title, width, break_long_words=False, break_on_hyphens=False)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _marked(text: str) -> str:
    """Plain text for Markdown, which would read two signs of a product as emphasis; code in backticks stays."""
    return re.sub(r"(`[^`]*`)|\*", lambda found: found[1] or r"\*", text)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("transformula", "numpy", "scipy", "scikit-learn", "torch"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def timed(
    function: Callable[Arguments, Value], *args: Arguments.args, **options: Arguments.kwargs
) -> tuple[Value, float]:
    """A function's result, and the seconds it took."""
    start = time.perf_counter()
    found = function(*args, **options)
    return found, time.perf_counter() - start


def trained_layer(X: Any, y: Any, seed: int, **sizes: Any) -> Any:
    """A one-layer Transformer, trained as the papers describe it."""
    from transformula.learn import OneLayerTransformerRegressor
    from transformula.learn.training import AS_IN_PAPERS

    return OneLayerTransformerRegressor(random_state=seed, **sizes, **AS_IN_PAPERS).fit(X, y)


def log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y against log x.

    Examples
    --------
    >>> round(log_slope([10.0, 100.0], [1.0, 0.1]), 6)
    -1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


@dataclass(frozen=True)
class Curve:
    """Points with a label; ``style`` and ``color`` are matplotlib's."""

    label: str
    x: ArrayLike
    y: ArrayLike
    style: str = "o-"
    color: str | None = None


@dataclass(frozen=True)
class Panel:
    """Curves in one pair of axes.

    Attributes
    ----------
    scale : "loglog" or "semilogy".
    levels : label → height of a horizontal line.
    ticks : the only labelled places of a logarithmic x axis.
    """

    xlabel: str
    ylabel: str
    curves: Sequence[Curve]
    title: str = ""
    scale: str = "loglog"
    levels: Mapping[str, float] = field(default_factory=dict)
    ticks: Sequence[float] = ()

    def draw(self, axes: Any) -> None:
        """Draw into matplotlib's axes."""
        for curve in self.curves:
            color = {} if curve.color is None else {"color": curve.color}
            getattr(axes, self.scale)(curve.x, curve.y, curve.style, label=curve.label or None, **color)
        for label, height in self.levels.items():
            axes.axhline(height, color="grey", linestyle="--", label=label)
        if self.ticks:
            axes.set_xticks(list(self.ticks), [f"{v:g}" for v in self.ticks])
            axes.minorticks_off()
        axes.set(xlabel=self.xlabel, ylabel=self.ylabel, title=self.title)
        axes.legend()


def draw(*panels: Panel, width: float = 5.2) -> Any:
    """A figure of panels side by side, drawn without a screen."""
    figure = new_figure(width * len(panels), 4.0)
    for k, panel in enumerate(panels, start=1):
        panel.draw(figure.add_subplot(1, len(panels), k))
    return figure


def new_figure(width: float, height: float) -> Any:
    """An empty figure that needs no screen, its sides in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
