"""Holes that were found in derivations and enclosures, each a regression test."""

import subprocess
import sys

import numpy as np
import pytest
from flint import arb

from support.nets import Layer, Net, forge, linear
from support.watching import ends
from transformula.errors import TransformulaError
from transformula.kernel.derivations import algebra as effort
from transformula.kernel.derivations.derivation_steps import Facts
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.derivations.polynomials import NotPolynomialError, as_polynomial
from transformula.kernel.enclosures.regions import check_defined
from transformula.kernel.exceptions import FormulaError, NotProvenError, RefutedError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.parsing import parse


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
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_error import SoftmaxTable, table_error
resource.setrlimit(resource.RLIMIT_AS, (3_000_000_000, 3_000_000_000))
end, zero = enclose(parse("exp(-26000000000)", ())), np.zeros(1)
for names, pieces in ((["x"], [0.0, 1.0]), (["x", "y"], {"edges": [[0.0, 1.0]] * 2, "trees": [[-1]]})):
    d = len(names)
    table = SoftmaxTable((zero,) * d, (zero,) * d, np.zeros((1,) * d))
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


def test_an_exponent_of_thousands_of_digits():
    """Each evaluation takes a product for each bit: 4,000 cells took minutes."""
    with pytest.raises(FormulaError, match="too large"):
        parse("x**" + "9" * 3_900)


def test_numerators_are_seen_once():
    """Numerators of removed quotients were walked through again for every output: 1,000 outputs took a minute."""
    asked = []

    class Asked(Evidence):
        def defined(self, output, expr, region, known):
            asked.append(str(expr))
            return [-1]

    step = {"of": "sin(x)/x", "is": "sinc(x)", "at": {"x": "1"}}
    Facts(Formula.of(["sin(x)/x", "x + 1"], "x=-1..1"), {"extends": [step]}, Asked({}))
    assert asked == ["sinc(x) + sin(x)", "x + 1"]


def test_many_steps_on_a_long_formula():
    """Each step rebuilds the formula."""
    quotients = [f"sin({k}*x)/({k}*x)" for k in range(2, 42)]
    steps = [{"of": q, "is": f"sinc({k}*x)", "at": {"x": "1"}} for k, q in enumerate(quotients, 2)]
    formula = Formula.of("+".join(quotients + [f"atan({k}*x)" for k in range(2, 300)]), "x=-1..1")
    with ends():
        Facts(formula, {"extends": steps}, Evidence({"defined": [[-1]]}))


def shared(levels):
    """A formula of few nodes that is long when it is written down: what steps of a derivation can make."""
    expr = ex.variable("x")
    for level in range(levels):
        expr = ex.add(ex.call("cos", expr), ex.neg(ex.call("cos", expr)), ex.number(level))
    return expr


def test_shared_nodes_are_looked_at_once():
    """Forty steps that put two copies of the next quotient into the formula: 2**40 nodes were visited."""
    with ends(), pytest.raises(NotPolynomialError):
        as_polynomial(shared(90), ("x",))


def test_a_refusal_is_short_whatever_the_formula():
    """A grid's refusal wrote down the whole formula: 2**40 characters."""
    function, ends = ex.call("log", ex.neg(shared(18))), [(arb(0), arb(1))]
    with pytest.raises(NotProvenError, match="undefined") as refusal:
        check_defined(function, ["x"], ends, np.array([[0.0]]), np.array([[1.0]]))
    assert len(str(refusal.value)) < 1000


def test_many_polynomials_beside_many_atoms(monkeypatch):
    """Sums of 18,000 terms in a ring of 2,000 atoms took 36 MB each: FLINT ended the process, out of memory."""
    names = [f"x{k}" for k in range(100)]
    algebra = Algebra(names)
    square = algebra.of(parse(f"({'+'.join(names[:40])})**2"))
    assert str(square + algebra.unit)
    monkeypatch.setattr(effort, "MAX_NUMBERS", 100_000)
    with pytest.raises(RefutedError, match="too long"):
        algebra.sum([square, algebra.unit])


def test_sparse_polynomials_of_high_degree():
    """Taking x**840 - (3*y)**840 apart took ten seconds, and a common factor of degree 100 two; neither was counted."""
    algebra = Algebra(["x", "y"])
    root = algebra.of(parse("(x**140)**6 - ((3*y)**140)**6"))
    assert len(algebra.factors(root.num)[1]) == 1
    quotient = algebra.of(parse("(x**150 - y**150)/(x**75 - y**75)"))
    assert not quotient.whole and algebra.same(quotient, algebra.of(parse("x**75 + y**75")))
    assert len(algebra.factors(algebra.of(parse("x**21 - y**21")).num)[1]) == 1
    before = algebra.products
    assert len(algebra.factors(algebra.of(parse("x**20 - y**20")).num)[1]) == 6
    assert algebra.products > before + 10 * 400**2
