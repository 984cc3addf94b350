"""Expressions as functions of what they repeat, and the ranges that gives."""

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from transformula.compiler.evidence.range_search import BoxRanges, in_parts
from transformula.formula.evaluation import evaluate
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.parsing import parse

NAMES = ["a", "b", "x", "y", "z"]


@pytest.mark.parametrize(
    "text",
    [
        "sqrt((x - y*z)**2 + a*b) - x + y*z",
        "exp(x*y + z)/(1 + exp(x*y + z)) + a",
        "(a + b)**2*sin(a + b) - x*(a + b)",
        "log(2 + x*y)*a + sqrt(2 + x*y)*b",
        "exp(x + x + y)*(x + y + z)*sin(x + x + y)",
        "sin(x + y)*cos(x + y) + log(x + x + y)",
        "sqrt(a*b + a*b + x) - a*b - x + tanh(a*b + a*b + x)",
    ],
)
def test_the_parts_make_up_the_expression(text):
    expr = parse(text, NAMES)
    swapped, parts = in_parts(expr)
    point = list(np.random.default_rng(0).uniform(0.5, 2, (5, 50)))
    values = [evaluate(part, NAMES, point) for part in parts.values()]
    found = evaluate(swapped, list(parts), values)
    np.testing.assert_allclose(found, evaluate(expr, NAMES, point), rtol=1e-12)
    assert all(name.startswith("#") for name in parts)


@pytest.mark.parametrize("text", ["x + y", "x*y*z", "sin(x)*cos(y)", "x"])
def test_nothing_repeated_is_nothing_gained(text):
    assert in_parts(parse(text, NAMES)) is None


def test_a_difference_that_nearly_cancels_is_bounded():
    """sqrt(A**2 + C) - A > 0 for all A: intervals of six variables do not see that."""
    box = Box.of("p=90..110, s=5..20, m=30..60, k=1..5, v=2..10, t=290..296")
    low, high = BoxRanges(box).of(
        parse("sqrt((p*s + 20*m - k*v*t)**2 + 4*k*p*v*t) - (p*s + 20*m - k*v*t)", box.variables)
    )
    point = np.random.default_rng(0).uniform(*np.array(box.floats()).T, (20_000, 6)).T
    p, s, m, k, v, t = point
    inner = p * s + 20 * m - k * v * t
    seen = np.sqrt(inner**2 + 4 * k * p * v * t) - inner
    assert 0 < low <= seen.min() and seen.max() <= high


@given(st.lists(st.sampled_from(["x", "y", "z", "x*y", "-x", "-y"]), min_size=2, max_size=5), st.data())
def test_terms_that_are_repeated_are_not_lost(terms, data):
    """A sum is recognised in a longer one only if every term stands there often enough."""
    other = data.draw(st.permutations([*terms, *data.draw(st.lists(st.sampled_from(terms), max_size=3))]))
    minus = " - ".join(f"({t})" for t in data.draw(st.permutations(terms)))
    text = f"exp(({' + '.join(terms)})/9)*sin({' + '.join(terms)}) + ({' + '.join(other)})*cos(0 - {minus})"
    expr = parse(text, NAMES)
    found = in_parts(expr)
    if found is None:
        return
    swapped, parts = found
    with precision(200):
        at = {name: arb(k + 2) / 7 for k, name in enumerate(NAMES)}
        values = {name: enclose(part, at) for name, part in parts.items()}
        wanted, value = enclose(expr, at), enclose(swapped, values)
        assert value.overlaps(wanted) and value.rad() < 1e-40
