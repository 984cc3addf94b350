"""Formulas and boxes as engineers write them, turned into the kernel's notation; nothing here is trusted.

The kernel reads plain ASCII text, one formula to an output, and a box of intervals. This module adds what is
unambiguous beyond that: named intermediate values (``d1 = ..; S*Phi(d1)``), superscripts, Greek letters, other ways to
write an interval, and variables of the box that have one value. Everything is written out before the kernel sees it,
so the formula that a certificate states can be read without this module.

A box may be given as text, or as a mapping of names to pairs of numbers of any kind.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Complex, Rational, Real
from typing import Any
from unicodedata import category, normalize

from flint import fmpq, fmpz

from transformula.errors import BoxError, FormulaError, brief
from transformula.formula.formula_text import number_text
from transformula.formula.from_sympy import from_sympy
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, expanded_names, is_variable_name, parse_end
from transformula.kernel.syntax.expression import RESERVED, Expr
from transformula.kernel.syntax.parsing import MAX_LENGTH

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("·×∙⋅∗", "*"), **dict.fromkeys("÷∕⁄", "/"), **dict.fromkeys("−–", "-"), "≤": "<=", "≥": ">=",
        **dict.fromkeys("\u200b\u2060\ufeff", " "),
    }
)  # fmt: skip
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon", "ζ": "zeta", "η": "eta",
    "θ": "theta", "ϑ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi", "ρ": "rho",
    "σ": "sigma", "τ": "tau", "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma",
    "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_ROOTS = {"√": "sqrt", "∛": "cbrt"}
_ROOT = re.compile(r"([√∛])\s*(\(|[A-Za-z_]\w*|\d+(?:\.\d+)?)(?=(\s*(?:\*\*|\^))?)")
_FRACTION = re.compile("[¼½¾⅐-⅞]")
_WORD = re.compile(r"[^\W\d]\w*")
_COMMENT = re.compile(r"#[^\n]*")
_DEFINED = re.compile(r"\s*([A-Za-z_]\w*)\s*:?=(?![=>])(.*)", re.ASCII | re.DOTALL)
_NAME = re.compile(r"(?<![\w.#])[A-Za-z_]\w*(?![\w.])(?!\s*\()", re.ASCII)
_ATOM = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[A-Za-z_]\w*", re.ASCII)
_BETWEEN = re.compile(r"(.+?)<=?([^<>=]+)<=?(.+)|(.+?)>=?([^<>=]+)>=?(.+)", re.DOTALL)
_BRACKETS = re.compile(r"(.+?)(?:=|\bin\b|∈|:)\s*\[(.+)\]\s*", re.DOTALL)
CONTINUED = "could go on with the line before it: write both on one line, or begin another formula with 0 + or 0 -"
_DOTTED = re.compile(r"([A-Za-z_]\w*)\s*(?:\bin\b|∈|:)\s*([^\[\]:]+\.\.[^\[\]:]+)", re.DOTALL)


def plain(text: str) -> str:
    """Text in ASCII: superscripts as powers, Greek letters by name, signs of typography as operators.

    Examples
    --------
    >>> plain("2·π·x₁² − √(β)"), plain("a⁻¹ ≤ Δt")
    ('2*pi*x1**2 - sqrt(beta)', 'a**(-1) <= Deltat')
    """
    if text.isascii():
        return text
    text = _RAISED.sub(lambda found: _power(found, text), text)
    text = _FRACTION.sub(lambda found: f"({normalize('NFKC', found[0]).replace('⁄', '/')})", text)
    text = "".join(normalize("NFKC", char) if _is_variant(char) else char for char in text.translate(_SIGNS))
    text = text.translate(_SUBSCRIPTS)
    text = _WORD.sub(lambda found: _spelled(found[0]), text)
    return _ROOT.sub(_root, text).rstrip()


def _is_variant(char: str) -> bool:
    """Whether a character is a letter, digit, space or sign in another width or style."""
    return category(char) in ("Lu", "Ll", "Zs", "Nd") or "\uff01" <= char <= "\uff5e"


def _root(found: re.Match[str]) -> str:
    name, inside = _ROOTS[found[1]], found[2]
    if inside == "(":
        return f"{name}("
    if found[3]:
        raise FormulaError(
            f"{found[1]}{inside}^.. can be read in two ways: write {name}({inside})^.. or {name}({inside}^..)"
        )
    return f"{name}({inside})"


def _power(found: re.Match[str], text: str) -> str:
    digits = found[0].translate(_SUPERSCRIPTS)
    space = " " * text[found.end() : found.end() + 1].isalnum()
    return f"**{digits}{space}" if digits.isdigit() else f"**({digits}){space}"


def _spelled(word: str) -> str:
    if word == "π":
        return "pi"
    if "π" in word:
        product = "*".join(part for part in re.split("(π)", word) if part).replace("π", "pi")
        raise FormulaError(f"{word!r} can be read in two ways: write {product}")
    return "".join(_GREEK.get(letter, letter) for letter in word)


def names_defined(texts: Iterable[str]) -> list[str]:
    """The names of the intermediate values in some texts."""
    return [found[1] for part in _statements(texts) if (found := _DEFINED.fullmatch(part))]


def _statements(texts: Iterable[str]) -> Iterator[str]:
    """The parts of some texts between semicolons and line breaks outside of brackets, in plain notation."""
    for text in texts:
        for lines in _parts(_COMMENT.sub("", plain(text)), ";"):
            for k, line in enumerate(filter(None, _parts(lines, "\n"))):
                if k and goes_on(line):
                    raise FormulaError(f"the line {brief(line)} {CONTINUED}")
                yield line


def goes_on(line: str) -> bool:
    """Whether a line begins as the rest of a sum does."""
    return line.startswith(("+", "- "))


def formulas_of(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The formulas of some texts, with named intermediate values and the constants of the box written out.

    Statements stand on lines of their own or between semicolons. ``name = ..`` names a value for what follows; anything
    else is a formula.

    Examples
    --------
    >>> formulas_of(["d = x/s; exp(-d**2/2)", "d*c"], {"c": "3"})
    ['exp(-(x/s)**2/2)', '(x/s)*3']
    """
    known, found = dict(values), []
    for statement in _statements(texts):
        defined = _DEFINED.fullmatch(statement)
        if defined is None:
            found.append(_inlined(statement.strip(), known))
            continue
        name, meaning = defined[1], defined[2].strip()
        if name in known or name in RESERVED or name == "pi":
            raise FormulaError(f"{name} already has a meaning: give the intermediate value another name")
        if len(_parts(meaning, ",")) != 1:
            raise FormulaError(f"{name} = is followed by {brief(meaning)}: write what {name} is")
        known[name] = _inlined(meaning, known)
        last = f"{name} = {meaning}"
    if not found and len(known) == len(values):
        raise FormulaError("the formula is empty")
    if not found:
        raise FormulaError(
            f"{last!r} defines {name}, and no formula follows: write {meaning} alone, or a formula with {name} after it"
        )
    return found


def _inlined(text: str, values: Mapping[str, str]) -> str:
    """A text with the values of names in their place, in brackets where they need them."""

    def value(found: re.Match[str]) -> str:
        meaning = values.get(found[0])
        if meaning is None:
            return found[0]
        inside = text[: found.start()].rstrip().endswith("(") and text[found.end() :].lstrip().startswith(")")
        return meaning if inside or _ATOM.fullmatch(meaning) else f"({meaning})"

    written = _NAME.sub(value, text) if values else text
    if len(written) > MAX_LENGTH:
        raise FormulaError(f"the formula has over {MAX_LENGTH} characters once its intermediate values are written out")
    return written


def intervals_of(text: str) -> list[tuple[str, str, str]]:
    """The names and ends of a box in any of its notations; both ends are the same for a constant.

    Examples
    --------
    >>> intervals_of("x=0..2*pi, y in [-1, 1], 0 <= z <= 1/2, c=299792458")
    [('x', '0', '2*pi'), ('y', '-1', '1'), ('z', '0', '1/2'), ('c', '299792458', '299792458')]
    """
    return [_interval(part) for part in _parts(re.sub(r"\s#\s[^\n]*", "", plain(text)))]


def _parts(text: str, ends: str = ",;\n") -> list[str]:
    """The parts between commas, semicolons or line breaks outside of brackets."""
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char in ends and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return [part for k, part in enumerate(parts) if part or (k and k < len(parts) - 1)]


def _interval(part: str) -> tuple[str, str, str]:
    if found := _BRACKETS.fullmatch(part):
        ends = _parts(found[2]) if ".." not in found[2] else [end.strip() for end in found[2].split("..")]
        if len(ends) != 2:
            raise BoxError(f"cannot read {part!r} in the box: write {found[1].strip()}=low..high")
        return found[1].strip(), ends[0], ends[1]
    if found := _BETWEEN.fullmatch(part):
        low, name, high = found.groups()[:3] if found[1] else found.groups()[:2:-1]
        return name.strip(), low.strip(), high.strip()
    if found := _DOTTED.fullmatch(part):
        part = f"{found[1]}={found[2]}"
    names, equals, interval = (side.strip() for side in part.partition("="))
    if not equals or re.search("[<>'\"\\[]|:$", names) or re.search("[=°]", interval):
        raise BoxError(f"cannot read {part!r} in the box: {_box_hint(part)}")
    if ".." in interval:
        if "..." in interval:
            raise BoxError(f"the interval {interval!r} of {names} has three dots: write 0..0.5, not 0...5")
        low, _, high = (end.strip() for end in interval.partition(".."))
        if not low or not high:
            raise BoxError(f"cannot read the interval {interval!r} of {names}: write low..high")
        return names, low, high
    if not interval or _misread(interval):
        raise BoxError(f"cannot read the interval {interval!r} of {names}: {_box_hint(part)}")
    return names, interval, interval


def _misread(interval: str) -> bool:
    """Whether a value of the box looks like an interval in a notation that has other meanings elsewhere."""
    return bool(
        re.search(r":|\bto\b|\band\b|range|linspace|±|\+/-|\+-|\.\.|\d\s*-\s*-?\d|^\(.*,.*\)$|~|…|<|>|['\"]", interval)
    )


def _ends(m: re.Match[str]) -> str:
    return f"write {m[1].strip()}={m[2].strip()}..{m[3].strip()}"


def _one_end(m: re.Match[str]) -> str:
    ends = (m[3], "high") if m[2] == ">" else ("low", m[3])
    return f"give both ends, {m[1]}={ends[0]}..{ends[1]}"


#: Mistakes in an interval, from the most to the least specific: a pattern of all of it, and advice with its groups.
_BOX_MISTAKES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\{.*", "write x=0..1, y=-1..1, or give a mapping in Python"),
    (r".*['\"].*", "leave out the quotation marks"),
    (r".*(?:\[[A-Za-z°%/^]+\]|°[CF]).*", "leave out the units"),
    (r".*°.*", "angles are in radians: write radians(90) for 90°"),
    (r"(.+?=.+?)\s*(?:\s|\band\b)+([A-Za-z_]\w*\s*=.+)", lambda m: f"separate intervals by commas: {m[1]}, {m[2]}"),
    (r"(.+?)=\s*(?:\w+\.)?(?:linspace|arange|range)\((.+?),(.+?)(?:,.*)?\)", _ends),
    (r"(.+?)=\s*(?:±|\+/-|\+-)\s*(\S+)", lambda m: f"write {m[1].strip()}=-{m[2]}..{m[2]}"),
    (r"(.+?)(?:=|\bin\b)\s*[(\]]([^\[\]()]+)[,;]([^\[\]()]+)[\[)]", _ends),
    (r"(\w+)\s*=\s*(\w+)\s*=(.+)", lambda m: f"write {m[1]}={m[3].strip()}, {m[2]}={m[3].strip()}"),
    (r"(\w+)\s*(?:==|:=|~)\s*(.+\.\..+)", lambda m: f"write {m[1]}={m[2]}"),
    (r"[A-Za-z_]\w*", lambda m: f"{m[0]} has no interval: write {m[0]}=low..high"),
    (r"\d+(?:\.\d+)?", "write decimals with a point, and intervals as x=0..5: a comma begins the next variable"),
    (r"[^A-Za-z_]*", "an interval has a name, two dots between its ends and decimal points: x=0..1.5"),
    (r"([A-Za-z_]\w*)\s*[=:]?\s*(?:from|between)?\(?([^=:(),<>]+?)(?::|\bto\b|\band\b|,|~|…)([^:,()<>]+)\)?", _ends),
    (r"(.+?)=\s*(\S+?)\s*(?:±|\+/-|\+-)\s*(\S+)", lambda m: f"write {m[1].strip()}={m[2]}-{m[3]}..{m[2]}+{m[3]}"),
    (r"(.+?)=\s*(\d\S*?)\s*-\s*(\d\S*)", _ends),
    (r"\s*([A-Za-z_]\w*)\s*([<>])=?\s*(\S+)\s*", _one_end),
    (r".*", "write name=low..high"),
)  # fmt: skip


def _box_hint(part: str) -> str:
    """Advice on an interval that cannot be read."""
    found, said = next((m, said) for mistake, said in _BOX_MISTAKES if (m := re.fullmatch(mistake, part, re.DOTALL)))
    return said if isinstance(said, str) else said(found)


#: Mistakes in the ends of an interval, and advice.
_END_MISTAKES = (
    ("∞", "only finite numbers can be used"),
    (r"\d\s*(?:pi|π|e\b|\()", "write 2*pi for 2pi"),
    (r"\d\s*deg", "angles are in radians: write radians(90) for 90deg"),
    (r"\d\s*%", "write 50/100 for 50%"),
    (r"\d[_' ]\d", "write numbers without gaps"),
    (r"^[\d,]+$", "write decimals with a point"),
    (r"['\"]", "leave out the quotation marks"),
    (r"\d\s*[A-Za-zµΩ]+\s*$", "leave out the units"),
)


def is_sympy(given: object) -> bool:
    """Whether something is an expression of sympy, which only a caller with one has imported."""
    sympy = sys.modules.get("sympy")
    return sympy is not None and isinstance(given, sympy.Basic)


def box_of(given: str | Mapping[str, Any] | Box) -> Box:
    """A box from text (``x=0..1, y1..y9=-3..3``), a mapping of pairs, or a box.

    Examples
    --------
    >>> str(box_of({"x": (0, 0.1), "y": "0..2*pi"}))
    'x=0..1/10, y=0..2*pi'
    """
    return box_and_constants(given)[0]


def box_and_constants(given: str | Mapping[str, Any] | Box) -> tuple[Box, dict[str, str]]:
    """A box, and the values of the variables that have one value on it, which are no variables of the model.

    Examples
    --------
    >>> box, constants = box_and_constants("x in [0, 1], c=299792458, a=9..9")
    >>> str(box), constants
    ('x=0..1', {'c': '299792458', 'a': '9'})
    """
    if isinstance(given, Box):
        return given, {}
    if isinstance(given, str):
        read = [(name, *ends) for names, *ends in intervals_of(given) for name in expanded_names(names)]
    elif isinstance(given, Mapping):
        names = [from_sympy(name).text if is_sympy(name) else plain(name) if isinstance(name, str) else name
                 for name in given]  # fmt: skip
        read = [(name, *_pair(name, pair)) for name, pair in zip(names, given.values(), strict=True)]
    else:
        raise BoxError(f"a box is text or a mapping of name to (low, high), not {brief(given)}")
    intervals = [(name, exact_number(low, name), exact_number(high, name)) for name, low, high in read]
    constants = {
        name: _as_typed(value, low)
        for (name, value, _), (_, low, high) in zip(read, intervals, strict=True)
        if isinstance(name, str) and low == high
    }
    _check_constants(constants, [name for name, *_ in read])
    varying = [entry for entry in intervals if entry[0] not in constants]
    columns = zip(*varying, strict=True) if varying else ((), (), ())
    return Box(*(tuple(column) for column in columns)), constants  # type: ignore[arg-type]


def _as_typed(value: Any, meaning: Expr) -> str:
    """The value of a constant as it was given, else its exact meaning."""
    if isinstance(value, str):
        return value
    text = None if isinstance(value, Expr) or is_sympy(value) else number_text(value)
    return str(meaning) if text is None else text.text


def _check_constants(constants: Mapping[str, str], names: Sequence[Any]) -> None:
    for name in constants:
        if names.count(name) > 1:
            raise BoxError(f"the box gives {name} twice")
        if not is_variable_name(name):
            raise BoxError(f"{name!r} cannot be the name of a constant: use letters, digits and _, not a function")
    if constants and len(constants) == len(names):
        raise BoxError(f"nothing varies on the box: give an interval for {names[0]}, like {names[0]}=0..1")


def _pair(name: Any, pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, str):
        return intervals_of(f"x={pair}")[0][1:]
    if isinstance(pair, (Real, Decimal, fmpq, fmpz)) and not isinstance(pair, bool):
        return pair, pair
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise BoxError(f"the interval of {name} must be a pair (low, high), not {brief(pair)}") from None
    return low, high


def exact_number(value: Any, name: str) -> Expr:
    """A number of Python, NumPy, sympy or FLINT, or text, as an exact expression; floats mean the decimal they print
    as."""
    if is_sympy(value):
        try:
            value = from_sympy(value).text
        except FormulaError as error:
            raise BoxError(f"{name} is given as {brief(value)}: {error}") from None
    if isinstance(value, str):
        try:
            return parse_end(plain(value), name)
        except BoxError as error:
            said = next((said for mistake, said in _END_MISTAKES if re.search(mistake, value)), "")
            raise BoxError(f"{error}: {said}" if said else str(error)) from None
    if isinstance(value, Expr):
        return value
    if isinstance(value, (fmpq, fmpz)):
        return ex.number(Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, Rational):
        return ex.number(Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, Decimal) and value.is_finite():
        return ex.number(Fraction(value))
    try:
        if isinstance(value, Complex) and not isinstance(value, Real):
            raise TypeError
        as_float = float(value)
    except (TypeError, ValueError, OverflowError):
        raise BoxError(f"{name} is given as {brief(value)}: a number or text is needed") from None
    if not math.isfinite(as_float):
        raise BoxError(f"{name} is given as {value}: only finite numbers can be used")
    return ex.number(Fraction(repr(as_float)))
