"""Expressions to Taylor models on many boxes at once, and their ranges there.

Where the argument of a root or an arcsine may leave the domain, the models hold at the points where it does
not: that the expression is defined at all is for others to prove (`intervals.range_of`). The range of a model
is that of its Bernstein coefficients (of few variables, else constant +- sum of abs(coefficients)), widened by
its rest, so that its excess shrinks with the square of the box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures import bernstein
from transformula.kernel.enclosures.balls import Operations, enclose, round_up
from transformula.kernel.enclosures.taylor_models import (
    TINY,
    UP,
    Floats,
    TaylorModel,
    U,
    absolute,
    boxes_of,
    compose,
    constant_model,
    layout,
    variable_model,
    whole_power,
)
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.functions.function_table import FUNCTIONS, root_model
from transformula.kernel.syntax.expression import Expr, fold, walk

#: Boxes at a time, and coefficients (of all nodes together) held at a time.
_MOST_BOXES, _MOST_COEFFICIENTS = 4096, 30_000_000
_MAX_TENSOR = 700


def _inverse(u: TaylorModel) -> TaylorModel:
    """1/u, unbounded where u may reach zero; abs(g^(K)) / K! is at most min abs(u)**-(K+1).

    The coefficients (-1)**k / p0**(k+1) are rounded 2 k + 1 times, each charged twice.
    """
    order, (low, high) = u.layout.order, u.range()
    ok = (low > 0) | (high < 0)
    step, last = 1 / np.where(ok, u.constant, 1.0), 1 / np.where(ok, np.minimum(np.abs(low), np.abs(high)), 1.0)
    series = [step]
    for _ in range(order - 1):
        series.append(-series[-1] * step)
    rest = whole_power(last, order + 1) * UP + TINY
    wrong = [np.abs(c) * ((4 * k + 2) * U) + TINY for k, c in enumerate(series)]
    return compose(u, series, wrong, np.where(ok, rest, np.inf))


def _power(base: TaylorModel, exponent: TaylorModel, by: Fraction | None) -> TaylorModel:
    if by is None:
        return FUNCTIONS["exp"].model(exponent * FUNCTIONS["log"].model(base))
    if by < 0:
        return _inverse(_power(base, exponent, -by))
    if not by:
        return constant_model(base.layout, np.ones(len(base.rest)), 0 * base.rest)  # nan where u is unbounded
    return whole_power(base, int(by)) if by.denominator == 1 else root_model(by)(base)  # type: ignore[no-any-return]


_MODELS: Operations[TaylorModel] = Operations(
    "model",
    lambda a, b: a * _inverse(b),
    _power,
    lambda a, b: (a + b + absolute(a - b)).times_constant(0.5),
)


def model_of(expr: Expr, variables: Sequence[str], centre: Floats, radius: Floats, order: int) -> TaylorModel:
    """Models on boxes (d, boxes); ``rest`` is infinite where the expression may be unbounded."""
    shape, axes, boxes = layout(len(variables), order), {n: k for k, n in enumerate(variables)}, centre.shape[1]

    def model(node: Expr, args: list[TaylorModel]) -> TaylorModel:
        if node.op == "variable":
            axis = axes.get(str(node.value))
            if axis is None:
                raise RefutedError(f"{node.value} is not a variable here")
            return variable_model(shape, axis, centre[axis], radius[axis])
        if node.names:
            return _cleaned(_MODELS.apply(node, args))
        with precision(80):
            ball = enclose(node)
            value = float(ball.mid())
            wrong = round_up(abs(ball - value))
        return _cleaned(constant_model(shape, np.full(boxes, value), np.full(boxes, wrong)))

    with np.errstate(all="ignore"):
        return fold(expr, model)


def _cleaned(model: TaylorModel) -> TaylorModel:
    """Nothing is known where a number is not finite: zero, with an infinite rest."""
    good = np.isfinite(model.rest) & np.isfinite(model.terms).all(axis=0)
    if good.all():
        return model
    return TaylorModel(model.layout, np.where(good, model.terms, 0.0), np.where(good, model.rest, np.inf))


def to_tensor(model: TaylorModel) -> Floats:
    """Coefficients as a full tensor, shape (boxes, K, ..., K); the caller sees that K**d is moderate."""
    shape = model.layout
    size = (shape.order,) * shape.dimension
    flat = np.zeros((model.terms.shape[1], shape.order**shape.dimension))
    flat[:, np.ravel_multi_index(tuple(shape.exponents.T), size)] = model.terms.T
    return flat.reshape(-1, *size)


def models_on(
    expr: Expr, variables: Sequence[str], lower: Floats, upper: Floats, order: int
) -> Iterator[tuple[slice, TaylorModel]]:
    """The Taylor models on many boxes (d, boxes), a few at a time."""
    step = _MOST_COEFFICIENTS // (sum(1 for _ in walk(expr)) * layout(len(variables), order).terms)
    step = min(max(step, 1), _MOST_BOXES)
    for start in range(0, lower.shape[1], step):
        part = slice(start, start + step)
        yield part, model_of(expr, variables, *boxes_of(lower[:, part], upper[:, part]), order)


def model_range(model: TaylorModel, parts: int = 1) -> tuple[Floats, Floats]:
    """The ranges of a model on its boxes, rounded outward; infinite where it is not finite.

    More ``parts`` of each side make them tighter.
    """
    shape = model.layout
    if shape.order**shape.dimension > _MAX_TENSOR:
        return model.range()
    with np.errstate(all="ignore"):
        values = bernstein.coefficients(to_tensor(model), parts).reshape(model.terms.shape[1], -1)
        size = np.abs(model.terms).sum(axis=0)
        wrong = (model.rest + size * bernstein.ROUNDING) * UP + TINY
        low, high = values.min(axis=1) - wrong, values.max(axis=1) + wrong
        wider = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)  # the last two roundings
    known = np.isfinite(low) & np.isfinite(high)
    return np.where(known, wider[0], -np.inf), np.where(known, wider[1], np.inf)


def enclose_ranges(
    expr: Expr, variables: Sequence[str], lower: Floats, upper: Floats, order: int = 4
) -> tuple[Floats, Floats]:
    """Proven ranges on many boxes (d, boxes), at the points where it is defined; infinite if it may be unbounded."""
    ranges = [model_range(model) for _, model in models_on(expr, variables, lower, upper, order)]
    return np.concatenate([low for low, _ in ranges]), np.concatenate([high for _, high in ranges])
