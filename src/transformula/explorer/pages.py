"""The page: its files, out of a fixed list and read once, and the examples it offers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.resources import files as resources
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from transformula.show.figure_style import page_css

#: Scripts of the page.
_MODULES = (
    "explorer", "session", "state", "api", "fields", "claim", "views", "charts", "comparing", "constructions", "job",
)  # fmt: skip
_PAGES = {
    "index.html": "text/html; charset=utf-8",
    "explorer.css": "text/css; charset=utf-8",
    **{f"{name}.js": "text/javascript; charset=utf-8" for name in _MODULES},
    "icon.svg": "image/svg+xml",
}
#: Files that the report has too.
_SHARED = {"drawing.css": "text/css; charset=utf-8", "panzoom.js": "text/javascript; charset=utf-8"}


@dataclass(frozen=True)
class Example:
    """A named state of the page."""

    name: str
    about: str
    formula: str
    box: str
    eps: float | None = 1e-4
    construction: str = "auto"
    dtype: str = "float64"


EXAMPLES = (
    Example("Two sines", "One head a summand, a dozen tokens each", "sin(x1) + sin(x2)", "x1..x2=0..2*pi"),
    Example(
        "The theorem as written",
        "Sharp cells, sampled values: see the partition",
        "sin(x1)*cos(x2)",
        "x1=0..pi, x2=0..pi",
        0.1,
        "partition",
    ),
    Example(
        "A damped wave",
        "One head on a grid of two variables",
        "exp(-x*y) * sin(3*x + y)",
        "x=0..2, y=0..2",
        1e-3,
    ),
    Example("A curve", "Solved tables: the error falls spectrally", "1/(1 + 25*x**2)", "x=-1..1", 1e-5),
    Example("A kink", "Tokens crowd where the function bends", "abs(x) + sqrt(x + 1)", "x=-1..1", 1e-3),
    Example("Steps", "Cells of a curve, one token each", "sin(3*x)*exp(-x/4)", "x=0..2*pi", 0.1, "partition"),
    Example("Exact", "A polynomial with no approximation error", "x**3 - 3*x*y**2", "x=-1..1, y=-1..1", None),
    Example(
        "Fang's polynomial",
        "Nine variables, five layers, exact",
        "x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4 + 3*x5**2 + 2*x6*x7*x8 + 2*x9",
        "x1..x9=-3..3",
        None,
    ),
    Example(
        "Gravitation",
        "A circuit of tables, one per nonlinearity",
        "m1*m2/((x2-x1)**2 + (y2-y1)**2 + 1)",
        "m1..m2=1..2, x1..x2=0..1, y1..y2=0..1",
        1e-3,
        "circuit",
    ),
    Example(
        "Two outputs",
        "Several formulas share one Transformer",
        "sin(2*x) + y/2; exp(-x)*cos(y)",
        "x=0..3, y=0..3",
        1e-3,
    ),
)


def gallery() -> list[dict[str, Any]]:
    """The examples as plain data."""
    return [asdict(example) for example in EXAMPLES]


def add_pages(app: FastAPI) -> None:
    """Serve the page and its files."""
    folder = resources("transformula.explorer") / "static"
    shared = resources("transformula.show") / "static"
    contents = {name: ((folder / name).read_bytes(), kind) for name, kind in _PAGES.items()}
    contents |= {name: ((shared / name).read_bytes(), kind) for name, kind in _SHARED.items()}
    contents["colours.css"] = page_css().encode(), "text/css; charset=utf-8"
    plotly = (resources("plotly") / "package_data" / "plotly.min.js").read_bytes()

    @app.get("/")
    async def page() -> Response:
        return Response(contents["index.html"][0], media_type=contents["index.html"][1])

    @app.get("/static/plotly.min.js")
    async def plots() -> Response:
        return Response(
            plotly,
            media_type="text/javascript; charset=utf-8",
            headers={"cache-control": "private, max-age=3600"},
        )

    @app.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in contents:  # a name of the fixed list, never a path
            raise HTTPException(404)
        content, kind = contents[name]
        return Response(content, media_type=kind)
