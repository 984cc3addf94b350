"""Coq terms: rational literals, the kernel's expressions, typed formulas and the conditions that total functions hide.

The theorem's formula is made from the typed text by Python's own parser, node by node, so that it reads like what was
typed; `transcription` reads it back. Expressions inside the proof come from the kernel's tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from flint import arb

from transformula.errors import ExportError
from transformula.kernel.syntax.expression import Expr

#: Functions of one argument that Coq's reals have and Interval can bound, some of them through exp.
FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "atan": "atan", "exp": "exp", "log": "ln", "sqrt": "sqrt",
    "abs": "Rabs", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh",
}  # fmt: skip
_ALIASES = {"ln": "log"}
_SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_WORD = re.compile(r"\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[A-Za-z_]\w*", re.ASCII)
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
    """An expression of the kernel; hyperbolic functions are written with exp, which Interval knows."""
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
    product = f"({base} ^ {whole})" if whole > 1 or not half else base
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
    return f"({FUNCTIONS[name]} ({inside}))"


class TypedFormula:
    """A formula as typed: its Coq term, and the conditions under which it is defined."""

    def __init__(self, text: str, variables: Sequence[str]) -> None:
        self.variables = frozenset(variables)
        self.conditions: list[str] = []
        marked = _WORD.sub(self._marked, text.replace("^", "**"))
        try:
            tree = ast.parse(marked.strip(), mode="eval").body
        except (SyntaxError, RecursionError, ValueError):
            raise ExportError(f"the formula {text[:60]!r} cannot be written for Coq") from None
        self.source = marked.strip()
        self.term = self._term(tree)

    def _marked(self, found: re.Match[str]) -> str:
        return f"v_{found[0]}" if found[0] in self.variables else found[0]

    def _number(self, node: ast.expr) -> Fraction | None:
        """The value of a number, of minus a number and of a quotient of numbers."""
        if isinstance(node, ast.Constant):
            return Fraction(str(ast.get_source_segment(self.source, node)))
        if isinstance(node, ast.UnaryOp) and (inner := self._number(node.operand)) is not None:
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            top, bottom = self._number(node.left), self._number(node.right)
            return top / bottom if top is not None and bottom else None
        return None

    def _term(self, node: ast.expr) -> str:
        if (number := self._number(node)) is not None:
            return literal(number)
        if isinstance(node, ast.Name):
            return node.id if node.id.startswith("v_") else {"pi": "PI"}.get(node.id, "(exp (1))")
        if isinstance(node, ast.UnaryOp):
            inside = self._term(node.operand)
            return f"(- {inside})" if isinstance(node.op, ast.USub) else inside
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(_ALIASES.get(node.func.id, node.func.id), [self._term(a) for a in node.args])
        raise ExportError("a formula with cases or comparisons cannot be written for Coq yet")

    def _binary(self, node: ast.BinOp) -> str:
        left = self._term(node.left)
        if isinstance(node.op, ast.Pow):
            return self._power(left, node.right)
        right = self._term(node.right)
        if isinstance(node.op, ast.Div) and self._number(node.right) is None:
            self.conditions.append(f"{right} <> 0")
        return f"({left} {_SYMBOLS[type(node.op)]} {right})"

    def _power(self, base: str, exponent: ast.expr) -> str:
        by = self._number(exponent)
        if by is None or by.denominator > 2:
            raised = self._term(exponent)
            self.conditions.append(f"0 < {base}")
            return f"(Rpower ({base}) ({raised}))"
        whole, half = divmod(abs(by), 1)
        product = f"({base} ^ {whole})"
        if half:
            self.conditions.append(f"0 <= {base}")
            product = f"({product} * (sqrt ({base})))" if whole else f"(sqrt ({base}))"
        if by < 0:
            self.conditions.append(f"{product} <> 0")
            return f"(1 / {product})"
        return product

    def _call(self, name: str, parts: list[str]) -> str:
        if name in ("min", "max"):
            return _nested("Rmin" if name == "min" else "Rmax", parts)
        if name not in FUNCTIONS or len(parts) != 1:
            raise ExportError(f"Coq's Interval library cannot bound {name}: no theorem can be written")
        if name == "log":
            self.conditions.append(f"0 < {parts[0]}")
        if name == "sqrt":
            self.conditions.append(f"0 <= {parts[0]}")
        if name == "tan":
            self.conditions.append(f"(cos ({parts[0]})) <> 0")
        return f"({FUNCTIONS[name]} ({parts[0]}))"
