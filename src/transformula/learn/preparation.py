"""Raw tables to numbers: what becomes of each column, learned by scikit-learn's parts and kept as plain data.

Numbers and dates keep their units; empty cells take the column's median (or mean, or most frequent value). Text with
few levels becomes one indicator for each level (`OneHotEncoder`), text with many the mean of the target for its level
(`TargetEncoder`, cross-fitted on the training rows). Columns that say nothing are left out. What was learned is a list
of numbers and levels, stored as JSON with the model: nothing in it is executed.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import InputError, brief
from transformula.learn.distinct_rows import Floats
from transformula.learn.raw_cells import (
    BINARY,
    DATE_FORMS,
    NUMBER_FORMS,
    PLAIN,
    Cells,
    as_days,
    as_numbers,
    as_text,
    date_form,
    mostly,
    number_form,
    odd_cells,
)

NUMBER, DATE, CATEGORY, MEANS, LEFT_OUT = "number", "date", "category", "target mean", "left out"
IMPUTES = ("median", "mean", "most_frequent")
#: Most levels of a text column that each get an indicator.
MOST_LEVELS = 20
#: Rows that a level needs for its own indicator, in a table of a hundred rows or more; rarer levels share one.
_FEW_ROWS = 5


@dataclass(frozen=True)
class Column:
    """One column of a raw table and the numbers it becomes.

    Attributes
    ----------
    kind : number, date, category, target mean or left out.
    note : what was done and why, for people.
    features : names of the numbers.
    fill : number, date: the value of an empty cell. category, target mean: the level of an empty cell.
    form : number, date: how it is written; "0/1" for an indicator.
    levels, values : category, target mean: the known texts, and the numbers (one for each feature) of each.
    other : the numbers of an unknown text.
    """

    name: str
    kind: str
    note: str = ""
    features: tuple[str, ...] = ()
    fill: float | str = 0.0
    form: str = ""
    levels: tuple[str, ...] = ()
    values: tuple[tuple[float, ...], ...] = ()
    other: tuple[float, ...] = ()

    def numbers(self, cells: NDArray[Any]) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
        """The features (rows, k), and for each row whether its cell was empty, and whether it was unknown."""
        if self.kind in (NUMBER, DATE):
            values = _read(self, cells)
            empty = np.isnan(values)
            return np.where(empty, self.fill, values)[:, None], empty, np.zeros(len(values), dtype=bool)
        texts = as_text(cells)
        known = {level: k for k, level in enumerate(self.levels)}
        missing = texts == ""
        if "" not in known:
            texts = np.where(missing, self.fill, texts)
        else:
            missing = np.zeros(len(texts), dtype=bool)
        codes = np.array([known.get(text, -1) for text in texts], dtype=np.intp)
        table = np.array([*self.values, self.other], dtype=float)  # the last row, for −1, is that of unknown texts
        return table[codes], missing, codes < 0


@dataclass(frozen=True)
class PreparedRows:
    """Features (rows, k), and what had to be done to each row."""

    X: Floats
    imputed: NDArray[np.bool_]
    unknown: NDArray[np.bool_]


@dataclass(frozen=True)
class Preparation:
    """All columns of a raw table, in the table's order."""

    columns: tuple[Column, ...]

    @property
    def used(self) -> list[Column]:
        """Columns that become numbers."""
        return [column for column in self.columns if column.kind != LEFT_OUT]

    @property
    def features(self) -> list[str]:
        """Names of all numbers; a name that a second column would take is made longer."""
        names: list[str] = []
        for column in self.used:
            for name in column.features:
                while name in names:
                    name += " (2)"
                names.append(name)
        return names

    @property
    def indicators(self) -> list[list[int]]:
        """Places of the features that are indicators of one column, for each such column."""
        found, place = [], 0
        for column in self.used:
            if column.kind == CATEGORY or column.form == BINARY:
                found.append(list(range(place, place + len(column.features))))
            place += len(column.features)
        return found

    @property
    def owners(self) -> list[int]:
        """For each feature, the place of its column among the used ones."""
        return [k for k, column in enumerate(self.used) for _ in column.features]

    def rows(self, cells: Cells) -> PreparedRows:
        """Numbers of raw rows."""
        if missing := [column.name for column in self.used if column.name not in cells]:
            raise InputError(f"the table has no column {', '.join(map(brief, missing))}, which the model was fitted on")
        parts = [column.numbers(cells[column.name]) for column in self.used]
        blocks, empty, unknown = zip(*parts, strict=True)
        return PreparedRows(np.hstack(blocks), np.any(empty, axis=0), np.any(unknown, axis=0))

    def to_json(self) -> list[dict[str, Any]]:
        """Plain data; `from_json` reads it back."""
        return [{key: value for key, value in asdict(column).items() if value} for column in self.columns]

    @classmethod
    def from_json(cls, stored: Any) -> Preparation:
        """Read stored columns; ValueError where they cannot be those of a preparation."""
        return cls(tuple(map(_stored_column, stored)))


def _stored_column(stored: Any) -> Column:
    """One column from plain data, every field checked."""
    if not isinstance(stored, dict) or not {"name", "kind"} <= stored.keys() <= Column.__dataclass_fields__.keys():
        raise ValueError("a column of the preparation has other fields")
    texts: dict[str, Any] = {key: stored.get(key, "") for key in ("name", "kind", "note", "form")}
    lists: dict[str, Any] = {key: tuple(stored.get(key, ())) for key in ("features", "levels")}
    if not all(isinstance(text, str) for text in (*texts.values(), *lists["features"], *lists["levels"])):
        raise ValueError("a name or level of the preparation is not a text")
    other = tuple(map(_finite, stored.get("other", ())))
    values = tuple(tuple(map(_finite, row)) for row in stored.get("values", ()))
    kind, width = texts["kind"], len(lists["features"])
    fill = stored.get("fill", "" if kind in (CATEGORY, MEANS) else 0.0)
    if kind in (CATEGORY, MEANS):
        fits = (
            isinstance(fill, str) and len(values) == len(lists["levels"]) and {len(other), *map(len, values)} == {width}
        )
    elif kind in (NUMBER, DATE):
        fits, fill = width == 1, _finite(fill)
        fits = fits and texts["form"] in (NUMBER_FORMS if kind == NUMBER else DATE_FORMS)
    else:
        fits = kind == LEFT_OUT
    if not fits:
        raise ValueError(f"the column {brief(texts['name'])} of the preparation does not fit together")
    return Column(**texts, **lists, fill=fill, values=values, other=other)


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{brief(value)} in the preparation is not a number")
    return float(value)


@dataclass(frozen=True)
class PrepareOptions:
    """Wishes about the columns: those to treat as categories, and what empty cells become."""

    categorical: tuple[str, ...] = ()
    impute: str = "median"
    seed: int = 0


def prepare(
    cells: Cells, y: NDArray[Any], options: PrepareOptions, classes: int = 0, table: Cells | None = None
) -> tuple[Preparation, Floats]:
    """Learn what becomes of each column, and the training rows as numbers.

    Parameters
    ----------
    cells : the inputs of the training rows.
    y : their targets; with ``classes`` labels 0..classes−1.
    table : all rows, in their order: notes say which of their cells could not be read.

    Returns
    -------
    The preparation, and the features of these rows. Where a column became target means these differ from
    `Preparation.rows`: each row's mean is taken over other rows, so that it does not know its own target.

    Examples
    --------
    >>> cities = np.array(["Ulm", "Rom", "Rom", "Ulm"], dtype=object)
    >>> cells = {"m2": np.array([50.0, np.nan, 90.0, 70.0]), "city": cities}
    >>> found, X = prepare(cells, np.arange(4.0), PrepareOptions())
    >>> X.tolist(), found.features
    ([[50.0, 1.0], [70.0, 0.0], [90.0, 0.0], [70.0, 1.0]], ['m2', 'city Ulm'])
    """
    from sklearn.compose import ColumnTransformer

    if unknown := [name for name in options.categorical if name not in cells]:
        raise InputError(f"--categorical names {brief(unknown[0])}, which is not a column of the table")
    seen: dict[bytes, str] = {}
    columns = [_judged(name, column, name in options.categorical, seen) for name, column in cells.items()]
    used = [column for column in columns if column.kind != LEFT_OUT]
    if not used:
        raise InputError("no column is left to fit on: " + "; ".join(f"{c.name} {c.note}" for c in columns))
    read = [_read(column, cells[column.name]) for column in used]
    given = np.empty((len(y), len(used)), dtype=object)
    for k, values in enumerate(read):
        given[:, k] = values
    fewest = _FEW_ROWS if len(y) >= 100 else 1
    steps = [(str(k), _part(column, options, classes, fewest), [k]) for k, column in enumerate(used)]
    machine = ColumnTransformer(steps, sparse_threshold=0)
    X = np.asarray(machine.fit_transform(given, y), dtype=np.float64)
    learned = [
        _learned(column, machine.named_transformers_[str(k)], values, options, classes)
        for k, (column, values) in enumerate(zip(used, read, strict=True))
    ]
    done = {column.name: column for column in learned}
    noted = (_odd_noted(done.get(column.name, column), cells, table) for column in columns)
    return Preparation(tuple(noted)), X


def _odd_noted(column: Column, cells: Cells, table: Cells | None) -> Column:
    """A column of numbers or dates with a note about cells that are something else."""
    if column.kind not in (NUMBER, DATE):
        return column
    every = (cells if table is None else table)[column.name]
    odd = odd_cells(every, _read(column, every), rows=table is not None)
    return replace(column, note="; ".join(filter(None, (odd, column.note))))


def _read(column: Column, cells: NDArray[Any]) -> NDArray[Any]:
    if column.kind in (NUMBER, DATE):
        return (as_numbers if column.kind == NUMBER else as_days)(cells, column.form)
    return as_text(cells)


def _judged(name: str, cells: NDArray[Any], forced: bool, seen: dict[bytes, str]) -> Column:
    """The kind of a column, by its cells; ``seen`` holds the columns before it."""
    column = _kind_of(name, cells, forced)
    if column.kind == LEFT_OUT:
        return column
    read = _read(column, cells)
    mark = repr(read.tolist()).encode() if read.dtype == object else (read + 0.0).tobytes()
    if mark in seen:
        return Column(name, LEFT_OUT, f"the same as {seen[mark]}")
    seen[mark] = name
    return column


def _kind_of(name: str, cells: NDArray[Any], forced: bool) -> Column:
    texts = as_text(cells) if forced or cells.dtype.kind != "f" else None
    form = number_form(cells)
    numbers = as_numbers(cells, form)
    filled = ~np.isnan(numbers) if texts is None else texts != ""
    count, read = int(np.count_nonzero(filled)), numbers[~np.isnan(numbers)]
    if not count:
        return Column(name, LEFT_OUT, "every cell is empty")
    distinct = np.unique(read)
    if not forced and mostly(len(read), count):
        if len(distinct) > 1:
            return _number_column(name, form, [] if texts is None else texts.tolist())
        if len(read) == len(cells):
            return Column(name, LEFT_OUT, f"the only value is {distinct[0]:.6g}")
    levels = Counter(as_text(cells)[filled].tolist())
    if not forced and len(read) < count:
        if day := date_form(levels):
            return Column(name, DATE, "days since 1970-01-01", (f"{name} days",), form=day)
        if len(levels) > max(MOST_LEVELS, count // 2):
            return Column(name, LEFT_OUT, f"text with {len(levels)} values in {count} rows (--categorical keeps it)")
    if len(levels) == 1 and count == len(cells):
        return Column(name, LEFT_OUT, f"the only value is {brief(next(iter(levels)))}")
    return Column(name, CATEGORY if len(levels) <= MOST_LEVELS else MEANS)


def _number_column(name: str, form: str, texts: Sequence[str]) -> Column:
    """A column of numbers; ``texts`` are its cells, unless these were numbers already."""
    notes = [f"written as {form}"] if form != PLAIN else []
    if code := next((text for text in texts if len(text) > 1 and text[0] == "0" and text.isdigit()), ""):
        notes.append(f"a number, though {brief(code)} looks like a code: see --categorical and --drop")
    return Column(name, NUMBER, "; ".join(notes), (name,), form=form)


def _part(column: Column, options: PrepareOptions, classes: int, fewest: int) -> Any:
    """scikit-learn's part for a column."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, TargetEncoder

    if column.kind in (NUMBER, DATE):
        return SimpleImputer(strategy=options.impute)
    if column.kind == CATEGORY:
        return OneHotEncoder(
            handle_unknown="infrequent_if_exist", min_frequency=fewest, drop="if_binary", sparse_output=False
        )
    kind = "continuous" if not classes else "binary" if classes == 2 else "multiclass"
    return TargetEncoder(target_type=kind, random_state=options.seed)


def _learned(column: Column, part: Any, values: NDArray[Any], options: PrepareOptions, classes: int) -> Column:
    """A column with what its part has learned, read out as plain data."""
    if column.kind in (NUMBER, DATE):
        middle = float(part.statistics_[0])
        empty = int(np.count_nonzero(np.isnan(values)))
        notes = [column.note] if column.note else []
        if column.kind == NUMBER and column.form == PLAIN and set(np.unique(values[~np.isnan(values)])) == {0.0, 1.0}:
            column = replace(column, form=BINARY if middle in (0.0, 1.0) else PLAIN)
        if empty:
            name = options.impute.replace("_", " ")
            shown = f"{middle:.6g}" if column.kind == NUMBER else str(np.datetime64(int(middle), "D"))
            many = f"{empty} empty cells become" if empty > 1 else "1 empty cell becomes"
            notes.append(f"{many} the {name}, {shown}")
        return replace(column, fill=middle, note="; ".join(notes))
    found = Counter(values.tolist())
    levels = tuple(sorted(found))
    table = np.asarray(part.transform(np.array(levels, dtype=object)[:, None]), dtype=float)
    unseen = "unknown" + "?" * len(max(levels, key=len))  # longer than any level
    other = np.asarray(_quietly(part.transform, np.array([[unseen]], dtype=object)), dtype=float)[0]
    fill = "" if "" in found else found.most_common(1)[0][0]
    if column.kind == MEANS:
        suffixes = ["mean"] if table.shape[1] == 1 else [f"mean of class {k + 1}" for k in range(classes)]
        features = tuple(f"{column.name} {suffix}" for suffix in suffixes)
        what = "target" if not classes else "class"
        note = f"{len(levels)} levels become the mean of the {what} for each"
    else:
        features = tuple(_level_names(column.name, table, levels))
        rare = max(int(np.count_nonzero(one)) for one in table.T)
        note = f"{len(levels)} levels" + (f", {rare} of them rare" if rare > 1 else "")
    if "" in found:
        many = f"{found['']} empty cells are" if found[""] > 1 else "the empty cell is"
        note += f"; {many} a level of their own"
    rows = tuple(map(tuple, table.tolist()))
    return replace(
        column, features=features, fill=fill, levels=levels, values=rows, other=tuple(other.tolist()), note=note
    )


def _quietly(function: Any, argument: Any) -> Any:
    with warnings.catch_warnings():  # scikit-learn warns of unknown levels, which is what is asked about here
        warnings.simplefilter("ignore", UserWarning)
        return function(argument)


def _level_names(name: str, table: Floats, levels: Sequence[str]) -> Iterable[str]:
    """Names of the indicators: that of the one level, or "other" for those that share one."""
    for column in table.T:
        own = [level for level, value in zip(levels, column, strict=True) if value]
        yield f"{name} {own[0] or 'empty'}" if len(own) == 1 else f"{name} other"
