"""Expressions to Taylor models on many boxes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce

import numpy as np

from transformula.formulas.enclosures import enclose, precision, round_up
from transformula.formulas.expression import Expr, walk
from transformula.taylor import univariate
from transformula.taylor.models import Layout, Model, constant_model, layout, variable_model
from transformula.taylor.results import Floats


def model_of(expr: Expr, variables: Sequence[str], centre: Floats, radius: Floats, order: int) -> Model:
    """Taylor models of an expression on boxes.

    Parameters
    ----------
    centre, radius : arrays, shape (d, boxes)

    Returns
    -------
    Model
        With ``rest`` infinite where the expression may be unbounded. Where the argument of a root
        or an arcsine may leave the domain, the models hold at the points where it does not.
    """
    shape = layout(len(variables), order)
    axes = {name: k for k, name in enumerate(variables)}
    known: dict[Expr, Model] = {}
    with np.errstate(all="ignore"):
        for node in walk(expr):
            if node.is_constant:
                known[node] = _cleaned(_constant(shape, node, centre.shape[1]))
            elif node.op == "variable":
                axis = axes[str(node.value)]
                known[node] = variable_model(shape, axis, centre[axis], radius[axis])
            else:
                known[node] = _cleaned(_apply(node, [known[a] for a in node.args]))
    return known[expr]


def _cleaned(model: Model) -> Model:
    """Nothing is known where a number is not finite: zero, with an infinite rest."""
    good = np.isfinite(model.rest) & np.isfinite(model.terms).all(axis=0)
    if good.all():
        return model
    terms = np.where(good, model.terms, 0.0)
    return Model(model.layout, terms, np.where(good, model.rest, np.inf))


def _constant(shape: Layout, node: Expr, boxes: int) -> Model:
    with precision(80):
        ball = enclose(node)
        value = float(ball.mid())
        wrong = round_up(abs(ball - value))
    return constant_model(shape, np.full(boxes, value), np.full(boxes, wrong))


def _apply(node: Expr, args: list[Model]) -> Model:
    op = node.op
    if op == "add":
        return reduce(lambda a, b: a + b, args)
    if op == "mul":
        return reduce(_times, args)
    if op == "div":
        return args[0] * univariate.inverse(args[1])
    if op == "pow":
        return _power(node, args[0], args[1])
    if op in ("min", "max"):
        different = dict(zip(node.args, args, strict=True)).values()  # min(x, x) is no kink
        return reduce(_smaller if op == "min" else _larger, different)
    return _FUNCTIONS[op](args[0])


def _times(a: Model, b: Model) -> Model:
    for one, other in ((a, b), (b, a)):
        if not one.terms[1:].any():
            return other.times_constant(one.terms[0], one.rest)
    return a * b


def _power(node: Expr, base: Model, exponent: Model) -> Model:
    by = node.args[1].number
    if by is None:
        return univariate.exp(exponent * univariate.log(base))
    return univariate.power(base, by)


def _larger(a: Model, b: Model) -> Model:
    return (a + b + univariate.absolute(a - b)).times_constant(0.5)


def _smaller(a: Model, b: Model) -> Model:
    return -_larger(-a, -b)


def _tanh(u: Model) -> Model:
    sign = np.where(u.constant > 0, -1.0, 1.0)  # keeps the exponential small
    fall = univariate.exp(u.times_constant(2 * sign))
    ratio = fall * univariate.inverse(fall.plus_constant(1.0))
    return ratio.times_constant(2.0).plus_constant(-1.0).times_constant(sign)


def _half_sum(u: Model, sign: float) -> Model:
    grow, fall = univariate.exp(u), univariate.exp(-u)
    return (grow + fall.times_constant(sign)).times_constant(0.5)


def _acos(u: Model) -> Model:
    half_pi, wrong = 1.5707963267948966, 1e-16
    return (-univariate.asin(u)).plus_constant(half_pi, wrong)


_FUNCTIONS: dict[str, Callable[[Model], Model]] = {
    "sin": univariate.sin,
    "cos": univariate.cos,
    "tan": lambda u: univariate.sin(u) * univariate.inverse(univariate.cos(u)),
    "asin": univariate.asin,
    "acos": _acos,
    "atan": univariate.atan,
    "sinh": lambda u: _half_sum(u, -1.0),
    "cosh": lambda u: _half_sum(u, 1.0),
    "tanh": _tanh,
    "exp": univariate.exp,
    "log": univariate.log,
    "sqrt": lambda u: univariate.power(u, Fraction(1, 2)),
    "abs": univariate.absolute,
    "sinc": univariate.sinc,
}


def to_tensor(model: Model) -> Floats:
    """Coefficients as a full tensor, shape (boxes, K, ..., K)."""
    shape = model.layout
    size = (shape.order,) * shape.dimension
    flat = np.zeros((model.terms.shape[1], shape.order**shape.dimension))
    flat[:, np.ravel_multi_index(tuple(shape.exponents.T), size)] = model.terms.T
    return flat.reshape(-1, *size)
