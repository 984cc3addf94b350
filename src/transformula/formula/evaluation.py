"""Expressions in floats, for solving and plotting; never for proofs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.budget import spend
from transformula.formula.piecewise_evaluation import at_many
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import Operations, enclose, integer_power
from transformula.kernel.functions.function_table import function_of
from transformula.kernel.syntax.expression import Expr, variables_of, walk

Floats = NDArray[np.float64]

#: Points up to which Arb's accuracy costs less than a tenth of a second.
ACCURATE_POINTS = 10_000

#: Functions of the registry that NumPy knows by another name, or in other units; `math` knows some more.
_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
_NAMES |= {"atanh": "arctanh"}
_OTHERS: dict[str, Any] = {
    "sinc": lambda u: np.sinc(u / np.pi),
    **{name: np.vectorize(getattr(math, name), otypes=[float]) for name in ("erf", "erfc")},
}
_FLOAT_BITS = 64


def float_function(name: str) -> Callable[[Any], Any]:
    """A function of the registry on floats: NumPy's, or else Arb's values rounded; nan where it is undefined.

    Examples
    --------
    >>> float_function("exp")(0.0), float_function("gamma")(np.array([5.0, -1.0, -np.inf]))
    (np.float64(1.0), array([24., nan, nan]))
    """
    if name in _OTHERS:
        return _OTHERS[name]  # type: ignore[no-any-return]
    known = getattr(np, _NAMES.get(name, name), None) if ":" not in name else None
    return known or partial(at_many, np.vectorize(partial(_by_arb, function_of(name).ball), otypes=[float]))


def _by_arb(ball: Callable[[arb], arb], x: float) -> float:
    with precision(_FLOAT_BITS):
        return float(ball(arb(x)).mid())


def evaluate(expr: Expr, variables: Sequence[str], arguments: Sequence[Floats]) -> Floats:
    """Evaluate on arrays of one shape; undefined places become nan or inf.

    Examples
    --------
    >>> from transformula.formula import parse
    >>> evaluate(parse("x**2 + y"), ["x", "y"], [np.array([1.0, 2]), np.array([0.0, 1])])
    array([1., 5.])
    """
    spend(len(nodes := list(walk(expr))) * (2 + 0.01 * np.size(arguments[0])))
    known: dict[Expr, Any] = {}
    inputs = dict(zip(variables, arguments, strict=True))
    with np.errstate(all="ignore"):
        for node in nodes:
            known[node] = _apply(node, [known[a] for a in node.args], inputs)
        shape = np.shape(arguments[0])
        return np.broadcast_to(np.asarray(known[expr], dtype=np.float64), shape).copy()


def _apply(node: Expr, args: list[Any], inputs: dict[str, Floats]) -> Any:
    op = node.op
    if node.number is not None:
        return _nearest(node.number)
    if op == "constant":
        return np.pi if node.value == "pi" else np.e
    if op == "variable":
        return inputs[str(node.value)]
    if op == "add":
        return sum(args[1:], args[0])
    if op == "mul":
        return reduce(np.multiply, args)
    if op == "div":
        return np.divide(args[0], args[1])
    if op == "pow":
        return np.power(np.asarray(args[0], dtype=float), args[1])
    if op in ("min", "max"):
        return reduce(np.minimum if op == "min" else np.maximum, args)
    return float_function(op)(args[0])


def _nearest(number: Fraction) -> float:
    """The nearest float; what is beyond all of them is infinite."""
    try:
        return float(number)
    except OverflowError:
        return np.inf if number > 0 else -np.inf


def evaluate_accurately(expr: Expr, variables: Sequence[str], arguments: Sequence[Floats]) -> Floats:
    """Like `evaluate`, correctly rounded (almost) for as many points as Arb can do at once.

    Where a ball cannot tell on which side of a domain's end a point lies, floats decide.
    """
    shape = np.shape(arguments[0])
    flat = [np.asarray(a, dtype=float).ravel() for a in arguments]
    if flat[0].size > ACCURATE_POINTS:
        return evaluate(expr, variables, arguments)
    with precision(128):
        steps = _steps(expr, variables)
        spend(len(steps) * flat[0].size)
        values = [_at(steps, point) for point in zip(*(f.tolist() for f in flat), strict=True)]
    result = np.array(values).reshape(shape)
    lost = np.isnan(result)
    return np.where(lost, evaluate(expr, variables, arguments), result) if lost.any() else result


def increasing(points: Floats) -> Floats:
    """The points in order, each once. (`np.unique` would import masked arrays, a tenth of NumPy.)

    Examples
    --------
    >>> increasing(np.array([2.0, 1.0, 2.0]))
    array([1., 2.])
    """
    points = np.sort(points)
    return np.asarray(points[np.append(True, points[1:] > points[:-1])[: len(points)]])


#: A node, the places of its arguments, and the place of its variable or its value if it has one.
_Step = tuple[Expr, list[int], int | None, arb | None]


def _steps(expr: Expr, variables: Sequence[str]) -> list[_Step]:
    """The expression taken apart once for all points: what does not depend on them is worked out here."""
    places: dict[Expr, int] = {}
    steps: list[_Step] = []
    for node in walk(expr):
        constant = None if variables_of(node) else enclose(node)
        given = variables.index(str(node.value)) if node.op == "variable" else None
        steps.append((node, [places[a] for a in node.args], given, constant))
        places[node] = len(places)
    return steps


def _at(steps: Sequence[_Step], point: Sequence[float]) -> float:
    known: list[arb] = []
    for node, args, given, constant in steps:
        if constant is not None:
            known.append(constant)
        elif given is not None:
            known.append(arb(point[given]))
        else:
            known.append(_BALLS.apply(node, [known[a] for a in args]))
    return float(known[-1].mid())


def _power(base: arb, exponent: arb, by: Fraction | None) -> arb:
    return integer_power(base, int(by)) if by is not None and by.denominator == 1 else base**exponent


_BALLS: Operations[arb] = Operations("ball", operator.truediv, _power, lambda a, b: a.max(b))
