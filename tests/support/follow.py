"""Follow a document as a reader would: run its blocks in order in an empty folder, and compare what they print.

    python follow.py README.md docs/tutorials/circuits.py

- A ``bash`` block is one script. In a ``console`` block ``$`` begins a command, and what stands below is its output.
- A ``python`` block shares its variables with the blocks before it; lines that begin with ``# >`` are its output.
- ``...`` stands for anything, and white space is not compared. ``# exit code 2`` after a command expects that code.
- ``<!-- not run: why -->`` before a block leaves it out. A ``.py`` file is a notebook: ``# %%`` begins a cell.

This needs the standard library only, so that it can run in an empty environment beside the package.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RUN = ("bash", "console", "python")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FENCE = re.compile(r"^(```+|~~~+)\s*([\w-]*)\s*$")
_SKIP = re.compile(r"<!-- not run: (.+?) -->\s*$")
_EXIT = re.compile(r"# exit code (\d+)\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document, or a cell of a notebook."""

    document: str
    line: int
    language: str
    text: str
    not_run: str = ""


class MismatchError(AssertionError):
    """A block did not do what the document says."""


def blocks_of(path: Path) -> list[Block]:
    """All blocks, also those in languages that are not run."""
    return _cells(path) if path.suffix == ".py" else _fences(path)


def _fences(path: Path) -> list[Block]:
    found, inside, before = [], None, ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            skip = _SKIP.search(before)
            inside = (number, fence[1], fence[2], skip[1] if skip else "", [])
        elif inside is not None and line.strip() == inside[1]:
            start, _, language, reason, lines = inside
            found.append(Block(path.name, start, language, "\n".join(lines), reason))
            inside, before = None, ""
        elif inside is not None:
            inside[4].append(line)
        elif line.strip():
            before = line
    if inside is not None:
        raise MismatchError(f"{path.name}, line {inside[0]}: the block has no end")
    return found


def _cells(path: Path) -> list[Block]:
    found, start, kind, lines = [], 0, "markdown", []
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), "# %%"], 1):
        if line.startswith("# %%"):
            if kind == "python" and any(text.strip() for text in lines):
                found.append(Block(path.name, start, kind, "\n".join(lines)))
            start, kind, lines = number, "markdown" if "[markdown]" in line else "python", []
        else:
            lines.append(line)
    return found


def follow(path: Path, folder: Path) -> int:
    """Run a document's blocks in a folder; how many were run."""
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    variables: dict[str, object] = {"__name__": "__main__"}
    blocks = [block for block in blocks_of(path) if block.language in RUN and not block.not_run]
    with _chdir(folder):
        for block in blocks:
            if block.language == "python":
                _run_python(block, variables)
            else:
                for command, expected in _commands(block):
                    _run_command(block, command, expected, environment)
    return len(blocks)


@contextlib.contextmanager
def _chdir(folder: Path):  # contextlib.chdir is not in Python 3.10
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _commands(block: Block) -> list[tuple[str, str | None]]:
    """Commands with the output that the document shows; None where it shows none."""
    if block.language == "bash":
        return [(block.text, None)]
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif found:
            found[-1][1].append(line)
        else:
            raise MismatchError(f"{block.document}, line {block.line}: a console block begins with '$ '")
    return [(command, "\n".join(lines) if lines else None) for command, lines in found]


def _run_command(block: Block, command: str, expected: str | None, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    wanted = _EXIT.search(command)
    if done.returncode != (int(wanted[1]) if wanted else 0):
        raise MismatchError(f"{_place(block)}: exit code {done.returncode} of\n{command}\n{done.stdout}")
    _compare(block, command, expected, done.stdout)


def _run_python(block: Block, variables: dict[str, object]) -> None:
    shown = [line[3:].strip() for line in block.text.splitlines() if line.startswith("# >")]
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, block.document, "exec")
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, variables)
    except Exception as error:
        raise MismatchError(f"{_place(block)}: {type(error).__name__}: {error}") from error
    _compare(block, block.text, "\n".join(shown) if shown else None, printed.getvalue())


def _compare(block: Block, source: str, expected: str | None, printed: str) -> None:
    if expected is not None and not doctest.OutputChecker().check_output(expected + "\n", printed, _FLAGS):
        raise MismatchError(f"{_place(block)}:\n{source}\nshows\n{expected}\nbut prints\n{printed}")


def _place(block: Block) -> str:
    return f"{block.document}, line {block.line}"


def main(paths: list[str]) -> None:
    """Follow each document in a folder of its own."""
    for name in paths:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(f"{name}: {follow(Path(name).resolve(), Path(folder))} blocks run")
            except MismatchError as error:
                sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
