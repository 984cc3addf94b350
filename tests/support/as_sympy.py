"""Expressions as sympy objects: sympy is the outside judge of what a formula means."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from transformula.kernel.syntax.expression import Expr


def to_sympy(expr: Expr) -> Any:
    """The same expression in sympy (built from objects; no text is handed over)."""
    import sympy

    by_name = {
        "abs": sympy.Abs,
        "lgamma": sympy.loggamma,
        "lambertw": sympy.LambertW,
        "ellipk": sympy.elliptic_k,
        "ellipe": sympy.elliptic_e,
        "min": sympy.Min,
        "max": sympy.Max,
        "xlogx": lambda u: u * sympy.log(u),
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
    name, _, order = expr.op.partition(":")
    if order:
        args = [sympy.Rational(order), *args]
    return (by_name.get(name) or getattr(sympy, name))(*args)
