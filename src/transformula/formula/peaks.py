"""How large a formula gets on its box: a proven lower bound, for tolerances relative to the largest |f|."""

from __future__ import annotations

import math

import numpy as np
from flint import arb

from transformula.formula.evaluation import Floats, evaluate
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr

_POINTS = 4096
_KEPT = 8
_ROUNDS = 12
_BITS = 128


def peak(expr: Expr, box: Box) -> float:
    """A lower bound of sup|f| on the box: the largest value found, each judged in balls; 0 if there is none.

    The search is in floats and proves nothing; what it finds is evaluated in Arb at points of the box.

    Examples
    --------
    >>> from transformula.formula import Box, parse
    >>> box = Box.of("x=1/3..2, y=0..pi")
    >>> 3.9999 < peak(parse("x**2*sin(y)"), box) <= 4
    True
    """
    with precision(_BITS):
        return max((_at_least(expr, box, t) for t in _search(expr, box)), default=0.0)


def _search(expr: Expr, box: Box) -> Floats:
    """Places in [0, 1]^d where |f| is large; ends are reached exactly."""
    rng = np.random.default_rng(0)
    shape = (_POINTS, box.dimension)
    t = rng.random(shape)
    t = np.where(rng.random(shape) < 0.5, np.round(t), t)
    step = 0.25
    best: Floats = t[:0]
    for _ in range(_ROUNDS):
        size = np.abs(evaluate(expr, box.variables, list(_points(box, t).T)))
        best = t[np.argsort(np.where(np.isfinite(size), size, -1.0))[-_KEPT:]]
        moved = best[:, None] + step * rng.uniform(-1, 1, (1, 64, box.dimension))
        t = np.concatenate([best, np.clip(moved, 0, 1).reshape(-1, box.dimension)])
        step /= 2
    return best


def _points(box: Box, t: Floats) -> Floats:
    """Floats inside the box; the exact ends of an interval need not be floats, so keep a little away."""
    low, high = np.array(box.floats()).T
    points: Floats = np.clip(low + (high - low) * t, np.nextafter(low, high), np.nextafter(high, low))
    return points


def _at_least(expr: Expr, box: Box, t: Floats) -> float:
    values = {}
    for k, (name, inside) in enumerate(zip(box.variables, _points(box, t[None])[0], strict=True)):
        end = box.lower[k] if t[k] == 0 else box.upper[k] if t[k] == 1 else None
        values[name] = arb(float(inside)) if end is None else enclose(end)
    value = enclose(expr, values)
    if not value.is_finite():
        return 0.0
    least = float(value.abs_lower())
    while least > 0 and not arb(least) <= value.abs_lower():
        least = math.nextafter(least, 0)
    return least
