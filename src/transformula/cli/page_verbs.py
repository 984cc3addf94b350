"""The verbs report, explore, compare, reproduce and batch: pages, tables of models, the papers' experiments."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula.cli.arguments import FORMULAS, DType, Folder, Force, Json, On, Relative, Scheduler, given_formulas
from transformula.cli.csv_files import open_csv
from transformula.cli.output import Output, check_stdout, progress_bar
from transformula.cluster.batch_jobs import check_columns
from transformula.cluster.batch_run import batch
from transformula.cluster.batch_summary import Row, Summary
from transformula.compiler.comparison import Entry, compare
from transformula.errors import InputError, NotProvenError
from transformula.files import STDOUT, check_folder, write_file
from transformula.kernel.arithmetic import at_most
from transformula.optional import require
from transformula.show.figure_style import picture
from transformula.show.figures import comparison_figure
from transformula.show.report_page import write_report
from transformula.studies import STUDIES, run_study

#: Rows printed of each kind; summary.csv has all.
_SHOWN = 60
_PAST = {"compile": "compiled", "verify": "verified", "export": "exported", "report": "reported"}
_BATCH_COLUMNS = ("name", "construction", "layers", "tokens", "bound", "found", "seconds")


class BatchVerb(str, Enum):
    """Tasks for each formula."""

    compile = "compile"
    verify = "verify"
    export = "export"
    report = "report"


def batch_command(
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV file with the columns name, formula, box (or on), and optionally eps or rel, dtype and "
            "construction; - for stdin."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model folders and the summary.")],
    jobs: Annotated[Optional[int], typer.Option(help="Processes on this machine; default: one per core.")] = None,
    scheduler: Scheduler = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Keep the results of an earlier run for rows that have not changed."),
    ] = False,
    force: Force = False,
    verb: Annotated[
        BatchVerb, typer.Option(help="What to do; all but compile reuse existing folders and compile what is missing.")
    ] = BatchVerb.compile,
    json: Json = False,
) -> None:
    """Compile, verify, export or report many formulas.

    Exit code 0 if all are proven, 1 if some are not (the summary lists them), 2 if the table cannot be used.
    """
    rows, places = _read(table)
    with progress_bar(quiet=json):
        summary = batch(rows, out, jobs, scheduler, resume, verb.value, places, force)
    if json:
        Output(True).facts({**summary.facts, "rows": [asdict(row) for row in summary.rows]}, title="")
    else:
        _print(summary)
    if summary.failed:
        raise typer.Exit(1)


def _read(table: Path) -> tuple[list[dict[str, str]], list[str]]:
    """The rows as mappings, and the position of each in its source."""
    rows, places = [], []
    with open_csv(table) as file:
        check_columns(file.header, file.name)
        for line, cells in file.rows:
            rows.append(dict(zip(file.header, cells, strict=True)))
            places.append(f"{file.name}, line {line}")
    return rows, places


def _print(summary: Summary) -> None:
    proven = [row for row in summary.rows if row.proven]
    if proven:
        cells = [[_cell(row, name) for name in _BATCH_COLUMNS] for row in proven[:_SHOWN]]
        Output(False).table(_BATCH_COLUMNS, cells, left=2)
    _print_rest(len(proven), summary)
    for row in summary.failed[:_SHOWN]:
        print(f"{row.verdict}: {row.name}: {row.error}")
    _print_rest(len(summary.failed), summary)
    facts = {key: value for key, value in summary.facts.items() if key != "verb" and value != 0}
    Output(False).facts(facts, title=_PAST[summary.verb])


def _print_rest(count: int, summary: Summary) -> None:
    if count > _SHOWN:
        print(f"and {count - _SHOWN:,} more in {summary.out / 'summary.csv'}")


def _cell(row: Row, name: str) -> str:
    value = getattr(row, name)
    if isinstance(value, float):
        return at_most(value) + (" (mean)" if row.norm == "mean" else "") if name == "bound" else f"{value:.3g}"
    return "" if value is None else str(value)


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


_COLUMNS = ("construction", "layers", "heads", "memory tokens", "parameters", "proven bound", "seconds")


def compare_command(
    formulas: Annotated[list[str], FORMULAS],
    *,
    on: Annotated[str, On],
    eps: Annotated[Optional[float], typer.Option(help="Tolerance for every construction; 1e-6 by default.")] = None,
    rel: Relative = None,
    dtype: DType = "float64",
    out: Annotated[
        Optional[Path], typer.Option(help="Draw the comparison into a .png or .svg file; - for SVG on stdout.")
    ] = None,
    json: Json = False,
) -> None:
    """Compile a formula by every construction and compare their sizes; exit code 1 if none is proven."""
    form = _picture_format(out)
    check_stdout(out, json)
    given = given_formulas(formulas).formulas
    with progress_bar(quiet=json):
        found = compare(given[0] if len(given) == 1 else given, on, eps, rel, dtype)
    if out is not None:
        write_file(out, picture(comparison_figure(found), form))
    if json:
        Output(True).facts(found.to_dict() | {"out": out}, title="")
    elif out != STDOUT:
        Output(False).table(_COLUMNS, [_cells(entry) for entry in found.entries])
    for entry in found.entries if not json else ():
        if entry.refusal:
            Output.beside(f"{entry.name}: {entry.refusal}")
    if found.smallest is None:
        raise typer.Exit(NotProvenError.exit_code)


def _cells(entry: Entry) -> list[str]:
    sizes = entry.layers, entry.heads, entry.memory_tokens, entry.parameters
    bound = "" if entry.bound is None else at_most(entry.bound, 6) + ("" if entry.norm == "sup" else " (mean)")
    return [entry.name, *("" if size is None else str(size) for size in sizes), bound, f"{round(entry.seconds, 2):g}"]


def _picture_format(out: Path | None) -> str:
    if out is None or out == STDOUT:
        return "svg"
    form = out.suffix.lower().lstrip(".")
    if form not in ("png", "svg"):
        raise InputError(f"cannot draw into {out}: give a file that ends in .png or .svg")
    return form


def reproduce_command(
    name: Annotated[Optional[str], typer.Argument(help="The study; --list names them all.")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder for the table, the figure and the numbers.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run, under a minute.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's full size (fang-f2: on a GPU).")] = False,
    seed: Annotated[int, typer.Option(help="Seed of data and training.")] = 0,
    listing: Annotated[bool, typer.Option("--list", help="List the studies.")] = False,
    json: Json = False,
) -> None:
    """Run one of the papers' experiments: a table, a figure and the numbers as JSON."""
    if listing or name is None:
        facts: dict[str, Any] = {key: about for key, (_, about) in STUDIES.items()}
        Output(json).facts(facts, title="studies", hint="transformula reproduce NAME --out FOLDER")
        return
    if name not in STUDIES:
        raise InputError(f"there is no study {name!r}: choose {', '.join(STUDIES)}")
    if quick and full:
        raise InputError("give either --quick or --full")
    folder = Path(f"reproduce-{name}") if out is None else out
    check_folder(folder)
    with progress_bar(quiet=json):
        report = run_study(name, seed=seed, size="quick" if quick else "full" if full else "normal")
    paths = report.save(folder)
    if json:
        Output(True).facts(report.to_json() | {"files": [str(p) for p in paths]}, title=name)
        return
    report.print()
    print("written: " + ", ".join(str(p) for p in paths))
