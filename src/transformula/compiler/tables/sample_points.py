r"""Where a function is hard: adaptive bisection, sample points, and a density of difficulty.

An interval is *resolved* when the degree-8 Chebyshev interpolant of f on it is within a tolerance.
Bisecting unresolved intervals gives leaves that are wide where f is smooth and shrink
geometrically towards kinks, end-point singularities and nearby poles: the leaves' density is a
monitor function for placing tokens, and Chebyshev points on every leaf are a sample on which a
discrete sup-norm is close to the true one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transformula.budget import checkpoint
from transformula.compiler import policy
from transformula.compiler.tables.softmax_table import Array, Function
from transformula.formula.evaluation import increasing

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
        blocks = [slice(k, k + policy.LEAF_BLOCK) for k in range(0, len(left), policy.LEAF_BLOCK)]
        misfit = np.concatenate([_misfit(f, middle[block], half[block]) for block in blocks])
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
    """Largest distance between f and its interpolant on each leaf of a block; f may have several columns."""
    checkpoint()
    values = f((middle[:, None] + half[:, None] * _POINTS).ravel())
    values = values.reshape(len(middle), len(_POINTS), -1)
    misfit = np.abs(_TO_PROBES @ values[:, : len(_NODES)] - values[:, len(_NODES) :])
    return np.asarray(misfit.max(axis=(1, 2)))


def sample(leaves: Leaves, count: int) -> Array:
    """About ``count`` points: Chebyshev points on every leaf, and all the edges."""
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
