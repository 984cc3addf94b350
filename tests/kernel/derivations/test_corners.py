"""Corners: quotients that are continuous where their divisor vanishes, what is added to the error, and forged steps."""

import math
import random

import mpmath as mp
import pytest

import transformula as tf
from support.faults import active, fault
from support.folders import open_model
from transformula.kernel.check import verify_files
from transformula.kernel.derivations.derivation_steps import Facts
from transformula.kernel.exceptions import NotProvenError, RefutedError, TransformulaError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import to_text

_RULE = "kernel.derivations.floors:"
_D = "1/64"
#: log(max(x, d)) − log(1 + x'/y'), so that exp of it is x'*y'/(x' + y').
_HARMONIC = f"exp(log(max(x, {_D})) - log(1 + exp(log(max(x, {_D})) - log(max(y, {_D})))))"
_STEP = {"of": "x*y/(x + y)", "is": _HARMONIC, "within": ["x + y", "x", "y"], "at": {"x": "1", "y": "1/2"}}
_BOX = "x=0..1, y=0..1"


def facts(text, box=_BOX, step=None, tree=(-1,), signs=("x", "y")):
    data = {"floors": [_STEP | (step or {})], "signs": list(signs)}
    evidence = Evidence({"defined": [[-1]] * 2, "signs": [[-1]] * 4, "apart": [list(tree)]})
    return Facts(Formula.of(text, box), data, evidence, floors=True)


def function(text, names):
    known = {name: getattr(mp, name) for name in ("exp", "log", "sqrt")} | {"max": max, "abs": abs}
    whole = "".join(f"mpf({part})" if part.isdigit() else part for part in _tokens(text))
    return eval(f"lambda {', '.join(names)}: {whole}", known | {"mpf": mp.mpf})


def _tokens(text):
    part = ""
    for c in text:
        if part and not (part.isdigit() and c.isdigit()) and not (part.isalnum() and c.isalnum()):
            yield part
            part = ""
        part += c
    yield part


def farthest(text, proven, tries=400):
    """The largest distance of the formula and the floored one that is found, near the edges above all."""
    box, rng = proven.formula.box, random.Random(1)
    f, g = (function(t, box.variables) for t in (text, to_text(proven.formula.outputs[0])))
    worst, at = mp.mpf(0), None
    with mp.workdps(50):
        ends = [(mp.mpf(a), mp.mpf(b)) for a, b in box.floats()]
        for k in range(tries):
            near = rng.choice([1, 2, 3, 30])
            drawn = [a + (b - a) * mp.mpf(rng.random()) * mp.mpf(10) ** (-rng.random() * near) for a, b in ends]
            moved = [
                min(max(x * mp.mpf(10) ** rng.gauss(0, 0.2), a), b) for x, (a, b) in zip(at or drawn, ends, strict=True)
            ]
            point = moved if k > tries // 2 else drawn
            found = abs(f(*point) - g(*point))
            worst, at = max((worst, at), (found, point), key=lambda item: item[0])
    return float(worst)


_HUMP = "4096*{x}**2*(1/16 - {x})**2/({x} + y)"
#: Formula, box, and changes of the step.
CASES = [
    ("x*y/(x + y)", _BOX, {}),
    ("z + x*y/(x + y)", _BOX + ", z=-3..5", {}),
    ("z/(1 + x*y/(x + y))", _BOX + ", z=0..1", {}),
    ("exp(3*(x*y/(x + y))) - x", _BOX, {}),
    ("abs(x*y/(x + y) - 1/128)", _BOX, {}),
    ("x*y/(x + y)", _BOX, {}, (0, 1, -1, -1, 1, 0, -1, -1, -1)),
    ("-x*y/(x + y)", _BOX, {"of": "-x*y/(x + y)", "is": "-" + _HARMONIC}),
    ("x*y/sqrt(x**2 + y**2)", _BOX, {
        "of": "x*y/sqrt(x**2 + y**2)", "within": ["sqrt(x**2 + y**2)", "x", "y"],
        "is": f"exp(log(max(x, {_D})) - log(1 + exp(2*log(max(x, {_D})) - 2*log(max(y, {_D}))))/2)"}),
    (_HUMP.format(x="x"), _BOX, {
        "of": _HUMP.format(x="x"), "within": ["4096*(1/16 - x)**2*(x + y)", "4096*(1/16 - x)**2*x"],
        "is": _HUMP.format(x="max(x, 1/16)")}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_the_distance_is_true(case):
    proven = facts(*case)
    assert 0 < farthest(case[0], proven) <= proven.apart <= 1


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("_most", "max(one[1] - other[0], other[1] - one[0])", "max(one[0] - other[0], other[0] - one[0])"),
        ("Corner.range", "known))[1] for e", "known))[0] for e"),
        ("Corner.range", "else -most, most", "else -most, fmpq(0)"),
        ("Floors.apart_on", "if leaf[n][0] < d]", "if leaf[n][1] < d]"),
        ("Floors.apart_on", "slabs + own", "slabs"),
        ("Floors.apart_on", "(min(a, there[n][0]), max(b, there[n][1]))", "(a, a)"),
        ("_by_slopes", "abs(partial(expr, name, hull)) * arb(by)", "arb(by)"),
    ],
)
def test_faults_of_the_distance_are_seen(where, old, new):
    with active(fault("", _RULE + where, old, new, "")):
        found = [(farthest(case[0], proven), proven.apart) for case in CASES for proven in [facts(*case)]]
    assert any(seen > apart for seen, apart in found)


#: Steps that would be false by the check that a fault leaves out: they are refused, and taken where it is missing.
FALSE = [
    ("x/(x + y)", "if not any(_factors(b)", "if not any(True or _factors(b)", "is seen to be zero where",
     {"within": ["1"], "is": f"max(x, {_D})/(max(x, {_D}) + max(y, {_D}))"}),
    ("x*y/(x + y)**3", "if self._sign(ex.add(", "if False and self._sign(ex.add(", "is not seen to be within",
     {"within": ["x + y"], "is": f"x*max(y, {_D})/(x + max(y, {_D}))**3"}),
    ("x*y/(x + y)", "if not same(", "if False and not same(", "without its floors is not seen to be",
     {"is": f"max(x, {_D})*max(y, {_D})"}),
    ("x*y/(x + y)", "or not rest.names.isdisjoint(floors)", "", "has no floors of variables",
     {"is": f"{_HARMONIC}*exp(99*(max(x, {_D}) - x))"}),
    ("x*y/(x + y)", "len(floors) < len(floored) or", "", "has no floors of variables",
     {"is": f"{_HARMONIC}*exp(50*(max(x, 1/8) - max(x, {_D})))"}),
    ("x*y/(x + y)", "or not below", "", "has no floors of variables", {"is": _HARMONIC.replace(_D, "1")}),
    ("x*y/(x + y)", "if not sign_at(b,", "if False and not sign_at(b,", "not seen to be other than zero",
     {"at": {"x": "0", "y": "0"}}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "old", "new", "said", "changed"), FALSE, ids=[case[1] for case in FALSE])
def test_every_check_of_a_step_is_needed(text, old, new, said, changed):
    step = {"of": text} | changed
    with pytest.raises(RefutedError, match=said):
        facts(text, step=step)
    with active(fault("", _RULE + "Floors._add_corner", old, new, "")):
        proven = facts(text, step=step)
    if "below" not in old and "sign_at" not in old and text != "x/(x + y)":  # which has no limit; two refuse too much
        assert farthest(text, proven) > proven.apart


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"within": "x"}, "has an of and a floor"),
        ({"more": 1}, "has an of and a floor"),
        ({"within": []}, "no bound"),
        ({"within": ["x", "y"]}, "no bound"),
        ({"within": ["x + y", "q"]}, "cannot be read"),
        ({"within": ["(x + y)/2", "x - y"]}, "not seen to be within x - y"),
        ({"at": {"x": "1"}}, "measure zero"),
        ({"at": 1}, "measure zero"),
        ({"at": {"x": "2", "y": "1"}}, "outside the box"),
        ({"is": "x*y/(x + y)"}, "may be undefined"),
        ({"is": 1}, "must be text"),
        ({"is": _HARMONIC.replace("max(x, ", "max(x, 2*x - 1/2, ")}, "without its floors is not seen to be"),
        ({"is": _HARMONIC.replace(f"max(x, {_D})", f"max({_D}, x)")}, "without its floors is not seen to be"),
        ({"of": "x*y/(x + y) + 0*log(x)"}, "may be undefined"),
    ],
)
def test_a_step_is_read_strictly(changed, said):
    with pytest.raises((RefutedError, NotProvenError), match=said):
        facts("x*y/(x + y)", step=changed)


def test_signs_that_are_not_proven_do_not_bound():
    with pytest.raises(RefutedError, match="not seen to be within"):
        facts("x*y/(x + y)", signs=["x"])
    with pytest.raises((RefutedError, NotProvenError)):
        facts("x*y/(x + y)", "x=-1..1, y=0..1")


@pytest.mark.parametrize("text", ["log(x*y/(x + y))", "1/(x*y/(x + y))", "sqrt(x*y/(x + y) - 1/4)", "x**(x*y/(x + y))"])
def test_a_formula_undefined_at_the_corner_stays_refused(text):
    with pytest.raises(TransformulaError):
        facts(text)


def test_random_steps_prove_nothing_false():
    """A few of the many that were tried when the rule was made; all that are taken are attacked."""
    rng, taken = random.Random(7), 0
    pool = ["x", "y", "x + y", "x*y", "sqrt(x*y)", "2*(x + y)", "1/4", "(x + y)**2", "sqrt(x + y)", "x/2", "(x + y)/4"]
    texts = ["x*y/(x + y)", "x**2/(x + y)", "x**2*y/(x + y)", "x*y/sqrt(x + y)", "x/(x + y)", "x*y/(x + y)**2"]
    for _ in range(200):
        a, b = (rng.choice([f"max({name}, 1/{2 ** rng.randint(1, 9)})"] * 5 + [name]) for name in "xy")
        made = [text.replace("x", "#").replace("y", b).replace("#", a) for text in texts]
        text = rng.choice(texts)
        step = {"of": text, "is": made[texts.index(text)] if rng.random() < 0.7 else rng.choice(made)}
        try:
            within = rng.choice([["x + y", "x", "y"], ["(x + y)**2", "x*y"], ["x + y"], []])
            proven = facts(text, step=step | {"within": within + rng.sample(pool, rng.choice([0, 0, 1, 2]))})
        except TransformulaError:
            continue
        taken += 1
        assert text not in texts[4:] and farthest(text, proven, 100) <= proven.apart, (text, step)
    assert taken > 5


def test_a_forged_folder_is_not_believed():
    """The weights of the floored formula, passed off as those of the quotient."""
    opened = open_model(tf.compile(_HARMONIC.replace(_D, "1/8"), _BOX, 1e-2))
    opened.body["formulas"] = ["x*y/(x + y)"]
    step = _STEP | {"is": _HARMONIC.replace(_D, "1/8")}
    opened.body["circuit"] |= {"floors": [step], "signs": ["x", "y"]}
    opened.evidence |= {"defined": [[-1], [-1]], "signs": [[-1], [-1]]}
    tree = [0, 1, -1, -1, 1, -1, -1]
    for apart, within, said in (
        ([-1], ["x + y", "x", "y"], "only "),
        (tree, ["x + y", "x*y"], "not seen to be within"),
    ):
        opened.evidence["apart"], step["within"] = [apart], within
        found = verify_files(*opened.forged())
        assert not found.verified and said in " ".join(found.reasons), found.reasons


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("x*y/(x + y)", _BOX),
        ("1/(1/x + 1/y)", _BOX),
        ("z - 2*x*y/(x + y)", "x=0..1000, y=0..1000, z=0..1"),
        ("x*y/sqrt(x^2 + y^2)", _BOX),
        ("x^2/(x + y)", _BOX),
    ],
)
def test_a_corner_is_proven(text, box):
    model = tf.compile(text, box, rel=1e-6)
    assert tf.verify(model).verified and "within" in str(model.packed.description)
    f = function(text.replace("^", "**"), Formula.of(text, box).box.variables)
    rng = random.Random(0)
    for _ in range(200):
        point = [b * 10 ** (-rng.random() * 12) for _, b in Formula.of(text, box).box.floats()]
        assert abs(float(f(*map(mp.mpf, point))) - float(model(point))) <= model.certificate.bound
    assert math.isfinite(float(model([0.0] * len(point))))
