r"""``\begin{cases}`` as `where`: rows that exclude each other and leave nothing out.

A row is tried only if the rows before it do not hold, so of ``0 \le x < 1`` after ``x < 0`` only x < 1 is left to
test. Rows that may overlap, and cases without a row for the rest, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from transformula.errors import FormulaError
from transformula.formula.formula_text import FormulaText, call
from transformula.formula.latex.latex_tokens import RELATIONS, LatexNode
from transformula.formula.latex.latex_tree import flat, paired, split

MAX_ROWS = 30
_Read = Callable[[Sequence[LatexNode]], FormulaText]


@dataclass(frozen=True)
class CaseSide:
    """A side of a comparison, and the inside of its bars if it is an absolute value."""

    value: FormulaText
    inside: FormulaText | None = None

    @property
    def number(self) -> Fraction | None:
        """The side as a number, if it is one."""
        try:
            return Fraction(self.value.text)
        except (ValueError, ZeroDivisionError):
            return None

    def is_below(self, other: CaseSide) -> bool:
        """Whether both are numbers, the first less than the other."""
        return self.number is not None and other.number is not None and self.number < other.number


@dataclass(frozen=True)
class CaseTest:
    """small < large, or small <= large."""

    small: CaseSide
    large: CaseSide
    strict: bool

    def __str__(self) -> str:
        return f"{self.small.value.text} {'<' if self.strict else '<='} {self.large.value.text}"

    @property
    def contrary(self) -> CaseTest:
        """The test that holds where this one does not."""
        return CaseTest(self.large, self.small, not self.strict)

    def follows_from(self, facts: Sequence[CaseTest]) -> bool:
        """Whether the text of a fact shows that the test holds."""
        sides = (self.small, self.large)
        return any(sides == (fact.small, fact.large) and (fact.strict or not self.strict) for fact in facts)

    def is_narrower(self, later: CaseTest) -> bool:
        """Whether the later test has a wider limit: x < 0 and then x < 1, or x > 1 and then x > 0."""
        if self.small == later.small:
            return self.large.is_below(later.large)
        return self.large == later.large and later.small.is_below(self.small)

    def excludes(self, other: CaseTest, linked: bool) -> bool:
        """Whether both hold on a seam at most, where the pieces must meet: x < 1 and x > 2, or x <= a and x >= a.

        In linked rows, such as x < a, a <= x < b, b <= x, limits that are no numbers are taken to be in order.
        """
        if self.small != other.large:
            return False
        ordered = linked and self.small.number is None and None in (self.large.number, other.small.number)
        return ordered or self.large == other.small or self.large.is_below(other.small)


def piecewise(cells: Sequence[Sequence[LatexNode]], read: _Read) -> FormulaText:
    """The value of cases: cells are a value and its condition in turn."""
    values = [read(_unpunctuated(cell)) for cell in cells[::2]]
    rows = [_tests(flat(cell), read) for cell in cells[1::2]]
    if not 1 < len(rows) <= MAX_ROWS:
        raise FormulaError(f"cases have 2 to {MAX_ROWS} rows, not {len(rows)}")
    value = values[-1]
    for piece, tests in zip(reversed(values[:-1]), reversed(_left_to_test(rows)[:-1]), strict=True):
        rest, value = value, piece
        for test in reversed(tests):
            value = _where(test, value, rest)
    return value


def _where(test: CaseTest, then: FormulaText, otherwise: FormulaText) -> FormulaText:
    """One of two values; the kernel reads |x| < c as -c < x and x < c."""
    if test.large.inside is not None:
        return _where(test.contrary, otherwise, then)
    if test.small.inside is None:
        return call("where", FormulaText(str(test)), then, otherwise)
    limit, inside = test.large, CaseSide(test.small.inside)
    below = _where(CaseTest(inside, limit, test.strict), then, otherwise)
    return _where(CaseTest(CaseSide(-limit.value), inside, test.strict), below, otherwise)


def _left_to_test(rows: Sequence[Sequence[CaseTest]]) -> list[list[CaseTest]]:
    """For each row its tests that do not follow from the failure of the rows before it."""
    found: list[list[CaseTest]] = []
    for k, tests in enumerate(rows):
        facts = _facts(rows[:k])
        left = [test for test in tests if not test.follows_from(facts)]
        if not left and k < len(rows) - 1:
            raise FormulaError(f"row {k + 1} of the cases leaves nothing for the rows after it")
        linked = len(left) < len(tests)
        if tests and not all(_apart(earlier, tests, linked) for earlier in rows[:k]):
            advice = "write rows that exclude each other, such as x < 0, 0 \\le x < 1 and \\text{otherwise}"
            raise FormulaError(f"row {k + 1} of the cases may overlap an earlier one: {advice}")
        found.append(left)
    if found[-1]:
        missing = " and ".join(map(str, found[-1]))
        advice = "write & \\text{otherwise} in the last"
        raise FormulaError(f"no row of the cases holds where {missing} does not: {advice}")
    return found


def _facts(failed: Sequence[Sequence[CaseTest]]) -> list[CaseTest]:
    """Tests that hold if all these rows fail: in a row whose other tests hold, the last one does not."""
    facts: list[CaseTest] = []
    while True:
        open_tests = ([test for test in row if not test.follows_from(facts)] for row in failed)
        new = [row[0].contrary for row in open_tests if len(row) == 1 and row[0].contrary not in facts]
        if not new:
            return facts
        facts += new


def _apart(earlier: Sequence[CaseTest], later: Sequence[CaseTest], linked: bool) -> bool:
    """Whether two rows exclude each other, or the later one is the same test with a wider limit."""
    if len(earlier) == len(later) == 1 and earlier[0].is_narrower(later[0]):
        return True
    return any(one.excludes(other, linked) or other.excludes(one, linked) for one in earlier for other in later)


def _unpunctuated(nodes: Sequence[LatexNode]) -> Sequence[LatexNode]:
    return nodes[:-1] if nodes and nodes[-1].kind == "comma" else nodes


def _tests(nodes: Sequence[LatexNode], read: _Read) -> list[CaseTest]:
    """The tests of a condition, all of which must hold; none for the rest."""
    nodes = _unpunctuated(nodes)
    if len(nodes) == 1 and _is_word(nodes[0], "otherwise", "else"):
        return []
    nodes = nodes[1:] if nodes and _is_word(nodes[0], "if", "for", "when") else nodes
    return [test for part in split(nodes, lambda node: _is_word(node, "and")) for test in _chain(part, read)]


def _chain(nodes: Sequence[LatexNode], read: _Read) -> list[CaseTest]:
    """The tests of a chain such as 0 <= x < 1."""
    signs = [RELATIONS[node.text] for node in nodes if node.kind == "relation"]
    if not signs:
        raise FormulaError("a condition of the cases is a comparison such as x < 1, or \\text{otherwise}")
    if any(sign in ("=", "!=") for sign in signs):
        advice = "write the formula alone where it has a limit: quotients are extended continuously"
        raise FormulaError(f"a condition at a single point is not read: {advice}")
    if len({sign[0] for sign in signs}) > 1:
        raise FormulaError("the comparisons of a condition point in two directions: write them one by one")
    sides = [_side(part, read) for part in split(nodes, lambda node: node.kind == "relation")]
    pairs = zip(sides, sides[1:], signs, strict=False)
    return [CaseTest(a, b, sign == "<") if sign[0] == "<" else CaseTest(b, a, sign == ">") for a, b, sign in pairs]


def _side(nodes: Sequence[LatexNode], read: _Read) -> CaseSide:
    nodes = paired(nodes)
    bars = len(nodes) == 1 and nodes[0].kind == "abs"
    return CaseSide(read(nodes), read(nodes[0].parts[0]) if bars else None)


def _is_word(node: LatexNode, *words: str) -> bool:
    return node.kind == "name" and node.style == "upright" and node.text in words
