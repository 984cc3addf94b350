"""Tables and rows whose numbers have names: columns are found by name, in whatever order they stand.

Data frames of pandas and polars, Arrow tables and record batches, dicts of columns or of numbers, structured arrays,
named tuples, a row of a data frame (a Series with names as labels), and lists of such rows. Arrays, tensors and lists
of numbers have no names: there the order counts, and so it does in a data frame whose columns are only numbered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from transformula.errors import InputError, PointError
from transformula.formula.given_arrays import as_array, is_tensor


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
