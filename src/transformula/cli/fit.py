"""``transformula fit``: a CSV file in, a learned polynomial and its Transformer out."""

from __future__ import annotations

import math
import shlex
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula.cli.csv_files import CsvFile, Row, not_a_number, open_csv, quoted
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

    with open_csv(source) as file:
        columns = _columns(file, target, drop)
        rows = [_numbers(row, file, columns, target) for row in file.rows]
    if len(rows) < 2:
        raise PointError(f"{file.name} has {len(rows)} rows of numbers; at least 2 are needed to fit")
    table = np.array(rows)
    return TrainingTable([file.header[c] for c in columns[:-1]], table[:, :-1], table[:, -1])


def _columns(file: CsvFile, target: str, drop: list[str]) -> list[int]:
    """Indices of the inputs, then of the target."""
    file.columns([target, *drop, *file.header])
    if "" in file.header:
        raise PointError(f"{file.name} has a column without a name")
    inputs = [name for name in file.header if name != target and name not in drop]
    if not inputs:
        raise PointError(f"{file.name} has no column beside {quoted(target)}")
    return file.columns([*inputs, target])


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


def fit_command(
    data: Annotated[
        Path, typer.Argument(help="A CSV file (comma, semicolon or tab) whose first line names the columns.")
    ],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    degree: Annotated[int, typer.Option(help="Degree of the polynomial.")] = 3,
    solver: Annotated[str, typer.Option(help="auto, exact, sparse, lowrank, sgd or adam.")] = "auto",
    test: Annotated[float, typer.Option(help="Share of the rows held out for the score.")] = 0.2,
    drop: Annotated[Optional[list[str]], typer.Option(help="A column to leave out (repeatable).")] = None,
    margin: Annotated[
        float, typer.Option(help="Widen the box around all rows by this share of its width, on both sides.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the solver.")] = 0,
    out: Annotated[Optional[Path], typer.Option(help="Folder to save the Transformer in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Learn a polynomial Transformer from a table; it is scored on held-out rows, beside a linear model."""
    require("fit", "sklearn")
    from transformula.learning.base import MAX_SEED
    from transformula.learning.columns import columns_of, write_notes

    start = time.perf_counter()
    if not 0 <= test < 1:
        raise InputError(f"--test must be at least 0 and below 1, not {test}")
    if not (margin >= 0 and math.isfinite(margin)):
        raise InputError(f"--margin must be 0 or more, not {margin}")
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"--seed must be from 0 to {MAX_SEED}, not {seed}")
    table = read_table(data, target, list(drop or []))
    facts, model, box = _fit(table, degree, solver, test, seed, margin)
    facts = {"target": target, "columns": columns_of(table.names)} | facts
    if out is not None:
        from transformula.viewing.describe import summary

        built = model.to_transformer(box)
        built.save(out)
        write_notes(out, table.names, {k: v for k, v in facts.items() if k not in ("columns", "formula")})
        facts |= {k: v for k, v in summary(built).items() if k not in ("formula", "eps")}
    facts |= {"out": None if out is None else str(out), "seconds": round(time.perf_counter() - start, 3)}
    hint = "" if out else "give --out FOLDER to keep the Transformer"
    Output(json).facts(facts if json else _for_people(facts), title="fitted", hint=hint)


def _fit(
    table: TrainingTable, degree: int, solver: str, test: float, seed: int, margin: float
) -> tuple[dict[str, Any], Any, Any]:
    """The facts, the fitted estimator, and the box around all rows."""
    import numpy as np

    from transformula.learning import PolynomialTransformerRegressor
    from transformula.learning.columns import columns_of
    from transformula.learning.rows import Range
    from transformula.learning.scoring import scores_of
    from transformula.learning.writing import range_box

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
        model.feature_names_in_ = np.array(table.names, dtype=object)
        box = range_box(list(columns_of(table.names)), Range.of(table.X).widened(margin))
        compared = _compare(model, table, train, rest) if held else None
        facts: dict[str, Any] = {
            "rows": len(train),
            "held_out_rows": len(rest),
            "solver": model.solver_,
            "degree": model.degree_,
            "terms": model.n_terms_,
            "r2_training": scores_of(table.y[train], model.fitted_.predict(table.X[train])[:, 0])["r2"],
            "r2_held_out": compared and compared["this fit"]["r2"],
            "held_out": compared,
            "formula": model.to_formula(tolerance=1e-4, box=box),
        }
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            print(f"warning: {warning.message}", file=sys.stderr)
    return facts, model, box


def _compare(model: Any, table: TrainingTable, train: Any, rest: Any) -> Any:
    """Scores on the held-out rows; says so where a linear model is clearly better."""
    from transformula.learning.scoring import LINEAR, THIS_FIT, clearly_worse, predictions, score_all

    fitted = model.fitted_.predict(table.X[rest])[:, 0]  # no check of names: it was fitted on plain arrays
    predicted = predictions(fitted, (table.X[train], table.y[train]), table.X[rest])
    scores = score_all(table.y[rest], predicted)
    if clearly_worse(table.y[rest], predicted[THIS_FIT], predicted[LINEAR]):
        better, here = scores[LINEAR]["rmse"], scores[THIS_FIT]["rmse"]
        warnings.warn(
            f"a linear model is better on the held-out rows (RMSE {better:.4g} against {here:.4g}): "
            "use --solver auto or --degree 1",
            UserWarning,
            stacklevel=2,
        )
    return scores


def _for_people(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The same facts for a terminal: renamed columns alone, scores as a table, a long formula cut."""
    renamed = [f"{name} = {quoted(column)}" for name, column in facts["columns"].items() if name != column]
    lines = []
    if facts["held_out"]:
        lines = [f"{'':12}  {'RMSE':>10}  {'MAE':>10}  {'R²':>8}"]
        for name, s in facts["held_out"].items():
            r2 = "-" if s["r2"] is None else f"{s['r2']:.4f}"
            lines.append(f"{name:12}  {s['rmse']:10.4g}  {s['mae']:10.4g}  {r2:>8}")
    formula = facts["formula"]
    if len(formula) > _SHOWN:
        formula = f"{formula[:_SHOWN]} ... ({len(formula)} characters)"
    return {**facts, "target": quoted(facts["target"]), "columns": renamed, "held_out": lines, "formula": formula}
