"""Holes that were found in derivations and enclosures, each a regression test."""

import pytest

from support.nets import Layer, Net, forge, linear
from transformula.errors import TransformulaError
from transformula.kernel.boxes import Formula
from transformula.kernel.errors import RefutedError
from transformula.kernel.evidence import Evidence
from transformula.kernel.facts import Facts

TREES = {"defined": [[-1]], "signs": [[-1]]}


def facts(formula, box, *steps):
    return Facts(Formula.of(formula, box), {"extends": list(steps)}, Evidence(TREES))


def test_an_exponent_that_becomes_a_number():
    """x**(x/x) is undefined for x < 0; with x/x = 1 it was taken for x, and the folder verified."""
    net = Net(["x"], ["r"], [], [Layer([], [({"x.x": 1}, 0, {"r": 1})])], [{(0, "r"): 1}])
    step = {"of": "x/x", "is": "1", "at": {"x": "1"}}
    circuit = {"wires": [{"relu": linear((0, "1")), "from": [0, 0, 0]}], "outputs": [linear((1, "1"))]}
    with pytest.raises(TransformulaError, match="exponent"):
        forge(net.weights(), ["max(x, 0) + x**(x/x) - x"], "x=-1..10", {**circuit, "extends": [step]})


@pytest.mark.parametrize("formula", ["x**(y/y)", "(-1)**(2*(y/y)) + x", "x**(1/2 + y/(2*y) + 0)"])
def test_an_exponent_stays_what_it_is(formula):
    step = {"of": "y/(2*y)", "is": "1/2", "at": {"y": "1"}}
    if "2*y" not in formula:
        step = {"of": "y/y", "is": "1", "at": {"y": "1"}}
    with pytest.raises(RefutedError, match="exponent"):
        facts(formula, "x=-1..1, y=1..2" if "x" in formula else "y=1..2", step)


def test_a_quotient_in_an_exponent_may_still_be_extended():
    step = {"of": "sin(y)/y", "is": "sinc(y)", "at": {"y": "1"}}
    found = facts("x**(sin(y)/y)", "x=1..2, y=-1..1", step)
    assert found.formula.texts == ("x**sinc(y)",)
