"""The verb batch: a table of formulas, one model folder each."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from transformula.cli.arguments import Force, Json, Scheduler
from transformula.cli.csv_files import open_csv
from transformula.cli.output import Output, sweep_progress
from transformula.cluster.batch_jobs import check_columns
from transformula.cluster.batch_run import batch
from transformula.cluster.batch_summary import Row, Summary
from transformula.kernel.arithmetic import at_most

#: Rows printed of each kind; summary.csv has all.
_SHOWN = 60
_PAST = {"compile": "compiled", "verify": "verified", "export": "exported", "report": "reported"}
_COLUMNS = ("name", "construction", "layers", "tokens", "bound", "found", "seconds")


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
    with sweep_progress(quiet=json):
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
        cells = [[_cell(row, name) for name in _COLUMNS] for row in proven[:_SHOWN]]
        Output(False).table(_COLUMNS, cells, left=2)
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
