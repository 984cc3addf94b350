"""to_text and parse are inverse; to_sympy means the same as the tree (sympy is the outside judge)."""

from fractions import Fraction

import mpmath
import pytest
import sympy
from flint import arb, fmpq
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from support.as_sympy import to_sympy
from support.watching import ends
from transformula.errors import FormulaError
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import to_text
from transformula.kernel.syntax.parsing import parse

numbers = st.builds(ex.number, st.builds(Fraction, st.integers(-9, 9), st.integers(1, 6)))
leaves = numbers | st.sampled_from([ex.variable("x"), ex.variable("y"), ex.constant("pi"), ex.constant("E")])


def _safely(build, *args):
    try:
        return build(*args)
    except FormulaError:  # a division by zero
        return ex.variable("x")


def _grow(inner):
    pairs = st.tuples(inner, inner)
    return st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda a: ex.add(*a)),
        st.lists(inner, min_size=2, max_size=4).map(lambda a: ex.mul(*a)),
        inner.map(ex.neg),
        pairs.map(lambda p: _safely(ex.div, *p)),
        pairs.map(lambda p: _safely(ex.power, *p)),
        st.tuples(inner, st.integers(-3, 3)).map(lambda p: _safely(ex.power, p[0], ex.number(p[1]))),
        st.tuples(st.sampled_from([*ex.FUNCTIONS, "besselj:3/2", "besselk:-2"]), inner).map(lambda p: ex.call(*p)),
        st.tuples(st.sampled_from(ex.VARIADIC), pairs).map(lambda p: ex.call(p[0], *p[1])),
    )


trees = st.recursive(leaves, _grow, max_leaves=12)


@given(trees)
@example(ex.add(ex.variable("x"), ex.div(ex.number(-1), ex.variable("x"))))
@example(ex.add(ex.variable("x"), ex.div(ex.neg(ex.variable("x")), ex.variable("y"))))
@settings(max_examples=600)
def test_text_parses_back_to_the_same_tree(tree):
    assert parse(to_text(tree)) == tree


@ends()
def test_deep_formulas_print_in_linear_time():
    text = "x + sin(" * 90 + "x" + ")" * 90
    assert parse(to_text(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("given_text", "printed"),
    [
        ("x - (y - 1)", "x - (y - 1)"),
        ("-(x*y)", "-x*y"),
        ("2*x/3", "2/3*x"),
        ("x**(1/2)", "x**(1/2)"),
        ("(-x)**2", "(-x)**2"),
        ("max(x, -y, 2)", "max(x, -y, 2)"),
        ("x/(y*x)", "x/(y*x)"),
        ("0.1*x", "1/10*x"),
    ],
)
def test_text_is_what_a_person_would_write(given_text, printed):
    tree = parse(given_text)
    assert parse(printed) == tree or parse(to_text(tree)) == tree
    assert to_text(tree).count("(") <= given_text.count("(") + 1


smooth = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda a: ex.add(*a)),
        st.lists(inner, min_size=2, max_size=3).map(lambda a: ex.mul(*a)),
        st.tuples(inner, inner).map(lambda p: _safely(ex.div, *p)),
        st.tuples(inner, st.integers(-3, 4)).map(lambda p: _safely(ex.power, p[0], ex.number(p[1]))),
        st.tuples(st.sampled_from(["sin", "cos", "atan", "tanh", "exp", "abs", "sqrt"]), inner).map(
            lambda p: ex.call(*p)
        ),
        st.tuples(st.sampled_from(ex.VARIADIC), inner, inner).map(lambda p: ex.call(*p)),
    ),
    max_leaves=5,
)


@given(smooth, st.integers(1, 40), st.integers(-40, -1))
@settings(max_examples=80)
def test_arb_and_sympy_agree_on_what_a_formula_means(tree, x, y):
    point = {"x": Fraction(x, 16), "y": Fraction(y, 16)}
    with precision(200):
        ball = enclose(tree, {n: arb(fmpq(v.numerator, v.denominator)) for n, v in point.items()})
    assume(ball.is_finite() and ball.rad() < 1e-20 and 1e-10 < abs(ball) < 1e30)
    symbols = {sympy.Symbol(n, real=True): sympy.Rational(v.numerator, v.denominator) for n, v in point.items()}
    value = sympy.N(to_sympy(tree).subs(symbols), 40)
    assume(value.is_real)
    with mpmath.workdps(40):
        oracle = mpmath.mpf(str(value))
        mid = mpmath.mpf(ball.str(45, radius=False))
        assert abs(oracle - mid) <= mpmath.mpf("1e-30") * abs(oracle)
