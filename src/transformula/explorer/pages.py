"""The page and what it loads: files out of a fixed list, read once, never a path made of what is asked."""

from __future__ import annotations

from importlib.resources import files as resources

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from transformula.show.figure_style import page_css

_MODULES = (
    "explorer",
    "session",
    "state",
    "api",
    "fields",
    "claim",
    "views",
    "charts",
    "comparing",
    "constructions",
    "job",
)
_PAGES = {
    "index.html": "text/html; charset=utf-8",
    "explorer.css": "text/css; charset=utf-8",
    **{f"{name}.js": "text/javascript; charset=utf-8" for name in _MODULES},
    "icon.svg": "image/svg+xml",
}
#: What the report has too.
_SHARED = {"drawing.css": "text/css; charset=utf-8", "panzoom.js": "text/javascript; charset=utf-8"}


def add_pages(app: FastAPI) -> None:
    """Serve them."""
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
        if name not in contents:  # a name out of a fixed list, never a path
            raise HTTPException(404)
        content, kind = contents[name]
        return Response(content, media_type=kind)
