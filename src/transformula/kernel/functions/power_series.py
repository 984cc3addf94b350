"""What some functions do to power series over balls; each raises `SingularError` where it may not be smooth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flint import arb, arb_series, ctx

from transformula.kernel.errors import SingularError

Taylor = Callable[[arb, int], list[arb]]
OnSeries = Callable[[arb_series], arb_series]


@contextmanager
def series_length(length: int) -> Iterator[None]:
    """Keep so many coefficients of every series."""
    before, ctx.cap = ctx.cap, length
    try:
        yield
    finally:
        ctx.cap = before


def of_series(function: OnSeries) -> Taylor:
    """Coefficients by a method of Arb's series."""

    def taylor(at: arb, length: int) -> list[arb]:
        with series_length(length):
            found = function(arb_series([at, 1], length))
            return [found[k] for k in range(length)]

    return taylor


def inverse(u: arb_series) -> arb_series:
    """1/u."""
    if not u[0].is_finite() or u[0].contains(0):
        raise SingularError
    return u.inv()


def positive(u: arb_series) -> arb_series:
    """The same series, seen to be positive at the centre."""
    if not u[0] > 0:
        raise SingularError
    return u


def absolute(u: arb_series) -> arb_series:
    """abs(u), by the sign at the centre."""
    return u if u[0] > 0 else positive(-u)


def asin(u: arb_series) -> arb_series:
    """asin(u)."""
    if not abs(u[0]) < 1:
        raise SingularError
    return u.asin()


def tanh(u: arb_series) -> arb_series:
    """tanh(u), by decaying exponentials only: no overflow, less cancellation."""
    if u[0] < 0:
        return -tanh(-u)
    return 1 - 2 * (-2 * u).exp() * inverse(1 + (-2 * u).exp())
