"""Protection of the server: it answers only pages that it served itself, in small requests.

A page elsewhere on the web can make a browser send requests here (DNS rebinding, cross-site posts). So the
Host header has to name this machine, and a POST has to be JSON from our own origin.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import urlsplit

from transformula.explorer.page_requests import Limits

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
