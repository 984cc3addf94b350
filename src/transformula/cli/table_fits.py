"""Fits of a table for the verb fit: all rows in memory, or in passes over its parts."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transformula.cli.output import progress_bar
from transformula.errors import InputError, PointError, TransformulaError
from transformula.learn import PolynomialTransformerRegressor
from transformula.learn.columns import columns_of
from transformula.learn.distinct_rows import Floats
from transformula.learn.scoring import LINEAR, THIS_FIT, Judged, judge, judge_rows, linear_is_better, scores_from
from transformula.learn.states import HeldOut, Survey, row_hashes
from transformula.learn.streaming import NoRowsError, survey_of
from transformula.learn.table_parts import ReadParts
from transformula.learn.writing import range_box


@dataclass(frozen=True)
class Wanted:
    """Options of a fit."""

    degree: int
    solver: str
    test: float
    seed: int
    margin: float
    training: dict[str, Any] = field(default_factory=dict)  # further parameters of the estimator
    quiet: bool = False

    def model(self) -> Any:
        """The estimator."""
        return PolynomialTransformerRegressor(
            self.degree, self.solver, random_state=self.seed, verbose=True, **self.training
        )


def fit_table(names: list[str], parts: ReadParts, wanted: Wanted) -> tuple[dict[str, Any], Any, Any]:
    """The facts, the fitted estimator, and the box around all rows."""
    split = HeldOut(wanted.test, wanted.seed)
    try:
        with progress_bar(wanted.quiet):
            survey = survey_of(parts, split)
    except NoRowsError as error:
        raise PointError(f"{error}: at least 2 are needed to fit") from None
    if survey.rows < 2:
        raise PointError("the table has one row of numbers; at least 2 are needed to fit")
    box = range_box(list(columns_of(names)), survey.range.widened(wanted.margin))
    model = wanted.model()
    with _spoken():
        if survey.complete or wanted.solver in ("sgd", "adam"):
            facts = _in_memory(model, *_all_rows(parts, survey), wanted)
        else:
            with progress_bar(wanted.quiet):
                facts = _in_parts(model, parts, survey, split)
        model.feature_names_in_ = np.array(names, dtype=object)
        facts["formula"] = model.to_formula(tolerance=1e-4, box=box)
    return facts, model, box


def _all_rows(parts: ReadParts, survey: Survey) -> tuple[Floats, Floats]:
    """Inputs and targets of a table that fits into memory."""
    if survey.complete:
        rows = survey.sample.rows()
        many = rows.weight.astype(int)
        return np.repeat(rows.X, many, axis=0), np.repeat(rows.Y[:, 0], many)
    chunks = [chunk for reader in parts.readers for chunk in reader.chunks()]
    return np.concatenate([X for X, _, _ in chunks]), np.concatenate([Y[:, 0] for _, Y, _ in chunks])


def _in_memory(model: Any, X: Floats, y: Floats, wanted: Wanted) -> dict[str, Any]:
    order = np.argsort(row_hashes(np.column_stack([X, y]), wanted.seed), kind="stable")  # whatever order they came in
    X, y = X[order], y[order]
    held = round(wanted.test * len(y))
    if wanted.test > 0 and not 1 <= held <= len(y) - 2:
        raise InputError(f"--test {wanted.test} of {len(y)} rows leaves too few to fit or to score")
    with _sentences():
        model.fit(X[held:], y[held:])
    judged = judge_rows(model.fitted_, (X[held:], y[held:]), (X[:held], y[:held]))
    return _facts(model, len(y) - held, held, judged, False)


def _in_parts(model: Any, parts: ReadParts, survey: Survey, split: HeldOut) -> dict[str, Any]:
    if split.share and not 0 < survey.held_rows < survey.rows - 1:
        raise InputError(f"--test {split.share} of {survey.rows} rows leaves too few to fit or to score")
    with _sentences():
        judged = judge(parts, model.fit_parts(parts, survey, split), split)
    return _facts(model, survey.rows - survey.held_rows, survey.held_rows, judged, True)


def _facts(model: Any, rows: int, held: int, judged: Judged, in_parts: bool) -> dict[str, Any]:
    scores = None
    if held:
        scores = scores_from(judged.held)
        _warn_of_linear(scores, linear_is_better(judged.held))
    return {
        "rows": rows,
        "held_out_rows": held,
        "in_parts": in_parts,
        "solver": model.solver_,
        "degree": model.degree_,
        "terms": model.n_terms_,
        "r2_training": scores_from(judged.training)[THIS_FIT]["r2"],
        "r2_held_out": scores and scores[THIS_FIT]["r2"],
        "held_out": scores,
    }


@contextmanager
def _sentences() -> Iterator[None]:
    """A solver's refusal as an error of the input."""
    try:
        yield
    except TransformulaError:
        raise
    except (ValueError, FloatingPointError) as error:
        raise InputError(str(error)) from None


@contextmanager
def _spoken() -> Iterator[None]:
    """Warnings as lines on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            print(f"warning: {warning.message}", file=sys.stderr)


def _warn_of_linear(scores: Any, better: bool) -> None:
    if better:
        warnings.warn(
            f"a linear model is better on the held-out rows (RMSE {scores[LINEAR]['rmse']:.4g} against "
            f"{scores[THIS_FIT]['rmse']:.4g}): use --solver auto or --degree 1",
            UserWarning,
            stacklevel=2,
        )
