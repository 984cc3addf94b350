"""Points as users give them and want them back: rows of inputs in, values in the shape of the question out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq

from transformula.errors import BoxError, InputError, PointError, brief
from transformula.formula.given_arrays import as_array, is_tensor
from transformula.formula.given_box import exact_number
from transformula.kernel.enclosures.balls import to_fmpq
from transformula.kernel.syntax.boxes import Box
from transformula.runtime.named_inputs import columns_of, picked, side_by_side


class Points(NamedTuple):
    """Samples × inputs, whether a single point was given, and the names in it that are not the model's."""

    rows: Any
    single: bool
    extra: tuple[str, ...] = ()


def as_rows(x: Any, names: tuple[str, ...], sequence: tuple[int, int] | None) -> Points:
    """What has names (`named`) is read by name; arrays, tensors and lists of numbers by position.

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
    if is_tensor(rows) and rows.is_complex():
        raise PointError("expected real numbers, got a complex tensor")
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
