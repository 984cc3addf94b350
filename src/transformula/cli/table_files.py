"""Tables to fit: a CSV or Parquet file, a folder of them, or a pattern; files are read in chunks of raw columns.

A CSV file is one part, a Parquet file has a part for each of its row groups. Errors name the file and the line.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from transformula.cli.csv_files import STDIN, CsvFile, listed, open_csv, quoted, text_cells
from transformula.cluster.table_parts import Chunk, chunk_rows
from transformula.errors import PointError
from transformula.learn.preparation import NUMBER, Preparation
from transformula.learn.raw_cells import BINARY, PLAIN, Cells, as_numbers
from transformula.optional import require

_PARQUET = (".parquet", ".pq")
_SUFFIXES = (*_PARQUET, ".csv", ".tsv")
#: Parts of which the sample takes as many rows as it wants; of more parts it takes fewer from each.
_FEW_PARTS = 20


class RawPart(Protocol):
    """One part of a table; it can be pickled and read by any worker."""

    def cells(self, plain: bool = False) -> Iterator[Cells]:
        """Raw columns, some rows at a time; ``plain`` promises that all are numbers."""


@dataclass(frozen=True)
class FoundTable:
    """The input columns of a table, its target, and its parts."""

    names: list[str]
    target: str
    parts: tuple[RawPart, ...]

    def sample(self, limit: int) -> tuple[Cells, bool]:
        """Up to twice as many rows, evenly spread over what is read, and whether they are all rows.

        Of a table with many parts the first rows of each are read.
        """
        most = limit if len(self.parts) <= _FEW_PARTS else max(_FEW_PARTS * limit // len(self.parts), 100)
        chunks: list[Cells] = []
        stride = 1
        kept = 0
        total = 0
        whole = True
        for part in self.parts:
            begun = total
            for cells in part.cells():
                size = len(cells[self.target])
                some = slice(-total % stride, None, stride)
                chunks.append({name: column[some] for name, column in cells.items()})
                total += size
                kept += len(chunks[-1][self.target])
                if kept > 2 * limit:
                    stride, chunks = 2 * stride, [{n: column[::2] for n, column in joined(chunks).items()}]
                    kept = len(chunks[0][self.target])
                if len(self.parts) > 1 and total - begun > most:
                    whole = False
                    break
        if not total:
            raise PointError("the table has no rows: at least 2 are needed to fit")
        return joined(chunks), whole and total <= limit


def joined(chunks: Sequence[Cells]) -> Cells:
    """Chunks of one table, one below the other."""
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


@dataclass(frozen=True)
class PreparedPart:
    """A part whose rows are prepared as they are read; rows without a target are left out."""

    part: RawPart
    preparation: Preparation
    target: str
    form: str = ""  # in which the target's numbers are written

    def chunks(self) -> Iterator[Chunk]:
        """Rows of numbers, some at a time."""
        plain = all(column.kind == NUMBER and column.form in (PLAIN, BINARY) for column in self.preparation.columns)
        for cells in self.part.cells(plain):
            column = cells[self.target]
            y = as_numbers(column, self.form)
            missing = np.isnan(y)
            if column.dtype.kind != "f" and (odd := [text for text in column[missing] if text]):
                raise PointError(f"{quoted(self.target)} is {odd[0]!r} in a row, which is not a number")
            if not missing.all():
                yield self.preparation.rows(cells).X[~missing], y[~missing, None], None


@dataclass(frozen=True)
class CsvPart:
    """A CSV file."""

    path: Path
    names: tuple[str, ...]

    def cells(self, plain: bool = False) -> Iterator[Cells]:
        """Texts, or numbers where all cells are plain numbers."""
        with open_csv(self.path) as file:
            yield from _csv_cells(file, self.names, plain)


@dataclass(frozen=True)
class CellsPart:
    """Rows in memory: standard input can be read only once."""

    chunks: tuple[Cells, ...]

    def cells(self, plain: bool = False) -> Iterator[Cells]:
        """The chunks."""
        yield from self.chunks


@dataclass(frozen=True)
class ParquetPart:
    """A row group of a Parquet file."""

    path: Path
    names: tuple[str, ...]
    group: int

    def cells(self, plain: bool = False) -> Iterator[Cells]:
        """Numbers and texts."""
        with _open_parquet(self.path) as file:
            for batch in file.iter_batches(chunk_rows(len(self.names)), [self.group], list(self.names)):
                if batch.num_rows:
                    yield {name: arrow_cells(batch.column(name)) for name in self.names}


def arrow_cells(column: Any) -> NDArray[Any]:
    """An Arrow column as floats with NaN, or as texts with ""."""
    from pyarrow import float64, string, types

    kind = column.type
    if any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal)):
        return np.asarray(column.cast(float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False))
    texts = column.cast(string()).fill_null("").to_numpy(zero_copy_only=False)
    return np.array([text.strip() for text in texts], dtype=object)


def find_table(data: str, target: str, drop: list[str]) -> FoundTable:
    """Read the columns of every file; all must have the same ones, in any order."""
    if Path(data) == STDIN:
        with open_csv(STDIN) as file:
            names = _inputs(file.name, file.header, target, drop)
            return FoundTable(names, target, (CellsPart(tuple(_csv_cells(file, (*names, target), False))),))
    paths = _paths(data)
    first: tuple[str, ...] = ()
    parts: list[RawPart] = []
    for path in paths:
        groups = 0
        if path.suffix.lower() in _PARQUET:
            require("reading Parquet", "pyarrow")
            with _open_parquet(path) as parquet:
                header, groups = list(parquet.schema_arrow.names), parquet.metadata.num_row_groups
        else:
            with open_csv(path) as file:
                header = file.header
        inputs = _inputs(str(path), header, target, drop)
        first = first or tuple(inputs)
        if other := sorted(set(first) ^ set(inputs)):
            lacks, has = (path, paths[0]) if other[0] in first else (paths[0], path)
            raise PointError(
                f"{lacks} has no column {quoted(other[0])}, but {has} has: all files need the same columns"
            )
        every = (*first, target)
        parts += [ParquetPart(path, every, k) for k in range(groups)]
        if path.suffix.lower() not in _PARQUET:
            parts.append(CsvPart(path, every))
    return FoundTable(list(first), target, tuple(parts))


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
    """All columns but the target and those to drop: one a text, or several between commas."""
    wanted = listed(drop, header)
    CsvFile(name, header, ",", iter(()), 1).columns([target, *wanted, *header])
    if "" in header:
        raise PointError(f"{name} has a column without a name")
    inputs = [column for column in header if column != target and column not in wanted]
    if not inputs:
        raise PointError(f"{name} has no column besides {quoted(target)}")
    return inputs


def _csv_cells(file: CsvFile, names: tuple[str, ...], plain: bool) -> Iterator[Cells]:
    columns, done = file.columns(names), 0
    step = chunk_rows(len(columns))
    while lines := list(islice(file.text, step)):
        table = _plain_numbers(lines, file) if plain and len(columns) == len(file.header) else None
        if table is None:
            rows = file.rows_of(lines, done)
            while some := list(islice(rows, step)):
                yield text_cells(some, names, columns)
            return
        done += len(lines)
        yield {name: table[:, column] for name, column in zip(names, columns, strict=True)}


def _plain_numbers(lines: list[str], file: CsvFile) -> NDArray[np.float64] | None:
    """A row for each line, ten times as fast as texts; None unless every cell is a plain number."""
    try:
        table = np.loadtxt(lines, delimiter=file.delimiter, comments=None, quotechar='"', ndmin=2)
    except ValueError:
        return None
    return table if table.shape == (len(lines), len(file.header)) and np.isfinite(table).all() else None


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
