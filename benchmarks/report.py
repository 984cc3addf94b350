"""One readable table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Line:
    """One measurement: ours, theirs if there is a competitor, and what was promised."""

    what: str
    ours: str
    theirs: str
    ratio: str
    target: str
    met: bool


def seconds(task: Callable[[], object], repeat: int = 5) -> float:
    """The best of several runs: the least disturbed by whatever else the machine does."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        task()
        best = min(best, time.perf_counter() - start)
    return best


def limit(what: str, measured: float, at_most: float) -> Line:
    """A line for a time that must stay below a limit."""
    return Line(what, f"{measured:.3f} s", "", "", f"< {at_most:g} s", measured < at_most)


def show(lines: list[Line]) -> None:
    """Print the table."""
    table = Table(title="transformula benchmarks (best of several runs)")
    for title in ("what", "ours", "theirs", "ratio", "target", ""):
        table.add_column(title, overflow="fold")
    for line in lines:
        verdict = "[green]met[/green]" if line.met else "[red]MISSED[/red]"
        table.add_row(line.what, line.ours, line.theirs, line.ratio, line.target, verdict)
    Console(width=130).print(table)
