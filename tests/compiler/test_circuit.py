"""Sizes and tolerances of named circuits: a regression in tokens, layers or tightness fails here."""

import csv
import json
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

import transformula as tf
from support.circuit_models import CASES, CASES_FILE
from transformula.cluster.batch_jobs import largest_found_error
from transformula.compiler.circuit import Circuits, Mode, PlanningGuide
from transformula.compiler.prepare import Prepared
from transformula.errors import InputError, RefutedError, TransformulaError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.rules.softmax_rule import prove_softmax
from transformula.kernel.syntax.boxes import Formula
from transformula.runtime import reference

#: name: layers, memory tokens (with slack for another machine's libraries)
SIZES = {
    "I.9.18": (3, 12),
    "I.6.2b": (4, 18),
    "I.12.2": (3, 21),
    "I.18.4": (2, 13),
    "I.27.6": (3, 22),
    "I.50.26": (4, 25),
    "test_5": (3, 18),
    "friedman1": (2, 24),
    "otl_circuit": (4, 27),
}
SINGLE = ("I.9.18", "I.12.2", "I.18.4", "test_5", "friedman1")


@pytest.mark.parametrize(("low", "divided"), [(1, True), (-1, False)])
def test_only_what_is_not_zero_goes_below(low, divided):
    """x/(1 + x*y) = 1/(1/x + y) where x is not zero: what keeps the borehole function's rounding small."""
    circuits = Circuits(Prepared(Formula.of("x*z/(1 + x*y)", f"x={low}..3, y=1/8..1/4, z=1..2")), "float32")
    functions = {str(wire.function) for wire in circuits.circuit(Mode(None, careful=True)).circuit.wires}
    assert ("1/u" in functions or "u**(-1)" in functions) is divided, functions


PEAK = "*".join(f"1/({k + 25}/10 + (x{k} - 1/{k + 2})**2)" for k in range(1, 7))


@pytest.mark.parametrize(
    ("text", "box", "options"),
    [
        (PEAK, "x1..x6=0..1", {"rel": 1e-6}),  # its normal form is too long where products are squares
        ("v*s/(k + s)", "v=1..10, s=0..100, k=0.5..5", {"rel": 1e-3, "dtype": "float32"}),
        ("f/(1 + r)**t", "f=100..1000, r=0..0.2, t=0..30", {"rel": 1e-3, "dtype": "float32"}),
        ("k*t**n/(c**n + t**n)", "k=1..3, t=0.5..2, n=1..4, c=0.5..2", {"rel": 1e-3, "dtype": "float32"}),
        ("sqrt(x*y)", "x=0..1, y=0..1", {"rel": 1e-3, "dtype": "float32"}),
    ],
)
def test_what_rounds_too_much_as_written_is_written_otherwise(text, box, options):
    model = tf.compile(text, box, **options)
    assert model.construction == "circuit" and tf.verify(model).verified
    assert largest_found_error(model) <= model.certificate.bound <= model.certificate.eps


def test_a_steep_table_of_a_distance_is_rounded_like_the_distance():
    """|x| has the relative error of x; an absolute one, times the slope of the root at 0, would be four times eps."""
    model = tf.compile("abs(x)**(1/3)", on="x=-1..1", eps=2e-3, dtype="float32")
    assert model.memory_tokens <= 10 and model.certificate.rounding < 1e-4
    assert tf.verify(model).verified
    x = np.concatenate([sign * np.float32(10.0) ** -np.linspace(0, 44, 4001, dtype=np.float32) for sign in (1, -1)])
    exact = np.abs(x.astype(float)) ** (1 / 3)
    assert np.abs(np.ravel(model(x[:, None])) - exact).max() <= model.certificate.bound


@pytest.mark.parametrize("name", SIZES)
def test_named_cases(name, circuits):
    model, (layers, tokens) = circuits(name), SIZES[name]
    assert model.construction == "circuit"
    assert model.certificate.eps == float(CASES[name]["eps"]) >= model.certificate.bound > 0
    assert model.layers <= layers and model.memory_tokens <= tokens
    size = len(model.packed.arrays) + len(model.packed.description)
    assert size < 300_000


ROOT = Formula.of("sqrt(2 - y*cos(t))", "y=1..2, t=-1..1")


def test_what_rounding_does_to_a_root_is_not_planned_for():
    first = next(Circuits(Prepared(ROOT), "float64").all(1e-9))
    assert 1e-7 < first.in_reach(1e-9, "float64") < 1e-5
    assert first.in_reach(1e-4, "float64") == 1e-4


@pytest.mark.parametrize("name", SINGLE)
def test_float32_at_a_thousandth_of_the_largest_value(name, circuits):
    model = circuits(name, "float32")
    assert model.weights.dtype == "float32" and model.certificate.rounding > 0
    assert model.certificate.bound <= model.certificate.eps
    assert model.layers <= SIZES[name][0] and model.memory_tokens <= SIZES[name][1]


@pytest.mark.parametrize(
    ("formula", "box", "dtype", "rel"),
    [
        ("abs(b*a/(exp(b*a) + 1))", "a=0..1e-4, b=-1..1", "float64", 1e-5),
        ("a*exp(c*c/3)/b", "a=-0.5..2, b=-2..-0.5, c=0..1e-6", "float32", 1e-3),
        ("x*min(tanh(3*x), tan(sin(y)), 1/3)/y", "x=1..1.001, y=1..1.001", "float32", 1e-3),
        ("a*max(7/12, 7/12*e/0.01)*cos(a)/b", "a=-0.5..2, b=1..1.001, e=0..0.01", "float32", 1e-3),
        ("tanh(9*e + 3 + 3*sqrt(9*(e + 1/3)**2 + exp(d)/9))", "d=0..1, e=0.25..2", "float32", 1e-3),
    ],
)
def test_errors_may_be_larger_than_the_range_they_disturb(formula, box, dtype, rel):
    """A factor that hardly varies, or a difference of almost equals, has a range much below the tolerance.

    Or the output does not depend on a wire at all, or hardly, as long as it stays where it is.
    """
    model = tf.compile(formula, on=box, rel=rel, construction="circuit", dtype=dtype)
    assert 0 < model.certificate.bound <= model.certificate.eps and tf.verify(model).verified


@pytest.mark.parametrize(
    ("formula", "box", "tokens", "dtype", "rel"),
    [
        ("sqrt(abs(a))*b", "a=-0.5..2, b=0.25..2", 24, "float32", 1e-3),
        ("min(tanh(3*v), sqrt(abs(w)), 1/3)", "v=-1..1, w=-1..1", 24, "float64", 1e-5),
        ("abs(sqrt(abs(a)) - sinh(1))**(3/2) + b", "a=-0.5..2, b=0.25..2", 32, "float32", 1e-3),
        ("exp(-abs(x))*y", "x=-2..3, y=0..1", 8, "float64", 1e-5),
    ],
)
def test_kinks_are_bent_before_they_are_looked_up(formula, box, tokens, dtype, rel):
    """A table of sqrt(|u|) across zero needs more tokens than there are; |u| is two ReLUs."""
    model = tf.compile(formula, on=box, rel=rel, construction="circuit", dtype=dtype)
    assert model.certificate.bound <= model.certificate.eps and model.memory_tokens <= tokens


def test_a_cube_root_through_zero_is_one_table_read_twice():
    """Scores that rise steeply on both sides of 0 are rounded too much at the ends of the box."""
    model = tf.compile("2 + cbrt(x)", on="x=-1..1", eps=1e-4)
    assert (model.construction, model.layers) == ("circuit", 2) and model.memory_tokens <= 26
    assert tf.verify(model).verified
    x = np.concatenate([sign * 10.0 ** -np.linspace(0, 40, 4001) for sign in (1, -1)])
    assert np.abs(np.ravel(model(x[:, None])) - 2 - np.cbrt(x)).max() <= model.certificate.bound


def test_values_far_from_zero_are_held_around_zero(monkeypatch):
    """log on 90,000..110,000 is 11.5 +- 0.1: what is rounded is the 0.1."""
    task = {"formula": "log(a)*b", "on": "a=90000..110000, b=1..2", "rel": 1e-3}
    model = tf.compile(**task, construction="circuit", dtype="float32")
    monkeypatch.setattr(PlanningGuide, "offset", lambda *_: Fraction(0))
    plain = tf.compile(**task, construction="circuit", dtype="float32")
    assert model.certificate.rounding < plain.certificate.rounding / 2


def test_gravity_has_three_layers_and_few_tokens(circuits):
    model = circuits("I.9.18")
    assert model.layers == 3 and model.memory_tokens <= 12 and len(model.box.variables) == 9


def test_auto_takes_a_circuit_for_many_variables():
    formula, box = "x1*x2*exp(-x3)/(1 + x4)", "x1..x4=0..1"
    model = tf.compile(formula, on=box, eps=1e-3)
    assert model.construction == "circuit" and model.memory_tokens < 40
    assert tf.compile("sin(x) + y*exp(y)", on="x=0..1, y=0..1", eps=1e-5).construction == "lookup"


@pytest.mark.parametrize(
    ("formula", "box", "eps", "tokens"),
    [
        (
            "sqrt(x**2 + y**2 + 1/100000)*z",
            "x=-1..1, y=-1..1, z=-1..1",
            1e-3,
            8,
        ),  # a constant side was a ReLU of nothing
        ("sqrt(x**2 + pi/1000000)*z", "x=-1..1, z=-1..1", 1e-3, 12),
        ("sqrt(x**2 - x*y + y**2 + 3*t**2)", "x=-100..100, y=-100..100, t=-50..50", 1e-6, 1),  # von Mises stress
        ("sqrt(x**2 + 4*x*y + 5*y**2 + 2*y*z + 3*z**2)", "x=-1..1, y=-1..1, z=-1..1", 1e-9, 1),
    ],
)
def test_lengths_with_constants_and_mixed_terms(formula, box, eps, tokens):
    model = tf.compile(formula, box, eps)
    assert model.certificate.bound <= eps and model.tokens <= tokens and tf.verify(model).verified
    low, high = np.array(model.box.floats()).T
    x = np.vstack([np.random.default_rng(0).uniform(low, high, (300, len(low))), 0 * low, low, high])
    named = dict(zip(model.box.variables, x.T, strict=True)) | {"sqrt": np.sqrt, "pi": np.pi}
    assert np.abs(model(x) - eval(formula, named)).max() <= model.certificate.bound  # the test's own text


def test_squares_share_one_table(circuits):
    """All the products of the gravity formula read one table of the square."""
    weights = circuits("I.9.18").weights
    gates = [s for s in weights.slots if s.startswith("gate")]
    heads = sum(len(b.attention.heads) for b in weights.blocks)
    assert len(gates) == 3 and heads >= 8  # the data token's mark, the square and the reciprocal


@pytest.mark.parametrize(
    ("formula", "box", "words"),
    [
        ("x*y/(x - y)", "x=0..2, y=1..3", "x - y"),
        ("log(x*y*z)", "x=-1..1, y=1..2, z=1..2", "log"),
        ("sqrt(x*y - z)", "x=0..1, y=0..1, z=0..1", "sqrt"),
        ("acos(x*y*z)", "x=0..2, y=0..2, z=0..1", "acos"),
    ],
)
def test_refusals_name_the_place(formula, box, words):
    with pytest.raises(TransformulaError) as refused:
        tf.compile(formula, on=box, eps=1e-4, construction="circuit")
    assert words in str(refused.value)


def test_options_that_do_not_fit_a_circuit():
    for options in ({"layers": 1}, {"multi_head": True}, {"shape": (3, 1)}):
        with pytest.raises(InputError):
            tf.compile("x*y", on="x=0..1, y=0..1", construction="circuit", **options)


class TestSequences:
    """A circuit at every position: the same one where the positions do the same, else all of it."""

    BOX = "x=0..1, y=-1..1"
    FORMULAS: ClassVar = ["x*y", "sin(x)/(1 + y**2)"]

    @pytest.mark.parametrize("dtype, eps", [("float64", 1e-6), ("float32", 1e-3)])
    def test_every_position_computes_the_same(self, dtype, eps):
        whole = tf.compile(self.FORMULAS, on=self.BOX, eps=eps, shape=(5, 2), dtype=dtype, construction="circuit")
        one = tf.compile(self.FORMULAS, on=self.BOX, eps=eps, dtype=dtype, construction="circuit")
        assert whole.memory_tokens == one.memory_tokens and whole.tokens == one.tokens + 4
        assert whole.certificate.bound == one.certificate.bound and tf.verify(whole).verified
        x = np.random.default_rng(0).uniform([0, -1], [1, 1], (30, 5, 2))
        assert whole(x).shape == (30, 5, 2)
        np.testing.assert_array_equal(whole(x).reshape(-1, 2), one(x.reshape(-1, 2)))
        inner = reference.run(whole.weights, x.reshape(30, 10)).reshape(30, 5, 2)
        assert np.abs(inner - whole(x)).max() <= 2 * whole.certificate.rounding

    def test_positions_may_differ_and_see_each_other(self):
        formulas = ["min(a, b)*c", "max(a, b)", "a*b*c + c"]
        model = tf.compile(formulas, on="a=0..1, b=0..1, c=-1..1", eps=1e-6, shape=(3, 1), construction="circuit")
        x = np.random.default_rng(1).uniform([0, 0, -1], 1, (50, 3))
        a, b, c = x.T
        wanted = np.stack([np.minimum(a, b) * c, np.maximum(a, b), a * b * c + c], axis=1)
        assert np.abs(model(x[:, :, None])[:, :, 0] - wanted).max() <= model.certificate.bound
        assert np.abs(reference.run(model.weights, x) - wanted).max() <= model.certificate.bound
        assert tf.verify(model).verified and len(model.weights.data_tokens) == 3

    def test_the_checker_compares_the_positions(self):
        same = tf.compile(self.FORMULAS, on=self.BOX, eps=1e-3, shape=(2, 2), construction="circuit")
        other = Formula.of(["x_1*y_1", "sin(x_1)/(1 + y_1**2)", "x_2*y_2", "cos(x_2)/(1 + y_2**2)"], on=same.box)
        evidence = Evidence(json.loads(same.packed.evidence))
        circuit = same.description.circuit
        assert prove_softmax(same.weights, same.formula, circuit, evidence).bound <= 1e-3
        with pytest.raises(RefutedError, match="differ"):
            prove_softmax(same.weights, other, circuit, evidence)


class TestAuto:
    """By proven size: the exact polynomial, one layer, or a circuit."""

    @pytest.mark.parametrize(
        "formula, box, eps, construction",
        [
            ("10*sin(pi*x1*x2) + 20*(x3 - 1/2)**2 + 10*x4 + 5*x5", "x1..x5=0..1", 2e-5, "circuit"),
            ("sin(x1) + sin(x2)", "x1..x2=0..2*pi", 1e-6, "lookup"),
            ("x*sin(y)", "x=0..1, y=0..1", 1e-4, "lookup"),
            ("x*y*z + x**2", "x=0..1, y=0..1, z=0..1", None, "polynomial"),
        ],
    )
    def test_choice(self, formula, box, eps, construction):
        assert tf.compile(formula, on=box, eps=eps).construction == construction

    def test_the_proven_model_with_the_fewest_tokens(self):
        formula, box, eps = "exp(-x1*x2)*sin(3*x1 + x2)", "x1..x2=0..2", 1e-4
        sizes = {
            name: tf.compile(formula, on=box, eps=eps, construction=name).memory_tokens
            for name in ("lookup", "circuit")
        }
        assert tf.compile(formula, on=box, eps=eps).memory_tokens == min(sizes.values())

    def test_more_tolerance_takes_no_more_tokens(self):
        """friedman1 was one layer of 18 tokens at 1e-2, and a circuit of 9 at 1e-4."""
        case = {"formula": "10*sin(pi*x1*x2)+20*(x3-0.5)**2+10*x4+5*x5", "on": "x1..x5=0..1"}
        assert tf.compile(**case, rel=1e-2).memory_tokens <= tf.compile(**case, rel=1e-4).memory_tokens <= 9

    def test_a_product_too_wide_to_expand_is_a_circuit(self):
        names = [f"x{k}" for k in range(1, 15)]
        model = tf.compile("*".join(names), on="x1..x14=1..2", eps=1.0)
        assert model.construction == "circuit" and model.layers == 4


class TestRelative:
    """rel: the tolerance as a part of the largest |f|."""

    def test_it_is_absolute_in_the_certificate(self):
        model = tf.compile("100*exp(x)*y", on="x=0..1, y=0..2", rel=1e-4)
        assert 0.0543 < model.certificate.eps <= 1e-4 * 200 * 2.718281828459045236

    def test_the_smallest_output_decides(self):
        model = tf.compile(["1000*sin(x)", "cos(x)/4"], on="x=0..pi", rel=1e-3)
        assert 0.99 * 0.25e-3 < model.certificate.eps <= 0.25e-3

    def test_an_exact_construction_meets_it_too(self):
        model = tf.compile("1000*x**2", on="x=-1..1", rel=1e-9)
        assert model.construction == "polynomial" and 0.99e-6 < model.certificate.eps <= 1e-6

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"rel": 1e-3, "eps": 1e-3}, "one of eps, rel and pointwise"),
            ({"rel": 0}, "above 0"),
            ({"rel": float("nan")}, "above 0"),
            ({"rel": "1e-3"}, "above 0"),
            ({"rel": -1e-3}, "above 0"),
        ],
    )
    def test_bad_values(self, options, words):
        with pytest.raises(InputError, match=words):
            tf.compile("sin(x)", on="x=0..1", **options)

    def test_a_formula_that_is_zero(self):
        with pytest.raises(InputError, match="give eps"):
            tf.compile("x - x", on="x=0..1", rel=1e-3)


def test_every_case_has_its_size_pinned():
    rows = csv.DictReader(CASES_FILE.with_name("sizes.csv").read_text().splitlines())
    pins = {row["name"]: int(row["float64"]) for row in rows}
    assert list(pins) == list(CASES)
    for name in ("I.18.4", "II.34.2a"):  # `make cases` tries all of them
        case = CASES[name]
        assert tf.compile(case["formula"], case["on"], float(case["eps"])).memory_tokens <= pins[name]
