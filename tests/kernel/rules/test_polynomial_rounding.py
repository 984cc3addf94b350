"""Attack the rounding claim: no float path may ever be further from the truth than certified.

The truth is computed in Python fractions from the polynomial's terms; the points are random, at
corners, and found by a search that walks uphill on the error.
"""

import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import transformula as tf
from support.polynomials import dense, polynomials, text_of, value_of
from transformula.errors import InputError
from transformula.kernel.arithmetic import precision
from transformula.kernel.rounding.formats import FORMATS
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.reference import run


def _paths(model):
    """Every float path the claim is about."""
    dtype = getattr(torch, model.weights.dtype)
    module, blocks = model.to_torch(), model.to_torch(blocks=True)
    return {
        "reference": lambda x: run(model.weights, x),
        "torch blocks": lambda x: blocks(torch.from_numpy(np.asarray(x)).to(dtype)).detach().numpy(),
        "numpy": lambda x: run_numpy(model.program, x),
        "torch": lambda x: module(torch.from_numpy(np.asarray(x)).to(dtype)).detach().numpy(),
    }


def _points(low, high, rng, count=24):
    """float64 points in the box: inside, corners, and near the ends."""
    low, high = np.array(low), np.array(high)
    inside = rng.uniform(size=(count, len(low)))
    corners = rng.integers(0, 2, size=(count, len(low))).astype(float)
    near = np.where(rng.uniform(size=corners.shape) < 0.3, inside, corners)
    return np.clip(low + (high - low) * np.vstack([inside, corners, near]), low, high)


def _errors(path, terms, x):
    got = path(x)[:, 0]
    return np.array(
        [
            float(abs(Fraction(float(g)) - value_of(terms, [Fraction(v) for v in row])))
            for g, row in zip(got, x.tolist(), strict=True)
        ]
    )


def _attack(terms, low, high, dtype, multi_head=False, climb=1):
    width = len(low)
    box = {f"x{k + 1}": (Fraction(a), Fraction(b)) for k, (a, b) in enumerate(zip(low, high, strict=True))}
    model = tf.compile(text_of(terms), on=box, dtype=dtype, multi_head=multi_head)
    claim = model.certificate
    assert claim.approximation == 0
    rng = np.random.default_rng(width)
    for name, path in _paths(model).items():
        x = _points(low, high, rng)
        errors = _errors(path, terms, x)
        for _ in range(climb):
            assert errors.max() <= claim.rounding, (name, x[errors.argmax()])
            best = x[errors.argmax()]
            span = np.array(high) - np.array(low)
            x = np.clip(best + span * rng.normal(size=(12, width)) * 10.0 ** rng.uniform(-9, -1), low, high)
            errors = _errors(path, terms, x)
        assert errors.max() <= claim.rounding, name
    return model


ends = st.tuples(st.floats(-4, 4), st.floats(0.01, 8)).map(lambda p: (p[0], p[0] + p[1]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@given(terms=polynomials(degree=(1, 6)), box=st.lists(ends, min_size=6, max_size=6), multi_head=st.booleans())
@settings(max_examples=30)
def test_no_path_exceeds_the_claim(dtype, terms, box, multi_head):
    width = len(next(iter(terms)))
    low, high = zip(*box[:width], strict=True)
    _attack(terms, low, high, dtype, multi_head)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((1e6, -1e-6), (1e6 + 1, 1e-6)),
        ((-1e-9, 1e3), (1e-9, 1001.0)),
        ((0.1, 0.1), (0.3, 1e4)),
        ((-1e5, -3e5), (1e5, -2e5)),
    ],
)
def test_huge_tiny_and_off_centre_boxes(low, high, dtype):
    for seed in range(3):
        _attack(dense(random.Random(seed), 2, 3), low, high, dtype, climb=3)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_directions_that_floats_can_not_hold(dtype):
    """Large odd coefficients make the embedding itself round."""
    wide = 2**60 + 1
    for small in (1, 3):
        terms = {(1, 0): Fraction(wide), (0, 1): Fraction(small)}
        model = _attack(terms, (-1.0, -7.0), (1.0, 7.0), dtype, climb=4)
        terms = {(2, 0): Fraction(wide**2), (1, 1): Fraction(2 * wide * small), (0, 2): Fraction(small**2)}
        model = _attack(terms, (-1.0, -7.0), (1.0, 7.0), dtype, climb=4)
        assert tf.verify(model).verified


def test_underflow_is_part_of_the_bound():
    terms = {(3,): Fraction(1, 10**300), (1,): Fraction(1, 10**310)}
    _attack(terms, (-1e-3,), (1e-3,), "float64")
    _attack({(2,): Fraction(1, 10**38)}, (-1e-3,), (1e-3,), "float32")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_irrational_ends_and_coefficients(dtype):
    model = tf.compile("pi*x**3 - sqrt(2)*x*y + E", on="x=-pi..sqrt(2), y=1/3..E", dtype=dtype)
    bound = model.certificate.bound
    assert 0 < model.certificate.approximation < 1e-90
    low, high = np.array(model.box.floats()).T
    x = _points(np.nextafter(low, high), np.nextafter(high, low), np.random.default_rng(0), 60)
    for path in _paths(model).values():
        for row, got in zip(x.tolist(), path(x)[:, 0], strict=True):
            with precision(200):
                a, b = (arb(fmpq(*v.as_integer_ratio())) for v in row)
                truth = arb.pi() * a**3 - arb(2).sqrt() * a * b + arb.const_e()
                assert abs(truth - float(got)) <= bound


def test_the_claim_is_not_absurdly_loose(f2):
    """A bound of 1e9 would pass every attack; this one is within a small factor of what happens."""
    assert f2.certificate.rounding < 1e-10
    assert tf.compile("x**2", on="x=-1..1").certificate.rounding < 2e-14
    assert tf.compile("x", on="x=-1..1").certificate.rounding < 1e-14


def test_a_sum_too_long_for_the_format_is_refused():
    with pytest.raises(InputError, match="cannot hold a sum"):
        FORMATS["float32"].gamma(2**24)
