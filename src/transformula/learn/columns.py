"""Columns of a table and the variables of a formula: how names are changed, and how they are found again.

A formula's variables are ASCII words, columns are called anything. `fit.json`, beside a saved model, holds the
columns as they were called; which variable is which column follows from them by the same rule that named the
variables, so the file cannot give a variable the column of another.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformula.errors import ModelFileError
from transformula.files import write_file
from transformula.kernel.syntax import expression as ex
from transformula.model_folder import FIT_FILE

_MOST_BYTES = 1 << 26


def variable_names(given: Sequence[str] | None, count: int) -> list[str]:
    """Names our parser reads: the given ones with odd characters replaced, else x1, x2, ...

    Examples
    --------
    >>> variable_names(["mean radius", "2nd", "sin", "é-col", "Größe", "β", "東京"], 7)
    ['mean_radius', 'x2nd', 'sin_', 'e_col', 'Grosse', 'beta', 'x6771_4EAC']
    """
    if given is None:
        return [f"x{k + 1}" for k in range(count)]
    names: list[str] = []
    for text in given:
        plain = unicodedata.normalize("NFKD", str(text))
        plain = "".join(_ascii_letters(c) for c in plain if not unicodedata.combining(c))
        name = re.sub(r"\W+", "_", plain, flags=re.ASCII).strip("_") or "x"
        name = f"x{name}" if name[0].isdigit() else name
        while name in ex.RESERVED or name in ("pi", "E") or name in names:
            name += "_"
        names.append(name)
    return names


def _ascii_letters(char: str) -> str:
    """A letter of any script in plain words: ß is ss, β is beta, Ж is Zhe; others have their number."""
    if char.isascii() or not char.isalpha():
        return char
    if char.casefold().isascii():
        return char.casefold()
    said = re.search(r"( CAPITAL)? LETTER ([A-Z]+)( WITH .*)?$", unicodedata.name(char, ""))
    if said is None:
        return f" {ord(char):X} "
    return said[2].capitalize() if said[1] else said[2].lower()


def columns_of(columns: Sequence[str]) -> dict[str, str]:
    """Variable → column, for all columns a model was fitted on.

    Examples
    --------
    >>> columns_of(["sq ft", "age"])
    {'sq_ft': 'sq ft', 'age': 'age'}
    """
    return dict(zip(variable_names(columns, len(columns)), columns, strict=True))


def write_notes(folder: Path, columns: Sequence[str], notes: Mapping[str, Any]) -> None:
    """Put fit.json beside a saved model: the columns, and whatever else should be remembered of the fit."""
    text = json.dumps({"columns": list(columns), **notes}, indent=1, ensure_ascii=False, allow_nan=False)
    write_file(folder / FIT_FILE, f"{text}\n")


def is_same_fit(folder: Path, columns: Sequence[str], target: str) -> bool:
    """Whether a folder holds an earlier fit of the same target to the same columns, which a new one may replace."""
    try:
        notes = json.loads((folder / FIT_FILE).read_bytes()[:_MOST_BYTES])
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(notes, dict) and (notes.get("table_columns"), notes.get("target")) == (list(columns), target)


def read_notes(folder: Path) -> dict[str, Any]:
    """The contents of fit.json; {} if there is none."""
    path = folder / FIT_FILE
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too large")
        notes = json.loads(path.read_text(encoding="utf-8"))
        columns = notes["columns"]
        if not (isinstance(columns, list) and all(isinstance(c, str) for c in columns)):
            raise ValueError("its columns are not a list of names")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from None
    return dict(notes)


def read_columns(folder: Path, variables: Iterable[str]) -> dict[str, str]:
    """Variable → column of a table; a model that was not fitted has columns named as its variables."""
    notes, variables = read_notes(folder), tuple(variables)
    if not notes:
        return {name: name for name in variables}
    known = columns_of(notes["columns"])
    if missing := [name for name in variables if name not in known]:
        raise ModelFileError(f"{folder / FIT_FILE} does not belong to this model: it names no column for {missing[0]}")
    return {name: known[name] for name in variables}
