"""Ranges that Interval is asked for: in few boxes, and no narrower than what the kernel has proven."""

from fractions import Fraction

import pytest
from flint import fmpq

from transformula.coq import bisected_ranges
from transformula.coq.bisected_ranges import easy_range, gathered, is_quick
from transformula.kernel.syntax.parsing import parse

UNIT = tuple((name, (fmpq(1, 2), fmpq(3, 2))) for name in "axz")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("z*a - x + x", "z*a"),
        ("(x - z*a + 2*(z*a - x + x) - 7/4)/2", "(x + z*a - 7/4)/2"),
        ("sin(x + x)*x*x", "sin(2*x)*x**2"),
        ("x - x", "0"),
        ("x + 2*a - 3*(a - z) + a", "x + 3*z"),
        ("(x + a)*(x + a) - (x + a)**2", "0"),
        ("x/z + exp(x/z - a + 1)", "x/z + exp(x/z - a + 1)"),
    ],
)
def test_like_terms_are_gathered(text, plain):
    assert str(gathered(parse(text, "axz"))) == str(parse(plain, "axz"))


def test_a_range_that_takes_many_boxes_is_widened():
    """A largest value inside of the box, of factors that move together: seed 40 of the campaign."""
    expr = gathered(parse("(x - z*tanh(a))*(z*tanh(a) - x + x)", "axz"))
    proven, known = (Fraction(-1154, 1000), Fraction(5626, 10000)), (Fraction(-9), Fraction(9))
    tight = proven[0] - Fraction(1, 1000), proven[1] + Fraction(1, 1000)
    assert not is_quick(expr, UNIT, tight)
    low, high = easy_range(expr, UNIT, proven, known)
    assert is_quick(expr, UNIT, (low, high)) and known[0] < low < tight[0] and tight[1] < high < known[1]
    assert easy_range(expr, UNIT, proven, proven) is None  # it says no more than is known


def test_a_range_that_no_width_makes_quick_is_left_out(monkeypatch):
    monkeypatch.setattr(bisected_ranges, "MAX_BOXES", 1)
    expr = parse("x - x*a*z", "axz")
    assert easy_range(expr, UNIT, (Fraction(-1, 8), Fraction(1, 8)), (Fraction(-9), Fraction(9))) is None
