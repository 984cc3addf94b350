"""Softmax tables for the kernel's rules: fitted by least squares, attacked, and judged at points in 300 bits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from flint import arb

from support.prover import Floats, climb, numpy_function
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.expression import Expr, variables_of
from transformula.kernel.tables.table_error import SoftmaxTable


def ends_of(box: Sequence[tuple[float, float]]) -> list[tuple[arb, arb]]:
    return [(arb(float(a)), arb(float(b))) for a, b in box]


def one_axis(slopes: Floats, offsets: Floats, values: Floats) -> SoftmaxTable:
    """A table of one axis."""
    return SoftmaxTable((slopes,), (offsets,), values)


def axis_of(low: float, high: float, tokens: int, beyond: int = 3, width: float = 4.0):
    """Equispaced centres, some beyond each end: slopes and offsets."""
    h = (high - low) / (tokens - 1 - 2 * beyond)
    centres = low + (np.arange(tokens) - beyond) * h
    return centres / (width * h * h), -(centres**2) / (2 * width * h * h)


def softmax(slopes: Floats, offsets: Floats, x: Floats) -> Floats:
    """Softmax weights at points, shape (points, M)."""
    scores = slopes * x[:, None] + offsets
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def fit_grid(expr: Expr, names: Sequence[str], box, tokens: Sequence[int], rcond: float = 1e-9) -> SoftmaxTable:
    axes = [axis_of(*ends, m) for ends, m in zip(box, tokens, strict=True)]
    points = [
        (a + b) / 2 - (b - a) / 2 * np.cos(np.pi * np.arange(4 * m) / (4 * m - 1))
        for (a, b), m in zip(box, tokens, strict=True)
    ]
    values = np.asarray(numpy_function(expr, names)(*np.meshgrid(*points, indexing="ij")), dtype=float)
    for k, (axis, x) in enumerate(zip(axes, points, strict=True)):
        inverse = np.linalg.pinv(softmax(*axis, x), rcond=rcond)
        values = np.moveaxis(np.tensordot(inverse, values, axes=([1], [k])), 0, k)
    slopes, offsets = zip(*axes, strict=True)
    return SoftmaxTable(slopes, offsets, np.ascontiguousarray(values))


def fit_table(expr: Expr, low: float, high: float, tokens: int) -> SoftmaxTable:
    """A least-squares table on equispaced centres, some beyond each end."""
    (name,) = variables_of(expr)
    slopes, offsets = axis_of(low, high, tokens)
    x = np.linspace(low, high, 40 * tokens)
    values = np.linalg.lstsq(softmax(slopes, offsets, x), numpy_function(expr, [name])(x), rcond=1e-13)[0]
    return one_axis(slopes, offsets, values)


def fit_geometric(expr: Expr, low: float, high: float, centres: Floats, kappa: float = 0.3) -> SoftmaxTable:
    """Slope gaps kappa / (gap of centres), transitions at the midpoints; reweighted fit."""
    (name,) = variables_of(expr)
    centres = np.sort(centres)
    slopes = np.concatenate([[0.0], np.cumsum(kappa / np.diff(centres))])
    slopes -= slopes[-1]
    middles = (centres[1:] + centres[:-1]) / 2
    offsets = np.concatenate([[0.0], np.cumsum(-np.diff(slopes) * middles)])
    between = [np.linspace(p, q, 30) for p, q in pairwise(centres)]
    x = np.unique(np.concatenate([np.linspace(low, high, 2000), *between]))
    x = x[(x >= low) & (x <= high)]
    weights, wanted, importance = softmax(slopes, offsets, x), numpy_function(expr, [name])(x), np.ones(len(x))
    for _ in range(40):
        scaled = weights * importance[:, None]
        values = np.linalg.lstsq(scaled, wanted * importance, rcond=1e-14)[0]
        wrong = np.abs(weights @ values - wanted)
        importance *= np.sqrt(wrong / wrong.mean() + 1e-3)
        importance /= importance.max()
    return one_axis(slopes, offsets, values)


def exact_error(expr: Expr | None, names: Sequence[str], table: SoftmaxTable, x: Sequence[Any]) -> arb:
    """T(x) - f(x) at a point of floats or arbs, as a narrow ball; T(x) without a function."""
    with precision(300):
        point = [v if isinstance(v, arb) else arb(float(v)) for v in x]
        values: Any = np.array([arb(v) for v in table.values.ravel().tolist()], dtype=object)
        values = values.reshape(table.values.shape)
        for slopes, offsets, v in zip(table.slopes, table.offsets, point, strict=True):
            scores = [arb(a) * v + arb(b) for a, b in zip(slopes.tolist(), offsets.tolist(), strict=True)]
            top = max(scores, key=lambda s: float(s.mid()))
            powers = [(s - top).exp() for s in scores]
            total = sum(powers, arb(0))
            values = np.tensordot(np.array([p / total for p in powers], dtype=object), values, 1)
        result = values[()] if isinstance(values, np.ndarray) else values
        return result if expr is None else result - enclose(expr, dict(zip(names, point, strict=True)))


def float_error(expr: Expr, names: Sequence[str], table: SoftmaxTable, points: Floats) -> Floats:
    """The same in floats at many points, shape (points, axes)."""
    weights = [softmax(a, b, points[:, k]) for k, (a, b) in enumerate(zip(table.slopes, table.offsets, strict=True))]
    result: Any = np.tensordot(weights[0], table.values, axes=1)
    for w in weights[1:]:
        result = np.einsum("nj,nj...->n...", w, result)
    with np.errstate(all="ignore"):
        return np.asarray(result - numpy_function(expr, names)(*points.T), dtype=np.float64)


def attack(
    expr: Expr, names: Sequence[str], box, table: SoftmaxTable, seed: int = 0, points: int = 4000, keep: int = 8
) -> float:
    """Largest abs(T - f) found, judged in 300 bits: a lattice, near ends and kinks, then ascent."""

    def size(at: Floats) -> Floats:
        return np.nan_to_num(np.abs(float_error(expr, names, table, at)))

    best = climb(size, box, seed, points, special=(1 / 3,), keep=keep)
    found = [abs(exact_error(expr, names, table, p)) for p in best]
    return max(float(f.lower()) for f in found if f.is_finite())
