"""Formulas as texts: what the parser reads has the value that Python's grammar and mpmath give the same text."""

from __future__ import annotations

import random
import re
from fractions import Fraction

from flint import arb

from fuzz.cases import Case, fuzzer
from fuzz.values import Unknown, Value, in_ball, rational
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.exceptions import TransformulaError
from transformula.kernel.functions.function_table import FUNCTIONS
from transformula.kernel.syntax.definitions import DEFINITIONS
from transformula.kernel.syntax.parsing import parse

LEAVES = ("x", "y", "x", "y", "pi", "e", "E")
NUMBERS = ("1", "2", "3", "0.5", ".25", "2.", "1e-1", "1E1", "2.5e0", "7", "0", "10", "1/3", "-2")
POWERS = ("2", "-1", "-2", "3", "(1/2)")
OF_TWO = ("min", "max", "pow", "hypot", "atan2", "beta")
OF_ONE = (*FUNCTIONS, *(name for name in DEFINITIONS if name not in OF_TWO))
OF_ORDER = ("besselj", "bessely", "besseli", "besselk", "legendre", "hermite", "laguerre", "chebyshevt", "chebyshevu")


def text(rng: random.Random, depth: int) -> str:
    """A formula with few brackets: what belongs together is for the grammar to say."""
    kind, space = rng.random(), rng.choice(("", " "))

    def inner() -> str:
        return text(rng, depth - 1)

    if depth == 0 or kind < 0.12:
        return rng.choice((*LEAVES, rng.choice(NUMBERS)))
    if kind < 0.55:
        return f"{inner()}{space}{rng.choice('++--*/*/')}{space}{inner()}"
    if kind < 0.65:
        return rng.choice("+-") + inner()
    if kind < 0.78:
        return f"{inner()}{space}{rng.choice(('**', '^'))}{space}{rng.choice((inner(), *POWERS))}"
    if kind < 0.86:
        return f"({inner()})"
    if kind < 0.94:
        return f"{rng.choice(OF_ONE)}({inner()})"
    if kind < 0.97:
        return f"{rng.choice(OF_TWO)}({inner()}, {inner()})"
    return f"{rng.choice(OF_ORDER)}({rng.choice('0124')}, {inner()})"


def _edited(rng: random.Random, made: str) -> str:
    """The text, or one character of it more, less or changed."""
    k = rng.randrange(len(made))
    return rng.choice((made, made, made[:k] + made[k + 1 :], made[:k] + rng.choice("+-*/^().,e1x ") + made[k:]))


@fuzzer
def texts(case: Case) -> None:
    """Read a text, print it, read it again, and evaluate it at two points."""
    rng = case.rng
    case.given = given = _edited(rng, text(rng, rng.randint(1, 5)))
    try:
        expr = parse(given, ("x", "y"))
    except TransformulaError:
        return
    try:
        value = Value(re.sub(r"(?<![\w.])0+(?=\d)", "", given))  # Python has no 05
    except SyntaxError:
        case.check("what is no formula to Python is refused", False, expr)
        return
    case.check("a printed formula reads as itself", parse(str(expr), ("x", "y")) == expr, expr)
    for _ in range(2):
        at = {name: Fraction(rng.randint(-30, 30), rng.choice((1, 2, 4, 16))) for name in "xy"}
        with precision(128):
            ball = enclose(expr, {name: arb(rational(v)) for name, v in at.items()})
        if not ball.is_finite():
            continue
        try:
            wanted = value.at(at)
        except Unknown:
            continue
        case.check("what has a value is defined", wanted is not None, f"{at}: {ball}")
        if wanted is not None:
            case.check("the value is the text's", in_ball(ball, wanted), f"{at}: {ball}, not {wanted}")
