"""Large proofs come in parts, each bounded by a function of its own data alone; who computes it is left open.

Nobody helps unless somebody outside lends workers with `helped`. They are asked for all parts of a step at once and
give back an answer or None for each. What does not look like an answer is computed here, and the bounds are put
together here, in order; so a helper that is lost costs time only. Like the processor, helpers are trusted to
compute what they are asked. The work they did counts like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
from flint import ctx

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.work import left, limited, spend

#: For `in_parts` it ends with the lower and upper ends of its boxes, shape (d, boxes).
Part = tuple[Any, ...]
Answer = tuple[Any, float]
Helpers = Callable[[Callable[[Part], Answer], Sequence[Part]], Sequence[Any]]

#: How much all helpers together may do, of what is left: a part that takes more than its share is computed here.
_SHARES = 4.0

_helpers: ContextVar[Helpers | None] = ContextVar("helpers", default=None)


@contextmanager
def helped(helpers: Helpers) -> Iterator[None]:
    """Lend workers to the proofs inside the block."""
    before = _helpers.set(helpers)
    try:
        yield
    finally:
        _helpers.reset(before)


def in_parts(function: Callable[[Part], Floats], parts: Sequence[Part]) -> Floats:
    """What the function says of the boxes of all parts: for each part an array (rows, boxes), side by side."""
    return np.concatenate(answered(function, parts, _covers), axis=1)


def answered(function: Callable[[Part], Any], parts: Sequence[Part], fits: Callable[[Any, Part], bool]) -> list[Any]:
    """What the function says of each part; ``fits`` tells whether something looks like an answer."""
    helpers = _helpers.get()
    answers: Sequence[Any] = [None] * len(parts)
    if helpers is not None and len(parts) > 1:
        given = helpers(partial(_measured, function, _SHARES * left() / len(parts), ctx.prec), parts)
        answers = given if isinstance(given, list) and len(given) == len(parts) else answers
    found = []
    for part, answer in zip(parts, answers, strict=True):
        good = _is_measured(answer) and fits(answer[0], part)
        value, work = answer if good else _measured(function, left(), ctx.prec, part)
        spend(work)
        found.append(value)
    return found


def _measured(function: Callable[[Part], Any], most: float, bits: int, part: Part) -> Answer:
    """An answer, with the work it took."""
    with precision(bits), limited(most, apart=True) as meter:
        return function(part), float(meter[0])


def _is_measured(answer: Any) -> bool:
    return isinstance(answer, tuple) and len(answer) == 2 and type(answer[1]) is float and answer[1] >= 0


def _covers(value: Any, part: Part) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape[1:] == part[-1].shape[1:]
