"""Advice of refusals, followed literally: what a refusal says to ask for is proven when it is asked for."""

import json
import re

import pytest

import transformula as tf
from transformula.budget import SECOND, counting
from transformula.compiler import driver, policy
from transformula.compiler.driver import make
from transformula.errors import FormulaError, NotProvenError, advice_of, in_words_of

TOLERANCES = {"eps", "rel", "pointwise"}

#: Formula, box, options, and the kind of advice that is expected.
REFUSED = [
    ("exp(x)", "x=0..1", {"eps": 1e-15}, "eps"),
    ("exp(x)", "x=0..1", {"eps": 1e-7, "dtype": "float32"}, "dtype"),
    ("sin(x)", "x=0..1", {"eps": 1e-25, "construction": "corollary"}, "eps"),
    ("sin(60*x)", "x=0..3", {"eps": 1e-4, "construction": "corollary"}, "construction"),
    ("abs(x)", "x=-1..1", {"eps": 1e-6, "construction": "polynomial"}, "construction"),
    ("x**2*y", "x=0..1e6, y=0..1", {"eps": 1e-12}, "eps"),
    ("x + y", "x=0..1e6, y=0..1", {"eps": 1e-12, "dtype": "float32"}, "eps"),
    ("x*y", "x=0..1, y=0..1", {"eps": 1e-9, "dtype": "float32"}, "dtype"),
    ("x**20*sin(y)*z", "x=0..3, y=0..3, z=0..10", {"eps": 1e-6}, None),
    ("a*b*c*d*f*g", "a=0..2, b=0..2, c=0..2, d=0..2, f=0..2, g=0..2", {"eps": 1e-6, "dtype": "float32"}, "dtype"),
    ("log(x)", "x=-1..1", {}, "on"),
    ("1/(x - y)", "x=0..1, y=0..1", {}, None),
    ("sqrt(x)", "x=-1..1", {}, "on"),
    ("tan(x)", "x=0..2", {}, "on"),
    ("asin(x*exp(1 - x))", "x=0..2", {"eps": 1e-3}, "formula"),
    ("sin(1/x) + c", "x=0.001..1, c=2", {}, "on"),
    ("x^(1/3)", "x=-1..1", {}, "formula"),
]


def followed(formula, box, options, advice):
    """The model that one piece of advice leads to."""
    kept = {} if TOLERANCES & {*advice} else {name: options[name] for name in TOLERANCES & {*options}}
    kept |= {name: value for name, value in options.items() if name not in TOLERANCES}
    asked = {"formula": formula, "on": box, **kept, **advice}
    return tf.compile(asked.pop("formula"), asked.pop("on"), **asked)


@pytest.mark.parametrize(("formula", "box", "options", "kind"), REFUSED, ids=[f"{c[0]} {c[2]}" for c in REFUSED])
def test_advice_that_is_followed_succeeds(formula, box, options, kind):
    with counting() as spent:
        with pytest.raises(NotProvenError) as refused:
            tf.compile(formula, box, **options)
        assert spent() < 1.1 * SECOND * (policy.REFUSED + policy.AFTER_FAILURE + policy.LEAST_KEPT + policy.ADVICE)
    advice = advice_of(refused.value)
    assert kind is None or any(kind in changed for changed in advice), refused.value
    for changed in advice:
        model = followed(formula, box, options, changed)
        assert model.status == "proven" and model.certificate.bound <= model.certificate.eps


@pytest.mark.parametrize(
    ("formula", "box", "count"),
    [
        ("where(Re < 2300, 64/Re, 0.316/Re**0.25)", "Re=500..5000", 3),
        ("2*where(x > 1/2, 1, 0) + where(x > y, x, y)", "x=0..1, y=0..1", 3),
        ("where(x <= 1, x, 2)", "x=0..1", 2),
        ("where(x > 5, 1, x)", "x=0..1", 2),
        ("where(x > y, 1, 0)", "x=0..1, y=0..1", 1),
        ("where(x*x < 1/4, 1, x)", "x=0..1", 3),
        ("where(x*x - x > 0, x/10, x*x + 2)", "x=0..10", 3),
        ("floor(x)*y", "x=0..3, y=0..1", 1),
        ("sign(x - k) + x", "x=0..1, k=1/2", 1),
    ],
)
def test_advice_on_a_jump_succeeds(formula, box, count):
    with pytest.raises(FormulaError, match=r"only continuous formulas|not seen to meet") as refused:
        tf.compile(formula, box, 0.1)
    advice = advice_of(refused.value)
    assert len(advice) == count
    for changed in advice:
        assert followed(formula, box, {"eps": 0.1}, changed).status == "proven"


def test_a_ramp_meets_the_usual_tolerance():
    """It stood in a product with the difference of the pieces, which no circuit computed as closely."""
    with pytest.raises(FormulaError, match="at Re = 2300") as refused:
        tf.compile("where(Re < 2300, 64/Re, 0.316/Re**0.25)", "Re=500..5000")
    model = tf.compile(advice_of(refused.value)[-1]["formula"], "Re=500..5000")
    assert model.certificate.bound <= 1e-6
    assert model([2000.0]) == pytest.approx(64 / 2000, abs=1e-6)
    assert model([4000.0]) == pytest.approx(0.316 / 4000**0.25, abs=1e-6)


def test_the_place_of_a_jump_is_inside_the_box():
    with pytest.raises(FormulaError, match=r"1 on x=0\.\.1/2 and 2 on x=1/2\.\.1.*\(x - 1/2\)/0\.01"):
        tf.compile("where(x*x < 1/4, 1, 2)", "x=0..1")


def test_no_power_of_a_cube_root_is_advised_that_stays_undefined():
    with pytest.raises(NotProvenError) as refused:
        tf.compile("x^(-2/3)", "x=-1..1")
    assert "cbrt" not in str(refused.value)


def test_advice_is_in_json(cli):
    said = json.loads(cli("compile", "log(x)*k", "--on", "x=-1..1, k=2", "--json").out)
    assert said["advice"] == [{"on": "x=0.0312..1, k=2"}]
    said = json.loads(cli("compile", "floor(x)", "--on", "x=0..2", "--json").out)
    assert said["advice"] == [{"on": "x=0..99/100"}]


def test_a_wave_of_many_periods_is_proven_by_default(monkeypatch):
    """Its table was found, and the search for its proof cut short: the refusal took longer than the proof.

    The proof was looked for with all the work that is left, twice.
    """
    made = []
    monkeypatch.setattr(driver, "make", lambda *args: made.append(args) or make(*args))
    model = tf.compile("sin(100*x)", "x=0..10", 1e-3)
    assert model.certificate.bound <= 1e-3 and model.construction == "lookup"
    assert sum(len(args) == 3 for args in made) <= 1


def test_a_proof_that_is_cut_short_gets_the_rest_of_the_work(monkeypatch):
    monkeypatch.setattr(policy, "USUAL_SEARCH", 1e3)
    monkeypatch.setattr(policy, "SEARCH_PART", 1e-4)
    assert tf.compile("exp(x)", "x=0..1", 1e-4, construction="lookup").certificate.bound <= 1e-4
    monkeypatch.setattr(policy, "AFTER_FAILURE", 1e-4)
    with pytest.raises(NotProvenError, match="allow more time, such as time_limit="):
        tf.compile("exp(x)", "x=0..1", 1e-4, construction="lookup")


def test_a_partition_too_large_to_check_is_refused_before_it_is_proven():
    with pytest.raises(NotProvenError) as refused:
        tf.compile("sin(100*x)", "x=0..10", 1e-3, construction="partition")
    assert "to check this model would take too much work" in str(refused.value)


def test_parameters_are_named_as_the_caller_knows_them(cli):
    said = "ask for eps >= 2.3e-14 or use dtype='float64' or allow more time, such as time_limit=60"
    flags = in_words_of(said, "--eps {}", lambda name, value: f"--{name.replace('_', '-')} {value}")
    assert flags == "ask for --eps 2.3e-14 or use --dtype float64 or allow more time, such as --time-limit 60"
    result = cli("compile", "exp(x)", "--on", "x=0..1", "--eps", "1e-7", "--dtype", "float32")
    assert re.search(r"ask for --eps \S+ or use --dtype float64$", result.err.strip())
