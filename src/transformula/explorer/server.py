"""The web application: requests in, jobs for workers out. The event loop itself never computes."""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import zipfile
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files as resources
from importlib.util import find_spec
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from transformula import __version__
from transformula.explorer.page_requests import (
    AttentionRequest,
    CompareRequest,
    CompileRequest,
    ConstructionsRequest,
    FormulaRequest,
    Guard,
    Limits,
    SliceRequest,
    first_complaint,
)
from transformula.explorer.worker import Frame
from transformula.explorer.worker_pool import BusyError, Pool
from transformula.kernel.folder.description import CERTIFICATE_FILE, EVIDENCE_FILE, MODEL_FILE, WEIGHTS_FILE
from transformula.model import Model
from transformula.show.figure_style import page_css

#: Scripts of the page.
_MODULES = (
    "explorer", "session", "state", "api", "fields", "claim", "views", "charts", "comparing", "constructions", "job",
    "sums", "terms", "tour",
)  # fmt: skip
_PAGES = {
    "index.html": "text/html; charset=utf-8",
    "explorer.css": "text/css; charset=utf-8",
    **{f"{name}.js": "text/javascript; charset=utf-8" for name in _MODULES},
    "examples.json": "application/json",
    "icon.svg": "image/svg+xml",
}
#: Files that the report has too.
_SHARED = {"drawing.css": "text/css; charset=utf-8", "panzoom.js": "text/javascript; charset=utf-8"}
_FILES = (WEIGHTS_FILE, MODEL_FILE, EVIDENCE_FILE, CERTIFICATE_FILE)
_STATUS = {"fault": 500}
_RETRY = {"retry-after": "2"}


class RefusedError(Exception):
    """A request that is answered with a refusal at a field."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(problem["message"])
        self.status, self.problem = status, problem


class EventStream(StreamingResponse):
    """Server-sent events; when the reader goes away, the work behind them ends."""

    media_type = "text/event-stream"

    def __init__(self, first: str, rest: AsyncGenerator[str, None]) -> None:
        super().__init__(_with_first(first, rest))
        self.rest = rest

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send until the end, or until the reader has gone."""
        async with aclosing(self.rest):
            await super().__call__(scope, receive, send)


async def _with_first(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for event in rest:
        yield event


def create_app(limits: Limits | None = None) -> FastAPI:
    """The application, with its own workers and shelf.

    Parameters
    ----------
    limits : Limits, optional
        How much work it takes on.
    """
    explorer = Explorer(limits or Limits())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warming = [asyncio.create_task(pool.warm_up()) for pool in explorer.pools]
        try:
            yield
        finally:
            for task in warming:
                task.cancel()
            await asyncio.gather(*warming, return_exceptions=True)
            await explorer.close()

    app = FastAPI(title="transformula", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.explorer = explorer
    app.add_middleware(Guard, limits=explorer.limits)
    _add_pages(app)
    _add_errors(app)
    _add_work(app, explorer)
    _add_models(app, explorer)
    return app


@dataclass(frozen=True)
class Kept:
    """A model's files by name, and the facts the page shows."""

    files: dict[str, bytes]
    facts: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))


class Shelf:
    """Models in memory by an identifier that cannot be guessed; the least recently used one goes first.

    Examples
    --------
    >>> shelf = Shelf(models=1, size=1000)
    >>> first, second = (shelf.put(Kept({"model.json": b"{}"}, {})) for _ in range(2))
    >>> shelf.get(first) is None, shelf.get(second) is None
    (True, False)
    """

    def __init__(self, models: int, size: int) -> None:
        self.models, self.size = models, size
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def put(self, kept: Kept) -> str:
        """Keep a model; returns its identifier."""
        identifier = secrets.token_urlsafe(16)
        self._kept[identifier] = kept
        while len(self._kept) > 1 and (
            len(self._kept) > self.models or sum(k.size for k in self._kept.values()) > self.size
        ):
            self._kept.popitem(last=False)
        return identifier

    def get(self, identifier: str) -> Kept | None:
        """The model, or None if it is unknown or was dropped."""
        if identifier in self._kept:
            self._kept.move_to_end(identifier)
        return self._kept.get(identifier)

    def __len__(self) -> int:
        return len(self._kept)


class Explorer:
    """State shared by all requests: two pools of workers, and the shelf of finished models."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.compilers = Pool(limits.compile_workers, limits.waiting, limits.memory_bytes)
        self.viewers = Pool(limits.view_workers, limits.waiting, limits.memory_bytes)
        self.pools = (self.compilers, self.viewers)
        self.shelf = Shelf(limits.shelf_models, limits.shelf_bytes)
        self._comparisons = 0

    async def close(self) -> None:
        """End all workers."""
        await asyncio.gather(*(pool.close() for pool in self.pools))

    async def check(self, asked: FormulaRequest) -> Frame:
        """Read formula and box in a worker, since even parsing might not end."""
        task = {"task": "check", "formula": asked.formula, "box": asked.box}
        return await self.viewers.result(task, self.limits.view_seconds)

    async def compile(self, asked: CompileRequest) -> AsyncGenerator[str, None]:
        """Events of a compilation."""
        task = {"task": "compile", "model_bytes": self.limits.model_bytes, **asked.model_dump()}
        async with aclosing(self.compilers.run(task, self.limits.compile_seconds)) as frames:
            async for frame in frames:
                if frame.body["event"] == "done":
                    facts = frame.body["facts"]
                    kept = Kept(dict(zip(_FILES, frame.blobs, strict=True)), facts)
                    yield _event({"event": "done", "model": self.shelf.put(kept), "facts": facts})
                else:
                    yield _event(frame.body)

    async def compare(self, kind: str, asked: FormulaRequest) -> AsyncGenerator[str, None]:
        """Events of a comparison of either kind; one worker is kept free of them."""
        if self._comparisons >= max(1, self.limits.compile_workers - 1):
            raise BusyError
        task = {"task": kind, "seconds": self.limits.compile_seconds, **asked.model_dump()}
        self._comparisons += 1
        try:
            async with aclosing(self.compilers.run(task, self.limits.compile_seconds)) as frames:
                async for frame in frames:
                    yield _event(frame.body)
        finally:
            self._comparisons -= 1

    async def view(self, identifier: str, task: dict[str, Any]) -> bytes:
        """The answer of a worker to a task about a kept model."""
        kept = self.kept(identifier)
        blobs = tuple(kept.files[name] for name in _FILES)
        task = {**task, "model": identifier}
        frame = await self.viewers.result(task, self.limits.view_seconds, identifier, blobs)
        return _answered(frame).blobs[0]

    def kept(self, identifier: str) -> Kept:
        """A model by its identifier, or a refusal."""
        kept = self.shelf.get(identifier)
        if kept is None:
            message = "this model is no longer kept here: compile it again"
            raise RefusedError(404, {"field": "", "message": message, "kind": "gone"})
        return kept


def _answered(frame: Frame) -> Frame:
    if frame.body["event"] == "refused":
        problem = frame.body["problem"]
        raise RefusedError(_STATUS.get(problem.get("kind", ""), 422), problem)
    return frame


async def _stream(events: AsyncGenerator[str, None]) -> EventStream:
    """A stream whose first event has come, so that a full queue is still a 429."""
    return EventStream(await events.__anext__(), events)


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, allow_nan=False)}\n\n"


def _add_pages(app: FastAPI) -> None:
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


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"kind": "input", **first_complaint(error.errors())}, 422)

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> JSONResponse:
        return JSONResponse(error.problem, error.status)

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> JSONResponse:
        message = "the server is busy: try again in a few seconds"
        return JSONResponse({"field": "", "message": message, "kind": "busy"}, 429, _RETRY)

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"field": "", "message": str(error.detail), "kind": "input"}, error.status_code)


def _add_work(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/start")
    async def start() -> dict[str, Any]:
        return {
            "version": __version__,
            "limits": asdict(explorer.limits),
            "onnx": _writes_onnx(),
        }

    @app.post("/api/check")
    async def check(asked: FormulaRequest) -> dict[str, Any]:
        return (await explorer.check(asked)).body  # "no" is an answer too, so a 200

    @app.post("/api/compile")
    async def compile(asked: CompileRequest) -> Response:
        _answered(await explorer.check(asked))
        return await _stream(explorer.compile(asked))

    @app.post("/api/compare")
    async def compare(asked: CompareRequest) -> Response:
        _answered(await explorer.check(asked))
        return await _stream(explorer.compare("compare", asked))

    @app.post("/api/constructions")
    async def constructions(asked: ConstructionsRequest) -> Response:
        _answered(await explorer.check(asked))
        return await _stream(explorer.compare("constructions", asked))


def _add_models(app: FastAPI, explorer: Explorer) -> None:
    @app.post("/api/models/{identifier}/slice")
    async def slices(identifier: str, asked: SliceRequest) -> Response:
        return _json(await explorer.view(identifier, {"task": "slice", **asked.model_dump()}))

    @app.post("/api/models/{identifier}/attention")
    async def attention(identifier: str, asked: AttentionRequest) -> Response:
        return _json(await explorer.view(identifier, {"task": "attention", **asked.model_dump()}))

    @app.get("/api/models/{identifier}/model.zip")
    async def folder(identifier: str) -> Response:
        content = await asyncio.to_thread(_zipped, explorer.kept(identifier))
        return _download(content, "model.zip", "application/zip")

    @app.get("/api/models/{identifier}/model.onnx")
    async def onnx(identifier: str) -> Response:
        if not _writes_onnx():
            raise HTTPException(404, "ONNX is not installed here: pip install 'transformula[onnx]'")
        return _download(await explorer.view(identifier, {"task": "onnx"}), "model.onnx", "application/onnx")

    @app.get("/api/models/{identifier}/theorem.zip")
    async def theorem(identifier: str) -> Response:
        return _download(await explorer.view(identifier, {"task": "theorem"}), "theorem.zip", "application/zip")


def _writes_onnx() -> bool:
    return hasattr(Model, "to_onnx") and find_spec("onnx") is not None


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _zipped(kept: Kept) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in kept.files.items():
            archive.writestr(f"model/{name}", content)
    return written.getvalue()


def _download(content: bytes, name: str, kind: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=headers)
