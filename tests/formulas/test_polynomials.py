"""Expansion to terms, judged by sympy; irrational constants; refusals that name the culprit."""

import time

import pytest
import sympy
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from transformula.errors import FormulaError
from transformula.formulas.enclosures import precision
from transformula.formulas.parsing import parse
from transformula.formulas.polynomials import NotPolynomialError, as_polynomial
from transformula.formulas.printing import to_sympy

factor = st.sampled_from(
    ["x", "y", "z", "2", "0.5", "(x + y)", "(x - 2*z)", "(y/3 + 1)", "-x", "(x*y - z)", "7/5"]
)
piece = st.lists(st.tuples(factor, st.integers(0, 3)), min_size=1, max_size=3).map(
    lambda fs: "*".join(f"({f})**{p}" for f, p in fs)
)
texts = st.lists(piece, min_size=1, max_size=4).map(" - ".join)


@given(texts)
@settings(max_examples=150)
def test_terms_are_those_of_sympy(text):
    names = ("x", "y", "z")
    expr = parse(text, names)
    ours = as_polynomial(expr, names).rational_or_ball_terms()
    symbols = [sympy.Symbol(n, real=True) for n in names]
    theirs = sympy.Poly(to_sympy(expr), *symbols)
    expected = {e: fmpq(int(c.p), int(c.q)) for e, c in theirs.terms() if c != 0}
    assert ours == expected


def test_irrational_constants_stay_exact_until_they_are_asked_for():
    p = as_polynomial(parse("(pi*x + sqrt(2))**2/E - sin(1)", ["x"]), ("x",))
    assert not p.is_rational and p.degree == 2
    with precision(200):
        terms = p.rational_or_ball_terms()
        assert terms[2,].overlaps(arb.pi() ** 2 / arb.const_e())
        assert terms[1,].overlaps(2 * arb.pi() * arb(2).sqrt() / arb.const_e())
        assert terms[0,].overlaps(2 / arb.const_e() - arb(1).sin())
        assert max(t.rad() for t in terms.values()) < 1e-50


def test_an_irrational_that_may_be_zero_has_powers():
    p = as_polynomial(parse("x + (cos(pi/2)*x)**3", ["x"]), ("x",))
    assert p.rational_or_ball_terms()[3,].contains(0)


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("x + sin(x*y)", "sin(x*y)"),
        ("x/y", "x/y"),
        ("x**y", "x**y"),
        ("x**0.5", "x**(1/2)"),
        ("y*x**-2", "x**(-2)"),
        ("x**pi", "x**pi"),
        ("x*abs(y)", "abs(y)"),
        ("max(x, y)", "max(x, y)"),
        ("2**x + y", "2**x"),
    ],
)
def test_what_is_not_a_polynomial_is_named(text, blamed):
    with pytest.raises(NotPolynomialError, match="is not a polynomial") as caught:
        as_polynomial(parse(text, ["x", "y"]), ("x", "y"))
    assert str(caught.value.part) == blamed


@pytest.mark.parametrize(
    "text",
    [
        "x**1000000",
        "x**101",
        "(x**50)**3",
        "x**60*x**60",
        "(x + y + 1)**99*(x - y + 2)**99",
        "(x - x + 9)**(9**9)",
        "(x - x + 9)**(9**900) + y",
    ],
)
def test_too_large_polynomials_are_refused_soon(text):
    start = time.perf_counter()
    with pytest.raises(FormulaError, match=r"degree|products|too large"):
        as_polynomial(parse(text, ["x", "y"]), ("x", "y"))
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize("text", ["log(-1)", "sqrt(-1)", "1/(pi - pi)", "1/sin(0)", "(-1)**0.5", "0*log(0)"])
def test_a_constant_that_is_no_number_is_named(text):
    p = as_polynomial(parse(f"x*({text})", ["x"]), ("x",))
    with pytest.raises(FormulaError, match="is not a finite real number"):
        p.rational_or_ball_terms()


def test_an_expansion_of_too_many_terms_is_refused_soon():
    names = tuple("abcdefgh")
    start = time.perf_counter()
    with pytest.raises(FormulaError, match="products"):
        as_polynomial(parse(f"({'+'.join(names)} + 1)**30", names), names)
    assert time.perf_counter() - start < 3
