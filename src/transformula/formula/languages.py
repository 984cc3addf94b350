"""Formulas as text in other languages: Python, LaTeX, spreadsheets and SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction

from transformula.errors import InputError, brief
from transformula.formula.sample_target import shown
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, fold

#: Digits and decimals beyond which a number is written as the float nearest to it.
_MOST_DIGITS = 17
#: Zeros after the point, and digits before it, beyond which a number has an exponent.
_FEW_ZEROS, _MOST_WHOLE = 4, 20
#: Digits of a decimal.
_MOST_DECIMALS = 2_000
#: Binding of a text: a sum, a product, a power or a minus sign before one, and what needs no brackets.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)
_ALIKE = ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "sqrt", "abs")
_CAPITALS = {name: name.upper() for name in (*_ALIKE, "asin", "acos", "atan")} | {"log": "LN"}


@dataclass(frozen=True)
class Language:
    """How a language writes powers, products, fractions, calls and names."""

    power: str = "{}**{}"
    times: str = "*"
    fraction: str = ""
    call: str = "{}({})"
    minus: str = "-"
    name: str = "{}"
    functions: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)


_PYTHON = {name: f"math.{name}" for name in (*_ALIKE, "asin", "acos", "atan", "asinh", "acosh", "atanh", "log", "erf")}
_LATEX = {name: rf"\{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log")}
LANGUAGES = {
    "python": Language(functions=_PYTHON | {"abs": "abs"}, constants={"pi": "math.pi", "E": "math.e"}),
    "latex": Language(
        "{}^{{{}}}",
        r" \, ",
        r"\frac{{{}}}{{{}}}",
        r"{}\left({}\right)",
        name=r"\mathrm{{{}}}",
        functions=_LATEX | {name: rf"\arc{name[1:]}" for name in ("asin", "acos", "atan")},
        constants={"pi": r"\pi", "E": "e"},
    ),
    # in a spreadsheet -x^2 is (-x)^2
    "excel": Language("{}^{}", minus="-1*", functions=_CAPITALS, constants={"pi": "PI()", "E": "EXP(1)"}),
    "sql": Language(
        "POWER({}, {})", name='"{}"', functions=_CAPITALS, constants={"pi": "PI()", "E": "EXP(1)"}
    ),
}  # fmt: skip
STYLES = ("text", *LANGUAGES)
_ESCAPED = {"sql": {'"': '""'}, "latex": {"_": r"\_"}}


def formula_in(formula: Formula, style: str, names: Mapping[str, str] | None = None) -> str | list[str]:
    """A formula in one of `STYLES`; several outputs are a list.

    Parameters
    ----------
    names : variable → what it is called in another language; by default as it is.

    Examples
    --------
    >>> formula = Formula.of("x**2/2 - 3*exp(y)", "x=0..1, y=0..1")
    >>> [formula_in(formula, style) for style in ("text", "python", "excel", "sql")]
    ['x**2/2 - 3*exp(y)', '0.5*x**2 - 3*math.exp(y)', '0.5*x^2 - 3*EXP(y)', '0.5*POWER("x", 2) - 3*EXP("y")']
    """
    if style not in STYLES:
        raise InputError(f"unknown style {brief(style)}: choose {', '.join(STYLES)}")
    if style == "text":
        texts = shown(formula)
    else:
        writer = _Writer(LANGUAGES[style], style, names or {})
        texts = [fold(expr, writer)[0] for expr in formula.outputs]
    return texts[0] if len(texts) == 1 else texts


@dataclass(frozen=True)
class _Writer:
    """The text of a node and its binding, from those of its arguments."""

    language: Language
    style: str
    names: Mapping[str, str]

    def __call__(self, node: Expr, args: list[tuple[str, int]]) -> tuple[str, int]:
        language, op = self.language, node.op
        if node.number is not None:
            return self._number(node.number)
        if op == "variable":
            return self._name(self.names.get(str(node.value), str(node.value))), _ATOM
        if op == "constant":
            return language.constants[str(node.value)], _ATOM
        if op == "add":
            first, *more = (_wrapped(one, _PRODUCT) for one in args)
            return first + "".join(f" - {t[1:]}" if t[0] == "-" else f" + {t}" for t in more), _SUM
        if op == "mul":
            factors = [_wrapped(one, _POWER) for one in args]
            if node.args[0].number == -1:
                return language.minus + language.times.join(factors[1:]), _PRODUCT
            return language.times.join(factors), _PRODUCT
        if op == "div":
            if language.fraction:
                return language.fraction.format(args[0][0], args[1][0]), _ATOM
            return f"{_wrapped(args[0], _PRODUCT)}/{_wrapped(args[1], _ATOM)}", _PRODUCT
        if op == "pow":
            return language.power.format(*(_wrapped(one, _ATOM) for one in args)), _POWER
        if op not in language.functions:
            raise InputError(f"{op.partition(':')[0]} has no name in {self.style}: style='text' writes the formula")
        return language.call.format(language.functions[op], ", ".join(text for text, _ in args)), _ATOM

    def _name(self, name: str) -> str:
        for char, written in _ESCAPED.get(self.style, {}).items():
            name = name.replace(char, written)
        return self.language.name.format(name)

    def _number(self, value: Fraction) -> tuple[str, int]:
        short = (value * 10**_MOST_DIGITS).denominator == 1 and abs(value) < 10**_MOST_DIGITS
        digits = decimal_text(value) if short else repr(float(value))
        mantissa, _, power = digits.partition("e")
        if power and self.style == "latex":
            digits = rf"{mantissa} \cdot 10^{{{int(power)}}}"
        return digits, _POWER if value < 0 else _ATOM


def _wrapped(one: tuple[str, int], least: int) -> str:
    text, strength = one
    return text if strength >= least else f"({text})"


def decimal_text(value: Fraction) -> str:
    """A fraction whose denominator divides a power of ten, in digits.

    Examples
    --------
    >>> decimal_text(Fraction(1, 8)), decimal_text(Fraction(3, 10**9)), decimal_text(Fraction(12 * 10**9))
    ('0.125', '3e-9', '12000000000')
    """
    with localcontext(prec=_MOST_DECIMALS):
        exact = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
    if Fraction(exact) != value:
        raise ValueError("the fraction is not a decimal")
    return f"{exact:f}" if -_FEW_ZEROS <= exact.adjusted() < _MOST_WHOLE else f"{exact:e}"
