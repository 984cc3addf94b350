r"""Sums, products, powers and atoms of LaTeX, read if all books agree on them and refused if books differ.

In a product only another function may follow a function without brackets (``\sin x \cos y``), nothing may follow a
quotient, and a number stands at the beginning or after a sign. docs/notations.md lists the conventions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformula.errors import FormulaError
from transformula.formula.formula_text import ONE, FormulaText, call
from transformula.formula.latex.latex_cases import piecewise
from transformula.formula.latex.latex_functions import FactorKind, LatexCursor, LatexFactor, application, function_at
from transformula.formula.latex.latex_names import LatexNames
from transformula.formula.latex.latex_tokens import LatexNode
from transformula.formula.latex.latex_tree import BARE, MAX_DEPTH, check_bracket, flat, paired

_KINDS = {"number": FactorKind.NUMBER, "bracket": FactorKind.BRACKET}
_MARKS = {"sup": "^", "sub": "_", "bang": "!"}


@dataclass
class _Product:
    """The product so far, by indices of nodes.

    ``start`` and ``last_start`` are where the product and its last factor begin, ``end`` is the node after it,
    ``divided`` the sign of division, ``opened_end`` the node after the last function without brackets.
    """

    start: int
    last: LatexFactor
    end: int
    last_start: int
    divided: int | None = None
    opened: LatexFactor | None = None
    opened_end: int = 0

    def append(self, factor: LatexFactor, start: int, end: int) -> None:
        """Take a factor as the last one."""
        self.last = factor
        self.last_start = start
        self.end = end
        if factor.kind.is_open:
            self.opened, self.opened_end = factor, end


class LatexReader:
    """Reads the nodes of one source."""

    def __init__(self, source: str, names: LatexNames) -> None:
        self.source = source
        self.names = names
        self.depth = 0
        #: Variables and constants of the formula.
        self.used: set[str] = set()

    def spelled(self, *nodes: LatexNode) -> str:
        """The LaTeX of adjacent nodes."""
        return self.source[nodes[0].start : nodes[-1].end]

    def expression(self, nodes: Sequence[LatexNode]) -> FormulaText:
        """A whole sequence as one expression."""
        nodes = paired(flat(nodes))
        if not nodes:
            raise FormulaError("something is missing: a formula, an argument or the inside of a bracket is empty")
        self.deepen()
        self.names.check_runs(nodes)
        cursor = LatexCursor(nodes, self.source)
        value = self._sum(cursor)
        if (rest := cursor.peek()) is not None:
            raise FormulaError(_unexpected(rest))
        self.depth -= 1
        return value

    def deepen(self) -> None:
        """Count one more level of nesting."""
        self.depth += 1
        if self.depth > 2 * MAX_DEPTH:
            raise FormulaError(f"it is nested more than {MAX_DEPTH} levels deep")

    def _sum(self, cursor: LatexCursor) -> FormulaText:
        negative = cursor.next_is("sign") and cursor.take().text == "-"
        total = self._product(cursor)
        total = -total if negative else total
        while cursor.next_is("sign"):
            subtracted = cursor.take().text == "-"
            term = self._product(cursor)
            total = total - term if subtracted else total + term
        return total

    def _product(self, cursor: LatexCursor) -> FormulaText:
        start = cursor.index
        first = self._factor(cursor)
        product = _Product(start, first, cursor.index, start)
        product.append(first, start, cursor.index)
        value = first.value
        while cursor.peek() is not None and not cursor.next_is("sign", "comma", "relation"):
            over = cursor.next_is("over")
            sign = cursor.take() if over or cursor.next_is("times") else None
            start = cursor.index
            factor = self._factor(cursor)
            _check_beside(cursor, product, sign, factor)
            value = value / factor.value if over else value * factor.value
            product.divided = product.end if over else product.divided
            product.append(factor, start, cursor.index)
        return value

    def _factor(self, cursor: LatexCursor) -> LatexFactor:
        """One factor with its powers and factorials."""
        start, node = cursor.index, cursor.peek()
        if node is None or node.kind in ("comma", "relation"):
            raise FormulaError("something is missing at the end, or before a comma or a sign of relation")
        if node.kind == "sign":
            raise FormulaError(f"a sign follows another sign: write brackets, as in ({node.text}x)")
        if (name := function_at(cursor, self.names)) is not None:
            found = application(self, cursor, name)
            called = found.kind is FactorKind.CALL
            return self._postfix(cursor, start, found.value, FactorKind.CALL) if called else found
        if node.kind == "name":
            return self._postfix(cursor, start, self.name(cursor), FactorKind.NAME)
        value = self.atom(cursor.take())
        if node.kind == "cases" and cursor.peek() is not None:
            raise FormulaError("nothing may stand after \\end{cases}: write it before \\begin{cases}")
        if node.kind == "fraction":
            return self._after_fraction(cursor, value, node)
        return self._postfix(cursor, start, value, _KINDS.get(node.kind, FactorKind.OTHER))

    def atom(self, node: LatexNode) -> FormulaText:
        """A number, a fraction, a root or a bracket of any kind."""
        if node.kind == "number":
            return FormulaText(node.text)
        if node.kind == "fraction":
            return self._fraction(*node.parts)
        if node.kind == "root":
            return self._root(*node.parts)
        if node.kind == "bracket":
            check_bracket(node, self.source)
            return self.expression(node.parts[0])
        if node.kind in ("abs", "floor", "ceil"):
            return call(node.kind, self.expression(node.parts[0]))
        if node.kind == "cases":
            return piecewise(node.parts, self.expression)
        raise FormulaError(_unexpected(node))

    def name(self, cursor: LatexCursor) -> FormulaText:
        """A variable or constant with its index and its power."""
        start, node = cursor.index, cursor.take()
        scripts = cursor.scripts(start)
        index, power = scripts.get("sub"), scripts.get("sup")
        if node.style in ("upright", "operator") and index is None and node.text in ("e", "i", "d"):
            return self._upright(node.text, power)
        parts = (node, index) if index else (node,)
        source = "".join(map(self.spelled, parts))
        text = self.names.identifier(parts, source)
        self.used.add(text)
        if index is not None or not self.names.is_constant(node):
            self.names.check(text, source)
        return FormulaText(text) ** self.exponent(power) if power else FormulaText(text)

    def _upright(self, letter: str, power: LatexNode | None) -> FormulaText:
        """Upright letters of ISO 80000-2: e is Euler's number, whatever variables there are."""
        if letter == "i":
            raise FormulaError("\\mathrm{i} is the imaginary unit, and complex numbers cannot be compiled")
        if letter == "d":
            raise FormulaError("\\mathrm{d} is the sign of a differential: write d for a variable")
        return call("exp", self.exponent(power) if power else ONE)

    def _postfix(self, cursor: LatexCursor, start: int, value: FormulaText, kind: FactorKind) -> LatexFactor:
        """Powers and factorials after a value; the power of a name was read with its index."""
        read = cursor.nodes[start : cursor.index] if kind is FactorKind.NAME else ()
        power = next((node for node in read if node.kind == "sup"), None)
        while cursor.next_is("sup", "sub", "bang"):
            node = cursor.take()
            if node.kind == "sub":
                raise FormulaError(f"an index belongs to a name: {cursor.spelled(start)} is not read")
            if power is not None:
                raise FormulaError(self._two_powers(cursor, start, power, node))
            if node.kind == "sup":
                value, power = value ** self.exponent(node), node
            elif cursor.next_is("bang"):
                raise FormulaError(f"!! is not read: write ({cursor.spelled(start)})! for a factorial of a factorial")
            else:
                value = call("factorial", value)
            kind = kind if kind in (FactorKind.NAME, FactorKind.CALL) else FactorKind.OTHER
        last = cursor.nodes[cursor.index - 1]
        if last.kind == "sup" and last.style == BARE and last.parts[0][0].text == "1" and cursor.next_is("over"):
            base = cursor.spelled(start, cursor.index - 1)
            raise FormulaError(f"write {base}^{{1/2}} for a root or {base} / 2 for a half")
        return LatexFactor(value, kind)

    def _two_powers(self, cursor: LatexCursor, start: int, power: LatexNode, second: LatexNode) -> str:
        """Both readings of x^2! and of x^2{}^3."""
        inside, mark = self.spelled(*power.parts[0]), self.spelled(second)
        whole = cursor.spelled(start, cursor.index - 1)
        base = " ".join(self.spelled(node) for node in cursor.nodes[start : cursor.index - 1] if node is not power)
        return f"write ({whole}){mark} or {base}^{{({inside}){mark}}}"

    def exponent(self, node: LatexNode) -> FormulaText:
        """The value of an exponent; one in brackets may be an index or the order of a derivative."""
        inside = flat(node.parts[0])
        if len(inside) == 1 and inside[0].kind == "bracket" and len(inside[0].parts[0]) == 1:
            plain = self.spelled(*inside[0].parts[0])
            raise FormulaError(f"an exponent in brackets may be an index: write ^{{{plain}}} or _{{{plain}}}")
        return self.expression(inside)

    def _fraction(self, above: Sequence[LatexNode], below: Sequence[LatexNode]) -> FormulaText:
        if _is_derivative(flat(above), flat(below)):
            advice = "write the derivative itself, or \\frac{d \\cdot y}{d \\cdot x} for products"
            raise FormulaError(f"the fraction could be a derivative: {advice}")
        return self.expression(above) / self.expression(below)

    def _after_fraction(self, cursor: LatexCursor, value: FormulaText, node: LatexNode) -> LatexFactor:
        above, below = node.parts
        if cursor.next_is("sup", "sub", "bang"):
            mark = cursor.spelled(cursor.index, cursor.index + 1)
            inside = f"\\frac{{({self.spelled(*above)}){mark}}}{{{self.spelled(*below)}}}"
            raise FormulaError(f"write ({self.spelled(node)}){mark} or {inside}")
        numeric = all([one.kind for one in flat(part)] == ["number"] for part in node.parts)
        return LatexFactor(value, FactorKind.NUMERIC_FRACTION if numeric else FactorKind.OTHER)

    def _root(self, body: Sequence[LatexNode], index: Sequence[LatexNode]) -> FormulaText:
        value = self.expression(body)
        by = self.expression(index) if index else FormulaText("2")
        if by.text in ("2", "3"):
            return call("sqrt" if by.text == "2" else "cbrt", value)
        return value ** (ONE / by)


def _check_beside(cursor: LatexCursor, before: _Product, sign: LatexNode | None, found: LatexFactor) -> None:
    """Refuse a factor, just read, that may not follow the product before it; there may be a sign between them."""
    follows = cursor.spelled(before.end + (sign is not None))
    dot = sign.text if sign else "\\cdot"
    if before.divided is not None:
        above, below = cursor.spelled(before.start, before.divided), cursor.spelled(before.divided + 1, before.end)
        readings = f"\\frac{{{above}}}{{{below}}} {dot} {follows} or \\frac{{{above}}}{{{below} {dot} {follows}}}"
        raise FormulaError(f"nothing says how far the denominator after / reaches: write {readings}")
    if before.opened and not _ends_argument(before.opened, sign, found):
        rest = cursor.spelled(before.opened_end)
        rest = rest if cursor.nodes[before.opened_end].kind in ("times", "over") else f"\\cdot {rest}"
        raise FormulaError(_where_it_ends(before.opened, f"({before.opened.argument})", rest))
    if sign:
        return
    if cursor.nodes[before.end].kind == "number":
        raise FormulaError(_number_beside(cursor, before, follows))
    if before.last.kind is FactorKind.NUMBER and found.kind is FactorKind.NUMERIC_FRACTION:
        number = cursor.spelled(before.end - 1, before.end)
        raise FormulaError(f"write {number} + {follows} for a mixed number or {number} \\cdot {follows} for a product")
    if before.last.kind is FactorKind.ENCLOSED and found.kind is FactorKind.BRACKET:
        raise FormulaError(_where_it_ends(before.last, before.last.argument, f"{dot} {follows}"))


def _ends_argument(opened: LatexFactor, sign: LatexNode | None, found: LatexFactor) -> bool:
    """Whether a factor is surely not in the argument of the function before it: it is a function itself."""
    if opened.kind is FactorKind.NESTED or not found.kind.is_function:
        return False
    return not opened.numeric or (sign is not None and sign.kind == "over")


def _where_it_ends(function: LatexFactor, bracketed: str, rest: str) -> str:
    readings = f"{function.head}{bracketed} {rest} or {function.head}({function.argument} {rest})"
    return f"nothing says where the argument of {function.head} ends: write {readings}"


def _number_beside(cursor: LatexCursor, before: _Product, follows: str) -> str:
    """Readings of a number, with its power if it has one, after another factor."""
    last, number = cursor.nodes[before.end - 1], cursor.nodes[before.end].text
    if before.last.kind is FactorKind.NUMBER:
        one = cursor.spelled(before.end - 1, before.end)
        return f"two numbers stand side by side: write {one}{follows} or {one} \\cdot {follows}"
    text = cursor.spelled(before.last_start, before.end)
    if last.style == BARE and last.parts[0][0].kind == "number":
        base = text[:-2]
        mark = cursor.source[last.start]
        digit = last.parts[0][0].text
        one, power = f"{base}{mark}{{{digit}{number}}}", follows.removeprefix(number)
        one = f"({one}){power}" if power and mark == "^" else f"{one}{power}"
        return f"write {one} or {base}{mark}{{{digit}}} \\cdot {follows}"
    names = f", {text}_{{{number}}} or {text}^{{{number}}}" if last.kind == "name" and follows == number else ""
    return f"a number stands after another factor: write {text} \\cdot {follows}{names}"


def _is_derivative(above: Sequence[LatexNode], below: Sequence[LatexNode]) -> bool:
    """Whether a fraction begins like dy/dx: d alone or beside something, over d beside a name."""
    if not all(part[0].kind == "name" and part[0].text == "d" for part in (above, below) if part):
        return False
    first, second = ([node.kind for node in part if node.kind != "sup"][1:2] for part in (above, below))
    return first not in (["sign"], ["times"], ["over"]) and second == ["name"]


def _unexpected(node: LatexNode) -> str:
    if node.kind == "comma":
        return f"a {node.text} stands only between the arguments of a function; a decimal comma is 1{{,}}5"
    if node.kind == "relation":
        return f"only a formula can be compiled, not a relation: {node.text} is not read here"
    if node.kind in _MARKS:
        return f"there is nothing before {_MARKS[node.kind]}"
    return f"unexpected {node.text[:40]}"
