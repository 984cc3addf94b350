"""Samples: arrays of whatever users give (lists, NumPy, pandas, scipy, torch), and finite maps as targets of models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import InputError, ModelFileError, brief
from transformula.formula.prompt_target import Prompts
from transformula.kernel.folder.description import Description
from transformula.kernel.gallery.in_context_blocks import PromptTask
from transformula.kernel.rules.rule_table import target
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import MAX_VARIABLES, Box, Formula

#: Nesting of lists, as NumPy allows it.
MAX_AXES = 64


def is_tensor(given: object) -> bool:
    """Whether this is a tensor of torch, which is not imported here."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def as_array(given: Any) -> NDArray[Any]:
    """The real numbers that are given, as an array; `InputError` if they are not numbers, or not an array of them.

    Examples
    --------
    >>> as_array([[1, 2], [3, 4]]).shape, as_array([["0.5"], ["1"]]).tolist()
    ((2, 2), [[0.5], [1.0]])
    >>> as_array([1j])
    Traceback (most recent call last):
    transformula.kernel.exceptions.InputError: expected real numbers, got an array of complex128
    """
    array = _read(given)
    if array.dtype.kind in "fiub":
        return array
    try:
        if array.dtype.kind not in "OSU":
            raise TypeError
        return np.array([float(value) for value in array.ravel()]).reshape(array.shape)
    except (TypeError, ValueError, OverflowError):
        found = f"an array of {array.dtype}" if array.ndim else brief(given)
        raise InputError(f"expected real numbers, got {found}") from None


def _read(given: Any) -> NDArray[Any]:
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise InputError("expected numbers, got an array some of whose values are masked: fill or drop them first")
    if is_tensor(given):
        given = given.detach().cpu()
    elif hasattr(given, "toarray"):  # a sparse matrix
        given = given.toarray()
    try:
        return np.asarray(given)
    except Exception as error:  # rows of different lengths, and whatever a library's own conversion refuses
        if isinstance(error, ValueError) and _shape(given) is None:
            raise InputError("expected numbers, got rows of different lengths") from None
        raise InputError(f"expected numbers, got {' '.join(str(error).split())[:120]}") from None


def _shape(given: Any, depth: int = 0) -> tuple[int, ...] | None:
    """The shape of nested lists; None where the rows of one differ, or where they are too deep for NumPy."""
    if not isinstance(given, (list, tuple)):
        return tuple(getattr(given, "shape", ()))
    if depth == MAX_AXES:
        return None
    rows = {_shape(row, depth + 1) for row in given}
    first = rows.pop() if rows else ()
    return None if rows or first is None else (len(given), *first)


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Samples:
    """Pairs x_i → y_i with distinct x_i: arrays samples × inputs and samples × outputs."""

    x: Floats
    y: Floats

    @classmethod
    def of(cls, x: Any, y: Any) -> Samples:
        """Check shapes and finiteness, merge repeated samples, refuse contradictory ones by row."""
        points, targets = _table(x, "X"), _table(y, "Y")
        if len(points) != len(targets):
            raise InputError(f"X has {len(points)} rows and Y has {len(targets)}: they must match")
        if not len(points):
            raise InputError("there is nothing to memorise: X has no rows")
        first: dict[bytes, int] = {}
        keep = []
        for row, point in enumerate(points + 0.0):  # −0.0 and 0.0 are one number
            earlier = first.setdefault(point.tobytes(), row)
            if earlier == row:
                keep.append(row)
            elif not np.array_equal(targets[earlier], targets[row]):
                raise InputError(
                    f"rows {earlier} and {row} contradict each other: the same input "
                    f"{_short(point)} has outputs {_short(targets[earlier])} and {_short(targets[row])}"
                )
        return cls(points[keep] + 0.0, targets[keep] + 0.0)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(f"y{k + 1}" for k in range(self.y.shape[1]))

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(f"x{k + 1}" for k in range(self.x.shape[1]))

    @property
    def box(self) -> Box:
        """The smallest box around the samples (widened where a column is constant)."""
        low, high = self.x.min(axis=0), self.x.max(axis=0)
        high = np.where(high > low, high, low + 1)
        return Box(
            self.variables,
            tuple(ex.number(Fraction(float(v))) for v in low),
            tuple(ex.number(Fraction(float(v))) for v in high),
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """Each output in words."""
        return tuple(f"{name} memorised at {len(self.x)} samples" for name in self.outputs)

    def __str__(self) -> str:
        return f"{len(self.x)} samples"


def stored_target(description: Description) -> Formula | Samples | Prompts:
    """The target that model.json states."""
    if description.task is not None:
        return Prompts(PromptTask.of(description.task))
    if description.samples is None:
        return target(description)
    try:
        return Samples.of(description.samples["x"], description.samples["y"])
    except KeyError:
        raise ModelFileError("model.json states its samples without x or y") from None


def shown(formula: Formula | Samples | Prompts) -> list[str]:
    """One text for each output, as typed where it was.

    Examples
    --------
    >>> shown(Formula.of(["sigmoid(x)", "243.04*x"], "x=0..1"))
    ['sigmoid(x)', '243.04*x']
    """
    if isinstance(formula, Formula) and len(formula.typed) == len(formula.outputs):
        return list(formula.typed)
    return list(formula.texts)


def _table(values: Any, name: str) -> Floats:
    try:
        given = as_array(values)
    except InputError as error:
        raise InputError(f"{name} must be a table of numbers: {error}") from None
    table = given.astype(np.float64)
    if (np.abs(table) >= 2**53).any():  # where a whole number may have been rounded
        wholes = np.asarray(values if isinstance(values, (list, tuple)) else given, dtype=object).ravel()
        pairs = zip(wholes, table.ravel().tolist(), strict=True)
        if any(isinstance(value, Integral) and int(value) != kept for value, kept in pairs):
            raise InputError(f"{name} has a whole number that no float equals: take numbers up to 2**53")
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not table.shape[1]:
        raise InputError(f"{name} must have one row per sample, not the shape {table.shape}")
    if table.shape[1] > MAX_VARIABLES:
        raise InputError(f"{name} has {table.shape[1]} columns; at most {MAX_VARIABLES}")
    if not np.all(np.isfinite(table)):
        raise InputError(f"row {int(np.argmin(np.isfinite(table).all(axis=1)))} of {name} is not finite")
    return table


def _short(values: Sequence[float] | Floats) -> str:
    shown = ", ".join(f"{v:g}" for v in list(values)[:4])
    return f"({shown}{', ...' if len(values) > 4 else ''})"
