"""sin(u)/u through u = 0 is sinc(u): the same values, nothing to divide by."""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

import transformula as tf
from transformula.compiler.lower.derivation_hints import extended_formula
from transformula.compiler.lower.removable import without_removable
from transformula.errors import NotProvenError
from transformula.formula.evaluation import evaluate
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose, to_fmpq
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import substitute, to_text, walk
from transformula.kernel.syntax.parsing import parse

REPAIRED = {
    "sin(u)**2/u**2": ("u=-1..1", "sinc(u)**2"),
    "sin(2*x)/x": ("x=-1..1", "2*sinc(2*x)"),
    "sin(x)**3/x": ("x=-1..1", "sin(x)**2*sinc(x)"),
    "y*sin(x*z)/(x*z)": ("x=-1..1, y=0..1, z=1..2", "y*sinc(x*z)"),
    "(sin(a/2)/(a/2))**2": ("a=-3..3", "sinc(1/2*a)**2"),
    "exp(sin(x)/x)": ("x=0..1", "exp(sinc(x))"),
    "sin(x)/x*(sin(x)/x)": ("x=-1..1", "sinc(x)**2"),
    "sin(x)/x*(sin(x)/x)*(sin(x)/x)": ("x=-1..1", "sinc(x)**3"),
    "sin(a*x)/(b*x*y)": ("a=1..2, b=1..2, x=-1..1, y=1..2", "a*sinc(a*x)/(b*y)"),
    "(sin(n*u)/u)**2": ("n=1..2, u=-1..1", "(n*sinc(n*u))**2"),
    "sin(x)*x**(-1)": ("x=-1..1", "sinc(x)"),
    "x**2*exp(x)/(exp(x) - 1)**2": ("x=0..3", "(x*exp_rest1(x) + 1)/exp_rest1(x)**2"),
    "(sin(x) - x*cos(x))/x**3": ("x=0..5", "sin_rest3(x) - cos_rest2(x)"),
    "(1 - (1 + x)*exp(-x))/x**2": ("x=0..3", "-x*exp_rest2(-x) - exp_rest2(-x) + 1"),
    "(x - sin(x))/(1 - cos(x))": ("x=-1..1", "x*sin_rest3(x)/cos_rest2(x)"),
    "(x*cosh(x) - sinh(x))/(x*sinh(x))": ("x=0..5", "x*(cosh_rest2(x) - sinh_rest3(x))/(x**2*sinh_rest3(x) + 1)"),
}


def text_of(text, box):
    return to_text(parse(text, box.variables))


@pytest.mark.parametrize("text", REPAIRED)
def test_the_singularity_is_removed(text):
    box, wanted = REPAIRED[text]
    formula = Formula.of(text, box)
    extended, steps = extended_formula(formula)
    assert str(extended) == wanted and str(formula) == text_of(text, formula.box)
    assert steps and all(step["of"] != step["is"] for step in steps)


@pytest.mark.parametrize(
    "text, box", [("sin(x)/x", "x=1..2"), ("sin(x)/(x*x + 1)", "x=-1..1"), ("sin(x)*x", "x=-1..1")]
)
def test_what_is_defined_stays_as_it_is_written(text, box):
    formula = Formula.of(text, box)
    assert extended_formula(formula) == (formula, [])


@pytest.mark.parametrize("text", ["sin(x)/x**2", "cos(x)/x", "sin(x + 1)/x", "(sin(x) - sin(1))/(x - 1)/(x - 1)"])
def test_a_pole_or_an_unknown_quotient_is_refused(text):
    with pytest.raises(NotProvenError, match="undefined"):
        tf.compile(text, on="x=-1..1", eps=1e-3)


@pytest.mark.parametrize("text", [text for text in REPAIRED if "sin(x)*" not in text])
def test_the_kernel_accepts_every_step(text):
    model = tf.compile(text, on=REPAIRED[text][0], eps=1e-3)
    assert tf.verify(model).verified


#: Limits at points, at ends, on diagonals and across them: box, a part of the box near the limit, the limit there.
LIMITS = {
    "2 - y*(coth(x) - 1/x)": ("x=-1..1, y=0..1", {"x": 0.0}, lambda v: 2 + 0 * v["y"]),
    "1/x - 1/(exp(x) - 1)": ("x=-1..1", {"x": 0.0}, lambda v: 0.5 + 0 * v["x"]),
    "x/tan(x)": ("x=-1..1", {"x": 0.0}, lambda v: 1 + 0 * v["x"]),
    "(sin(x) - sin(y))/(x - y)": ("x=0..1, y=0..1", {"x": None}, lambda v: np.cos(v["y"])),
    "(1 - exp(-n*(1 - c)))/(1 - c*exp(-n*(1 - c)))": ("n=0.1..5, c=0..1", {"c": 1.0}, lambda v: v["n"] / (1 + v["n"])),
    "(exp(-a*t) - exp(-b*t))/(b - a)": ("a=0.1..1, b=0.1..1, t=0..1", {"a": None}, lambda v: v["t"] * np.exp(-v["b"] * v["t"])),
    "x**x": ("x=0..1", {"x": 0.0}, lambda v: 1 + 0 * v["x"]),
    "x*log(x)**2": ("x=0..1", {"x": 0.0}, lambda v: 0 * v["x"]),
    "sqrt(x)*log(3*x)": ("x=0..1", {"x": 0.0}, lambda v: 0 * v["x"]),
    "sin(sqrt(x**2 + y**2))/sqrt(x**2 + y**2)": ("x=-1..1, y=-1..1", {"x": 0.0, "y": 0.0}, lambda v: 1 + 0 * v["x"]),
    "(sqrt(1 + x) - 1)/x": ("x=-1..1", {"x": 0.0}, lambda v: 0.5 + 0 * v["x"]),
}  # fmt: skip


@pytest.mark.parametrize("text", LIMITS)
def test_limits_are_proven(text):
    box, place, limit = LIMITS[text]
    model = tf.compile(text, box, 1e-3)
    assert tf.verify(model).verified
    low, high = np.array(model.box.floats()).T
    x = np.random.default_rng(2).uniform(low, high, (300, len(low)))
    names = dict(zip(model.box.variables, x.T, strict=True))
    for name, value in place.items():  # None: where it equals the next variable
        names[name][:] = x[:, 1] if value is None else value
    assert np.abs(model(x) - limit(names)).max() <= model.certificate.bound


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
    formula, _ = extended_formula(Formula.of("y*sin(x*z)**2/(x*z)**2/z", "x=-1..1, y=0..1, z=1..2"))
    x, y, z = np.random.default_rng(0).uniform([[-1], [0], [1]], [[1], [1], [2]], (3, 200))
    found = evaluate(formula.outputs[0], ["x", "y", "z"], [x, y, z])
    np.testing.assert_allclose(found, y * np.sin(x * z) ** 2 / (x * z) ** 2 / z, rtol=1e-12)


def _check_steps(formula):
    """Each step finds its quotient, is defined at its point, and keeps the values."""
    extended, steps = extended_formula(formula)
    names, current = formula.box.variables, formula.outputs
    with precision(200):
        ends = [(enclose(a), enclose(b)) for a, b in zip(formula.box.lower, formula.box.upper, strict=True)]
        for step in steps:
            of, new = parse(step["of"], names), parse(step["is"], names)
            assert of.op in ("div", "pow", "mul") and any(of in set(walk(e)) for e in current)
            at = {name: arb(to_fmpq(Fraction(value))) for name, value in step["at"].items()}
            assert all(ends[names.index(n)][0] <= x <= ends[names.index(n)][1] for n, x in at.items())
            assert enclose(of, at).is_finite()
            for k in range(1, 8):
                point = {n: a + (b - a) * arb((k * (i + 3) * 0.618) % 1) for i, (n, (a, b)) in enumerate(
                    zip(names, ends, strict=True))}  # fmt: skip
                wanted, found = enclose(of, point), enclose(new, point)
                assert wanted.is_finite() and found.overlaps(wanted) and found.rad() < 1e-30
            current = tuple(substitute(e, {of: new}) for e in current)
    assert current == extended.outputs
    return extended, steps


@pytest.mark.parametrize("text", REPAIRED)
def test_steps_are_applied_one_after_the_other(text):
    _check_steps(Formula.of(text, REPAIRED[text][0]))


FACTORS = ["sin(x)/x", "(sin(x)/x)", "sin(2*x)/x", "sin(x*y)/(x*y)", "(sin(x)/x)**2", "y", "sin(x)**2/x**2"]


@given(st.lists(st.sampled_from(FACTORS), min_size=1, max_size=4), st.sampled_from(["*", " + "]))
def test_factors_may_repeat(factors, between):
    """The power of sinc is added to: overwriting it lost factors."""
    text = between.join([*factors, "y", "cos(x)"])
    extended, steps = _check_steps(Formula.of(text, "x=-1..1, y=1..2"))
    with precision(100):
        at_zero = enclose(extended.outputs[0], {"x": arb(0), "y": arb(3) / 2})
    assert at_zero.is_finite() and bool(steps) == any("sin(" in factor for factor in factors)


def test_several_outputs_share_their_steps():
    formula = Formula.of(["sin(x)/x", "exp(sin(x)/x) + 1"], "x=-1..1")
    extended, steps = _check_steps(formula)
    assert len(steps) == 1 and extended.texts == ("sinc(x)", "exp(sinc(x)) + 1")


@pytest.mark.parametrize("end", ["2*pi", "1/1000000", "10**30", "1/10**12"])
def test_the_point_is_inside_the_box(end):
    _check_steps(Formula.of("sin(x)/x", f"x=0..{end}"))


@pytest.mark.parametrize(
    ("text", "extended"),
    [
        ("besselj(1, x)/x", "besselj_rest1(1, x)"),
        ("expm1(x)/x", "exp_rest1(x)"),
        ("log1p(2*x)/x", "2*log_rest1_at1(2*x + 1)"),
        ("(1 - cos(x))/x**2", "-cos_rest2(x)"),
        ("(exp(x) - exp(-x))/x", "exp_rest1(x) + exp_rest1(-x)"),
        ("x/expm1(x)", "1/exp_rest1(x)"),
        ("sin(x)*erf(x)/x**2", "sinc(x)*erf_rest1(x)"),
        ("sin(x*y)/x", "y*sinc(x*y)"),
        ("erf(x)/x**2", "erf_rest1(x)/x"),  # still undefined, and refused as such
        ("x/log1p(x)", "1/log_rest1_at1(x + 1)"),
        ("erf(x + 1)/x", "erf(x + 1)/x"),
    ],
)
def test_zeros_come_from_the_registry(text, extended):
    assert str(without_removable(parse(text), Box.of("x=-1/4..1/4, y=-1..1"))) == extended
