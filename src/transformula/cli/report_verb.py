"""The verb report: a model folder as one page, with plots beside it if asked."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from transformula.cli.output import Output, check_stdout
from transformula.files import STDOUT


class PlotFormat(str, Enum):
    """Formats of static plots."""

    png = "png"
    svg = "svg"


def report_command(
    folder: Annotated[Path, typer.Argument(help="A model folder, as written by compile --out.")],
    out: Annotated[Optional[Path], typer.Option(help="The page, - for stdout; default FOLDER/report.html.")] = None,
    plots: Annotated[Optional[Path], typer.Option(help="A folder for the figures as files.")] = None,
    form: Annotated[PlotFormat, typer.Option("--format", help="The figures' format.")] = PlotFormat.png,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Run the checker and say what it found.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Write a model's report: one self-contained page. Exit code 1 if the model does not verify."""
    from transformula.cli.progress_bar import progress_bar
    from transformula.show.report_page import write_report

    check_stdout(out, json)
    start = time.perf_counter()
    with progress_bar(quiet=json):
        written = write_report(folder, out, plots, form.value, verify)
    result = written.verification
    facts = {
        "page": str(written.page),
        "plots": [str(path) for path in written.plots],
        "verified": None if result is None else result.verified,
        "reasons": [] if result is None else list(result.reasons),
        "seconds": round(time.perf_counter() - start, 4),
    }
    failed = result is not None and not result.verified
    Output(json).facts(facts, title="reported, but it does NOT verify" if failed else "reported", aside=out == STDOUT)
    if failed:
        raise typer.Exit(1)
