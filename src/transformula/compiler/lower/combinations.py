"""Linear forms of wires with their meanings: the expressions in the inputs that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from transformula.kernel.structures.stored_circuit import LinearForm
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr

#: The variable of a table's function.
ARGUMENT = ex.variable("u")
ZERO, ONE = ex.number(0), ex.number(1)


@dataclass(frozen=True)
class Combination:
    """A linear form of wires, and its meaning."""

    form: LinearForm
    meaning: Expr

    @property
    def is_constant(self) -> bool:
        """Whether the form reads no wires."""
        return not self.form.terms


def constant_of(value: Expr) -> Combination:
    """A constant as a form without wires."""
    return Combination(LinearForm((), value), value)


def combined(parts: Sequence[tuple[Expr, Combination]], meaning: Expr, plus: Expr = ZERO) -> Combination:
    """Σ factor·combination + plus as one combination."""
    forms = [(factor, part.form) for factor, part in parts]
    form = LinearForm.sum([*forms, (ONE, LinearForm((), plus))])
    terms = [(wire, collected(coefficient)) for wire, coefficient in form.terms]
    kept = tuple((wire, coefficient) for wire, coefficient in terms if coefficient.number != 0)
    return Combination(LinearForm(kept, collected(form.constant)), meaning)


def collected(constant: Expr) -> Expr:
    """A constant with equal terms of its sums added up, so that pi − pi is 0.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(collected(parse("pi/2 - 1 + 2*pi - (pi - 3)", ())))
    '3/2*pi + 2'
    """
    if constant.number is not None:
        return constant
    terms: dict[Expr, Fraction] = {}
    stack = [(Fraction(1), constant)]
    while stack:
        factor, node = stack.pop()
        if node.op == "add":
            stack += [(factor, a) for a in reversed(node.args)]
        elif node.number is not None:
            terms[ONE] = terms.get(ONE, Fraction(0)) + factor * node.number
        elif node.op == "mul" and node.args[0].number is not None:
            stack.append((factor * node.args[0].number, ex.mul(*node.args[1:])))
        elif node.op == "div" and (number := _leading(node.args[0])) not in (None, 1):
            above = ex.mul(ex.number(1 / number), node.args[0])
            stack.append((factor * number, ex.div(above, node.args[1])))
        else:
            terms[node] = terms.get(node, Fraction(0)) + factor
    return ex.add(*(ex.mul(ex.number(f), node) for node, f in terms.items() if f))


def _leading(expr: Expr) -> Fraction | None:
    """The number that a product starts with, or is; None if there is none, or for zero."""
    return (expr.number if expr.op != "mul" else expr.args[0].number) or None
