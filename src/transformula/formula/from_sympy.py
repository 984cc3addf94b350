"""Expressions of sympy as formulas, node by node: they are not printed and parsed, and nothing is evaluated.

sympy is not imported here: a caller with such an expression has imported it.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Collection
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from transformula.errors import BoxError, FormulaError
from transformula.formula.formula_text import ONE, FormulaText, call, number_text

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Constants, and how to write them where a variable has their name.
_CONSTANTS = {
    "Pi": ("pi", call("acos", FormulaText("-1"))),
    "Exp1": ("E", call("exp", ONE)),
}
#: sympy's names of functions that the language does not know.
_NAMES = {"elliptic_k": "ellipk", "elliptic_e": "ellipe"}
#: Number of distinct sub-expressions of one expression.
MAX_NODES = 100_000


def from_sympy(
    expr: Any, variables: Collection[str] | None = None, symbols: dict[str, Any] | None = None
) -> FormulaText:
    """Convert an expression to a formula.

    Heads without a counterpart are refused by name, and so are two symbols that would become one variable.

    Parameters
    ----------
    variables : names of the box, so that symbols and constants of the same name are told apart; None if unknown.
    symbols : variable → symbol, as earlier formulas have them; those of this one are added.

    Examples
    --------
    >>> import sympy
    >>> x, y = sympy.symbols("x y")
    >>> from_sympy(sympy.sqrt(x) * sympy.sin(y) / 3 + y * sympy.pi).text
    'pi*y + sqrt(x)*sin(y)/3'
    """
    done: dict[Any, FormulaText] = {}
    symbols = {} if symbols is None else symbols
    stack: list[tuple[Any, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready:
            done[node] = _joined(node, done)
            continue
        if len(done) > MAX_NODES:
            raise FormulaError(f"the sympy expression has over {MAX_NODES} parts: too many")
        _check(node)
        if not node.args:
            done[node] = _atom(node, variables, symbols)
        else:
            stack.append((node, True))
            stack.extend((a, False) for a in node.args)
    return done[expr]


def _check(node: Any) -> None:
    """Refuse relations, conditions, sets, tuples, matrices and derivatives: only real expressions are read."""
    sympy = sys.modules["sympy"]
    heads = (sympy.Atom, sympy.Add, sympy.Mul, sympy.Pow, sympy.Function, sympy.Max, sympy.Min)
    known = isinstance(node, sympy.Expr) and isinstance(node, heads)
    if not known or not all(isinstance(a, sympy.Expr) for a in node.args):
        raise _refused(node)


def _refused(node: Any) -> FormulaError:
    return FormulaError(f"sympy's {type(node).__name__} cannot be compiled")


def _atom(node: Any, variables: Collection[str] | None, symbols: dict[str, Any]) -> FormulaText:
    name = type(node).__name__
    if node.is_Symbol:
        found = _symbol(str(node.name), variables)
        if (other := symbols.setdefault(found.text, node)) != node:
            raise FormulaError(_merged(found.text, other, node))
        return found
    if name in _CONSTANTS:
        ours, otherwise = _CONSTANTS[name]
        return otherwise if variables is not None and ours in variables else FormulaText(ours)
    if name == "GoldenRatio":
        return (ONE + call("sqrt", FormulaText("5"))) / FormulaText("2")
    if node.is_Rational and node.is_finite:
        return _exact(_fraction(node))
    if node.is_Float and node.is_finite:
        return _decimal(str(node))
    raise _refused(node)


def _merged(name: str, one: Any, other: Any) -> str:
    if str(one.name) != str(other.name):
        return f"the symbols {one.name} and {other.name} would both become the variable {name}: rename one of them"
    return f"two different symbols are called {name} (their assumptions differ): use one of them, or rename one"


def _exact(value: Fraction | Decimal | int) -> FormulaText:
    found = number_text(value)
    assert found is not None
    return found


def _fraction(node: Any) -> Fraction:
    return Fraction(int(node.p), int(node.q))


def _decimal(text: str) -> FormulaText:
    """The digits that sympy prints, all of which it holds, without zeros at the end."""
    return _exact(Decimal(text).normalize())


def _symbol(name: str, variables: Collection[str] | None) -> FormulaText:
    short = re.sub(r"[{}\\\s]", "", name)
    if not _NAME.fullmatch(short):
        raise FormulaError(f"the symbol {name[:40]!r} is not a valid variable name: use letters, digits and _")
    if variables is not None and short not in variables:
        raise BoxError(f"the box has no interval for {short}")
    return FormulaText(short)


def _joined(node: Any, done: dict[Any, FormulaText]) -> FormulaText:
    args = [done[a] for a in node.args]
    if node.is_Add:
        return reduce(operator.add, args)
    if node.is_Mul:
        return _product(node, done)
    if node.is_Pow:
        return _power(node.args[1], *args)
    name = type(node).__name__
    if name == "log" and len(args) == 2:
        logarithm = call("log", args[0])
        return logarithm if args[1].text in ("E", "exp(1)") else logarithm / call("log", args[1])
    if name == "Heaviside" and len(args) == 2 and args[1].text == "1/2":
        return call("heaviside", args[0])
    if name == "polygamma" and node.args[0] == 0:
        return call("digamma", args[1])
    if name in ("exp_polar", "jn", "yn") or not _NAME.fullmatch(name):  # its jn is spherical
        raise _refused(node)
    return call(_NAMES.get(name, name), *args)


def _product(node: Any, done: dict[Any, FormulaText]) -> FormulaText:
    """Factors above and below the line: sympy has powers only."""
    above: list[FormulaText] = []
    below: list[FormulaText] = []
    minus = False
    for factor in node.args:
        if factor.is_Rational and factor.is_finite:
            minus ^= bool(factor.p < 0)
            above += [_exact(abs(int(factor.p)))] if abs(factor.p) != 1 else []
            below += [_exact(int(factor.q))] if factor.q != 1 else []
        elif factor.is_Pow and factor.args[1].is_Rational and factor.args[1].is_negative:
            below.append(_power(-factor.args[1], done[factor.args[0]]))
        else:
            above.append(done[factor])
    product = reduce(operator.mul, above) if above else ONE
    product = product / reduce(operator.mul, below) if below else product
    return -product if minus else product


def _power(exponent: Any, base: FormulaText, by: FormulaText | None = None) -> FormulaText:
    if exponent.is_Rational and exponent.is_finite:
        if exponent == 1:
            return base
        if exponent.p == 1 and exponent.q == 2:
            return call("sqrt", base)
        if exponent.p == -1 and exponent.q == 1:
            return ONE / base
        by = number_text(_fraction(exponent))
    assert by is not None
    return base**by
