"""The verbs report and explore: a model as a page, and the explorer in a browser."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from transformula.cli.arguments import Folder, Json
from transformula.cli.output import Output, check_stdout, progress_bar
from transformula.files import STDOUT
from transformula.optional import require
from transformula.show.report_page import write_report


class PlotFormat(str, Enum):
    """Formats of static plots."""

    png = "png"
    svg = "svg"


def report_command(
    folder: Folder,
    out: Annotated[Optional[Path], typer.Option(help="The page, - for stdout; default FOLDER/report.html.")] = None,
    plots: Annotated[Optional[Path], typer.Option(help="A folder for the figures as files.")] = None,
    form: Annotated[PlotFormat, typer.Option("--format", help="The figures' format.")] = PlotFormat.png,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Run the checker and say what it found.")] = True,
    json: Json = False,
) -> None:
    """Write a self-contained page about a model; exit code 1 if the model does not verify."""
    output = Output(json)
    check_stdout(out, json)
    with progress_bar(quiet=json):
        written = write_report(folder, out, plots, form.value, verify)
    result = written.verification
    facts = {
        "page": written.page,
        "plots": list(written.plots),
        "verified": None if result is None else result.verified,
        "reasons": [] if result is None else list(result.reasons),
        "seconds": output.seconds,
    }
    failed = result is not None and not result.verified
    output.facts(facts, title="reported, but it does NOT verify" if failed else "reported", aside=out == STDOUT)
    if failed:
        raise typer.Exit(1)


def explore_command(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="Time limit in seconds for one compilation.")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="Print the address as a JSON object and nothing else.")] = False,
) -> None:
    """Open the explorer: type a formula, move the tolerance, watch the Transformer change."""
    require("the explorer", "fastapi", "plotly", "uvicorn")
    from transformula.explorer.page_requests import Limits
    from transformula.explorer.serving import serve

    def started(url: str) -> None:
        Output(json).facts({"url": url}, title="the explorer is running", hint="Ctrl-C ends it")
        sys.stdout.flush()  # the reader of a pipe waits for the address

    serve(port, Limits(compile_seconds=seconds), started, browser=not no_browser)
