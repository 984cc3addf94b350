"""Boxes: every way to write one, and every way to get it wrong."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from transformula.formula.given_box import box_of
from transformula.kernel.exceptions import BoxError
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.parsing import parse


def _ends(box):
    return [(low.number, high.number) for low, high in zip(box.lower, box.upper, strict=True)]


def test_text_with_ranges_of_names_and_exact_ends():
    box = Box.of("x=0..2*pi, y1..y3=-1/3..0.1,z = -1 .. +1")
    assert box.variables == ("x", "y1", "y2", "y3", "z")
    assert box.upper[0] == parse("2*pi", ())
    assert _ends(box)[1:] == [(Fraction(-1, 3), Fraction(1, 10))] * 3 + [(-1, 1)]
    assert Box.of(str(box)) == box


def test_ranges_of_names_keep_leading_zeros():
    assert Box.of("a08..a11=0..1").variables == ("a08", "a09", "a10", "a11")
    assert Box.of("x9..x11=0..1").variables == ("x9", "x10", "x11")


def test_a_function_with_a_comma_inside_an_end():
    assert Box.of("x=min(-1,-2)..max(1, 2), y=0..1").variables == ("x", "y")


@pytest.mark.parametrize(
    "pair",
    [
        (Fraction(1, 10), 2),
        (0.1, 2.0),
        ("0.1", "2"),
        "0.1..2",
        [0.1, np.int64(2)],
        (Decimal("0.1"), Decimal(2)),
        np.array([0.1, 2.0]),
    ],
)
def test_mappings_take_numbers_of_every_kind(pair):
    assert _ends(box_of({"x": pair})) == [(Fraction(1, 10), Fraction(2))]


def test_decimals_keep_all_their_digits():
    long = Decimal("0.1234567890123456789012345")
    assert _ends(box_of({"x": (long, 1)}))[0][0] == Fraction(long)


def test_a_box_is_a_box():
    box = Box.of("x=0..1")
    assert Box.of(box) is box


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "no variables"),
        ({}, "no variables"),
        ("x", "write x=low..high"),
        ("x=0..1,,y=0..1", "an interval has a name"),
        ("x=1", "nothing varies"),
        ("x=..1", "write low..high"),
        ("x=0...1", "three dots"),
        ("x=0....1", "three dots"),
        ({"x": "0...5"}, "three dots"),
        ("#w1=0..1", "not a variable name"),
        ("x=0..#w1", "is not a number"),
        ("x=0..", "write low..high"),
        ("x=1..0", "is reversed: write 0..1"),
        ("x=1..1", "nothing varies"),
        ("x=pi..pi", "nothing varies"),
        ("x=1..2/2", "nothing varies"),
        ("x=0..nan", "only finite numbers"),
        ("x=-inf..1", "only finite numbers"),
        ("x=0..1/0", "divides by zero"),
        ("x=0..log(-1)", "not a number"),
        ("x=0..y", "'y' is not a number"),
        ("x=0..1,x=0..2", "gives x twice"),
        ("x1..x3=0..1,x2=0..1", "gives x2 twice"),
        ("x9..x1=0..1", "empty, reversed or too long"),
        ("x1..x99999=0..1", "empty, reversed or too long"),
        ("x1..y3=0..1", "looks like x1..x9"),
        ("x..y=0..1", "looks like x1..x9"),
        ("x01..x100=0..1", "as many digits"),
        ("1x=0..1", "not a variable name"),
        ("é=0..1", "not a variable name"),
        ("sin=0..1", "sin is a function"),
        ("x=0..9**9**9**9", "too large"),
        ({"x": (0, float("nan"))}, "only finite numbers"),
        ({"x": (0, float("inf"))}, "only finite numbers"),
        ({"x": (0, 1, 2)}, "must be a pair"),
        ({"x": 3}, "nothing varies"),
        ({"x": (0, object())}, "a number or text is needed"),
        ({"x": (2, 1)}, "is reversed"),
        ({3: (0, 1)}, "not a variable name"),
        (None, "text or a mapping"),
        ([("x", 0, 1)], "text or a mapping"),
        ({f"v{k}": (0, 1) for k in range(1001)}, "at most 1000"),
    ],
)
def test_a_bad_box_gets_one_sentence(given, said):
    with pytest.raises(BoxError, match=said) as caught:
        box_of(given)
    assert "\n" not in str(caught.value)


def test_ends_that_differ_in_the_hundredth_digit_are_told_apart():
    assert Box.of(f"x=0.{'3' * 100}..1/3").dimension == 1


@pytest.mark.parametrize(
    ("formula", "box", "said"),
    [
        ("x + y", "x=0..1", "unknown name 'y'"),
        ([], "x=0..1", "no formula"),
        (7, "x=0..1", "must be text or a list of texts, not int"),
        (["x", 7], "x=0..1", "must be text, not int"),
        (["x"] * 1001, "x=0..1", "at most 1000"),
    ],
)
def test_formula_and_box_must_fit(formula, box, said):
    with pytest.raises(ValueError, match=said):
        Formula.of(formula, box)


def test_several_formulas_may_share_the_variables_out():
    formula = Formula.of(["x + y", "y**2"], "x=0..1, y=0..1")
    assert formula.texts == ("x + y", "y**2")
