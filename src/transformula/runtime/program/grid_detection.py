"""Tables whose tokens form a grid, and how many tokens of a sharp axis can have a non-zero weight.

On an axis sorted by slope the token that leads at u is the one between whose crossings u lies, since the largest of
affine functions is convex. A token r places away from the leader trails it by the least at an end of the leader's
interval. If that is more than `SILENT` for all leaders and both sides, its exponential after subtracting the largest
score is zero in floats wherever u is, so only a window of 2r - 1 tokens has to be evaluated.
"""

from __future__ import annotations

import numpy as np

from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.tables.table_error import lattice
from transformula.runtime.program.program_steps import Grid, Rows

#: e^-SILENT is zero in the format, even if scores and exp are off: e^-760 < 2^-1096 and e^-125 < 2^-180.
SILENT = {"float64": 760.0, "float32": 125.0}
#: Of the largest score: what scores, crossings and the choice between two neighbours may be off by, with room to spare.
_ROUNDING = {"float64": 2.0**-48, "float32": 2.0**-19}
#: Windows of at most this share of an axis are worth their gathering.
_SHARE = 8


def grid_of(reads: Rows, slopes: FloatArray, offsets: FloatArray, values: FloatArray, dtype: str) -> Grid | None:
    """The table as a grid, or None; slopes and offsets are tokens × axes, values tokens × columns."""
    found = lattice(slopes, offsets)
    if found is None:
        return None
    along, above = ([line.astype(dtype) for line in lines] for lines in (found.slopes, found.offsets))
    windows = tuple(window(a, b, dtype) for a, b in zip(along, above, strict=True))
    return Grid(reads, tuple(along), tuple(above), found.arranged(values).astype(dtype), windows)


def crossings(slopes: FloatArray, offsets: FloatArray) -> FloatArray:
    """Where each token and the next have the same score; increasing slopes."""
    crossed: FloatArray = -np.diff(offsets.astype(np.float64)) / np.diff(slopes.astype(np.float64))
    return crossed


def window(slopes: FloatArray, offsets: FloatArray, dtype: str) -> int | None:
    """How many tokens on either side of the leading one may have weight; None if they are many or unclear."""
    a, b = slopes.astype(np.float64), offsets.astype(np.float64)
    if len(a) < 2 * _SHARE or not (np.diff(a) > 0).all():
        return None
    t = crossings(a, b)
    if not ((np.diff(t) > 0).all() and np.isfinite(t).all()):
        return None
    for r in range(1, len(a) // (2 * _SHARE) + 1):
        if _gap(a, b, t, r + 1, dtype) > SILENT[dtype]:
            return r
    return None


def _gap(a: FloatArray, b: FloatArray, t: FloatArray, r: int, dtype: str) -> float:
    """The least lead over a token r places away, less what rounding takes from it."""
    right = (a[:-r] - a[r:]) * t[: len(a) - r] + b[:-r] - b[r:]  # token j leads up to its crossing with j + 1
    left = (a[r:] - a[:-r]) * t[r - 1 :] + b[r:] - b[:-r]
    size = float(np.abs(a).max() * np.abs(t).max() + np.abs(b).max())
    return float(min(right.min(), left.min())) - size * _ROUNDING[dtype]
