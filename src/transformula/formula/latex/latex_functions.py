r"""Functions and their arguments, with brackets and without.

Without brackets the argument is one factor: a name or number with its power (``\sin x^2`` is sin(x**2)), a fraction, a
root, an absolute value, or another function. A number, or \pi, or both, may stand before a name: ``\sin 2\pi x``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from transformula.errors import FormulaError
from transformula.formula.formula_text import FormulaText, call
from transformula.formula.latex.latex_names import LatexNames
from transformula.formula.latex.latex_tokens import (
    FUNCTIONS,
    INVERSES,
    LOGARITHMS,
    PREFIX,
    UNCLEAR_BASES,
    LatexNode,
    LatexSpace,
    function_named,
)
from transformula.formula.latex.latex_tree import BARE, check_bracket, flat, split

if TYPE_CHECKING:
    from transformula.formula.latex.latex_reader import LatexReader

#: Characters of LaTeX that a message repeats.
MAX_SPELLED = 80
#: Greek letters that are functions before a bracket, unless the box has a variable of that name.
_LETTERS = {"Gamma": "gamma", "zeta": "zeta"}
#: Functions that books write with braces, as in \max\{x, y\}.
_BRACED = ("exp", "min", "max")


class FactorKind(Enum):
    """Kinds of factors by the factors that may stand beside them."""

    NUMBER = auto()
    #: A fraction of two numbers: beside a number it could be a mixed number.
    NUMERIC_FRACTION = auto()
    BRACKET = auto()
    #: A function with brackets around its argument, of those that can do without.
    ENCLOSED = auto()
    #: A function of an argument without brackets.
    OPEN = auto()
    #: A function without brackets whose argument is such a function.
    NESTED = auto()
    #: A function that always has brackets.
    CALL = auto()
    NAME = auto()
    OTHER = auto()

    @property
    def is_function(self) -> bool:
        """Whether the factor is a function of something."""
        return self in (FactorKind.ENCLOSED, FactorKind.OPEN, FactorKind.NESTED, FactorKind.CALL)

    @property
    def is_open(self) -> bool:
        """Whether nothing says where the function's argument ends."""
        return self in (FactorKind.OPEN, FactorKind.NESTED)


class LatexFactor(NamedTuple):
    r"""A factor; a function without brackets has a head (``\sin``) and an argument, which may be a number."""

    value: FormulaText
    kind: FactorKind
    head: str = ""
    argument: str = ""
    numeric: bool = False


class LatexCursor:
    """Nodes that are read one by one, and the source they came from."""

    def __init__(self, nodes: Sequence[LatexNode], source: str) -> None:
        self.nodes = nodes
        self.source = source
        self.index = 0

    def peek(self, ahead: int = 0) -> LatexNode | None:
        """The next node, or one further ahead, if there is one."""
        place = self.index + ahead
        return self.nodes[place] if place < len(self.nodes) else None

    def next_is(self, *kinds: str) -> bool:
        """Whether the next node is of one of these kinds."""
        return self.index < len(self.nodes) and self.nodes[self.index].kind in kinds

    def take(self) -> LatexNode:
        """The next node, which there must be."""
        self.index += 1
        return self.nodes[self.index - 1]

    def scripts(self, start: int) -> dict[str, LatexNode]:
        """An exponent and an index, at most one of each, of what begins at a node."""
        found: dict[str, LatexNode] = {}
        while self.next_is("sup", "sub"):
            node = self.take()
            if node.kind in found:
                raise FormulaError(f"{self.spelled(start)} has two exponents or two indices: put them in braces")
            found[node.kind] = node
        return found

    def spelled(self, start: int, end: int | None = None) -> str:
        """The LaTeX of the nodes from one index to another, or to the last one taken, without braces around them."""
        text, last = "", None
        for node in self.nodes[start : self.index if end is None else end]:
            text += " " * (last not in (None, node.start)) + self.source[node.start : node.end]
            last = node.end
        text = " ".join(text.split())
        return text if len(text) <= MAX_SPELLED else text[: MAX_SPELLED - 3] + "..."


def function_at(cursor: LatexCursor, names: LatexNames) -> str | None:
    """Our name of the function that comes next, if it is one."""
    node = cursor.nodes[cursor.index]
    if node.kind == "function":
        return FUNCTIONS[node.text]
    if node.kind != "name" or node.style not in ("upright", "operator", "letter"):
        return None
    scripts: list[str] = []
    while (after := cursor.peek(len(scripts) + 1)) is not None and after.kind in ("sup", "sub"):
        scripts.append(after.kind)
    called = after is not None and after.kind == "bracket"
    indexed = "sub" in scripts
    source = cursor.spelled(cursor.index, cursor.index + 1)
    if node.style != "letter":
        return _word_function(node, source, names, called, indexed)
    if node.text not in _LETTERS or indexed or not called:
        return None
    if scripts or names.has(node.text) or (names.variables is None and node.text == "zeta"):
        raise FormulaError(_two_meanings(source, _LETTERS[node.text]))
    return _LETTERS[node.text]


def _word_function(node: LatexNode, source: str, names: LatexNames, called: bool, indexed: bool) -> str | None:
    """The function that an upright word is, unless it is a variable."""
    name = function_named(node.text)
    if name is None:
        if called and len(node.text) > 1:
            raise FormulaError(f"{node.text[:40]} is no known function: write {source} \\cdot (...) for a product")
        return None
    variable = names.has(node.text) or (indexed and name not in PREFIX)
    if variable and called and node.style != "operator":
        raise FormulaError(_two_meanings(source, node.text))
    return None if variable and not called else name


def _two_meanings(source: str, name: str) -> str:
    return f"{source}(...) is read in two ways: write \\operatorname{{{name}}}(...) or {source} \\cdot (...)"


def application(reader: LatexReader, cursor: LatexCursor, name: str) -> LatexFactor:
    """A function, its power or base, and its argument."""
    start, node = cursor.index, cursor.take()
    scripts = cursor.scripts(start)
    head = cursor.spelled(start)
    after = cursor.peek()
    last = cursor.nodes[cursor.index - 1]
    if last.style == BARE and after is not None and after.kind == "number" and after.space is LatexSpace.NONE:
        digit = last.parts[0][0].text
        readings = f"{head[:-1]}{{{digit}{after.text}}} or {head[:-1]}{{{digit}}} {after.text}"
        raise FormulaError(f"{head[-2]} takes one digit: write {readings}")
    base = _base(reader, node, scripts.get("sub"), head)
    if after is None or after.kind in ("comma", "relation", "times", "over", "bang"):
        raise FormulaError(f"{head} has no argument: write {head}(x)")
    power = scripts.get("sup")
    inside = flat(power.parts[0]) if power else []
    if name in INVERSES and [one.text for one in inside] == ["-", "1"]:
        name, power = INVERSES[name], None
    elif power and (name not in PREFIX or name == "exp" or inside[0].kind in ("sign", "bracket")):
        advice = "put the function in brackets and the power after them, as in (\\tan(x))^{2}"
        raise FormulaError(f"the power of {head} is read in two ways: {advice}")
    apply = _open_application if name in PREFIX and after.kind != "bracket" else _closed_application
    found = apply(reader, cursor, name, head, base)
    return found if power is None else found._replace(value=found.value ** reader.exponent(power))


def _base(reader: LatexReader, node: LatexNode, index: LatexNode | None, head: str) -> FormulaText | None:
    r"""The base of a logarithm; \log alone has none, and other functions have no index."""
    if node.text in UNCLEAR_BASES and index is None:
        raise FormulaError(f"the base of {head} differs from book to book: write {UNCLEAR_BASES[node.text]}")
    if index is None:
        return None
    if node.text != "log":
        raise FormulaError(f"{head} has an index, which only \\log takes: write {head.split('_')[0]}(x)")
    return reader.expression(index.parts[0])


def _applied(name: str, base: FormulaText | None, *arguments: FormulaText) -> FormulaText:
    if base is None:
        return call(name, *arguments)
    if base.text in ("2", "10"):
        return call(f"log{base.text}", *arguments)
    return call("log", *arguments) / call("log", base)


def _closed_application(
    reader: LatexReader, cursor: LatexCursor, name: str, head: str, base: FormulaText | None
) -> LatexFactor:
    """A function with brackets around its arguments."""
    bracket = cursor.take()
    if bracket.kind != "bracket":
        raise FormulaError(f"{head} needs brackets around its argument: write {head}(x)")
    if bracket.text == "\\{" and name not in _BRACED:
        check_bracket(bracket, cursor.source)
    values, spelled = _arguments(reader, bracket), cursor.spelled(cursor.index - 1)
    if name not in PREFIX:
        return LatexFactor(call(name, *values), FactorKind.CALL, head)
    if len(values) != 1:
        raise FormulaError(f"{head} takes one argument, not {len(values)}; a decimal comma is 1{{,}}5")
    if cursor.next_is("sup", "bang"):
        raised = cursor.spelled(cursor.index, cursor.index + 1)
        raise FormulaError(f"write ({head}{spelled}){raised} or {head}({spelled}{raised})")
    return LatexFactor(_applied(name, base, *values), FactorKind.ENCLOSED, head, spelled)


def _arguments(reader: LatexReader, bracket: LatexNode) -> list[FormulaText]:
    """The arguments in a bracket; of three or more, two digits around a comma may be one number."""
    nodes = flat(bracket.parts[0])
    parts = split(nodes, lambda node: node.kind == "comma" and node.text == ",")
    for one, two in pairwise(parts) if len(parts) > 2 else ():
        around = (*one[-1:], *two[:1])
        if [node.kind for node in around] == ["number", "number"] and around[1].space is LatexSpace.NONE:
            before, after = (node.text for node in around)
            raise FormulaError(f"write {before}{{,}}{after} for a decimal comma or {before}, {after} for two arguments")
    return [reader.expression(part) for part in parts]


def _open_application(
    reader: LatexReader, cursor: LatexCursor, name: str, head: str, base: FormulaText | None
) -> LatexFactor:
    """A function of the one factor after it."""
    start, node = cursor.index, cursor.nodes[cursor.index]
    kind = FactorKind.OPEN
    numeric = False
    spelled = ""
    if node.kind == "sign":
        raise FormulaError(f"a sign follows {head}: write {head}({node.text}x)")
    if (inner := function_at(cursor, reader.names)) is not None:
        reader.deepen()
        found, kind = application(reader, cursor, inner), FactorKind.NESTED
        reader.depth -= 1
        value, spelled = found.value, f"{found.head}({found.argument})" if found.kind.is_open else ""
    elif node.kind == "number" or reader.names.is_pi(node):
        value, numeric = _multiple(reader, cursor, LatexSpace.NONE if name in LOGARITHMS else LatexSpace.IGNORED)
    elif node.kind == "name":
        value = reader.name(cursor)
    else:
        value = reader.atom(cursor.take())
    spelled = spelled or cursor.spelled(start)
    if cursor.next_is("sup", "sub", "bang"):
        raised = cursor.spelled(cursor.index, cursor.index + 1)
        raise FormulaError(f"write ({head}({spelled})){raised} or {head}(({spelled}){raised})")
    return LatexFactor(_applied(name, base, value), kind, head, spelled, numeric)


def _multiple(reader: LatexReader, cursor: LatexCursor, allowed: LatexSpace) -> tuple[FormulaText, bool]:
    r"""A number, or \pi, or both, with a name after them if there is one; and whether there is none."""
    first = cursor.nodes[cursor.index]
    value = FormulaText(cursor.take().text) if first.kind == "number" else reader.name(cursor)
    if first.kind == "number" and cursor.next_is("sup"):
        return value ** reader.exponent(cursor.take()), True
    beside = _name_beside(reader, cursor, allowed)
    if first.kind == "number" and beside is not None and reader.names.is_pi(beside):
        value *= reader.name(cursor)
        beside = _name_beside(reader, cursor, allowed)
    if beside is None or cursor.nodes[cursor.index - 1].kind == "sup":  # nothing may follow a power of \pi
        return value, True
    return value * reader.name(cursor), False


def _name_beside(reader: LatexReader, cursor: LatexCursor, allowed: LatexSpace) -> LatexNode | None:
    """The next node if it is a name, no function, with no more space before it than is allowed."""
    node = cursor.peek()
    if node is None or node.kind != "name" or node.space > allowed:
        return None
    return None if function_at(cursor, reader.names) else node
