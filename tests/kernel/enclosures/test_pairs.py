"""Intervals as pairs of floats: whatever is computed contains what it stands for."""

import math

import numpy as np
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.intervals import direction, length, plus, size, squared, times, widen


@given(
    ends=st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_interval_operations(ends, shares):
    a, b = sorted(ends[:2]), sorted(ends[2:])
    x, y = (min(max(p + t * (q - p), p), q) for (p, q), t in zip((a, b), shares, strict=True))
    first, second = ((np.array([p]), np.array([q])) for p, q in (a, b))

    def inside(value, pair):
        return not value < arb(float(pair[0][0])) and not value > arb(float(pair[1][0]))

    with precision(300):
        assert inside(arb(x) * arb(y), times(first, second))
        assert inside(arb(x) + arb(y), plus(first, second))
        assert inside(arb(x) + arb(y), widen(first, size(second)))
        assert inside(arb(x) ** 2, squared(first))
        far = (arb(x) ** 2 + arb(y) ** 2).sqrt()
        assert inside(far, length(first, second))
        if far > 0:
            shares_of = direction(first, second)
            assert inside(arb(x) / far, shares_of[0]) and inside(arb(y) / far, shares_of[1])


def test_infinite_ends_do_not_vanish():
    none, all_of_it = (np.zeros(1), np.zeros(1)), (np.array([-math.inf]), np.array([math.inf]))
    assert not np.isnan(times(none, all_of_it)).any()
    assert times((np.array([-1.0]), np.array([1.0])), all_of_it)[1][0] == math.inf
