"""``transformula explore``: the explorer in a browser, served by this machine to itself."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from transformula.cli.output import Output
from transformula.optional import require


def explore_command(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="Time limit in seconds for one compilation.")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="Print the address as a JSON object and nothing else.")] = False,
) -> None:
    """Open the explorer: type a formula, move the tolerance, watch the Transformer change."""
    require("the explorer", "fastapi", "plotly", "uvicorn")
    from transformula.explorer.explorer_limits import Limits
    from transformula.explorer.serving import serve

    def started(url: str) -> None:
        Output(json).facts({"url": url}, title="the explorer is running", hint="Ctrl-C ends it")
        sys.stdout.flush()  # whoever reads a pipe waits for the address

    serve(port, Limits(compile_seconds=seconds), started, browser=not no_browser)
