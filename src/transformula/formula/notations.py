"""The notations a formula may be given in, each turned into text that the kernel's parser reads.

Text stays as typed. Expressions of sympy, Python functions and our own trees become text, which is what the model
stores and the proof is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformula.errors import FormulaError
from transformula.formula.from_sympy import from_sympy, is_sympy
from transformula.kernel.syntax.expression import Expr

_KINDS = "text, a sympy expression, a Python function, or a list of these"


def as_texts(given: Any, variables: Sequence[str], symbols: dict[str, Any] | None = None) -> list[str]:
    """The formulas that were given, as texts.

    Parameters
    ----------
    symbols : symbols of sympy that earlier formulas use, by variable: two of one name are refused.

    Examples
    --------
    >>> as_texts(["x + 1", lambda x, y: x / y], ["x", "y"])
    ['x + 1', 'x/y']
    """
    symbols = {} if symbols is None else symbols
    if isinstance(given, str):
        return [given]
    if isinstance(given, Expr):
        return [str(given)]
    if is_sympy(given):
        return [from_sympy(given, variables, symbols).text]
    if callable(given):
        from transformula.formula.from_function import traced

        return traced(given, variables)
    if not isinstance(given, Sequence):
        raise FormulaError(f"a formula is {_KINDS}, not {type(given).__name__}")
    if any(isinstance(one, Sequence) and not isinstance(one, str) for one in given):
        raise FormulaError(f"formulas are listed one by one: each is {_KINDS.partition(', or')[0]}")
    return [text for one in given for text in as_texts(one, variables, symbols)]
