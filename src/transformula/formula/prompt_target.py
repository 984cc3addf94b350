"""Prompts of pairs and a query, and the algorithms that answer them: the target of an in-context model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import PointError
from transformula.kernel.enclosures.balls import to_fraction
from transformula.kernel.gallery.in_context_blocks import FIELDS, PromptTask
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prompts:
    """An algorithm on a box of prompts; `transformula.kernel.gallery.in_context_blocks` says what it answers."""

    task: PromptTask

    @cached_property
    def box(self) -> Box:
        """The box, one interval for each number of a prompt."""
        task = self.task
        reach = [task.a, task.b, task.x]
        if task.algorithm != "recurrence":
            reach = [task.x] * task.pairs * task.features + [task.y] * task.pairs + [task.x] * task.features
        ends = [to_fraction(r) for r in reach]
        return Box(task.inputs, tuple(ex.number(-e) for e in ends), tuple(ex.number(e) for e in ends))

    @property
    def stated(self) -> dict[str, Any]:
        """The task as model.json states it."""
        counts, numbers = FIELDS[self.task.algorithm]
        exact = {key: str(getattr(self.task, key)) for key in numbers}
        return {"algorithm": self.task.algorithm, **{key: getattr(self.task, key) for key in counts}, **exact}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the answers."""
        many = self.task.outputs
        return ("answer",) if many == 1 else tuple(f"x_{t + 1}" for t in range(many))

    @property
    def words(self) -> str:
        """The algorithm in a few words."""
        task = self.task
        loss = f"ridge regression, penalty {task.penalty}" if task.penalty != 0 else "least squares"
        said = {
            "descent": f"{_many(task.steps, 'gradient step')} on {loss}, rate {task.rate}",
            "ridge": f"ridge regression in closed form, penalty {task.penalty}",
            "lasso": f"{_many(task.steps, 'ISTA step')} on the lasso, penalty {task.penalty}, rate {task.rate}",
            "kernel": f"kernel regression with weights exp(q.x/h), h = {task.bandwidth}",
            "recurrence": f"x -> a*x + b, {_many(task.steps, 'time')}",
        }
        return said[task.algorithm]

    @property
    def where(self) -> str:
        """The box in a few words."""
        task = self.task
        if task.algorithm == "recurrence":
            return f"|a| <= {task.a}, |b| <= {task.b}, |x| <= {task.x}"
        shape = f"{_many(task.pairs, 'pair')} with {_many(task.features, 'feature')}"
        return f"{shape} and a query, |x| <= {task.x}, |y| <= {task.y}"

    @property
    def texts(self) -> tuple[str, ...]:
        """Each output in words."""
        named = self.outputs
        return (self.words,) if len(named) == 1 else tuple(f"{name} of {self.words}" for name in named)

    @property
    def token_labels(self) -> tuple[str, ...]:
        """A label for each token of the model."""
        task = self.task
        if task.algorithm == "recurrence":
            return ("state",)
        pairs = tuple(f"pair {i}" for i in range(task.pairs))
        if task.algorithm == "kernel":
            return ("pair 0 and query", *pairs[1:])
        return (*pairs, "query", *(f"weight {k}" for k in range(task.features)))

    def rows(self, x: Any, y: Any, query: Any) -> Floats:
        """Prompts as rows of numbers: x (prompts × pairs × features), y (prompts × pairs), queries.

        A single prompt may be given without its first axis.
        """
        n, d = self.task.pairs, self.task.features
        if self.task.algorithm == "recurrence":
            raise PointError("the prompt of a recurrence is a row a, b, x")
        parts = []
        for name, given, shape in (("x", x, (n, d)), ("y", y, (n,)), ("query", query, (d,))):
            array = np.asarray(given, dtype=np.float64)
            if array.shape[max(array.ndim - len(shape), 0) :] != shape or array.ndim > len(shape) + 1:
                wanted = " x ".join(map(str, ("prompts", *shape)))
                raise PointError(f"{name} has the shape {array.shape}, not {wanted}")
            parts.append(array.reshape(-1, int(np.prod(shape))))
        if len({len(part) for part in parts}) > 1:
            raise PointError(
                f"there are {', '.join(str(len(p)) for p in parts)} of x, y and query: give as many of each"
            )
        return np.concatenate(parts, axis=1)

    def answers(self, rows: Any) -> Floats:
        """The algorithm itself in float64, prompts × outputs: for figures and tests, never for proofs."""
        rows = np.atleast_2d(np.asarray(rows, dtype=np.float64))
        if self.task.algorithm == "recurrence":
            a, b, x = rows.T
            states = []
            for _ in range(self.task.steps):
                x = a * x + b
                states.append(x)
            return np.stack(states, axis=1)
        n, d = self.task.pairs, self.task.features
        x = rows[:, : n * d].reshape(-1, n, d)
        y = rows[:, n * d : n * d + n]
        q = rows[:, n * d + n :]
        found: Floats = _ANSWERS[self.task.algorithm](self.task, x, y, q)
        return found[:, None]

    def __str__(self) -> str:
        return f"{self.words}, {self.where}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s'[: count != 1]}"


def _float(value: Any) -> float:
    return float(Fraction(int(value.p), int(value.q)))


def _products(q: Floats, w: Floats) -> Floats:
    found: Floats = np.einsum("sd,sd->s", q, w)
    return found


def _descent(task: PromptTask, x: Floats, y: Floats, q: Floats) -> Floats:
    w = np.zeros_like(q)
    for _ in range(task.steps):
        residual = y - np.einsum("snd,sd->sn", x, w)
        w = w + _float(task.rate) * (np.einsum("snd,sn->sd", x, residual) - _float(task.penalty) * w)
    return _products(q, w)


def _ridge(task: PromptTask, x: Floats, y: Floats, q: Floats) -> Floats:
    gram = np.einsum("snd,sne->sde", x, x) + _float(task.penalty) * np.eye(task.features)
    w = np.linalg.solve(gram, np.einsum("snd,sn->sd", x, y)[..., None])[..., 0]
    return _products(q, w)


def _lasso(task: PromptTask, x: Floats, y: Floats, q: Floats) -> Floats:
    w, rate = np.zeros_like(q), _float(task.rate)
    for _ in range(task.steps):
        u = w + rate * np.einsum("snd,sn->sd", x, y - np.einsum("snd,sd->sn", x, w))
        w = np.sign(u) * np.maximum(np.abs(u) - rate * _float(task.penalty), 0)
    return _products(q, w)


def _kernel(task: PromptTask, x: Floats, y: Floats, q: Floats) -> Floats:
    scores = np.einsum("snd,sd->sn", x, q) / _float(task.bandwidth)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    mean: Floats = (weights * y).sum(axis=1) / weights.sum(axis=1)
    return mean


_ANSWERS: dict[str, Callable[[PromptTask, Floats, Floats, Floats], Floats]] = {
    "descent": _descent,
    "ridge": _ridge,
    "lasso": _lasso,
    "kernel": _kernel,
}
