"""The task of an in-context model: an algorithm, the size of its prompts, and the box they lie in.

A prompt is n pairs (x_i, y_i) and a query q; x_i and q have d features, |x_i|, |q| <= ``x`` entry by entry and
|y_i| <= ``y``. X is the matrix of the rows x_i. The answer is one number:

- ``descent``: q·w_k, w_0 = 0 and w_{t+1} = w_t − rate·(XᵀX w_t − Xᵀy + penalty·w_t), k = ``steps``.
- ``ridge``: q·w with (XᵀX + penalty·I) w = Xᵀy.
- ``lasso``: q·w_k, w_0 = 0 and w_{t+1} = S(w_t − rate·(XᵀX w_t − Xᵀy)), where S(u) = sign(u)·max(|u| − rate·penalty, 0)
  in every coordinate (ISTA for ½|y − Xw|² + penalty·|w|₁), k = ``steps``.
- ``kernel``: Σ_i e^{q·x_i/bandwidth} y_i / Σ_i e^{q·x_i/bandwidth} (Nadaraya and Watson's regression).

For ``recurrence`` a prompt is three numbers with |a| <= ``a``, |b| <= ``b``, |x| <= ``x``, and the answers are
x_1, ..., x_k, k = ``steps``: x_0 = x and x_{t+1} = a·x_t + b.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flint import fmpq

from transformula.kernel.exceptions import ModelFileError
from transformula.kernel.folder.description import MAX_BLOCKS, is_count, require
from transformula.kernel.syntax.boxes import MAX_VARIABLES

_SIZES, _ENDS = ("pairs", "features"), ("x", "y")
#: What each algorithm is stated by: whole numbers, then rationals.
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "descent": ((*_SIZES, "steps"), ("penalty", "rate", *_ENDS)),
    "ridge": (_SIZES, ("penalty", *_ENDS)),
    "lasso": ((*_SIZES, "steps"), ("penalty", "rate", *_ENDS)),
    "kernel": (_SIZES, ("bandwidth", *_ENDS)),
    "recurrence": (("steps",), ("a", "b", "x")),
}
#: The rationals that may be zero.
MAY_VANISH = {("descent", "penalty"), ("lasso", "penalty")}
_ZERO = fmpq(0)
_NUMBER = re.compile(r"[0-9]{1,60}(/[0-9]{1,60})?", re.ASCII)


@dataclass(frozen=True)
class PromptTask:
    """An algorithm with its numbers; what it does not have is zero."""

    algorithm: str
    pairs: int = 0
    features: int = 0
    steps: int = 0
    penalty: fmpq = _ZERO
    rate: fmpq = _ZERO
    bandwidth: fmpq = _ZERO
    a: fmpq = _ZERO
    b: fmpq = _ZERO
    x: fmpq = _ZERO
    y: fmpq = _ZERO

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> PromptTask:
        """A task as model.json states it; whatever does not fit is refused."""
        name = body.get("algorithm")
        if not isinstance(name, str) or name not in FIELDS:
            raise ModelFileError("model.json names an unknown algorithm")
        counts, numbers = FIELDS[name]
        require(set(body) == {"algorithm", *counts, *numbers}, f"model.json does not state what {name} needs")
        for key in counts:
            most = MAX_BLOCKS if key == "steps" else MAX_VARIABLES
            require(is_count(body[key], most, 1), f"model.json: {key} is not a whole number from 1 to {most}")
        exact: dict[str, Any] = {key: _rational(body[key]) for key in numbers}
        for key, value in exact.items():
            require(value > 0 or (name, key) in MAY_VANISH, f"model.json: {key} is not above 0")
        task = cls(name, **{key: body[key] for key in counts}, **exact)
        require(task.size <= MAX_VARIABLES, f"a prompt has {task.size} numbers; at most {MAX_VARIABLES}")
        return task

    @property
    def size(self) -> int:
        """Number of numbers in a prompt."""
        return 3 if self.algorithm == "recurrence" else self.pairs * self.features + self.pairs + self.features

    @property
    def inputs(self) -> tuple[str, ...]:
        """The numbers of a prompt, by name: the pairs' features, row by row, their targets, and the query."""
        if self.algorithm == "recurrence":
            return ("a", "b", "x")
        rows, columns = range(1, self.pairs + 1), range(1, self.features + 1)
        pairs = (*(f"x{i}_{k}" for i in rows for k in columns), *(f"y{i}" for i in rows))
        return (*pairs, *(f"q{k}" for k in columns))

    @property
    def outputs(self) -> int:
        """Number of numbers in the answer."""
        return self.steps if self.algorithm == "recurrence" else 1


def _rational(text: object) -> fmpq:
    require(isinstance(text, str) and _NUMBER.fullmatch(text), "model.json has a number of a task that is malformed")
    top, _, bottom = str(text).partition("/")
    require(int(bottom or 1) != 0, "model.json has a number of a task that divides by 0")
    return fmpq(int(top), int(bottom or 1))
