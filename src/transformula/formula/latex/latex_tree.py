"""Brackets, braces, bars, and the arguments of commands, each taken as LaTeX itself takes it.

``x^10`` is x with the exponent 1, and then 0; ``\\frac12`` is one half.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from transformula.errors import FormulaError
from transformula.formula.latex.latex_tokens import ACCENTS, CLOSING, FRACTIONS, MEANING, REFUSED, LatexNode, LatexSpace

#: Levels of brackets, braces, fractions and exponents.
MAX_DEPTH = 40
#: Bars on one level.
MAX_BARS = 40
#: The style of exponents and indices that are written without braces.
BARE = "bare"
_LENGTH = re.compile(r"\d+(\.\d+)?(pt|em|ex|mm|cm)", re.ASCII)
_ENDS = {*CLOSING.values(), "}", "&", r"\\", r"\right"}
_EXAMPLES = {"^": "x^{-1}", "_": "x_{12}", r"\sqrt": r"\sqrt{2x}"}
_EXAMPLES |= {name: f"{name}{{1}}{{2}}" for name in FRACTIONS} | {name: f"{name}{{x}}" for name in ACCENTS}
_SCRIPTS = ("sup", "sub", "bang")
_ENCLOSING = ("bracket", "abs", "floor", "ceil", "bar")


class LatexTreeBuilder:
    """Nests the tokens of a formula."""

    def __init__(self, tokens: Sequence[LatexNode]) -> None:
        self.tokens = list(tokens)
        self.index = 0
        self.depth = 0
        self.subscripts = 0
        self.readers: dict[str, Callable[[LatexNode], LatexNode]] = {
            "{": self._bracket,
            "^": self._script,
            "_": self._script,
            r"\left": self._sized,
            r"\sqrt": self._root,
            **dict.fromkeys(CLOSING, self._bracket),
            **dict.fromkeys(FRACTIONS, self._fraction),
            **dict.fromkeys(ACCENTS, self._accent),
        }

    def tree(self) -> tuple[LatexNode, ...]:
        """The nodes of the whole formula."""
        nodes = self._sequence()
        if self.index < len(self.tokens):
            text = _spelling(self.tokens[self.index])
            if text in ("&", r"\\"):
                raise FormulaError(f"{text} has no place here: {REFUSED[text[-1]]}")
            raise FormulaError(f"{text} closes nothing")
        return nodes

    def _sequence(self) -> tuple[LatexNode, ...]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise FormulaError(f"it is nested more than {MAX_DEPTH} levels deep")
        nodes = []
        while self.index < len(self.tokens) and not (self._at(*_ENDS) or self._at_end()):
            nodes.append(self._item())
        self.depth -= 1
        return tuple(nodes)

    def _next(self, after: str = "") -> LatexNode:
        if self.index >= len(self.tokens):
            raise FormulaError(f"{after} has nothing after it")
        self.index += 1
        return self.tokens[self.index - 1]

    def _at(self, *texts: str) -> bool:
        return self.index < len(self.tokens) and self.tokens[self.index].text in texts

    def _at_end(self) -> bool:
        return self.index < len(self.tokens) and self.tokens[self.index].kind == "end"

    def _expect(self, text: str, opened: LatexNode) -> LatexNode:
        if not self._at(text):
            found = _spelling(self.tokens[self.index]) if self.index < len(self.tokens) else "the end"
            raise FormulaError(f"{_spelling(opened)} meets {found} where {text} is expected")
        return self._next()

    def _node(
        self, kind: str, first: LatexNode, *parts: tuple[LatexNode, ...], text: str = "", style: str = ""
    ) -> LatexNode:
        end = self.tokens[self.index - 1].end
        return LatexNode(kind, text or first.text, first.start, end, first.space, style, parts)

    def _item(self) -> LatexNode:
        token = self._next()
        if token.kind == "begin":
            return self._cases(token)
        if token.kind == "infinity":
            if not self.subscripts:
                raise FormulaError(f"{token.text} is not read: {REFUSED['infty']}")
            return replace(token, kind="name", text="inf", style="letter")
        if token.kind != "mark":
            return token
        if token.text not in self.readers:
            raise FormulaError(f"unexpected {token.text!r}")
        return self.readers[token.text](token)

    def _bracket(self, token: LatexNode) -> LatexNode:
        inside = self._sequence()
        self._expect(CLOSING.get(token.text, "}"), token)
        return self._node("group" if token.text == "{" else MEANING.get(token.text, "bracket"), token, inside)

    def _sized(self, token: LatexNode) -> LatexNode:
        opening = self._next(token.text)
        closing = CLOSING.get(opening.text) or (opening.text if opening.text in MEANING else None)
        if closing is None:
            raise FormulaError(f"\\left{opening.text} is not read: write \\left( ... \\right) or \\left| ... \\right|")
        inside = self._sequence()
        self._expect(r"\right", token)
        self._expect(closing, opening)
        return self._node(MEANING.get(opening.text, "bracket"), token, inside, text=opening.text)

    def _fraction(self, token: LatexNode) -> LatexNode:
        above = self._argument(token)
        below = self._argument(token)
        return self._node("fraction", token, above, below)

    def _root(self, token: LatexNode) -> LatexNode:
        index: tuple[LatexNode, ...] = ()
        if self._at("["):
            index = self._bracket(self._next()).parts[0]
            if not index:
                raise FormulaError("the root has an empty index: write \\sqrt[3]{x}")
        return self._node("root", token, self._argument(token), index)

    def _accent(self, token: LatexNode) -> LatexNode:
        inside, *more = self._argument(token)
        if more or inside.kind != "name" or inside.style not in ("italic", "letter"):
            raise FormulaError(f"{token.text} stands above one letter, as in {token.text}{{x}}")
        mark = token.text[1:]
        return self._node("name", token, text=f"{inside.text}_{mark}", style=f"{inside.style} {mark}")

    def _script(self, token: LatexNode) -> LatexNode:
        style = "" if self._at("{") else BARE
        self.subscripts += token.text == "_"
        inside = self._argument(token)
        self.subscripts -= token.text == "_"
        return self._node("sup" if token.text == "^" else "sub", token, inside, style=style)

    def _argument(self, command: LatexNode) -> tuple[LatexNode, ...]:
        """The argument of a command: in braces, or one digit or letter; a script may be one longer command."""
        token = self._next(command.text)
        if token.text == "{":
            inside = self._bracket(token).parts[0]
            if not inside:
                raise FormulaError(f"the braces after {command.text} are empty")
            return inside
        if token.kind == "number":
            return (self._digit(command, token),)
        single = token.kind == "name" and (token.style == "letter" or token.end - token.start == 1)
        longer = token.kind in ("name", "function", "infinity") or token.text in (*FRACTIONS, r"\sqrt")
        if not single and not (command.text in "^_" and longer):
            raise FormulaError(f"put what belongs to {command.text} in braces, as in {_EXAMPLES[command.text]}")
        self.index -= 1
        return (self._item(),)

    def _digit(self, command: LatexNode, token: LatexNode) -> LatexNode:
        """The first digit of a number, of which the others stay to be read."""
        if token.end - token.start == 1:
            return token
        if not token.text.isdigit():
            raise FormulaError(f"{command.text} takes only the first digit of {token.text}: put it in braces")
        first = replace(token, text=token.text[0], end=token.start + 1)
        rest = replace(token, text=token.text[1:], start=token.start + 1, space=LatexSpace.NONE)
        self.tokens[self.index - 1 : self.index] = [first, rest]
        return first

    def _cases(self, token: LatexNode) -> LatexNode:
        if token.text not in ("cases", "dcases"):
            advice = "write \\begin{cases} ... \\end{cases}, or only the formula itself"
            raise FormulaError(f"the environment {token.text[:40]} is not read: {advice}")
        cells: list[tuple[LatexNode, ...]] = []
        while True:
            value = self._sequence()
            if self._at_end() and not value and cells:  # a last \\ before the end
                break
            self._expect("&", token)
            cells += [value, self._sequence()]
            if self._at_end():
                break
            self._expect(r"\\", token)
            self._skip_length()
        if self._next().text != token.text:
            raise FormulaError(f"\\begin{{{token.text}}} is closed by another \\end")
        return self._node("cases", token, *cells)

    def _skip_length(self) -> None:
        r"""Skip the length of ``\\[2pt]``."""
        if not self._at("["):
            return
        texts = [one.text for one in self.tokens[self.index : self.index + 6]]
        if "]" not in texts or not _LENGTH.fullmatch("".join(texts[1 : texts.index("]")])):
            raise FormulaError("\\\\[ begins a length such as [2pt]: write \\\\{}[ for a bracket")
        self.index += texts.index("]") + 1


def _spelling(token: LatexNode) -> str:
    return f"\\{token.kind}{{{token.text}}}" if token.kind in ("begin", "end") else token.text


def flat(nodes: Sequence[LatexNode]) -> list[LatexNode]:
    r"""The nodes without braces that only group: these are not printed, so they may not change what is read.

    ``{x}^2`` and ``\sin{x}`` are read as if there were no braces; ``{a + b} c``, printed as a + bc, is refused.
    """
    if len(nodes) == 1 and nodes[0].kind == "group":
        return flat(nodes[0].parts[0])
    found: list[LatexNode] = []
    for k, node in enumerate(nodes):
        if node.kind != "group":
            found.append(node)
            continue
        inside = flat(node.parts[0])
        raised = k + 1 < len(nodes) and nodes[k + 1].kind in _SCRIPTS
        if raised and _follows_function(found) and [one.kind for one in inside] != ["bracket"]:
            raise FormulaError("braces { } are not printed: write (\\sin(x))^2 or \\sin(x^2) for \\sin{x}^2")
        begins = bool(inside) and inside[0].kind in _SCRIPTS
        joined = any(one.kind in ("sign", "over", "comma", "relation") for one in inside)
        if begins or joined or (raised and len(inside) != 1):
            raise FormulaError("braces { } are not printed: write ( ) around what belongs together")
        found += inside
    return found


def _follows_function(nodes: Sequence[LatexNode]) -> bool:
    """Whether the last node, scripts aside, is a function or an upright word, which may be one."""
    last = next((node for node in reversed(nodes) if node.kind not in _SCRIPTS), None)
    return last is not None and (last.kind == "function" or last.style in ("upright", "operator"))


def split(nodes: Sequence[LatexNode], at: Callable[[LatexNode], bool]) -> list[list[LatexNode]]:
    """The sequences between the nodes that separate them."""
    parts: list[list[LatexNode]] = [[]]
    for node in nodes:
        if at(node):
            parts.append([])
        else:
            parts[-1].append(node)
    return parts


def check_bracket(node: LatexNode, source: str) -> None:
    r"""Refuse [x], which could be the integer part, and \{x\}, which could be the fractional part.

    Both group if there are brackets inside them, and [ ] also around a sum.
    """
    inside = node.parts[0]
    if node.text == "(" or _encloses(inside):
        return
    if node.text == "[" and any(one.kind == "sign" for one in flat(inside)):
        return
    text = " ".join(source[node.start : node.end].split())[:40]
    other = "\\lfloor ... \\rfloor" if node.text == "[" else "x - \\lfloor x \\rfloor for the fractional part"
    raise FormulaError(f"{text} is read in two ways: write ( ... ) or {other}")


def _encloses(nodes: Sequence[LatexNode]) -> bool:
    return any(node.kind in _ENCLOSING or any(map(_encloses, node.parts)) for node in nodes)


#: Before a node: the number of bars around it, whether a value is complete, whether a bar has begun beside a value.
_BarState = tuple[int, bool, bool]
#: For each bar, whether it begins an absolute value.
_Begins = tuple[bool, ...]


def paired(nodes: Sequence[LatexNode]) -> list[LatexNode]:
    """The nodes with absolute values instead of plain bars, if these can be paired in one way only.

    A bar does not say whether it begins or ends a value: |a|b|c| is |a| b |c| or |a |b| c|.
    """
    bars = sum(node.kind == "bar" for node in nodes)
    if not bars:
        return list(nodes)
    if bars > MAX_BARS:
        raise FormulaError(f"it has more than {MAX_BARS} bars on one level: write \\left| and \\right|")
    # A sign after a bar that stands beside a value, as in |a| -b|c|, is a difference if it can be one.
    ways = _pairings(nodes, signs=False) or _pairings(nodes, signs=True)
    if not ways:
        raise FormulaError("a bar | has no partner: write \\left| x \\right|, and one formula without conditions")
    if len(ways) > 1:
        advice = "\\left| a \\right| b \\left| c \\right| or \\left| a \\left| b \\right| c \\right|"
        raise FormulaError(f"its bars can be paired in more than one way: write {advice}")
    return _with_values(nodes, ways[0])


def _pairings(nodes: Sequence[LatexNode], signs: bool) -> list[_Begins]:
    """Up to two ways to pair the bars."""
    ways: dict[_BarState, list[_Begins]] = {(0, False, False): [()]}
    for node in nodes:
        after: dict[_BarState, list[_Begins]] = defaultdict(list)
        for state, found in ways.items():
            for new, begins in _steps(node.kind, state, signs):
                after[new] = (after[new] + [earlier + begins for earlier in found])[:2]
        ways = after
    return ways.get((0, True, False), [])


def _steps(kind: str, state: _BarState, signs: bool) -> list[tuple[_BarState, _Begins]]:
    """The states after a node of this kind."""
    depth, complete, beside = state
    if kind == "bar":
        begin = ((depth + 1, False, complete), (True,))
        end = ((depth - 1, True, False), (False,))
        return [begin, end] if complete and depth else [begin]
    if kind == "sign":
        return [] if beside and not signs else [((depth, False, False), ())]
    if kind in ("times", "over"):
        return [((depth, False, False), ())] if complete else []
    if kind in ("comma", "relation"):
        return [((depth, False, False), ())] if complete and not depth else []
    if kind in _SCRIPTS:
        return [((depth, True, False), ())] if complete or not beside else []
    return [((depth, kind != "function", False), ())]


def _with_values(nodes: Sequence[LatexNode], begins: _Begins) -> list[LatexNode]:
    levels: list[list[LatexNode]] = [[]]
    openings: list[LatexNode] = []
    signs = iter(begins)
    for node in nodes:
        if node.kind != "bar":
            levels[-1].append(node)
        elif next(signs):
            openings.append(node)
            levels.append([])
        else:
            first = openings.pop()
            if first.text != node.text:
                raise FormulaError("a bar | is closed by \\|: write two bars of one kind")
            inside = tuple(levels.pop())
            levels[-1].append(replace(first, kind="abs", end=node.end, parts=(inside,)))
    return levels[0]
