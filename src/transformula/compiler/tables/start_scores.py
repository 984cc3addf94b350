r"""Starting scores for a table: where the tokens sit before they are optimised.

From increasing centres xi_j the scores follow from

.. math::  a_{j+1} - a_j = \kappa / (\xi_{j+1} - \xi_j), \qquad
           b_{j+1} - b_j = -(a_{j+1} - a_j)\,(\xi_j + \xi_{j+1})/2 ,

neighbouring tokens exchange their weight at the midpoint, over a width (gap)/kappa.  Equal gaps h
give the Gaussian scores -(x - xi_j)^2 / (2 sigma^2) with kappa = h^2 / sigma^2.

If f has the poles :math:`c \pm iy` beside its interval and is analytic further on, :math:`(x^2 + px + q) f(x)` with the
right p and q is far closer to a polynomial of degree n than f is, and least squares over p, q and that polynomial finds
the poles (the theorem of de Montessus de Ballore, 1902, with samples in place of derivatives).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from transformula.compiler import policy
from transformula.compiler.tables.descent import token_centres
from transformula.compiler.tables.minimax import least_squares
from transformula.compiler.tables.sample_points import Leaves, quantiles
from transformula.compiler.tables.softmax_table import Array, Function

Scores = tuple[Array, Array]

FEW = 3  # tokens up to which a table needs neither stored scores nor poles to start from
UNEVEN = 8.0  # ratio of leaf widths above which an adapted density is tried
POLE_POINTS = 120  # samples from which poles are found


def scores_at(centres: Array, kappa: float) -> Scores:
    """Scores whose tokens exchange weight at the midpoints of ``centres``."""
    gaps = np.maximum(np.diff(centres), np.spacing(np.abs(centres).max()))  # centres may coincide in floats
    slope_steps = kappa / gaps
    offset_steps = -slope_steps * 0.5 * (centres[1:] + centres[:-1])
    slopes = np.concatenate([[0.0], np.cumsum(slope_steps)])
    offsets = np.concatenate([[0.0], np.cumsum(offset_steps)])
    middle = int(np.argmax(gaps)) if len(gaps) else 0  # gauge: flat at the coarsest place
    return slopes - slopes[middle], offsets - offsets[middle]


def starts(leaves: Leaves, size: int, poles: tuple[float, float] | None = None) -> Iterator[Scores]:
    """All starting scores with ``size`` tokens, in a fixed order, most promising first.

    ``poles`` are c and y if f has the poles c ± iy beside its interval.
    """
    if size == 1:
        yield np.zeros(1), np.zeros(1)
        return
    if poles is not None:
        yield _pole_pair(*poles, size)
    widths = np.diff(leaves.edges)
    powers = policy.DENSITY_POWERS if widths.max() > UNEVEN * widths.min() else policy.DENSITY_POWERS[-1:]
    for kappa in policy.SHARPNESS:
        for power in powers:
            for overhang in policy.OVERHANGS:
                inner = size - 1 - 2 * overhang
                if inner >= 1:
                    ranks = (np.arange(size) - overhang) / inner
                    yield scores_at(quantiles(leaves, ranks, power), kappa)
    yield from _exponential_sums(leaves, size)


def _exponential_sums(leaves: Leaves, size: int) -> Iterator[Scores]:
    """One flat token that holds the weight, and rare tokens with slopes on either side: a sum of exponentials."""
    half = 0.5 * (leaves.edges[-1] - leaves.edges[0])
    for low, high in ((0.5, 3.0), (-3.0, -0.5), (-2.0, 2.0)):
        rare = np.linspace(low, high, size - 1) / half
        lift = -12.0 - np.maximum(rare * leaves.edges[0], rare * leaves.edges[-1])  # weights of at most e^-12
        yield np.concatenate([[0.0], rare]), np.concatenate([[0.0], lift])


def _pole_pair(centre: float, height: float, size: int) -> Scores:
    """Two tokens whose exponentials add up to 2 cosh(a(x - c)), a = pi / 2y, and rare ones between them.

    The denominator is zero at c ± iy, so that the numerator, a sum of exponentials, has no poles to follow.
    """
    slopes = np.linspace(-1, 1, size) * (np.pi / (2 * height))
    offsets = np.full(size, -6.0)
    offsets[[0, -1]] = 0.0
    return slopes, offsets - slopes * centre


def nearest_poles(f: Function, lower: float, upper: float) -> tuple[float, float] | None:
    """The c and y > 0 of the pair of poles next to the interval, if two degrees agree on it.

    Examples
    --------
    >>> c, y = nearest_poles(lambda x: 1 / (1 + 25 * (x - 0.5) ** 2) + np.exp(x), -1.0, 1.0)
    >>> round(c, 9), round(y, 9)
    (0.5, 0.2)
    >>> nearest_poles(np.exp, -1.0, 1.0) is None
    True
    """
    middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    t = -np.cos(np.pi * (np.arange(POLE_POINTS) + 0.5) / POLE_POINTS)
    values = f(middle + half * t)
    values = np.ldexp(values, -np.frexp(np.abs(values).max())[1])  # a power of two moves no pole; no square overflows
    last: tuple[float, float] | None = None
    for degree in policy.POLE_DEGREES:
        found = _pair(t, values, degree)
        if found is None:
            return None
        if last is not None and math.dist(found, last) < 1e-3 * found[1]:
            return middle + half * found[0], half * found[1]
        last = found
    return None


def _pair(t: Array, values: Array, degree: int) -> tuple[float, float] | None:
    """The poles that a polynomial of this degree leaves over, if their middle is in the interval −1..1."""
    basis, _ = np.linalg.qr(np.polynomial.chebyshev.chebvander(t, degree))
    columns = np.stack([values, t * values, t * t * values], axis=1)
    left = columns - basis @ (basis.T @ columns)
    if not np.abs(left[:, 0]).max() > 1e-11 * np.abs(values).max():  # a polynomial already fits: nothing is left
        return None
    q, p = least_squares(left[:, :2], -left[:, 2])
    square = q - p * p / 4
    return (float(-p / 2), math.sqrt(square)) if square > 0 and abs(p) < 2 else None


def without(scores: Scores, token: int) -> Scores:
    """The same scores with one token removed."""
    return np.delete(scores[0], token), np.delete(scores[1], token)


def split(scores: Scores, points: Array, softmax: Array, tokens: Sequence[int], turn: float) -> Scores:
    """Split each given token into a flatter and a steeper one that together take its place."""
    slopes, offsets = scores
    centres, spreads = token_centres(points, softmax.T)
    chosen = np.asarray(tokens)
    steeper = turn / spreads[chosen]
    lift = steeper * centres[chosen]
    return (
        np.concatenate([np.delete(slopes, chosen), slopes[chosen] - steeper, slopes[chosen] + steeper]),
        np.concatenate([np.delete(offsets, chosen), offsets[chosen] + lift, offsets[chosen] - lift]),
    )


def worst_tokens(errors: Array, softmax: Array, values: Array, count: int) -> list[int]:
    """The ``count`` tokens with the largest share in the result where the error is largest."""
    share = softmax * np.abs(values - (softmax @ values)[:, None])
    share /= share.sum(axis=1, keepdims=True) + 1e-300
    worst = (errors[:, None] * share).max(axis=0)
    return [int(k) for k in np.argsort(-worst, kind="stable")[:count]]
