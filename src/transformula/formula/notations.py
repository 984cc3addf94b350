"""The notations a formula may be given in, each turned into text that the kernel's parser reads.

Text stays as typed. Expressions of sympy, Python functions and our own trees become text, which is what the model
stores and the proof is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformula.errors import FormulaError
from transformula.formula.as_written import formulas_of, names_defined
from transformula.formula.from_function import traced
from transformula.formula.from_sympy import from_sympy
from transformula.formula.given_box import box_and_constants, is_sympy
from transformula.formula.hints import advice_on
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr, substitute

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
        return traced(given, variables)
    if not isinstance(given, Sequence):
        raise FormulaError(f"a formula is {_KINDS}, not {type(given).__name__}")
    if any(isinstance(one, Sequence) and not isinstance(one, str) for one in given):
        raise FormulaError(f"formulas are listed one by one: each is {_KINDS.partition(', or')[0]}")
    return [text for one in given for text in as_texts(one, variables, symbols)]


def given_formula(given: Any, on: Any) -> Formula:
    """The formula that was given, in the kernel's notation; for a known mistake, the error says what to write instead.

    Examples
    --------
    >>> given_formula("d = c*x; d² + 1", "x in [0, 1], c=0.1").typed
    ('(0.1*x)**2 + 1',)
    """
    box, constants = box_and_constants(on)
    texts = as_texts(given, (*box.variables, *constants))
    if clash := set(names_defined(texts)) & set(box.variables):
        name = min(clash)
        said = f"{name} is a variable of the box: give the intermediate value another name"
        raise FormulaError(f"{said}, or hold it in the box with {name}=value")
    formulas = formulas_of(texts, constants)
    try:
        return Formula.of(formulas, box)
    except FormulaError as error:
        if not (said := advice_on(error, formulas, box, constants)):
            raise
        raise FormulaError(f"{error}: {said}", error.reason, error.position) from None


def at_every_position(formula: Formula, positions: int) -> Formula:
    """Copies of a formula, side by side: x and y become x_1, y_1, x_2, y_2 and so on.

    Examples
    --------
    >>> str(at_every_position(Formula.of("sin(x)", "x=0..1"), 2))
    'sin(x_1); sin(x_2)'
    """
    box, names = formula.box, formula.box.variables
    copies = [{n: f"{n}_{p}" for n in names} for p in range(1, positions + 1)]
    swaps = [{ex.variable(a): ex.variable(b) for a, b in renamed.items()} for renamed in copies]
    return Formula(
        tuple(substitute(e, swap) for swap in swaps for e in formula.outputs),
        Box(
            tuple(b for renamed in copies for b in renamed.values()),
            box.lower * positions,
            box.upper * positions,
        ),
    )
