"""sin(u)/u through u = 0 is sinc(u): the same values, nothing to divide by."""

import numpy as np
import pytest

import transformula as tf
from transformula.errors import NotProvenError
from transformula.formulas import Formula
from transformula.formulas.numeric import evaluate

REPAIRED = {
    "sin(u)**2/u**2": ("u=-1..1", "sinc(u)**2"),
    "sin(2*x)/x": ("x=-1..1", "2*sinc(2*x)"),
    "sin(x)**3/x": ("x=-1..1", "sin(x)**2*sinc(x)"),
    "y*sin(x*z)/(x*z)": ("x=-1..1, y=0..1, z=1..2", "y*sinc(x*z)"),
    "(sin(a/2)/(a/2))**2": ("a=-3..3", "sinc(1/2*a)**2"),
    "exp(sin(x)/x)": ("x=0..1", "exp(sinc(x))"),
}


@pytest.mark.parametrize("text", REPAIRED)
def test_the_singularity_is_removed(text):
    box, wanted = REPAIRED[text]
    assert str(Formula.of(text, box)) == wanted


@pytest.mark.parametrize(
    "text, box", [("sin(x)/x", "x=1..2"), ("sin(x)/(x*x + 1)", "x=-1..1"), ("sin(x)*x", "x=-1..1")]
)
def test_what_is_defined_stays_as_it_is_written(text, box):
    assert "sinc" not in str(Formula.of(text, box))


@pytest.mark.parametrize("text", ["sin(x)/x**2", "cos(x)/x", "sin(x + 1)/x", "sin(x)/sin(2*x)"])
def test_a_pole_or_an_unknown_quotient_is_refused(text):
    with pytest.raises(NotProvenError, match="undefined"):
        tf.compile(text, on="x=-1..1", eps=1e-3)


@pytest.mark.parametrize("construction", ["lookup", "circuit", "partition", "polynomial"])
def test_every_construction_goes_through_zero(construction):
    eps = 0.05 if construction == "partition" else 1e-6
    model = tf.compile("sin(u)**2/u**2", on="u=-2..3", eps=eps, construction=construction)
    u = np.concatenate([np.linspace(-2, 3, 2001), [1e-300, -1e-20, 1e-8]])
    u = u[u != 0]
    assert np.abs(model(u) - (np.sin(u) / u) ** 2).max() <= model.certificate.bound * (1 + 1e-9) + 1e-15
    assert abs(model(np.zeros(1))[0] - 1) <= model.certificate.bound
    assert tf.verify(model).verified


def test_the_rewritten_formula_has_the_same_values():
    formula = Formula.of("y*sin(x*z)**2/(x*z)**2/z", "x=-1..1, y=0..1, z=1..2")
    x, y, z = np.random.default_rng(0).uniform([[-1], [0], [1]], [[1], [1], [2]], (3, 200))
    found = evaluate(formula.outputs[0], ["x", "y", "z"], [x, y, z])
    np.testing.assert_allclose(found, y * np.sin(x * z) ** 2 / (x * z) ** 2 / z, rtol=1e-12)
