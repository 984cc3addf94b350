"""Hints: what to write instead of a known mistake in a formula that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches

from transformula.errors import FormulaError, Reason
from transformula.formula import constants
from transformula.formula.notations import CALLED, FUNCTIONS, NAME, WORD, listed
from transformula.kernel.syntax.boxes import Box, is_variable_name, split_commas
from transformula.kernel.syntax.expression import CONSTANTS

_ANY_FUNCTION = "|".join(sorted(FUNCTIONS, key=len, reverse=True))
_VALUE = r"[A-Za-z_]\w*|\d+(?:\.\d+)?"
#: Names of functions in other languages and notations, and what to write instead.
_ELSEWHERE = {
    "tg": "tan", "ctg": "cot", "arctg": "atan", "arcctg": "atan(1/(..))", "sen": "sin", "lg": "log10", "ld": "log2",
    "lb": "log2", "sh": "sinh", "ch": "cosh", "th": "tanh", "sqr": "(..)**2", "square": "(..)**2",
    "root": "(..)**(1/n)", "nthroot": "(..)**(1/n)", "cuberoot": "cbrt", "cosec": "csc", "cotan": "cot",
    "sind": "sin(radians(..))", "cosd": "cos(radians(..))", "tand": "tan(radians(..))",
    "asind": "degrees(asin(..))", "acosd": "degrees(acos(..))", "atand": "degrees(atan(..))",
    "atan2d": "degrees(atan2(..))",
    "arccot": "atan(1/(..))", "acot": "atan(1/(..))", "arcsec": "acos(1/(..))", "asec": "acos(1/(..))",
    "arccsc": "asin(1/(..))", "acsc": "asin(1/(..))", "if": "where", "iif": "where",
    "ifelse": "where", "select": "where",
    "norm_cdf": "Phi", "cdf": "Phi", "pnorm": "Phi", "ncdf": "Phi", "NORMSDIST": "Phi", "fabs": "abs",
    "absolute": "abs",
    "minimum": "min", "maximum": "max", "fmin": "min", "fmax": "max", "remainder": "mod", "fix": "trunc",
    "softmax": "exp(x1)/(exp(x1) + exp(x2))", "gaussian": "exp(-(..)**2/2)", "gauss": "exp(-(..)**2/2)",
    "N": "Phi", "norm": "sqrt(x**2 + y**2) or hypot(x, y)",
    "reciprocal": "1/(..)", "negative": "-(..)", "int": "trunc", "S": "(..)", "Integer": "(..)", "Float": "(..)",
    "rad2deg": "degrees", "product": "prod",
}  # fmt: skip
#: Operators that are functions elsewhere.
_OPERATORS = {"Add": " + ", "add": " + ", "subtract": " - ", "sub": " - ", "Mul": "*", "multiply": "*", "mul": "*",
              "divide": "/", "div": "/", "Rational": "/"}  # fmt: skip
_MEANS = ("mean", "avg", "average", "Mean", "AVERAGE")
#: Units that stand behind numbers and are no variables.
_UNITS = re.compile(
    "[munkcM]?m|[mun]?s|min|h|[km]?g|[kM]?[NJWV]|m[VAL]|A|[kMG]?Pa|m?bar|K|C|deg_?[CFKR]|[km]?mol|[kMG]?Hz|rad|ml|L|eV|"
    "[kM]?ohm|[kM]?Omega|[munp]?F|[mun]?H|T|[kM]?Wh|k?cal|psi|lbs?|ft|dB|USD|EUR"
)
_PREFIXES = {"k": 3, "M": 6, "G": 9, "u": -6, "n": -9, "p": -12}
_NO_MATRIX = "formulas are of numbers: write the entries of matrices out"
_REAL = "formulas are real: write cos(u) and sin(u) for the two parts of exp(i*u)"
_NO_FORMULA = "it has no value at a point: write the result as a formula"


def _call(name: str, inside: str) -> str:
    """Advice to call a function by our name for it."""
    parts = split_commas(inside)
    if name in _OPERATORS:
        return f"write {_OPERATORS[name].join(parts)}"
    if name in _MEANS:
        return f"write ({' + '.join(parts)})/{len(parts)}"
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
    if method in FUNCTIONS and m[3] is not None and m[1].split(".")[0] not in _MODULES:
        return f"write {method}({', '.join(part for part in (m[1].rstrip('.'), m[3].strip()) if part)})"
    if m[1] + method == "NORM.S.DIST":
        return "write Phi(..)"
    if m[1].split(".")[0] not in _MODULES:
        return f"a name has letters, digits and _: write {m[1].replace('.', '_')}{method}"
    if method == "ppf":
        return "there is no inverse of Phi here"
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
    (rf"^\s*{WORD}\s*\([^()]*\)\s*:?=(?!=)\s*(.+)", lambda m: f"write the right-hand side alone: {m[1].strip()}"),
    (r"^\s*=(?!=)\s*(.+)", lambda m: f"write {m[1].strip()} without the = in front"),
    (rf"^\s*{WORD}\s*(?:->|=>)\s*(.+)", lambda m: f"write {m[1].strip()} alone"),
    (r"\bif\s*\(([^()]+)\)\s*\{([^{}]+)\}\s*else\s*\{([^{}]+)\}", _chosen),
    (r"\bif\b([^:]+):(.+?)\belse\b\s*:?(.+)", _chosen),
    (r"\bif\b(.+?)\bthen\b(.+?)\belse\b(.+)", _chosen),
    (rf"\(({_FLAT}+?)\bif\b({_FLAT}+?)\belse\b({_FLAT}+)\)", _inline_choice),
    (r"(?m:^)(.+?)\bif\b(.+?)\belse\b(.+)", _inline_choice),
    (r"(?m:^)(.+?)\?(.+?):(.+)", _chosen),
    (rf"\b((?:{WORD}\.)+)(cdf|ncdf|{WORD})\s*(?:\(([^()]*)\))?", _degree_or_cdf),
    (rf"\b({_ANY_FUNCTION})\s*(?:\^|\*\*)\s*(-?\d+|\(-?\d+\))\s*\(([^()]*)\)", _power_of_call),
    (rf"\b({_ANY_FUNCTION})\s*(?:\^|\*\*)\s*(-?\d+)\s*({_VALUE})", _power_of_call),
    (r"\bexp\s*(?:\^|\*\*)\s*(\([^()]*\)|\w+)", lambda m: f"write exp({m[1].strip('()')})"),
    (r"\b(?:log|ln)_?(\d+)\s+(\w+)", lambda m: f"write log({m[2]})/log({m[1]})"),
    (r"\blog_(\d+)\s*\(([^()]*)\)", lambda m: _base(re.fullmatch("(.*),(.*)", f"{m[2]},{m[1]}") or m)),
    (r"\b(?:log|ln)\s*\(([^(),]+),([^(),]+)\)", _base),
    (rf"({_VALUE}|\))\s+\[[A-Za-z°%/^*\d .-]+\]\s*$", "leave out the units"),
    (rf"\b({WORD})\[(\d+)\]", lambda m: f"write {m[1]}{m[2]}, with {m[1]}{m[2]}=low..high in the box"),
    (rf"\b({WORD})\[([^\[\]]*)\]", lambda m: f"write {m[1].lower()}({m[2]}) with round brackets"),
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
    (r"[°º]\s*[CFKR]\b", "leave out the units"),
    (r"(\d+(?:\.\d+)?|[A-Za-z_]\w*)\s*\*?\s*(?:[°º]|deg\b|degrees\b(?!\s*\())", lambda m: f"write radians({m[1]})"),
    (r"[∫∂∇]|\bd/d\w|\bd[a-zA-Z]/d[a-zA-Z]\b|\b(?:diff|integrate|integral|Integral|Derivative)\s*\(", _NO_FORMULA),
    (r"[∑∏]|\b(?:Sum|Product)\s*\(|\bsum\s*\(\s*[ijkn]\s*[,=]", "write the terms out: sum(a, b, c) or prod(a, b, c)"),
    (r"\blim(?:it)?\b|→", _NO_FORMULA),
    (r"(?<![\w.])\d+\.?\d*[ij]\b|\b(?:1j|complex)\b", _REAL),
    (rf"({_VALUE}|\))\s*!(?!=)", lambda m: f"write factorial({m[1]})" if m[1] != ")" else "write factorial(..)"),
    (r"[&|~¬∧∨⊕]|\b(?:and|or|not|xor)\b", "nest where(x > a, where(x < b, .., ..), ..) to join conditions"),
    (r"==|!=|<>|[≠≈]", "a formula is continuous: compare with < <= > >=, inside where(x < 1, a, b)"),
    (r"\b(?:inf|infinity|oo|nan|NaN)\b|∞", "only finite numbers can be used"),
    (rf"^(?=[^']*')[^'\"]*{WORD}'[^'\"]*$", f"a derivative is written out: {_NO_FORMULA}"),
    (r"\b\d{1,3}(?:'\d{3})+\b", lambda m: f"write {m[0].replace(chr(39), '')}"),
    (r"['\"`]", "leave out the quotation marks"),
    (r"(?<![\w.(,])(\d{1,3})((?:,\d{3})+(?:\.\d+)?|(?:\.\d{3})+,\d+)(?![\d,])", _thousands),
    (r"(\d+)_(\d+)", lambda m: f"write {m[1]}{m[2]}"),
    (r"\b0[xXbBoO][\da-fA-F]+", "write the number in decimal digits"),
    (r"(?<![\w.])(\d+(?:\.\d+)?)\s*[xX ]\s*10\s*(?:\^|\*\*)\s*\(?\s*([+-]?\d+)", lambda m: f"write {m[1]}e{m[2]}"),
    (r"\d+\.\d+\.\d+", "a number has one decimal point"),
    (r"\b\d{1,3}(?: \d{3})+\b", lambda m: f"write {m[0].replace(' ', '')} without the space"),
    (r"\.\.\.|…", "write all terms out"),
    ("±", "write two formulas, one with + and one with -"),
    (
        r"(?<![\w.])(\d+(?:\.\d+)?)([kMGunp])(?!\w)",
        lambda m: f"write {m[1]}e{_PREFIXES[m[2]]} if {m[2]} is a prefix, else {m[1]}*{m[2]}",
    ),
    (rf"\b({_ANY_FUNCTION})\s+({_VALUE})", _argument),
    (r"\*\*\*+|\^\^+|\^\*\*|\*\*\^", "write one ** or one ^ for a power"),
    (
        r"^(?=[^=]*=)([^=;]*[^=;:<>\w\s][^=;:<>]*)=(?!=)([^=]*)$",
        lambda m: f"an equation is no formula: solve it, or write the difference ({m[1].strip()}) - ({m[2].strip()})",
    ),
    (r"(?<![<>])=", "name intermediate values in parts that end with ; and let the formula come last"),
)
_COMPILED = tuple((re.compile(pattern, re.ASCII), advice) for pattern, advice in _MISTAKES)
_TIMES = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z_]\w*|\()", re.ASCII)
_BESIDE = re.compile(
    rf"((?:\w+\s*(?:\*\*|\^)\s*)?(?:{_VALUE}|\)))\s*(?<=[\w)])(?:\s+|(?<=\))(?=[\w(]))({_VALUE}|\()", re.ASCII
)
_CONSTANTS = (*CONSTANTS, "e")
#: Characters of a formula that advice repeats as a whole; of a longer one, those on either side of a missing sign.
_WHOLE, _SHOWN = 120, 30


def advice_on(error: FormulaError, given: object, box: Box, held: Iterable[str] = ()) -> str:
    """Advice on a formula that the kernel refuses to read, by the reason or by the first known mistake."""
    if error.reason is Reason.CONDITION:
        return "write it as several conditions such as x > 2*y, one where(..) in another, or use min and max"
    return hint(given, (*box.variables, *held))


def hint(given: object, variables: Iterable[str]) -> str:
    """Advice on the first formula with a known mistake, or nothing.

    Examples
    --------
    >>> hint("sin x + 1", ["x"]), hint("2x", ["x"]), hint("x + 1", ["x"]), hint("x + y", ["x"])
    ('write sin(x)', 'write 2*x', '', 'add y=low..high to the box')
    """
    names = set(variables)
    texts = (re.sub(r"(\w{100})\w+", r"\1", text) for text in listed(given))  # searched from every letter of a word
    return next((said for text in texts for said in _hints(text, names)), "")


def _hints(text: str, names: set[str]) -> Iterator[str]:
    for pattern, advice in _COMPILED:
        if found := pattern.search(text):
            yield advice if isinstance(advice, str) else advice(found)
    yield from _wrong_functions(text, names)
    if (comma := _comma_outside(text)) >= 0 and (found := re.match(r".*?(\d+),(\d+)$", text[: comma + 2])):
        yield f"write {found[1]}.{found[2]} with a decimal point"
    if comma >= 0:
        yield "give several formulas as separate arguments, or separate them by ;"
    yield from _units(text, names)
    if gaps := _gaps(text):
        yield _products(text, gaps)
    if re.search(r"[<>]", text) and "where" not in text:
        yield "a comparison stands inside where(x < 1, a, b)"
    if missing := text.count("(") - text.count(")"):
        yield f"{abs(missing)} bracket{'s' * (abs(missing) > 1)} {'not closed' if missing > 0 else 'too many'}"
    if re.search(r"\([^()]*;", text):
        yield "separate the arguments of a function by commas"
    for name in NAME.findall(text):
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
    if name.replace("_", "") in names:
        yield f"write {name.replace('_', '')}, as in the box"
    if is_variable_name(name):
        yield _run_together(name, names) or f"add {name[:40]}=low..high to the box{_held(name)}"


def _units(text: str, names: set[str]) -> Iterator[str]:
    """Advice on a unit behind a number or a name."""
    if (found := _TIMES.search(text)) and _UNITS.fullmatch(found[2]) and found[2] not in names:
        yield f"leave out the units: write {found[1]}, and all quantities in one system of units"
    if (found := _BESIDE.search(text)) and _UNITS.fullmatch(found[2]) and found[2] not in names:
        before, unit = found[1], found[2]
        yield f"leave out {unit} if it is a unit, or write {before}*{unit}, with {unit}=low..high in the box"


def _gaps(text: str) -> list[int]:
    """The places of factors in front of which a sign of multiplication is missing."""
    beside = [m.start(2) for m in _BESIDE.finditer(text) if not (m[1] in FUNCTIONS and m[2] == "(")]
    after_number = [m.start(2) for m in _TIMES.finditer(text) if not re.match(r"[eE][+-]?\d", text[m.start(2) :])]
    return sorted({*beside, *after_number})


def _products(text: str, gaps: Sequence[int]) -> str:
    """Advice to write * wherever it is missing; what a quotient divides by is asked for first."""
    for place in gaps:
        if below := re.search(rf"/\s*({_VALUE})$", text[:place].rstrip(), re.ASCII):
            factor = (re.match(_VALUE, text[place:], re.ASCII) or re.match(r"\(", text[place:]) or below)[0]
            return f"write /({below[1]}*{factor}) if both divide, or /{below[1]}*{factor} if only {below[1]} does"
    whole, first = text, gaps[0]
    while gaps:
        for place in reversed(gaps):
            whole = f"{whole[:place].rstrip()}*{whole[place:]}"
        gaps = _gaps(whole)
    start, end = max(0, first - _SHOWN), first + _SHOWN
    shown = f"{'..' * (start > 0)}{whole[start:end]}.."
    return f"write {whole.strip() if len(whole) <= _WHOLE else shown}"


def _held(name: str) -> str:
    """The rest of advice on a name that may be a physical constant, k_B and epsilon_0 among them."""
    plainly = name.replace("_", "").replace("epsilon", "eps").lower()
    known = next((one for one in constants.ABOUT if one == name or plainly == one.lower() != one[:1].lower()), None)
    return f", or {name}={str(getattr(constants, known)).lower()} for {constants.ABOUT[known]}" if known else ""


def _run_together(name: str, names: set[str]) -> str:
    """Advice on a name made of two that are known, such as x1x2 or lnx."""
    for cut in range(1, len(name)):
        first, second = name[:cut], name[cut:]
        if second in names and (first in names or first in _CONSTANTS):
            return f"write {first}*{second}"
        if second in names and first in FUNCTIONS:
            return f"write {first}({second})"
    letters = [*name] if len(name) <= _SHOWN else []
    if names & {*letters} and all(letter in names or letter in constants.ABOUT for letter in letters):
        held = (f"{c}={str(getattr(constants, c)).lower()} for {constants.ABOUT[c]}" for c in letters if c not in names)
        return f"write {'*'.join(letters)}{''.join(f', with {one}' for one in held)}"
    return ""


def _wrong_functions(text: str, names: set[str]) -> Iterator[str]:
    for found in CALLED.finditer(text):
        name, inside = found[1], _inside(text[found.start(2) :])
        if name in FUNCTIONS:
            continue
        if name in names:
            yield f"write {name}*({inside})"
        elif name in ("e", "E"):
            yield f"write exp({inside})"
        elif name.lower() == "pi":
            yield "write pi without brackets"
        elif name in _OPERATORS or name in _MEANS:
            yield _call(name, inside)
        elif name in _ELSEWHERE or name.lower() in _ELSEWHERE:
            yield _call(name if name in _ELSEWHERE else name.lower(), inside.strip())
        elif name.lower() in FUNCTIONS:
            yield f"write {name.lower()}({inside})"
        elif factor := next((n for n in names if name.startswith(n) and name[len(n) :] in FUNCTIONS), ""):
            yield f"write {factor}*{name[len(factor) :]}({inside})"
        elif near := get_close_matches(name, FUNCTIONS, 1, 0.7):
            yield f"the nearest function is {near[0]}"


def _inside(text: str) -> str:
    """The text up to the bracket that closes a call."""
    depth = 1
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return text[:place]
    return text


def _comma_outside(text: str) -> int:
    """The place of the first comma outside of brackets, or -1."""
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            return place
    return -1
