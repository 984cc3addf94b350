"""Proven ranges and oscillations of an expression on many boxes, from Taylor models.

The range of a model is that of its Bernstein coefficients (up to four variables, else constant +-
sum of abs(coefficients)), widened by its rest. So the excess over the true range shrinks with the
square of the box, not with the box as in plain interval arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transformula.formulas.expression import Expr
from transformula.taylor import bernstein
from transformula.taylor.modelling import model_of, to_tensor
from transformula.taylor.models import TINY, UP, Model, boxes_of
from transformula.taylor.results import Floats

_CHUNK = 4096
_MAX_TENSOR = 700


def enclose_ranges(
    expr: Expr, variables: Sequence[str], lower: Floats, upper: Floats, order: int = 4
) -> tuple[Floats, Floats]:
    """Proven ranges of an expression on many boxes.

    Parameters
    ----------
    lower, upper : arrays, shape (d, boxes)

    Returns
    -------
    low, high : arrays, shape (boxes,)
        Infinite where the expression may be unbounded.

    Examples
    --------
    >>> from transformula.formulas import parse
    >>> low, high = enclose_ranges(parse("x*x"), ["x"], np.array([[-1.0, 2]]), np.array([[1.0, 3]]))
    >>> bool(low[0] <= 0 and high[0] >= 1 and 3.99 < low[1] <= 4 and 9 <= high[1] < 9.01)
    True
    """
    count = lower.shape[1]
    low, high = np.empty(count), np.empty(count)
    for start in range(0, count, _CHUNK):
        part = slice(start, start + _CHUNK)
        centre, radius = boxes_of(lower[:, part], upper[:, part])
        low[part], high[part] = _range(model_of(expr, variables, centre, radius, order))
    return low, high


def oscillations(
    expr: Expr, variables: Sequence[str], lower: Floats, upper: Floats, order: int = 3
) -> Floats:
    """Proven bounds of max f - min f on many boxes, shape (boxes,)."""
    low, high = enclose_ranges(expr, variables, lower, upper, order)
    with np.errstate(invalid="ignore"):
        return np.asarray((high - low) * UP)


def enclose_range(
    expr: Expr,
    variables: Sequence[str],
    lower: Floats,
    upper: Floats,
    tolerance: float = 1e-3,
    max_boxes: int = 50_000,
) -> tuple[float, float]:
    """A proven range on one box, at most ``tolerance`` of its width too wide where limits allow.

    Parameters
    ----------
    lower, upper : arrays, shape (d,)
        Floats that contain the box.
    """
    lows, highs = np.asarray(lower, float)[:, None], np.asarray(upper, float)[:, None]
    whole = highs - lows
    settled = np.inf, -np.inf
    reached = np.inf, -np.inf
    order = 4 if len(variables) <= 6 else 3
    used = 0
    while True:
        centre, radius = boxes_of(lows, highs)
        model = model_of(expr, variables, centre, radius, order)
        low, high = _range(model)
        used += len(low)
        known = np.isfinite(model.rest)
        if known.any():  # values at centres: only a guide to what is worth cutting
            reached = (
                min(reached[0], float((model.constant + model.rest)[known].min())),
                max(reached[1], float((model.constant - model.rest)[known].max())),
            )
        slack = tolerance * max(reached[1] - reached[0], 1e-12 * max(map(abs, reached)), TINY)
        cut = (low < reached[0] - slack) | (high > reached[1] + slack)
        last = used + 2 * int(cut.sum()) > max_boxes
        keep = np.ones_like(cut) if last else ~cut
        if keep.any():
            settled = (
                min(settled[0], float(low[keep].min())),
                max(settled[1], float(high[keep].max())),
            )
        if last or not cut.any():
            return settled
        lows, highs = _bisect(model, lows, highs, whole, cut)


def _range(model: Model) -> tuple[Floats, Floats]:
    shape = model.layout
    if shape.order**shape.dimension > _MAX_TENSOR:
        low, high = model.range()
        return low, high
    boxes = model.terms.shape[1]
    values = bernstein.coefficients(to_tensor(model), 1).reshape(boxes, -1)
    size = np.abs(model.terms).sum(axis=0)
    wrong = (model.rest + size * bernstein.ROUNDING) * UP + TINY
    return values.min(axis=1) - wrong, values.max(axis=1) + wrong


def _bisect(
    model: Model, lows: Floats, highs: Floats, whole: Floats, cut: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Halve the chosen boxes along the axis on which the model varies most."""
    d = len(lows)
    linear = np.abs(model.terms[1 : 1 + d, cut])
    lows, highs = lows[:, cut], highs[:, cut]
    with np.errstate(invalid="ignore"):
        share = np.nan_to_num((highs - lows) / whole)  # an axis without width is not cut
        slope = linear / np.maximum(linear.max(axis=0), TINY)
    axis = np.argmax(np.where(np.isfinite(model.rest[cut]), slope + 0.1, 1.0) * share, axis=0)
    boxes = np.arange(lows.shape[1])
    middle = lows[axis, boxes] + (highs[axis, boxes] - lows[axis, boxes]) / 2
    left, right = highs.copy(), lows.copy()
    left[axis, boxes] = middle
    right[axis, boxes] = middle
    return np.concatenate([lows, right], axis=1), np.concatenate([left, highs], axis=1)
