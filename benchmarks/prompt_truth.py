"""What an in-context model is to answer, from its task in model.json and a prompt: the textbook's steps in mpmath."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np


def prompts(task: dict[str, Any], rng: np.random.Generator, count: int) -> Any:
    """Prompts of the task's box: random ones, corners, and ones with zeros and tiny numbers."""
    ends = [float(Fraction(task[key])) for key in _ends(task)]
    kinds = rng.integers(0, 3, (count, 1))
    inside = rng.uniform(-1, 1, (count, len(ends)))
    odd = rng.choice([0.0, 1.0, -1.0, 1e-9, 1e-300], (count, len(ends)))
    return np.where(kinds == 0, inside, np.where(kinds == 1, np.sign(inside), odd)) * ends


def _ends(task: dict[str, Any]) -> list[str]:
    if task["algorithm"] == "recurrence":
        return ["a", "b", "x"]
    n, d = task["pairs"], task["features"]
    return ["x"] * (n * d) + ["y"] * n + ["x"] * d


def answers(task: dict[str, Any], prompt: Any) -> list[Any]:
    """The answers to one prompt."""
    row = [mpmath.mpf(float(v)) for v in prompt]
    told = {key: _number(value) if isinstance(value, str) else value for key, value in task.items()}
    told["algorithm"] = task["algorithm"]
    if task["algorithm"] == "recurrence":
        a, b, state = row
        return [state := a * state + b for _ in range(task["steps"])]
    n, d = task["pairs"], task["features"]
    x, y, query = [row[i * d : (i + 1) * d] for i in range(n)], row[n * d : n * d + n], row[n * d + n :]
    if task["algorithm"] == "kernel":
        weights = [mpmath.exp(mpmath.fdot(query, one) / told["bandwidth"]) for one in x]
        return [mpmath.fdot(weights, y) / mpmath.fsum(weights)]
    return [mpmath.fdot(query, _learned(told, x, y))]


def _learned(told: dict[str, Any], x: Any, y: Any) -> Any:
    size, penalty = range(len(x[0])), told["penalty"]
    if told["algorithm"] == "ridge":
        gram = mpmath.matrix([[mpmath.fsum(r[i] * r[j] for r in x) + penalty * (i == j) for j in size] for i in size])
        return list(
            mpmath.lu_solve(
                gram, mpmath.matrix([mpmath.fsum(r[i] * t for r, t in zip(x, y, strict=True)) for i in size])
            )
        )
    w, rate = [mpmath.mpf(0) for _ in size], told["rate"]
    for _ in range(told["steps"]):
        missed = [mpmath.fdot(row, w) - target for row, target in zip(x, y, strict=True)]
        slope = [mpmath.fsum(m * row[i] for m, row in zip(missed, x, strict=True)) for i in size]
        if told["algorithm"] == "descent":
            w = [v - rate * (s + penalty * v) for v, s in zip(w, slope, strict=True)]
        else:
            moved = [v - rate * s for v, s in zip(w, slope, strict=True)]
            w = [mpmath.sign(v) * max(abs(v) - rate * penalty, mpmath.mpf(0)) for v in moved]
    return w


def _number(text: str) -> Any:
    try:
        value = Fraction(text)
    except ValueError:  # the algorithm's name
        return None
    return mpmath.mpf(value.numerator) / value.denominator
