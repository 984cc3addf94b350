"""CSV files: comma, semicolon or tab, a header, rows with their line numbers."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import PointError

Row = tuple[int, list[str]]
#: The source that stands for standard input.
STDIN = Path("-")
_DELIMITERS = ("\t", ";", ",")


@dataclass(frozen=True)
class CsvFile:
    """An open table: its column names, and the lines below them."""

    name: str
    header: list[str]
    delimiter: str
    text: Iterator[str]
    above: int  # lines of the header

    @cached_property
    def rows(self) -> Iterator[Row]:
        """The remaining rows, each with the line it ends on."""
        return self.rows_of((), 0)

    def rows_of(self, lines: Iterable[str], skipped: int) -> Iterator[Row]:
        """The rows of lines already taken from the text, after ``skipped`` others, and of the remaining lines."""
        before, blank = self.above + skipped, 0
        for line, row in _lines(chain(lines, self.text), self.name, self.delimiter, before):
            if not row:  # which is nothing at the end of a file
                blank = blank or line
                continue
            if blank:
                raise PointError(f"{self.name}, line {blank}: the line is blank")
            if len(row) != len(self.header):
                raise PointError(f"{self.name}, line {line}: {len(row)} values for {len(self.header)} columns")
            yield line, row

    def columns(self, names: Iterable[str]) -> list[int]:
        """Indices of the columns; refused if one is missing or is given twice."""
        wanted = list(names)
        if missing := [name for name in wanted if name not in self.header]:
            has = ", ".join(map(quoted, self.header))
            raise PointError(f"{self.name} has no column {', '.join(map(quoted, missing))} (it has {has})")
        if doubled := [name for name in wanted if self.header.count(name) > 1]:
            raise PointError(f"{self.name} has the column {quoted(doubled[0])} twice")
        return [self.header.index(name) for name in wanted]


@contextmanager
def open_csv(source: Path) -> Iterator[CsvFile]:
    """Open a CSV file, or standard input for ``-``; errors name the line."""
    name = "standard input" if source == STDIN else str(source)
    if source == STDIN:
        with io.TextIOWrapper(sys.stdin.buffer, newline="", encoding="utf-8-sig") as file:
            yield _read(file, name)
        return
    if not source.is_file():
        raise PointError(f"there is no file {name}")
    try:
        file = open(source, newline="", encoding="utf-8-sig")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise PointError(f"cannot read {name}: {error.strerror}") from None
    with file:
        yield _read(file, name)


def delimiter_of(line: str) -> str:
    """The delimiter of a header line: whichever of tab, semicolon and comma it has most of.

    Examples
    --------
    >>> delimiter_of('x;y'), delimiter_of('"a;b;c",d'), delimiter_of('x')
    (';', ',', ',')
    """
    outside = re.sub(r'"[^"]*"', "", line)
    count = {mark: outside.count(mark) for mark in _DELIMITERS}
    most = max(_DELIMITERS, key=lambda mark: count[mark])
    return most if count[most] else ","


def quoted(name: str) -> str:
    """A column's name as messages show it: in quotes unless it is a plain word.

    Examples
    --------
    >>> quoted("age"), quoted("sq ft")
    ('age', '"sq ft"')
    """
    return name if re.fullmatch(r"\w+", name) else json.dumps(name, ensure_ascii=False)


def listed(given: Iterable[str], header: Sequence[str]) -> list[str]:
    """Columns named one by one or between commas; a column whose own name has a comma is found as well."""
    return [part.strip() for text in given for part in ([text] if text in header else text.split(","))]


def _read(file: io.TextIOBase, name: str) -> CsvFile:
    text = _decoded(file, name)
    first = next(text, "")
    if not first.strip():
        raise PointError(f"{name} is empty: its first line must name the columns")
    delimiter = delimiter_of(first)
    above, header = next(_lines(chain([first], text), name, delimiter))
    names = [cell.strip() or f"column {k}" for k, cell in enumerate(header, 1)]  # an index, or a delimiter at the end
    return CsvFile(name, names, delimiter, text, above)


def _decoded(file: io.TextIOBase, name: str) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError:
        raise PointError(f"{name} is not a text file in UTF-8: save it as UTF-8") from None
    except OSError as error:
        raise PointError(f"cannot read {name}: {error.strerror}") from None


def _lines(text: Iterator[str], name: str, delimiter: str, before: int = 0) -> Iterator[Row]:
    reader = csv.reader(text, delimiter=delimiter)
    try:
        for row in reader:
            yield before + reader.line_num, row
    except csv.Error as error:
        raise PointError(f"{name}, line {before + reader.line_num}: {error}") from None


def text_cells(rows: Sequence[Row], names: Sequence[str], columns: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Some columns of rows of a CSV file, without blanks around their texts."""
    return {
        name: np.array([row[column].strip() for _, row in rows], dtype=object)
        for name, column in zip(names, columns, strict=True)
    }


def not_a_number(cell: str) -> str:
    """The fault of a cell that should hold a number."""
    text = cell.strip()
    if not text:
        return "is empty"
    hint = ": write a decimal point" if re.fullmatch(r"[+-]?\d+,\d+", text) else ""
    return f"is {cell!r}, which is not a number{hint}"
