"""Options that several verbs share: who does the work, and what may be replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Optional

import typer

Jobs = Annotated[Optional[int], typer.Option(help="Processes of this machine that fit tables at the same time.")]
Scheduler = Annotated[
    Optional[str], typer.Option(help="A Dask scheduler, like tcp://10.0.0.1:8786, whose workers do the work.")
]

Force = Annotated[bool, typer.Option("--force", help="Replace the model of another formula in that folder.")]


@contextmanager
def lent_workers(jobs: int | None, scheduler: str | None) -> Iterator[None]:
    """Workers for the fits inside the block, if any were asked for."""
    if jobs is None and scheduler is None:
        yield
        return
    from transformula.cluster.lent_workers import workers

    with workers(jobs, scheduler):
        yield
