"""Tables to fit: a CSV or Parquet file, a folder of them, or a pattern; files are read in chunks.

A CSV file is one part, a Parquet file has a part for each of its row groups. Errors name the file and the line or row.
"""

from __future__ import annotations

import glob
import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from transformula.cli.csv_files import STDIN, CsvFile, Row, not_a_number, open_csv, quoted
from transformula.errors import PointError
from transformula.learn.distinct_rows import Floats
from transformula.learn.streaming import Chunk
from transformula.learn.table_parts import ArrayReader, Reader, chunk_rows
from transformula.optional import require

_PARQUET = (".parquet", ".pq")
_SUFFIXES = (*_PARQUET, ".csv", ".tsv")


@dataclass(frozen=True)
class FoundTable:
    """The input columns of a table, and the readers of its parts."""

    names: list[str]
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class CsvPart:
    """A CSV file."""

    path: Path
    names: tuple[str, ...]  # of the inputs
    target: str

    def chunks(self) -> Iterator[Chunk]:
        """Rows of numbers, some at a time."""
        with open_csv(self.path) as file:
            yield from _csv_chunks(file, self.names, self.target)


@dataclass(frozen=True)
class ParquetPart:
    """A row group of a Parquet file."""

    path: Path
    names: tuple[str, ...]
    target: str
    group: int
    first: int  # the row of the file that it begins with

    def chunks(self) -> Iterator[Chunk]:
        """Rows of numbers, some at a time."""
        names, row = [*self.names, self.target], self.first
        with _open_parquet(self.path) as file:
            for batch in file.iter_batches(chunk_rows(len(names)), [self.group], names):
                table = np.empty((batch.num_rows, len(names)))
                for k, name in enumerate(names):
                    table[:, k] = _arrow_numbers(batch.column(name), f"{self.path}: {quoted(name)}", row)
                    _refuse_strange(table[:, k], f"{self.path}: {quoted(name)}", row)
                row += batch.num_rows
                if batch.num_rows:
                    yield table[:, :-1], table[:, -1:], None


def find_table(data: str, target: str, drop: list[str]) -> FoundTable:
    """Read the columns of every file; all must have the same ones, in any order."""
    if Path(data) == STDIN:
        return _standard_input(target, drop)
    paths = _paths(data)
    names: tuple[str, ...] = ()
    readers: list[Reader] = []
    for path in paths:
        if path.suffix.lower() in _PARQUET:
            header, starts = _parquet_layout(path, drop)
        else:
            with open_csv(path) as file:
                header, starts = file.header, []
        inputs = _inputs(str(path), header, target, drop)
        names = names or tuple(inputs)
        if other := sorted(set(names) ^ set(inputs)):
            lacks, has = (path, paths[0]) if other[0] in names else (paths[0], path)
            raise PointError(
                f"{lacks} has no column {quoted(other[0])}, but {has} has: all files need the same columns"
            )
        if path.suffix.lower() in _PARQUET:
            readers += [ParquetPart(path, names, target, k, first) for k, first in enumerate(starts)]
        else:
            readers.append(CsvPart(path, names, target))
    return FoundTable(list(names), tuple(readers))


def _standard_input(target: str, drop: list[str]) -> FoundTable:
    """A table from standard input, kept in memory since it can be read only once."""
    with open_csv(STDIN) as file:
        names = _inputs(file.name, file.header, target, drop)
        chunks = list(_csv_chunks(file, tuple(names), target))
    if not chunks:
        return FoundTable(names, ())
    X, Y = (np.concatenate([chunk[k] for chunk in chunks]) for k in (0, 1))
    return FoundTable(names, (ArrayReader(X, Y),))


def _paths(data: str) -> list[Path]:
    """The files of a path, a folder or a pattern, in order."""
    path = Path(data)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.suffix.lower() in _SUFFIXES and p.is_file())
        if not found:
            raise PointError(f"the folder {data} has no files that end with {', '.join(_SUFFIXES)}")
        return found
    if glob.has_magic(data):
        found = sorted(p for p in map(Path, glob.glob(data, recursive=True)) if p.is_file())
        if not found:
            raise PointError(f"no file matches {data}")
        return found
    raise PointError(f"there is no file {data}")


def _inputs(name: str, header: list[str], target: str, drop: list[str]) -> list[str]:
    CsvFile(name, header, ",", iter(()), 1).columns([target, *drop, *header])
    if "" in header:
        raise PointError(f"{name} has a column without a name")
    inputs = [column for column in header if column != target and column not in drop]
    if not inputs:
        raise PointError(f"{name} has no column besides {quoted(target)}")
    return inputs


def _csv_chunks(file: CsvFile, names: tuple[str, ...], target: str) -> Iterator[Chunk]:
    columns, done = file.columns([*names, target]), 0
    step = chunk_rows(len(columns))
    while lines := list(islice(file.text, step)):
        table = _plain_numbers(lines, file) if len(columns) == len(file.header) else None
        if table is None:
            rows = file.rows_of(lines, done)
            while some := list(islice(rows, step)):
                table = np.array([_numbers(row, file, columns, target) for row in some])
                yield table[:, :-1], table[:, -1:], None
            return
        done += len(lines)
        yield table[:, columns[:-1]], table[:, columns[-1:]], None


def _plain_numbers(lines: list[str], file: CsvFile) -> Floats | None:
    """A row for each line, ten times as fast as `_numbers`; None unless every cell is a plain number."""
    try:
        table = np.loadtxt(lines, delimiter=file.delimiter, comments=None, quotechar='"', ndmin=2)
    except ValueError:
        return None
    return table if table.shape == (len(lines), len(file.header)) and np.isfinite(table).all() else None


def _numbers(row: Row, file: CsvFile, columns: list[int], target: str) -> list[float]:
    line, cells = row
    numbers = []
    for column in columns:
        text, name = cells[column].strip(), file.header[column]
        try:
            value = float(text)
        except ValueError:
            place = f"{file.name}, line {line}: {quoted(name)} {not_a_number(text)}"
            raise PointError(f"{place} {_advice(name, target, text)}") from None
        if not math.isfinite(value):
            raise PointError(f"{file.name}, line {line}: {quoted(name)} is {text}, not a finite number")
        numbers.append(value)
    return numbers


def _advice(name: str, target: str, text: str) -> str:
    if name != target:
        return f"(leave a column out with --drop {shlex.quote(name)})"
    if not text:
        return "(remove the rows without a target)"
    return (
        "(fit predicts numbers: write two classes as 0 and 1, or use PolynomialTransformerClassifier "
        "from Python for any number of classes)"
    )


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """An open Parquet file; pyarrow's errors become one sentence with the file's name."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            yield file
    except (ArrowException, OSError) as error:
        raise PointError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None


def _parquet_layout(path: Path, drop: list[str]) -> tuple[list[str], list[int]]:
    """The columns, refused where one that is not dropped has no numbers, and the first row of every row group."""
    require("reading Parquet", "pyarrow")
    from pyarrow import types

    with _open_parquet(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
    for field in schema:
        numeric = any(
            test(field.type) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        )
        if not numeric and field.name not in drop:
            raise PointError(
                f"{path}: {quoted(field.name)} holds {field.type}, not numbers "
                f"(leave a column out with --drop {shlex.quote(field.name)})"
            )
    return list(schema.names), [0, *accumulate(sizes)][:-1]


def _arrow_numbers(column: Any, place: str, row: int) -> Floats:
    """A column of a batch as floats."""
    from pyarrow import float64

    if column.null_count:
        missing = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise PointError(f"{place} is empty in row {row + missing + 1}")
    return np.asarray(column.cast(float64()).to_numpy(zero_copy_only=False))


def _refuse_strange(values: Floats, place: str, row: int) -> None:
    if not np.isfinite(values).all():
        worst = int(np.argmin(np.isfinite(values)))
        raise PointError(f"{place} is {values[worst]} in row {row + worst + 1}, not a finite number")
