r"""Formulas in LaTeX, read by conventions that leave no doubt; if books differ, the formula is refused.

tokens → tree (brackets and arguments) → text that the kernel's parser reads. docs/notations.md lists the conventions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from transformula.errors import FormulaError
from transformula.formula.formula_text import FormulaText
from transformula.formula.latex.latex_names import LatexNames, name_text
from transformula.formula.latex.latex_reader import LatexReader
from transformula.formula.latex.latex_tokens import LatexNode, bare_formula, tokens_of
from transformula.formula.latex.latex_tree import LatexTreeBuilder, flat, split

__all__ = ["from_latex", "texts_of"]

#: Characters of the source that a refusal repeats.
_SHOWN = 60
_ADVICE = "give the right side alone"


def from_latex(text: str, variables: Collection[str] | None = None) -> str:
    r"""Convert a formula in LaTeX to our own notation.

    Parameters
    ----------
    text : str
        Such as ``\frac{\sin x}{1 + x^2}``, with or without dollar signs and a left side such as ``f(x) =``.
    variables : collection of str, optional
        The names of the box. With them, other names are refused here, and letters side by side that are one of them.

    Returns
    -------
    str

    Raises
    ------
    transformula.errors.FormulaError
        Books read the formula in more than one way (the message spells them out), a command is not known, or the
        formula is too long or too deep.
    transformula.errors.BoxError
        A variable is none of the box.

    Examples
    --------
    >>> from_latex(r"\frac{\sin 2x}{1 + x_{1}^2}")
    'sin(2*x)/(1 + x_1**2)'
    >>> from_latex(r"\ln x / x")
    Traceback (most recent call last):
        ...
    transformula.kernel.exceptions.FormulaError: cannot read the LaTeX \ln x / x: nothing says where the argument of \ln
    ends: write \ln(x) / x or \ln(x / x)
    """
    return texts_of([text], variables)[0]


def texts_of(given: Sequence[str], variables: Collection[str] | None = None) -> list[str]:
    """Several formulas of the same variables, each as `from_latex` reads it."""
    names = LatexNames(variables)
    return [_text(one, names) for one in given]


def _text(given: str, names: LatexNames) -> str:
    if not isinstance(given, str):
        raise FormulaError(f"a formula in LaTeX is text, not {type(given).__name__}")
    try:
        source = bare_formula(given)
        tokens = tokens_of(source)
        nodes = LatexTreeBuilder(tokens).tree()
        names.note_words(tokens)
        return _right_side(flat(nodes), LatexReader(source, names)).text
    except FormulaError as error:
        raise FormulaError(f"cannot read the LaTeX {_shown(given)}: {error}") from None


def _shown(text: str) -> str:
    """The beginning of a text on one line, without characters that a terminal would obey."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text[: 4 * _SHOWN].split()))
    return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."


def _right_side(nodes: Sequence[LatexNode], reader: LatexReader) -> FormulaText:
    """The formula, without a left side such as ``f(x, y) =`` or ``y =``."""
    relations = [node.text for node in nodes if node.kind == "relation"]
    if not relations:
        return reader.expression(nodes)
    if relations != ["="]:
        raise FormulaError(f"only a formula can be compiled, not a relation: {_ADVICE}")
    left, right = split(nodes, lambda node: node.kind == "relation")
    arguments: list[list[LatexNode]] = []
    if left and left[-1].kind == "bracket" and left[-1].text == "(":
        arguments = split(flat(left.pop().parts[0]), lambda node: node.kind == "comma")
    name = name_text(_checked_name(left))
    for one in arguments:
        reader.names.identifier(_checked_name(one), reader.spelled(*one))
    value = reader.expression(right)
    if name in reader.used or reader.names.has(name):
        raise FormulaError(f"it is an equation for {name}, not a definition: {_ADVICE}")
    if reader.names.variables is None and not reader.used - {"e", "pi"} and not arguments:
        raise FormulaError(f"it could be an equation for {name}: {_ADVICE}")
    return value


def _checked_name(nodes: Sequence[LatexNode]) -> Sequence[LatexNode]:
    if [node.kind for node in nodes] not in (["name"], ["name", "sub"]):
        raise FormulaError(f"the left side is no name such as y or f(x): {_ADVICE}")
    return nodes
