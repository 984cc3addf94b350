"""Tables of the LaTeX commands that are read, and the advice for those that are refused."""

from __future__ import annotations

from transformula.kernel.syntax.definitions import ALIASES, is_known

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


def function_named(name: str) -> str | None:
    r"""Our name of the function \operatorname{name}, or None.

    Examples
    --------
    >>> function_named("arsinh"), function_named("erf"), function_named("max"), function_named("foo")
    ('asinh', 'erf', 'max', None)
    """
    ours = _ISO_NAMES.get(name) or ALIASES.get(name, name)
    return ours if is_known(ours) else None
