"""Formulas given as sympy expressions and Python functions: read right, or refused in one sentence."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Real

import numpy as np
import pytest
import sympy

import transformula as tf
from transformula.errors import FormulaError, InputError
from transformula.formula import notations
from transformula.formula.hints import hint
from transformula.formula.notations import as_texts, given_formula
from transformula.kernel.syntax.parsing import parse

X, Y = sympy.symbols("x y")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (sympy.sqrt(X) * sympy.sin(Y) / 3, "sqrt(x)*sin(y)/3"),
        (-X / 3, "-x/3"),
        (1 / (1 + 1 / X), "1/(1 + 1/x)"),
        (X * (X + Y) ** -2, "x/(x + y)**2"),
        (sympy.Max(X, Y, sympy.Rational(1, 3)), "max(1/3, x, y)"),
        (sympy.Float("0.1") * X, "0.1*x"),
        (sympy.Abs(X - Y) ** sympy.Rational(2, 3), "abs(x - y)**(2/3)"),
        (sympy.log(X, 10) + sympy.pi * sympy.E, "E*pi + log(x)/log(10)"),
        (sympy.log(X, 2, evaluate=False), "log(x)/log(2)"),
        (sympy.Pow(9, sympy.Pow(9, 9, evaluate=False), evaluate=False) * X, "x*9**(9**9)"),
    ],
)
def test_sympy_is_read_by_its_structure(expr, text):
    assert as_texts(expr, ["x", "y"]) == [text]


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        (sympy.Piecewise((X, X > 0), (1, True)), "Piecewise"),
        (X > Y, "StrictGreaterThan"),
        (sympy.Integral(X, X), "Integral"),
        (sympy.Derivative(sympy.Function("f")(X), X), "Derivative"),
        (sympy.I * X, "ImaginaryUnit"),
        (sympy.oo * X, "Infinity"),
        (sympy.nan, "NaN"),
        (sympy.Tuple(X, Y), "Tuple"),
        (sympy.Sum(X, (Y, 1, 3)), "Sum"),
        (sympy.jn(1, X) + Y, "sympy's jn cannot be compiled"),  # spherical: not besselj
        (sympy.yn(1, X) + Y, "sympy's yn cannot be compiled"),
        (sympy.Function("f")(X), "unknown function 'f'"),
        (sympy.Symbol("__import__('os')"), "not a valid variable name"),
        (sympy.Symbol("z"), "no interval for z"),
        (sympy.Symbol("pi"), "no interval for pi"),
        (sympy.Integer(2) ** 20_000 * X, "thousands of digits"),
    ],
)
def test_sympy_without_a_counterpart_is_refused_by_name(expr, said):
    with pytest.raises(InputError, match=said):
        tf.compile(expr, "x=1..2, y=1..2")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (sympy.Symbol("x_{1}") - sympy.Symbol("x_1"), "would both become the variable x_1: rename one"),
        ([sympy.Symbol("x_1"), sympy.Symbol("x_{1}")], r"the symbols x_1 and x_\{1\} would both"),
        (sympy.Symbol("x_1", positive=True) - sympy.Symbol("x_1"), "two different symbols are called x_1"),
        (sympy.Dummy("x_1") * sympy.Dummy("x_1"), "two different symbols are called x_1"),
    ],
)
def test_symbols_that_print_alike_are_not_merged_into_one_variable(given, said):
    with pytest.raises(FormulaError, match=said):
        tf.compile(given, "x_1=0..1")
    assert as_texts([sympy.Dummy("x_1"), "x_1", sympy.Integer(1)], ["x_1"]) == ["x_1", "x_1", "1"]


def test_constants_and_variables_of_one_name_are_told_apart():
    (text,) = as_texts(sympy.pi * sympy.Symbol("pi") * sympy.E, ["pi"])
    assert parse(text, ["pi"]).names == {"pi"} and "acos(-1)" in text
    model = tf.compile(sympy.pi * sympy.Symbol("pi"), "pi=0..1")
    assert float(model([[1.0]])[0]) == pytest.approx(math.pi)


def test_a_deep_shared_expression_is_refused_before_it_is_written_out():
    expr = X
    for _ in range(60):
        expr = sympy.sin(expr) * sympy.cos(expr)
    with pytest.raises(FormulaError, match="too long"):
        as_texts(expr, ["x"])


def _norm(x, y):
    return np.linalg.norm(np.array([x, y]))


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (lambda x, y: np.sin(x) * y, ["sin(x)*y"]),
        (lambda x, y: (x - (x - y), x * -y, -(x**2), (-x) ** 2), ["x - (x - y)", "x*(-y)", "-x**2", "(-x)**2"]),
        (lambda x, y: x / (y / x) - 0.1, ["x/(y/x) - 0.1"]),
        (lambda x: 2**x + 1 / x - abs(x), ["2**x + 1/x - abs(x)"]),
        (lambda x, power=Fraction(1, 3): x**power, ["x**(1/3)"]),
        (lambda x: np.clip(x, 0, 1) + np.square(x), ["min(max(x, 0), 1) + x**2"]),
        (lambda x, y: np.sinc(x) + np.arctan(np.maximum(x, y)), ["sinc(pi*x) + atan(max(x, y))"]),
        (lambda x: np.array([1, 2]) * np.sin(np.array([x, x])), ["1*sin(x)", "2*sin(x)"]),
        (_norm, ["sqrt(x*x + y*y)"]),
        (lambda x: (x % 1 + 5 // x, 3 % x), ["mod(x, 1) + floor(5/x)", "mod(3, x)"]),
        (lambda x: np.mod(x, 2) * np.sign(x) + np.heaviside(x, 0.5), ["mod(x, 2)*sign(x) + heaviside(x)"]),
        (lambda y: 3, ["3"]),
        (lambda x, y: (round(x), round(x, 2), round(x, -1), np.round(x)),
         ["round(x)", "round(x*10**2)/10**2", "round(x*10**(-1))/10**(-1)", "round(x)"]),
        (lambda x, y: divmod(x, y), ["floor(x/y)", "mod(x, y)"]),
        (lambda x: (*divmod(7, x), *np.divmod(x, 2)), ["floor(7/x)", "mod(7, x)", "floor(x/2)", "mod(x, 2)"]),
        (lambda x: (math.floor(x), math.ceil(x), math.trunc(x), np.fix(x)),
         ["floor(x)", "ceil(x)", "trunc(x)", "trunc(x)"]),
        (lambda x, y: np.where(x > y, x, 2 * y), ["where(x > y, x, 2*y)"]),
        (lambda x: np.where(np.float64(1) >= x, x, 1), ["where(1.0 >= x, x, 1)"]),
        (lambda x: np.where((x > 1) & (x < 2), x, 0), ["where(x > 1, where(x < 2, x, 0), 0)"]),
        (lambda x: np.where(np.logical_or(x < 1, ~(x < 2)), x, 0), ["where(x < 1, x, where(x < 2, 0, x))"]),
        (lambda x, y: np.select([x < 1, y < 1], [x, y], 3), ["where(x < 1, x, where(y < 1, y, 3))"]),
        (lambda x: (np.clip(x, None, 1), np.clip(x, a_min=0, a_max=None)), ["min(x, 1)", "max(x, 0)"]),
        (lambda x, y: np.var([x, y]), ["((x - (x + y)/2)*(x - (x + y)/2) + (y - (x + y)/2)*(y - (x + y)/2))/2"]),
        (lambda x, y: np.logaddexp(x, y) + np.real(x), ["log(exp(x) + exp(y)) + x"]),
        (lambda x: f"{x}" == "x" and x, ["x"]),
        (lambda x: x**2 if np.isscalar(x) and isinstance(x, Real) else 0, ["x**2"]),
        (lambda x: 0 if hasattr(x, "__iter__") else x**2, ["x**2"]),
    ],
)  # fmt: skip
def test_functions_are_traced(function, texts):
    assert as_texts(function, ["x", "y"]) == texts


def _branches(x):
    return x if x > 0 else -x


def _guarded(x):
    try:
        return math.sqrt(x)
    except ValueError:  # of a negative number
        return 0.0


def _guarded_branches(x):
    try:
        return x if x > 1 else 2 - x
    except:  # noqa: E722
        return x


def test_a_refusal_that_the_function_swallows_is_one():
    for function, said in ((_guarded, "use np.sin, not math.sin"), (_guarded_branches, "compares its arguments")):
        with pytest.raises(FormulaError, match=said):
            as_texts(function, ["x"])
    assert as_texts(lambda x: x**2, ["x"]) == ["x**2"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_branches, "compares its arguments.*np.maximum"),
        (lambda x: max(x, 1), "compares its arguments"),
        (lambda x: 0 < x < 1, "compares its arguments.*np.where"),
        (lambda x: np.where(x, x, 1), "choose by comparisons such as x > 1"),
        (lambda x: np.where(x > 1.5, 1, 0), "jumps by 1 at x = 3/2"),
        (lambda x: np.where(x > 1), "np.where is given something"),
        (lambda x: x > 1, "returned Condition"),
        (lambda x: np.select([x > 1], [x, 2]), "2 choices for 1 conditions"),
        (lambda x: np.clip(x, 0, 1, out=None), "np.clip cannot be compiled in this form"),
        (lambda x: x * 1j, "complex number 1j"),
        (lambda x: np.complex128(1j) + x, "complex number 1j"),
        (lambda x: round(x, x), "arguments"),
        (lambda x: math.sqrt(x), "use np.sin, not math.sin"),
        (lambda x: f"{x:.3f}", "needs the value"),
        (lambda x: len(x), r"no len\(\)"),
        (lambda x: x[0], "not subscriptable"),
        (lambda x: sum(x), "not iterable.*each is one real number"),
        (lambda x: x @ x, "one number"),
        (lambda x: 1 in x, "not iterable"),
        (lambda x: isinstance(x, float), "returned bool"),
        (lambda x: x ^ 2, r"write \*\* for a power"),
        (lambda x: x << 1, r"write \*\* for a power"),
        (lambda x: {x: 1}, "unhashable"),
        (lambda x: x.shape, "has no attribute shape"),
        (lambda x: x(1), "not callable"),
        (lambda x: x + "1", "unsupported operand"),
        (lambda x: pow(x, 2, 3), "unsupported operand"),
        (lambda x: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda x: np.linalg.det(np.array([[x, 1], [1, x]])), "Cannot cast ufunc 'det'"),
        (lambda x: np.zeros(1) + np.array([x], dtype=float), "needs the value"),
        (lambda x: np.logaddexp(x, x, x), "only plain calls"),
        (lambda x: np.max(x, 0), "np.max cannot be compiled in this form"),  # x along axis 0 is x, not max(x, 0)
        (lambda x: np.prod(x, 0), "np.prod cannot be compiled in this form"),
        (lambda x: 1 if x else 2, "compares its arguments"),
        (lambda x: x == 1, "compares its arguments"),
        (lambda x: math.sin(x), "use np.sin, not math.sin"),
        (lambda x: x % 2, "jumps by 2 at x = 2"),
        (lambda x: np.floor(x), "jumps by 1 at x = 2"),
        (lambda x: x * np.heaviside(x, 1), r"np\.heaviside is read with the value 0\.5"),
        (lambda *x: x[0], r"\*x, which has no name"),
        (lambda x, z: x, "no interval for z"),
        (lambda x: "x", "returned str"),
        (lambda x: [x, [x]], "returned list"),
        (lambda x: None, "returned NoneType"),
        (lambda x: np.array([[x, 1], [2, None]], dtype=object), "returned NoneType"),  # three outputs were left
        (lambda x: x * float("nan"), "not finite"),
        (lambda pi: pi, "name of a constant"),
        (np.sin, "wrap it in a lambda"),
    ],
)
def test_what_cannot_be_traced_is_refused_in_one_sentence(function, said):
    with pytest.raises(InputError, match=said) as caught:
        tf.compile(function, "x=1..2, pi=3..4")
    assert "\n" not in str(caught.value)


def test_all_notations_of_a_formula_make_the_same_model():
    box, options = "x=0..1, y=1..2", {"eps": 1e-2}
    typed = tf.compile("sin(x)*y", box, **options)
    assert tf.compile(lambda x, y: np.sin(x) * y, box, **options).packed == typed.packed
    assert tf.compile(sympy.Mul(sympy.sin(X), Y, evaluate=False), box, **options).packed == typed.packed


@pytest.mark.parametrize("given", [3, None, {"x": 1}, ["x", ["x"]], [3]])
def test_what_is_no_notation_is_refused(given):
    with pytest.raises(FormulaError, match="text, a sympy expression, a Python function"):
        as_texts(given, ["x"])


def test_powers_and_e_as_people_write_them():
    assert parse("2^x^2 - e^x", ["x"]) == parse("2**x**2 - E**x", ["x"])
    assert parse("e^2", ["e"]).names == {"e"} and parse("-x^2", ["x"]) == parse("-(x**2)", ["x"])


def test_a_list_may_mix_notations():
    assert notations.as_texts(["x", X + 1, lambda x: x], ["x"]) == ["x", "1 + x", "x"]  # sympy's own order


def test_a_function_that_goes_another_way_for_numbers_is_refused():
    with pytest.raises(FormulaError, match=r"at x = 0\.38.* the function returns \[0\.38.*\], and \[0\.14"):
        given_formula(lambda x: x if isinstance(x, float) else x**2, "x=0..1")
    with pytest.raises(FormulaError, match="asks what its arguments are"):
        given_formula(lambda x, c: [x, c * x if hasattr(x, "hex") else x], "x=0..1, c=2")


@pytest.mark.parametrize(
    ("function", "box"),
    [
        (lambda x, c, k=3: c * np.sin(x) + k, "x=0..1, c=9"),
        (lambda x, y: np.exp(x) * y, "x=0..1, y=1e-9..2e-9"),
        (lambda x: [np.cos(x), x**2], "x=0..pi"),
        (lambda x: (1 - np.cos(x)) / x**2, "x=1e-6..1"),
        (lambda x: np.where(x > 1, x**2, x), "x=0..3"),
        (lambda x: np.exp(x) / {}.get("a", 1) if not isinstance(x, float) else 1 / 0, "x=0..1"),
    ],
)
def test_a_function_that_agrees_with_its_formula_or_takes_no_numbers_is_read(function, box):
    assert given_formula(function, box).outputs


def test_a_long_word_is_not_searched_from_every_letter():
    """This took minutes; a name is cut in messages anyway."""
    assert hint("x" * 30_000, ["x"]) == f"add {'x' * 40}=low..high to the box"
    assert hint("1" * 30_000 + "!", ["x"]) == hint("1!", ["x"]).replace("1", "1" * 100)
