"""Ranges of formulas on boxes: exact intervals, corners, Taylor models and power series contain all values."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, fmpq

from fuzz.cases import Case, fuzzer
from fuzz.values import Unknown, Value, between, formula, inside, interval, rational
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import SeriesOf, from_float
from transformula.kernel.enclosures.expression_ranges import enclose_ranges
from transformula.kernel.enclosures.intervals import UndefinedError, corner_range, try_range
from transformula.kernel.exceptions import SingularError, TransformulaError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.parsing import parse

FUNCTIONS = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "sqrt", "abs", "sinc", "cbrt",
    "asinh", "acosh", "atanh", "erf", "erfc", "gamma", "lgamma", "digamma", "zeta", "lambertw", "airyai", "Si", "Ci",
    "Ei", "li", "fresnels", "ellipk", "ellipe", "logit", "j0", "i1", "k0", "y1", "softplus", "gelu", "sigmoid",
)  # fmt: skip
LEAVES = ("x", "y", "x", "y", "x", "y", "1", "2", "1/2", "1/3", "-1", "pi", "E", "3/2", "0.1")
NAMES = ("x", "y")
ORDER = 4
Box = dict[str, tuple[Fraction, Fraction]]


@fuzzer
def ranges(case: Case) -> None:
    """Enclose a formula on a box in three ways, and along one line as a power series."""
    rng = case.rng
    text = formula(rng, rng.randint(1, 4), LEAVES, FUNCTIONS)
    box = {name: interval(rng) for name in NAMES}
    case.given = f"{text} on {', '.join(f'{n}={a}..{b}' for n, (a, b) in box.items())}"
    try:
        expr = parse(text, NAMES)
        found = _enclosed(expr, box)
    except TransformulaError:
        return
    value = Value(text)
    for _ in range(5 if found else 0):
        point = {name: inside(rng, ends) for name, ends in box.items()}
        try:
            wanted = value.at(point)
        except Unknown:
            continue
        for kind, (low, high) in found.items():
            if wanted is None and kind == "models":  # they hold where the formula is defined
                continue
            holds = wanted is not None and between(low, wanted, high)
            case.check(f"a range by {kind} contains the values", holds, f"{wanted} at {point}, not in {low}, {high}")
    _check_series(case, expr, value, box)


def _enclosed(expr: ex.Expr, box: Box) -> dict[str, tuple[fmpq, fmpq]]:
    """The range by each method that finds one."""
    exact = {name: (rational(a), rational(b)) for name, (a, b) in box.items()}
    found = {}
    if (ends := try_range(expr, exact)) is not None:
        found["intervals"] = ends
    with suppress(UndefinedError):
        found["corners"] = corner_range(expr, exact)
    lower, upper = (np.array([[float(box[name][k])] for name in NAMES]) for k in (0, 1))
    low, high = enclose_ranges(expr, NAMES, lower, upper, ORDER)
    if np.isfinite(low[0]) and np.isfinite(high[0]):
        found["models"] = from_float(float(low[0])), from_float(float(high[0]))
    return found


def _check_series(case: Case, expr: ex.Expr, value: Value, box: Box) -> None:
    """The series in x at the lower end of y, and its remainder."""
    (low, high), y = box["x"], box["y"][0]
    middle, radius = (low + high) / 2, (high - low) / 2
    try:
        line = SeriesOf(ex.substitute(expr, {ex.variable("y"): ex.number(y)}), "x")
        with precision(100):
            terms, rest = line.expand(arb(rational(middle)), arb(rational(radius)), ORDER)
    except (SingularError, TransformulaError):
        return
    for t in (Fraction(-1), Fraction(1), Fraction(case.rng.uniform(-1, 1))):
        point = {"x": middle + radius * t, "y": y}
        try:
            wanted: Any = value.at(point)
        except Unknown:
            continue
        with precision(300):
            near = sum((c * arb(rational(t**k)) for k, c in enumerate(terms)), arb(0, rest.upper()))
        holds = wanted is not None and between(near.lower(), wanted, near.upper())
        case.check("a series is as close as it says", holds, f"{wanted} at {point}, not in {near}")
