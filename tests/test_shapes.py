"""Shapes that once did not close: each is proven now. The slow ones are in benchmarks/shapes.py."""

import pytest

import transformula as tf
from transformula.errors import NotProvenError

#: Formula, box, tolerance, construction, and the most tokens.
SHAPES = [
    ("sqrt(x*(1 - x))*y", "x=0..1, y=-1..1", 1e-3, "circuit", 22),
    ("sqrt(1 - x**2)*y", "x=-1..1, y=-1..1", 1e-3, "circuit", 25),
    ("acosh(x)", "x=1..3", 1e-4, "lookup", 20),
    (
        "asin(sqrt(min(max(sin((b-a)/2)^2 + cos(a)*cos(b)*sin((d-c)/2)^2, 0), 1)))",
        "a=-pi/2..pi/2, b=-pi/2..pi/2, c=-pi..pi, d=-pi..pi",
        1.6e-3,
        "circuit",
        40,
    ),
]


@pytest.mark.usefixtures("no_advice")
def test_fast_oscillations_get_a_token_for_every_swing() -> None:
    model = tf.compile("sin(200*x)", "x=0..1", 1e-4, "lookup")  # 64 swings, 32 periods
    assert model.memory_tokens <= 40 and tf.verify(model).verified
    with pytest.raises(NotProvenError) as caught:  # more swings than tokens: known at once
        tf.compile("sin(5000*x)", "x=0..1", 1e-6, "lookup")
    assert caught.value.best_bound <= 1.01


@pytest.mark.parametrize(("formula", "box", "eps", "construction", "most"), SHAPES, ids=[case[0] for case in SHAPES])
def test_ends_of_domains_that_are_not_zero(formula: str, box: str, eps: float, construction: str, most: int) -> None:
    model = tf.compile(formula, box, eps, construction)
    assert model.certificate.bound <= eps and model.memory_tokens <= most
    assert tf.verify(model).verified


def test_one_table_serves_both_ends_of_the_arc_sine() -> None:
    model = tf.compile("asin(x)*y", "x=-1..1, y=1..2", 1e-3, "circuit")
    assert model.certificate.bound <= 1e-3 and model.memory_tokens <= 14 and tf.verify(model).verified
