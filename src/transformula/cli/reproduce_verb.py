"""``transformula reproduce``: the papers' experiments, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula.cli.output import Output
from transformula.errors import InputError


def reproduce_command(
    name: Annotated[Optional[str], typer.Argument(help="Which study; see --list.")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder for JSON, PNG and page.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run, under a minute.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's full size (fang-f2: on a GPU).")] = False,
    seed: Annotated[int, typer.Option(help="Seed of data and training.")] = 0,
    listing: Annotated[bool, typer.Option("--list", help="List the studies.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Run one of the papers' experiments: a table, a figure and the numbers as JSON."""
    from transformula.cli.progress_bar import progress_bar
    from transformula.files import check_folder
    from transformula.studies import STUDIES, run_study

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
