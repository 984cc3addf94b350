"""Roots that nearly cancel are written by their conjugates: the same values, and nothing is lost."""

from dataclasses import replace

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

import transformula as tf
from transformula.compiler.lower.rewrites import conjugated
from transformula.formula.evaluation import evaluate_accurately
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.boxes import Formula

CHANGED = {
    "sqrt(x**2 + y) - x": "x=0..9, y=1..2",
    "x + sqrt(x**2 + y)": "x=-9..1, y=1..2",
    "(x*y)**2 + 3*sqrt(4*x**2 + y) - 6*x": "x=0..9, y=1..2",
    "exp(-(sqrt((x - y)**2 + z) + x - y)/2)": "x=0..1, y=5..9, z=1..2",
    "sqrt((x + y)**2 + z) - x - y + z": "x=0..5, y=0..5, z=1/2..1",
    "x*y - sqrt(x**2*y**2 - z)": "x=2..5, y=2..5, z=1..2",
    "(sqrt(b**2 + 4*a*c) - b)/(2*a)": "a=1..2, b=1..9, c=1..2",
    "sqrt(x**2 + (sqrt(y**2 + z) - y)) - x": "x=1..9, y=1..9, z=1..2",
    "sqrt(x**2 + x**2/9 + y/9) - x": "x=1..9, y=1..2",
    "x + y - sqrt((x + y)**2 - z)": "x=5..9, y=1..2, z=1..2",
}
UNCHANGED = {
    "sqrt(x**2 + y) - x": "x=0..9, y=-1..2",  # y may vanish
    "sqrt(x**2 + y) + x": "x=0..9, y=1..2",  # nothing cancels
    "sqrt(x**2 + y) - 2*x": "x=0..9, y=1..2",  # not by much
    "sqrt(x**2 + y) - x - 1": "x=0..1, y=1..2",  # x**2 is no larger than y
    "sqrt(x**2 - y) - x": "x=-9..9, y=1..2",  # x may have either sign
    "sqrt(x**2 + 1) - x": "x=0..9",  # one table anyway
    "sqrt(x**2 + x**2 - y) - x": "x=-9..9, y=1..2",
    "x - y*z": "x=0..1, y=0..1, z=0..1",
}


def _rewritten(formula):
    return replace(formula, outputs=conjugated(formula.outputs, formula.box)[0], typed=())


def _assert_equal(formula, points, digits=40):
    """Both ways of writing overlap as balls of many digits, and the balls are small."""
    written = _rewritten(formula)
    with precision(400):
        for point in points:
            at = {name: arb(float(x)) for name, x in zip(formula.box.variables, point, strict=True)}
            for one, other in zip(formula.outputs, written.outputs, strict=True):
                first, second = enclose(one, at), enclose(other, at)
                if first.is_finite():
                    assert first.overlaps(second) and second.rad() < 10.0**-digits


@pytest.mark.parametrize("text", CHANGED)
def test_both_ways_of_writing_are_equal(text):
    formula = Formula.of(text, CHANGED[text])
    low, high = np.array(formula.box.floats()).T
    assert str(_rewritten(formula)) != str(formula)
    _assert_equal(formula, np.random.default_rng(0).uniform(low, high, (50, len(low))))


@pytest.mark.parametrize("text", UNCHANGED)
def test_what_need_not_or_must_not_be_rewritten(text):
    formula = Formula.of(text, UNCHANGED[text])
    assert _rewritten(formula) == formula


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("sqrt(max(9*x - 8, 0)**2 + max(9*x - 8, 0)**2 + y) - max(9*x - 8, 0)", "x=0..1, y=1/9..2/9"),
        ("sqrt((x - y)**2 - z + (x - y)**2) - (x - y)", "x=5..9, y=-9..-5, z=1..2"),
    ],
)
def test_a_square_that_stands_there_twice_is_taken_once(text, box):
    """Equal terms are one object: taking every one out certified a wrong network."""
    formula = Formula.of(text, box)
    low, high = np.array(formula.box.floats()).T
    _assert_equal(formula, np.linspace(low, high, 50))
    model = tf.compile(text, on=box, rel=1e-2, construction="circuit")
    x = np.random.default_rng(0).uniform(low, high, (2000, len(low)))
    x[: len(low)] = high
    meant = evaluate_accurately(formula.outputs[0], formula.box.variables, list(x.T))
    assert np.abs(model(x) - meant).max() <= model.certificate.bound


def test_every_root_in_a_sum_is_rewritten():
    formula = Formula.of("sqrt(x**2 + y) - x + 2*sqrt(y**2 + z) - 2*y", "x=2..9, y=2..9, z=1..2")
    assert "sqrt" not in str(_rewritten(formula))


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.sampled_from([-1, 1]), st.integers(1, 5))
def test_at_any_point(base, rest, sign, factor):
    text = f"{factor}*sqrt(9*a**2 + b) {'+' if sign > 0 else '-'} {3 * factor}*a"
    _assert_equal(Formula.of(text, "a=-1000..1000, b=1/1000..1000"), [(base, rest)])


BASES = ["x", "x - y", "-3*x", "x*y", "exp(x/4)", "max(x, y)", "x/y", "2*x*abs(y)", "sqrt(x)"]
AFTER = ["- ({A})", "+ ({A})", "- 2*({A})", "- ({A}) - ({A})", "+ y - ({A})", "- ({A}) + sqrt(({A})**2 + z)"]
RESTS = ["z", "z*y**2", "-z/9", "x**2*z", "z + 1/2", "exp(y)", "x*y"]


@given(
    st.sampled_from(BASES),
    st.lists(st.sampled_from(RESTS), min_size=1, max_size=2),
    st.lists(st.sampled_from([1, 4, 2]), min_size=1, max_size=3),
    st.sampled_from(AFTER),
    st.randoms(use_true_random=False),
)
def test_whatever_stands_beside_the_square(base, rests, squares, after, order):
    """Repeated squares, several terms, other terms around: the value stays what it was."""
    inside = [f"{m}*({base})**2" for m in squares] + rests
    order.shuffle(inside)
    text = f"sqrt({' + '.join(inside)}) {after.format(A=base)} + 0*(x + y + z)"
    formula = Formula.of(text, "x=1..9, y=1..4, z=1..2")
    points = [[order.uniform(a, b) for a, b in formula.box.floats()] for _ in range(5)]
    _assert_equal(formula, points)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("(sqrt(b**2 + 4*a*c) - b)/(2*a)", "a=1..2, b=1..100, c=1..2"),
        ("(b - sqrt(b**2 - 4*a*c))/(2*a)", "a=1..2, b=10..100, c=1..2"),
    ],
)
def test_roots_of_a_quadratic_in_float32(text, box):
    """As written, a hundred times the result would be rounded: nothing below 1e-3 could be proven."""
    model = tf.compile(text, on=box, rel=1e-3, dtype="float32", construction="circuit")
    assert model.certificate.bound <= model.certificate.eps and tf.verify(model).verified
    assert str(model.formula) == text  # what is claimed is claimed of the formula as written
    low, high = np.array(model.box.floats()).T
    a, b, c = x = np.random.default_rng(0).uniform(low, high, (2000, 3)).T
    root = np.sqrt(b**2 + (4 if "+" in text else -4) * a * c)
    meant = 2 * c / (b + root)
    assert np.abs(model(x.T) - meant).max() <= model.certificate.bound
