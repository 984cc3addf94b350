"""CSV in, CSV out, a chunk at a time, so that a file of any size fits."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from transformula.cli.csv_files import STDIN, CsvFile, Row, not_a_number, open_csv
from transformula.cli.points import check_inside
from transformula.errors import FormulaError, PointError
from transformula.files import opened
from transformula.kernel.arithmetic import precision
from transformula.kernel.syntax.expression import number
from transformula.kernel.syntax.parsing import parse
from transformula.model import Model

CHUNK_ROWS = 20_000


def evaluate_csv(
    model: Model, source: Path, target: Path, exact: bool, quiet: bool, names: Mapping[str, str] | None = None
) -> int:
    """Append the model's outputs to every row; the result appears whole or not at all.

    ``names`` maps variables to columns that are called otherwise.
    """
    if source != STDIN and source.resolve() == target.resolve():
        raise PointError("--csv and --out are the same file")
    with open_csv(source) as table:
        columns = table.columns((names or {}).get(name, name) for name in model.box.variables)
        with opened(target) as binary:
            handle = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            try:
                rows = _copy(model, table, handle, columns, exact, quiet)
            finally:
                handle.detach()  # flushes; whose file it is closes it
    return rows


def _output_names(outputs: int, header: list[str]) -> list[str]:
    names = ["f"] if outputs == 1 else [f"f{k + 1}" for k in range(outputs)]
    while any(name in header for name in names):
        names = [name + "_" for name in names]
    return names


def _copy(model: Model, table: CsvFile, handle: Any, columns: list[int], exact: bool, quiet: bool) -> int:
    writer = csv.writer(handle, delimiter=table.delimiter, lineterminator="\n")
    writer.writerow([*table.header, *_output_names(model.weights.outputs, table.header)])
    done = 0
    with _Progress(quiet) as progress:
        while chunk := list(islice(table.rows, CHUNK_ROWS)):
            values = (_exact if exact else _floats)(model, chunk, columns, table.name)
            writer.writerows([*row, *out] for (_, row), out in zip(chunk, values, strict=True))
            done += len(chunk)
            progress.advance(len(chunk))
    return done


def _floats(model: Model, chunk: list[Row], columns: list[int], source: str) -> Any:
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


def _blame_number(model: Model, chunk: list[Row], columns: list[int], source: str) -> None:
    for line, row in chunk:
        for name, column in zip(model.box.variables, columns, strict=True):
            try:
                float(row[column])
            except ValueError:
                raise PointError(f"{source}, line {line}: {name} {not_a_number(row[column])}") from None


def _check_row(model: Model, row: Row, columns: list[int], source: str) -> None:
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


def _exact(model: Model, chunk: list[Row], columns: list[int], source: str) -> list[list[str]]:
    results = []
    for line, row in chunk:
        point = []
        for k, column in enumerate(columns):
            try:
                value = parse(row[column], ())
            except FormulaError:
                name = model.box.variables[k]
                raise PointError(f"{source}, line {line}: {name} {not_a_number(row[column])}") from None
            with precision(512):
                check_inside(value, model.box, k, f"{source}, line {line}: ")
            point.append(value)
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
