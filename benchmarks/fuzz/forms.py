"""Normal forms and signs: formulas with equal forms have equal values, and a sign that is seen is the value's."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import Any

from fuzz.cases import Case, fuzzer
from fuzz.values import SLACK, Unknown, Value, between, formula, put
from transformula.kernel.derivations.derivation_steps import NodeSigns
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.exceptions import TransformulaError
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse

FUNCTIONS = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "sqrt", "abs", "sinc", "cbrt",
    "asinh", "atanh", "erf",
)  # fmt: skip
LEAVES = ("x", "y", "x", "y", "x", "y", "1", "2", "1/2", "1/3", "-1", "0", "pi", "pi/4", "E", "3/2", "4")
#: How f might be written, with or without a: some of these are equal everywhere, some only for some signs, some never.
WRITTEN = (
    "sqrt(f**2)", "abs(f)", "exp(log(f))", "log(exp(f))", "(f**2)**(1/2)", "(f**(1/2))**2", "(f**(1/3))**3",
    "(f**3)**(1/3)", "cbrt(f**3)", "-(-f)", "max(f, -f)", "min(f, f)", "(f*a)/a", "f+a-a", "sqrt(abs(f))**2",
    "(f**4)**(1/4)", "(f**2)**(1/4)", "sqrt(f)*sqrt(f)", "exp(f*log(a))", "a**f", "log(f*a)", "log(f)+log(a)",
    "log(f**2)", "2*log(f)", "2*log(abs(f))", "sqrt(f*a)", "sqrt(f)*sqrt(a)", "sqrt(abs(f))*sqrt(abs(a))", "sqrt(f/a)",
    "sqrt(f)/sqrt(a)", "sqrt(f**2*a)", "abs(f)*sqrt(a)", "f*sqrt(a)", "abs(f*a)", "abs(f)*abs(a)", "max(f,a)",
    "(f+a+abs(f-a))/2", "min(f,a)", "f+a-max(f,a)", "tan(pi/4+atan(f)/2)", "sqrt(1+f**2)+f", "sin(f)/cos(f)", "tan(f)",
    "sin(-f)", "-sin(f)", "cos(-f)", "cos(f)", "sin(f)**2+cos(f)**2", "1+0*f", "acos(f)", "pi/2-asin(f)", "asin(-f)",
    "-asin(f)", "1/abs(f)", "abs(1/f)", "max(f,0)", "(f+abs(f))/2", "max(f,0)**2", "max(f,0)*f", "exp(abs(f))",
    "max(exp(f),exp(-f))", "sqrt(max(f,0))", "log(max(f,a))", "max(log(f),log(a))", "(f**a)**b", "f**(a*b)",
    "max(f,a,b)", "max(f,max(a,b))", "1/(1+max(f,0))", "min(1,1/(1+f))", "(f**2*a**2)**(1/2)", "(f**6)**(1/3)", "f**2",
    "(f**6)**(1/6)", "((f**2)**(1/3))**(3/2)", "(abs(f)**3)**(1/3)", "sqrt(f**3)", "f*sqrt(f)", "abs(f)*sqrt(f)",
    "sinc(f)*f", "sin(f)", "tanh(f)", "(exp(2*f)-1)/(exp(2*f)+1)", "sqrt(exp(f))", "exp(f/2)", "exp(f)**(1/3)",
    "exp(f/3)",
)  # fmt: skip
#: A sign that is known of x or y, and coordinates that have it.
SIGNS: tuple[tuple[int, Callable[[random.Random], int]], ...] = (
    (2, lambda rng: rng.randint(1, 300)),
    (1, lambda rng: rng.choice((0, rng.randint(0, 300)))),
    (-1, lambda rng: rng.choice((0, rng.randint(-300, 0)))),
    (-2, lambda rng: rng.randint(-300, -1)),
    (0, lambda rng: rng.choice((0, rng.randint(-300, 300)))),
)


def variants(rng: random.Random) -> list[str]:
    """A formula, and ways to write it that may be wrong."""
    f, a, b = (formula(rng, depth, LEAVES, FUNCTIONS) for depth in (rng.randint(1, 3), 1, 1))
    return [f, *(put(written, f=f, a=a, b=b) for written in rng.sample(WRITTEN, 12))]


@fuzzer
def forms(case: Case) -> None:
    """Compare the forms, the signs and the values of formulas that may be equal."""
    rng, algebra = case.rng, Algebra(["x", "y"])
    texts, signs = variants(rng), {name: rng.choice(SIGNS) for name in "xy"}
    case.given = f"{texts[0]} with the signs {[sign for sign, _ in signs.values()]} of x and y"
    for name, (sign, _) in signs.items():
        if sign:
            algebra.learn(algebra.of(parse(name)), sign)
    points = [{name: Fraction(draw(rng), 64) for name, (_, draw) in signs.items()} for _ in range(5)]
    known = []
    for text in texts:
        try:
            expr = parse(text, ("x", "y"))
            known.append((text, algebra.of(expr), _values(text, points)))
            _check_signs(case, algebra, expr, known[-1])
        except TransformulaError:
            continue
    for (one, form, values), (other, same, others) in combinations(known, 2):
        try:
            if not algebra.same(form, same):
                continue
        except TransformulaError:
            continue
        for point, u, v in zip(points, values, others, strict=True):
            if u is not None and v is not None:
                case.check(
                    "equal forms are equal functions", between(u, v, u, 10**5 * SLACK), f"{one} | {other} at {point}"
                )


def _values(text: str, points: list[dict[str, Fraction]]) -> list[Any]:
    value, found = Value(text), []
    for point in points:
        try:
            found.append(value.at(point))
        except Unknown:
            found.append(None)
    return found


def _check_signs(case: Case, algebra: Algebra, expr: Expr, known: tuple[str, Any, list[Any]]) -> None:
    text, form, values = known
    for kind, sign in (("form", algebra.sign(form)), ("node", NodeSigns(algebra).of(expr))):
        for value in values if sign else []:
            if value is not None:
                least = -SLACK if abs(sign) == 1 else 0
                holds = value * sign > least or (value == 0 and abs(sign) == 1)
                case.check(f"the sign of a {kind} is that of the values", holds, f"{sign} of {text}: {value}")
