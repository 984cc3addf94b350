"""Requests of the page, with every size bounded before any work is done, and the guard of the server.

The server answers only pages that it served itself, in small requests. A page elsewhere on the web can make a browser
send requests here (DNS rebinding, cross-site posts). So the Host header has to name this machine, and a POST has to be
JSON from our own origin.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from transformula.compiler.constructions import Choice

#: Largest numbers of points along an axis.
MAX_CURVE_POINTS = 401
MAX_SURFACE_POINTS = 101

Name = Annotated[str, Field(min_length=1, max_length=64)]
Point = Annotated[dict[Name, Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=1000)]


@dataclass(frozen=True)
class Limits:
    """Bounds on time, memory, queues and sizes; larger requests are refused with a 4xx answer.

    Attributes
    ----------
    compile_workers, view_workers : processes that compile and compare, and processes that draw; separate, so that
        moving a slider never waits for a compilation.
    waiting : number of requests that may wait for a process of each kind.
    compile_seconds, view_seconds : wall-clock time of one request of each kind.
    memory_bytes : memory that a process may allocate (Linux: RLIMIT_DATA).
    model_bytes, shelf_models, shelf_bytes : the largest model kept, the number of models kept, and their total size.
    body_bytes, body_seconds : size of a request's body, and time to send it.
    """

    compile_workers: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    view_workers: int = 2
    waiting: int = 16
    compile_seconds: float = 60.0
    view_seconds: float = 15.0
    memory_bytes: int = 2 << 30
    model_bytes: int = 48 << 20
    shelf_models: int = 64
    shelf_bytes: int = 256 << 20
    body_bytes: int = 64 << 10
    body_seconds: float = 10.0


class _PageRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FormulaRequest(_PageRequest):
    """A formula (several, separated by semicolons) on a box."""

    formula: Annotated[str, Field(max_length=10_000)]
    box: Annotated[str, Field(max_length=4_000)]


class ConstructionsRequest(FormulaRequest):
    """A table of all constructions."""

    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    dtype: Literal["float64", "float32"] = "float64"


class CompileRequest(ConstructionsRequest):
    """A compilation."""

    construction: Choice = "auto"
    seconds: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] | None = None


class CompareRequest(FormulaRequest):
    """A comparison of lookup, partition and training."""

    dtype: Literal["float64", "float32"] = "float64"


class SliceRequest(_PageRequest):
    """A curve or a surface through a model."""

    output: Annotated[int, Field(ge=0, lt=1000)] = 0
    variables: Annotated[list[Name], Field(min_length=1, max_length=2)]
    at: Point = {}
    points: Annotated[int, Field(ge=2, le=MAX_CURVE_POINTS)] | None = None


class AttentionRequest(_PageRequest):
    """Attention at one point."""

    point: Point
    output: Annotated[int, Field(ge=0, lt=1000)] = 0
    query: Annotated[int, Field(ge=0, lt=100_000)] = 0


def first_complaint(errors: Sequence[Any]) -> dict[str, str]:
    """The first error of a request, as the page shows it: a field and a sentence."""
    error = errors[0] if errors else {}
    place = [str(part) for part in error.get("loc", ()) if part != "body"]
    where = place[0] if place and not place[0].isdigit() else ""
    kind, limits = str(error.get("type", "")), error.get("ctx", {})
    if kind == "json_invalid" or not where:
        return {"field": "", "message": "the request is not the JSON this page sends"}
    if kind == "string_too_long":
        return {"field": where, "message": f"too long: at most {limits.get('max_length')} characters"}
    if kind == "missing":
        return {"field": where, "message": "something is missing here"}
    if where == "seconds":
        return {"field": where, "message": "a time limit is a number of seconds above 0, at most 3600"}
    if where == "eps":
        return {"field": where, "message": "a tolerance is a number above 0, such as 1e-6"}
    return {"field": where, "message": str(error.get("msg", "cannot be used")).lower()}


_LOCAL = re.compile(r"(localhost|127\.0\.0\.1)(:\d{1,5})?", re.ASCII)
_METHODS = ("GET", "HEAD", "POST")
#: plotly writes style attributes and pictures as data: addresses; nothing is evaluated.
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; worker-src blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """ASGI middleware: checks the origin, reads the body within bounds, adds the security headers."""

    def __init__(self, app: Any, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer it with a refusal."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no websockets
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = {key for key, _ in message["headers"]}
                extra = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in given]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        refusal = _stranger(scope["method"], headers)
        if refusal is None and scope["method"] == "POST":
            refusal, receive = await self._read(headers, receive)
        if refusal is not None:
            await _refuse(guarded, *refusal)
            return
        await self.app(scope, receive, guarded)

    async def _read(self, headers: dict[str, str], receive: Any) -> tuple[tuple[int, str] | None, Any]:
        """The whole body, if it is small and arrives in time; its headers are not trusted."""
        most = self.limits.body_bytes
        too_large = (413, f"the request is larger than {most} bytes")
        claimed = headers.get("content-length", "0")
        if not claimed.isdigit() or int(claimed[:12]) > most:
            return too_large, receive
        body = bytearray()

        async def collect() -> bool:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return False
                body.extend(message.get("body", b""))
                if len(body) > most or not message.get("more_body", False):
                    return True

        try:
            complete = await asyncio.wait_for(collect(), self.limits.body_seconds)
        except asyncio.TimeoutError:
            return (408, "the request took too long to arrive"), receive
        if not complete:
            return (400, "the request was cut off"), receive
        if len(body) > most:
            return too_large, receive
        return None, _replay(bytes(body), receive)


def _stranger(method: str, headers: dict[str, str]) -> tuple[int, str] | None:
    host = headers.get("host", "")
    if not _LOCAL.fullmatch(host):
        return 421, "this server answers to localhost only"
    if method not in _METHODS:
        return 405, "this server answers GET and POST"
    if method != "POST":
        return None
    origin = headers.get("origin")
    if origin is not None and (urlsplit_safely(origin) != ("http", host)):
        return 403, "requests from other pages are not answered"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return 403, "requests from other pages are not answered"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "send JSON"
    return None


def urlsplit_safely(address: str) -> tuple[str, str]:
    """Scheme and host of an address; empty if it is malformed."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "", ""
    return parts.scheme, parts.netloc


def _replay(body: bytes, receive: Any) -> Any:
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return waiting.pop() if waiting else await receive()

    return again


async def _refuse(send: Any, status: int, message: str) -> None:
    body = json.dumps({"field": "", "message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
