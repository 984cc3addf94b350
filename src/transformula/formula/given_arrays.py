"""Arrays of real numbers, of whatever users give: lists, NumPy, pandas, scipy, torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import InputError, brief


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
        said = "rows of different lengths" if _is_ragged(given) else " ".join(str(error).split())[:120]
        raise InputError(f"expected numbers, got {said}") from None


def _is_ragged(given: Any) -> bool:
    """Whether nested sequences differ in length, or numbers stand beside sequences."""
    if not isinstance(given, (list, tuple)):
        return False
    rows = [row for row in given if isinstance(row, (list, tuple, np.ndarray))]
    lengths = {len(row) for row in rows}
    return len(lengths) > 1 or 0 < len(rows) < len(given) or any(map(_is_ragged, rows))
