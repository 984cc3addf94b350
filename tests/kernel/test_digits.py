"""Printed bounds are true: rounded up, never down, and by less than one unit of the last digit."""

from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from transformula.kernel.arithmetic import at_most


@given(st.floats(1e-300, 1e300), st.integers(1, 8))
def test_a_printed_bound_is_not_below_the_bound(bound, digits):
    printed, exact = Decimal(at_most(bound, digits)), Decimal(repr(bound))
    assert exact <= printed <= exact * (1 + Decimal(10) ** (1 - digits))


def test_what_is_no_number_stays_so():
    assert [at_most(v) for v in (0.0, float("inf"), float("nan"))] == ["0", "inf", "nan"]


@given(st.integers(1, 2**52 - 1), st.integers(1, 8))
@example(1, 3)
@example(9, 3)
def test_a_bound_that_is_subnormal_is_rounded_up_too(units, digits):
    """4.94e-324 is below the smallest float, and so is 4.4e-323, the shortest text of nine times it, below that."""
    printed, exact = Decimal(at_most(units * 2.0**-1074, digits)), Decimal(units * 2.0**-1074)
    assert exact <= printed <= exact * (1 + Decimal(10) ** (1 - digits))
