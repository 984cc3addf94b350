"""Attention only and local polynomials: what they are made of, how large they are, and what they refuse."""

import numpy as np
import pytest

import transformula as tf
from transformula.compiler import policy
from transformula.compiler.gallery.attention_only import anchors
from transformula.compiler.gallery.local_polynomials import CellPlan
from transformula.errors import InputError, NotProvenError
from transformula.kernel.syntax.boxes import Formula


def _no_units(model):
    return all(block.feed_forward is None for block in model.weights.blocks)


def test_attention_only_has_a_line_for_each_form_and_a_head_for_each_summand():
    model = tf.compile("sin(2*x + y) + abs(x - 1/3) + 3*y", on="x=0..1, y=0..1", eps=0.2, construction="attention-only")
    assert model.layers == 2 and _no_units(model)
    first, second = ([t for t in model.tables if t.block == b] for b in (0, 1))
    assert len(first) == len(second) == 2 and all(t.slopes.shape[1] == 1 for t in second)
    assert all(np.array_equal(first[0].values, t.values) for t in first)
    cells = sum(len(t.slopes) for t in second)
    assert model.memory_tokens == len(first[0].slopes) + cells
    partition = tf.compile("sin(2*x + y) + abs(x - 1/3) + 3*y", "x=0..1, y=0..1", 0.2, construction="partition")
    assert partition.weights.blocks[0].feed_forward is not None


def test_attention_only_has_the_cells_of_a_partition():
    wanted = {"on": "x=-1..1, y=0..1", "eps": 0.1}
    model = tf.compile("x*exp(-y)", **wanted, construction="attention-only")
    assert model.memory_tokens == 11 + tf.compile("x*exp(-y)", **wanted, construction="partition").memory_tokens == 158


@pytest.mark.parametrize("text", ["2*x + 1", "x - x + 2/3"])
def test_what_is_affine_needs_no_head(text):
    model = tf.compile(text, on="x=0..1", eps=1e-9, construction="attention-only")
    assert model.memory_tokens == 0 and tf.verify(model).verified


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_few_anchors_draw_a_line(dtype):
    for error in (1e-2, 1e-4, 1e-6):
        table, u = anchors(error, dtype), np.linspace(-1, 1, 501)[:, None]
        scores = table.slopes[:, 0] * u + table.offsets[:, 0]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        found = weights @ table.values[:, 0] / weights.sum(axis=1)
        assert np.abs(found - u[:, 0]).max() <= 1.01 * error and len(table.values) <= 17
        assert np.array_equal(table.values[:, 0], np.round(table.values[:, 0])), "anchors are their own values"


@pytest.mark.parametrize(
    ("text", "box", "eps", "cells", "tokens"),
    [
        ("sin(3*x)", "x=0..2", 1e-3, 12, 15),
        ("x*exp(-y)", "x=-1..1, y=0..1", 1e-4, 5, 30),
        ("1/(1 + 25*x**2)", "x=-1..1", 1e-4, 60, 63),
        ("x**2 - y", "x=0..1, y=0..1, z=0..1", 1e-6, 1, 7),
    ],
)
def test_local_polynomials_are_as_small_as_they_were(text, box, eps, cells, tokens):
    model = tf.compile(text, on=box, eps=eps, construction="local-polynomials")
    assert model.layers == 2 and _no_units(model)
    assert len(next(iter(model.tables)).slopes) <= cells and model.memory_tokens <= tokens


def test_the_error_falls_with_the_degree():
    formula = Formula.of("exp(x*y)", "x=-1..1, y=0..1")
    for degree in (1, 2, 3):
        errors = [CellPlan(formula, ("x", "y"), degree, "float64", (n, n)).measured for n in (4, 8, 16)]
        assert abs(np.log2(errors[1] / errors[2]) - degree - 1) < 0.3
        plan = CellPlan(formula, ("x", "y"), degree, "float64", (8, 8))
        assert plan.measured <= plan.proven <= 3 * plan.measured


@pytest.mark.parametrize("construction", ["attention-only", "local-polynomials"])
def test_what_cannot_be_built_is_said(construction):
    with pytest.raises(InputError, match="several layers"):
        tf.compile("exp(x)", on="x=0..1", eps=0.1, construction=construction, layers=1)
    with pytest.raises(InputError, match="not for sequences"):
        tf.compile(["exp(x)", "y"], "x=0..1, y=0..1", 0.1, construction=construction, shape=(2, 1))
    with pytest.raises(InputError, match="at most 4"):
        tf.compile("exp(a*b*c*d*e)", on=dict.fromkeys("abcde", (0, 1)), eps=0.1, construction=construction)


def test_what_local_polynomials_cannot_take(monkeypatch):
    monkeypatch.setattr(policy, "MOST_TOKENS", 200)  # the last refusal is made of many models with that many cells
    with pytest.raises(NotProvenError, match="removable"):
        tf.compile("sin(x)/x", on="x=-1..1", eps=0.1, construction="local-polynomials")
    with pytest.raises(InputError, match="local1 is a name that coefficients use"):
        tf.compile("exp(local1)", on="local1=0..1", eps=0.1, construction="local-polynomials")
    with pytest.raises(NotProvenError, match="use construction='auto'"):
        tf.compile("sqrt(x)", on="x=0..1", eps=1e-4, construction="local-polynomials")
