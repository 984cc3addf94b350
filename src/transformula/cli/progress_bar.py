"""A progress line on stderr while solving and proving, only where a person is watching."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(quiet: bool) -> Iterator[None]:
    """Show what is going on and how much is left; silent in pipes and with --json."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from transformula.progress import listening

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, left="")

        def show(stage: str, done: int, left: int | None) -> None:
            known = left is not None
            unit = "boxes" if stage == "proving" else "tables"
            bar.update(
                task,
                description=stage,
                completed=done,
                total=done + left if known and left is not None else None,
                left=f"{left} {unit} left" if known else "",
            )

        with listening(show):
            yield
