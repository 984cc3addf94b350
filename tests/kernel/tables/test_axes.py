"""Taylor models of softmax weights contain the weights, also those of tokens that were left out."""

import numpy as np
import pytest
from flint import arb

from support.kernel_tables import axis_of
from transformula.kernel.arithmetic import precision
from transformula.kernel.tables.table_error import TableAxis, axis_models, leading


def _weights(axis, x):
    scores = [arb(float(a)) * x + arb(float(b)) for a, b in zip(axis.slopes, axis.offsets, strict=True)]
    top = max(scores, key=lambda s: float(s.mid()))
    powers = [(s - top).exp() for s in scores]
    total = sum(powers, arb(0))
    return [p / total for p in powers]


@pytest.mark.parametrize("order", [1, 3, 7])
@pytest.mark.parametrize("seed", range(6))
def test_models_contain_the_weights(seed, order):
    rng = np.random.default_rng(seed)
    axis = TableAxis(*axis_of(0, 2, 14))
    if seed:
        axis = TableAxis(rng.normal(size=9) * 10 ** rng.uniform(0, 3), rng.normal(size=9) * 10 ** rng.uniform(-1, 2))
    centre, radius = np.array([0.1, 0.9, 1.7]), np.array([0.05, 0.3, 1e-3])
    terms, rest = axis_models(axis, centre, radius, order, cut=20.0)
    with precision(200):
        for i in range(3):
            for t in (-1.0, -0.4, 0.0, 0.77, 1.0):
                x = arb(float(centre[i])) + arb(float(radius[i])) * t
                for j, weight in enumerate(_weights(axis, x)):
                    polynomial = sum(arb(float(c)) * arb(t) ** k for k, c in enumerate(terms[i, :, j]))
                    assert not abs(polynomial - weight).lower() > rest[i, j]


def test_narrow_intervals_have_narrow_models():
    terms, rest = axis_models(TableAxis(*axis_of(0, 2, 14)), np.array([0.3, 1.1]), np.array([0.01, 0.05]), 7)
    assert rest.max() < 1e-6 and np.abs(terms[:, 0].sum(axis=1) - 1).max() < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_out_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    axis = TableAxis(rng.normal(size=30) * 10 ** rng.uniform(0, 5), rng.normal(size=30) * 10 ** rng.uniform(0, 4))
    centre, radius = float(rng.normal()), float(10 ** rng.uniform(-4, 0))
    frame = leading(axis, centre, radius, 30.0)
    with precision(200):
        for t in (-1.0, 0.0, 1.0):
            x = arb(centre) + arb(radius) * t
            weights = _weights(axis, x)
            for j in set(range(30)) - set(frame.tokens):
                assert weights[j] < arb(-30).exp()
    assert frame.top in frame.tokens


def test_numbers_that_are_none_leave_nothing_out():
    for bad in (np.nan, np.inf):
        frame = leading(TableAxis(np.array([bad, 1.0, 2.0]), np.zeros(3)), 0.5, 0.1, 1.0)
        assert frame.tokens == [0, 1, 2]
    _, rest = axis_models(TableAxis(np.array([np.nan, 1.0]), np.zeros(2)), np.array([0.5]), np.array([0.1]), 3)
    assert not (rest < np.inf).any()
