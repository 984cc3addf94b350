"""Evaluation of a model at a point or for every row of a CSV file, checked against the box in exact arithmetic.

A CSV file is read and written a chunk at a time, so that a file of any size fits.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb

from transformula.cli.csv_files import STDIN, CsvFile, Row, not_a_number, open_csv
from transformula.errors import BoxError, FormulaError, PointError
from transformula.files import opened
from transformula.formula.given_box import exact_number
from transformula.formula.sample_target import Samples
from transformula.kernel.arithmetic import precision
from transformula.kernel.digits import at_most
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.folder.description import EVIDENCE_FILE, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax.boxes import Box, split_commas
from transformula.kernel.syntax.expression import Expr, number
from transformula.kernel.syntax.parsing import parse
from transformula.model import Model
from transformula.progress import report

#: Bits of the comparison of a point with the ends of an interval.
_BITS = 512
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


def evaluate_csv(model: Model, source: Path, target: Path, exact: bool, names: Mapping[str, str] | None = None) -> int:
    """Append the model's outputs to every row; the result appears whole or not at all.

    ``names`` maps variables to columns with other names.
    """
    if source != STDIN and source.resolve() == target.resolve():
        raise PointError("--csv and --out are the same file")
    with open_csv(source) as table:
        columns = table.columns((names or {}).get(name, name) for name in model.box.variables)
        with opened(target) as binary:
            handle = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            try:
                rows = _copy(model, table, handle, columns, exact)
            finally:
                handle.detach()  # flushes; `opened` closes the file
    return rows


def _output_names(outputs: int, header: list[str]) -> list[str]:
    names = ["f"] if outputs == 1 else [f"f{k + 1}" for k in range(outputs)]
    while any(name in header for name in names):
        names = [name + "_" for name in names]
    return names


def _copy(model: Model, table: CsvFile, handle: Any, columns: list[int], exact: bool) -> int:
    writer = csv.writer(handle, delimiter=table.delimiter, lineterminator="\n")
    writer.writerow([*table.header, *_output_names(model.weights.outputs, table.header)])
    done = 0
    while chunk := list(islice(table.rows, CHUNK_ROWS)):
        values = (_exact if exact else _floats)(model, chunk, columns, table.name)
        writer.writerows([*row, *out] for (_, row), out in zip(chunk, values, strict=True))
        done += len(chunk)
        report("evaluating", done)
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
