"""Formulas as arguments, from a file, or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from transformula.errors import InputError
from transformula.kernel.syntax.parsing import MAX_LENGTH

_STDIN = "-"


def given_formulas(words: list[str], file: Path | None) -> list[str]:
    """The formulas of the command line; a lone ``-`` stands for the lines of standard input."""
    for word in words:
        if word.startswith("--"):
            raise InputError(f"unknown option {word.partition('=')[0]}: see compile --help")
    if file is not None and words:
        raise InputError("give formulas either as arguments or in --file, not both")
    if file is None and not words:
        raise InputError("there is no formula: give one, or --file FILE, or - to read it from stdin")
    if file is None and words != [_STDIN]:
        return words
    source = "standard input" if file is None or str(file) == _STDIN else str(file)
    lines = [line.strip() for line in _read(file, source).splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise InputError(f"{source} has no formula in it")
    return found


def _read(file: Path | None, source: str) -> str:
    try:
        if file is None or str(file) == _STDIN:
            data = sys.stdin.buffer.read(2 * MAX_LENGTH)
        else:
            with open(file, "rb") as handle:
                data = handle.read(2 * MAX_LENGTH)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{source} is not a text in UTF-8") from None
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror or error}") from None
