"""Where rows can lie, so that a softmax whose scores are small is not shifted.

Inputs lie in the box, a table between its smallest and its largest value wherever its argument is (and closer,
where that is known: `table_range`), and a linear form between the sums of its ends. The ends are floats, widened by
`SLACK` of the largest term: rounding is far smaller. Nothing is proven here that the claim of a certificate rests
on beyond one fact: if the scores of a table stay within `LIMIT` and its values within `SIZES`, then exponentials,
their products with values and all sums stay a factor of 10 within the normal range, so nothing overflows or is
flushed to zero.

Outside the box nothing is certified, but what the weights compute still has to come out. Let u be an argument, a_j
the slopes, [low, high] where u lies if the inputs are in the box. The rows max(u - high, 0) and max(low - u, 0) are
zero there. Else

    a_j u + b_j - max_i a_i max(u - high, 0) + min_i a_i max(low - u, 0)

is each score less one and the same number, at most `LIMIT` for all tokens and at least -`LIMIT` for one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from transformula.kernel.weights import FloatArray

Interval = tuple[float, float]
ANYWHERE: Interval = (-math.inf, math.inf)
SLACK = 1e-3
#: Where a table is looked at, and numbers held at once.
_POINTS, _CHUNK = 4000, 1 << 20
#: Largest scores that are not shifted.
LIMIT = {"float64": 400.0, "float32": 40.0}
#: Sizes of values with such scores.
SIZES = {"float64": (1e-60, 1e60), "float32": (1e-8, 1e8)}


def linear_range(terms: Iterable[tuple[Interval, float]], constant: float, bend: bool = False) -> Interval:
    """Where a linear form lies, widened; with ``bend``, the larger of it and zero."""
    low = high = constant
    size = abs(constant)
    for (first, last), factor in terms:
        ends = sorted((first * factor, last * factor))
        low, high, size = low + ends[0], high + ends[1], max(size, *map(abs, ends))
    known = abs(low) < 1e300 and abs(high) < 1e300 and size < 1e300  # zero times infinity is not
    low, high = _rough(low - SLACK * size, high + SLACK * size) if known else ANYWHERE
    return (max(low, 0.0), max(high, 0.0)) if bend else (low, high)


def _rough(low: float, high: float) -> Interval:
    """The interval with ends of a few bits: the same on machines whose exp differ in the last one."""
    unit = 2.0 ** (math.frexp(max(abs(low), abs(high), 1e-300))[1] - 12)
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit


def values_range(values: FloatArray) -> Interval:
    """Where a table lies, widened."""
    low, high = float(values.min()), float(values.max())
    slack = SLACK * max(abs(low), abs(high))
    return _rough(low - slack, high + slack)


def table_range(slopes: FloatArray, offsets: FloatArray, values: FloatArray, where: Interval) -> Interval:
    """Where a table of one axis lies for arguments in an interval: between points it moves by its steepest slope.

    T' is the covariance of slopes and values under the weights, at most a quarter of the product of their spreads.
    """
    whole = values_range(values)
    if not np.isfinite(where).all():
        return whole
    points, gap = np.linspace(*where, _POINTS, retstep=True)
    step = max(1, _CHUNK // len(slopes))
    low, high = math.inf, -math.inf
    for start in range(0, _POINTS, step):
        scores = np.outer(points[start : start + step], slopes) + offsets
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        found = weights @ values / weights.sum(axis=1)
        low, high = min(low, float(found.min())), max(high, float(found.max()))
    moved = float(np.ptp(slopes)) * float(np.ptp(values)) / 4 * float(gap) / 2
    slack = moved + SLACK * max(abs(low), abs(high))
    low, high = _rough(low - slack, high + slack)
    return max(low, whole[0]), min(high, whole[1])


def fits(slopes: FloatArray, offsets: FloatArray, values: FloatArray, where: Interval, dtype: str) -> bool:
    """Whether the scores of a table of one axis need no shift while its argument is there."""
    if not np.isfinite(where).all():
        return False
    scores = np.abs(np.outer(slopes, where) + offsets[:, None])
    sizes = np.abs(values[values != 0])
    low, high = SIZES[dtype]
    return bool(scores.max() <= LIMIT[dtype] and (not len(sizes) or (low <= sizes.min() and sizes.max() <= high)))
