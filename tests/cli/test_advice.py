"""Advice of refusals, followed literally: what a refusal says to ask for is proven when it is asked for."""

import re

import pytest

import transformula as tf
from transformula.budget import SECOND, counting
from transformula.compiler import policy
from transformula.errors import NotProvenError, in_words_of

#: Formula, box, options, and the kind of advice that is expected.
REFUSED = [
    ("exp(x)", "x=0..1", {"eps": 1e-15}, "eps"),
    ("exp(x)", "x=0..1", {"eps": 1e-7, "dtype": "float32"}, "dtype"),
    ("sin(x)", "x=0..1", {"eps": 1e-25, "construction": "corollary"}, "eps"),
    ("sin(30*x)", "x=0..3", {"eps": 1e-4, "construction": "corollary"}, "construction"),
    ("abs(x)", "x=-1..1", {"eps": 1e-6, "construction": "polynomial"}, "construction"),
    ("x**2*y", "x=0..1e6, y=0..1", {"eps": 1e-12}, "eps"),
    ("x + y", "x=0..1e6, y=0..1", {"eps": 1e-12, "dtype": "float32"}, "eps"),
    ("x*y", "x=0..1, y=0..1", {"eps": 1e-9, "dtype": "float32"}, "dtype"),
    ("x**20*sin(y)*z", "x=0..3, y=0..3, z=0..10", {"eps": 1e-6}, "eps"),
    ("a*b*c*d*f*g", "a=0..2, b=0..2, c=0..2, d=0..2, f=0..2, g=0..2", {"eps": 1e-6, "dtype": "float32"}, "dtype"),
    ("log(x)", "x=-1..1", {}, "box"),
    ("1/(x - y)", "x=0..1, y=0..1", {}, None),
    ("sqrt(x)", "x=-1..1", {}, "box"),
    ("tan(x)", "x=0..2", {}, "box"),
    ("asin(sin(x)*cos(1) + cos(x)*sin(1))", "x=0..1", {"eps": 1e-3}, "formula"),
]


def advised(said: str) -> dict[str, dict[str, object]]:
    """The advice of a message, as arguments of `compile`."""
    found: dict[str, dict[str, object]] = {}
    if eps := re.search(r"ask for eps >= (\S+)", said):
        found["eps"] = {"eps": float(eps[1])}
    for name in ("dtype", "construction"):
        if value := re.search(rf"use {name}='(\w+)'", said):
            found[name] = {name: value[1]}
    if box := re.search(r"; (\S.*) would work", said):
        found["box"] = {"on": box[1]}
    if kept := re.search(r"or write (.*), the same", said):
        found["formula"] = {"formula": kept[1]}
    return found


@pytest.mark.parametrize(("formula", "box", "options", "kind"), REFUSED, ids=[f"{c[0]} {c[2]}" for c in REFUSED])
def test_advice_that_is_followed_succeeds(formula, box, options, kind):
    with counting() as spent:
        with pytest.raises(NotProvenError) as refused:
            tf.compile(formula, box, **options)
        finishing = policy.FINISHING if "allow more time" in str(refused.value) else 0.0
        assert spent() < 1.1 * SECOND * (policy.REFUSED + finishing + policy.LEAST_KEPT + policy.ADVICE)
    advice = advised(str(refused.value))
    assert kind is None or kind in advice, refused.value
    for changed in advice.values():
        asked = {"formula": formula, "on": box, **options, **changed}
        model = tf.compile(asked.pop("formula"), asked.pop("on"), **asked)
        assert model.status == "proven" and model.certificate.bound <= model.certificate.eps


def test_a_wave_of_many_periods_is_proven_by_default():
    """Its table was found, and the search for its proof cut short: the refusal took longer than the proof."""
    model = tf.compile("sin(100*x)", "x=0..10", 1e-3)
    assert model.certificate.bound <= 1e-3 and model.construction == "lookup"


def test_a_proof_that_is_cut_short_gets_the_rest_of_the_work(monkeypatch):
    monkeypatch.setattr(policy, "USUAL_SEARCH", 1e3)
    monkeypatch.setattr(policy, "SEARCH_PART", 1e-4)
    assert tf.compile("exp(x)", "x=0..1", 1e-4, construction="lookup").certificate.bound <= 1e-4
    monkeypatch.setattr(policy, "FINISHING", 1e-4)
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
