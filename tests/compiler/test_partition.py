"""The theorem as written: near the covering number, wide cells where nothing happens, bounded memory."""

import resource

import numpy as np
import pytest

import transformula as tf
from support.one_layer_models import model_named
from transformula.compiler.table_reading import read_heads
from transformula.errors import NotProvenError
from transformula.runtime import reference


def covering_number(function, low, high, eps, points=400_001):
    """How few intervals cover [low, high] so that the function varies by at most 2 eps on each: greedily."""
    values = function(np.linspace(low, high, points))
    count, start = 1, 0
    least = most = values[0]
    for k, v in enumerate(values.tolist()):
        least, most = min(least, v), max(most, v)
        if most - least > 2 * eps:
            count, start = count + 1, k
            least = most = v
    assert start < points
    return count


def test_the_count_is_near_the_covering_number():
    """Two heads share the tolerance, so each covers sin at eps / 2."""
    model = tf.compile("sin(x1) + sin(x2)", on="x1..x2=0..2*pi", eps=0.05, construction="partition")
    least = 2 * covering_number(np.sin, 0, 2 * np.pi, 0.025)
    assert 150 <= least <= model.memory_tokens <= 1.1 * least
    assert model.heads == 2 and model.layers == 1
    assert 0.04 < model.certificate.approximation <= model.certificate.bound <= 0.05
    assert tf.verify(model).verified


@pytest.mark.parametrize(
    ("formula", "function", "low", "high", "eps"),
    [
        ("exp(x)", np.exp, -1, 2, 0.02),
        ("x**2", np.square, -1, 2, 0.01),
        ("1/(1 + 25*x**2)", lambda x: 1 / (1 + 25 * x**2), -1, 1, 0.01),
        ("sqrt(x)", np.sqrt, 0, 1, 0.01),
    ],
)
def test_one_variable_is_covered_with_hardly_more_cells_than_needed(formula, function, low, high, eps):
    model = tf.compile(formula, on=f"x={low}..{high}", eps=eps, construction="partition")
    least = covering_number(function, low, high, eps)
    assert least <= model.memory_tokens <= 1.1 * least + 2
    assert tf.verify(model).verified and model.certificate.bound <= eps


def _widths(model):
    (head,) = read_heads(model.weights)
    order = np.argsort(head.slopes[:, 0])
    thresholds = -np.diff(head.offsets[order, 0]) / np.diff(head.slopes[order, 0])
    return np.sort(thresholds)


def test_flat_places_get_wide_cells():
    model = tf.compile("tanh(20*x)", on="x=-2..2", eps=0.01, construction="partition")
    edges = np.concatenate([[-2], _widths(model), [2]])
    widths = np.diff(edges)
    steep = widths[np.abs(edges[:-1]) < 0.05]
    assert widths.max() > 1.5 and steep.max() < 0.01 and len(widths) <= 110


def test_attention_is_sharp_and_values_are_samples():
    model = tf.compile("x**3", on="x=0..1", eps=0.05, construction="partition")
    (head,) = read_heads(model.weights)
    x = np.random.default_rng(0).random((200, 1))
    weights = reference.softmax(x @ head.slopes.T + head.offsets[:, 0])
    assert (weights.max(axis=1) > 1 - 1e-9).mean() > 0.95
    edges = np.concatenate([[0], _widths(model), [1]])
    order = np.argsort(head.slopes[:, 0])
    centres = np.cbrt(head.values[order, 0])
    assert (edges[:-1] < centres).all() and (centres < edges[1:]).all()  # each value is taken inside its cell


@pytest.mark.parametrize("name", ["partition in two", "sequence by cells", "partition of a form"])
def test_several_dimensions(name):
    model = model_named(name)
    assert model.construction == "partition" and tf.verify(model).verified


def test_three_dimensions():
    model = tf.compile("x*y*z", on="x=0..1, y=0..1, z=0..1", eps=0.3, construction="partition")
    (head,) = read_heads(model.weights)
    assert head.axes == 3 and tf.verify(model).verified
    x = np.random.default_rng(0).random((500, 3))
    assert np.abs(model(x) - x.prod(axis=1)).max() <= 0.3


def test_a_hundred_thousand_tokens_run_in_bounded_memory():
    model = tf.compile("x*sin(3*y)", on="x=0..1, y=0..1", eps=0.004, construction="partition")
    assert 8e4 < model.memory_tokens < 4e5
    x = np.random.default_rng(0).random((20_000, 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    values = model(x)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400_000  # kilobytes; all scores at once would be 20,000 x 10^5 doubles, 16 gigabytes
    assert np.abs(values - x[:, 0] * np.sin(3 * x[:, 1])).max() <= 0.004
    blocks = reference.run(model.weights, x[:5])[:, 0]
    np.testing.assert_allclose(blocks, values[:5], rtol=0, atol=2 * model.certificate.rounding)


def test_bends_are_left_to_the_feed_forward_layer():
    model = tf.compile("sin(x) + abs(x - 1/3)", on="x=0..1", eps=0.02, construction="partition")
    assert model.certificate.bound <= 0.02 and tf.verify(model).verified
    assert model.weights.blocks[0].feed_forward is not None


def test_too_many_tokens_are_refused_with_advice():
    with pytest.raises(NotProvenError, match=r"would need about .* tokens") as error:
        tf.compile("exp(-x*y)", on="x=0..1, y=0..1", eps=1e-6, construction="partition")
    assert "use construction='auto'" in str(error.value)


def test_a_cliff_is_refused():
    with pytest.raises(NotProvenError, match="steep"):
        tf.compile("tanh(10**30*(x - 1/3))", on="x=0..1", eps=0.1, construction="partition")
