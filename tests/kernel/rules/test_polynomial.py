"""Theorem 3.5 and Corollary 3.7 in the kernel: expansion, identity, gaps, rounding, and what is refused."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import sympy
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from support.kernel_models import cubic, ridge_weights
from support.watching import ends
from transformula.kernel.arithmetic import precision
from transformula.kernel.check import prove
from transformula.kernel.derivations.polynomials import NotPolynomialError, as_polynomial
from transformula.kernel.exceptions import FormulaError, InputError, NotProvenError, RefutedError, TransformulaError
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.structures.ridge_blocks import read_ridge
from transformula.kernel.syntax.parsing import parse
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.weights_program import ridge_program
from transformula.runtime.reference import run

NONE = Evidence({})

factor = st.sampled_from(["x", "y", "z", "2", "0.5", "(x + y)", "(x - 2*z)", "(y/3 + 1)", "(x*y - z)", "7/5"])
piece = st.lists(st.tuples(factor, st.integers(0, 3)), min_size=1, max_size=3).map(
    lambda fs: "*".join(f"({f})**{p}" for f, p in fs)
)


@given(st.lists(piece, min_size=1, max_size=4).map(" - ".join))
@settings(max_examples=100)
def test_terms_are_those_of_sympy(text):
    names = ("x", "y", "z")
    ours = as_polynomial(parse(text, names), names).terms()
    theirs = sympy.Poly(sympy.sympify(text, rational=True), *map(sympy.Symbol, names))
    assert ours == {e: fmpq(int(c.p), int(c.q)) for e, c in theirs.terms() if c != 0}


def test_irrational_constants_stay_exact_until_they_are_asked_for():
    p = as_polynomial(parse("(pi*x + sqrt(2))**2/E - sin(1)", ["x"]), ("x",))
    assert not p.is_rational and max(map(sum, p.terms())) == 2
    with precision(200):
        terms = p.terms()
        assert terms[2,].overlaps(arb.pi() ** 2 / arb.const_e())
        assert terms[0,].overlaps(2 / arb.const_e() - arb(1).sin())
        assert max(t.rad() for t in terms.values()) < 1e-50
    cancelled = as_polynomial(parse("x + (pi*x - x*pi)", ["x"]), ("x",)).terms()
    assert cancelled == {(1,): 1}
    perhaps_zero = as_polynomial(parse("x + (cos(pi/2)*x)**3", ["x"]), ("x",))
    assert perhaps_zero.terms()[3,].contains(0)


@pytest.mark.parametrize(
    ("text", "blamed"),
    [("x + sin(x*y)", "sin(x*y)"), ("x/y", "x/y"), ("x**y", "x**y"), ("x**0.5", "x**(1/2)"), ("y*x**-2", "x**(-2)"),
     ("x**pi", "x**pi"), ("x*abs(y)", "abs(y)"), ("max(x, y)", "max(x, y)"), ("2**x + y", "2**x")],
)  # fmt: skip
def test_what_is_not_a_polynomial_is_named(text, blamed):
    with pytest.raises(NotPolynomialError, match="is not a polynomial") as caught:
        as_polynomial(parse(text, ["x", "y"]), ("x", "y"))
    assert str(caught.value.part) == blamed


_TEN = "+".join(f"x{k}" for k in range(10))


@pytest.mark.parametrize(
    "text",
    [f"({_TEN})**20", f"({_TEN})**11*({_TEN})**9", f"({_TEN} + 1)**6*({_TEN} - 1)**6*({_TEN})**4", "x1**1000000",
     "x1**101", "(x1**50)**3", "x1**60*x1**60", "(x1 + x2 + 1)**99*(x1 - x2 + 2)**99", "(x1 - x1 + 9)**(9**80)",
     f"(x1 + {'7' * 3900}/{'3' * 3899}1)**60*(x2 + 1/{'9' * 3800}7)**40", "*".join([f"({_TEN} + 1)"] * 25),
     "+".join(f"x1**{k % 50}/{10**190 + k}" for k in range(4000)), "+".join(f"x1*sqrt({k})" for k in range(2, 1100)),
     "+".join(f"({_TEN} + {k})**6" for k in range(3000))],
    ids=range(14),
)  # fmt: skip
def test_too_large_polynomials_are_refused_soon(text):
    names = tuple(f"x{k}" for k in range(10))
    expr = parse(text, names)
    with ends(), pytest.raises(FormulaError, match=r"degree|products|too large"):
        as_polynomial(expr, names)


@pytest.mark.parametrize(
    "text",
    ["log(-1)", "sqrt(-1)", "1/(pi - pi)", "1/sin(0)", "(-1)**0.5", "0*log(0)", "sqrt(-1)**0", "(1/(pi - pi))**0",
     "(sqrt(-2) - sqrt(-2))", "max(log(-1), 3)", "tanh(1/(pi - pi))", "1/(1/sin(0))"],
)  # fmt: skip
def test_a_constant_that_is_no_number_is_refused_wherever_it_stands(text):
    for whole in (f"x*({text})", f"x + {text}", f"x + ({text})*(x - x)", f"x + 1/({text}) - 1/({text})"):
        with pytest.raises(FormulaError, match="not a finite real number"):
            as_polynomial(parse(whole, ["x"]), ("x",))


# the rule


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_path_exceeds_the_claim(dtype):
    weights, description = cubic(dtype)
    proof = prove(weights, description, NONE)
    assert proof.approximation == 0
    u = 2.0 ** (-24 if dtype == "float32" else -53)
    assert 10 * u < proof.rounding < 1e5 * u  # neither nothing nor absurdly loose
    rng = np.random.default_rng(0)
    x = np.vstack([rng.uniform((-2, -1), (2, 3), (300, 2)), [(-2, -1), (-2, 3), (2, -1), (2, 3)]])
    for values in (run(weights, x), run_numpy(ridge_program(read_ridge(weights)), x)):
        for (a, b), got in zip(x.tolist(), values[:, 0].tolist(), strict=True):
            a, b = Fraction(a), Fraction(b)
            assert abs(a**3 / 3 - 5 * a * b + Fraction(1, 7) - Fraction(got)) <= Fraction(proof.rounding)


@pytest.mark.parametrize(
    ("formula", "box", "said"),
    [
        ("x**3/3 - 5*x*y + 1/8", "x=-2..2, y=-1..3", None),
        ("x**3/3 - 5*x*y", "x=-2..2, y=-1..3", None),
        ("x**3/3 - 5*x*y + 1/7 + 1e-30*x", "x=-2..2, y=-1..3", None),
        ("x**3/3 - 5*x*y + 1/7", "y=-1..3, x=-2..2", "inputs"),
        ("x**3/3 - 5*x*y + 1/7", "x=-2..3, y=-1..3", "wrong token"),
        ("x**3/3 - 5*x*y + 1/7", "x=-200..2, y=-1..3", "wrong token"),
        ("x**3/3 - 5*x*y + 1/7 + sqrt(-1) - sqrt(-1)", "x=-2..2, y=-1..3", "not a finite real number"),
        ("x**3/3 - 5*x*y + 1/7/(pi - pi)", "x=-2..2, y=-1..3", "not a finite real number"),
        ("x**3/3 - 5*sin(x)*y", "x=-2..2, y=-1..3", "not a polynomial"),
    ],
)
def test_formula_and_box_matter(formula, box, said):
    weights, description = cubic()
    changed = replace(description, formulas=[formula], box=box)
    if said is None:
        assert prove(weights, changed, NONE).approximation > 0
        return
    with pytest.raises(TransformulaError, match=said):
        prove(weights, changed, NONE)


def test_the_error_of_another_polynomial_is_its_size_on_the_box():
    weights, description = cubic()
    changed = replace(description, formulas=["x**3/3 - 5*x*y + 1/7 + x**2*y/10"])
    assert prove(weights, changed, NONE).approximation == pytest.approx(0.1 * 4 * 3, rel=1e-14)
    constant = replace(description, formulas=["x**3/3 - 5*x*y + sin(1/7)"])
    assert prove(weights, constant, NONE).approximation == pytest.approx(1 / 7 - np.sin(1 / 7), rel=1e-12)


@pytest.mark.parametrize(
    ("offset", "reach", "ok"), [(3, 1, True), (2, 1, False), ("15/8", 1, False), (-3, 1, False), ("2049/1024", 1, True)]
)
def test_too_small_an_offset_is_refused(offset, reach, ok):
    weights = ridge_weights(("x",), [{0: reach}], {(0, 0, 3): 1}, [0], offset=offset)
    description = Description("polynomial", ["x**3"], "x=-1..1")
    if ok:
        assert prove(weights, description, NONE).approximation == 0
    else:
        with pytest.raises(RefutedError, match="hardmax may pick the wrong token"):
            prove(weights, description, NONE)


def test_overflow_is_refused():
    square = Description("polynomial", ["x**2"], "x=-1..1")
    for dtype, exponent in (("float32", 126), ("float64", 1022)):
        weights = ridge_weights(("x",), [{0: 1}], {(0, 0, 2): 1}, [0], dtype, offset=2**exponent)
        with pytest.raises(InputError, match=f"beyond {dtype}"):
            prove(weights, square, NONE)
    steep = ridge_weights(("x",), [{0: 2**125}], {(0, 0, 1): Fraction(1, 2**125)}, [0], "float32", offset=2**127)
    with pytest.raises(InputError, match="beyond float32"):
        prove(steep, Description("polynomial", ["x"], "x=-2..2"), NONE)


def test_directions_too_large_to_expand_are_refused_soon():
    names = tuple(f"x{k}" for k in range(30))
    weights = ridge_weights(names, [{k: Fraction(1, 32) for k in range(30)}], {(0, 0, 12): 1}, [0])
    description = Description("polynomial", ["+".join(names)], ", ".join(f"{n}=-1..1" for n in names))
    with ends(), pytest.raises(RefutedError, match="too large to be expanded"):
        prove(weights, description, NONE)
    long = Fraction(10**4999 + 1, 2 * 10**4999)
    weights = ridge_weights(("x", "y"), [{0: long, 1: long / 3}] * 30, {(0, k, 100): 1 for k in range(30)}, [0])
    with ends(), pytest.raises(RefutedError, match="too large to be expanded"):
        prove(weights, Description("polynomial", ["x+y"], "x=-1..1, y=-1..1"), NONE)


def test_irrational_coefficients_leave_their_difference():
    third = Fraction(355, 113)
    weights = ridge_weights(("x",), [{0: "1/4"}], {(0, 0, 2): 16 * third}, [0])
    proof = prove(weights, Description("polynomial", ["pi*x**2"], "x=-pi..3"), NONE)
    assert proof.approximation == pytest.approx(abs(355 / 113 - np.pi) * np.pi**2, rel=1e-8)


# Corollary 3.7

_LINEAR = "x - x**3/6"


def _sine(evidence, formula="sin(x)", box="x=0..1"):
    weights = ridge_weights(("x",), [{0: 1}], {(0, 0, 1): 1, (0, 0, 3): "-1/6"}, [0])
    return prove(weights, Description("corollary", [formula], box), Evidence(evidence))


@pytest.mark.parametrize("pieces", [[0.0, 1.0], [0.0, 0.5, 1.0], np.linspace(0, 1, 20).tolist()])
def test_a_remainder_is_proven_on_the_pieces(pieces):
    proof = _sine({"defined": [[-1]], "corollary": [pieces]})
    true = abs(np.sin(1) - 1 + 1 / 6)
    assert true <= proof.approximation < 1.01 * true


def test_a_polynomial_needs_no_pieces():
    assert _sine({"defined": [None]}, _LINEAR).approximation == 0


@pytest.mark.parametrize(
    "evidence",
    [
        {},
        {"defined": [[-1]]},
        {"defined": [[-1]], "corollary": [[0.0, 0.5]]},
        {"defined": [[-1]], "corollary": [[0.5, 1.0]]},
        {"defined": [[-1]], "corollary": [[0.0, float("nan"), 1.0]]},
        {"defined": [[-1]], "corollary": [[0.0, 0.7, 0.3, 1.0]]},
        {"defined": [[-1]], "corollary": [3]},
        {"defined": [[-1]], "corollary": {"0": [0.0, 1.0]}},
    ],
)
def test_pieces_that_do_not_cover_the_box_are_refused(evidence):
    with pytest.raises(NotProvenError):
        _sine(evidence)


def test_a_formula_that_is_undefined_somewhere_is_refused():
    pieces = np.linspace(0, 1, 9).tolist()
    tree = [0, -1, -1]
    for formula in (
        "sin(x) + 0*log(x)",
        "sin(x) + sqrt(x - 1/2)**0 - 1",
        "sin(x) + x/(x - 1/2)",
        "sin(x) + 0*sqrt(-1)",
    ):
        with pytest.raises(NotProvenError, match="undefined"):
            _sine({"defined": [tree], "corollary": [pieces]}, formula)


def test_a_remainder_in_two_variables():
    directions = [{0: "1/2", 1: "1/2"}, {0: "1/2", 1: "-1/2"}]
    weights = ridge_weights(("x", "y"), directions, {(0, 0, 2): 1, (0, 1, 2): -1}, [0])
    description = Description("corollary", ["sin(x)*y"], "x=0..1, y=0..1")
    edges = np.linspace(0, 1, 5).tolist()
    pieces = {"edges": [edges, edges], "trees": [[-1]] * 16}
    proof = prove(weights, description, Evidence({"defined": [[-1]], "corollary": [pieces]}))
    assert 1 - np.sin(1) <= proof.approximation < 1.05 * (1 - np.sin(1))
    with pytest.raises(RefutedError):
        cut = {"edges": [edges, edges[:-1]], "trees": [[-1]] * 12}
        prove(weights, description, Evidence({"defined": [[-1]], "corollary": [cut]}))
