"""The series of sinc, near zero and far from it, against derivatives by quadrature in balls."""

import numpy as np
import pytest
from flint import acb, arb, arb_series, ctx

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import from_float
from transformula.kernel.enclosures.expression_ranges import enclose_ranges
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.functions.special_functions import sinc_series
from transformula.kernel.syntax.parsing import parse

LENGTH = 10


def _expand(at):
    before, ctx.cap = ctx.cap, LENGTH
    try:
        series = sinc_series(arb_series([at, 1], LENGTH))
        return [series[k] for k in range(LENGTH)]
    finally:
        ctx.cap = before


def _by_quadrature(c, k):
    """∫ t^k cos(tc + k pi/2) dt / k!, as a ball."""
    turn = acb.pi() * k / 2
    value = acb.integral(lambda t, _: t**k * (t * c + turn).cos(), 0, 1).real
    for i in range(2, k + 1):
        value /= i
    return value


@pytest.mark.parametrize("at", [0.0, 1e-9, -0.25, 0.499, 0.51, -2.0, 2.99, 3.5, 40.0])
def test_coefficients(at):
    with precision(128):
        for k, found in enumerate(_expand(arb(at))):
            assert found.overlaps(_by_quadrature(arb(at), k))
            assert found.rad() < arb(2) ** -60


@pytest.mark.parametrize("low, high", [(-0.1, 0.2), (-1.0, 1.0), (0.4, 0.6), (-5.0, 7.0), (100.0, 101.0)])
def test_balls_contain_the_coefficients_of_their_points(low, high):
    with precision(96):
        ball = arb(low).union(arb(high))
        found = _expand(ball)
        for x in np.linspace(low, high, 7):
            for k, exact in enumerate(_expand(arb(float(x)))):
                assert found[k].overlaps(exact)


def test_ranges_contain_values():
    expr = parse("sinc(x)")
    rng = np.random.default_rng(0)
    low = rng.uniform(-8, 8, 200)
    high = low + rng.uniform(0, 3, 200)
    bottom, top = enclose_ranges(expr, ["x"], low[None], high[None])
    for a, b, least, most in zip(low, high, bottom, top, strict=True):
        x = np.linspace(a, b, 50)
        values = np.sinc(x / np.pi)
        assert least <= values.min() + 1e-15 and values.max() - 1e-15 <= most
        ends = range_of(expr, {"x": (from_float(a), from_float(b))})
        assert float(ends[0]) <= values.min() + 1e-15 and values.max() - 1e-15 <= float(ends[1])
