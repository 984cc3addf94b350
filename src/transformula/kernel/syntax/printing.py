"""Expressions as text that our own parser reads back."""

from __future__ import annotations

from fractions import Fraction

from transformula.kernel.syntax.expression import Expr, fold

#: How strongly a text holds together; a quotient is read as one with what stands around it.
_SUM, _QUOTIENT, _PRODUCT, _UNARY, _POWER, _ATOM = range(6)
_Text = tuple[str, int]
#: How much of an expression a message shows.
_SHORT = 300


def to_text(expr: Expr) -> str:
    """Text that parses back to the same tree."""
    return fold(expr, _render)[0]


def short_text(expr: Expr) -> str:
    """Text for a message: long expressions are cut, in time linear in the distinct nodes."""

    def cut(node: Expr, args: list[_Text]) -> _Text:
        text, strength = _render(node, args)
        return (text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."), strength

    return fold(expr, cut)[0]


def _wrap(inner: _Text, least: int) -> str:
    return inner[0] if inner[1] >= least else f"({inner[0]})"


def _render(expr: Expr, args: list[_Text]) -> _Text:
    op = expr.op
    if op == "number":
        return _number_text(expr.number or Fraction(0))
    if op in ("constant", "variable"):
        return str(expr.value), _ATOM
    if op == "add":
        first, *more = (_wrap(term, _QUOTIENT) for term in args)
        kept = (f"({p})" if p[0] == "-" and a.op == "div" else p for p, a in zip(more, expr.args[1:], strict=True))
        return first + "".join(f" - {p[1:]}" if p[0] == "-" else f" + {p}" for p in kept), _SUM
    if op == "mul":
        rest, scale = "*".join(_wrap(a, _POWER) for a in args[1:]), expr.args[0].number
        if scale == -1:
            return "-" + rest, _UNARY
        if scale is None:
            return f"{_wrap(args[0], _POWER)}*{rest}", _PRODUCT
        return f"{args[0][0]}*{rest}", min(args[0][1], _PRODUCT)
    if op == "div":
        return f"{_wrap(args[0], _PRODUCT)}/{_wrap(args[1], _POWER)}", _QUOTIENT
    if op == "pow":
        return f"{_wrap(args[0], _ATOM)}**{_wrap(args[1], _POWER)}", _POWER
    name, _, order = op.partition(":")
    return f"{name}({', '.join([order] * bool(order) + [text for text, _ in args])})", _ATOM


def _number_text(value: Fraction) -> _Text:
    return str(value), _QUOTIENT if value.denominator != 1 else _UNARY if value < 0 else _ATOM
