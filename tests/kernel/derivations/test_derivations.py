"""Removable singularities, domains that follow from signs, and outputs that must be the formula."""

import pytest
from flint import fmpq

from transformula.kernel.derivations.derivation_steps import Facts, check_equal, defined_nodes
from transformula.kernel.derivations.extensions import extended, is_analytic
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.parsing import parse


def extend(text, of, as_, at, box="x=-1..1, y=-1..2"):
    region = Region.of_box(Box.of(box))
    algebra = Algebra(region.names)
    step = {"of": of, "is": as_, "at": at}
    (result,), _ = extended([parse(text, region.names)], step, region, algebra)
    return str(result)


@pytest.mark.parametrize(
    ("text", "of", "as_", "at", "wanted"),
    [
        ("y + sin(x)/x", "sin(x)/x", "sinc(x)", {"x": "1/2"}, "y + sinc(x)"),
        ("sin(x*y)/x", "sin(x*y)/x", "y*sinc(x*y)", {"x": "1"}, "y*sinc(x*y)"),
        ("sin(x)**2/x**2", "sin(x)**2/x**2", "sinc(x)**2", {"x": "-1"}, "sinc(x)**2"),
        ("(x**2 - y**2)/(x - y)", "(x**2 - y**2)/(x - y)", "x + y", {"x": "1", "y": "0"}, "x + y"),
        ("sin(x)*x**(-1)", "sin(x)*x**(-1)", "sinc(x)", {"x": "1"}, "sinc(x)"),
        ("abs(y)*sin(x)/(2*x)", "abs(y)*sin(x)/(2*x)", "abs(y)*sinc(x)/2", {"x": "1"}, "1/2*abs(y)*sinc(x)"),
        ("(exp(2*x) - 1)/(exp(x) - 1)", "(exp(2*x) - 1)/(exp(x) - 1)", "exp(x) + 1", {"x": "1"}, "exp(x) + 1"),
        ("x/log(x + 2)", "x/log(x + 2)", "x/log(x + 2)", {"x": "1/2"}, "x/log(x + 2)"),
        ("y*log(y)", "y*log(y)", "xlogx(y)", {"y": "1"}, "xlogx(y)"),
        ("x*y**2*log(y)", "x*y**2*log(y)", "x*y*xlogx(y)", {"y": "1"}, "x*y*xlogx(y)"),
        ("abs(y)*log(abs(y))", "abs(y)*log(abs(y))", "xlogx(abs(y))", {"y": "1"}, "xlogx(abs(y))"),
        (
            "((x+2)**y - 1)/y",
            "((x+2)**y - 1)/y",
            "(exp(y*log(x+2)) - 1)/y",
            {"x": "0", "y": "1"},
            "(exp(y*log(x + 2)) - 1)/y",
        ),
    ],
)
def test_removable_singularities_are_removed(text, of, as_, at, wanted):
    assert extend(text, of, as_, at) == wanted


@pytest.mark.parametrize(
    ("text", "of", "as_", "at", "message"),
    [
        ("sin(x)/x", "sin(y)/y", "sinc(y)", {"y": "1"}, "has no"),
        ("sin(x)/x", "sin(x)/x", "sinc(2*x)", {"x": "1"}, "not seen to extend"),
        ("cos(x)/x", "cos(x)/x", "cos(x)/x", {"x": "0"}, "other than zero"),
        ("sin(x)/x", "sin(x)/x", "sinc(x)", {}, "measure zero"),
        ("sin(x)/x", "sin(x)/x", "sinc(x)", {"x": "pi"}, "rational"),
        ("sin(x)/x", "sin(x)/x", "sinc(x)", {"x": 1}, "cannot be read"),
        ("sin(x)/x", "sin(x)/x", "sinc(", {"x": "1"}, "cannot be read"),
        # max(x, 0) is zero on half of the box: 1/max(x, 0)*max(x, 0) is undefined there, not 1
        ("max(x, 0)/max(x, 0)", "max(x, 0)/max(x, 0)", "1", {"x": "1"}, "measure zero"),
        ("(x + abs(x))/(x + abs(x))", "(x + abs(x))/(x + abs(x))", "1", {"x": "1"}, "measure zero"),
        ("(x - x)/(x - x)", "(x - x)/(x - x)", "1", {"x": "1"}, "other than zero"),
        ("sin(x)", "sin(x)", "sin(x)", {}, "measure zero"),
        ("sin(x)/x", "sin(x)/x", "sinc(x)", {"x": "2"}, "outside the box"),
        ("sin(x)/x", "sin(x)/x", "sinc(x)", {"x": "1", "z": "0"}, "measure zero"),
        # a denominator that is analytic only on a part of the box, or not at one of its ends
        ("x/log(x)", "x/log(x)", "x/log(x)", {"x": "1"}, "measure zero"),
        ("1/(2 + 1/x)", "1/(2 + 1/x)", "x/(2*x + 1)", {"x": "1"}, "measure zero"),
        ("1/(1/x)", "1/(1/x)", "x", {"x": "0"}, "other than zero"),
        ("1/(1/x)", "1/(1/x)", "1", {"x": "1"}, "not seen to extend"),
        ("1/(1/abs(x))", "1/(1/abs(x))", "2*abs(x)", {"x": "1"}, "not seen to extend"),
        ("x/(y**x)", "x/(y**x)", "x/(y**x)", {"x": "1", "y": "1"}, "measure zero"),
        # products with a logarithm
        ("y*log(y)", "y*log(y)", "2*xlogx(y)", {"y": "1"}, "not seen to extend"),
        ("y*log(y)", "y*log(y)", "xlogx(2*y)", {"y": "1"}, "measure zero|not seen to extend"),
        ("log(y)*log(y)", "log(y)*log(y)", "xlogx(y)", {"y": "1"}, "measure zero|not seen to extend"),
        ("y*log(y)", "y*log(y)", "xlogx(y)", {"y": "-1"}, "other than zero"),
        ("max(y, 0)*log(max(y, 0))", "max(y, 0)*log(max(y, 0))", "xlogx(max(y, 0))", {"y": "1"}, "measure zero"),
    ],
)
def test_false_extensions_are_refused(text, of, as_, at, message):
    with pytest.raises(RefutedError, match=message):
        extend(text, of, as_, at)


@pytest.mark.parametrize("step", [None, [], {"of": "sin(x)/x"}, {"of": 1, "is": 2, "at": {}},
                                  {"of": "sin(x)/x", "is": "sinc(x)", "at": ["x"]}])  # fmt: skip
def test_malformed_steps_are_refused(step):
    region = Region.of_box(Box.of("x=-1..1"))
    with pytest.raises(RefutedError):
        extended([parse("sin(x)/x", "x")], step, region, Algebra("x"))


def test_analytic():
    good = ["x", "x**3/pi - sin(x)", "exp(sinc(x))*sqrt(2)", "x/(1 + sqrt(2))", "atan(x)", "2**x", "log(x + 2)",
            "1/(x - 2)", "sqrt(2 - x)", "(x + 2)**x", "asin(x/2)", "(x + 2)**(-3/2)", "tan(x)"]  # fmt: skip
    bad = [
        "1",
        "1/x",
        "abs(x)",
        "x**(-1)",
        "x**(1/2)",
        "sqrt(x + 1)",
        "asin(x)",
        "(x + 1)**x",
        "log(x + 1)",
        "cbrt(x)",
        "lambertw(x + 2)",
        "abs(x + 2)",
        "max(x, 2)",
        "log(x)",
        "x/sin(0)",
        "tan(2*x)",
        "max(x, 0)",
        "sqrt(0-1)*x",
    ]
    assert [t for t in good + bad if is_analytic(parse(t, "x"), {"x": (fmpq(-1), fmpq(1))})] == good


def test_domains_follow_from_signs():
    algebra = Algebra(["x", "y"])
    for text, sign in (("x + y", 1), ("1 - x*y", 1), ("1 + x*y", 2), ("y - 3", -2)):
        algebra.learn(algebra.of(parse(text)), sign)

    def seen(text):
        return parse(text) in defined_nodes(parse(text), algebra)

    for text in ("sqrt(2*x + 2*y)", "(y + x)**(1/3)", "asin(x*y)", "acos(-x*y)", "1/(3 - y)", "log(1 + x*y)",
                 "(y - 3)**(-2)", "(2 + 2*x*y)**x", "log(exp(x))", "(3 - y)**(-1/2)"):  # fmt: skip
        assert seen(text), text
    for text in ("sqrt(x)", "log(x + y)", "1/(x + y)", "asin(x)", "(x + y)**(-1/2)", "(x + y)**y", "tan(x)", "x + y",
                 "log(y - 3)", "1/(y - y)"):  # fmt: skip
        assert not seen(text), text


def test_an_output_that_is_not_the_formula_is_named():
    algebra = Algebra(["x"])
    check_equal(0, parse("x*x"), algebra.of(parse("x**2")), algebra)
    with pytest.raises(RefutedError, match=r"output 2 .* the formula x\*\*3"):
        check_equal(1, parse("x**3"), algebra.of(parse("x**2")), algebra)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [("(sin(x) + 0*log(x))/x", "sinc(x)"), ("sqrt(x)*sqrt(x)/x", "1 + 0*x"), ("sin(x)/x", "sinc(x)")],
)
def test_a_quotient_is_extended_only_if_its_numerator_is_defined_on_the_whole_box(text, becomes):
    """The first two formulas are undefined for x <= 0, which no extension over zeros of the divisor repairs."""
    data = {"extends": [{"of": text, "is": becomes, "at": {"x": "1"}}]}
    formula, evidence = Formula.of(text, "x=-1..1"), Evidence({"defined": [[-1]]})
    if text == "sin(x)/x":
        assert str(Facts(formula, data, evidence).formula) == "sinc(x)"
    else:
        with pytest.raises(NotProvenError):
            Facts(formula, data, evidence)
