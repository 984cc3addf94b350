"""The server on this machine's own address, from start to Ctrl-C."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from transformula.errors import InputError
from transformula.explorer.page_requests import Limits
from transformula.explorer.server import create_app

HOST = "127.0.0.1"
_CONNECTIONS = 512
_OPTIONS: dict[str, Any] = {
    "log_level": "warning",
    "loop": "asyncio",  # workers are asyncio's subprocesses
    "ws": "none",
    "server_header": False,
    "limit_concurrency": _CONNECTIONS,
    "timeout_graceful_shutdown": 5,
}


class _Server(uvicorn.Server):
    """Announces that it answers, and ends running work before it waits for open connections."""

    def __init__(self, app: FastAPI, started: Callable[[], None]) -> None:
        super().__init__(uvicorn.Config(app, **_OPTIONS))
        self.app, self.announce = app, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.app.state.explorer.close()
        await super().shutdown(sockets)


def serve(
    port: int = 0,
    limits: Limits | None = None,
    started: Callable[[str], None] = lambda url: None,
    browser: bool = False,
) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    port : int
        0 takes a free one.
    limits : Limits, optional
        How much work it takes on.
    started : callable
        Called with the page's address once it answers.
    browser : bool
        Open the page, where there is a screen.
    """
    listening = _bind(port)
    url = f"http://{HOST}:{listening.getsockname()[1]}/"

    def announce() -> None:
        started(url)
        if browser and _has_screen():
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    with listening, suppress(KeyboardInterrupt):
        _Server(create_app(limits), announce).run(sockets=[listening])


def _bind(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(_CONNECTIONS)
    except (OSError, OverflowError) as error:
        listening.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} is in use: give another port, or none for a free one") from None
        raise InputError(f"cannot listen on port {port}: {error}") from None
    return listening


def _has_screen() -> bool:
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
