"""Evaluation of a model at a point or for every row of a CSV file, checked against the box in exact arithmetic.

A CSV file is read and written a chunk at a time, so that a file of any size fits.
"""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb

from transformula.budget import report
from transformula.cli.csv_files import STDIN, CsvFile, Row, not_a_number, open_csv, quoted, text_cells
from transformula.errors import BoxError, FormulaError, PointError, brief
from transformula.files import opened
from transformula.formula.given_box import exact_number
from transformula.formula.sample_target import Samples
from transformula.kernel.arithmetic import at_most, precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.folder.description import EVIDENCE_FILE, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax.boxes import Box, split_commas
from transformula.kernel.syntax.expression import Expr, number
from transformula.kernel.syntax.parsing import parse
from transformula.learn.fitted_table import TableModel
from transformula.model import Model

#: Bits of the comparison of a point with the ends of an interval.
_BITS = 512
#: Commas before a further name=value, outside quotes: a value may be 1,250.
_PAIRS = re.compile(r',(?=\s*(?:"[^"]*"|[^",=]*)\s*=)(?=(?:[^"]*"[^"]*")*[^"]*$)')
#: Rows of a CSV file that are evaluated at a time.
CHUNK_ROWS = 20_000


def _parse_point(text: str, box: Box, names: Mapping[str, str] | None = None) -> list[Expr]:
    """Read ``x=1/2, y=pi`` into one exact number for each variable of the box.

    ``names`` maps variables to columns, which may be named instead: ``"sq ft"=900``.
    """
    given: dict[str, Expr] = {}
    variable = {column: name for name, column in (names or {}).items()}
    for part in split_commas(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise PointError(f"cannot read {part!r} in the point: write name=value")
        if name not in box.variables:
            name = variable.get(name.strip("\"'"), name)
        if name not in box.variables:
            raise PointError(f"{name!r} is not a variable of this model: {', '.join(box.variables)}")
        if name in given:
            raise PointError(f"the point gives {name} twice")
        try:
            given[name] = exact_number(value, name)
        except BoxError as error:
            raise PointError(str(error)) from None
    if missing := [name for name in box.variables if name not in given]:
        raise PointError(f"the point has no value for {', '.join(missing)}")
    return [given[name] for name in box.variables]


def _check_inside(value: Expr, box: Box, index: int, place: str = "") -> arb:
    """The value as a ball; refused outside its interval."""
    ball = enclose(value)
    low, high = enclose(box.lower[index]), enclose(box.upper[index])
    if not ball.is_finite():
        raise PointError(f"{place}{box.variables[index]} = {value} is not a number")
    if ball < low or ball > high:
        raise PointError(
            f"{place}{box.variables[index]} = {_decimal(value)} is outside {box.lower[index]}..{box.upper[index]}, "
            "where nothing is proven"
        )
    return ball


def _decimal(value: Expr) -> str:
    """The text of a number; a fraction with many digits, as a float has, in decimals."""
    text = str(value)
    return text if value.number is None or len(text) <= 12 else repr(float(value.number))


def evaluate_point(
    model: Model, text: str, exact: bool, names: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], str]:
    """The values at one point, in floats or through the blocks on rationals, and a note about their bound."""
    point = _parse_point(text, model.box, names)
    with precision(_BITS):
        balls = [_check_inside(v, model.box, k) for k, v in enumerate(point)]
    if exact:
        values = [str(v) for v in model.exact(point)]
        return {"values": values, "exact": True, "bound": None, "status": model.status}, ""
    row = [float(b) for b in balls]
    result = np.atleast_1d(model([row])).ravel()
    bound, status = model.pointwise
    facts = {"values": [float(v) for v in result], "exact": False, "bound": None, "status": status}
    if not _outside_seams(model, balls):
        return facts, "no bound at this point: it lies in a seam, and the claim is about the mean over the box"
    if isinstance(model.formula, Samples) and not (model.formula.x == row).all(axis=1).any():
        return facts, ""
    advice = "" if model.proven else "; transformula verify proves it"
    return facts | {"bound": bound}, f"within {at_most(bound)} of the formula ({status}{advice})"


def _outside_seams(model: Model, point: list[arb]) -> bool:
    """Whether the bound holds at this point: the claim about a mean excludes seams, which evidence.json places."""
    if model.certificate.mean is None:
        return True
    evidence = Evidence(parse_json(model.packed.evidence, EVIDENCE_FILE))
    sides = zip(point, model.box.variables, strict=True)
    return all(any(edges[0] <= x <= edges[-1] for edges in evidence.grid(name)) for x, name in sides)


def evaluate_raw(fitted: TableModel, text: str) -> tuple[dict[str, Any], str] | None:
    """The prediction at a raw point (``city=Paris, "sq ft"=900``); columns that are not given count as empty.

    None if the point names variables of the model instead.
    """
    given = {}
    for part in _PAIRS.split(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        given[name.strip("\"'")] = value.strip("\"'")
        if not equals:
            raise PointError(f"cannot read {part!r} in the point: write name=value")
    known = [column.name for column in fitted.preparation.columns]
    features = [fitted.reads.features[place] for place in fitted.places]
    pairs = zip(fitted.model.box.variables, features, strict=True)
    unknown = [name for name in given if name not in known]
    if strange := [name for name in unknown if name not in fitted.model.box.variables]:
        has = ", ".join(quoted(column.name) for column in fitted.reads.columns)
        raise PointError(f"{strange[0]!r} is not a column of the formula (it has {has})")
    if unknown or all(name in given or column in given for name, column in pairs):
        return None
    cells = {name: np.array([given.get(name, "")], dtype=object) for name in known}
    found = fitted.rows(cells)
    for _, column in fitted.misread(cells):
        raise PointError(f"{quoted(column.name)} is {given[column.name]!r}, which is not a {column.kind}")
    shown = fitted.shown(found.outputs)
    facts = {
        "values": [column[0] for column in shown.values()],
        "exact": False,
        "bound": None,
        "status": found.status[0],
    }
    return facts, f"{', '.join(shown)} ({found.status[0]})"


@dataclass(frozen=True)
class CsvJob:
    """Rows of a CSV file to evaluate.

    Attributes
    ----------
    names : variable → column with another name.
    fitted : the fit that the model comes from, if it takes raw rows.
    outside : what becomes of rows outside the box, as `OUTSIDE` has it.
    name : the title of the predictions; by default f, or ``predicted TARGET``.
    """

    model: Model
    exact: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    fitted: TableModel | None = None
    outside: str = "error"
    name: str = ""
    statuses: Counter[str] = field(default_factory=Counter)  # of the rows so far
    misread: list[str] = field(default_factory=list)  # cells that count as empty, with their lines

    @property
    def wanted(self) -> list[str]:
        """Columns that are read."""
        if self.fitted is not None:
            return [column.name for column in self.fitted.reads.used]
        return [self.names.get(name, name) for name in self.model.box.variables]

    def columns(self, chunk: list[Row], columns: list[int], source: str) -> dict[str, list[Any]]:
        """New columns for some rows."""
        if self.fitted is not None:
            cells = text_cells(chunk, self.wanted, columns)
            found = self.fitted.rows(cells)
            for row, column in self.fitted.misread(cells):
                said = f"{quoted(column.name)} is {brief(cells[column.name][row])}, which is not a {column.kind}"
                self.misread.append(f"{source}, line {chunk[row][0]}: {said}")
            far = found.outside.any(axis=1)
            if self.outside == "error" and far.any():
                row, place = np.argwhere(found.outside)[0]
                name = self.fitted.reads.features[self.fitted.places[place]]
                said = "is outside the box, where nothing is proven (--outside nan, clip or allow)"
                raise PointError(f"{source}, line {chunk[row][0]}: {quoted(name)} {said}")
            if far.any() and self.outside in ("nan", "clip"):
                found = self.fitted.rows(cells, self.outside)
            return {**self.fitted.shown(found.outputs, self.name), "status": found.status}
        if self.exact:
            values, status = _exact(self.model, chunk, columns, source), None
        else:
            values, status = _floats(self.model, chunk, columns, source, self.outside)
        made = {title: [row[k] for row in values] for title, k in zip(self.titles, range(len(values[0])), strict=False)}
        return made if status is None else {**made, "status": status}

    @property
    def titles(self) -> list[str]:
        """Names of the new columns."""
        outputs = self.model.weights.outputs
        if self.fitted is not None:
            return [*self.fitted.shown(np.zeros((1, outputs)), self.name), "status"]
        names = [self.name or "f"] if outputs == 1 else [f"{self.name or 'f'}{k + 1}" for k in range(outputs)]
        return names if self.outside == "error" else [*names, "status"]


def evaluate_csv(job: CsvJob, source: Path, target: Path) -> int:
    """Append the model's outputs to every row; the result appears whole or not at all."""
    if source != STDIN and source.resolve() == target.resolve():
        raise PointError("--csv and --out are the same file")
    with open_csv(source) as table:
        columns = table.columns(job.wanted)
        with opened(target) as binary:
            handle = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            try:
                rows = _copy(job, table, handle, columns)
            finally:
                handle.detach()  # flushes; `opened` closes the file
    return rows


def _copy(job: CsvJob, table: CsvFile, handle: Any, columns: list[int]) -> int:
    writer = csv.writer(handle, delimiter=table.delimiter, lineterminator="\n")
    writer.writerow([*table.header, *_new_names(job.titles, table.header)])
    done = 0
    while chunk := list(islice(table.rows, CHUNK_ROWS)):
        made = job.columns(chunk, columns, table.name)
        writer.writerows([*row, *out] for (_, row), out in zip(chunk, zip(*made.values(), strict=True), strict=True))
        job.statuses.update(made.get("status", ()))
        done += len(chunk)
        report("evaluating", done)
    return done


def _new_names(made: Iterable[str], header: list[str]) -> list[str]:
    """Titles of the new columns, longer where the table has a column of that name."""
    names = list(made)
    while any(name in header for name in names):
        names = [name + "_" for name in names]
    return names


def _floats(
    model: Model, chunk: list[Row], columns: list[int], source: str, outside: str
) -> tuple[list[list[Any]], list[str] | None]:
    """Outputs of a compiled model, and a status for each row unless rows outside are refused."""
    try:
        x = np.array([[float(row[c]) for c in columns] for _, row in chunk])
    except ValueError:
        _blame_number(model, chunk, columns, source)
    low, high = np.array(model.box.floats()).T
    if outside == "error":
        for k in np.flatnonzero(~((x > low) & (x < high)).all(axis=1)):
            _check_row(model, chunk[k], columns, source)
        return np.asarray(model(x)).reshape(len(x), -1).tolist(), None
    far = ~((x >= low) & (x <= high)).all(axis=1)
    with warnings.catch_warnings():  # the status says which rows are outside
        warnings.simplefilter("ignore", UserWarning)
        values = np.asarray(model(np.clip(x, low, high) if outside == "clip" else x)).reshape(len(x), -1)
    if outside == "nan":
        values = np.where(far[:, None], np.nan, values)
    rows = [["" if math.isnan(v) else v for v in row] for row in values.tolist()]
    return rows, ["outside" if one else "inside" for one in far]


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
            with precision(_BITS):
                _check_inside(number(Fraction(value)), model.box, k, place)


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
            with precision(_BITS):
                _check_inside(value, model.box, k, f"{source}, line {line}: ")
            point.append(value)
        results.append([str(v) for v in model.exact(point)])
    return results
