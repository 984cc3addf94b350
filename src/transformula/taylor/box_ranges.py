"""Proven ranges of many expressions on one box: the better of interval and Taylor bounds, remembered."""

from __future__ import annotations

import math

import numpy as np
from flint import arb

from transformula.formulas import expression as ex
from transformula.formulas.additive import narrowest, with_argument
from transformula.formulas.boxes import Box
from transformula.formulas.enclosures import enclose, precision, round_up
from transformula.formulas.expression import Expr, variables_of
from transformula.formulas.parts import in_parts
from transformula.taylor.cells import enclose_range
from transformula.taylor.function_cells import FunctionCells
from transformula.taylor.ranges import UndefinedError, enclose_ends, range_of_node

_BITS = 96
_ARGUMENT = ex.variable("u")
_TOLERANCE = 2e-3
_MAX_BOXES = 6_000
#: Independent parts of an expression that are varied together.
_MAX_PARTS = 4


class BoxRanges:
    """Ranges on a fixed box, as floats rounded outwards."""

    def __init__(self, box: Box) -> None:
        with precision(_BITS):
            self.ends = {
                name: (enclose(low), enclose(high))
                for name, low, high in zip(box.variables, box.lower, box.upper, strict=True)
            }
        self.known: dict[Expr, tuple[float, float]] = {}

    def of(self, expr: Expr) -> tuple[float, float]:
        """An interval that contains the expression's values on the box; infinite if none is found."""
        if expr not in self.known:
            self.known[expr] = self._of(expr)
        return self.known[expr]

    def _of(self, expr: Expr) -> tuple[float, float]:
        with precision(_BITS):
            try:
                values = {n: (a.lower(), b.upper()) for n, (a, b) in self.ends.items()}
                low, high = enclose_ends(expr, values)
                plain = -round_up(-low), round_up(high)
            except UndefinedError:
                plain = -math.inf, math.inf
            names = sorted(variables_of(expr))
            if not names or _each_once(expr):
                return plain  # every variable occurs once: interval arithmetic is already exact
            lower = np.array([-round_up(-self.ends[n][0]) for n in names])
            upper = np.array([round_up(self.ends[n][1]) for n in names])
            tight = enclose_range(expr, names, lower, upper, _TOLERANCE, _MAX_BOXES)
        ends = [plain, tight, self._through(expr), self._of_parts(expr)]
        if expr.op in ("add", "mul", "div", "pow"):
            ends.append(self._from_arguments(expr))
        return max(least for least, _ in ends), min(most for _, most in ends)

    def _from_arguments(self, expr: Expr) -> tuple[float, float]:
        """The range of a sum, product or power from the best that is known of its parts."""
        args = [(arb(low), arb(high)) for low, high in map(self.of, expr.args)]
        if not all(end.is_finite() for pair in args for end in pair):
            return -math.inf, math.inf
        with precision(_BITS):
            try:
                low, high = range_of_node(expr, args, {})
            except UndefinedError:
                return -math.inf, math.inf
            return -round_up(-low), round_up(high)

    def _of_parts(self, expr: Expr) -> tuple[float, float]:
        """The range when repeated sub-expressions, and what stands beside them, vary independently.

        sqrt(A² + C) − A with A and C in many variables is a function of two values with known ranges.
        """
        swapped = in_parts(expr)
        if swapped is None or len(swapped[1]) > _MAX_PARTS:
            return -math.inf, math.inf
        ends = [self.of(part) for part in swapped[1].values()]
        if not all(math.isfinite(low) and math.isfinite(high) for low, high in ends):
            return -math.inf, math.inf
        lower, upper = np.array(ends).T
        return enclose_range(swapped[0], list(swapped[1]), lower, upper, _TOLERANCE, _MAX_BOXES)

    def _through(self, expr: Expr) -> tuple[float, float]:
        """The range of f(v) from that of v, where the expression is a function of one inner value."""
        inner = narrowest(expr)
        if inner is None:
            return -math.inf, math.inf
        low, high = self.of(inner)
        if not (math.isfinite(low) and math.isfinite(high)):
            return -math.inf, math.inf
        return function_range(with_argument(expr, inner, _ARGUMENT), low, high)


def function_range(function: Expr, low: float, high: float) -> tuple[float, float]:
    """Range of a function of u on an interval, as floats rounded outwards."""
    with precision(_BITS):
        try:
            a, b = enclose_ends(function, {"u": (arb(low), arb(high))})
            plain = -round_up(-a), round_up(b)
        except UndefinedError:
            plain = -math.inf, math.inf
        if _each_once(function):
            return plain
    tight = FunctionCells(function, low, high).range
    return max(plain[0], tight[0]), min(plain[1], tight[1])


def _each_once(expr: Expr) -> bool:
    """Whether no variable occurs twice."""
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node.op == "variable":
            if node in seen:
                return False
            seen.add(node)
        stack.extend(node.args)
    return True
