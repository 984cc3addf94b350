"""Expressions as text our own parser reads back, and as sympy for typesetting."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from transformula.formulas.expression import Expr

#: How strongly a text holds together; a quotient is read as one with what stands around it.
_SUM, _QUOTIENT, _PRODUCT, _UNARY, _POWER, _ATOM = range(6)


def to_text(expr: Expr) -> str:
    """Text that parses back to the same tree.

    Examples
    --------
    >>> from transformula.formulas import parse
    >>> to_text(parse("2*x**2 - sin(y)/3", ["x", "y"]))
    '2*x**2 - 1/3*sin(y)'
    """
    return _render(expr)[0]


def _render(expr: Expr) -> tuple[str, int]:
    op, args = expr.op, expr.args
    if op == "number":
        return _number_text(expr.number or Fraction(0))
    if op in ("constant", "variable"):
        return str(expr.value), _ATOM
    if op == "add":
        return _sum_text(args), _SUM
    if op == "mul":
        if args[0].number == -1:
            return "-" + "*".join(_wrap(a, _POWER) for a in args[1:]), _UNARY
        first, strength = _render(args[0])
        if args[0].number is None:
            first, strength = _wrap(args[0], _POWER), _PRODUCT
        return "*".join([first, *(_wrap(a, _POWER) for a in args[1:])]), min(strength, _PRODUCT)
    if op == "div":
        return f"{_wrap(args[0], _PRODUCT)}/{_wrap(args[1], _POWER)}", _QUOTIENT
    if op == "pow":
        return f"{_wrap(args[0], _ATOM)}**{_wrap(args[1], _POWER)}", _POWER
    return f"{op}({', '.join(to_text(a) for a in args)})", _ATOM


def _number_text(value: Fraction) -> tuple[str, int]:
    if value.denominator != 1:
        return str(value), _QUOTIENT
    return str(value), _UNARY if value < 0 else _ATOM


def _sum_text(terms: tuple[Expr, ...]) -> str:
    text = _wrap(terms[0], _QUOTIENT)
    for term in terms[1:]:
        piece = _wrap(term, _QUOTIENT)
        text += f" - {piece[1:]}" if piece.startswith("-") else f" + {piece}"
    return text


def _wrap(expr: Expr, least: int) -> str:
    text, strength = _render(expr)
    return text if strength >= least else f"({text})"


def to_sympy(expr: Expr) -> Any:
    """The same expression in sympy (built from objects; no text is handed over)."""
    import sympy

    by_name = {
        "asin": sympy.asin,
        "acos": sympy.acos,
        "atan": sympy.atan,
        "abs": sympy.Abs,
        "min": sympy.Min,
        "max": sympy.Max,
    }
    args = [to_sympy(a) for a in expr.args]
    if expr.op == "number":
        value = expr.number or Fraction(0)
        return sympy.Rational(value.numerator, value.denominator)
    if expr.op == "constant":
        return sympy.pi if expr.value == "pi" else sympy.E
    if expr.op == "variable":
        return sympy.Symbol(str(expr.value), real=True)
    if expr.op == "add":
        return sympy.Add(*args)
    if expr.op == "mul":
        return sympy.Mul(*args)
    if expr.op == "div":
        return args[0] / args[1]
    if expr.op == "pow":
        return sympy.Pow(*args)
    return (by_name.get(expr.op) or getattr(sympy, expr.op))(*args)
