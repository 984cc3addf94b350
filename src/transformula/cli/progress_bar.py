"""A progress line on stderr while solving and proving, only where a person is watching."""

from __future__ import annotations

import sys
import time
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
            unit = {"proving": "boxes", "reading": "parts"}.get(stage, "tables")
            bar.update(
                task,
                description=stage,
                completed=done,
                total=done + left if known and left is not None else None,
                left=f"{left} {unit} left" if known else "",
            )

        with listening(show):
            yield


#: Seconds between two lines in a log.
_EVERY = 30.0


@contextmanager
def sweep_progress(quiet: bool) -> Iterator[None]:
    """How many formulas are done, at what rate, and the time left: a bar, or in a log a line now and then."""
    if quiet:
        yield
        return
    from transformula.progress import listening

    if not sys.stderr.isatty():
        with listening(_LogLines().show):
            yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, pace = bar.add_task("", total=None, said=""), Pace()

        def show(stage: str, done: int, left: int | None) -> None:
            if stage == "formulas" and left is not None:
                bar.update(task, completed=done, total=done + left, said=pace.said(done, left))

        with listening(show):
            yield


class Pace:
    """Rate and time left, from the mean since the start."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def said(self, done: int, left: int) -> str:
        """Like ``2.5 a second, 1 min 4 s left``."""
        rate = done / max(time.monotonic() - self.start, 1e-9)
        if not done:
            return ""
        shown = f"{rate:.3g} a second" if rate >= 1 else f"{60 * rate:.3g} a minute"
        seconds = round(left / rate)
        return f"{shown}, {_span(seconds)} left" if left else shown


class _LogLines:
    def __init__(self) -> None:
        self.pace, self.last = Pace(), time.monotonic()

    def show(self, stage: str, done: int, left: int | None) -> None:
        now = time.monotonic()
        if stage == "formulas" and left and done and now - self.last >= _EVERY:
            self.last = now
            print(f"{done} of {done + left} done, {self.pace.said(done, left)}", file=sys.stderr, flush=True)


def _span(seconds: int) -> str:
    """Seconds in words."""
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
