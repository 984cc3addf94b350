"""Coq terms: rational literals, and the kernel's expressions.

The theorem's formula is written by `transcription`; expressions inside the proof come from the kernel's tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from flint import arb

from transformula.errors import ExportError
from transformula.kernel.syntax.expression import Expr

#: Functions of one argument that Coq's reals have and Interval can bound, some of them through exp.
FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "atan": "atan", "exp": "exp", "log": "ln", "sqrt": "sqrt",
    "abs": "Rabs", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh", "asin": "asin", "acos": "acos",
}  # fmt: skip
HALF = Fraction(1, 2)


def literal(value: Fraction) -> str:
    """A rational as a real number of Coq."""
    top = str(value.numerator) if value >= 0 else f"(- {-value.numerator})"
    return top if value.denominator == 1 else f"({top} / {value.denominator})"


def quotient(value: Fraction) -> str:
    """A rational as a number of Coq's type Q."""
    return f"({value.numerator} # {value.denominator})"


def exact(ball: arb) -> Fraction:
    """The centre of a ball."""
    mantissa, exponent = ball.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def above(value: Fraction, digits: int = 4) -> Fraction:
    """A decimal of few digits that is at least the value."""
    if value == 0:
        return Fraction(0)
    size = abs(value)
    power = len(str(size.numerator)) - len(str(size.denominator)) - digits
    scale = Fraction(10) ** power
    return -((-value) // scale) * scale


def below(value: Fraction, digits: int = 4) -> Fraction:
    """A decimal of few digits that is at most the value."""
    return -above(-value, digits)


def term(expr: Expr, names: Mapping[str, str]) -> str:
    """An expression of the kernel; hyperbolic functions are written with exp, asin and acos with atan."""
    if expr.number is not None:
        return literal(expr.number)
    if expr.op == "constant":
        return "PI" if expr.value == "pi" else "(exp 1)"
    if expr.op == "variable":
        return names[str(expr.value)]
    parts = [term(argument, names) for argument in expr.args]
    if expr.op in ("add", "mul"):
        return "(" + (" + " if expr.op == "add" else " * ").join(parts) + ")"
    if expr.op == "div":
        return f"({parts[0]} / {parts[1]})"
    if expr.op == "pow":
        return _kernel_power(parts[0], parts[1], expr.args[1].number)
    if expr.op in ("min", "max"):
        return _nested("Rmin" if expr.op == "min" else "Rmax", parts)
    return _applied(expr.op, parts[0])


def _kernel_power(base: str, exponent: str, by: Fraction | None) -> str:
    if by is None or by.denominator > 2:
        return f"(exp ({exponent} * ln ({base})))"
    whole, half = divmod(abs(by), 1)
    product = base if whole == 1 else f"({base} ^ {whole})"
    if half:
        product = f"({product} * sqrt ({base}))" if whole else f"(sqrt ({base}))"
    return f"(/ {product})" if by < 0 else product


def _nested(name: str, parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({name} ({parts[0]}) ({_nested(name, parts[1:])}))"


def _applied(name: str, inside: str) -> str:
    if name not in FUNCTIONS:
        raise ExportError(f"Coq's Interval library cannot bound {name.partition(':')[0]}: no theorem can be written")
    if name == "tanh":
        return f"(1 - 2 / (exp (2 * {inside}) + 1))"
    if name in ("sinh", "cosh"):
        return f"((exp ({inside}) {'-' if name == 'sinh' else '+'} exp (- ({inside}))) / 2)"
    if name in ("asin", "acos"):
        return f"({'PI / 2 - ' if name == 'acos' else ''}2 * atan ({inside} / (1 + sqrt (1 - {inside} * {inside}))))"
    return f"({FUNCTIONS[name]} ({inside}))"
