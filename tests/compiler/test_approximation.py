"""Corollary 3.7: a polynomial of sufficient degree with a proven remainder, then Theorem 3.5 on it."""

import numpy as np
import pytest
from flint import arb, fmpq

import transformula as tf
from support.folders import open_model
from transformula.compiler import corollary as approximation
from transformula.errors import FormulaError, InputError, NotProvenError
from transformula.formula import parse
from transformula.kernel.arithmetic import precision
from transformula.kernel.check import verify_files
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.boxes import Box


@pytest.mark.parametrize(
    ("formula", "box", "eps", "multi_head", "blocks"),
    [
        ("sin(x)", "x=-pi..pi", 1e-8, False, 13),
        ("sin(x)", "x=-pi..pi", 1e-8, True, 4),
        ("exp(x1)*cos(x2)", "x1..x2=-1..1", 1e-6, False, 9),
        ("exp(x)", "x=-1..1", 1e-3, False, 4),
        ("1/(2 + x*y)", "x=-1..1, y=-1..1", 1e-2, False, 6),
    ],
)
def test_as_few_blocks_as_the_best_polynomial_allows(formula, box, eps, multi_head, blocks):
    model = tf.compile(formula, on=box, eps=eps, construction="polynomial", multi_head=multi_head)
    assert model.construction == "corollary" and model.layers <= blocks
    assert 0 < model.certificate.approximation < eps and model.certificate.bound <= eps
    assert tf.verify(model).verified


def _chebyshev_error(function, degree):
    """Least error of any polynomial of a degree, from below (de la Vallée Poussin)."""
    nodes = np.cos(np.pi * np.arange(degree + 2) / (degree + 1))
    signs = (-1.0) ** np.arange(degree + 2)
    system = np.column_stack([np.polynomial.chebyshev.chebvander(nodes, degree), signs])
    return abs(np.linalg.solve(system, function(nodes))[-1])


def test_no_polynomial_of_lower_degree_would_do():
    """Equioscillation: on degree + 2 nodes the best error is at least |h|, so 13 is the least for sin."""

    def function(t):
        return np.sin(np.pi * t)

    assert _chebyshev_error(function, 12) > 1e-8 > _chebyshev_error(function, 13)


def test_the_proof_survives_exact_attack():
    """The blocks run on rationals, the formula in 200 bits: the difference never exceeds what is proven."""
    model = tf.compile("exp(x1)*cos(x2)", on="x1..x2=-1..1", eps=1e-4, construction="polynomial")
    worst = 0.0
    for i in range(-10, 11, 2):
        for j in range(-10, 11, 2):
            point = [fmpq(i, 10), fmpq(j, 10)]
            (value,) = model.exact(point)
            with precision(200):
                known = {"x1": arb(point[0]), "x2": arb(point[1])}
                worst = max(worst, float(abs(arb(value) - enclose(model.formula.outputs[0], known)).lower()))
    assert worst <= model.certificate.approximation <= 3 * worst


def test_several_outputs_share_the_tokens():
    model = tf.compile(["sin(x)", "cos(x)"], on="x=-1..1", eps=1e-5, construction="polynomial")
    x = np.linspace(-1, 1, 101)
    np.testing.assert_allclose(model(x), np.stack([np.sin(x), np.cos(x)], 1), rtol=0, atol=1e-5)
    assert tf.verify(model).verified


def test_float32_meets_a_coarser_tolerance():
    model = tf.compile("sin(x)", on="x=-1..1", eps=1e-4, construction="polynomial", dtype="float32")
    assert model.certificate.bound <= 1e-4 and model(np.array([0.5])).dtype == np.float32


def test_without_a_tolerance_it_is_not_guessed():
    with pytest.raises(FormulaError, match="Give a tolerance"):
        tf.compile("sin(x)", on="x=-1..1", construction="polynomial")


def test_what_no_polynomial_reaches_is_said():
    with pytest.raises(NotProvenError, match="no polynomial of degree up to") as error:
        tf.compile("abs(x)", on="x=-1..1", eps=1e-6, construction="polynomial")
    assert "use construction='auto'" in str(error.value) and error.value.measured > 1e-6
    with pytest.raises(InputError, match="at most 4 variables"):
        tf.compile("sin(a+b+c+d+e)", on="a=0..1, b=0..1, c=0..1, d=0..1, e=0..1", eps=0.1, construction="polynomial")


def test_a_changed_remainder_is_refused():
    model = tf.compile("sin(x)", on="x=-1..1", eps=1e-5, construction="polynomial")
    data = open_model(model)
    assert verify_files(*data.forged()).verified
    data.claim["approximation"] = model.certificate.approximation * 0.7
    assert not verify_files(*data.forged()).verified
    data = open_model(model)
    data.body["formulas"] = ["sin(x) + x**9/10**5"]
    assert not verify_files(*data.forged()).verified


def test_what_no_degree_reaches_is_seen_before_anything_is_fitted(monkeypatch):
    """A polynomial leaves the Chebyshev coefficients beyond its degree as they are."""
    degrees = approximation._Degrees(parse("1/(1 + 25*x**2)"), Box.of("x=-1..1"))
    monkeypatch.setattr(approximation, "_fit", lambda *_: pytest.fail("hopeless, and fitted"))
    with pytest.raises(NotProvenError, match="no polynomial of degree up to 60 comes within 1e-08") as error:
        degrees.lowest(1e-8)
    assert 5e-7 < error.value.measured < 7e-6  # the best polynomial of degree 60 is off by (0.2 + sqrt(1.04))**-60


@pytest.mark.parametrize(("text", "degree"), [("exp(x)*cos(y)", 5), ("1/(2 + x*y)", 6)])
def test_no_degree_that_would_do_is_passed_over(text, degree):
    degrees = approximation._Degrees(parse(text), Box.of("x=-1..1, y=-1..1"))
    found = approximation._fit(degrees.coarse, degrees.fine, degree, 0.0)
    assert degrees.least_error(degree) <= found.error <= 30 * degrees.least_error(degree)
