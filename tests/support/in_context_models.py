"""In-context models, and their algorithms in exact arithmetic: written from the textbook, not from the blocks."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

import transformula as tf

MODELS: dict[str, dict[str, Any]] = {
    "descent": {"algorithm": "ridge", "pairs": 5, "features": 2, "steps": 4, "penalty": "1/3", "rate": "1/11", "y": 2},
    "least squares": {"algorithm": "ridge", "pairs": 3, "features": 3, "steps": 6, "penalty": 0},
    "sixteen pairs": {"algorithm": "ridge", "pairs": 16, "features": 3, "eps": 1e-6},
    "mild ridge": {"algorithm": "ridge", "pairs": 4, "features": 2, "penalty": "8.1", "eps": 1e-2},
    "lasso": {"algorithm": "lasso", "pairs": 5, "features": 3, "steps": 4, "penalty": "0.3", "x": "3/2"},
    "loop": {"algorithm": "ridge", "pairs": 3, "features": 2, "steps": 6, "penalty": "1/3", "looped": True},
    "looped lasso": {"algorithm": "lasso", "pairs": 3, "features": 2, "steps": 3, "penalty": "0.3", "looped": True},
    "kernel": {"algorithm": "kernel", "pairs": 6, "features": 2, "bandwidth": "1/3"},
    "recurrence": {"algorithm": "recurrence", "steps": 5, "a": "5/4", "b": "1/3", "x": 2},
}
#: Those whose answers are rational, so that the blocks can be run without rounding, in little time.
RATIONAL = ("descent", "least squares", "mild ridge", "lasso", "loop", "looped lasso", "recurrence")


@cache
def learner(name: str, dtype: str = "float64") -> tf.Model:
    """The model of that name."""
    given = dict(MODELS[name])
    return tf.in_context(given.pop("algorithm"), **given, dtype=dtype)


def fractions(row: Any) -> list[Fraction]:
    return [Fraction(float(v)) for v in row]


def split(model: tf.Model, row: list[Fraction]) -> tuple[list[list[Fraction]], list[Fraction], list[Fraction]]:
    """Pairs' features, their targets, and the query."""
    n, d = model.formula.task.pairs, model.formula.task.features
    x = [row[i * d : (i + 1) * d] for i in range(n)]
    return x, row[n * d : n * d + n], row[n * d + n :]


def exact_answer(model: tf.Model, row: list[Fraction]) -> list[Fraction]:
    """The algorithm of a rational model at one prompt."""
    task = model.formula.task
    penalty, rate = (Fraction(str(v)) for v in (task.penalty, task.rate))
    if task.algorithm == "recurrence":
        a, b, x = row
        return [x := a * x + b for _ in range(task.steps)]
    x, y, q = split(model, row)
    if task.algorithm == "ridge":
        return [_dot(q, solve(_gram(x, penalty), _targets(x, y)))]
    w = [Fraction(0)] * len(q)
    for _ in range(task.steps):
        residual = [_dot(row, w) - target for row, target in zip(x, y, strict=True)]
        slope = [sum(r * row[k] for r, row in zip(residual, x, strict=True)) for k in range(len(w))]
        if task.algorithm == "descent":
            w = [v - rate * (s + penalty * v) for v, s in zip(w, slope, strict=True)]
        else:
            w = [_shrunk(v - rate * s, rate * penalty) for v, s in zip(w, slope, strict=True)]
    return [_dot(q, w)]


def _dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((s * t for s, t in zip(a, b, strict=True)), Fraction(0))


def _shrunk(u: Fraction, by: Fraction) -> Fraction:
    return u - by if u > by else u + by if u < -by else Fraction(0)


def _gram(x: list[list[Fraction]], penalty: Fraction) -> list[list[Fraction]]:
    size = range(len(x[0]))
    return [[sum(row[i] * row[j] for row in x) + penalty * (i == j) for j in size] for i in size]


def _targets(x: list[list[Fraction]], y: list[Fraction]) -> list[Fraction]:
    return [sum(row[k] * t for row, t in zip(x, y, strict=True)) for k in range(len(x[0]))]


def solve(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Gauss's elimination; a positive definite matrix needs no pivots."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k, pivot in enumerate(rows):
        for other in (r for r in rows if r is not pivot):
            factor = other[k] / pivot[k]
            other[:] = [o - factor * p for o, p in zip(other, pivot, strict=True)]
    return [row[-1] / row[k] for k, row in enumerate(rows)]


def prompts(model: tf.Model, count: int, seed: int = 0) -> np.ndarray:
    """Random prompts, corners of the box, and prompts whose pairs are all alike, in the model's dtype."""
    rng = np.random.default_rng(seed)
    high = np.array(model.box.floats())[:, 1]
    inside = rng.uniform(-high, high, (count, len(high)))
    corners = np.where(rng.random((count, len(high))) < 0.5, -high, high)
    alike = np.sign(rng.normal(size=(4, 1))) * high
    rows = np.concatenate([inside, corners, alike, np.zeros((1, len(high)))]).astype(model.weights.dtype)
    limit = np.array([float(v) for v in high]).astype(model.weights.dtype)
    return np.clip(rows, -limit, limit)
