r"""Where a function has a pair of poles beside its interval, seen from its samples.

If f has the poles :math:`c \pm iy` and is analytic further on, :math:`(x^2 + px + q) f(x)` with the right p and q is
far closer to a polynomial of degree n than f is, and least squares over p, q and that polynomial finds them (the
theorem of de Montessus de Ballore, 1902, with samples in place of derivatives).
"""

from __future__ import annotations

import math

import numpy as np

from transformula.compiler.tables.least_squares import least_squares
from transformula.compiler.tables.softmax_table import Array, Function

DEGREES = (6, 10, 14, 20, 28)
POINTS = 120
NOISE = 1e-11  # of the largest value: what a polynomial misses by less is nothing to tell poles from
AGREE = 1e-3  # of their distance from the axis: how far the answers of two degrees may be apart


def nearest_poles(f: Function, lower: float, upper: float) -> tuple[float, float] | None:
    """c and y > 0 of the pair of poles next to the interval, if several degrees agree on it.

    Examples
    --------
    >>> c, y = nearest_poles(lambda x: 1 / (1 + 25 * (x - 0.5) ** 2) + np.exp(x), -1.0, 1.0)
    >>> round(c, 9), round(y, 9)
    (0.5, 0.2)
    >>> nearest_poles(np.exp, -1.0, 1.0) is None
    True
    """
    middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    t = -np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
    values = _scaled(f(middle + half * t))
    last: tuple[float, float] | None = None
    for degree in DEGREES:
        found = _pair(t, values, degree)
        if found is None:
            return None
        if last is not None and math.dist(found, last) < AGREE * found[1]:
            return middle + half * found[0], half * found[1]
        last = found
    return None


def _scaled(values: Array) -> Array:
    """The values divided by a power of two, so that none is above 1: that moves no pole, and no square overflows."""
    return np.asarray(np.ldexp(values, -np.frexp(np.abs(values).max())[1]))


def _pair(t: Array, values: Array, degree: int) -> tuple[float, float] | None:
    """The pair that a polynomial of this degree leaves over, with its middle on the interval -1..1 itself."""
    basis, _ = np.linalg.qr(np.polynomial.chebyshev.chebvander(t, degree))
    columns = np.stack([values, t * values, t * t * values], axis=1)
    left = columns - basis @ (basis.T @ columns)
    if not np.abs(left[:, 0]).max() > NOISE * np.abs(values).max():
        return None
    q, p = least_squares(left[:, :2], -left[:, 2])
    square = q - p * p / 4
    return (float(-p / 2), math.sqrt(square)) if square > 0 and abs(p) < 2 else None
