r"""Starting scores for a table: where the tokens sit before they are optimised.

From increasing centres xi_j the scores follow from

.. math::  a_{j+1} - a_j = \kappa / (\xi_{j+1} - \xi_j), \qquad
           b_{j+1} - b_j = -(a_{j+1} - a_j)\,(\xi_j + \xi_{j+1})/2 ,

neighbouring tokens exchange their weight at the midpoint, over a width (gap)/kappa.  Equal gaps h
give the Gaussian scores -(x - xi_j)^2 / (2 sigma^2) with kappa = h^2 / sigma^2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from transformula.compiler.tables.descent import token_centres
from transformula.compiler.tables.sample_points import Leaves, quantiles
from transformula.compiler.tables.softmax_table import Array

Scores = tuple[Array, Array]

SHARPNESS = (0.5, 1.5, 4.0, 0.15)  # kappa: from overlapping (spectral, large values) to cell-like
WAVES = (1.0, 0.8, 1.25)  # of the sharpness that theory gives
GRADED = (0.15, 0.5)  # kappa next to a singularity
OVERHANGS = (0, 1, 2)  # tokens beyond each end
POWERS = (1.0, 0.5, 0.0)  # of the difficulty density: from fully adapted to equispaced
UNEVEN = 8.0  # ratio of leaf widths above which an adapted density is worth trying
KINK_WIDTH = 2e-2  # leaves below this share of the range mark a kink
TURNS = (0.5, 0.1, 0.02)  # of a token that is split, over its spread: the less, the less of what it did is lost
FEW = 3  # tokens for which the starts of any kind do
SIDES = (-1.0, 1.0)  # tokens that fall, and those that rise
SAME = 1.0  # scores that are nowhere further apart make two tokens do the work of one
RARE = -12.0  # offset that makes a token's weight tiny: T is then a plain sum of exponentials
SELDOM = -6.0  # the same for tokens that may soon be more frequent


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

    ``poles`` are c and y if f has the poles c +- iy beside its interval.
    """
    if size == 1:
        yield np.zeros(1), np.zeros(1)
        return
    if size > FEW:
        yield from geometric_sums(leaves, size)
        if poles is not None:
            yield pole_pair(*poles, size)
    widths = np.diff(leaves.edges)
    powers = POWERS if widths.max() > UNEVEN * widths.min() else POWERS[-1:]
    for kappa in SHARPNESS:
        for power in powers:
            for overhang in OVERHANGS:
                inner = size - 1 - 2 * overhang
                if inner >= 1:
                    ranks = (np.arange(size) - overhang) / inner
                    yield scores_at(quantiles(leaves, ranks, power), kappa)
    yield from exponential_sums(leaves, size)
    yield from hinges(leaves, size)


def waves(leaves: Leaves, places: Array, beyond: int, kappa: float) -> Iterator[Scores]:
    """Tokens at these places of a wave, and as far apart to the ends and some more beyond.

    With equal gaps h, Gaussian scores and q = exp(-2 pi^2 / kappa):

    * at every swing, sum of (-1)^j w_j = 2 q^{1/4} cos(pi x/h) (1 + O(q)), a quotient of theta functions: two tokens
      a period make a cosine;
    * halfway between swings, every other time, sum of xi_j w_j = x - (4 pi h q/kappa) sin(2 pi x/h) (1 + O(q)), the
      logarithmic derivative of one: with a linear term beside it one token a period makes a sine, of values like 1/q;
    * at every swing and halfway between them, four tokens a period, sum of cos(pi xi_j/2h) w_j =
      q^{1/16} cos(pi x/2h) (1 + O(q^{1/2})): values are hardly larger than the wave.

    So the error, O(q) or O(q^{1/2}), is known before.
    """
    first, last = places[1] - places[0], places[-1] - places[-2]
    below = beyond + int((places[0] - leaves.edges[0]) / first)
    above = beyond + int((leaves.edges[-1] - places[-1]) / last)
    before, after = places[0] - first * np.arange(below, 0, -1), places[-1] + last * np.arange(1, above + 1)
    for factor in WAVES:
        yield scores_at(np.concatenate([before, places, after]), factor * kappa)


def graded_starts(leaves: Leaves, size: int) -> Iterator[Scores]:
    """Tokens as dense as the leaves, hardly and fairly overlapping: what serves best next to a singularity."""
    for kappa in GRADED:
        yield scores_at(quantiles(leaves, np.arange(size) / (size - 1), POWERS[0]), kappa)


def exponential_sums(leaves: Leaves, size: int) -> Iterator[Scores]:
    """One flat token that holds the weight, and rare tokens with slopes on either side."""
    half = 0.5 * (leaves.edges[-1] - leaves.edges[0])
    for low, high in ((0.5, 3.0), (-3.0, -0.5), (-2.0, 2.0)):
        rare = np.linspace(low, high, size - 1) / half
        lift = RARE - np.maximum(rare * leaves.edges[0], rare * leaves.edges[-1])
        yield np.concatenate([[0.0], rare]), np.concatenate([[0.0], lift])


def geometric_sums(leaves: Leaves, size: int) -> Iterator[Scores]:
    """One flat token, and rare ones whose slopes grow geometrically towards an end where f is hard.

    What log u, 1/u and powers are close to 0: integrals of e^{-su} over s, evenly in log s.
    """
    edges, widths = leaves.edges, np.diff(leaves.edges)
    for end, width, sign in ((edges[0], widths[0], -1.0), (edges[-1], widths[-1], 1.0)):
        if widths.max() > UNEVEN * width:
            rates = sign * np.geomspace(1 / (edges[-1] - edges[0]), 2 / width, size - 1)
            yield np.concatenate([[0.0], rates]), np.concatenate([[0.0], SELDOM - rates * end])


def pole_pair(centre: float, height: float, size: int) -> Scores:
    """Two tokens whose exponentials add up to 2 cosh(a(x - c)), a = pi / 2y, and rare ones between them.

    The denominator is zero at c +- iy, so that the numerator, a sum of exponentials, has no poles to follow.
    """
    slopes = np.linspace(-1, 1, size) * (np.pi / (2 * height))
    offsets = np.full(size, SELDOM)
    offsets[[0, -1]] = 0.0
    return slopes, offsets - slopes * centre


def hinges(leaves: Leaves, size: int) -> Iterator[Scores]:
    """Smooth tables on either side of each kink, joined by a steep switch at the kink.

    With g_L, g_R smooth and s = 1/(1 + e^{-k(x - c)}), (1 - s) g_L + s g_R misses a kink at c of
    slope jump J by 0.28 J / k, whatever the number of tokens.
    """
    kinks, width = kink_places(leaves)
    pieces = len(kinks) + 1
    if not kinks or size < pieces:
        return
    borders = np.concatenate([leaves.edges[:1], kinks, leaves.edges[-1:]])
    shares = np.diff(np.round(np.linspace(0, size, pieces + 1)).astype(int))
    for steepness in (3 / width, 0.3 / width, 0.03 / width):
        for kappa in SHARPNESS[-1:] + SHARPNESS[:1]:
            parts = []
            for k, share in enumerate(shares):
                ranks = np.linspace(borders[k], borders[k + 1], share)
                slopes, offsets = scores_at(ranks, kappa)
                parts.append((slopes + k * steepness, offsets - steepness * sum(kinks[:k])))
            yield (np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def kink_places(leaves: Leaves) -> tuple[list[float], float]:
    """Interior places where leaves shrink far below the range, and the finest width there."""
    edges, widths = leaves.edges, np.diff(leaves.edges)
    span = edges[-1] - edges[0]
    fine = np.flatnonzero(widths < KINK_WIDTH * span)
    groups = np.split(fine, np.flatnonzero(np.diff(fine) > 1) + 1) if len(fine) else []
    kinks = [float(np.median(edges[g[np.argmin(widths[g])] : g[np.argmin(widths[g])] + 2]))
             for g in groups]  # fmt: skip
    inside = [c for c in kinks if edges[0] + 0.01 * span < c < edges[-1] - 0.01 * span]
    return inside, float(widths.min())


def without(scores: Scores, token: int) -> Scores:
    """The same scores with one token removed."""
    return np.delete(scores[0], token), np.delete(scores[1], token)


def split(scores: Scores, points: Array, softmax: Array, tokens: Sequence[int], turn: float = TURNS[0]) -> Scores:
    """Split each given token into a flatter and a steeper one that together take its place."""
    slopes, offsets = scores
    centres, spreads = token_centres(points, softmax.T)
    chosen = np.asarray(tokens)
    steeper = turn / spreads[chosen]
    lift = steeper * centres[chosen]
    kept = np.delete(slopes, chosen), np.delete(offsets, chosen)
    return (
        np.concatenate([kept[0], slopes[chosen] - steeper, slopes[chosen] + steeper]),
        np.concatenate([kept[1], offsets[chosen] + lift, offsets[chosen] - lift]),
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
    """``total`` shared out like the counts; None if there are none."""
    if not sum(counts):
        return None
    first = round(total * counts[0] / sum(counts))
    return first, total - first


def _resampled(slopes: Array, offsets: Array, sign: float, end: float, count: int) -> Scores:
    """The tokens on one side of a flat one, as ``count`` of them."""
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
