"""Floors under the bases of powers: what is added to the error is true, and a forged floor is not believed."""

import numpy as np
import pytest

import transformula as tf
from support.faults import active, fault
from support.folders import open_model
from transformula.kernel.check import verify_files
from transformula.kernel.derivations.derivation_steps import Facts
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax.boxes import Formula

_RULE = "kernel.derivations.floors:"
#: Formula, box, the power, its floor, the halvings, and the formula and the floored one in NumPy.
CASES = [
    ("x**y", "x=0..1, y=1..2", "x**y", 1 / 4, [0, 0, -1, -1, -1]),
    ("1 - exp(-(t/s)**b)", "t=0..4, s=1..2, b=1..3", "(t/s)**b", 1 / 8, [0, 0, 0, 0, -1, -1, -1, -1, -1]),
    ("x**y", "x=0..1, y=1..2", "x**y", 1 / 8, [-1]),
    ("x**y + 9*w - w*w", "x=0..1, y=1..2, w=-5..5", "x**y", 1 / 4, [0, 0, -1, -1, -1]),
    ("x**y*w + x**y + x", "x=0..1, y=1..2, w=0..1/8", "x**y", 1 / 4, [0, 0, 0, -1, -1, -1, -1]),
]


def floored(text, box, of, floor, tree, changed=()):
    data = {"floors": [{"of": of, "floor": str(floor)} | dict(changed)]}
    return Facts(Formula.of(text, box), data, Evidence({"defined": [[-1], [-1]], "apart": [tree]}), floors=True)


def farthest(case):
    """The largest distance between a formula and the floored one that is found, near the floor above all."""
    text, _, of, floor, _ = case
    facts = floored(*case)
    low, high = np.array(facts.formula.box.floats()).T
    x = np.random.default_rng(1).uniform(low, high, (4000, len(low)))
    x[:2000, 0] *= 4 * floor / high[0]
    x[:500, 0] = 0
    names = dict(zip(facts.formula.box.variables, x.T, strict=True))
    with np.errstate(divide="ignore"):
        values = [eval(t.replace(of, f"np.maximum({of.split('**')[0]}, {f})**{of[-1]}"), {"np": np, "exp": np.exp}, names)
                  for t in (text,) for f in (0.0, floor)]  # fmt: skip
    return float(np.max(np.abs(values[0] - values[1]))), facts.apart


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_distance_is_true(case):
    found, bound = farthest(case)
    assert 0 < found <= bound < 1.01


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("known), moved))", "known), range_of(one, leaf, known)))"),
        ("known)[0] < 0 for expr", "known)[1] < 0 for expr"),
        ("slabs = [leaf]", "slabs = []"),
    ],
)
def test_faults_of_the_rule_are_seen(old, new):
    with active(fault("", _RULE + "Floors.apart_on", old, new, "")):
        assert any(found > bound for found, bound in map(farthest, CASES))


def test_a_term_that_is_not_in_both_sums_is_not_left_out():
    old, new = (
        "return ex.add(*(ones - others).elements()), ex.add(*(others - ones).elements())",
        "return ex.add(), ex.add()",
    )
    with active(fault("", _RULE + "_without_common_terms", old, new, "")):
        assert any(found > bound for found, bound in map(farthest, CASES))


def test_a_power_from_zero_may_stand_in_a_sum():
    model = tf.compile("y1**(1 + x2) + w1*w1", "y1=0..1, x2=0..1, w1=0..1", 1e-3)
    assert model.certificate.bound <= 1e-3 and model.tokens <= 24


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"floor": "0"}, "is positive"),
        ({"floor": "-1/4"}, "is positive"),
        ({"floor": "x"}, "cannot be read"),
        ({"of": "x*y"}, "base of a power"),
        ({"more": "1"}, "has an of and a floor"),
    ],
)
def test_a_step_is_read_strictly(changed, said):
    with pytest.raises(RefutedError, match=said):
        floored("x**y", "x=0..1, y=1..2", "x**y", "1/4", [-1], changed)


def test_rules_that_do_not_add_the_distance_take_no_floors():
    data = {"floors": [{"of": "x**y", "floor": "1/4"}]}
    with pytest.raises(RefutedError, match="not taken here"):
        Facts(Formula.of("x**y", "x=0..1, y=1..2"), data, Evidence({"defined": [[-1]] * 2, "apart": [[-1]]}))
    with pytest.raises(NotProvenError):  # the formula itself is undefined at 0, whatever the floor
        floored("x**(-y)", "x=0..1, y=1..2", "x**(-y)", "1/4", [-1])


def test_a_forged_floor_is_not_believed():
    """The weights of max(x, 1/8)**y, passed off as those of x**y."""
    opened = open_model(tf.compile("max(x, 1/8)**y", "x=0..1, y=1..2", 1e-2))
    opened.body["formulas"] = ["x**y"]
    opened.body["circuit"]["floors"] = [{"of": "x**y", "floor": "1/8"}]
    opened.evidence["defined"] = [[-1], [-1]]
    for tree, said in (([-1], "only 1"), ([0, 0, 0, -1, -1, -1, -1], "only 0.1"), ([0, 1], "tree")):
        opened.evidence["apart"] = [tree]
        found = verify_files(*opened.forged())
        assert not found.verified and said in " ".join(found.reasons), found.reasons
    opened.evidence["apart"] = [[0, 0, 0, -1, -1, -1, -1]]
    opened.claim |= {"approximation": 0.14, "eps": 0.2}
    assert verify_files(*opened.forged()).verified  # what is true may be claimed


def test_a_power_from_zero_is_proven():
    model = tf.compile("x**y", "x=0..1, y=1..2")
    assert model.certificate.bound <= 1e-6 and tf.verify(model).verified and "floors" in model.packed.description
    x = np.random.default_rng(0).uniform([0, 1], [1, 2], (500, 2))
    x[:250, 0] = np.concatenate([[0.0], np.geomspace(1e-12, 1e-3, 249)])
    assert np.abs(model(x) - x[:, 0] ** x[:, 1]).max() <= model.certificate.bound
