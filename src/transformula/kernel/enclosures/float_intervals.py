"""Intervals as pairs of float arrays, rounded outwards; infinity times zero counts as unknown."""

from __future__ import annotations

import math

import numpy as np

from transformula.kernel.enclosures.taylor_models import Floats

Pair = tuple[Floats, Floats]


def plus(a: Pair, b: Pair) -> Pair:
    """Sums of intervals."""
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = a[0] + b[0], a[1] + b[1]
    return outward(low, high)


def outward(low: Floats, high: Floats) -> Pair:
    """Ends rounded outwards; an end that is not a number is not known."""
    low, high = np.fmax(low, -math.inf), np.fmin(high, math.inf)  # of a NaN and a number, the number
    return np.nextafter(low, -math.inf), np.nextafter(high, math.inf)


def times(a: Pair, b: Pair) -> Pair:
    """Products of intervals."""
    with np.errstate(invalid="ignore", over="ignore"):
        p, q, r, s = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
    low, high = np.minimum(np.minimum(p, q), np.minimum(r, s)), np.maximum(np.maximum(p, q), np.maximum(r, s))
    return outward(low, high)


def squared(a: Pair) -> Pair:
    """Squares of intervals."""
    low, high = times(a, a)
    return np.maximum(low, 0.0), high


def length(a: Pair, b: Pair) -> Pair:
    """√(a² + b²) of intervals."""
    low, high = plus(squared(a), squared(b))
    return np.nextafter(np.sqrt(np.maximum(low, 0.0)), -math.inf), np.nextafter(np.sqrt(high), math.inf)


def direction(a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """a/√(a² + b²) and b/√(a² + b²), which lie in [−1, 1] even where the length vanishes."""
    low, high = length(a, b)
    with np.errstate(divide="ignore"):
        inverse = np.nextafter(1 / high, 0.0), np.nextafter(1 / np.maximum(low, 0.0), math.inf)
    shares = times(a, inverse), times(b, inverse)
    first, second = ((np.clip(s[0], -1.0, 1.0), np.clip(s[1], -1.0, 1.0)) for s in shares)
    return first, second


def widen(a: Pair, by: Floats | float) -> Pair:
    """Intervals widened on both sides."""
    with np.errstate(invalid="ignore", over="ignore"):
        return outward(a[0] - by, a[1] + by)


def size(a: Pair) -> Floats:
    """The largest absolute value."""
    return np.maximum(np.abs(a[0]), np.abs(a[1]))
