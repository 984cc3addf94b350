"""Least squares for fits, refused where the numbers have left the range of floats."""

from __future__ import annotations

import numpy as np

from transformula.compiler.tables.softmax_table import Array


def least_squares(matrix: Array, right: Array, cutoff: float | None = None) -> Array:
    """The solution of smallest norm; `OverflowError` for numbers that are not finite, about which LAPACK only complains
    on standard error. Singular values below ``cutoff``, as a fraction of the largest, count as zero.

    Examples
    --------
    >>> least_squares(np.array([[1.0], [1.0]]), np.array([1.0, 3.0])).round(12)
    array([2.])
    """
    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        raise OverflowError("the numbers of a fit are beyond floats")
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=cutoff)[0], dtype=np.float64)
