"""Arrays as users give them and want them back: rows of inputs in, values in the shape of the question out."""

from __future__ import annotations

from typing import Any

import numpy as np

from transformula.errors import PointError
from transformula.kernel.syntax.boxes import Box


def as_rows(x: Any, names: tuple[str, ...], sequence: tuple[int, int] | None) -> tuple[Any, bool]:
    """Samples × inputs, and whether a single point was given."""
    inputs = len(names)
    if sequence is not None and tuple(x.shape[-2:]) == sequence:
        x = x.reshape(*x.shape[:-2], inputs)
    if x.ndim == 1 and inputs == 1:
        x = x[:, None]
    single = x.ndim == 1
    rows = x[None, :] if single else x
    if rows.ndim != 2 or rows.shape[1] != inputs:
        said = f"rows of {inputs} numbers ({', '.join(names)})"
        raise PointError(f"expected {said}, got an array of shape {tuple(x.shape)}")
    if isinstance(rows, np.ndarray) and rows.dtype.kind not in "fiub":
        try:
            if rows.dtype.kind not in "OSU":
                raise TypeError
            rows = np.array([[float(v) for v in row] for row in rows])
        except (TypeError, ValueError, OverflowError):
            raise PointError(f"expected numbers, got an array of {rows.dtype}") from None
    return rows, single


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
