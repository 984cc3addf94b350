"""The verb fit: a table in, a learned polynomial and its Transformer out."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula.cli.arguments import Force, Json
from transformula.cli.csv_files import quoted
from transformula.cli.output import Output
from transformula.cluster import opened_engine
from transformula.errors import InputError
from transformula.learn.columns import columns_of, is_same_fit, write_notes
from transformula.model_folder import check_folder
from transformula.optional import require
from transformula.show.describe import summary

#: Characters of a formula shown on the terminal.
_SHOWN = 800
#: Solvers that train by steps.
_STEPPING = ("sgd", "adam")

Data = Annotated[
    str,
    typer.Argument(
        help="A CSV file (comma, semicolon or tab) whose first line names the columns, a Parquet file, a folder of "
        "them, or a pattern such as 'data/*.parquet'."
    ),
]
Margin = Annotated[float, typer.Option(help="Widen the box around all rows by this share of its width, on both sides.")]
Checkpoint = Annotated[
    Optional[Path], typer.Option(help="sgd, adam: a file to save to; if it exists, training continues from it.")
]
FitScheduler = Annotated[
    Optional[str], typer.Option(help="A Dask cluster that works on the parts, like tcp://10.0.0.1:8786.")
]


def fit_command(
    data: Data,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    degree: Annotated[int, typer.Option(help="Degree of the polynomial.")] = 3,
    solver: Annotated[str, typer.Option(help="auto, exact, sparse, lowrank, sgd or adam.")] = "auto",
    test: Annotated[float, typer.Option(help="Share of the rows held out for the score.")] = 0.2,
    drop: Annotated[Optional[list[str]], typer.Option(help="A column to leave out (repeatable).")] = None,
    margin: Margin = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the solver.")] = 0,
    epochs: Annotated[Optional[int], typer.Option(help="sgd, adam: passes over the rows.")] = None,
    batch_size: Annotated[int, typer.Option(help="sgd, adam: rows per step, over all processes together.")] = 256,
    checkpoint: Checkpoint = None,
    jobs: Annotated[int, typer.Option(help="Processes that work on the parts of a table.")] = 1,
    scheduler: FitScheduler = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder to save the Transformer in.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Fit a polynomial Transformer to a table, and score it on held-out rows beside a linear model."""
    require("fit", "sklearn")
    from transformula.cli.table_files import find_table
    from transformula.cli.table_fits import Wanted, fit_table
    from transformula.learn.base import MAX_SEED
    from transformula.learn.table_parts import ReadParts

    output = Output(json)
    _check_shares(test, margin)
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"--seed must be from 0 to {MAX_SEED}, not {seed}")
    if (epochs is not None or checkpoint is not None) and solver not in _STEPPING:
        raise InputError(f"--epochs and --checkpoint are for --solver sgd or adam, not for {solver}")
    table = find_table(data, target, list(drop or []))
    replace = force or (out is not None and is_same_fit(out, table.names, target))
    if out is not None:
        check_folder(out, {}, replace)  # the formula is not known yet: the folder of another fit, or of no fit
    training = {"epochs": epochs, "batch_size": batch_size, "checkpoint": checkpoint}
    with _workers(jobs, scheduler) as workers:
        parts = ReadParts(len(table.names), 1, table.readers, workers)
        facts, model, box = fit_table(table.names, parts, Wanted(degree, solver, test, seed, margin, training, json))
    if getattr(workers, "rank", 0):
        return  # the first of torchrun's processes writes and prints
    facts = {"target": target, "columns": columns_of(table.names)} | facts
    if out is not None:
        built = model.to_transformer(box)
        built.save(out, force=replace)
        write_notes(out, table.names, {k: v for k, v in facts.items() if k not in ("columns", "formula")})
        facts |= {k: v for k, v in summary(built).items() if k not in ("formula", "eps")}
    facts |= {"out": out, "seconds": output.seconds}
    hint = "" if out else "give --out FOLDER to keep the Transformer"
    output.facts(facts if json else _for_people(facts), title="fitted", hint=hint)


def _check_shares(test: float, margin: float) -> None:
    if not 0 <= test < 1:
        raise InputError(f"--test must be at least 0 and below 1, not {test}")
    if not (margin >= 0 and math.isfinite(margin)):
        raise InputError(f"--margin must be 0 or more, not {margin}")


def _workers(jobs: int, scheduler: str | None) -> AbstractContextManager[Any]:
    """The workers for the parts: none besides this process, the requested ones, or torchrun's processes."""
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        if jobs != 1 or scheduler is not None:
            raise InputError("torchrun has already started the processes: leave out --jobs and --scheduler")
        from transformula.learn.ranks import joined

        return joined()
    if jobs == 1 and scheduler is None:
        return nullcontext()
    return opened_engine(None if jobs == 1 else jobs, scheduler)


def _for_people(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts for a terminal: only renamed columns, scores as a table, a long formula cut."""
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
