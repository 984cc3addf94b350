r"""Names of variables: ``x_{1}`` is x_1, ``T_{\mathrm{max}}`` is T_max, ``\bar{x}`` is x_bar.

Two names that look different never become one variable: x_{max} and x_{\mathrm{max}} in one formula are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from transformula.errors import BoxError, FormulaError
from transformula.formula.latex.latex_tokens import FUNCTIONS, LETTERS, LatexNode, LatexSpace
from transformula.kernel.syntax.definitions import ALIASES, JUMPING, JUMPS, known

#: Names that our text reads as numbers unless the box has a variable of that name.
_CONSTANTS = ("E", "e", "pi")
#: Words of a sentence around a formula.
_CONNECTIVES = ("and", "else", "for", "if", "is", "not", "or", "otherwise", "unless", "when", "where", "with")
#: Functions of three letters or more, which a run of letters may be meant as, and runs that are so as a whole.
_WORDS = frozenset(name for name in (*known(), *JUMPS, *JUMPING, *ALIASES) if len(name) > 2) - LETTERS
_RUNS = frozenset(name for name in LETTERS if len(name) > 2) | {"ln", "pi"}
_LENGTHS = sorted({len(name) for name in _WORDS}, reverse=True)
#: The style of a character or letter, and its text.
_Glyph = tuple[str, str]


class LatexNames:
    """The names of one or several formulas; ``variables`` are those of the box, None if it is not known."""

    def __init__(self, variables: Collection[str] | None) -> None:
        if isinstance(variables, str):
            raise BoxError("the variables of a formula are a list of names, not one text")
        self.variables = None if variables is None else dict.fromkeys(variables)
        #: Words in italics, which look like products of letters.
        self.words: set[str] = set()
        #: Variables and constants by the text they become, with their glyphs and their LaTeX.
        self.seen: dict[str, tuple[tuple[_Glyph, ...], str]] = {}

    def has(self, name: str) -> bool:
        """Whether the box is known and has this variable."""
        return self.variables is not None and name in self.variables

    def note_words(self, tokens: Sequence[LatexNode]) -> None:
        r"""Remember words in italics such as \mathit{ab}."""
        self.words |= {t.text for t in tokens if t.kind == "name" and t.style == "italic" and len(t.text) > 1}

    def identifier(self, nodes: Sequence[LatexNode], source: str) -> str:
        """The name in our text of a variable or constant with its index; ``source`` is its LaTeX."""
        text, glyphs = name_text(nodes), tuple(_glyphs(nodes))
        before, spelled = self.seen.setdefault(text, (glyphs, source))
        if before != glyphs:
            raise FormulaError(f"{spelled} and {source} would both become the variable {text}: rename one of them")
        return text

    def is_constant(self, node: LatexNode) -> bool:
        r"""Whether a letter without an index is Euler's number e or \pi, and not a variable of the box."""
        return (node.text, node.style) in (("e", "italic"), ("pi", "letter")) and not self.has(node.text)

    def is_pi(self, node: LatexNode) -> bool:
        r"""Whether a node is the constant \pi."""
        return node.kind == "name" and node.text == "pi" and self.is_constant(node)

    def check(self, name: str, source: str) -> None:
        """Refuse a variable that the box does not have, or that a text would read as a constant."""
        if self.variables is None:
            if name in _CONNECTIVES:
                raise FormulaError(f"the word {name} is not read here: write the formula alone")
            if name in _CONSTANTS:
                advice = f"give the names of the box, as in from_latex(text, variables=[{name!r}])"
                raise FormulaError(f"{source} is a variable, and {name} alone a constant in our text: {advice}")
        elif name not in self.variables:
            spelled = "" if source == name else f", written {source}"
            raise BoxError(f"the box has no interval for {name}{spelled}{self._advice(name)}")

    def _advice(self, name: str) -> str:
        near = [one for one in self.variables or () if one.replace("_", "") == name.replace("_", "")]
        if near:
            return f": the box has {near[0]}, which is \\mathrm{{{near[0]}}} in LaTeX unless it is renamed {name}"
        if name == "i":
            return ": complex numbers cannot be compiled, and i is a variable only if the box has it"
        if name in ("Delta", "delta"):
            return f": \\{name} x is a product, and a difference needs a name of its own such as x_{{\\{name}}}"
        return f": add {name}=low..high to the box"

    def check_runs(self, nodes: Sequence[LatexNode]) -> None:
        r"""Refuse letters side by side that are meant as one name: sin instead of \sin, ab instead of \mathrm{ab}."""
        for run in (run for run in _runs(nodes) if len(run) > 1):
            words = [name for name in (*(self.variables or ()), *sorted(self.words)) if len(name) > 1 and name in run]
            if words:
                readings = f"\\mathrm{{{words[0]}}} or {_product(words[0])}"
                raise FormulaError(f"{run} is a product of letters, and {words[0]} a variable: write {readings}")
            if called := _function_in(run):
                command = f"\\{called}" if called in FUNCTIONS or called in LETTERS else f"\\operatorname{{{called}}}"
                raise FormulaError(f"{run} is a product of letters in LaTeX: write {command} or {_product(called)}")


def name_text(nodes: Sequence[LatexNode]) -> str:
    """A name with its index, as our text writes it."""
    if not nodes[0].text[0].isalpha():
        raise FormulaError(f"{nodes[0].text[:40]} is no name: a name begins with a letter")
    return "".join(text for _, text in _glyphs(nodes))


def _glyphs(nodes: Sequence[LatexNode]) -> Iterator[_Glyph]:
    r"""The glyphs of a name; text, \mathrm and operators look alike, and so do all digits.

    The beginning and the end of an index count as glyphs: x_{1,2} and x_{1_2} differ.
    """
    for node in nodes:
        if node.kind == "group":
            yield from _glyphs(node.parts[0])
        elif node.kind == "sub":
            yield ("index", "_")
            yield from _glyphs(node.parts[0])
            yield ("end of index", "")
        elif node.kind == "comma" and node.text == ",":
            yield ("comma", "_")
        elif node.style == "letter" or " " in node.style:  # a Greek letter, or one with an accent
            yield (node.style, node.text)
        elif node.kind in ("name", "function") or (node.kind == "number" and node.text.isdigit()):
            style = "upright" if node.kind == "function" or node.style == "operator" else node.style
            yield from (("digit" if char.isdigit() else style, char) for char in node.text)
        else:
            readable = "an index is a name such as x_{1} or x_{\\mathrm{max}}"
            raise FormulaError(f"{readable}: {node.text[:20]!r} is not read there")


def _runs(nodes: Sequence[LatexNode]) -> Iterator[str]:
    """Letters that stand side by side without a space, with the digits after them."""
    run = ""
    for node in nodes:
        letter = node.kind == "name" and node.style == "italic" and len(node.text) == 1
        digits = run.isalpha() and node.kind == "number" and node.text.isdigit()
        if run and not ((letter or digits) and node.space is LatexSpace.NONE):
            yield run
            run = ""
        run += node.text if letter or digits else ""
    yield run


def _function_in(run: str) -> str | None:
    """The longest name of a function in a run, or a run that is a Greek letter or ln."""
    if run in _RUNS:
        return run
    pieces = (run[k : k + size] for size in _LENGTHS for k in range(len(run) - size + 1))
    return next((piece for piece in pieces if piece in _WORDS), None)


def _product(word: str) -> str:
    return " \\cdot ".join(re.findall(r"[A-Za-z]|[^A-Za-z]+", word))
