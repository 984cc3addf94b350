"""Expressions in floats, for solving and plotting, never for proofs; and how large a formula gets on its box."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.budget import spend
from transformula.errors import FormulaError
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import Operations, enclose, integer_power
from transformula.kernel.functions.function_table import function_of
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr, variables_of, walk

Floats = NDArray[np.float64]

#: Points evaluated with Arb's accuracy, which takes less than a tenth of a second.
ACCURATE_POINTS = 10_000

#: Functions of the registry that NumPy knows by another name, or in other units; `math` knows some more.
_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
_NAMES |= {"atanh": "arctanh"}
_OTHERS: dict[str, Any] = {
    "sinc": lambda u: np.sinc(u / np.pi),
    **{name: np.vectorize(getattr(math, name), otypes=[float]) for name in ("erf", "erfc")},
}
_FLOAT_BITS = 64
#: Bits of the balls behind accurate values and peaks.
_BALL_BITS = 128
#: Random points at first, points kept in each round, and rounds of the search for the largest value.
_PEAK_POINTS = 4096
_PEAKS_KEPT = 8
_PEAK_ROUNDS = 12
#: Points of an interval up to which a slow function itself is evaluated, and not a polynomial in its place.
_FEW = 64
#: Degree of such a polynomial, and its largest error relative to the largest value nearby.
_DEGREE = 20
_CLOSE = 1e-14
_NODES = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
_CHECKED = np.array([-0.97, -0.31, 0.11, 0.73])
#: Where functions are called with numbers, as shares of the variables' intervals; how far apart values may be there,
#: relative to the largest.
_SHARES = ((0.3819, 0.7236, 0.5433), (0.6417, 0.1931, 0.8377))
_AGREE = 1e-6


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


def at_many(function: Callable[[Floats], Floats], points: Floats) -> Floats:
    """Values of a slow function at very many points of any shape, by polynomials on intervals, halved until they fit.

    They are accurate to about 1e-14 of the largest value nearby, and nan where the function is.

    Examples
    --------
    >>> x = np.linspace(0, 3, 10_000)
    >>> float(np.abs(at_many(np.sin, x) - np.sin(x)).max()) < 1e-13
    True
    """
    flat, back = np.unique(np.asarray(points, dtype=float), return_inverse=True)
    values = np.full(flat.shape, np.nan)
    first = int(np.isneginf(flat).sum())  # sorted: -inf, numbers, inf, nan
    stack = [(first, first + int(np.isfinite(flat).sum()))] if np.isfinite(flat).any() else []
    while stack:
        start, stop = stack.pop()
        own = flat[start:stop]
        low, high = own[0], own[-1]
        if stop - start <= _FEW:
            values[start:stop] = function(own)
            continue
        middle, half = (low + high) / 2, (high - low) / 2
        known = function(middle + half * _NODES)
        series = np.polynomial.chebyshev.chebfit(_NODES, known, _DEGREE) if np.isfinite(known).all() else None
        if series is not None:
            off = function(middle + half * _CHECKED) - np.polynomial.chebyshev.chebval(_CHECKED, series)
            if np.abs(off).max() <= _CLOSE * np.abs(known).max():
                values[start:stop] = np.polynomial.chebyshev.chebval((own - middle) / half, series)
                continue
        cut = int(np.clip(np.searchsorted(own, middle), 1, stop - start - 1))
        stack += [(start, start + cut), (start + cut, stop)]
    return values[back].reshape(np.shape(points))


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
    """The nearest float, or infinity."""
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
    with precision(_BALL_BITS):
        steps = _steps(expr, variables)
        spend(len(steps) * flat[0].size)
        values = [_at(steps, point) for point in zip(*(f.tolist() for f in flat), strict=True)]
    result = np.array(values).reshape(shape)
    lost = np.isnan(result)
    return np.where(lost, evaluate(expr, variables, arguments), result) if lost.any() else result


def check_with_numbers(function: Callable[..., Any], formula: Formula, constants: Mapping[str, Expr]) -> None:
    """Refuse a Python function whose values differ from those of the formula that was recorded from it.

    Two points show a function that takes another way for numbers, as after `isinstance(x, float)`; one that fails on
    numbers is not checked. No proof rests on this: a certificate is about the formula, which every answer shows.
    """
    box = formula.box
    low, high = np.array(box.floats()).T
    for share in _SHARES:
        point = list(low + (high - low) * np.resize(share, box.dimension))
        held, wanted = (
            np.array([evaluate_accurately(e, box.variables, point) for e in some])
            for some in (constants.values(), formula.outputs)
        )
        known = dict(zip((*box.variables, *constants), [*map(float, point), *held.tolist()], strict=True))
        asked = {name: known[name] for name in inspect.signature(function).parameters if name in known}
        try:
            with np.errstate(all="ignore"):
                found = np.ravel(function(**asked)).astype(float)
        except Exception:
            continue
        if found.shape != wanted.shape or not np.isfinite([found, wanted]).all():
            continue
        if np.abs(found - wanted).max() > _AGREE * np.abs(wanted).max():
            at = ", ".join(f"{name} = {value:.4g}" for name, value in asked.items())
            raise FormulaError(
                f"at {at} the function returns {found.tolist()}, and {wanted.tolist()} if symbols stand for its "
                "arguments: it asks what its arguments are, which a formula cannot; write its formula as text"
            )


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
    """The expression as a list of steps for all points; constant nodes are evaluated here."""
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


def peak(expr: Expr, box: Box) -> float:
    """A proven lower bound of sup|f| on the box, for tolerances relative to it; 0 if no value is finite.

    The search is in floats and proves nothing; what it finds is evaluated in Arb at points of the box.

    Examples
    --------
    >>> from transformula.formula import Box, parse
    >>> box = Box.of("x=1/3..2, y=0..pi")
    >>> 3.9999 < peak(parse("x**2*sin(y)"), box) <= 4
    True
    """
    places = _places(expr, box)
    with precision(_BALL_BITS):
        for inwards in (0.0, 1e-6, 1e-2):  # the largest value may be at the end of a domain, which balls reach beyond
            found = max((_size_at(expr, box, t + inwards * (0.5 - t)) for t in places), default=0.0)
            if found:
                break
        return found


def _places(expr: Expr, box: Box) -> Floats:
    """Places in [0, 1]^d where |f| is large; ends are reached exactly."""
    rng = np.random.default_rng(0)
    shape = (_PEAK_POINTS, box.dimension)
    t = rng.random(shape)
    t = np.where(rng.random(shape) < 0.5, np.round(t), t)
    step = 0.25
    best: Floats = t[:0]
    for _ in range(_PEAK_ROUNDS):
        size = np.abs(evaluate(expr, box.variables, list(_inside(box, t).T)))
        best = t[np.argsort(np.where(np.isfinite(size), size, -1.0))[-_PEAKS_KEPT:]]
        moved = best[:, None] + step * rng.uniform(-1, 1, (1, 64, box.dimension))
        t = np.concatenate([best, np.clip(moved, 0, 1).reshape(-1, box.dimension)])
        step /= 2
    return best


def _inside(box: Box, t: Floats) -> Floats:
    """Floats inside the box; the exact ends of an interval need not be floats, so keep a little away."""
    low, high = np.array(box.floats()).T
    points: Floats = np.clip(low + (high - low) * t, np.nextafter(low, high), np.nextafter(high, low))
    return points


def _size_at(expr: Expr, box: Box, t: Floats) -> float:
    values = {}
    for k, (name, inside) in enumerate(zip(box.variables, _inside(box, t[None])[0], strict=True)):
        end = box.lower[k] if t[k] == 0 else box.upper[k] if t[k] == 1 else None
        values[name] = arb(float(inside)) if end is None else enclose(end)
    value = enclose(expr, values)
    if not value.is_finite():
        return 0.0
    least = float(value.abs_lower())
    while least > 0 and not arb(least) <= value.abs_lower():
        least = math.nextafter(least, 0)
    return least
