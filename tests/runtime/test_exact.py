"""Blocks on rationals equal the polynomial with ==, judged by Python fractions."""

from fractions import Fraction

import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import transformula as tf
from support.polynomials import polynomials, text_of, value_of

#: With four tests of so many polynomials and this many points each: thousands.
POINTS = 10
inside = st.fractions(-3, 3, max_denominator=97)


def _flint(value: Fraction) -> fmpq:
    return fmpq(value.numerator, value.denominator)


def _check(terms, points, multi_head):
    width = len(next(iter(terms)))
    model = tf.compile(text_of(terms), on=f"x1..x{width}=-3..3", multi_head=multi_head)
    for flat in points:
        point = flat[:width]
        assert model.exact([_flint(v) for v in point]) == [_flint(value_of(terms, point))]


points = st.lists(st.lists(inside, min_size=6, max_size=6), min_size=POINTS, max_size=POINTS)


@pytest.mark.parametrize("multi_head", [False, True])
@given(terms=polynomials(degree=(1, 8)), points=points)
@settings(max_examples=30)
def test_blocks_equal_the_polynomial(multi_head, terms, points):
    _check(terms, points, multi_head)


@pytest.mark.parametrize("multi_head", [False, True])
@given(terms=polynomials(variables=(1, 3), degree=(1, 4), terms=9), points=points)
@settings(max_examples=15)
def test_blocks_equal_denser_polynomials(multi_head, terms, points):
    _check(terms, points, multi_head)


def test_the_corners_of_the_box_are_exact_too(f2):
    corner = [fmpq(3) if k % 2 else fmpq(-3) for k in range(9)]
    x = [int(v.p) for v in corner]
    q = x[0] ** 5 + 3 * x[1] ** 4 + 2 * x[2] ** 3 + 5 * x[2] * x[3] + 3 * x[4] ** 2 + 2 * x[5] * x[6] * x[7] + 2 * x[8]
    assert f2.exact(corner) == [q]


def test_several_outputs_are_exact():
    model = tf.compile(["x*y/3", "x - y**3"], on="x=-1..1, y=-1..1")
    assert model.exact([fmpq(1, 3), fmpq(-1, 2)]) == [fmpq(-1, 18), fmpq(1, 3) + fmpq(1, 8)]
