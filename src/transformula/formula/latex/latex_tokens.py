"""Tokens of LaTeX, and the tables of the commands that are read and of those that are refused, with advice.

Comments, dollar signs and spaces are dropped, and the space before each token is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from transformula.errors import FormulaError
from transformula.kernel.syntax.definitions import ALIASES, is_known

#: Characters of one formula.
MAX_LENGTH = 10_000

_GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho varrho sigma"
    " tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
#: Commands for one letter; the variable has the command's name.
LETTERS = frozenset((*_GREEK.split(), "ell", "hbar"))

_TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
#: Functions whose power -1 is the inverse function.
INVERSES = {name: f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
#: Functions with a command of their own, and our names for them.
FUNCTIONS = {name: name for name in (*_TRIGONOMETRIC, "sinh", "cosh", "tanh", "coth", "exp", "min", "max", "log")}
FUNCTIONS |= {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log", "lg": "log10"}
#: Names of ISO 80000-2 that the text grammar does not have.
_ISO_NAMES = {"arsinh": "asinh", "arcosh": "acosh", "artanh": "atanh", "lg": "log10", "lb": "log2"}
#: Logarithms whose base differs between books, and the unambiguous spellings.
UNCLEAR_BASES = {"log": r"\ln x or \log_{10} x", "lg": r"\log_{10} x or \log_{2} x"}
LOGARITHMS = ("log", "log2", "log10")
#: Functions that books write without brackets, as in \sin x; all others need them.
PREFIX = frozenset((*_TRIGONOMETRIC, *(f"{name}h" for name in _TRIGONOMETRIC), *INVERSES.values(), *LOGARITHMS, "exp"))

#: Commands that set a space, and those that set the size of the bracket after them.
SPACES = frozenset((*",;:!> ", "quad", "qquad", "enspace", "thinspace", "medspace", "thickspace"))
SPACES |= {"displaystyle", "textstyle"}
SIZES = frozenset(f"{size}{side}" for size in ("big", "Big", "bigg", "Bigg") for side in ("", "l", "r"))

FRACTIONS = (r"\frac", r"\dfrac", r"\tfrac", r"\cfrac")
#: Marks above a letter; the variable's name ends with the mark's: x_bar.
ACCENTS = (r"\bar", r"\hat", r"\tilde", r"\dot")
RELATIONS = {
    "=": "=", "<": "<", ">": ">", r"\lt": "<", r"\gt": ">", r"\le": "<=", r"\leq": "<=", r"\leqslant": "<=",
    r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\ne": "!=", r"\neq": "!=",
}  # fmt: skip
#: Other spellings of delimiters.
DELIMITERS = {
    r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]", r"\lparen": "(", r"\rparen": ")",
    r"\vert": "|", r"\Vert": r"\|",
}  # fmt: skip
#: The closing delimiter of each bracket, and the function it stands for unless it only groups.
CLOSING = {
    "(": ")", "[": "]", r"\{": r"\}", r"\lvert": r"\rvert", r"\lVert": r"\rVert", r"\lfloor": r"\rfloor",
    r"\lceil": r"\rceil",
}  # fmt: skip
MEANING = {r"\lvert": "abs", r"\lVert": "abs", "|": "abs", r"\|": "abs", r"\lfloor": "floor", r"\lceil": "ceil"}
#: Node kinds of characters and commands; a mark has to do with brackets or takes arguments.
KINDS = {
    "+": "sign", "-": "sign", "*": "times", r"\cdot": "times", r"\times": "times", "/": "over", r"\div": "over",
    "!": "bang", ",": "comma", ";": "comma", "|": "bar", r"\|": "bar", r"\infty": "infinity",
    **dict.fromkeys(RELATIONS, "relation"), **dict.fromkeys((*CLOSING, *CLOSING.values()), "mark"),
    **dict.fromkeys((*FRACTIONS, *ACCENTS, r"\sqrt", r"\left", r"\right", r"\\"), "mark"),
}  # fmt: skip

_REFUSED = {
    "integrals cannot be compiled: write the integral's closed form": "int iint iiint oint smallint",
    "dots leave terms to the reader: write every term": "dots ldots cdots vdots ddots dotsc dotsb dotsm dotsi",
    "derivatives cannot be compiled: write the derivative itself": "partial nabla",
    "vectors cannot be compiled: write a formula of their components, such as x_{1} and x_{2}":
        "vec mathbf boldsymbol bm overrightarrow",
    "matrices cannot be compiled: write a formula of their entries, such as a_{11}": "det tr matrix pmatrix bmatrix",
    "only a formula can be compiled, not a relation":
        "approx sim simeq cong equiv propto ll gg to mapsto rightarrow Rightarrow implies coloneqq",
    "sets and logic cannot be compiled": "in notin subset cup cap forall exists land lor neg wedge vee emptyset mathbb",
    "write every term of the sum": "sum",
    "write every factor of the product": "prod coprod",
    "write the limit itself: a quotient such as \\frac{\\sin x}{x} is extended continuously": "lim limsup liminf",
    "write the formula once with + and once with -": "pm mp",
    "write it with factorials, such as \\frac{n!}{k!(n-k)!}": "binom dbinom tbinom choose",
    "only finite numbers can be used": "infty",
    "write degrees as \\frac{\\pi}{180} x": "circ degree",
    "write \\operatorname{mod}(x, y)": "bmod mod pmod pod",
    "write \\frac{x}{y}": "over atop",
    "write \\frac{x}{100}": "%",
    "write \\sqrt[n]{x}": "root surd",
    "write \\left| x \\right| for the absolute value": "mid middle",
    "write ( and ), or \\left( and \\right)": "langle rangle",
    "write x_{\\mathrm{prime}} for a variable, or the derivative itself": "prime",
    "write \\bar{x}, or the average itself": "overline",
    "write \\max or \\min of the values": "sup inf",
    "complex numbers cannot be compiled": "Re Im imath jmath arg",
    "give each formula as an argument of its own": "\\",
    "it is read only inside \\begin{cases} ... \\end{cases}": "begin end",
    "write \\cdot": "ast bullet star",
    "write letters and digits in braces, as in \\mathrm{max}": "rm it bf mathrm mathit text operatorname mbox",
    "an alignment mark has no place in one formula": "&",
}  # fmt: skip
#: Advice by refused command.
REFUSED = {command: advice for advice, commands in _REFUSED.items() for command in commands.split()}
#: Characters that are pasted into LaTeX, and the LaTeX for them.
PASTED = {
    "−": "-", "–": "-", "·": r"\cdot", "×": r"\times", "÷": r"\div", "π": r"\pi", "√": r"\sqrt{x}", "²": "^{2}",
    "³": "^{3}", "≤": r"\le", "≥": r"\ge", "∞": "a finite number",
}  # fmt: skip


class LatexSpace(IntEnum):
    r"""The space before a token: none, one that LaTeX ignores, or a command such as ``\,``."""

    NONE = 0
    IGNORED = 1
    SET = 2


@dataclass(frozen=True)
class LatexNode:
    """A token, or a piece of the formula with the sequences inside it; ``style`` is how its letters are set."""

    kind: str
    text: str
    start: int
    end: int
    space: LatexSpace = LatexSpace.NONE
    style: str = ""
    parts: tuple[tuple[LatexNode, ...], ...] = ()


_DISPLAYS: tuple[tuple[str, str], ...] = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_DISPLAYS += tuple((f"\\begin{{{name}}}", f"\\end{{{name}}}") for name in ("equation", "equation*"))
_REMAINDER = re.compile(r"%\s*(\d[\d.]*|\w)\s*", re.ASCII)
_COMMENT = re.compile(r"\\.|%[^\n]*", re.DOTALL)
_STYLES = {
    "mathrm": "upright", "text": "upright", "textrm": "upright", "mbox": "upright", "operatorname": "operator",
    "mathit": "italic", "textit": "italic", "mathnormal": "italic", "mathsf": "mathsf", "mathtt": "mathtt",
}  # fmt: skip
_TOKEN = re.compile(
    rf"(?P<word>\\(?P<style>{'|'.join(_STYLES)})(?![A-Za-z])"
    r"(?:\s*\{(?P<inside>(?:[^{}$\\]|\\_)*)\}|\s*(?P<one>[A-Za-z])))"
    r"|(?P<environment>\\(?P<side>begin|end)\s*\{(?P<name>[A-Za-z]*\*?)\})"
    r"|(?P<command>\\(?:[A-Za-z]+|.))"
    r"|(?P<number>\d+(?:(?:\.|\{,\})\d+)*|\.\d+)"
    r"|(?P<letter>[A-Za-z])|(?P<space>[\s~]+)|(?P<symbol>.)",
    re.ASCII | re.DOTALL,
)
_GROUPED = re.compile(r"[1-9]\d{0,2}\{,\}\d{3}", re.ASCII)
_EXPONENT = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?|\.\d+)[eE]([+-]?\d+)", re.ASCII)
_WORD = re.compile(r"\w+", re.ASCII)


def bare_formula(text: str) -> str:
    """The formula without comments, dollar signs and the punctuation of a sentence.

    Examples
    --------
    >>> bare_formula(r"$$ x^2 + 1. $$  % a parabola")
    'x^2 + 1'
    """
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"it has {len(text)} characters: at most {MAX_LENGTH} are read")
    text = _unpunctuated(_COMMENT.sub(_without_comment, text))
    for before, after in _DISPLAYS:
        if text.startswith(before) and text.endswith(after) and len(text) >= len(before + after):
            return _unpunctuated(text[len(before) : -len(after)])
    return text


def _without_comment(found: re.Match[str]) -> str:
    if found[0][0] == "\\":
        return found[0]
    before = found.string[found.start() - 1 : found.start()]
    if before.isdigit() or (before.strip() and found[0] != "%"):
        raise FormulaError("% begins a comment: write \\frac{5}{100} for 5 percent, or a space before a comment")
    if _REMAINDER.fullmatch(found[0]):
        raise FormulaError("% begins a comment: write \\operatorname{mod}(x, y) for a remainder, or a longer comment")
    return " "


def _unpunctuated(text: str) -> str:
    text = text.strip()
    return text[:-1].rstrip() if text[-1:] in (".", ",", ";") and text[-2:-1] != "\\" else text


def tokens_of(source: str) -> list[LatexNode]:
    r"""The tokens of a bare formula.

    Examples
    --------
    >>> [token.text for token in tokens_of(r"\frac{1{,}5}{x\,T_{\mathrm{max}}}")]
    ['\\frac', '{', '1.5', '}', '{', 'x', 'T', '_', '{', 'max', '}', '}']
    """
    if found := _EXPONENT.search(source):
        mantissa, exponent = found[1], found[2]
        rest = exponent if exponent[0] in "+-" else f"\\cdot {exponent}"
        raise FormulaError(f"write {mantissa} \\cdot 10^{{{exponent}}} or {mantissa} \\cdot \\mathrm{{e}} {rest}")
    tokens = []
    space = LatexSpace.NONE
    for found in _TOKEN.finditer(source):
        command = found["command"]
        if found["space"] or (command and command[1:] in SPACES):
            space = LatexSpace.SET if command or "~" in found[0] else max(space, LatexSpace.IGNORED)
        elif not (command and command[1:] in SIZES):
            kind, text, style = _classified(found)
            tokens.append(LatexNode(kind, text, found.start(), found.end(), space, style))
            space = LatexSpace.NONE
    return tokens


def _classified(found: re.Match[str]) -> tuple[str, str, str]:
    """Kind, text and style of a token."""
    if found["word"]:
        return "name", _word(found["inside"] if found["one"] is None else found["one"]), _STYLES[found["style"]]
    if found["environment"]:
        return found["side"], found["name"], ""
    if found["number"]:
        return "number", _number(found[0]), ""
    if found["letter"]:
        return "name", found[0], "italic"
    text = DELIMITERS.get(found[0], found[0])
    if text in KINDS:
        return KINDS[text], text, ""
    if found["symbol"]:
        return "mark", _symbol(text), ""
    name = text[1:]
    if name in LETTERS:
        return "name", name, "letter"
    if name in FUNCTIONS:
        return "function", name, ""
    raise FormulaError(
        f"{text} is not read: {REFUSED[name]}"
        if name in REFUSED
        else f"the command {text[:40]} is not known: docs/notations.md lists those that are"
    )


def _word(given: str) -> str:
    """The text of a word, without the punctuation of a sentence."""
    if re.search(r"(?<!\\)_", given):
        raise FormulaError(
            f"an index stands after the word: write \\mathrm{{T}}_{{\\mathrm{{max}}}}, not {given[:40]!r}"
        )
    text = given.replace("\\_", "_").strip().rstrip(".,;")
    if not _WORD.fullmatch(text):
        raise FormulaError(f"the text {text[:40]!r} is no name: use letters and digits")
    return text


def _number(text: str) -> str:
    """Digits with a decimal point; a comma in braces is the decimal comma."""
    plain = text.replace("{,}", ".")
    if plain.count(".") > 1:
        raise FormulaError(f"the number {text[:40]} has more than one decimal point: write its digits without gaps")
    if _GROUPED.fullmatch(text):
        raise FormulaError(f"{text} could have a decimal comma or a gap: write {plain} or {plain.replace('.', '')}")
    return f"0{plain}" if plain[0] == "." else plain


def _symbol(char: str) -> str:
    if char in PASTED:
        raise FormulaError(f"write {PASTED[char]} for the character {char}")
    if not (char.isascii() and char.isprintable()):
        raise FormulaError(f"the character {char!a} is no LaTeX: use letters, digits and commands such as \\alpha")
    if char == "'":
        raise FormulaError(f"a prime is not read: {REFUSED['prime']}")
    return char


def function_named(name: str) -> str | None:
    r"""Our name of the function \operatorname{name}, or None.

    Examples
    --------
    >>> function_named("arsinh"), function_named("erf"), function_named("max"), function_named("foo")
    ('asinh', 'erf', 'max', None)
    """
    ours = _ISO_NAMES.get(name) or ALIASES.get(name, name)
    return ours if is_known(ours) else None
