"""Points as users give them and want them back: rows of inputs in, values in the shape of the question out.

Columns with names are found by name, in whatever order they stand: data frames of pandas and polars, Arrow tables and
record batches, dicts of columns or of numbers, structured arrays, named tuples, a row of a data frame (a Series with
names as labels), and lists of such rows. Arrays, tensors and lists of numbers have no names: there the order counts,
as it does in a data frame whose columns are only numbered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq

from transformula.errors import BoxError, InputError, PointError, brief
from transformula.formula.given_box import exact_number
from transformula.formula.sample_target import as_array, is_tensor
from transformula.kernel.enclosures.balls import to_fmpq
from transformula.kernel.syntax.boxes import Box


class Points(NamedTuple):
    """Samples × inputs, whether a single point was given, and the names in it that are not the model's."""

    rows: Any
    single: bool
    extra: tuple[str, ...] = ()


def as_rows(x: Any, names: tuple[str, ...], sequence: tuple[int, int] | None) -> Points:
    """Tables and rows with names are read by name; arrays, tensors and lists of numbers by position.

    Examples
    --------
    >>> as_rows({"y": [1, 2], "x": [3, 4], "z": 0}, ("x", "y"), None)
    Points(rows=array([[3, 1],
           [4, 2]]), single=False, extra=('z',))
    """
    columns = columns_of(x)
    rows = _by_position(x, names, sequence) if columns is None else side_by_side(picked(columns, names), names)
    single = rows.ndim == 1
    rows = rows[None] if single else rows
    if rows.ndim != 2 or rows.shape[1] != len(names):
        said = f"rows of {len(names)} numbers ({', '.join(names)})"
        raise PointError(f"expected {said}, got an array of shape {tuple(rows.shape[single:])}")
    if is_tensor(rows) and (rows.is_complex() or str(rows.layout) != "torch.strided"):
        kind = "complex" if rows.is_complex() else "sparse"
        raise PointError(f"expected real numbers in a dense tensor, got a {kind} one")
    return Points(rows, single, tuple(str(name) for name in columns or () if name not in names))


def _by_position(x: Any, names: tuple[str, ...], sequence: tuple[int, int] | None) -> Any:
    try:
        rows = x if is_tensor(x) else as_array(x)
    except InputError as error:
        raise PointError(str(error)) from None
    if sequence is not None and tuple(rows.shape[-2:]) == sequence:
        return rows.reshape(*rows.shape[:-2], len(names))
    return rows[..., None] if len(names) == 1 and rows.ndim <= 1 else rows


def exact_point(x: Any, names: tuple[str, ...]) -> list[fmpq]:
    """One point as rationals, by position or by name; floats mean the decimal they print as."""
    columns = columns_of(x)
    if columns is None and (isinstance(x, str) or not isinstance(x, Iterable)):
        raise PointError(f"expected {len(names)} rational numbers ({', '.join(names)}), got {brief(x)}")
    values = list(x) if columns is None else picked(columns, names)
    if len(values) != len(names):
        raise PointError(f"expected {len(names)} rational numbers ({', '.join(names)}), got {len(values)}")
    return [_rational(value, name) for value, name in zip(values, names, strict=True)]


def _rational(value: Any, name: str) -> fmpq:
    if isinstance(value, fmpq):
        return value
    try:
        exact = exact_number(value, name)
    except BoxError as error:
        raise PointError(str(error)) from None
    if exact.number is None:
        raise PointError(f"exact evaluation needs rational inputs, and {name} = {exact} is not a rational number")
    return to_fmpq(exact.number)


def as_asked(values: Any, single: bool, sequence: tuple[int, int] | None) -> Any:
    """One number a row for one output, a sequence for a sequence, and no row for a single point."""
    if sequence is not None:
        values = values.reshape(len(values), *sequence)
    elif values.shape[1] == 1:
        values = values[:, 0]
    return values[0] if single else values


#: Rows that are compared side by side.
FOLD = 512


class Ends:
    """The ends of a box in floats, to compare many points with."""

    def __init__(self, box: Box) -> None:
        self.variables = box.variables
        self.low, self.high = np.array(box.floats()).T

    def outside(self, rows: Any) -> str | None:
        """The first variable with a value outside its interval, if there is one."""
        if not len(rows):
            return None
        beyond = (_along(np.min, rows) < self.low) | (_along(np.max, rows) > self.high)
        return self.variables[int(beyond.argmax())] if beyond.any() else None


def _along(reduce: Any, rows: Any) -> Any:
    """reduce(rows, axis=0), many rows side by side: NumPy is slow where a row is short."""
    whole = len(rows) // FOLD * FOLD
    folded = reduce(rows[:whole].reshape(-1, FOLD * rows.shape[1]), axis=0).reshape(FOLD, -1) if whole else rows[:0]
    return reduce(np.concatenate([folded, rows[whole:]]), axis=0)


def columns_of(given: Any) -> Mapping[Any, Any] | None:
    """Name → column or number, of anything that has names; else None.

    Examples
    --------
    >>> columns_of([{"x": 1, "y": 2}, {"y": 4, "x": 3}])
    {'x': [1, 3], 'y': [2, 4]}
    >>> columns_of([[1, 2], [3, 4]]) is None
    True
    """
    if isinstance(given, Mapping):
        return given
    if isinstance(given, (np.ndarray, np.void)):
        names = given.dtype.names
        return None if names is None else {name: given[name] for name in names}
    if isinstance(given, tuple) and hasattr(given, "_fields"):
        return dict(zip(given._fields, given, strict=True))
    if isinstance(given, (list, tuple)):
        return _joined(given)
    kind = type(given)
    if hasattr(kind, "iloc") and hasattr(kind, "tolist"):  # a Series: a row of a data frame, if its labels are names
        labels = list(given.index)
        return dict(zip(_once(labels), given.tolist(), strict=True)) if _are_names(labels) else None
    if hasattr(kind, "column_names") or hasattr(kind, "columns"):  # Arrow; pandas, polars and those like them
        labels = list(given.column_names if hasattr(kind, "column_names") else given.columns)
        return {label: given[label] for label in _once(labels)} if _are_names(labels) else None
    return None


def _joined(rows: Sequence[Any]) -> dict[Any, list[Any]] | None:
    """Rows with names as columns; a name that some row lacks is left out."""
    if not rows or isinstance(rows[0], list) or (isinstance(rows[0], tuple) and not hasattr(rows[0], "_fields")):
        return None
    if columns_of(rows[0]) is None:
        return None
    found = [columns_of(row) or {} for row in rows]
    return {name: [row[name] for row in found] for name in found[0] if all(name in row for row in found)}


def _are_names(labels: Iterable[Any]) -> bool:
    """Whether labels are more than the numbers of columns."""
    return any(not isinstance(label, Integral) for label in labels)


def _once(labels: list[Any]) -> list[Any]:
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise PointError(f"the column {twice} stands twice in the table: rename one of them")
    return labels


def picked(columns: Mapping[Any, Any], names: Sequence[str]) -> list[Any]:
    """The columns of the given names, in their order; every one that is missing is named."""
    if missing := [name for name in names if name not in columns]:
        held = ", ".join(map(str, list(columns)[:20])) or "none"
        raise PointError(
            f"no value is given for {', '.join(missing)} (the names given are {held}): use the model's names, "
            f"or an array whose columns are in the order {', '.join(names)}"
        )
    return [columns[name] for name in names]


def side_by_side(columns: Sequence[Any], names: Sequence[str]) -> Any:
    """Columns as rows (samples, names), or numbers as one row; a number beside columns holds for all rows."""
    tensors = any(map(is_tensor, columns))
    parts = [_numbers(column, name, tensors) for column, name in zip(columns, names, strict=True)]
    lengths = {len(part): name for part, name in zip(parts, names, strict=True) if part.ndim}
    if len(lengths) > 1:
        said = " and ".join(f"{name} has {length}" for length, name in sorted(lengths.items()))
        raise PointError(f"the columns have different lengths: {said}")
    if tensors:
        import torch

        return torch.stack(torch.broadcast_tensors(*parts), dim=-1)
    return np.stack(np.broadcast_arrays(*parts), axis=-1)


def _numbers(column: Any, name: str, tensor: bool) -> Any:
    try:
        if tensor:
            import torch

            part = column if is_tensor(column) else torch.as_tensor(as_array(column))
        else:
            part = as_array(column)
    except InputError as error:
        raise PointError(f"{name}: {error}") from None
    if part.ndim > 1:
        raise PointError(f"{name}: expected a number or a column of numbers, got the shape {tuple(part.shape)}")
    return part
