"""Claims relative to |f| at every point: they hold, and nothing else passes for one."""

import json
import re
from dataclasses import replace

import mpmath
import numpy as np
import pytest

import transformula as tf
from support.faults import active, fault
from transformula.errors import InputError, NotProvenError
from transformula.export.hf_files import hf_contents
from transformula.kernel.check import verify_files
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.model_files import Packed

#: Formula, box, tolerance relative to |f|, and the formula in mpmath. All span decades.
SPANNING = [
    ("exp(-x)", "x=0..12", 1e-6, lambda x: mpmath.exp(-x)),
    ("-1/x**3", "x=1/2..30", 1e-5, lambda x: -1 / x**3),
    ("10**(8 - 1730/(233 + x))", "x=1..100", 1e-7, lambda x: mpmath.mpf(10) ** (8 - 1730 / (233 + x))),
    ("x**4 + 1/100", "x=-3..3", 1e-9, lambda x: x**4 + mpmath.mpf(1) / 100),
]


@pytest.mark.parametrize(("formula", "box", "asked", "true"), SPANNING, ids=[case[0] for case in SPANNING])
def test_a_relative_claim_holds_everywhere(formula, box, asked, true):
    model = tf.compile(formula, box, pointwise=asked)
    certificate = model.certificate
    assert 0 < certificate.relative <= asked and tf.verify(model).relative == certificate.relative
    low, high = (float(ends[0]) for ends in (Region.of_box(model.box).lower, Region.of_box(model.box).upper))
    rng = np.random.default_rng(0)
    for x in [low, high, *rng.uniform(low, high, 300), *np.geomspace(max(low, 1e-3), high, 100)]:
        exact = true(mpmath.mpf(float(x)))
        assert abs(float(np.squeeze(model([x]))) - exact) <= certificate.relative * abs(exact)


def _checked(model, **changed):
    return verify_files(model.packed, replace(model.certificate, **changed).to_json())


def test_a_smaller_claim_is_refused():
    model = tf.compile("exp(-x)", "x=0..5", pointwise=1e-6)
    assert _checked(model, relative=model.certificate.relative).relative == model.certificate.relative
    forged = _checked(model, relative=model.certificate.relative * 0.99)
    assert not forged.verified and forged.relative is None and "relative" in forged.reasons[0]
    assert not _checked(model, relative=0.0).verified


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, "1e-6", True])
def test_a_claim_that_is_no_number_is_refused(wrong):
    model = tf.compile("exp(-x)", "x=0..5", pointwise=1e-6)
    assert not _checked(model, relative=wrong).verified


@pytest.mark.parametrize(
    ("formula", "options"), [("sin(x)", {}), ("x", {}), ("x*x", {"construction": "yun", "eps": 0.2})]
)
def test_a_formula_with_a_zero_or_a_mean_has_no_relative_claim(formula, options):
    model = tf.compile(formula, "x=-1..1", **options)
    packed = Packed(model.packed.arrays, model.packed.description, _with_trees(model.packed.evidence))
    for found in (model.packed, packed):
        claim = replace(model.certificate, relative=1e300, **found.hashes)
        assert not verify_files(found, claim.to_json()).verified


def _with_trees(evidence):
    return evidence.rstrip().removesuffix("}") + ', "inverse": [[0, -1, -1]]}\n'


def test_what_cannot_be_asked_for():
    with pytest.raises(NotProvenError, match="stay away from 0 on the box"):
        tf.compile("sin(x)", "x=0..4", pointwise=1e-3)
    with pytest.raises(NotProvenError, match="stay away from 0"):
        tf.compile("0*x", "x=0..4", pointwise=1e-3)
    with pytest.raises(InputError, match="one of eps, rel and pointwise"):
        tf.compile("exp(x)", "x=0..4", 1e-3, pointwise=1e-3)
    with pytest.raises(InputError, match="pointwise must be a number above 0"):
        tf.compile("exp(x)", "x=0..4", pointwise=0)


def test_a_refusal_speaks_of_what_was_asked():
    with pytest.raises(NotProvenError, match=r"pointwise = 1e-06 of the smallest \|formula\|") as refused:
        tf.compile("exp(-x)", "x=0..20", pointwise=1e-6)
    advised = float(re.search(r"ask for pointwise=(\S+)", str(refused.value))[1])
    assert tf.compile("exp(-x)", "x=0..20", pointwise=advised).certificate.relative <= advised
    with pytest.raises(NotProvenError, match=r"narrow the box to where \|formula\| is larger"):
        tf.compile("exp(-x)", "x=0..200", pointwise=1e-6)


def test_a_folder_that_rounds_more_claims_nothing_relative():
    model = tf.compile("exp(-x)", "x=0..3", dtype="float32", pointwise=1e-2)
    claim = json.loads(hf_contents(model, "gpt2", 2 * model.certificate.rounding, proven=True)["config.json"])
    assert "relative" not in str(claim) and model.certificate.relative is not None


@pytest.mark.parametrize(
    "planted",
    [
        fault("the end that is farther from 0", "kernel.check:largest_inverse", "high if low > 0 else -low", "low if low > 0 else -high", ""),
        fault("only the first output", "kernel.check:largest_inverse", "formula.outputs)", "formula.outputs[:1])", ""),
        fault("f for 1/f", "kernel.check:largest_inverse", "inverse_of(expr)", "expr", ""),
    ],
    ids=lambda one: one.name,
)  # fmt: skip
def test_a_planted_fault_makes_a_claim_that_does_not_hold(planted):
    """The attack of this file finds each fault: a claim comes out that a point refutes."""
    with active(planted):
        model = tf.compile(["2 + exp(x/2)", "-exp(-x)"], "x=0..7", pointwise=1e-4)
        relative = model.certificate.relative
    assert relative < model.certificate.bound / np.exp(-7.0) * 0.99
