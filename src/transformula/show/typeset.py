"""Formulas as MathML, which browsers draw without scripts, fonts or network.

The expression tree is written unchanged: nothing is simplified, and brackets stand exactly where the reading would
change without them. Fractions, roots and exponents bracket by their shape.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from html import escape
from itertools import pairwise

from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, variables_of, walk

#: Binding strengths of a drawing, weakest first.
_SUM, _SIGNED, _PRODUCT, _TALL, _POWER, _ATOM = range(6)

#: A sum of more terms is cut, with a note of how many are left out; so is a number of more digits.
MAX_TERMS = 60
MAX_DIGITS = 24
#: Beyond this many nodes a formula is shown as text.
MAX_NODES = 4_000

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "rho": "ρ",
    "sigma": "σ", "tau": "τ", "phi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ",
    "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
#: Written names of functions; any other function keeps its name, in upright letters.
_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arsinh", "acosh": "arcosh", "atanh": "artanh",
    "gamma": "Γ", "lgamma": "ln Γ", "digamma": "ψ", "zeta": "ζ", "lambertw": "W", "airyai": "Ai", "airybi": "Bi",
    "fresnels": "S", "fresnelc": "C", "ellipk": "K", "ellipe": "E",
}  # fmt: skip
#: Functions whose powers are written sin²(x); never with an exponent of −1, which would mean the inverse.
_RAISED = ("sin", "cos", "tan", "sinh", "cosh", "tanh", "log")
_TIMES = "<mo>&#x2062;</mo>"
_APPLY = "<mo>&#x2061;</mo>"
_DOT = "<mo>&#x22C5;</mo>"
_MINUS = "<mo>&#x2212;</mo>"
_BEGINS_WITH_DIGIT = re.compile(r"(<m(row|sup|frac)>)*<mn>")
_WORD = re.compile(r"(<m(row|sup|sub)>)*(<mtext>|<mi>[A-Za-z]{2,}</mi>(?!<mo>&#x2061;))")
_NUMBERED = re.compile(r"([A-Za-z]+)_?(\d+)")
_SUBSCRIPT = re.compile(r"([A-Za-z]+)_([A-Za-z0-9]+)")


def typeset(expr: Expr, name: str = "") -> str:
    """One ``<math>`` element; with a name, ``name = expression``.

    Examples
    --------
    >>> from transformula.formula import parse
    >>> print(typeset(parse("(-x)**2")))
    <math><mrow><msup><mrow><mo...>(</mo><mrow>...</mrow><mo...>)</mo></mrow><mn>2</mn></msup></mrow></math>
    """
    if _too_large(expr):
        return f"<code>{escape(_cut(str(expr)))}</code>"
    setter = _Setter([expr])
    left = f"{setter.name(name)}<mo>=</mo>" if name else ""
    return f"<math><mrow>{left}{setter.draw(expr)[0]}</mrow></math>"


def typeset_wrapping(expr: Expr) -> str:
    """The same, with a top-level sum as one ``<math>`` a term, so that a narrow page can break the line."""
    if expr.op != "add" or _too_large(expr):
        return typeset(expr).replace("<math>", '<math displaystyle="true">')
    pieces = _Setter([expr]).terms(expr.args)
    return " ".join(f'<math displaystyle="true"><mrow>{piece}</mrow></math>' for piece in pieces)


def typeset_interval(box: Box, index: int) -> str:
    """``low ≤ x ≤ high``, the ends exact."""
    setter = _Setter([])
    low, high = setter.draw(box.lower[index])[0], setter.draw(box.upper[index])[0]
    middle = f"<mo>&#x2264;</mo>{setter.name(box.variables[index])}<mo>&#x2264;</mo>"
    return f"<math><mrow>{low}{middle}{high}</mrow></math>"


def _too_large(expr: Expr) -> bool:
    return expr.op != "add" and sum(1 for _ in walk(expr)) > MAX_NODES


def _cut(text: str, most: int = 2_000) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


class _Setter:
    def __init__(self, expressions: Sequence[Expr]) -> None:
        names = sorted({name for e in expressions for name in variables_of(e)})
        looks = Counter(_name(name) for name in names)
        #: Names that would look alike (x1 and x_1) are written out.
        self.plain = {name for name in names if looks[_name(name)] > 1}

    def name(self, name: str) -> str:
        return f"<mtext>{escape(name)}</mtext>" if name in self.plain else _name(name)

    def draw(self, expr: Expr) -> tuple[str, int]:
        """The drawing and its binding strength."""
        op, args = expr.op, expr.args
        if expr.number is not None:
            return _number(expr.number)
        if op == "constant":
            return ("<mi>π</mi>" if expr.value == "pi" else '<mi mathvariant="normal">e</mi>'), _ATOM
        if op == "variable":
            return self.name(str(expr.value)), _ATOM
        if op == "add":
            return _row("".join(self.terms(args))), _SUM
        if op == "mul":
            return self._product(args)
        if op == "div":
            return f"<mfrac>{self._inside(args[0])}{self._inside(args[1])}</mfrac>", _TALL
        if op == "pow":
            return self._power(args[0], args[1])
        if op == "sqrt":
            return f"<msqrt>{self._inside(args[0])}</msqrt>", _ATOM
        if op == "abs":
            return _row(f"<mo>|</mo>{self._inside(args[0])}<mo>|</mo>"), _ATOM
        if op == "exp":
            return f'<msup><mi mathvariant="normal">e</mi>{self._inside(args[0])}</msup>', _POWER
        if op == "cbrt":
            return f"<mroot>{self._inside(args[0])}<mn>3</mn></mroot>", _ATOM
        family, _, order = op.partition(":")  # besselj:3/2 is J with an index
        if order:
            index = _number(Fraction(order))[0]
            return self._call(f"<msub><mi>{family[-1].upper()}</mi>{index}</msub>", args), _POWER
        return self._call(f"<mi>{escape(_NAMES.get(op, op))}</mi>", args), _POWER

    def terms(self, args: Sequence[Expr]) -> list[str]:
        """Each term with the sign before it; beyond `MAX_TERMS` a note."""
        shown = args if len(args) <= MAX_TERMS else args[: MAX_TERMS - 10]
        pieces = []
        for k, term in enumerate(shown):
            text, strength = self.draw(term)
            if strength == _SUM:
                text = _bracketed(text)
            minus = strength == _SIGNED
            if minus:
                text = text.removeprefix("<mrow>" + _MINUS).removesuffix("</mrow>")
            sign = _MINUS if minus else "" if k == 0 else "<mo>+</mo>"
            form = sign.replace("<mo>", '<mo form="infix">') if k else sign
            pieces.append(form + text)
        if len(shown) < len(args):
            pieces.append(f"<mo>+</mo><mtext>… ({len(args) - len(shown)} further terms)</mtext>")
        return pieces

    def _inside(self, expr: Expr) -> str:
        """Exactly one element, for places where the shape brackets."""
        text, strength = self.draw(expr)
        return text if strength in (_TALL, _ATOM, _POWER) else _row(text)

    def _product(self, args: Sequence[Expr]) -> tuple[str, int]:
        negative = args[0].number is not None and args[0].number < 0
        pieces = [self._factor(a) for a in args]
        if args[0].number is not None and abs(args[0].number) == 1 and len(args) > 1:
            pieces = pieces[1:]
        text = pieces[0]
        for before, piece in pairwise(pieces):
            # digits and words would read on from what stands before them
            apart = _BEGINS_WITH_DIGIT.match(piece) or _WORD.match(piece) or _WORD.match(before)
            text += (_DOT if apart else _TIMES) + piece
        return (_row(_MINUS + text), _SIGNED) if negative else (_row(text), _PRODUCT)

    def _factor(self, expr: Expr) -> str:
        if expr.number is not None:
            return _number(abs(expr.number))[0]
        text, strength = self.draw(expr)
        return text if strength >= _PRODUCT and expr.op != "mul" else _bracketed(text)

    def _power(self, base: Expr, exponent: Expr) -> tuple[str, int]:
        by = exponent.number
        if base.op in _RAISED and by is not None and by.denominator == 1 and by >= 2:
            raised = f"<msup><mi>{base.op}</mi>{_number(by)[0]}</msup>"
            return self._call(raised, base.args), _POWER
        text, strength = self.draw(base)
        text = text if strength == _ATOM else _bracketed(text)
        return f"<msup>{text}{self._inside(exponent)}</msup>", _POWER

    def _call(self, function: str, args: Sequence[Expr]) -> str:
        inside = "<mo>,</mo>".join(self._inside(a) for a in args)
        return _row(f"{function}{_APPLY}{_bracketed(inside)}")


def _row(text: str) -> str:
    return f"<mrow>{text}</mrow>"


def _bracketed(text: str) -> str:
    return _row(f'<mo symmetric="false">(</mo>{text}<mo symmetric="false">)</mo>')


def _number(value: Fraction) -> tuple[str, int]:
    if value < 0:
        return _row(_MINUS + _number(-value)[0]), _SIGNED
    decimal = _decimal(value)
    if decimal is not None:
        return f"<mn>{decimal}</mn>", _ATOM
    if value.denominator == 1:
        return _whole(value.numerator)
    return f"<mfrac>{_whole(value.numerator)[0]}{_whole(value.denominator)[0]}</mfrac>", _TALL


def _whole(value: int) -> tuple[str, int]:
    digits = str(value)
    if len(digits) <= MAX_DIGITS:
        return f"<mn>{digits}</mn>", _ATOM
    power = f"<msup><mn>10</mn><mn>{len(digits) - 1}</mn></msup>"
    return _row(f"<mn>{digits[0]}.{digits[1:9]}…</mn><mo>&#xD7;</mo>{power}"), _PRODUCT


def _decimal(value: Fraction) -> str | None:
    """A terminating decimal where a fraction would be clumsy (a part above 100)."""
    rest, places = value.denominator, 0
    if rest == 1 or max(rest, value.numerator) <= 100:
        return None
    while rest > 1 and places < 12:
        step = 10 if rest % 10 == 0 else 5 if rest % 5 == 0 else 2 if rest % 2 == 0 else 0
        if not step:
            return None
        rest, places = rest // step, places + 1
    whole = value * 10**places
    if rest > 1 or whole.denominator != 1 or len(str(whole.numerator)) > 14:
        return None
    digits = str(whole.numerator).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}"


def _name(name: str) -> str:
    numbered, subscript = _NUMBERED.fullmatch(name), _SUBSCRIPT.fullmatch(name)
    if numbered:
        return f"<msub>{_letters(numbered[1])}<mn>{numbered[2]}</mn></msub>"
    if subscript:
        return f"<msub>{_letters(subscript[1])}<mtext>{subscript[2]}</mtext></msub>"
    return _letters(name) if name.isalpha() else f"<mtext>{escape(name)}</mtext>"


def _letters(name: str) -> str:
    return f"<mi>{escape(_GREEK.get(name, name))}</mi>"
