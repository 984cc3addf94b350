"""What some functions do to power series over balls; each raises `SingularError` where it may not be smooth."""

from __future__ import annotations

from collections.abc import Callable

from flint import arb, arb_series

from transformula.kernel.arithmetic import coefficients, head, series_length
from transformula.kernel.exceptions import SingularError

Taylor = Callable[[arb, int], list[arb]]
OnSeries = Callable[[arb_series], arb_series]


def of_series(function: OnSeries) -> Taylor:
    """Coefficients by a method of Arb's series."""

    def taylor(at: arb, length: int) -> list[arb]:
        with series_length(length):
            return coefficients(function(arb_series([at, 1], length)), length)

    return taylor


def inverse(u: arb_series) -> arb_series:
    """1/u."""
    if not head(u).is_finite() or head(u).contains(0):
        raise SingularError
    return u.inv()


def positive(u: arb_series) -> arb_series:
    """The same series, seen to be positive at the centre."""
    if not head(u) > 0:
        raise SingularError
    return u


def absolute(u: arb_series) -> arb_series:
    """abs(u), by the sign at the centre."""
    return u if head(u) > 0 else positive(-u)


def asin(u: arb_series) -> arb_series:
    """asin(u)."""
    if not abs(head(u)) < 1:
        raise SingularError
    return u.asin()


def tanh(u: arb_series) -> arb_series:
    """tanh(u), by decaying exponentials only: no overflow, less cancellation."""
    if head(u) < 0:
        return -tanh(-u)
    return 1 - 2 * (-2 * u).exp() * inverse(1 + (-2 * u).exp())
