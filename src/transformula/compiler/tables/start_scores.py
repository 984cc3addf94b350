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
SIDES = (-1.0, 1.0)  # signs of the slopes of tokens that fall, and of those that rise
SAME = 1.0  # distance of two scores up to which their tokens act as one


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
    if size > FEW:
        yield from _geometric_sums(leaves, size)
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
    yield from _hinges(leaves, size)


def graded_starts(leaves: Leaves, size: int) -> Iterator[Scores]:
    """Tokens as dense as the leaves, with much and with some overlap: the best starts next to a singularity."""
    for kappa in (0.15, 0.5):
        yield scores_at(quantiles(leaves, np.arange(size) / (size - 1), policy.DENSITY_POWERS[0]), kappa)


def _exponential_sums(leaves: Leaves, size: int) -> Iterator[Scores]:
    """One flat token that holds the weight, and rare tokens with slopes on either side: a sum of exponentials."""
    half = 0.5 * (leaves.edges[-1] - leaves.edges[0])
    for low, high in ((0.5, 3.0), (-3.0, -0.5), (-2.0, 2.0)):
        rare = np.linspace(low, high, size - 1) / half
        lift = -12.0 - np.maximum(rare * leaves.edges[0], rare * leaves.edges[-1])  # weights of at most e^-12
        yield np.concatenate([[0.0], rare]), np.concatenate([[0.0], lift])


def _geometric_sums(leaves: Leaves, size: int) -> Iterator[Scores]:
    """One flat token, and rare ones whose slopes grow geometrically towards an end where f is hard.

    Next to 0 log u, 1/u and powers are integrals of e^{-su} over s, evenly in log s.
    """
    edges, widths = leaves.edges, np.diff(leaves.edges)
    for end, width, sign in ((edges[0], widths[0], -1.0), (edges[-1], widths[-1], 1.0)):
        if widths.max() > UNEVEN * width:
            rates = sign * np.geomspace(1 / (edges[-1] - edges[0]), 2 / width, size - 1)
            yield np.concatenate([[0.0], rates]), np.concatenate([[0.0], -6.0 - rates * end])


def _pole_pair(centre: float, height: float, size: int) -> Scores:
    """Two tokens whose exponentials add up to 2 cosh(a(x - c)), a = pi / 2y, and rare ones between them.

    The denominator is zero at c ± iy, so that the numerator, a sum of exponentials, has no poles to follow.
    """
    slopes = np.linspace(-1, 1, size) * (np.pi / (2 * height))
    offsets = np.full(size, -6.0)
    offsets[[0, -1]] = 0.0
    return slopes, offsets - slopes * centre


def _hinges(leaves: Leaves, size: int) -> Iterator[Scores]:
    """Smooth tables on either side of each kink, joined by a steep switch at the kink.

    With g_L, g_R smooth and s = 1/(1 + e^{-k(x - c)}), (1 - s) g_L + s g_R misses a kink at c of
    slope jump J by 0.28 J / k, whatever the number of tokens.
    """
    kinks, width = _kink_places(leaves)
    pieces = len(kinks) + 1
    if not kinks or size < pieces:
        return
    borders = np.concatenate([leaves.edges[:1], kinks, leaves.edges[-1:]])
    shares = np.diff(np.round(np.linspace(0, size, pieces + 1)).astype(int))
    for steepness in (3 / width, 0.3 / width, 0.03 / width):
        for kappa in policy.SHARPNESS[-1:] + policy.SHARPNESS[:1]:
            parts = []
            for k, share in enumerate(shares):
                ranks = np.linspace(borders[k], borders[k + 1], share)
                slopes, offsets = scores_at(ranks, kappa)
                parts.append((slopes + k * steepness, offsets - steepness * sum(kinks[:k])))
            yield (np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def _kink_places(leaves: Leaves) -> tuple[list[float], float]:
    """Interior places where leaves shrink far below the range, and the finest width there."""
    edges, widths = leaves.edges, np.diff(leaves.edges)
    span = edges[-1] - edges[0]
    fine = np.flatnonzero(widths < 2e-2 * span)
    groups = np.split(fine, np.flatnonzero(np.diff(fine) > 1) + 1) if len(fine) else []
    finest = [int(group[np.argmin(widths[group])]) for group in groups]
    kinks = [float(np.median(edges[k : k + 2])) for k in finest]
    inside = [c for c in kinks if edges[0] + 0.01 * span < c < edges[-1] - 0.01 * span]
    return inside, float(widths.min())


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


def stretched(scores: Scores, points: Array, softmax: Array, size: int) -> Iterator[Scores]:
    """The same scores resampled to ``size`` tokens: how tables grow, or shrink, next to a singularity at an end.

    One token is flat, and the slopes of the others grow geometrically, away from it, on one side or on both. With n of
    them the error is like exp(-c sqrt(n)), so the logarithms of their slopes spread over a range like sqrt(n). These,
    and the tokens' scores at the end where they are largest, change smoothly with rank. Tokens that are almost as flat
    as the flat one are left out at first: they do as much as another exponential at best.
    """
    flat = int(np.argmax(softmax.mean(axis=0)))
    slopes, offsets = scores[0] - scores[0][flat], scores[1] - scores[1][flat]
    ends = points.min(), points.max()
    apart = np.max([np.abs(offsets + slopes * end) for end in ends], axis=0)
    for least in (SAME, 0.0):
        sides = [np.flatnonzero((sign * slopes > 0) & (apart > least)) for sign in SIDES]
        counts = _shares([len(side) for side in sides], size - 1)
        if counts is not None:
            parts = [
                _resampled(slopes[side], offsets[side], sign, end, count)
                for side, sign, end, count in zip(sides, SIDES, ends, counts, strict=True)
            ]
            yield np.concatenate([[0.0], *(p[0] for p in parts)]), np.concatenate([[0.0], *(p[1] for p in parts)])
        if not ((apart > 0) & (apart <= SAME)).any():
            break


def _shares(counts: Sequence[int], total: int) -> tuple[int, int] | None:
    """``total`` divided in the proportion of two counts; None if both are zero."""
    if not sum(counts):
        return None
    first = round(total * counts[0] / sum(counts))
    return first, total - first


def _resampled(slopes: Array, offsets: Array, sign: float, end: float, count: int) -> Scores:
    """The tokens on one side of a flat one, resampled to ``count`` tokens."""
    if not count:
        return np.zeros(0), np.zeros(0)
    order = np.argsort(np.abs(slopes))
    rates, tops = np.log(np.abs(slopes[order])), offsets[order] + slopes[order] * end
    places, ranks = np.linspace(0, len(order) - 1, count), np.arange(len(order))
    spread = np.sqrt(count / len(order)) * (np.interp(places, ranks, rates) - rates[0])
    new = sign * np.exp(rates[0] + spread)
    return new, np.interp(places, ranks, tops) - new * end


def inserted(scores: Scores, errors: Array, softmax: Array, count: int) -> Scores:
    """New tokens halfway between neighbours that share the weight where the error is largest.

    Nowhere is such a token's score above those of both neighbours, so it disturbs nothing far away.
    """
    order = np.argsort(scores[0], kind="stable")
    slopes, offsets, weights = scores[0][order], scores[1][order], softmax[:, order]
    shared = (np.sqrt(weights[:, 1:] * weights[:, :-1]) * errors[:, None]).max(axis=0)
    left = np.argsort(-shared, kind="stable")[:count]
    return (
        np.concatenate([slopes, 0.5 * (slopes[left] + slopes[left + 1])]),
        np.concatenate([offsets, 0.5 * (offsets[left] + offsets[left + 1])]),
    )


def worst_tokens(errors: Array, softmax: Array, values: Array, count: int) -> list[int]:
    """The ``count`` tokens with the largest share in the result where the error is largest."""
    share = softmax * np.abs(values - (softmax @ values)[:, None])
    share /= share.sum(axis=1, keepdims=True) + 1e-300
    worst = (errors[:, None] * share).max(axis=0)
    return [int(k) for k in np.argsort(-worst, kind="stable")[:count]]
