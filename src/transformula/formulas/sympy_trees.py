"""Expressions of sympy as formulas, by their structure: never through their text, and nothing is evaluated.

sympy is not imported here: whoever has such an expression has imported it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from transformula.errors import BoxError, FormulaError
from transformula.formulas import written as w
from transformula.formulas.written import Written

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Constants, and how to write them where a variable has their name.
_CONSTANTS = {
    "Pi": ("pi", w.call("acos", Written("-1"))),
    "Exp1": ("E", w.call("exp", Written("1"))),
}
#: sympy's names of functions, where ours differ.
_NAMES = {"Abs": "abs", "Min": "min", "Max": "max", "loggamma": "lgamma", "LambertW": "lambertw"}
_NAMES |= {"elliptic_k": "ellipk", "elliptic_e": "ellipe"}
#: Distinct sub-expressions of one expression.
MAX_NODES = 100_000


def is_sympy(given: object) -> bool:
    """Whether something is an expression of sympy."""
    sympy = sys.modules.get("sympy")
    return sympy is not None and isinstance(given, sympy.Basic)


def from_sympy(expr: Any, variables: Collection[str] | None = None) -> Written:
    """The formula of an expression; heads that have no counterpart are refused by name.

    Parameters
    ----------
    variables : names of the box, so that symbols and constants of the same name are told apart; None if unknown.

    Examples
    --------
    >>> import sympy
    >>> x, y = sympy.symbols("x y")
    >>> from_sympy(sympy.sqrt(x) * sympy.sin(y) / 3 + y * sympy.pi).text
    'pi*y + sqrt(x)*sin(y)/3'
    """
    done: dict[Any, Written] = {}
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
            done[node] = _atom(node, variables)
        else:
            stack.append((node, True))
            stack.extend((a, False) for a in node.args)
    return done[expr]


def _check(node: Any) -> None:
    """Refuse what is no real-valued expression: relations, conditions, sets, tuples, matrices, derivatives."""
    sympy = sys.modules["sympy"]
    heads = (sympy.Atom, sympy.Add, sympy.Mul, sympy.Pow, sympy.Function, sympy.Max, sympy.Min)
    known = isinstance(node, sympy.Expr) and isinstance(node, heads)
    if not known or not all(isinstance(a, sympy.Expr) for a in node.args):
        raise _refused(node)


def _refused(node: Any) -> FormulaError:
    return FormulaError(f"sympy's {type(node).__name__} cannot be compiled")


def _atom(node: Any, variables: Collection[str] | None) -> Written:
    name = type(node).__name__
    if node.is_Symbol:
        return _symbol(str(node.name), variables)
    if name in _CONSTANTS:
        ours, otherwise = _CONSTANTS[name]
        return otherwise if variables is not None and ours in variables else Written(ours)
    if name == "GoldenRatio":
        return w.over(w.plus(Written("1"), w.call("sqrt", Written("5"))), Written("2"))
    if node.is_Rational and node.is_finite:
        found = w.number(_fraction(node))
    elif node.is_Float and node.is_finite:
        return _decimal(str(node))
    else:
        raise _refused(node)
    assert found is not None
    return found


def _fraction(node: Any) -> Fraction:
    return Fraction(int(node.p), int(node.q))


def _decimal(text: str) -> Written:
    """The digits that sympy prints, all of which it holds, without zeros at the end."""
    found = w.number(Decimal(text).normalize())
    assert found is not None
    return found


def _symbol(name: str, variables: Collection[str] | None) -> Written:
    short = re.sub(r"[{}\\\s]", "", name)
    if not _NAME.fullmatch(short):
        raise FormulaError(f"the symbol {name[:40]!r} is not a valid variable name: use letters, digits and _")
    if variables is not None and short not in variables:
        raise BoxError(f"the box has no interval for {short}")
    return Written(short)


def _joined(node: Any, done: dict[Any, Written]) -> Written:
    args = [done[a] for a in node.args]
    if node.is_Add:
        return reduce(w.plus, args)
    if node.is_Mul:
        return _product(node, done)
    if node.is_Pow:
        return _power(node.args[1], *args)
    name = type(node).__name__
    if name == "log" and len(args) == 2:
        return w.call("log", args[0]) if args[1].text in ("E", "exp(1)") else w.over(*(w.call("log", a) for a in args))
    if name == "Heaviside" and len(args) == 2 and args[1].text == "1/2":
        return w.call("heaviside", args[0])
    if name == "polygamma" and node.args[0] == 0:
        return w.call("digamma", args[1])
    if name == "exp_polar" or not _NAME.fullmatch(name):
        raise _refused(node)
    return w.call(_NAMES.get(name, name), *args)


def _product(node: Any, done: dict[Any, Written]) -> Written:
    """Factors above and below the line: sympy has powers only."""
    above: list[Written] = []
    below: list[Written] = []
    minus = False
    for factor in node.args:
        if factor.is_Rational and factor.is_finite:
            minus ^= bool(factor.p < 0)
            above += [_whole(abs(factor.p))] if abs(factor.p) != 1 else []
            below += [_whole(factor.q)] if factor.q != 1 else []
        elif factor.is_Pow and factor.args[1].is_Rational and factor.args[1].is_negative:
            below.append(_power(-factor.args[1], done[factor.args[0]]))
        else:
            above.append(done[factor])
    product = reduce(w.times, above) if above else Written("1")
    product = w.over(product, reduce(w.times, below)) if below else product
    return w.negative(product) if minus else product


def _whole(value: Any) -> Written:
    found = w.number(int(value))
    assert found is not None
    return found


def _power(exponent: Any, base: Written, by: Written | None = None) -> Written:
    if exponent.is_Rational and exponent.is_finite:
        if exponent == 1:
            return base
        if exponent.p == 1 and exponent.q == 2:
            return w.call("sqrt", base)
        if exponent.p == -1 and exponent.q == 1:
            return w.over(Written("1"), base)
        by = w.number(_fraction(exponent))
    assert by is not None
    return w.power(base, by)
