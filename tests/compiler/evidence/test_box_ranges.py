"""Ranges of wires contain what the wires hold, however the circuit was split; so do their arguments'."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.circuit_models import linear_value, wire_values
from support.guides import RandomGuide
from support.prover import numpy_function, random_formula
from transformula.compiler.evidence.range_search import BoxRanges, PlannedRanges, function_range, inside_domain
from transformula.compiler.lower.lowered_circuit import Guide, has_slot
from transformula.compiler.lower.lowering import build_circuit
from transformula.kernel.arithmetic import precision
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.parsing import parse

SLACK = 1e-9  # of the float evaluation, relative to the largest wire


def _points(box, seed, count=400):
    low, high = np.array(box.floats()).T
    rng = np.random.default_rng(seed)
    corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1).reshape(-1, len(low))
    return np.concatenate([low + (high - low) * rng.random((count, len(low))), corners])


def _assert_contained(outputs, box, guide, seed):
    lowered = build_circuit(outputs, box.variables, guide)
    with precision(128):
        ranges = PlannedRanges(lowered, BoxRanges(box))
    x = _points(box, seed)
    values = wire_values(lowered.circuit, x)
    for k, (wire, fact) in enumerate(zip(lowered.circuit.wires, lowered.facts, strict=True)):
        scale = SLACK * (1 + np.abs(values[k]).max())
        low, high = ranges.values[k]
        assert low - scale <= values[k].min() and values[k].max() <= high + scale, str(fact.meaning)
        if has_slot(wire):
            u = linear_value(wire.arguments[0], values)
            low, high = ranges.arguments[k]
            scale = SLACK * max(1, *(np.abs(v).max() for v in values))
            assert low - scale <= u.min() and u.max() <= high + scale, str(fact.meaning)
    return ranges


@settings(max_examples=15)
@given(seed=st.integers(0, 3000), wild=st.booleans())
def test_random_circuits(seed, wild):
    names = ("a", "b", "c")[: 2 + seed % 2]
    formula = Formula.of([random_formula(seed, names)], ", ".join(f"{n}=-3/4..1" for n in names))
    _assert_contained(formula.outputs, formula.box, RandomGuide(seed) if wild else Guide(), seed)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("sqrt(x*y)", "x=0..1, y=0..4"), ("acos(x*y)", "x=-1..1, y=-1..1"),
        ("log(x + y)*x", "x=1/9..2, y=1..2"),
        ("sqrt((x - y)**2 + (x - 1/2)**2)", "x=0..1, y=0..1"), ("x/(exp(x/y) - 1)", "x=1/10..1, y=1..2"),
        ("x - y + x*y", "x=100000..100001, y=100000..100001"),
        ("max(x, y, 1/3)*min(x, -y)", "x=-1..1, y=-1..1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("guide", [Guide(), RandomGuide(3), RandomGuide(4)], ids=["plain", "3", "4"])
def test_circuits_of_every_kind(text, box, guide):
    formula = Formula.of([text], box)
    _assert_contained(formula.outputs, formula.box, guide, seed=2)


def test_ranges_are_sharp_where_they_can_be():
    formula = Formula.of(["sin(x*y) + max(x - y, 0)"], "x=0..1, y=0..1")
    ranges = _assert_contained(formula.outputs, formula.box, Guide(), seed=0)
    lowered = build_circuit(formula.outputs, formula.box.variables, Guide())
    by_meaning = {str(fact.meaning): ranges.values[k] for k, fact in enumerate(lowered.facts)}
    assert by_meaning["x*y"] == pytest.approx((0, 1), abs=1e-12)
    assert by_meaning["sin(x*y)"] == pytest.approx((0, math.sin(1)), abs=1e-3)
    assert by_meaning["max(x - y, 0)"] == pytest.approx((0, 1), abs=1e-12)


def test_a_domain_cuts_an_argument():
    assert inside_domain(parse("sqrt(u)"), (-1.0, 2.0)) == (0.0, 2.0)
    assert inside_domain(parse("acos(2*u)"), (-1.0, 2.0)) == (-0.5, 0.5)
    assert inside_domain(parse("exp(u)"), (-1.0, 2.0)) == (-1.0, 2.0)
    low, _ = inside_domain(parse("log(3*u - 1)"), (0.0, 2.0))
    assert low <= 1 / 3 and low == pytest.approx(1 / 3)


@settings(max_examples=30)
@given(seed=st.integers(0, 3000), low=st.floats(-2, 2), width=st.floats(0, 2))
def test_ranges_of_functions(seed, low, width):
    expr = random_formula(seed, ["u"])
    least, most = function_range(expr, low, low + width)
    values = numpy_function(expr, ["u"])(np.linspace(low, low + width, 300))
    assert least - 1e-12 * (1 + abs(least)) <= values.min() and values.max() <= most + 1e-12 * (1 + abs(most))
