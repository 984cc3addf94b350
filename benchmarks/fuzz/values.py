"""Random formulas as texts, and their values by an evaluator that shares nothing with the package (`truth`)."""

from __future__ import annotations

import ast
import math
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import mpmath
from flint import arb, fmpq

from truth import DIGITS, PRECISE, Undefined

#: Numbers beyond this are not evaluated: mpmath would take minutes for exp(exp(exp(9))).
LARGEST = 1e4
#: Relative slack of comparisons with values of `DIGITS` digits, of which some cancel.
SLACK = mpmath.mpf(10) ** -25
OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip

#: Functions that make rational numbers of rational numbers, exactly: a rounded jump would be at another place.
RATIONAL: dict[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "relu": lambda x: max(x, 0), "floor": math.floor, "ceil": math.ceil,
    "trunc": math.trunc, "round": lambda x: math.floor(x + Fraction(1, 2)), "mod": operator.mod,
    "fmod": lambda x, y: x - y * math.trunc(x / y), "sign": lambda x: (x > 0) - (x < 0),
    "heaviside": lambda x: Fraction(1 + (x > 0) - (x < 0), 2),
}  # fmt: skip


class Unknown(Exception):
    """The evaluator cannot tell the value."""


class Value:
    """A formula's value by its text: rational arithmetic is exact, 0/0 is undefined, ``where`` looks at one piece."""

    def __init__(self, text: str) -> None:
        self.text = text.strip().replace("^", "**")
        self.tree = ast.parse(self.text, mode="eval").body

    def at(self, point: Mapping[str, Fraction], digits: int = DIGITS) -> Any:
        """The value at a rational point; None if the formula is undefined there, `Unknown` if that is unclear."""
        with mpmath.workdps(digits):
            try:
                names = {"pi": +mpmath.pi, "E": +mpmath.e, "e": +mpmath.e, **point}
                return real(self._value(self.tree, names))
            except (Undefined, ZeroDivisionError):
                return None
            except (mpmath.libmp.NoConvergence, ValueError, OverflowError, NotImplementedError) as error:
                raise Unknown from error

    def _value(self, node: Any, names: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return Fraction(ast.get_source_segment(self.text, node) or "")
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Call) and node.func.id == "where":
            test, a, b = node.args
            return self._value(a if self._value(test, names) else b, names)
        values = _alike([self._value(part, names) for part in _parts(node)])
        if isinstance(node, ast.Compare):
            return OPERATIONS[type(node.ops[0])](*values)
        if isinstance(node, ast.UnaryOp):
            return -values[0] if isinstance(node.op, ast.USub) else values[0]
        if isinstance(node, ast.Call):
            return _plain(_called(node.func.id, values))
        if not isinstance(node.op, ast.Pow):
            return _plain(OPERATIONS[type(node.op)](*values))
        if values[0] < 0 and any(isinstance(part, (ast.Name, ast.Call, ast.Pow)) for part in ast.walk(node.right)):
            raise Unknown  # u**v with a computed v is exp(v*log(u)), even where v happens to be whole
        return _plain(_power(*values))


def _parts(node: Any) -> list[Any]:
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    return list(node.args) if isinstance(node, ast.Call) else [node.left, node.right]


def _alike(values: list[Any]) -> list[Any]:
    """All of them rational, or none."""
    return values if all(isinstance(v, Fraction) for v in values) else [real(v) for v in values]


def _called(name: str, values: list[Any]) -> Any:
    if name in RATIONAL and all(isinstance(v, Fraction) for v in values):
        return Fraction(RATIONAL[name](*values))
    if name not in PRECISE:  # another name of a function
        raise Unknown
    return PRECISE[name](*map(real, values))


def _plain(value: Any) -> Any:
    """A real number of moderate size."""
    value = finite(value)
    if abs(value) > LARGEST:
        raise Unknown
    return value


def finite(value: Any) -> Any:
    """A number of mpmath's or a fraction, if it is finite and real."""
    if isinstance(value, mpmath.mpc):
        if abs(value.imag) > SLACK * abs(value):
            raise Undefined
        value = value.real
    if not isinstance(value, Fraction) and not mpmath.isfinite(value):
        raise Undefined
    return value


def _power(base: Any, by: Any) -> Any:
    if isinstance(base, Fraction) and by == int(by) and abs(by) * base.denominator.bit_length() < 10_000:
        return base ** int(by)
    return PRECISE["pow"](real(base), real(by))


def formula(rng: random.Random, depth: int, leaves: Sequence[str], functions: Sequence[str]) -> str:
    """A random formula; its sums, products and powers stand in brackets."""

    def inner() -> str:
        return formula(rng, depth - 1, leaves, functions)

    kind = rng.random()
    if depth == 0 or kind < 0.1:
        return rng.choice(leaves)
    if kind < 0.32:
        return f"({inner()} {rng.choice('+-')} {inner()})"
    if kind < 0.5:
        return f"({inner()}{rng.choice('*/')}{inner()})"
    if kind < 0.66:
        by = rng.choice(("2", "3", "-1", "-2", "1/2", "3/2", "1/3", "2/3", "-1/2", "0", inner()))
        return f"({inner()})**({by})"
    if kind < 0.93:
        return f"{rng.choice(functions)}({inner()})"
    return f"{rng.choice(('min', 'max'))}({inner()}, {inner()})"


def put(template: str, **parts: str) -> str:
    """A template with formulas, in brackets, for its single letters."""
    text = ""
    for k, char in enumerate(template):
        alone = not (template[k - 1 : k].isalpha() or template[k + 1 : k + 2].isalpha())
        text += f"({parts[char]})" if char in parts and alone else char
    return text


def interval(rng: random.Random) -> tuple[Fraction, Fraction]:
    """A random interval of floats, often with an end where functions change."""
    low = Fraction(rng.choice((0, 1, -1, rng.randint(-40, 40))), rng.choice((1, 1, 8)))
    return low, low + Fraction(rng.randint(1, 40), rng.choice((1, 8, 128)))


def inside(rng: random.Random, ends: tuple[Fraction, Fraction]) -> Fraction:
    """A point of an interval: an end, the middle, or any."""
    return ends[0] + (ends[1] - ends[0]) * rng.choice(
        (Fraction(0), Fraction(1), Fraction(1, 2), Fraction(rng.random()))
    )


def rational(value: Fraction) -> fmpq:
    return fmpq(value.numerator, value.denominator)


def real(value: Any) -> Any:
    """A rational number or the exact middle of a ball, as mpmath's."""
    if isinstance(value, arb):
        mantissa, exponent = value.mid().man_exp()
        return mpmath.ldexp(mpmath.mpf(int(mantissa)), int(exponent))
    if isinstance(value, (fmpq, Fraction)):
        above, below = (value.p, value.q) if isinstance(value, fmpq) else (value.numerator, value.denominator)
        return mpmath.mpf(int(above)) / int(below)
    return mpmath.mpf(value)


def between(low: Any, value: Any, high: Any, slack: Any = SLACK) -> bool:
    """Whether a value lies between two ends, up to the evaluator's own error."""
    room = slack * (1 + abs(value))
    return bool(real(low) - room <= value <= real(high) + room)


def in_ball(ball: arb, value: Any, slack: Any = SLACK) -> bool:
    return between(ball.lower(), value, ball.upper(), slack)
