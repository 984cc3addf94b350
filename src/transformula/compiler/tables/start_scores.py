r"""Samples of a function, dense where it is hard, and starting scores of its table before they are optimised.

*Samples.* An interval is *resolved* when the degree-8 Chebyshev interpolant of f on it is within a tolerance.
Bisecting unresolved intervals gives leaves that are wide where f is smooth and shrink
geometrically towards corners, end-point singularities and nearby poles: the leaves' density is a
monitor function for placing tokens, and Chebyshev points on every leaf are a sample on which a
discrete sup-norm is close to the true one.

*Starts.* From increasing centres xi_j the scores follow from

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
from dataclasses import dataclass

import numpy as np

from transformula.budget import checkpoint
from transformula.compiler import policy
from transformula.compiler.tables.descent import token_centres
from transformula.compiler.tables.softmax_table import Array, Function, least_squares
from transformula.formula.evaluation import increasing

Scores = tuple[Array, Array]

FEW = 3  # tokens up to which a table needs neither stored scores nor poles to start from
UNEVEN = 8.0  # ratio of leaf widths above which an adapted density is tried
SAME = 1.0  # distance of two scores up to which their tokens act as one


DEGREE = 8  # of the interpolants on the leaves

_NODES = -np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
_PROBES = -np.cos(np.pi * (np.arange(2 * DEGREE) + 0.5) / (2 * DEGREE))
_POINTS = np.concatenate([_NODES, _PROBES])
_TO_PROBES, _TO_NODES = (np.cos(np.outer(np.arccos(x), np.arange(DEGREE + 1))) for x in (_PROBES, _NODES))  # T_k(x)
_TO_PROBES = _TO_PROBES @ np.linalg.inv(_TO_NODES)


@dataclass(frozen=True)
class Leaves:
    """Edges of the adaptive intervals (increasing, first = lower, last = upper)."""

    edges: Array
    resolved: bool
    crowded: bool = False  # more leaves than a table has tokens for: f oscillates too often

    @property
    def graded(self) -> bool:
        """Whether leaves shrink towards a singularity of f, or nearly one. A single tiny leaf is a rounded edge."""
        widths = np.sort(np.diff(self.edges))
        return bool(widths[min(1, len(widths) - 1)] <= policy.SINGULAR_LEAF * (self.edges[-1] - self.edges[0]))

    @property
    def finest(self) -> float:
        """The edge at the finest leaf when it is far finer than the range, else the midpoint."""
        widths = np.diff(self.edges)
        k = int(np.argmin(widths))
        if widths[k] > policy.FINE_LEAF * (self.edges[-1] - self.edges[0]):
            return float(0.5 * (self.edges[0] + self.edges[-1]))
        inside = 0 < k < len(widths) - 1
        return float(self.edges[k + 1] if inside and widths[k + 1] < widths[k - 1] else self.edges[k])


def resolve(f: Function, lower: float, upper: float, tolerance: float) -> Leaves:
    """Bisect [lower, upper] until f is resolved to ``tolerance`` on every leaf."""
    edges = sorted({lower, upper} | {lower + (upper - lower) * cut for cut in policy.FIRST_CUTS})
    left, right = np.array(edges[:-1]), np.array(edges[1:])
    smallest = 4 * np.finfo(float).eps * max(abs(lower), abs(upper), upper - lower) * 4
    done: list[float] = [lower]
    resolved = True
    while len(left):  # leaves that are not resolved yet
        middle, half = 0.5 * (left + right), 0.5 * (right - left)
        misfit = _misfit(f, middle, half)
        narrow = half <= np.maximum(np.where((left > 0) | (right < 0), smallest, 0.0), 1e-30)
        ready = (misfit <= tolerance) | narrow
        resolved &= bool((misfit[ready] <= tolerance).all())
        done += right[ready].tolist()
        left, right = left[~ready], right[~ready]
        middle = middle[~ready]
        if len(done) + 2 * len(left) > policy.MAX_LEAVES:
            return Leaves(np.array(sorted([*done, *right.tolist()])), resolved=False, crowded=True)
        left, right = np.stack([left, middle], axis=1).ravel(), np.stack([middle, right], axis=1).ravel()
    return Leaves(np.array(sorted(done)), resolved)


def _misfit(f: Function, middle: Array, half: Array) -> Array:
    """Largest distance between f and its interpolant on each leaf; f may have several columns."""
    checkpoint()
    values = f((middle[:, None] + half[:, None] * _POINTS).ravel())
    values = values.reshape(len(middle), len(_POINTS), -1)
    misfit = np.abs(_TO_PROBES @ values[:, : len(_NODES)] - values[:, len(_NODES) :])
    return np.asarray(misfit.max(axis=(1, 2)))


def sample(leaves: Leaves, count: int) -> Array:
    """Chebyshev points on every leaf, about ``count`` of them, and all the edges."""
    edges = leaves.edges
    per_leaf = max(4, -(-count // (len(edges) - 1)))
    nodes = -np.cos(np.pi * (np.arange(per_leaf) + 0.5) / per_leaf)
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    inner = (middle[:, None] + half[:, None] * nodes).ravel()
    return increasing(np.clip(np.concatenate([inner, edges]), edges[0], edges[-1]))


def quantiles(leaves: Leaves, positions: Array, power: float) -> Array:
    """Places at the given ranks of the smoothed leaf density raised to ``power``.

    Rank 0 is the lower end and rank 1 the upper; ranks outside [0, 1] continue beyond the ends
    with gaps that keep changing by the ratio found at that end.
    """
    edges = leaves.edges
    log_width = np.log(np.diff(edges))
    for _ in range(4):  # dyadic leaves jump by factors of two: smooth the density
        padded = np.pad(log_width, 1, mode="edge")
        log_width = 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]
    mass = np.diff(edges) * np.exp(-power * log_width)
    ranks = np.concatenate([[0.0], np.cumsum(mass)]) / mass.sum()
    inside = np.interp(np.clip(positions, 0, 1), ranks, edges)
    step = 0.1 / max(len(positions), 1)
    ends = np.interp([0, step, 2 * step, 1 - 2 * step, 1 - step, 1], ranks, edges)
    gaps = np.diff(ends)
    below = _beyond(-np.minimum(positions, 0) / step, gaps[0], gaps[0] / gaps[1])
    above = _beyond(np.maximum(positions - 1, 0) / step, gaps[4], gaps[4] / gaps[3])
    return np.asarray(inside - below + above)


def _beyond(steps: Array, gap: float, ratio: float) -> Array:
    """Distance after ``steps`` gaps that change by ``ratio`` each (a geometric sum)."""
    log_ratio = float(np.clip(np.log(ratio), -0.2, 0.2))
    if abs(log_ratio) < 1e-9:
        return steps * gap
    return np.asarray(gap * np.expm1(log_ratio * steps) / np.expm1(log_ratio))


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
    """Smooth tables on either side of each corner, joined by a steep switch at the corner.

    With g_L, g_R smooth and s = 1/(1 + e^{-k(x - c)}), (1 - s) g_L + s g_R misses a corner at c of
    slope jump J by 0.28 J / k, whatever the number of tokens.
    """
    corners, width = _corner_places(leaves)
    pieces = len(corners) + 1
    if not corners or size < pieces:
        return
    borders = np.concatenate([leaves.edges[:1], corners, leaves.edges[-1:]])
    shares = np.diff(np.round(np.linspace(0, size, pieces + 1)).astype(int))
    for steepness in (3 / width, 0.3 / width, 0.03 / width):
        for kappa in policy.SHARPNESS[-1:] + policy.SHARPNESS[:1]:
            parts = []
            for k, share in enumerate(shares):
                ranks = np.linspace(borders[k], borders[k + 1], share)
                slopes, offsets = scores_at(ranks, kappa)
                parts.append((slopes + k * steepness, offsets - steepness * sum(corners[:k])))
            yield (np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def _corner_places(leaves: Leaves) -> tuple[list[float], float]:
    """Interior places where leaves shrink far below the range, and the finest width there."""
    edges, widths = leaves.edges, np.diff(leaves.edges)
    span = edges[-1] - edges[0]
    fine = np.flatnonzero(widths < 2e-2 * span)
    groups = np.split(fine, np.flatnonzero(np.diff(fine) > 1) + 1) if len(fine) else []
    finest = [int(group[np.argmin(widths[group])]) for group in groups]
    corners = [float(np.median(edges[k : k + 2])) for k in finest]
    inside = [c for c in corners if edges[0] + 0.01 * span < c < edges[-1] - 0.01 * span]
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
    count = 4 * (policy.POLE_DEGREES[-1] + 2)  # samples: four for each unknown
    t = -np.cos(np.pi * (np.arange(count) + 0.5) / count)
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
    ends, signs = (points.min(), points.max()), (-1.0, 1.0)  # tokens that fall, and those that rise
    apart = np.max([np.abs(offsets + slopes * end) for end in ends], axis=0)
    for least in (SAME, 0.0):
        sides = [np.flatnonzero((sign * slopes > 0) & (apart > least)) for sign in signs]
        counts = _shares([len(side) for side in sides], size - 1)
        if counts is not None:
            parts = [
                _resampled(slopes[side], offsets[side], sign, end, count)
                for side, sign, end, count in zip(sides, signs, ends, counts, strict=True)
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
