"""Random expressions, printed as LaTeX by sympy in all its styles: read as the same function, or refused.

sympy is the outside judge of what its own LaTeX means. Two things are left out, because sympy prints them without the
brackets they need: products that it has not evaluated, and short fractions in functions without brackets, where
atan((x + y)/t) is printed as atan(x + y)/t.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import sympy as sy

import transformula as tf
from transformula.errors import InputError
from transformula.formula.evaluation import evaluate
from transformula.kernel.syntax.parsing import parse

NAMES = ["x", "y", "t", "alpha", "x_1", "e_0", "T_max"]
SYMBOLS = [sy.Symbol(name, real=True) for name in NAMES]
STYLES = [
    {},
    {"fold_func_brackets": True},
    {"fold_short_frac": True},
    {"fold_frac_powers": True},
    {"inv_trig_style": "power"},
    {"inv_trig_style": "full"},
    {"mul_symbol": "dot"},
    {"mul_symbol": "times"},
    {"root_notation": False},
    {"mode": "inline"},
    {"mode": "equation*"},
    {"long_frac_ratio": 0, "fold_func_brackets": True},
    {"parenthesize_super": False},
    {"decimal_separator": "comma"},
]
FUNCTIONS = [
    sy.sin, sy.cos, sy.tan, sy.cot, sy.sec, sy.csc, sy.asin, sy.acos, sy.atan, sy.sinh, sy.cosh, sy.tanh, sy.coth,
    sy.asinh, sy.acosh, sy.exp, sy.log, sy.sqrt, sy.cbrt, sy.Abs, sy.floor, sy.ceiling, sy.factorial, sy.gamma, sy.erf,
    sy.sign, lambda u: -u, lambda u: 1 / u, lambda u: u**2, lambda u: sy.root(u, 4),
]  # fmt: skip
NUMBERS = [sy.Integer(k) for k in (1, 2, 3, 10, 12, -1, -2)] + [sy.Rational(1, 2), sy.Rational(-2, 3), sy.Float("1.25")]
EXPONENTS = [*SYMBOLS, *NUMBERS[1:3], NUMBERS[5], NUMBERS[7], SYMBOLS[0] + 1, -SYMBOLS[1], SYMBOLS[2] / 2]


def expression(rng: random.Random, depth: int) -> sy.Expr:
    kind = rng.random()
    if depth == 0 or kind < 0.1:
        return rng.choice(SYMBOLS if rng.random() < 0.7 else [*NUMBERS, sy.pi, sy.E])
    one = expression(rng, depth - 1)
    if kind < 0.45:
        return rng.choice(FUNCTIONS)(one)
    if kind < 0.55:
        return sy.Pow(one, rng.choice(EXPONENTS), evaluate=rng.random() < 0.5)
    other = expression(rng, depth - 1)
    if kind < 0.7:
        return sy.Add(one, other, evaluate=rng.random() < 0.5)
    if kind < 0.85:
        return one * other
    if kind < 0.95 or not (one.is_extended_real and other.is_extended_real):
        return one / other
    return rng.choice([sy.Max, sy.Min])(one, other)


def their_values(expr: sy.Expr, points: np.ndarray) -> np.ndarray:
    """Values, nan where they are not real and finite."""
    plain = expr.replace(sy.factorial, lambda u: sy.gamma(u + 1))  # scipy's factorial is 0 below 0
    function = sy.lambdify(SYMBOLS, plain, ["scipy", "numpy"])
    with np.errstate(all="ignore"):
        values = np.array([complex(function(*point)) for point in points])
    return np.where(np.isfinite(values) & (abs(values.imag) < 1e-12), values.real, np.nan)


def compared(rng: random.Random) -> tuple[bool, bool]:
    """Whether one random expression was read, and compared at a point at least."""
    expr, style = expression(rng, rng.choice([1, 2, 3])), rng.choice(STYLES)
    latex = sy.latex(expr, ln_notation=True, **style)
    try:
        text = tf.from_latex(latex, NAMES)
    except InputError:
        return False, False
    points = np.random.default_rng(rng.randrange(2**32)).uniform(0.3, 1.7, (5, len(NAMES)))
    try:
        theirs = their_values(expr, points)
    except (KeyError, OverflowError, TypeError, ZeroDivisionError):  # infinities and complex numbers
        return True, False
    ours = evaluate(parse(text, NAMES, jumps=True), NAMES, list(points.T))
    both = np.isfinite(theirs) & np.isfinite(ours)
    assert np.allclose(ours[both], theirs[both], rtol=1e-6, atol=1e-9), f"{latex} was read as {text}, not {expr}"
    return True, bool(both.any())


@pytest.mark.parametrize("seed", range(12))
def test_what_sympy_prints_is_read_as_the_same_or_refused(seed):
    rng = random.Random(seed)
    read, seen = np.array([compared(rng) for _ in range(100)]).sum(axis=0)
    assert read >= 70 and seen >= 60


def test_pieces_that_sympy_prints_are_read():
    x = SYMBOLS[0]
    expr = sy.Piecewise((x**2, x < 0.5), (x - sy.Rational(1, 4), x < 1), (x / 2 + sy.Rational(1, 4), True))
    text = tf.from_latex(sy.latex(expr), NAMES)
    points = np.random.default_rng(0).uniform(0.3, 1.7, (30, len(NAMES)))
    ours = evaluate(parse(text, NAMES), NAMES, list(points.T))
    assert np.allclose(ours, [float(expr.subs(x, value)) for value in points[:, 0]])
