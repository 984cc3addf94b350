"""A function that is slow to evaluate, at very many points: by polynomials on intervals, halved until they fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: With fewer points than this on an interval the function itself is evaluated.
_FEW = 64
_DEGREE, _CLOSE = 20, 1e-14
_NODES = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
_CHECKED = np.array([-0.97, -0.31, 0.11, 0.73])


def at_many(function: Callable[[Floats], Floats], points: Floats) -> Floats:
    """Values at points of any shape, accurate to about 1e-14 of the largest nearby; nan where the function is.

    Examples
    --------
    >>> x = np.linspace(0, 3, 10_000)
    >>> float(np.abs(at_many(np.sin, x) - np.sin(x)).max()) < 1e-13
    True
    """
    flat, back = np.unique(np.asarray(points, dtype=float), return_inverse=True)
    values = np.full(flat.shape, np.nan)
    first = int(np.isneginf(flat).sum())  # sorted: -inf, numbers, inf, nan
    stack = [(first, first + int(np.isfinite(flat).sum()))] if np.isfinite(flat).any() else []
    while stack:
        start, stop = stack.pop()
        own, low, high = flat[start:stop], flat[start], flat[stop - 1]
        if stop - start <= _FEW:
            values[start:stop] = function(own)
            continue
        middle, half = (low + high) / 2, (high - low) / 2
        known = function(middle + half * _NODES)
        series = np.polynomial.chebyshev.chebfit(_NODES, known, _DEGREE) if np.isfinite(known).all() else None
        if series is not None:
            off = function(middle + half * _CHECKED) - np.polynomial.chebyshev.chebval(_CHECKED, series)
            if np.abs(off).max() <= _CLOSE * np.abs(known).max():
                values[start:stop] = np.polynomial.chebyshev.chebval((own - middle) / half, series)
                continue
        cut = int(np.clip(np.searchsorted(own, middle), 1, stop - start - 1))
        stack += [(start, start + cut), (start + cut, stop)]
    return values[back].reshape(np.shape(points))
