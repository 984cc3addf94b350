"""Results on the terminal: plain text for people, one JSON object for scripts; progress only while a person watches."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformula.budget import listening
from transformula.errors import NotProvenError, SavingError, TransformulaError, advice_of, in_words_of
from transformula.files import STDOUT

#: Width of tables in characters in a pipe or a file, where nothing is cut off, and of prose there.
_WIDE, _NARROW = 250, 80
#: Texts that stay on a line of their own in a pipe, whatever their length.
_ON_ONE_LINE = ("formula", "box", "read_as", "use")  # a command is pasted
#: Names of numbers that are upper bounds: they are rounded up.
_BOUNDS = (
    "bound",
    "claimed_bound",
    "hf_bound",
    "eps",
    "approximation",
    "rounding",
    "seams",
    "outside_seams",
    "largest",
)
#: Stage of the work → the units that its progress counts; tables for others.
_UNITS = {"proving": "piece", "reading": "part", "training": "epoch", "formulas": "formula", "fitting": "fit"}


class Interrupted(TransformulaError):
    """The user has ended the command."""

    exit_code = 130


class Output:
    """Writes to stdout as text or as JSON; messages and errors go to stderr."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Time since the command began."""
        return round(time.perf_counter() - self.start, 4)

    def facts(self, facts: Mapping[str, Any], title: str, hint: str = "", aside: bool = False) -> None:
        """A short list of named values; ``aside`` sends it to stderr, where stdout has the result itself."""
        if self.as_json:
            self._json(facts)
            return
        self._list(title, {k: v for k, v in facts.items() if v not in (None, [], "")}, aside)
        if hint:
            self.beside(hint)

    def sections(self, sections: Mapping[str, Mapping[str, Any]]) -> None:
        """Several titled lists."""
        if self.as_json:
            self._json({key: value for facts in sections.values() for key, value in facts.items()})
            return
        for title, facts in sections.items():
            self._list(title, facts)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
        """Rows under titles, whose words stand below each other; the first ``left`` columns to the left, numbers to the
        right; never wrapped in a pipe.
        """
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        for k, name in enumerate(columns):
            title = name.replace(" ", "\n")
            grid.add_column(title, justify="left" if k < left else "right", no_wrap=True, vertical="bottom")
        for row in rows:
            grid.add_row(*map(escape, row))
        Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDE).print(grid)

    def values(self, facts: Mapping[str, Any], note: str) -> None:
        """The numbers under ``values``, one a line, and a note about them on stderr."""
        if self.as_json:
            self._json(facts)
            return
        for value in facts["values"]:
            print(value)
        if note:
            self.beside(note)

    def error(self, error: Exception, code: int = TransformulaError.exit_code) -> int:
        """One sentence; with --json also an object, so that scripts need not parse prose. Returns the exit code."""
        said = in_words_of(str(error), "--eps {}", lambda name, value: f"--{name.replace('_', '-')} {value}")
        if self.as_json:
            facts: dict[str, Any] = {"error": said, "kind": type(error).__name__}
            if isinstance(error, NotProvenError):
                facts |= {"best_bound": error.best_bound, "measured": error.measured, "place": error.place}
            if isinstance(error, TransformulaError) and (advice := advice_of(error)):
                facts["advice"] = advice
            self._json(facts)
        print(_for_stderr(f"error: {said}"), file=sys.stderr)
        return code

    @staticmethod
    def beside(text: str) -> None:
        """A line on stderr, after the text of stdout, also where both go to one pipe."""
        sys.stdout.flush()
        print(_for_stderr(text), file=sys.stderr)

    @staticmethod
    def _json(facts: Mapping[str, Any]) -> None:
        print(json.dumps(dict(facts), allow_nan=False, default=str))

    @staticmethod
    def _list(title: str, facts: Mapping[str, Any], aside: bool = False) -> None:
        """In colour and wrapped for a terminal; else plain, so that a line of a pipe is a line of the list."""
        stream = sys.stderr if aside else sys.stdout
        if not stream.isatty():
            width = max(map(len, facts), default=0)
            print(title, file=stream)
            for key, value in facts.items():
                first, *more = _wrapped(_text(value, key), key, value, _NARROW - width - 4)
                print(f"  {key.replace('_', ' '):<{width}}  {first}", file=stream)
                for line in more:
                    print(f"  {'':<{width}}  {line}", file=stream)
            return
        from rich.console import Console
        from rich.markup import escape
        from rich.padding import Padding
        from rich.table import Table

        console = Console(highlight=False, file=stream)
        console.print(f"[bold]{title}[/bold]")
        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for key, value in facts.items():
            table.add_row(key.replace("_", " "), escape(_text(value, key)))
        console.print(Padding(table, (0, 0, 0, 2)))


def _for_stderr(text: str) -> str:
    """A sentence, wrapped between words on a terminal; one line in a pipe or a file."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def check_stdout(path: Path | None, taken: bool, option: str = "--out") -> None:
    """Refuse standard output for a result where --json writes to it."""
    if taken and path == STDOUT:
        raise SavingError(f"--json and {option} - both write to standard output: choose one")


def _wrapped(text: str, key: str, value: Any, width: int) -> list[str]:
    """The lines of a value, those of prose and lists of names no wider than a width where words allow it."""
    lines = text.split("\n")
    if key in _ON_ONE_LINE or isinstance(value, Path):
        return lines
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
    ]


def _text(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        from transformula.kernel.arithmetic import at_most  # --help does without flint

        return at_most(value, 6) if name.removeprefix("mean_") in _BOUNDS else f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return "\n".join(_text(v, name) for v in value)
    # a terminal obeys other characters, and may show another formula: a folder may hold any
    return "".join(char if char.isprintable() or char == "\n" else " " for char in str(value))


@contextmanager
def progress_bar(quiet: bool) -> Iterator[None]:
    """The current stage and the work left, on stderr; silent in pipes and with --json."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from transformula.show.page_parts import counted

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, said="")

        def show(stage: str, done: int, left: int | None) -> None:
            said = f"{done} rows" if stage == "evaluating" else ""
            if left is not None:
                said = f"{counted(left, _UNITS.get(stage, 'table'))} left"
            total = None if left is None else done + left
            bar.update(task, description=stage, completed=done, total=total, said=said)

        with listening(show):
            yield
