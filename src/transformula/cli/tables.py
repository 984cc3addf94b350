"""CSV in, CSV out, a chunk at a time, so that a file of any size fits."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from transformula.cli.points import as_rational, check_inside
from transformula.errors import FormulaError, PointError
from transformula.kernel.balls import precision
from transformula.kernel.expression import number
from transformula.kernel.parsing import parse_constant
from transformula.model import Model
from transformula.saving import opened

CHUNK_ROWS = 20_000
_Row = tuple[int, list[str]]


def evaluate_csv(model: Model, source: Path, target: Path, exact: bool, quiet: bool) -> int:
    """Append the model's outputs to every row; the result appears whole or not at all."""
    if source.resolve() == target.resolve():
        raise PointError("--csv and --out are the same file")
    if not source.is_file():
        raise PointError(f"there is no file {source}")
    with open(source, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = _read_header(reader, source)
        columns = _find_columns(header, model, source)
        names = _output_names(model.weights.outputs, header)
        with opened(target) as binary:
            handle = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            try:
                rows = _copy(model, reader, handle, header, columns, names, exact, source, quiet)
            except UnicodeDecodeError:
                raise PointError(f"{source} is not a text file in UTF-8") from None
            except csv.Error as error:
                raise PointError(f"{source}, line {reader.line_num}: {error}") from None
            finally:
                handle.detach()  # flushes; whose file it is closes it
    return rows


def _read_header(reader: Iterator[list[str]], source: Path) -> list[str]:
    try:
        return [name.strip() for name in next(reader)]
    except StopIteration:
        raise PointError(f"{source} is empty: its first line must name the columns") from None
    except UnicodeDecodeError:
        raise PointError(f"{source} is not a text file in UTF-8") from None


def _find_columns(header: list[str], model: Model, source: Path) -> list[int]:
    missing = [name for name in model.box.variables if name not in header]
    if missing:
        raise PointError(f"{source} has no column {', '.join(missing)} (it has {', '.join(header)})")
    doubled = [name for name in model.box.variables if header.count(name) > 1]
    if doubled:
        raise PointError(f"{source} has the column {doubled[0]} twice")
    return [header.index(name) for name in model.box.variables]


def _output_names(outputs: int, header: list[str]) -> list[str]:
    names = ["f"] if outputs == 1 else [f"f{k + 1}" for k in range(outputs)]
    while any(name in header for name in names):
        names = [name + "_" for name in names]
    return names


def _copy(
    model: Model,
    reader: Any,
    handle: Any,
    header: list[str],
    columns: list[int],
    names: list[str],
    exact: bool,
    source: Path,
    quiet: bool,
) -> int:
    writer = csv.writer(handle, lineterminator="\n")
    writer.writerow([*header, *names])
    done = 0
    numbered = ((reader.line_num, row) for row in reader)
    with _Progress(quiet) as progress:
        while chunk := list(islice(numbered, CHUNK_ROWS)):
            _check_widths(chunk, header, source)
            values = (_exact if exact else _floats)(model, chunk, columns, source)
            writer.writerows([*row, *out] for (_, row), out in zip(chunk, values, strict=True))
            done += len(chunk)
            progress.advance(len(chunk))
    return done


def _check_widths(chunk: list[_Row], header: list[str], source: Path) -> None:
    for line, row in chunk:
        if not row:
            raise PointError(f"{source}, line {line}: the line is blank")
        if len(row) != len(header):
            raise PointError(f"{source}, line {line}: {len(row)} values for {len(header)} columns")


def _floats(model: Model, chunk: list[_Row], columns: list[int], source: Path) -> Any:
    try:
        x = np.array([[float(row[c]) for c in columns] for _, row in chunk])
    except ValueError:
        _blame_number(model, chunk, columns, source)
    low, high = np.array(model.box.floats()).T
    suspicious = ~((x > low) & (x < high)).all(axis=1)
    for k in np.flatnonzero(suspicious):
        _check_row(model, chunk[k], columns, source)
    values = np.asarray(model(x)).reshape(len(x), -1)
    return values.tolist()


def _blame_number(model: Model, chunk: list[_Row], columns: list[int], source: Path) -> None:
    for line, row in chunk:
        for name, column in zip(model.box.variables, columns, strict=True):
            try:
                float(row[column])
            except ValueError:
                raise PointError(f"{source}, line {line}: {name} is {row[column]!r}, which is not a number") from None


def _check_row(model: Model, row: _Row, columns: list[int], source: Path) -> None:
    """Exact comparison for rows at an end of the box or beyond it."""
    line, cells = row
    for k, column in enumerate(columns):
        value = float(cells[column])
        place = f"{source}, line {line}: "
        if not math.isfinite(value):
            raise PointError(f"{place}{model.box.variables[k]} is {cells[column]}, not a finite number")
        low, high = model.box.floats()[k]
        if value not in (low, high):  # an end that rounds to a float counts as that float
            with precision(512):
                check_inside(number(_fraction(value)), model.box, k, place)


def _fraction(value: float) -> Any:
    from fractions import Fraction

    return Fraction(value)


def _exact(model: Model, chunk: list[_Row], columns: list[int], source: Path) -> list[list[str]]:
    results = []
    for line, row in chunk:
        point = []
        for k, column in enumerate(columns):
            try:
                value = parse_constant(row[column])
            except FormulaError:
                name = model.box.variables[k]
                raise PointError(f"{source}, line {line}: {name} is {row[column]!r}, which is not a number") from None
            with precision(512):
                check_inside(value, model.box, k, f"{source}, line {line}: ")
            point.append(as_rational(value))
        results.append([str(v) for v in model.exact(point)])
    return results


class _Progress:
    """A row counter on stderr, only where a person is watching."""

    def __init__(self, quiet: bool) -> None:
        self.bar: Any = None
        if not quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress("{task.description}", "{task.completed} rows", console=Console(stderr=True))

    def __enter__(self) -> _Progress:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("evaluating", total=None)
        return self

    def advance(self, rows: int) -> None:
        if self.bar is not None:
            self.bar.update(self.task, advance=rows)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
