"""Holes that were found in derivations and enclosures, each a regression test."""

import subprocess
import sys

import pytest

from support.nets import Layer, Net, forge, linear
from transformula.errors import TransformulaError
from transformula.kernel import effort
from transformula.kernel.boxes import Formula
from transformula.kernel.errors import FormulaError, RefutedError
from transformula.kernel.evidence import Evidence
from transformula.kernel.facts import Facts
from transformula.kernel.normal_forms import Algebra
from transformula.kernel.parsing import parse


def facts(formula, box, *steps):
    evidence = Evidence({"defined": [[-1]], "signs": [[-1]]})
    return Facts(Formula.of(formula, box), {"extends": list(steps)}, evidence)


def test_an_exponent_that_becomes_a_number():
    """x**(x/x) is undefined for x < 0; with x/x = 1 it was taken for x, and the folder verified."""
    net = Net(["x"], ["r"], [], [Layer([], [({"x.x": 1}, 0, {"r": 1})])], [{(0, "r"): 1}])
    circuit = {
        "wires": [{"relu": linear((0, "1")), "from": [0, 0, 0]}],
        "outputs": [linear((1, "1"))],
        "extends": [{"of": "x/x", "is": "1", "at": {"x": "1"}}],
    }
    with pytest.raises(TransformulaError, match="exponent"):
        forge(net.weights(), ["max(x, 0) + x**(x/x) - x"], "x=-1..10", circuit)


@pytest.mark.parametrize("formula", ["x**(y/y)", "(-1)**(2*(y/y)) + x", "x**(y/y + y/y)"])
def test_an_exponent_stays_what_it_is(formula):
    with pytest.raises(TransformulaError, match="exponent"):
        facts(formula, "x=-1..1, y=1..2", {"of": "y/y", "is": "1", "at": {"y": "1"}})


def test_a_quotient_in_an_exponent_may_be_extended_all_the_same():
    found = facts("x**(sin(y)/y)", "x=1..2, y=-1..1", {"of": "sin(y)/y", "is": "sinc(y)", "at": {"y": "1"}})
    assert found.formula.texts == ("x**sinc(y)",)


TINY_END = """
import resource
import numpy as np
from flint import arb
from transformula.kernel.balls import enclose
from transformula.kernel.parsing import parse
from transformula.kernel.tables import Table, table_error
resource.setrlimit(resource.RLIMIT_AS, (3_000_000_000, 3_000_000_000))
end, zero = enclose(parse("exp(-26000000000)", ())), np.zeros(1)
for names, pieces in ((["x"], [0.0, 1.0]), (["x", "y"], {"edges": [[0.0, 1.0]] * 2, "trees": [[-1]]})):
    d = len(names)
    table = Table((zero,) * d, (zero,) * d, np.zeros((1,) * d))
    assert table_error(table, parse("sqrt(x)", names), names, [(end, arb(1))] * d, pieces) < 1.001
"""


def test_a_box_that_ends_next_to_zero():
    """exp(-26000000000) was written out as an exact number of 4.7 GB, and FLINT ended the process."""
    done = subprocess.run([sys.executable, "-c", TINY_END], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-400:]


def test_many_terms_beside_many_atoms(monkeypatch):
    """19,550 terms in a ring of 4,000 atoms took 4 GB and 100 seconds to be reduced."""
    monkeypatch.setattr(effort, "MAX_NUMBERS", 2_000)
    names = [f"x{k}" for k in range(20)]
    algebra = Algebra(names)
    total = algebra.of(parse("+".join(names) + "+ sqrt(x0)"))
    with pytest.raises(RefutedError, match="too long"):
        algebra.of(parse(f"({'+'.join(names)} + sqrt(x0))**2"))
    assert algebra.same(total, algebra.of(parse("sqrt(x0) + " + "+".join(names))))


def test_the_texts_of_long_arguments_are_counted(monkeypatch):
    """Every atan(P + k) kept the text of P: 100 MB each for a P of 10**8 bits."""
    monkeypatch.setattr(effort, "MAX_WORK", 100_000)
    long = "+".join(f"x**{k}" for k in range(200))
    with pytest.raises(RefutedError, match="too much work"):
        Algebra(["x"]).of(parse("+".join(f"atan({long} + {k})" for k in range(600))))


def test_an_exponent_of_thousands_of_digits():
    """Each evaluation takes a product for each bit: 4,000 cells took minutes."""
    with pytest.raises(FormulaError, match="too large"):
        parse("x**" + "9" * 3_900)
