"""The blocks of Lemma 3.1 and Theorem 3.5: their shape, their counts, and what they refuse."""

import math
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings

import transformula as tf
from support.polynomials import dense, polynomials, text_of
from transformula.compiler import policy
from transformula.errors import FormulaError, InputError, NotProvenError
from transformula.kernel.folder.weights import block_matrices
from transformula.runtime.matrices import nonzeros
from transformula.show.describe import describe


def _counts(model):
    return describe(model)["size against Fang et al."]


def _degree(terms):
    return max(sum(e) for e in terms)


@given(polynomials())
@settings(max_examples=80)
def test_the_counts_of_lemma_and_theorem_hold(terms):
    width = len(next(iter(terms)))
    model = tf.compile(text_of(terms), on=f"x1..x{width}=-2..3")
    q, n = model.degree, model.tokens
    assert model.layers == q == _degree(terms)
    assert n <= math.comb(width - 1 + q, q)
    for block in model.weights.blocks:
        assert sum(m.nonzeros for _, m in block_matrices(block)) == 2 * n + 8
    free = width ** (q + 1) + q * width**q + 1
    assert model.parameter_count == n * width + n * q + 1 <= free
    # the non-zeros the theorem counts: F, β, b and the blocks
    weights = model.weights
    total = weights.embedding.nonzeros + weights.readout.nonzeros + weights.bias.nonzeros
    total += q * (2 * n + 8)
    assert nonzeros(model.weights) == total <= free + 2 * q * width**q + 8 * q
    shown = _counts(model)
    assert shown["parameters_within"] and shown["nonzeros_within"]
    assert shown["parameters_bound"] == free and shown["n_q"] == math.comb(width - 1 + q, q)


@given(polynomials())
@settings(max_examples=40)
def test_several_heads_take_log2_blocks_of_the_same_kind(terms):
    width = len(next(iter(terms)))
    model = tf.compile(text_of(terms), on=f"x1..x{width}=-2..3", multi_head=True)
    q, n = _degree(terms), model.tokens
    assert model.layers == math.ceil(math.log2(q)) if q > 1 else model.layers == 0
    for block in model.weights.blocks:
        heads = len(block.attention.heads)
        assert sum(m.nonzeros for _, m in block_matrices(block)) == heads * (2 * n + 8)


def test_slots_are_named_and_powers_end_where_their_names_say(f2):
    assert f2.weights.slots == ("t", *(f"e{k}" for k in range(1, 12)), "p1", "p2", "p3", "p4", "p5", "one")


def test_reference_streams_hold_the_powers():
    from transformula.runtime.reference import trace

    weights = tf.compile("x**4", on="x=-2..2").weights
    seen = trace(weights, [[1.0]])
    stream = seen.residuals[-1][0, 0]
    t = stream[weights.slot("t")]
    assert t == 0.5
    for s in range(1, 5):
        assert stream[weights.slot(f"p{s}")] == pytest.approx((-t) ** s)
    assert len(seen.residuals) == 5 and len(seen.patterns) == 4


def test_directions_fill_the_unit_interval():
    weights = tf.compile("x**2 + 3*y**3", on="x=-1000..999, y=1/1000..1/999").weights
    largest = [1000, 1 / 999]
    reach = [abs(float(value)) * largest[column] for _, column, value in weights.embedding.entries()]
    assert len(reach) == 2 and all(0.5 < r <= 1 for r in reach)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sin(x)", "sin.x. is not a polynomial.*Give a tolerance"),
        ("x + 1/x", "divides by x"),
        ("x**0.5", "whole number"),
        ("x*log(-1)", "not a finite real number"),
        ("x**1000000", "power 1000000"),
    ],
)
def test_what_it_can_not_do_is_refused_by_name(text, said):
    with pytest.raises(FormulaError, match=said):
        tf.compile(text, on="x=1..2", construction="polynomial")


@pytest.mark.parametrize("box", ["x=0..1e200", "x=-1e308..1e308", "x=0..1e4000"])
def test_a_box_beyond_the_floats_is_refused(box):
    with pytest.raises(InputError, match="beyond"):
        tf.compile("x**2", on=box)


def test_float32_refuses_sooner_and_names_float64():
    with pytest.raises(InputError, match="float64"):
        tf.compile("x**2", on="x=0..1e25", dtype="float32")


def test_a_tolerance_below_rounding_is_not_proven_and_says_what_is():
    with pytest.raises(NotProvenError, match="rounding alone is more than eps; ask for eps >=") as caught:
        tf.compile("x**2/3", on="x=-1..1", eps=1e-20)
    best = caught.value.best_bound
    assert 0 < best < 1e-13
    advised = float(re.search(r"eps >= ([0-9.e-]+)", str(caught.value))[1])
    assert best <= advised < (policy.ADVICE_ROOM[0] + 0.1) * best
    for eps in (best, advised):
        assert tf.compile("x**2/3", on="x=-1..1", eps=eps).certificate.eps == eps


def test_constants_compile_too():
    model = tf.compile("x - x + 5/3", on="x=-1..1")
    assert model([0.25]) == pytest.approx(5 / 3)
    assert tf.verify(model).verified


def test_a_dense_polynomial_of_random_terms_verifies():
    model = tf.compile(text_of(dense(random.Random(5), 3, 6)), on="x1..x3=-1..2")
    assert tf.verify(model).verified and model.certificate.approximation == 0


@pytest.mark.parametrize(
    ("formula", "box"),
    [
        ("w*x**4", "x=0..4, w=1e3..1e4"),  # the bound was 44,000 of 2.56 million
        ("w*x*(64 - 8*x**2 + x**3)/3.84e7", "x=0..4, w=1e3..1e4"),  # a beam: 6 per cent
        ("x*y", "x=0..1e-200, y=0..1e200"),  # beyond what floats hold
        ("a*b*c + b**3", "a=-1e6..1e6, b=-2..2, c=0..1e-5"),
    ],
)
def test_variables_of_different_sizes_are_not_lost_in_one_another(formula, box):
    model = tf.compile(formula, box)
    assert model.construction == "polynomial" and tf.verify(model).verified
    low, high = np.array(model.box.floats()).T
    x = np.random.default_rng(0).uniform(low, high, (200, len(low)))
    truth = eval(formula, dict(zip(model.box.variables, x.T, strict=True)))  # the test's own text
    error, size = np.abs(model(x) - truth).max(), np.abs(truth).max()
    assert error <= model.certificate.bound <= 1e-10 * size
