"""Fits of raw tables: the target read, the columns prepared, a polynomial fitted and judged on held-out rows.

A table that fits into memory is split first, so that nothing learned of it (medians, levels, means of the target) has
seen the held-out rows. A larger one is prepared from a sample and then fitted in passes over its parts.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.cluster.table_parts import Parts
from transformula.errors import InputError, PointError, TransformulaError, brief
from transformula.files import as_path
from transformula.formula.evaluation import evaluate
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.learn.base import check_choice
from transformula.learn.classifier import PolynomialTransformerClassifier, probabilities
from transformula.learn.columns import columns_of, write_notes
from transformula.learn.distinct_rows import Floats, Range
from transformula.learn.fitted_table import TableModel
from transformula.learn.preparation import IMPUTES, Preparation, PrepareOptions, prepare
from transformula.learn.raw_cells import Cells, as_numbers, as_text, cells_of, mostly, number_form
from transformula.learn.regressor import PolynomialTransformerRegressor
from transformula.learn.scoring import (
    FEWEST_JUDGED,
    LINEAR,
    THIS_FIT,
    TrainedTable,
    fit_report,
    held_out_scores,
    linear_is_better,
    score,
)
from transformula.learn.states import HeldOut, Survey, row_hashes
from transformula.learn.writing import range_box
from transformula.model import Model

TASKS = ("auto", "regression", "classification")
#: Most classes of a target.
_MOST_CLASSES = 50
#: Rounding of the written coefficients on the whole box, as a share of the residuals' standard deviation.
_DIGITS = 0.01
#: The least and the largest rounding, in standard deviations of the target.
_FINEST, _COARSEST = 1e-9, 1e-3
#: Rows at which a formula is evaluated at a time.
_VALUES_AT_ONCE = 1_000
#: Rounding of the written scores of classes: a probability changes by a quarter of it at most.
_LOG_ODDS = 0.01


@dataclass(frozen=True)
class TableOptions(PrepareOptions):
    """Options of a fit; ``training`` has further parameters of the estimator."""

    degree: int = 3
    solver: str = "auto"
    test: float = 0.2
    margin: float = 0.0
    task: str = "auto"
    training: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what cannot be."""
        check_choice("task", self.task, TASKS)
        check_choice("impute", self.impute, IMPUTES)
        if not 0 <= self.test < 1:
            raise InputError(f"--test must be at least 0 and below 1, not {self.test}")
        if not (self.margin >= 0 and math.isfinite(self.margin)):
            raise InputError(f"--margin must be 0 or more, not {self.margin}")

    def estimator(self, preparation: Preparation, classes: int) -> Any:
        """The regressor or classifier for prepared rows."""
        made = PolynomialTransformerClassifier if classes else PolynomialTransformerRegressor
        given = {"random_state": self.seed, "indicators": preparation.indicators, **self.training}
        return made(self.degree, self.solver, **given)


@dataclass(frozen=True)
class TargetColumn:
    """The target of every row: numbers (written as ``form``), or labels 0..classes−1; NaN where it is empty."""

    name: str
    values: Floats
    classes: tuple[str, ...] = ()
    form: str = ""

    @classmethod
    def read(cls, name: str, cells: NDArray[Any], task: str) -> TargetColumn:
        """Text and 0/1 are classes, other numbers are not, unless the task says otherwise."""
        form, texts = number_form(cells), as_text(cells)
        numbers, filled = as_numbers(cells, form), texts != ""
        odd = texts[filled & np.isnan(numbers)]
        numeric = not len(odd)
        binary = numeric and set(np.unique(numbers[filled])) == {0.0, 1.0}
        if not filled.any():
            raise PointError(f"{brief(name)} is empty in every row: there is nothing to learn")
        if task == "regression" or (task == "auto" and numeric and not binary):
            if not numeric:
                raise InputError(f"{brief(name)} has texts such as {brief(odd[0])}, so it needs --task classification")
            return cls(name, numbers, form=form)
        filled_cells = int(np.count_nonzero(filled))
        if task == "auto" and len(odd) and mostly(filled_cells - len(odd), filled_cells):
            row = int(np.argmax(texts == odd[0])) + 1
            raise InputError(
                f"{brief(name)} has the text {brief(odd[0])} among its numbers (row {row}): correct or empty that "
                "cell, or give --task classification"
            )
        if numeric:
            texts = as_text(numbers)  # 1 and 1.0 are one class
        levels = sorted(set(texts[filled]), key=lambda text: (float(text) if numeric else 0.0, text))
        if not 2 <= len(levels) <= _MOST_CLASSES:
            count = "one value" if len(levels) == 1 else f"{len(levels)} different values"
            raise InputError(f"{brief(name)} has {count}: classes must be from 2 to {_MOST_CLASSES}")
        known = {level: float(k) for k, level in enumerate(levels)}
        return cls(name, np.array([known.get(text, math.nan) for text in texts]), tuple(levels))


@dataclass(frozen=True)
class TableFit:
    """A fitted table: what became of its columns, the estimator, the box around all rows, the facts and the rows."""

    preparation: Preparation
    target: str
    classes: tuple[str, ...]
    estimator: Any
    box: Box
    tolerance: float
    formula: list[str]  # one, or one for each of three or more classes
    facts: dict[str, Any]
    rows: TrainedTable

    def transformer(self) -> Model:
        """The Transformer of the written polynomials."""
        return self.estimator.to_transformer(self.box, self.tolerance)  # type: ignore[no-any-return]

    def notes(self) -> dict[str, Any]:
        """The contents of fit.json beside the columns."""
        return {
            "target": self.target,
            **({"classes": list(self.classes)} if self.classes else {}),
            "preparation": self.preparation.to_json(),
            **{key: value for key, value in self.facts.items() if key != "classes"},
            "formula": self.formula,
            "report": fit_report(self),
        }

    def save(self, folder: Path, force: bool = False, more: Mapping[str, Any] | None = None) -> Model:
        """Write the Transformer with fit.json beside it, which also keeps ``more``."""
        model = self.transformer()
        model.save(folder, force=force)
        write_notes(folder, self.preparation.features, self.notes() | dict(more or {}))
        return model


def fit_table(
    table: Any, target: str, *, folder: str | Path | None = None, force: bool = False, **options: Any
) -> TableModel:
    """Fit a table in memory: raw columns in, a Transformer that predicts raw rows out.

    Parameters
    ----------
    table : data frame (pandas, polars), Arrow table or dict of columns
        Text becomes categories, dates become numbers, empty cells are filled: see `TableModel.preparation`.
    target : str
        The column to predict: numbers, or classes where it holds text or 0 and 1.
    folder : path, optional
        Where to save the model; `TableModel.load` reads it back.
    options
        The fields of `TableOptions`: degree, solver, test, seed, margin, task, categorical, impute.
    """
    cells = cells_of(table)
    if target not in cells:
        raise InputError(f"the table has no column {brief(target)} (it has {', '.join(map(brief, cells))})")
    fit = fit_cells(cells, target, TableOptions(**options))
    model = fit.transformer() if folder is None else fit.save(as_path(folder), force)
    return TableModel(model, fit.preparation, target, fit.classes, fit.notes())


def fit_cells(cells: Cells, target: str, options: TableOptions) -> TableFit:
    """Fit a table in memory."""
    options.check()
    goal = TargetColumn.read(target, cells[target], options.task)
    have = np.flatnonzero(~np.isnan(goal.values))
    inputs = {name: column[have] for name, column in cells.items() if name != target}
    y = goal.values[have]
    order = np.argsort(row_hashes(_numbered(inputs, y), options.seed), kind="stable")  # whatever order they came in
    held = round(options.test * len(y))
    if len(y) < 2:
        raise PointError("the table has one row with a target; at least 2 are needed to fit")
    if options.test > 0 and not 1 <= held <= len(y) - 2:
        raise InputError(f"--test {options.test} of {len(y)} rows leaves too few to fit or to score")
    some, rest = _split(order, held, y if goal.classes else None)
    with in_sentences():
        chosen = {name: column[some] for name, column in inputs.items()}
        preparation, X = prepare(chosen, y[some], options, len(goal.classes), cells)
        everything = preparation.rows(inputs).X
        one = np.ones(len(y))
        rows = TrainedTable(X, y[some], one[some], everything[rest], y[rest], one[rest])
        estimator = options.estimator(preparation, len(goal.classes)).fit(X, y[some])
    span = Range.of(everything).union(Range.of(X)).widened(options.margin)
    skipped = len(goal.values) - len(y)
    return _finished(preparation, goal, estimator, span, rows, {"rows_without_target": skipped} if skipped else {})


def _split(order: NDArray[Any], held: int, labels: Floats | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows to fit and rows to score: the first ones, but of a class of which no other row is left to fit."""
    some, rest = order[held:], order[:held]
    if labels is not None:
        first = [k for k in np.unique(labels[rest], return_index=True)[1] if labels[rest[k]] not in labels[some]]
        some, rest = np.append(some, rest[first]), np.delete(rest, first)
    return some, rest


def _finished(
    preparation: Preparation, goal: TargetColumn, estimator: Any, span: Range, rows: TrainedTable, sizes: dict[str, Any]
) -> TableFit:
    """Scores and digits of a fit."""
    estimator.feature_names_in_ = np.array(preparation.features, dtype=object)
    box = range_box(list(columns_of(preparation.features)), span)
    predict, classes = estimator.fitted_.predict, len(goal.classes)
    held = held_out_scores(predict, rows, classes) if len(rows.held_y) else None
    facts: dict[str, Any] = {
        "task": "classification" if classes else "regression",
        **({"classes": list(goal.classes)} if classes else {}),
        "solver": estimator.solver_,
        "degree": estimator.fitted_.degree,
        "terms": estimator.n_terms_,
    }
    tolerance, measure = _LOG_ODDS, "log_loss"
    if not classes:
        training = score(rows.y, predict(rows.X)[:, 0], rows.weight)
        tolerance, measure = supported_digits(float(training["rmse"] or 0.0), estimator), "r2"
        facts["r2_training"] = None if _too_few(rows, estimator.n_terms_) else training["r2"]
        facts["r2_held_out"] = held and held[THIS_FIT]["r2"]
        if held and linear_is_better(predict, rows):
            warnings.warn(
                f"a linear model is better on the held-out rows (RMSE {held[LINEAR]['rmse']:.4g} against "
                f"{held[THIS_FIT]['rmse']:.4g}): use --solver auto or --degree 1",
                UserWarning,
                stacklevel=2,
            )
    facts["held_out"] = held
    texts = estimator.written(tolerance, box)[0]
    if held is not None:
        written = _values(Formula.of(texts, box), rows.held_X)
        made = probabilities(written) if classes else written[:, 0]
        before, after = held[THIS_FIT][measure], score(rows.held_y, made, rows.held_weight, classes)[measure]
        facts[f"{measure}_change_by_rounding"] = None if before is None or after is None else after - before
    sizes = {"rows": len(rows.y), "held_out_rows": len(rows.held_y), "in_parts": False} | sizes
    return TableFit(preparation, goal.name, goal.classes, estimator, box, tolerance, texts, sizes | facts, rows)


def _values(formula: Formula, X: Floats) -> Floats:
    """A formula at every row, some rows at a time: (rows, outputs)."""
    parts = np.array_split(X, 1 + len(X) // _VALUES_AT_ONCE)
    names, outputs = formula.box.variables, formula.outputs
    return np.vstack([np.column_stack([evaluate(e, names, list(x.T)) for e in outputs]) for x in parts])


def _too_few(rows: TrainedTable, terms: int) -> bool:
    """Whether the error on the rows of the fit says nothing about others, with a warning."""
    few = len(rows.y) <= max(terms, FEWEST_JUDGED - 1)
    if few:
        warnings.warn(
            f"{len(rows.y)} rows are too few to judge a polynomial with {terms} coefficients: its error on them says "
            "nothing about other rows",
            UserWarning,
            stacklevel=2,
        )
    return few


def supported_digits(residual: float, estimator: Any) -> float:
    """The rounding of the coefficients that disappears in the residuals, in standard deviations of the target."""
    spread = float(estimator.target_spread_[0])
    return min(max(_DIGITS * residual / spread, _FINEST), _COARSEST)


def fit_table_parts(
    parts: Parts, survey: Survey, preparation: Preparation, goal: TargetColumn, options: TableOptions
) -> TableFit:
    """Fit a table in parts, by a closed form, to its prepared rows."""
    split = HeldOut(options.test, options.seed)
    if split.share and not 0 < survey.held_rows < survey.rows - 1:
        raise InputError(f"--test {split.share} of {survey.rows} rows leaves too few to fit or to score")
    estimator = options.estimator(preparation, 0)
    with in_sentences():
        estimator.fit_parts(parts, survey, split)
    sample = survey.sample.rows()
    rows = TrainedTable.split(sample.X, sample.Y[:, 0], split.held(sample.X, sample.Y), sample.weight)
    sizes = {"rows": survey.rows - survey.held_rows, "held_out_rows": survey.held_rows, "in_parts": True}
    return _finished(preparation, goal, estimator, survey.range.widened(options.margin), rows, sizes)


def fit_prepared(X: Floats, y: Floats, preparation: Preparation, goal: TargetColumn, options: TableOptions) -> TableFit:
    """Fit rows that are numbers already, for gradient training of a large table."""
    order = np.argsort(row_hashes(np.column_stack([X, y]), options.seed), kind="stable")
    held = round(options.test * len(y))
    rows = TrainedTable.split(X[order], y[order], np.arange(len(y)) < held)
    with in_sentences():
        estimator = options.estimator(preparation, len(goal.classes)).fit(rows.X, rows.y)
    return _finished(preparation, goal, estimator, Range.of(X).widened(options.margin), rows, {})


def _numbered(inputs: Cells, y: Floats) -> Floats:
    """A number for every cell, the same for equal cells: the split does not depend on the order of the rows."""
    columns = []
    for cells in inputs.values():
        numbers = as_numbers(cells)
        if cells.dtype.kind != "f" and np.isnan(numbers).any():
            hashed = [float(zlib.crc32(text.encode())) for text in as_text(cells)]
            numbers = np.where(np.isnan(numbers), hashed, numbers)
        columns.append(np.nan_to_num(numbers))
    return np.column_stack([*columns, y])


@contextmanager
def in_sentences() -> Iterator[None]:
    """A solver's refusal as an error of the input."""
    try:
        yield
    except TransformulaError:
        raise
    except (ValueError, FloatingPointError) as error:
        raise InputError(str(error)) from None
