"""How results reach the terminal: plain text for people, one JSON object for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformula.errors import NotProvenError, SavingError, TransformulaError
from transformula.files import STDOUT
from transformula.kernel.digits import at_most

#: Columns of text in a pipe or a file, where nothing is cut off.
_WIDE = 250
#: Numbers that a claim says are not exceeded: they are rounded up.
_BOUNDS = ("bound", "approximation", "rounding", "seams", "outside_seams", "largest")


class Output:
    """Writes to stdout as text or as JSON; messages and errors go to stderr."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def facts(self, facts: Mapping[str, Any], title: str, hint: str = "", aside: bool = False) -> None:
        """A short list of named values; ``aside`` sends it to stderr, where stdout has the result itself."""
        if self.as_json:
            self._json(facts)
            return
        self._list(title, {k: v for k, v in facts.items() if v not in (None, [], "")}, aside)
        if hint:
            self._beside(hint)

    def sections(self, sections: Mapping[str, Mapping[str, Any]]) -> None:
        """Several titled lists."""
        if self.as_json:
            self._json({key: value for facts in sections.values() for key, value in facts.items()})
            return
        for title, facts in sections.items():
            self._list(title, facts)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
        """Rows under titles: the first ``left`` columns to the left, numbers to the right; never wrapped in a pipe."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        grid = Table(box=None, pad_edge=False)
        for k, name in enumerate(columns):
            grid.add_column(name, justify="left" if k < left else "right", no_wrap=True)
        for row in rows:
            grid.add_row(*map(escape, row))
        Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDE).print(grid)

    def values(self, facts: Mapping[str, Any]) -> None:
        """Numbers, one a line, with the bound beside them on stderr, and whether it is proven or only claimed."""
        if self.as_json:
            self._json(facts)
            return
        for value in facts["values"]:
            print(value)
        if facts["bound"] is None and "seams" in facts["status"]:
            self._beside("no bound at this point: it lies in a seam, and the claim is about the mean over the box")
        if facts["bound"] is not None:
            status = facts["status"] + ("; transformula verify proves it" if "claimed" in facts["status"] else "")
            self._beside(f"within {at_most(facts['bound'])} of the formula ({status})")

    def error(self, error: Exception, code: int = TransformulaError.exit_code) -> int:
        """One sentence; with --json also an object, so that scripts need not parse prose. Returns the exit code."""
        if self.as_json:
            facts: dict[str, Any] = {"error": str(error), "kind": type(error).__name__}
            if isinstance(error, NotProvenError):
                facts |= {"best_bound": error.best_bound, "measured": error.measured, "place": error.place}
            self._json(facts)
        print(f"error: {error}", file=sys.stderr)
        return code

    @staticmethod
    def _beside(text: str) -> None:
        """A line on stderr, after what stdout holds, also where both go to one pipe."""
        sys.stdout.flush()
        print(text, file=sys.stderr)

    @staticmethod
    def _json(facts: Mapping[str, Any]) -> None:
        print(json.dumps(dict(facts), allow_nan=False))

    @staticmethod
    def _list(title: str, facts: Mapping[str, Any], aside: bool = False) -> None:
        """In colour and wrapped for a terminal; else plain, so that a line of a pipe is a line of the list."""
        stream = sys.stderr if aside else sys.stdout
        if not stream.isatty():
            width = max(map(len, facts), default=0)
            print(title, file=stream)
            for key, value in facts.items():
                first, *more = _text(value, key).split("\n")
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


def check_stdout(path: Path | None, taken: bool, option: str = "--out") -> None:
    """Refuse standard output for a result where it is taken by the facts about it."""
    if taken and path == STDOUT:
        raise SavingError(f"--json and {option} - both write to standard output: choose one")


def _text(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return at_most(value, 6) if name.removeprefix("mean_") in _BOUNDS else f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return "\n".join(_text(v, name) for v in value)
    return str(value)
