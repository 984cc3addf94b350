"""The notations a formula may be given in, each turned into text that the kernel's parser reads.

Text stays as typed. Expressions of sympy, Python functions and our own trees become text, which is what the model
stores and the proof is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformula.errors import FormulaError
from transformula.formulas.sympy_trees import from_sympy, is_sympy
from transformula.kernel.syntax.expression import Expr

_KINDS = "text, a sympy expression, a Python function, or a list of these"


def as_texts(given: Any, variables: Sequence[str]) -> list[str]:
    """The formulas that were given, as texts.

    Examples
    --------
    >>> as_texts(["x + 1", lambda x, y: x / y], ["x", "y"])
    ['x + 1', 'x/y']
    """
    if isinstance(given, str):
        return [given]
    if isinstance(given, Expr):
        return [str(given)]
    if is_sympy(given):
        return [from_sympy(given, variables).text]
    if callable(given):
        from transformula.formulas.tracing import traced

        return traced(given, variables)
    if not isinstance(given, Sequence):
        raise FormulaError(f"a formula is {_KINDS}, not {type(given).__name__}")
    if any(isinstance(one, Sequence) and not isinstance(one, str) for one in given):
        raise FormulaError(f"formulas are listed one by one: each is {_KINDS.partition(', or')[0]}")
    return [text for one in given for text in as_texts(one, variables)]
