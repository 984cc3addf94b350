"""Bounds on scores: which softmaxes need no shift, and how many tokens of a sharp axis can have a non-zero weight.

Inputs lie in the box, a table between its smallest and its largest value wherever its argument is (and closer,
where that is known: `table_range`), and a linear form between the sums of its ends. The ends are floats, widened by
`SLACK` of the largest term: the rounding of linear forms is far smaller, and that of tables is added.

A table is *anchored* if one of its tokens has slope and offset zero: its exponential is 1 whatever the argument is.
Then every sum of exponentials is at least 1, and flushing to zero costs no more than in a softmax that is shifted by
its largest score (`kernel.rounding.softmax.flushed`). Only overflow remains, and `reach` gives the arguments between
which the exponentials, their products with values and all sums stay a factor of 10 below it.

Arguments are clamped to the reach. At an end of it one token leads all M - 1 others by some L, in computed scores too,
and by no less further out, so that there and at the end the table is within 2 M Y e^-L of that token's value y,
abs(values) <= Y. Where this is not close enough the table is shifted:

- Outside the box nothing is certified, but the result still has to be what the weights compute. L is at least `LEAD`,
  which makes it half a unit in the last place of Y.
- An interval may be far wider than what is met in the box, as those of products are: an argument that may then lie
  beyond the end is clamped too if 4 M Y e^-L is at most `SPARE` units of roundoff u of y. All other terms of both sums
  together are then too small to change the leading one when they are added, in any order: the sums are e and e y as
  they were rounded, with the same e, so that the quotient is within a unit in the last place of y, at most 2 u abs(y),
  and the table within `SPARE` u abs(y) / 2 of y. The kernel counts gamma_M and gamma_(M+2) for the two sums and the
  quotient at every argument (`kernel.rounding.softmax`, `kernel.circuit.head_proofs`), at least 6 u abs(y) as M >= 2:
  what is proven holds as it is. Sharp tables, whose proofs count less, are always shifted (`Construction.program`).

*Windows of a grid's axis.* With tokens sorted by slope, the token that leads at u is the one between whose crossings u
lies, since the largest of affine functions is convex. A token r places away from the leader trails it by the least at
an end of the leader's interval. If that is more than `SILENT` for all leaders and both sides, its exponential after
subtracting the largest score is zero in floats wherever u is, so only a window of 2r - 1 tokens has to be evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from transformula.kernel.folder.weights import FloatArray

Interval = tuple[float, float]
ANYWHERE: Interval = (-math.inf, math.inf)
#: Widening of a range, relative to its largest term.
SLACK = 1e-3
#: Points at which a table is evaluated, as parts of its interval: evenly, and closer and closer to both ends.
_NEAR = np.geomspace(1e-9, 1, 1000)
_POINTS = np.unique(np.concatenate([np.linspace(0, 1, 2001), _NEAR, 1 - _NEAR]))
#: Half of the wider gap beside each point.
_HALF = np.maximum(np.diff(_POINTS, prepend=0), np.diff(_POINTS, append=1)) / 2
#: Scores evaluated at a time.
_CHUNK = 1 << 20
#: Lead of the leading score beyond which the other tokens no longer count.
LEAD = {"float64": 37.0, "float32": 17.0}
#: Sum of all other tokens where arguments of the box are clamped, in units of roundoff of the leading value.
SPARE = 1e-3
#: e^-SILENT is zero in the format, even if scores and exp are off: e^-760 < 2^-1096 and e^-125 < 2^-180.
SILENT = {"float64": 760.0, "float32": 125.0}
#: Error of scores, crossings and the choice between two neighbours, relative to the largest score, with a margin.
_ROUNDING = {"float64": 2.0**-48, "float32": 2.0**-19}
#: Tokens of an axis for each token of a window, at least: wider windows are not worth their gathering.
_SHARE = 8


def linear_range(terms: Iterable[tuple[Interval, float]], constant: float, relu: bool = False) -> Interval:
    """The range of a linear form, widened; with ``relu``, of the larger of it and zero."""
    low = high = constant
    size = abs(constant)
    for (first, last), factor in terms:
        ends = sorted((first * factor, last * factor))
        low += ends[0]
        high += ends[1]
        size = max(size, *map(abs, ends))
    known = abs(low) < 1e300 and abs(high) < 1e300 and size < 1e300  # zero times infinity is not
    low, high = _rough(low - SLACK * size, high + SLACK * size) if known else ANYWHERE
    return (max(low, 0.0), max(high, 0.0)) if relu else (low, high)


def _rough(low: float, high: float) -> Interval:
    """The interval with ends of a few bits: the same on machines whose exp differ in the last one."""
    unit = 2.0 ** (math.frexp(max(abs(low), abs(high), 1e-300))[1] - 12)
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit


def values_range(values: FloatArray) -> Interval:
    """The range of a table, widened."""
    return linear_range([((float(values.min()), float(values.max())), 1.0)], 0.0)


def table_range(slopes: FloatArray, offsets: FloatArray, values: FloatArray, where: Interval, dtype: str) -> Interval:
    """The range of a table of one axis for arguments in an interval, from values at points and slopes between them.

    T' is the covariance of slopes and values under the weights, and T'' the mean of (a - mean a)^2 (y - T): at most a
    quarter of the slopes' spread squared times the values' spread. What is computed may be off by a rounding for each
    token in both sums, and by those of scores and exponentials, of the mean of abs(values).
    """
    whole = values_range(values)
    if not np.isfinite(where).all():
        return whole
    span = where[1] - where[0]
    points, half = where[0] + span * _POINTS, span * _HALF
    tilt, spread = float(np.ptp(slopes)), float(np.ptp(values)) / 8
    step = max(1, _CHUNK // len(slopes))
    low, high = np.float64(math.inf), np.float64(-math.inf)
    with np.errstate(all="ignore"):
        for part in (slice(start, start + step) for start in range(0, len(points), step)):
            scores = np.outer(points[part], slopes) + offsets
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            found = weights @ values
            steep = weights @ (slopes * values) - (weights @ slopes) * found
            moved = np.abs(steep) * half[part] + (tilt * half[part]) ** 2 * spread
            rounded = 2 * len(slopes) + 20 + 8 * (np.abs(np.outer(points[part], slopes)) + np.abs(offsets))
            moved += float(np.finfo(dtype).eps) * ((weights * rounded) @ np.abs(values))
            low, high = np.minimum(low, (found - moved).min()), np.maximum(high, (found + moved).max())
    if not (abs(low) < 1e300 and abs(high) < 1e300):  # numbers next to overflow
        return whole
    slack = SLACK * max(abs(low), abs(high))
    bottom, top = _rough(float(low - slack), float(high + slack))
    return max(bottom, whole[0]), min(top, whole[1])


def anchor(slopes: FloatArray, offsets: FloatArray) -> int | None:
    """The first token whose score is zero everywhere, if there are others; slopes and offsets are tokens × axes."""
    found = np.flatnonzero(~(slopes.any(axis=1) | offsets.any(axis=1)))
    return int(found[0]) if len(found) and len(slopes) > 1 else None


def reach(
    slopes: FloatArray, offsets: FloatArray, values: FloatArray, within: Interval, always: Interval, dtype: str
) -> Interval | None:
    """The arguments to which those of an anchored table of one axis are clamped; infinite ends need no clamping.

    ``values`` is columns × tokens. None if that is impossible, because no token leads far enough at an end.
    """
    if not np.isfinite(within).all():
        return None
    largest = max(1.0, float(np.abs(values).max()))
    top = math.log(float(np.finfo(dtype).max)) - math.log(10.0 * len(slopes) * largest)
    if not offsets[slopes == 0].max() < top:
        return None
    above = _end(slopes, offsets, values, top, within[1], always[1], dtype)
    below = _end(-slopes, offsets, values, top, -within[0], -always[0], dtype)
    return None if above is None or below is None else (-below, above)


def _end(
    slopes: FloatArray, offsets: FloatArray, values: FloatArray, top: float, within: float, always: float, dtype: str
) -> float | None:
    """The largest argument whose scores are at most ``top``, or infinity where arguments never get that far."""
    rising = slopes > 0
    end = float(((top - offsets[rising]) / slopes[rising]).min(initial=math.inf))
    end -= SLACK * abs(end) if end < math.inf else 0.0
    if always <= end:
        return math.inf
    scores = slopes * end + offsets
    wrong = 4 * float(np.finfo(dtype).eps) * (np.abs(slopes * end) + np.abs(offsets))  # here and there, the end rounded
    leader = int(scores.argmax())
    others = float(np.delete(scores + wrong, leader).max())
    lead = float(scores[leader] - wrong[leader]) - others if slopes[leader] == slopes.max() else 0.0
    least = LEAD[dtype] if within < end else _lead_within(values, leader, dtype)
    return end if lead >= least else None


def _lead_within(values: FloatArray, leader: int, dtype: str) -> float:
    """Lead that the leading token needs where arguments of the box may be clamped."""
    leading, largest = np.abs(values[:, leader]), np.abs(values).max(axis=1)
    if not leading.all():
        return math.inf
    cut_off = math.log(4 * values.shape[1]) + float((np.log(largest) - np.log(leading)).max())
    return max(LEAD[dtype], cut_off - math.log(SPARE * float(np.finfo(dtype).eps) / 2))


def sinks(slopes: FloatArray, offsets: FloatArray, where: Interval, dtype: str) -> bool:
    """Whether exponentials of a table of one axis may fall below the normal range there."""
    return bool((np.outer(slopes, where) + offsets[:, None]).min() < math.log(float(np.finfo(dtype).tiny)) + 1)


def crossings(slopes: FloatArray, offsets: FloatArray) -> FloatArray:
    """Arguments at which a token and the next have the same score; slopes increase."""
    crossed: FloatArray = -np.diff(offsets.astype(np.float64)) / np.diff(slopes.astype(np.float64))
    return crossed


def window(slopes: FloatArray, offsets: FloatArray, dtype: str) -> int | None:
    """Number of tokens on either side of the leading one that may have weight; None if they are many or unclear."""
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
