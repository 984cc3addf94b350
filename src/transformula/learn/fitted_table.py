"""A saved fit as people use it: raw rows in, predictions and a status for each row out.

`fit.json`, beside a saved model, holds what became of the columns (`preparation`), the target and its classes. The
Transformer reads the prepared numbers; its certificate is about them and the box around the rows of the fit.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import InputError, ModelFileError, brief
from transformula.files import as_path
from transformula.learn.columns import columns_of, read_notes
from transformula.learn.distinct_rows import Floats
from transformula.learn.preparation import DATE, NUMBER, Column, Preparation
from transformula.learn.raw_cells import Cells, as_text, cells_of
from transformula.model import Model

#: What becomes of rows outside the box: an error, no number, the nearest point of the box, or an extrapolation.
OUTSIDE = ("error", "nan", "clip", "allow")


@dataclass(frozen=True)
class RowResults:
    """Outputs of the Transformer (rows, outputs), and a status for each row."""

    outputs: Floats
    status: list[str]
    outside: NDArray[np.bool_]  # (rows, variables of the model)


@dataclass(frozen=True)
class TableModel:
    """A model folder that `fit` has written.

    Examples
    --------
    >>> import tempfile
    >>> from transformula.learn import fit_table
    >>> table = {"m2": [50.0, 60, 70, 80, 90, 100] * 4, "city": ["Ulm", "Rom", "Ulm", "Rom", "Rom", "Ulm"] * 4}
    >>> table["price"] = [2 * m + 9 * (c == "Ulm") for m, c in zip(table["m2"], table["city"])]
    >>> with tempfile.TemporaryDirectory() as where:
    ...     fitted = fit_table(table, "price", folder=where + "/home")
    >>> fitted.predict({"m2": [65], "city": ["Ulm"]}).round(6).tolist()
    [139.0]
    """

    model: Model
    preparation: Preparation
    target: str
    classes: tuple[str, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str | Path, model: Model | None = None) -> TableModel:
        """Read a folder; `ModelFileError` where it is not that of a fit."""
        path = as_path(folder)
        notes = read_notes(path)
        try:
            preparation = Preparation.from_json(notes["preparation"])
            target, classes = notes["target"], tuple(notes.get("classes", ()))
            if not all(isinstance(text, str) for text in (target, *classes)):
                raise ValueError("its target or a class is not a text")
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{path} is not the folder of a fitted table: {error}") from None
        model = Model.load(path) if model is None else model
        names = columns_of(preparation.features)
        if unknown := [name for name in model.box.variables if name not in names]:
            raise ModelFileError(f"{path} does not belong together: fit.json names no column for {unknown[0]}")
        if model.weights.outputs != (len(classes) if len(classes) > 2 else 1):
            raise ModelFileError(f"{path} does not belong together: fit.json has other classes than the model")
        return cls(model, preparation, target, classes, notes)

    @cached_property
    def reads(self) -> Preparation:
        """The columns that occur in the formula: nothing else of a row is looked at."""
        owners = self.preparation.owners
        wanted = {owners[list(self._columns).index(name)] for name in self.model.box.variables}
        return Preparation(tuple(column for k, column in enumerate(self.preparation.used) if k in wanted))

    @cached_property
    def places(self) -> list[int]:
        """For each variable of the model, the place of its feature among those of the columns it reads."""
        read = {column.name for column in self.reads.columns}
        used, owners = self.preparation.used, self.preparation.owners
        names = [name for name, owner in zip(self._columns, owners, strict=True) if used[owner].name in read]
        return [names.index(name) for name in self.model.box.variables]

    @property
    def _columns(self) -> dict[str, str]:
        return columns_of(self.preparation.features)

    def rows(self, cells: Cells, outside: str = "allow") -> RowResults:
        """Run the Transformer on raw rows."""
        if outside not in OUTSIDE:
            raise InputError(f"unknown outside {brief(outside)}: choose {', '.join(OUTSIDE)}")
        prepared = self.reads.rows(cells)
        inputs = prepared.X[:, self.places]
        low, high = np.array(self.model.box.floats()).T
        beyond = ~((inputs >= low) & (inputs <= high))
        far = beyond.any(axis=1)
        if outside == "error" and far.any():
            row, column = np.argwhere(beyond)[0]
            name = self.reads.features[self.places[column]]
            raise InputError(
                f"{brief(name)} = {inputs[row, column]:.6g} is outside {low[column]:.6g}..{high[column]:.6g}, where "
                "nothing is proven"
            )
        with warnings.catch_warnings():  # the status says which rows are outside
            warnings.simplefilter("ignore", UserWarning)
            values = self.model(np.clip(inputs, low, high) if outside == "clip" else inputs)
        values = np.asarray(values, dtype=float).reshape(len(inputs), -1)
        if outside == "nan":
            values = np.where(far[:, None], np.nan, values)
        marks = (("outside", far), ("imputed", prepared.imputed), ("unknown category", prepared.unknown))
        status = [", ".join(word for word, mark in marks if mark[k]) or "inside" for k in range(len(far))]
        return RowResults(values, status, beyond)

    def misread(self, cells: Cells) -> list[tuple[int, Column]]:
        """Cells that are neither empty nor what their column holds, and count as empty: row (from 0) and column."""
        found = []
        for column in self.reads.used:
            if column.kind in (NUMBER, DATE) and (given := cells[column.name]).dtype.kind != "f":
                odd = column.numbers(given)[1] & (as_text(given) != "")
                found += [(row, column) for row in np.flatnonzero(odd).tolist()]
        return sorted(found, key=lambda one: one[0])

    def to_formula(self, style: str = "text") -> str | list[str]:
        """The formula in a language of `Model.to_formula`; in SQL the prepared columns stand for the variables."""
        return self.model.to_formula(style, self._columns if style == "sql" else None)

    def predict(self, table: Any, outside: str = "allow") -> NDArray[Any]:
        """Numbers, or the most probable classes, for the rows of a data frame, an Arrow table or a dict of columns."""
        cells = cells_of(table)
        outputs = self.rows(cells, outside).outputs
        if odd := self.misread(cells):
            row, column = odd[0]
            said = f"{brief(cells[column.name][row])} in row {row + 1} of {column.name} is not a {column.kind}"
            more = f", nor are {len(odd) - 1} other cells" if len(odd) > 1 else ""
            warnings.warn(f"{said}{more}: read as empty", UserWarning, stacklevel=2)
        return outputs[:, 0] if not self.classes else self.labels(outputs)

    def statuses(self, table: Any) -> list[str]:
        """The status of each row: inside, or any of outside, imputed, unknown category."""
        return self.rows(cells_of(table)).status

    def probabilities(self, outputs: Floats) -> Floats:
        """Probabilities (rows, classes) from the Transformer's outputs."""
        from transformula.learn.classifier import probabilities

        return probabilities(outputs)

    def labels(self, outputs: Floats) -> NDArray[Any]:
        """The most probable class of each row, "" where there is no number."""
        known = ~np.isnan(outputs).any(axis=1)
        best = np.array(self.classes, dtype=object)[self.probabilities(np.nan_to_num(outputs)).argmax(axis=1)]
        return np.where(known, best, "")

    def shown(self, outputs: Floats, name: str = "") -> dict[str, list[Any]]:
        """Columns for a file: the prediction, and the probability of each class (of the second, if there are two)."""
        name = name or f"predicted {self.target}"
        if not self.classes:
            return {name: ["" if np.isnan(v) else v for v in outputs[:, 0].tolist()]}
        found: dict[str, list[Any]] = {name: self.labels(outputs).tolist()}
        shares = self.probabilities(outputs)
        for k, label in enumerate(self.classes):
            if k or len(self.classes) > 2:
                found[f"probability {label}"] = ["" if np.isnan(v) else v for v in shares[:, k].tolist()]
        return found
