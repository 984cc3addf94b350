"""An explorer to test against: the real server on a real socket, in a thread of this process."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import uvicorn

from transformula.explorer.page_requests import Limits
from transformula.explorer.server import create_app

#: Seconds to wait for what must come, on a machine however busy.
PATIENCE = 300
QUICK = {"formula": "sin(x) + cos(y)", "box": "x=0..3, y=0..3", "eps": 1e-2}
#: Sixty tables: half a minute of work on one core.
SLOW = {
    "formula": "; ".join(f"exp(-x*y/{k})*sin(3*x + y)" for k in range(1, 61)),
    "box": "x=0..2, y=0..2",
    "eps": 1e-4,
    "construction": "lookup",
}


class Running:
    """A server's address, its insides, and a client that speaks to it."""

    def __init__(self, url, explorer):
        self.url, self.explorer = url, explorer
        self.client = httpx.Client(base_url=url, timeout=PATIENCE)

    def post(self, path, body, **more):
        return self.client.post(path, json=body, **more)

    def events(self, path, body):
        """All events of a stream."""
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        return list(parse_events(answer.text.splitlines()))

    def compile(self, **changes):
        """A model's identifier and facts."""
        last = self.events("/api/compile", {**QUICK, **changes})[-1]
        assert last["event"] == "done", last
        return last["model"], last["facts"]


def parse_events(lines):
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line[6:])


def run_apart(work):
    """What a coroutine function gives, in a thread of its own: Playwright's loop may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result(PATIENCE)


def wait_until(condition, what):
    """Wait for a condition, as long as it takes on a busy machine."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, f"waited in vain until {what}"
        time.sleep(0.02)


@contextmanager
def running(**limits):
    """A server with the given limits, and no others on time."""
    ample = {"compile_workers": 2, "compile_seconds": PATIENCE, "view_seconds": PATIENCE, "body_seconds": PATIENCE}
    app = create_app(Limits(**{**ample, **limits}))
    config = uvicorn.Config(app, port=0, log_level="error", loop="asyncio", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server starts")
    port = server.servers[0].sockets[0].getsockname()[1]
    at = Running(f"http://127.0.0.1:{port}", app.state.explorer)
    try:
        yield at
    finally:
        at.client.close()
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert not any(pool.processes for pool in app.state.explorer.pools), "a worker was left behind"
