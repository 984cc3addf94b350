"""``transformula fit``: a CSV file in, a learned polynomial and its Transformer out."""

from __future__ import annotations

import csv
import math
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula.cli.output import Output
from transformula.errors import InputError, PointError
from transformula.optional import require

_SHOWN = 800  # characters of a formula on the terminal


@dataclass(frozen=True)
class TrainingTable:
    """Numbers of a CSV file: X is rows × names, y the target column."""

    names: list[str]
    X: Any
    y: Any


def read_table(source: Path, target: str, drop: list[str]) -> TrainingTable:
    """Read a CSV file with a header; what cannot be used is named with its line."""
    import numpy as np

    if not source.is_file():
        raise PointError(f"there is no file {source}")
    try:
        with open(source, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            columns = _columns(header, source, target, drop)
            rows = [_numbers(row, reader.line_num, header, columns, source) for row in reader]
    except UnicodeDecodeError:
        raise PointError(f"{source} is not a text file in UTF-8") from None
    except csv.Error as error:
        raise PointError(f"{source}, line {reader.line_num}: {error}") from None
    except OSError as error:
        raise PointError(f"cannot read {source}: {error.strerror}") from None
    if len(rows) < 2:
        raise PointError(f"{source} has {len(rows)} rows of numbers; at least 2 are needed to fit")
    table = np.array(rows)
    return TrainingTable([header[c] for c in columns[:-1]], table[:, :-1], table[:, -1])


def _columns(header: list[str], source: Path, target: str, drop: list[str]) -> list[int]:
    """Indices of the inputs, then of the target."""
    if not header:
        raise PointError(f"{source} is empty: its first line must name the columns")
    for name in (target, *drop):
        if name not in header:
            raise PointError(f"{source} has no column {name} (it has {', '.join(header)})")
    for name in header:
        if header.count(name) > 1:
            raise PointError(f"{source} has the column {name} twice")
        if not name:
            raise PointError(f"{source} has a column without a name")
    inputs = [k for k, name in enumerate(header) if name != target and name not in drop]
    if not inputs:
        raise PointError(f"{source} has no column beside {target}")
    return [*inputs, header.index(target)]


def _numbers(row: list[str], line: int, header: list[str], columns: list[int], source: Path) -> list[float]:
    if not row:
        raise PointError(f"{source}, line {line}: the line is blank")
    if len(row) != len(header):
        raise PointError(f"{source}, line {line}: {len(row)} values for {len(header)} columns")
    numbers = []
    for column in columns:
        text, name = row[column].strip(), header[column]
        try:
            value = float(text)
        except ValueError:
            what = "is empty" if not text else f"is {text!r}, which is not a number"
            raise PointError(f"{source}, line {line}: {name} {what} (leave a column out with --drop {name})") from None
        if not math.isfinite(value):
            raise PointError(f"{source}, line {line}: {name} is {text}, not a finite number")
        numbers.append(value)
    return numbers


def fit_command(
    data: Annotated[Path, typer.Argument(help="A CSV file whose first line names the columns.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    degree: Annotated[int, typer.Option(help="Degree of the polynomial.")] = 3,
    solver: Annotated[str, typer.Option(help="auto, exact, sparse, lowrank, sgd or adam.")] = "auto",
    test: Annotated[float, typer.Option(help="Share of the rows held out for the score.")] = 0.2,
    drop: Annotated[Optional[list[str]], typer.Option(help="A column to leave out (repeatable).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the solver.")] = 0,
    out: Annotated[Optional[Path], typer.Option(help="Folder to save the Transformer in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Learn a polynomial Transformer from a table; the score is taken on held-out rows."""
    require("fit", "sklearn")
    start = time.perf_counter()
    if not 0 <= test < 1:
        raise InputError(f"--test must be at least 0 and below 1, not {test}")
    table = read_table(data, target, list(drop or []))
    facts, model = _fit(table, degree, solver, test, seed)
    if out is not None:
        from transformula.viewing.describe import summary

        built = model.to_transformer()
        built.save(out)
        facts |= {k: v for k, v in summary(built).items() if k not in ("formula", "eps")}
    facts |= {"out": None if out is None else str(out), "seconds": round(time.perf_counter() - start, 3)}
    if not json and len(facts["formula"]) > _SHOWN:
        facts["formula"] = f"{facts['formula'][:_SHOWN]} ... ({len(facts['formula'])} characters)"
    hint = "" if out else "give --out FOLDER to keep the Transformer"
    Output(json).facts(facts, title="fitted", hint=hint)


def _fit(table: TrainingTable, degree: int, solver: str, test: float, seed: int) -> tuple[dict[str, Any], Any]:
    import numpy as np

    from transformula.learning import PolynomialTransformerRegressor
    from transformula.learning.writing import variable_names

    order = np.random.default_rng(seed).permutation(len(table.y))
    held = round(test * len(order))
    if test > 0 and not 1 <= held <= len(order) - 2:
        raise InputError(f"--test {test} of {len(order)} rows leaves too few to fit or to score")
    train, rest = order[held:], order[:held]
    model = PolynomialTransformerRegressor(degree, solver, random_state=seed, verbose=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            model.fit(table.X[train], table.y[train])
        except (ValueError, FloatingPointError) as error:
            raise InputError(str(error)) from None
        model.feature_names_in_ = np.array(variable_names(table.names, len(table.names)), dtype=object)
        facts: dict[str, Any] = {
            "rows": len(train),
            "held_out_rows": len(rest),
            "solver": model.solver_,
            "degree": degree,
            "terms": model.n_terms_,
            "r2_training": _score(model, table, train),
            "r2_held_out": _score(model, table, rest) if held else None,
            "formula": model.to_formula(tolerance=1e-4),
        }
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            print(f"warning: {warning.message}", file=sys.stderr)
    return facts, model


def _score(model: Any, table: TrainingTable, rows: Any) -> float:
    """R² without the check of column names (the model was fitted on plain arrays)."""
    from sklearn.metrics import r2_score

    return float(r2_score(table.y[rows], model.fitted_.predict(table.X[rows])))
