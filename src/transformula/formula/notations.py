"""The notations a formula may be given in, each turned into text that the kernel's parser reads.

Text stays as typed. Expressions of sympy, Python functions and our own trees become text, which is what the model
stores and the proof is about.

A formula that cannot be read is refused with a hint for its mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from transformula.errors import Advised, FormulaError, Reason
from transformula.formula.evaluation import check_with_numbers
from transformula.formula.from_function import traced
from transformula.formula.from_sympy import from_sympy
from transformula.formula.given_box import box_and_constants, exact_number, formulas_of, is_sympy, names_defined, plain
from transformula.formula.jump_advice import advice_on_jump
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.definitions import ALIASES, JUMPING, JUMPS, PIECEWISE, known
from transformula.kernel.syntax.expression import CONSTANTS, Expr

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
    _check_calls(_texts(given), (*box.variables, *constants), names_defined(texts))
    try:
        formula = Formula.of(formulas, box)
    except FormulaError as error:
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
    for name in {name for name, _ in _CALLED.findall(whole)} & {*given, *defined} & {*_FUNCTIONS}:
        if _NAME.findall(whole).count(name) == defined.count(name):
            raise FormulaError(f"{name}(..) can be read in two ways: write {name}*(..), or give the value another name")
    if over := _OVER.search(whole):
        said = f"{over[1]}(.., {over[3]}, {over[4]}, {over[5]}) has no running index, it takes the terms themselves"
        raise FormulaError(f"{said}: write them one by one, each with a value of {over[3]}")


_FUNCTIONS = (*known(), *JUMPS, *JUMPING, *ALIASES, *PIECEWISE)
_ANY_FUNCTION = "|".join(sorted(_FUNCTIONS, key=len, reverse=True))
_WORD = r"[A-Za-z_]\w*"
_VALUE = r"[A-Za-z_]\w*|\d+(?:\.\d+)?"
#: Names of functions in other languages and notations, and what to write instead.
_ELSEWHERE = {
    "tg": "tan", "ctg": "cot", "arctg": "atan", "arcctg": "atan(1/..)", "sen": "sin", "lg": "log10", "ld": "log2",
    "lb": "log2", "sh": "sinh", "ch": "cosh", "th": "tanh", "sqr": "(..)**2", "square": "(..)**2",
    "root": "(..)**(1/n)", "nthroot": "(..)**(1/n)", "cuberoot": "cbrt", "if": "where", "iif": "where",
    "ifelse": "where", "select": "where",
    "norm_cdf": "Phi", "cdf": "Phi", "pnorm": "Phi", "ncdf": "Phi", "NORMSDIST": "Phi", "fabs": "abs",
    "absolute": "abs",
    "minimum": "min", "maximum": "max", "fmin": "min", "fmax": "max", "remainder": "mod", "fix": "trunc",
    "softmax": "exp(x1)/(exp(x1) + exp(x2))", "gaussian": "exp(-(..)**2/2)", "gauss": "exp(-(..)**2/2)",
    "N": "Phi", "norm": "sqrt(x**2 + y**2) or hypot(x, y)",
    "reciprocal": "1/(..)", "negative": "-(..)", "int": "trunc", "S": "(..)", "Integer": "(..)", "Float": "(..)",
    "rad2deg": "degrees", "mean": "sum(..)/n", "avg": "sum(..)/n", "average": "sum(..)/n", "product": "prod",
}  # fmt: skip
#: Operators that are functions elsewhere.
_OPERATORS = {"Add": " + ", "add": " + ", "subtract": " - ", "sub": " - ", "Mul": "*", "multiply": "*", "mul": "*",
              "divide": "/", "div": "/", "Rational": "/"}  # fmt: skip
#: Units that stand behind numbers and are no variables.
_UNITS = re.compile(
    "[munkcM]?m|[mun]?s|min|h|[km]?g|[kM]?[NJWV]|m[VAL]|A|[kMG]?Pa|bar|K|C|mol|[kMG]?Hz|rad|ml|L|eV|ohm|F|H|T"
)
_NO_MATRIX = "formulas are of numbers: write the entries of matrices out"
_REAL = "formulas are real: write cos(u) and sin(u) for the two parts of exp(i*u)"
_NO_FORMULA = "it has no value at a point: write the result as a formula"


def _call(name: str, inside: str) -> str:
    """Advice to call a function by our name for it."""
    if name in _OPERATORS:
        return f"write {_OPERATORS[name].join(part.strip() for part in inside.split(','))}"
    ours = _ELSEWHERE.get(name, name)
    whole = "(" in ours or ".." in ours
    return f"write {ours.replace('..', inside)}" if whole else f"write {ours}({inside})"


def _chosen(m: re.Match[str]) -> str:
    return f"write where({m[1].strip()}, {m[2].strip()}, {m[3].strip()})"


#: A character, or a bracket without others inside.
_FLAT = r"(?:[^()]|\([^()]*\))"


def _inline_choice(m: re.Match[str]) -> str:
    return f"write where({m[2].strip()}, {m[1].strip()}, {m[3].strip()})"


#: Names in front of a dot that are no variables.
_MODULES = ("np", "numpy", "math", "torch", "tf", "jnp", "jax", "scipy", "sp", "stats", "norm", "F", "sympy", "special",
            "Math", "cmath", "nn", "st", "tensorflow", "mpmath", "mp", "cp", "cupy", "numexpr")  # fmt: skip


def _degree_or_cdf(m: re.Match[str]) -> str:
    method = m[2]
    if method in _FUNCTIONS and m[3] is not None and m[1].split(".")[0] not in _MODULES:
        return f"write {method}({', '.join(part for part in (m[1].rstrip('.'), m[3].strip()) if part)})"
    if m[1].split(".")[0] not in _MODULES:
        return f"a name has letters, digits and _: write {m[1].replace('.', '_')}{method}"
    if method in ("cdf", "ncdf"):
        return _call("Phi", m[3])
    return f"write {method}" if m[3] is None else _call(method, m[3])


def _power_of_call(m: re.Match[str]) -> str:
    inverse = {"sin": "asin", "cos": "acos", "tan": "atan", "sinh": "asinh", "cosh": "acosh", "tanh": "atanh"}
    if m[2].strip("() ") == "-1" and m[1] in inverse:
        return f"write {inverse[m[1]]}({m[3]}) for the inverse function, 1/{m[1]}({m[3]}) for the reciprocal"
    return f"write {m[1]}({m[3]})^{m[2]}"


def _argument(m: re.Match[str]) -> str:
    """Advice on a function without brackets, whose argument may go on."""
    name, argument, rest = m[1], m[2], m.string[m.end() :]
    if re.match(r"\s*(?:[*/^(]|\w)", rest):
        return f"put the argument of {name} in brackets, all of it, as in {name}({argument})"
    return f"write {name}({argument})"


def _thousands(m: re.Match[str]) -> str:
    if "," in m[2] and "." not in m[2] and m[2].count(",") == 1:
        return f"write {m[0].replace(',', '')} without the comma, or {m[0].replace(',', '.')} with a decimal point"
    return f"write {re.sub('[,]', '', m[0]) if '.' not in m[2] else m[0].replace('.', '').replace(',', '.')}"


def _base(m: re.Match[str]) -> str:
    argument, base = m[1].strip(), m[2].strip()
    return f"write log{base}({argument})" if base in ("2", "10") else f"write log({argument})/log({base})"


#: Mistakes from the most to the least specific: a pattern, and advice with its groups.
_MISTAKES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^\s*\$|\$\s*$|\\", "formulas in LaTeX are read with --latex (tf.from_latex in Python)"),
    (rf"({_VALUE}|\))\s*\.([\^*/])", lambda m: f"write {m[1]}{m[2]} without the dot"),
    (r"^\s*lambda\b[^:]*:(.+)", lambda m: f"write {m[1].strip()}, or give the function itself in Python"),
    (r"\b(?:def|return|import|for|while|print)\b", "write one formula: loops and statements are not read"),
    (rf"^\s*{_WORD}\s*\([^()]*\)\s*:?=(?!=)\s*(.+)", lambda m: f"write the right-hand side alone: {m[1].strip()}"),
    (r"^\s*=(?!=)\s*(.+)", lambda m: f"write {m[1].strip()} without the = in front"),
    (rf"^\s*{_WORD}\s*(?:->|=>)\s*(.+)", lambda m: f"write {m[1].strip()} alone"),
    (r"\bif\s*\(([^()]+)\)\s*\{([^{}]+)\}\s*else\s*\{([^{}]+)\}", _chosen),
    (r"\bif\b([^:]+):(.+?)\belse\b\s*:?(.+)", _chosen),
    (r"\bif\b(.+?)\bthen\b(.+?)\belse\b(.+)", _chosen),
    (rf"\(({_FLAT}+?)\bif\b({_FLAT}+?)\belse\b({_FLAT}+)\)", _inline_choice),
    (r"(?m:^)(.+?)\bif\b(.+?)\belse\b(.+)", _inline_choice),
    (r"(?m:^)(.+?)\?(.+?):(.+)", _chosen),
    (rf"\b((?:{_WORD}\.)+)(cdf|ncdf|{_WORD})\s*(?:\(([^()]*)\))?", _degree_or_cdf),
    (rf"\b({_ANY_FUNCTION})\s*(?:\^|\*\*)\s*(-?\d+|\(-?\d+\))\s*\(([^()]*)\)", _power_of_call),
    (rf"\b({_ANY_FUNCTION})\s*(?:\^|\*\*)\s*(-?\d+)\s*({_VALUE})", _power_of_call),
    (r"\bexp\s*(?:\^|\*\*)\s*(\([^()]*\)|\w+)", lambda m: f"write exp({m[1].strip('()')})"),
    (r"\b(?:log|ln)_?(\d+)\s+(\w+)", lambda m: f"write log({m[2]})/log({m[1]})"),
    (r"\blog_(\d+)\s*\(([^()]*)\)", lambda m: _base(re.fullmatch("(.*),(.*)", f"{m[2]},{m[1]}") or m)),
    (r"\b(?:log|ln)\s*\(([^(),]+),([^(),]+)\)", _base),
    (rf"({_VALUE}|\))\s+\[[A-Za-z°%/^*\d .-]+\]\s*$", "leave out the units"),
    (rf"\b({_WORD})\[(\d+)\]", lambda m: f"write {m[1]}{m[2]}, with {m[1]}{m[2]}=low..high in the box"),
    (rf"\b({_WORD})\[([^\[\]]*)\]", lambda m: f"write {m[1].lower()}({m[2]}) with round brackets"),
    (r"^\s*[\[(]([^()\[\]]+,[^()\[\]]+)[\])]\s*$", lambda m: f"write {m[1].replace(',', ';')} for several formulas"),
    (r"\b([A-Za-z]\w*)_\{(\w+)\}", lambda m: f"write {m[1]}_{m[2]}, with {m[1]}_{m[2]}=low..high in the box"),
    (r"(?:\^|\*\*)\s*\{([^{}]+)\}", lambda m: f"write ^({m[1]})"),
    (r"[\[\]{}]", "use round brackets only: ( and )"),
    (rf"({_VALUE})\s*%%\s*({_VALUE})", lambda m: f"write mod({m[1]}, {m[2]})"),
    (rf"({_VALUE})\s*%/%\s*({_VALUE})", lambda m: f"write floor({m[1]}/{m[2]})"),
    (r"%\*%", _NO_MATRIX),
    (rf"({_VALUE})\s*%(?!\s*[\w(])", lambda m: f"write {m[1]}/100"),
    (rf"({_VALUE})\s*(?:%|\bmod\b)\s*({_VALUE})", lambda m: f"write mod({m[1]}, {m[2]})"),
    (rf"({_VALUE}|\([^()]*\))\s*//\s*({_VALUE})", lambda m: f"write floor({m[1]}/{m[2]})"),
    (r"\|([^|]+)\|", lambda m: f"write abs({m[1].strip()[:40]})"),
    (r"(\d+(?:\.\d+)?|[A-Za-z_]\w*)\s*\*?\s*(?:[°º]|deg\b|degrees\b(?!\s*\())", lambda m: f"write radians({m[1]})"),
    (r"[∫∂∇]|\bd/d\w|\bd[a-zA-Z]/d[a-zA-Z]\b|\b(?:diff|integrate|integral|Integral|Derivative)\s*\(", _NO_FORMULA),
    (r"[∑∏]|\b(?:Sum|Product)\s*\(|\bsum\s*\(\s*[ijkn]\s*[,=]", "write the terms out: sum(a, b, c) or prod(a, b, c)"),
    (r"\blim(?:it)?\b|→", _NO_FORMULA),
    (r"(?<![\w.])\d+\.?\d*[ij]\b|\b(?:1j|complex)\b", _REAL),
    (rf"({_VALUE}|\))\s*!(?!=)", lambda m: f"write factorial({m[1]})" if m[1] != ")" else "write factorial(..)"),
    (r"[&|~¬∧∨⊕]|\b(?:and|or|not|xor)\b", "nest where(x > a, where(x < b, .., ..), ..) to join conditions"),
    (r"==|!=|<>|[≠≈]", "a formula is continuous: compare with < <= > >=, inside where(x < 1, a, b)"),
    (r"\b(?:inf|infinity|oo|nan|NaN)\b|∞", "only finite numbers can be used"),
    (rf"^(?=[^']*')[^'\"]*{_WORD}'[^'\"]*$", f"a derivative is written out: {_NO_FORMULA}"),
    (r"\b\d{1,3}(?:'\d{3})+\b", lambda m: f"write {m[0].replace(chr(39), '')}"),
    (r"['\"`]", "leave out the quotation marks"),
    (r"(?<![\w.(,])(\d{1,3})((?:,\d{3})+(?:\.\d+)?|(?:\.\d{3})+,\d+)(?![\d,])", _thousands),
    (r"(\d+)_(\d+)", lambda m: f"write {m[1]}{m[2]}"),
    (r"\b0[xXbBoO][\da-fA-F]+", "write the number in decimal digits"),
    (r"\d+\.\d+\.\d+", "a number has one decimal point"),
    (r"\b(\d{1,3}) (\d{3})\b", lambda m: f"write {m[1]}{m[2]} without the space"),
    (rf"\b({_ANY_FUNCTION})\s+({_VALUE})", _argument),
    (r"\*\*\*+|\^\^+|\^\*\*|\*\*\^", "write one ** or one ^ for a power"),
    (
        r"^(?=[^=]*=)([^=;]*[^=;:<>\w\s][^=;:<>]*)=(?!=)([^=]*)$",
        lambda m: f"an equation is no formula: solve it, or write the difference ({m[1].strip()}) - ({m[2].strip()})",
    ),
    (r"(?<![<>])=", "name intermediate values in parts that end with ; and let the formula come last"),
)
_COMPILED = tuple((re.compile(pattern, re.ASCII), advice) for pattern, advice in _MISTAKES)
_CALLED = re.compile(rf"(?<![\w.])({_WORD})\s*\(([^()]*)", re.ASCII)
#: sum(C/(1 + i)**k, k, 1, 5), as in computer algebra: a name of the first term follows it, and two ends.
_OVER = re.compile(
    rf"(?<![\w.])(sum|prod)\((.{{0,300}}?(?<!\w)({_WORD})(?!\w).{{0,300}}?),\s*\3\s*,\s*([+-]?\w+)\s*,\s*([+-]?\w+)\s*\)"
)
_TIMES = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z_]\w*|\()", re.ASCII)
_BESIDE = re.compile(
    rf"((?:\w+\s*(?:\*\*|\^)\s*)?(?:{_VALUE}|\)))\s*(?<=[\w)])(?:\s+|(?<=\))(?=[\w(]))({_VALUE}|\()", re.ASCII
)
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*\()(?!\w)", re.ASCII)
_CONSTANTS = (*CONSTANTS, "e")
#: Characters on either side of a missing sign that advice repeats.
_SHOWN = 30


def advice_on(error: FormulaError, given: object, box: Box, constants: Iterable[str] = ()) -> str:
    """Advice on a formula that the kernel refuses to read, by the reason or by the first known mistake."""
    if error.reason is Reason.CONDITION:
        return "write it as several conditions such as x > 2*y, one where(..) in another, or use min and max"
    return hint(given, (*box.variables, *constants))


def _texts(given: object) -> list[str]:
    given = [given] if isinstance(given, str) else given if isinstance(given, (list, tuple)) else []
    return [text for text in given if isinstance(text, str)]


def hint(given: object, variables: Iterable[str]) -> str:
    """Advice on the first formula with a known mistake, or nothing.

    Examples
    --------
    >>> hint("sin x + 1", ["x"]), hint("2x", ["x"]), hint("x + 1", ["x"]), hint("x + y", ["x"])
    ('write sin(x)', 'write 2*x', '', 'add y=low..high to the box')
    """
    names = set(variables)
    return next((said for text in _texts(given) for said in _hints(text, names)), "")


def _hints(text: str, names: set[str]) -> Iterator[str]:
    for pattern, advice in _COMPILED:
        if found := pattern.search(text):
            yield advice if isinstance(advice, str) else advice(found)
    yield from _wrong_functions(text, names)
    if (comma := _comma_outside(text)) >= 0 and (found := re.match(r".*?(\d+),(\d+)$", text[: comma + 2])):
        yield f"write {found[1]}.{found[2]} with a decimal point"
    if comma >= 0:
        yield "give several formulas as separate arguments, or separate them by ;"
    found = _TIMES.search(text)
    if found and _UNITS.fullmatch(found[2]) and found[2] not in names:
        yield f"leave out the units: write {found[1]}, and all quantities in one system of units"
    if beside := _BESIDE.search(text):
        yield _product(text, *beside.span(2))
    if found and not re.match(r"[eE]\d", found[2]):
        yield _product(text, *found.span(2))
    if re.search(r"[<>]", text) and "where" not in text:
        yield "a comparison stands inside where(x < 1, a, b)"
    if missing := text.count("(") - text.count(")"):
        yield f"{abs(missing)} bracket{'s' * (abs(missing) > 1)} {'not closed' if missing > 0 else 'too many'}"
    if re.search(r"\([^()]*;", text):
        yield "separate the arguments of a function by commas"
    for name in _NAME.findall(text):
        yield from _unknown_name(name, names)
    if any(char.isalpha() and not char.isascii() for char in text):
        yield "names have the letters a to z, digits and _"


def _unknown_name(name: str, names: set[str]) -> Iterator[str]:
    if name in names or name in _CONSTANTS:
        return
    if name in ("i", "j"):
        yield _REAL
    if name.lower() == "pi":
        yield "write pi"
    if name.swapcase() in names:
        yield f"write {name.swapcase()}, as in the box"
    if name not in _FUNCTIONS:
        yield _run_together(name, names) or f"add {name[:40]}=low..high to the box"


def _product(text: str, start: int, end: int) -> str:
    """Advice to write * before the factor that stands from ``start`` to ``end``."""
    before, after = text[:start].rstrip(), text[start:].rstrip()
    if below := re.search(rf"/\s*((?:{_VALUE}))$", before, re.ASCII):
        factor = text[start:end]
        return f"write /({below[1]}*{factor}) if both divide, or /{below[1]}*{factor} if only {below[1]} does"
    shown = f"{'..' * (len(before) > _SHOWN)}{before[-_SHOWN:]}*{after[:_SHOWN]}{'..' * (len(after) > _SHOWN)}"
    return f"write {shown}"


def _run_together(name: str, names: set[str]) -> str:
    """Advice on a name made of two that are known, such as x1x2 or lnx."""
    for cut in range(1, len(name)):
        first, second = name[:cut], name[cut:]
        if second in names and (first in names or first in _CONSTANTS):
            return f"write {first}*{second}"
        if second in names and first in _FUNCTIONS:
            return f"write {first}({second})"
    return ""


def _wrong_functions(text: str, names: set[str]) -> Iterator[str]:
    for name, inside in _CALLED.findall(text):
        if name in _FUNCTIONS:
            continue
        if name in names:
            yield f"write {name}*({inside})"
        elif name in ("e", "E"):
            yield f"write exp({inside})"
        elif name.lower() == "pi":
            yield "write pi without brackets"
        elif name in _OPERATORS:
            yield _call(name, inside)
        elif name in _ELSEWHERE or name.lower() in _ELSEWHERE:
            yield _call(name if name in _ELSEWHERE else name.lower(), inside.strip())
        elif name.lower() in _FUNCTIONS:
            yield f"write {name.lower()}({inside})"
        elif factor := next((n for n in names if name.startswith(n) and name[len(n) :] in _FUNCTIONS), ""):
            yield f"write {factor}*{name[len(factor) :]}({inside})"
        elif near := get_close_matches(name, _FUNCTIONS, 1, 0.7):
            yield f"the nearest function is {near[0]}"


def _comma_outside(text: str) -> int:
    """The place of the first comma outside of brackets, or -1."""
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            return place
    return -1
