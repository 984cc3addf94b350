"""Shapes that once did not close: each is proven now. The slow ones are in benchmarks/shapes.py."""

import pytest

import transformula as tf

#: Formula, box, tolerance, construction, and the most tokens.
SHAPES = [
    ("sqrt(x*(1 - x))*y", "x=0..1, y=-1..1", 1e-3, "circuit", 22),
    ("sqrt(1 - x**2)*y", "x=-1..1, y=-1..1", 1e-3, "circuit", 25),
    ("acosh(x)", "x=1..3", 1e-4, "lookup", 20),
]


@pytest.mark.parametrize(("formula", "box", "eps", "construction", "most"), SHAPES, ids=[case[0] for case in SHAPES])
def test_ends_of_domains_that_are_not_zero(formula: str, box: str, eps: float, construction: str, most: int) -> None:
    model = tf.compile(formula, box, eps, construction)
    assert model.certificate.bound <= eps and model.memory_tokens <= most
    assert tf.verify(model).verified
