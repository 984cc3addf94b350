"""Rules of extensions and of squares, attacked: what they say is compared with mpmath, and planted faults are seen."""

import random

import mpmath
import pytest
from flint import arb

from support.faults import active, fault
from transformula.kernel.derivations.derivation_steps import Facts
from transformula.kernel.derivations.extensions import in_shares, same, split_quotient
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.parsing import parse
from truth import Truth

_RULES = "kernel.derivations."


def value(text, point):
    return Truth(str(text), list(point)).at(list(point.values()))


def angle(rng):
    terms = (f"{rng.choice((-3, -1, 1, 2, 5))}*{rng.choice(('a', 'b', 'c', 'pi', '1', 'a*b', 'exp(c)'))}/{rng.choice((1, 2, 3))}"
             for _ in range(rng.choice((1, 2, 2, 3))))  # fmt: skip
    return " + ".join(terms).replace("+ -", "- ")


def differences(count):
    """How far expressions are from those written in shares, at random points, as a part of their size."""
    rng = random.Random(5)
    for _ in range(count):
        names = rng.choices(("sin", "cos", "tan", "sinc"), k=2)
        text = f"{names[0]}({angle(rng)})*{names[1]}({angle(rng)}) + a*cos({angle(rng)})"
        (written,) = in_shares(parse(text))
        point = {name: rng.uniform(-3, 3) for name in "abc"}
        before, after = value(text, point), value(written, point)
        if before is not None and after is not None and abs(before) < 1e6:
            yield float(abs(before - after)) / max(1.0, float(abs(before)))


def test_what_is_written_in_shares_has_the_same_values():
    found = list(differences(150))
    assert len(found) > 100 and max(found) < 1e-40


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("extensions:_product", "ex.neg(ex.mul(b, d))", "ex.mul(b, d)"),
        ("extensions:_turned", "if n < 0 and j % 2 else 1", "if False else 1"),
        ("extensions:_written", "if node.op == \"tan\" else node.args[0]", "if node.op == \"tan\" else ex.number(1)"),
        ("extensions:terms_of", "times / node.args[1].number", "times"),
    ],
)  # fmt: skip
def test_faults_of_shares_are_seen(where, old, new):
    if "terms_of" in where:  # a quotient by a number is a product already: nothing reads this line wrongly
        pytest.skip("no expression has such a node")
    with active(fault("", _RULES + where, old, new, "")):
        assert max(differences(150)) > 1e-6


def signed(pair, box="a=0..1, b=0..1, c=0..1", formula="a"):
    return Facts(Formula.of(formula, box), {"signs": [pair]}, Evidence({"defined": [[-1]], "signs": [[-1]]}))


SQUARES = [
    ("1 - sin(a)*sin(b) - cos(a)*cos(b)*cos(c)", "2*sin((a-b)/2)**2*cos(c/2)**2 + 2*cos((a+b)/2)**2*sin(c/2)**2"),
    ("sin((b-a)/2)**2 + cos(a)*cos(b)*sin(c/2)**2", "sin((b-a)/2)**2*cos(c/2)**2 + cos((a+b)/2)**2*sin(c/2)**2"),
    ("1 - sin(a + b)", "(cos((a + b)/2) - sin((a + b)/2))**2"),
    ("a**2 - 2*a*b + b**2", "(a - b)**2"),
]


@pytest.mark.parametrize("pair", SQUARES, ids=str)
def test_squares_show_a_sign(pair):
    facts = signed(list(pair))
    assert facts.algebra.sign(facts.algebra.of(parse(pair[0]))) == 1


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (["1 - sin(a)*sin(b) - cos(a)*cos(b)*cos(c)", "2*sin((a-b)/2)**2"], "not seen to be"),
        (["-a", "a"], "not seen to be"),
        (["a - 2", "a"], "not seen to be"),
        (["a - 1/2", "(a - 1/2)**2/(a - 1/2)"], "undefined|sign"),  # equal where both are defined
        (["a - 1/2", "sqrt(a - 1/2)**2"], "undefined"),
        (["log(a) - 1", "log(a) - 1 + 0*log(a)"], "undefined"),
        (["sinc(a - a)", "(a - a)/(a - a)"], "undefined|zero identically|not seen"),
        (["a"], "text"),
        (["a", "a", "a"], "text"),
        ([1, 2], "text"),
    ],
)
def test_other_pairs_are_refused(pair, said):
    with pytest.raises((RefutedError, NotProvenError), match=said):
        signed(pair)


def test_a_pair_is_no_better_than_its_identity():
    """A fault that drops the comparison makes a sign of anything."""
    with active(fault("", _RULES + "derivation_steps:Facts.add_sign", "and same(of, expr, self.algebra)", "", "")):
        facts = signed(["a - 2", "a"])
        assert facts.algebra.sign(facts.algebra.of(parse("a - 2"))) == 1  # which is false


_EDGE = "sqrt(exp(" + " + ".join(f"max(a - {k}/16, 0)" for k in range(8, 13)) + ") - 1)"  # 0 where a <= 1/2
#: N/D is E > 0 but where D = 0, at a point or on half of the box; N = E D is 0 there.
DIVIDED = [
    (["(a - 1)*(sqrt(a) - 1)", "(a - 1)/(sqrt(a) - 1)", "sqrt(a) + 1"], "a=0..4"),
    ([f"({_EDGE} + {_EDGE}**2)*({_EDGE} + 2*{_EDGE}**2 + {_EDGE}**3)",
      f"({_EDGE} + 2*{_EDGE}**2 + {_EDGE}**3)/({_EDGE} + {_EDGE}**2)", f"1 + {_EDGE}"], "a=0..1"),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "box"), DIVIDED, ids=("point", "region"))
def test_a_quotient_shows_no_sign_where_its_divisor_vanishes(texts, box):
    """Else a + 0*log(N D) would count as defined on the whole box, and it is undefined where D = 0."""
    product, of, expr = texts
    with pytest.raises(RefutedError, match="not seen to be"):
        signed([of, expr], box, f"a + 0*log({product})")
    with active(fault("", _RULES + "derivation_steps:Facts.add_sign", "form.whole and ", "", "")):
        signed([of, expr], box, f"a + 0*log({product})")  # which is false


def extend(text, becomes, box):
    formula = Formula.of(text, box)
    step = {"of": text, "is": becomes, "at": dict(zip(formula.box.variables, ("1/3", "2/3"), strict=False))}
    return Facts(formula, {"extends": [step]}, Evidence({"defined": [[0, -1, -1]]})).formula.outputs[0]


@pytest.mark.parametrize(
    ("text", "becomes", "box"),
    [
        ("1/x - 1/(exp(x) - 1)", "exp_rest2(x)/(1 + x*exp_rest2(x))", "x=-1..1"),
        ("sin(sqrt(x))/sqrt(x)", "sinc(sqrt(x))", "x=0..1"),
        ("x**x", "exp(xlogx(x))", "x=0..1"),
        ("x*log(x)**2", "4*xlogx(sqrt(x))**2", "x=0..1"),
        ("x*exp(xlogx(x))*log(x)", "exp(xlogx(x))*xlogx(x)", "x=0..1"),
        ("x/tan(x)", "1/tan_rest1(x)", "x=-1..1"),
        ("(sin(x) - sin(y))/(x - y)", "cos((x + y)/2)*sinc((x - y)/2)", "x=0..1, y=0..1"),
    ],
)
def test_extensions_have_the_values_of_the_formula(text, becomes, box):
    found = extend(text, becomes, box)
    rng, names = random.Random(3), Box.of(box).variables
    for _ in range(40):
        x = [rng.uniform(*ends) for ends in Box.of(box).floats()]
        ball = enclose(found, {name: arb(v) for name, v in zip(names, x, strict=True)})
        before = value(text, dict(zip(names, x, strict=True)))
        assert abs(before - mpmath.mpf(str(ball.mid().str(40, radius=False)))) < 1e-12 + float(ball.rad())


@pytest.mark.parametrize(
    ("text", "becomes", "box"),
    [
        ("x/sqrt(x)**2", "1 + 0*x", "x=-1..1"),  # undefined for x < 0
        ("x/(sqrt(x)*sqrt(x))", "1 + 0*x", "x=-1..1"),
        ("1/x - cos(x)/x", "0*x", "x=-1..1"),
        ("1/x - 1/x + log(x)", "log(x)", "x=0..1"),
        ("x*log(x)", "xlogx(abs(x))", "x=-1..1"),  # undefined for x < 0
        ("x*log(x)", "2*xlogx(sqrt(x))", "x=0..1"),
        ("x*log(x)**2", "xlogx(x)*log(x)", "x=0..1"),  # undefined at 0
        ("x**x", "exp(xlogx(abs(x)))", "x=-1..1"),
        ("x**x", "xlogx(x)", "x=0..1"),
        ("x*log(x)**(1/2)", "xlogx(x)", "x=0..1"),
        ("y*x**(y + 0*log(y - 1/2))", "y*x**y + 0*xlogx(x)", "x=0..1, y=1/4..1"),  # undefined for y < 1/2
        ("x/tan(x)", "1/tan_rest1(x)", "x=-2..2"),  # a pole of the tangent inside
        ("sin(max(x, 0))/max(x, 0)", "sinc(max(x, 0))", "x=-1..1"),
    ],
)
def test_larger_holes_are_not_closed(text, becomes, box):
    with pytest.raises((RefutedError, NotProvenError)):
        extend(text, becomes, box)


@pytest.mark.parametrize(
    ("where", "old", "new", "case"),
    [
        ("extended", "above if stem(below) == below else ex.add(above, below)", "above",
         ("x/sqrt(x)**2", "1 + 0*x", "x=-1..1")),
        ("_is_closed", "bool(found[0] >= 0)", "True", ("x*log(x)", "xlogx(abs(x))*x/abs(x)", "x=-1..1")),
        ("_keeps_analytic", '_avoids_zero(ex.call("cos", *node.args), ends)', "True",
         ("x/tan(x)", "1/tan_rest1(x)", "x=-2..2")),
        ("extended", "if not holds:", "if False:", ("x**x", "1 + xlogx(x)", "x=0..1")),
        ("split_quotient", "a, *(c for c in below if c != b)", "a, *below[:1]",
         ("1/x - cos(x)/(x + 1)", "(1 - cos(x))/(x + 1)", "x=0..1")),
    ],
)  # fmt: skip
def test_faults_of_extensions_are_seen(where, old, new, case):
    """Without its fault the kernel refuses the step; with it, a false step comes nearer."""
    with pytest.raises((RefutedError, NotProvenError)) as sound:
        extend(*case)
    with active(fault("", _RULES + "extensions:" + where, old, new, "")):
        try:
            extend(*case)
        except (RefutedError, NotProvenError) as error:
            assert str(error) != str(sound.value), case


def test_sums_of_quotients_are_quotients():
    rng = random.Random(7)
    for text in ("1/x + y/x - 3", "1/(x*y) - 2/y**2 + x", "(1 + y)/exp(x) - x**(-2)", "2*x/y - 3/x/y"):
        above, below = split_quotient(parse(text))
        algebra = Algebra(["x", "y"])
        assert same(parse(f"({text})*({below})"), above, algebra)
        point = {name: rng.uniform(0.5, 2) for name in "xy"}
        with mpmath.workdps(60):
            assert abs(value(text, point) * value(below, point) - value(above, point)) < 1e-40


def test_a_quotient_below_a_quotient_is_opened():
    """1/(1/x) is x but at 0; a wrong numerator would make it 1."""

    def facts(as_):
        step = {"of": "1/(1/x)", "is": as_, "at": {"x": "1/2"}}
        return Facts(Formula.of("1/(1/x)", "x=-1..1"), {"extends": [step]}, Evidence({"defined": [[-1]]}))

    assert str(facts("x").formula.outputs[0]) == "x"
    with pytest.raises(RefutedError, match="not seen to extend"):
        facts("1")
    with active(fault("", _RULES + "extensions:split_quotient", "ex.mul(a, c, c)", "ex.mul(a, c)", "")):
        facts("1")
