"""The notations a formula may be given in, each turned into text that the kernel's parser reads.

Text stays as typed. Expressions of sympy, Python functions and our own trees become text, which is what the model
stores and the proof is about.

A formula that cannot be read is refused with a hint for its mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from transformula.errors import Advised, FormulaError, Reason
from transformula.formula.evaluation import check_with_numbers
from transformula.formula.from_function import traced
from transformula.formula.from_sympy import from_sympy
from transformula.formula.given_box import box_and_constants, exact_number, formulas_of, is_sympy, names_defined, plain
from transformula.formula.jump_advice import advice_on_jump
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.definitions import ALIASES, JUMPING, JUMPS, PIECEWISE, known
from transformula.kernel.syntax.expression import Expr

#: Names that may stand before a bracket.
FUNCTIONS = (*known(), *JUMPS, *JUMPING, *ALIASES, *PIECEWISE)
WORD = r"[A-Za-z_]\w*"
CALLED = re.compile(rf"(?<![\w.])({WORD})\s*\(([^()]*)", re.ASCII)
NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*\()(?!\w)", re.ASCII)
#: sum(C/(1 + i)**k, k, 1, 5), as in computer algebra: a name of the first term follows it, and two ends.
_OVER = re.compile(
    rf"(?<![\w.])(sum|prod)\((.{{0,300}}?(?<!\w)({WORD})(?!\w).{{0,300}}?),\s*\3\s*,\s*([+-]?\w+)\s*,\s*([+-]?\w+)\s*\)"
)
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
    _check_calls(listed(given), (*box.variables, *constants), names_defined(texts))
    try:
        formula = Formula.of(formulas, box)
    except FormulaError as error:
        from transformula.formula.hints import advice_on

        reason = error.reason
        if reason is Reason.JUMP:
            said, advice = advice_on_jump(error.place, formulas, box, constants)
            reason = Advised(advice)
        elif not (said := advice_on(error, formulas, box, constants)):
            raise
        raise FormulaError(f"{error}: {said}", reason, error.position) from None
    if callable(given):
        check_with_numbers(given, formula, {name: exact_number(text, name) for name, text in constants.items()})
    return formula


def _check_calls(texts: Sequence[str], given: Sequence[str], defined: Sequence[str]) -> None:
    """Refuse a name that has a value and is never read, but called as a function: gamma(x + 1) beside gamma=1..2."""
    whole = " ".join(map(plain, texts))
    for name in {name for name, _ in CALLED.findall(whole)} & {*given, *defined} & {*FUNCTIONS}:
        if NAME.findall(whole).count(name) == defined.count(name):
            raise FormulaError(f"{name}(..) can be read in two ways: write {name}*(..), or give the value another name")
    if over := _OVER.search(whole):
        said = f"{over[1]}(.., {over[3]}, {over[4]}, {over[5]}) has no running index, it takes the terms themselves"
        raise FormulaError(f"{said}: write them one by one, each with a value of {over[3]}")


def listed(given: object) -> list[str]:
    """The formulas that were given as text."""
    given = [given] if isinstance(given, str) else given if isinstance(given, (list, tuple)) else []
    return [text for text in given if isinstance(text, str)]


def names_not_read(given: object) -> list[str]:
    """Named values that no formula reads.

    Examples
    --------
    >>> names_not_read(["k = 3; d = 2*x", "d**2"]), names_not_read("x")
    (['k'], [])
    """
    texts = listed(given)
    read = NAME.findall(" ".join(map(plain, texts)))
    return [name for name in names_defined(texts) if read.count(name) == 1]
