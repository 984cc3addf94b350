"""The verb fit: a table in, a learned polynomial and its Transformer out."""

from __future__ import annotations

import os
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import numpy as np
import typer

from transformula.cli.arguments import Force, Json
from transformula.cli.csv_files import listed, quoted
from transformula.cli.output import Output, progress_bar
from transformula.cluster import opened_engine
from transformula.errors import InputError
from transformula.formula.languages import decimal_text
from transformula.learn.columns import columns_of, is_same_fit
from transformula.model_folder import check_folder
from transformula.optional import require
from transformula.show.describe import summary
from transformula.show.fit_section import formula_titles

if TYPE_CHECKING:
    from transformula.cli.table_files import FoundTable
    from transformula.learn.preparation import Column
    from transformula.learn.table_fit import TableFit, TableOptions

#: Characters of a formula shown on the terminal, and of its lines: 80 with the title of the list before them.
_SHOWN, _WIDTH = 800, 54
#: Solvers that train by steps.
_STEPPING = ("sgd", "adam")

Data = Annotated[
    str,
    typer.Argument(
        help="A CSV file (comma, semicolon or tab) whose first line names the columns, a Parquet file, a folder of "
        "them, or a pattern such as 'data/*.parquet'."
    ),
]
Margin = Annotated[float, typer.Option(help="Widen the box around all rows by this share of its width on each side.")]
Checkpoint = Annotated[
    Optional[Path], typer.Option(help="sgd, adam: file to save to; training continues from it if it exists.")
]
FitScheduler = Annotated[
    Optional[str], typer.Option(help="Dask scheduler whose workers share the parts, like tcp://10.0.0.1:8786.")
]


def fit_command(
    data: Data,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    degree: Annotated[int, typer.Option(help="Degree of the polynomial.")] = 3,
    solver: Annotated[str, typer.Option(help="auto, exact, sparse, lowrank, sgd or adam.")] = "auto",
    task: Annotated[str, typer.Option(help="auto (text and 0/1 are classes), regression or classification.")] = "auto",
    categorical: Annotated[
        Optional[list[str]], typer.Option(help="Columns to treat as categories: a,b (repeatable).")
    ] = None,
    impute: Annotated[str, typer.Option(help="Value for empty cells: median, mean or most_frequent.")] = "median",
    test: Annotated[float, typer.Option(help="Share of the rows held out for the score.")] = 0.2,
    drop: Annotated[Optional[list[str]], typer.Option(help="Columns to leave out: a,b (repeatable).")] = None,
    margin: Margin = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the solver.")] = 0,
    epochs: Annotated[Optional[int], typer.Option(help="sgd, adam: passes over the rows.")] = None,
    batch_size: Annotated[int, typer.Option(help="sgd, adam: rows per step, over all processes together.")] = 256,
    checkpoint: Checkpoint = None,
    jobs: Annotated[int, typer.Option(help="Processes that share the parts of a table.")] = 1,
    scheduler: FitScheduler = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder to save the Transformer in.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Fit a polynomial Transformer to a table, and score it on held-out rows against a linear model."""
    require("fit", "sklearn")
    from transformula.cli.table_files import find_table
    from transformula.learn.base import MAX_SEED
    from transformula.learn.table_fit import TableOptions

    output = Output(json)
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"--seed must be from 0 to {MAX_SEED}, not {seed}")
    if (epochs is not None or checkpoint is not None) and solver not in _STEPPING:
        raise InputError(f"--epochs and --checkpoint are for --solver sgd or adam, not for {solver}")
    table = find_table(data, target, list(drop or []))
    training = {"epochs": epochs, "batch_size": batch_size, "checkpoint": checkpoint}
    forced = tuple(listed(categorical or [], table.names))
    wanted = TableOptions(forced, impute, seed, degree, solver, test, margin, task, training)
    wanted.check()
    replace = force or (out is not None and is_same_fit(out, table.names, target))
    if out is not None:
        check_folder(out, {}, replace)  # the formula is not known yet: the folder of another fit, or of no fit
    with _workers(jobs, scheduler) as workers, _spoken():
        with progress_bar(json):
            fit = _fitted(table, wanted, workers)
        if getattr(workers, "rank", 0):
            return  # the first of torchrun's processes writes and prints
        facts: dict[str, Any] = {
            "target": target,
            "preparation": [column_line(column) for column in fit.preparation.columns],
            "columns": columns_of(fit.preparation.features),
            **fit.facts,
            "formula": fit.formula[0] if len(fit.formula) == 1 else fit.formula,
        }
        if out is not None:
            built = fit.save(out, replace, {"table_columns": table.names})
            facts |= {k: v for k, v in summary(built).items() if k not in ("formula", "eps")}
    facts |= {"out": out, "seconds": output.seconds}
    hint = "" if out else "give --out FOLDER to keep the Transformer"
    output.facts(facts if json else _for_people(facts), title="fitted", hint=hint)


def _fitted(table: FoundTable, wanted: TableOptions, workers: Any) -> TableFit:
    """The fit, from all rows in memory or in passes over the parts."""
    from transformula.cli.table_files import PreparedPart
    from transformula.cluster.table_parts import ReadParts
    from transformula.learn.preparation import prepare
    from transformula.learn.states import HeldOut, sample_size, survey_of
    from transformula.learn.table_fit import TargetColumn, fit_cells, fit_prepared, fit_table_parts, in_sentences

    cells, whole = table.sample(sample_size(len(table.names) + 1))
    goal = TargetColumn.read(table.target, cells[table.target], wanted.task)
    if whole or goal.classes:
        if not whole:
            warnings.warn(f"the table is large: classes are fitted to {len(goal.values)} of its rows", stacklevel=2)
        return fit_cells(cells, table.target, wanted)
    have = ~np.isnan(goal.values)
    inputs = {name: cells[name][have] for name in table.names}
    with in_sentences():
        preparation, _ = prepare(inputs, goal.values[have], wanted)
    readers = tuple(PreparedPart(part, preparation, table.target, goal.form) for part in table.parts)
    parts = ReadParts(len(preparation.features), 1, readers, workers)
    survey = survey_of(parts, HeldOut(wanted.test, wanted.seed))
    if survey.complete or wanted.solver in _STEPPING:
        chunks = [chunk for reader in readers for chunk in reader.chunks()]
        X, y = np.concatenate([X for X, _, _ in chunks]), np.concatenate([Y[:, 0] for _, Y, _ in chunks])
        return fit_prepared(X, y, preparation, goal, wanted)
    return fit_table_parts(parts, survey, preparation, goal, wanted)


@contextmanager
def _spoken() -> Iterator[None]:
    """Warnings as lines on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            Output.beside(f"warning: {warning.message}")


def _workers(jobs: int, scheduler: str | None) -> AbstractContextManager[Any]:
    """The workers for the parts: none besides this process, the requested ones, or torchrun's processes."""
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        if jobs != 1 or scheduler is not None:
            raise InputError("torchrun has already started the processes: leave out --jobs and --scheduler")
        from transformula.cluster.ranks import joined

        return joined()
    if jobs == 1 and scheduler is None:
        return nullcontext()
    return opened_engine(None if jobs == 1 else jobs, scheduler)


def column_line(column: Column) -> str:
    """A column, its kind and the note about it."""
    return f"{quoted(column.name)}: {column.kind}" + (f" ({column.note})" if column.note else "")


def _for_people(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts for a terminal: like columns together, the formula's names only, scores as a table, long text cut."""
    formulas = [facts["formula"]] if isinstance(facts["formula"], str) else facts["formula"]
    used = set(re.findall(r"\w+", " ".join(formulas)))
    renamed = [f"{name} = {quoted(column)}" for name, column in facts["columns"].items() if name != column]
    lines = []
    if facts["held_out"]:
        measures = list(next(iter(facts["held_out"].values())))
        titles = {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "log_loss": "log loss", "auc": "AUC"}
        lines = [f"{'':12}" + "".join(f" {titles.get(name, name):>10}" for name in measures)]
        for name, scores in facts["held_out"].items():
            cells = ("-" if scores[key] is None else f"{scores[key]:.4g}" for key in measures)
            lines.append(f"{name:12}" + "".join(f" {cell:>10}" for cell in cells))
    shown, classes = [], facts.get("classes", [])
    for title, text in zip(formula_titles(facts["target"], classes), formulas, strict=True):
        cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ... ({len(text)} characters)"
        shown += _wrapped(f"{title} = {cut}" if classes else cut)
    said: dict[str, Any] = {"target": quoted(facts["target"]), "held_out": lines, "formula": shown}
    said["preparation"] = _joined(facts["preparation"])
    said["columns"] = _wrapped(", ".join(line for line in renamed if line.partition(" ")[0] in used))
    said["in_parts"] = "in parts" if facts["in_parts"] else "whole"
    if "box" in facts:
        said["box"] = _wrapped(re.sub(r"-?\d+/\d+", lambda end: decimal_text(Fraction(end[0])), facts["box"]))
    for key in ("r2_change_by_rounding", "log_loss_change_by_rounding"):
        said[key] = [] if facts.get(key) is None else f"{facts[key]:.1g}"
    titles = {"in_parts": "read", "r2_change_by_rounding": "rounding moves R² by", "r2_training": "R² training"}
    titles |= {"r2_held_out": "R² held out", "log_loss_change_by_rounding": "rounding moves loss by"}
    return {titles.get(key, key): said.get(key, value) for key, value in facts.items()}


def _joined(lines: list[str]) -> list[str]:
    """Columns of which the same is said in one line, where the first of them stands."""
    alike: dict[str, list[str]] = {}
    for line in lines:
        name, _, what = line.partition(": ")
        if found := re.fullmatch(r"(\w+) \((\d+ empty) cells? becomes? the (\D+), (.*)\)", what):
            name, what = f"{name} ({found[2]}: {found[4]})", f"{found[1]}, the {found[3]} for empty cells"
        alike.setdefault(what, []).append(name)
    return [line for what, names in alike.items() for line in _wrapped(f"{', '.join(names)}: {what}")]


def _wrapped(text: str) -> list[str]:
    """Lines for the second column of the list; names in quotes are not broken."""
    held = re.sub('"[^"]*"', lambda name: name[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(held, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]
