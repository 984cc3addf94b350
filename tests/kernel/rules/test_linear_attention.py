"""Heads of linear attention: what they compute is expanded rightly, claims hold where attacked, nothing else passes."""

import copy
import dataclasses
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from flint import fmpq

import transformula as tf
from support.attention_models import PLANTED, attention_model, fitted, random_layer
from support.claims import refuses_a_hair_less
from support.folders import open_model
from support.limited_checks import STOPPED, verdict
from transformula.errors import NotProvenError, TransformulaError
from transformula.kernel.check import verify_files
from transformula.kernel.derivations.polynomials import as_polynomial
from transformula.kernel.gallery.linear_attention_rule import _polynomials, prove_linear_attention
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.parsing import parse
from transformula.runtime import reference
from transformula.runtime.exact import run_exact

DTYPES = ("float64", "float32")


def _fraction(value):
    return Fraction(int(value.p), int(value.q))


@cache
def _terms(text, names):
    terms = as_polynomial(parse(text, names), names).terms()
    return [(_fraction(c), [(k, int(e)) for k, e in enumerate(exponents) if e]) for exponents, c in terms.items()]


def _at(formula, row):
    """A formula's polynomials at rationals, term by term."""
    terms = (_terms(text, formula.box.variables) for text in formula.texts)
    return [sum((math.prod((row[k] ** e for k, e in at), start=c) for c, at in some), Fraction(0)) for some in terms]


def _error(model, rows):
    """The largest |computed − formula| at some rows, without rounding of its own."""
    found = reference.run(model.weights, rows)
    exact = [_at(model.formula, [Fraction(float(v)) for v in row]) for row in rows]
    return [
        max(abs(Fraction(float(f)) - e) for f, e in zip(computed, wanted, strict=True))
        for computed, wanted in zip(found, exact, strict=True)
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLANTED)
def test_attacked(name, dtype):
    """Random points, corners and ascent on the error: all within the bound, which is that of the format."""
    model = attention_model(name, dtype)
    assert tf.verify(model).verified and model.layers == 1 and model.heads == PLANTED[name][0]
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (20, model.box.dimension)).astype(dtype)
    rows[:8] = np.sign(rows[:8])
    errors = _error(model, rows)
    worst, bound = rows[int(np.argmax(errors))], Fraction(model.certificate.bound)
    for scale in (0.3, 0.1):  # uphill from the worst
        near = np.clip(worst + scale * rng.normal(size=(8, len(worst))), -1, 1).astype(dtype)
        errors += _error(model, near)
        worst = near[int(np.argmax(errors[-8:]))]
    assert max(errors) <= bound < Fraction(1e-7 if dtype == "float64" else 1e-2)
    assert max(errors) > 0  # the text is rounded, and so is the arithmetic: this is no identity


def test_random_layers_are_expanded_and_rounded_rightly():
    """Any matrices, down to underflow: real blocks are the polynomial, computed ones within the rounding that is proven."""
    rng, proven, names = np.random.default_rng(1), 0, ("a", "b", "c")
    for trial in range(60):
        dtype = DTYPES[trial % 2]
        weights = random_layer(rng, names, float(rng.choice([0.5, 6, 13])), dtype)
        formula = Formula.of(["a*b*c - b/3"] * weights.outputs, "a=-1..1, b=0..1/1000, c=-7..30")
        try:
            proof = prove_linear_attention(weights, formula)
        except NotProvenError:
            continue
        proven += 1
        points = rng.uniform([-1, 0, -7], [1, 0.001, 30], (6, 3)) * 10.0 ** rng.uniform(-20, 0, (6, 1))
        nudged = [[Fraction(float(v)) * (1 - Fraction(2) ** -60) for v in row] for row in points]
        rounded = np.array([[float(v) for v in row] for row in nudged]).astype(dtype)
        for found, row in zip(reference.run(weights, rounded), nudged, strict=True):
            exact = [_fraction(v) for v in run_exact(weights, [fmpq(v.numerator, v.denominator) for v in row])]
            wanted = _at(formula, row)
            for got, real, said in zip(found, exact, wanted, strict=True):
                assert abs(Fraction(float(got)) - real) <= Fraction(proof.rounding), trial
                assert abs(real - said) <= Fraction(proof.approximation), trial
    assert proven > 40


def test_an_identity_is_an_identity():
    """A formula that is what the heads compute, to the last bit: approximation 0."""
    weights = random_layer(np.random.default_rng(5), ("a", "b"), 0.5, "float64")
    terms = [network.to_dict() for network in _polynomials(weights)]
    texts = [" + ".join(f"({c})*a**{i}*b**{j}" for (i, j), c in some.items()) for some in terms]
    assert max(map(len, terms)) > 5
    proof = prove_linear_attention(weights, Formula.of(texts, "a=-1..1, b=-1..1"))
    assert proof.approximation == 0 and 0 < proof.rounding < 1e-9
    texts[0] = texts[0] + " + a**3/10**20"
    moved = prove_linear_attention(weights, Formula.of(texts, "a=-1..1, b=-1..1"))
    assert 0 < moved.approximation <= 1.0001e-20


def test_few_heads_are_as_far_from_the_map_as_is_claimed():
    """Fewer heads than the map has: what they miss is part of the claim, and the claim holds of `predict`."""
    rng = np.random.default_rng(2)
    Z = rng.uniform(-1, 1, (300, 3, 2))
    regressor = tf.LinearAttentionRegressor(3, heads=1).fit(Z, Z[:, 0, 0] ** 2 * Z[:, -1, 0] + Z[:, 1, 1] ** 2)
    model = regressor.to_transformer()
    rows = rng.uniform(*np.array(model.box.floats()).T, (50, 6))
    wanted = np.array([[float(v) for v in _at(model.formula, [Fraction(v) for v in row])] for row in rows])
    missed = np.abs(regressor.predict(rows)[:, None] - wanted).max()
    assert 0.01 < missed <= model.certificate.approximation
    assert tf.verify(model).verified


# -- forgeries: every checksum is recomputed -----------------------------------------------------------------

CHANGES = {"a little": lambda v: v * 1.0001, "half": lambda v: v / 2, "sign": lambda v: -v, "zero": lambda v: v * 0}


@pytest.mark.parametrize("name", PLANTED)
def test_every_number_and_every_place_matter(name):
    data, rng, tried = open_model(attention_model(name)), np.random.default_rng(0), 0
    assert verify_files(*data.forged()).verified
    for array in [a for a in data.arrays if len(data.arrays[a])]:
        stem, part = array.rsplit(".", 1)
        limit = data.body["shapes"][stem][part == "cols"]
        if part != "values" and limit == 1:
            continue
        changed, what = copy.deepcopy(data), rng.choice(list(CHANGES))
        k = rng.integers(len(changed.arrays[array]))
        if part == "values":
            changed.arrays[array][k] = CHANGES[what](changed.arrays[array][k])
        else:
            changed.arrays[array][k] = (changed.arrays[array][k] + rng.integers(1, limit)) % limit
        result = verify_files(*changed.forged())
        assert not result.verified and result.reasons, (array, k, what)
        tried += 1
    assert tried >= 15


SAID = {
    "a wider box": lambda b: b.update(box=b["box"].replace("-1..1", "-3..3")),
    "another coefficient": lambda b: b.update(formulas=[b["formulas"][0] + " + x1/10**6", *b["formulas"][1:]]),
    "no polynomial": lambda b: b.update(formulas=["exp(x1)", *b["formulas"][1:]]),
    "nothing at all": lambda b: b.update(formulas=["0*x1", *b["formulas"][1:]]),
    "an output too many": lambda b: b.update(formulas=[*b["formulas"], "x1"]),
    "softmax": lambda b: b["blocks"][0].update(kind="softmax"),
    "hardmax": lambda b: b["blocks"][0].update(kind="hardmax"),
    "a scale": lambda b: b["blocks"][0].update(scale=0.5),
    "a sequence": lambda b: b.update(shape=[3, 2]),
    "a task": lambda b: b.update(task={"algorithm": "ridge"}),
    "rationals beside the floats": lambda b: b["exact"].update(
        {"blocks.0.heads.0.value": ["1"] * (PLANTED["one head"][2] + 1)}
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_what_is_said_of_the_heads_matters(what):
    data = open_model(attention_model("one head"))
    SAID[what](data.body)
    result = verify_files(*data.forged())
    assert not result.verified and result.reasons


@pytest.mark.parametrize("construction", ["polynomial", "lookup", "partition", "corollary", "circuit", "in-context"])
def test_heads_pass_for_nothing_else(construction):
    data = open_model(attention_model("one head"))
    data.body["construction"] = data.claim["construction"] = construction
    if construction in ("lookup", "circuit", "partition"):
        data.body["circuit"] = {}
    assert not verify_files(*data.forged()).verified


def test_two_layers_and_a_head_without_output_are_refused():
    model = attention_model("one head")
    block = model.weights.blocks[0]
    bare = dataclasses.replace(block.attention.heads[0], output=None)
    plain = dataclasses.replace(block, attention=dataclasses.replace(block.attention, heads=(bare,)))
    for blocks, said in (((block, block), "not one layer"), ((), "not one layer"), ((plain,), "no output matrix")):
        with pytest.raises(NotProvenError, match=said):
            prove_linear_attention(dataclasses.replace(model.weights, blocks=blocks), model.formula)


def test_a_claim_a_hair_too_tight_is_refused():
    refuses_a_hair_less(open_model(attention_model("two heads")))


def test_numbers_beyond_the_format_are_refused():
    regressor = fitted("one head")
    box = dict.fromkeys([f"x{k}" for k in range(1, 7)], (-1, 1))
    with pytest.raises(NotProvenError, match="beyond float32's range"):
        regressor.to_transformer(box=box | {"x1": (-(10**30), 10**30)}, dtype="float32")


def test_a_large_layer_is_refused(monkeypatch):
    """Tokens by the million are out of resources; a thousand inputs in one slot take too many products."""
    data = open_model(attention_model("one head"))
    data.body["tokens"] = 2_000_000
    width = len(data.body["slots"])
    data.body["shapes"]["embedding"][0] = data.body["shapes"]["readout"][1] = 2_000_000 * width
    data.body["shapes"]["memory"][0] = 2_000_000
    assert verdict(*data.forged(), monkeypatch) == STOPPED
    names = tuple(f"x{k}" for k in range(900))
    weights = random_layer(np.random.default_rng(11), names, 0.5, "float64")
    formula = Formula.of(["x1"] * weights.outputs, ", ".join(f"{n}=0..1" for n in names))
    assert len(weights.blocks[0].attention.heads) > 0
    with pytest.raises(TransformulaError, match="products"):
        prove_linear_attention(weights, formula)
