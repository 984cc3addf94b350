"""Printed bounds are true: rounded up, never down, and by less than one unit of the last digit."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from transformula.kernel.digits import at_most


@given(st.floats(1e-300, 1e300), st.integers(1, 8))
def test_a_printed_bound_is_not_below_the_bound(bound, digits):
    printed, exact = Decimal(at_most(bound, digits)), Decimal(repr(bound))
    assert exact <= printed <= exact * (1 + Decimal(10) ** (1 - digits))


def test_what_is_no_number_stays_so():
    assert [at_most(v) for v in (0.0, float("inf"), float("nan"))] == ["0", "inf", "nan"]


@given(st.floats(5e-324, 1e-300), st.integers(1, 8))
def test_a_bound_next_to_underflow_is_printed_rounded_up_too(bound, digits):
    printed, exact = Decimal(at_most(bound, digits)), Decimal(bound)
    assert exact * (1 - Decimal(2) ** -53) <= printed <= exact * (1 + Decimal(10) ** (1 - digits))
    assert printed >= exact or bound >= 2.0**-1022
