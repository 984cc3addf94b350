"""Where a formula is defined: trees that the kernel accepts, and refusals that say what breaks and what would work."""

from __future__ import annotations

import re

import pytest

from support.watching import ends
from transformula.compiler import policy
from transformula.compiler.evidence.definedness import find_defined
from transformula.kernel.enclosures.expression_ranges import check_defined
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.parsing import parse


def region_of(text):
    return Region.of_box(Box.of(text))


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("sqrt(x)", "x=0..1"),
        ("sqrt(x - 1/10)", "x=0.1..1"),
        ("sqrt(1 - x**2)", "x=-1..1"),
        ("asin(x*y)", "x=-1..1, y=-1..1"),
        ("sqrt(1 - cos(x))", "x=-4..4"),
        ("asin(n*sin(t))", "n=0..1, t=0..3"),
        ("acos(l/(n*d))", "l=0..2, n=1..2, d=2..3"),
        ("x**pi", "x=0..1"),
        ("sqrt(x - x**3)", "x=0..1"),
        ("sqrt(x - x**2)", "x=0..1"),
        ("1/(1.001 - x**2)", "x=0..1"),
        ("1/(x**2 - x + 1)", "x=0..1"),
        ("log(1.1 - sin(x)**2)", "x=0..9"),
        ("tan(x)", "x=-1.57..1.57"),
        ("acos(1 - x)", "x=0..1"),
        ("sqrt(exp(x) - x - 1/2)", "x=-3..3"),
        ("log(x**2 - x*y + y**2 - 1/6)", "x=1/2..1, y=-1..1"),
        ("x*y/(x + y - 1)", "x=1..2, y=0.001..2"),
    ],
)
def test_defined_formulas_get_a_tree_that_the_kernel_accepts(text, box):
    expr, region = parse(text), region_of(box)
    tree = find_defined(expr, region)
    check_defined(expr, region, tree)
    assert len(tree) < 4000


@pytest.mark.parametrize(
    ("text", "box", "part"),
    [
        ("1/x", "x=-1..1", "1/x"),
        ("2 + log(x)", "x=0..1", "log(x)"),
        ("tan(x)", "x=0..2", "tan(x)"),
        ("sqrt(x)", "x=-1..1", "sqrt(x)"),
        ("sqrt(x)", "x=-1e-30..1", "sqrt(x)"),
        ("asin(2*x)", "x=0..1", "asin(2*x)"),
        ("x**(-1/2)", "x=0..1", "x**(-1/2)"),
        ("sin(x)/x", "x=-1..1", "sin(x)/x"),
        ("exp(x)/(x-y)", "x=0..1, y=0..1", "exp(x)/(x - y)"),
        ("log(x*y - z)", "x=0..1, y=0..1, z=0..1", "log"),
        ("1/(x**2 + y**2 - 1/3)", "x=-1..1, y=-1..1", "1/"),
        ("sqrt(x*x - 2*x*y + y*y + min(0, x + 1/2))", "x=-1..1, y=-1..1", "sqrt("),
        ("sqrt((x - 0.123456789)**2 - 1e-24)", "x=0..1", "sqrt("),
        ("x*log(-1)", "x=0..1", "log(-1)"),
        ("sqrt(sin(x))", "x=0..pi", "sqrt(sin(x))"),  # pi is not a float: not seen
    ],
)
def test_undefined_formulas_are_refused_by_name(text, box, part):
    with ends(), pytest.raises(NotProvenError, match="undefined or unbounded") as error:
        find_defined(parse(text), region_of(box))
    assert part in str(error.value) and error.value.place


def test_nodes_known_to_be_defined_are_trusted():
    expr, region = parse("sqrt(sin(x)) + 1/(1 + x)"), region_of("x=0..pi")
    assert find_defined(expr, region, {parse("sqrt(sin(x))")}) == [-1]
    with pytest.raises(NotProvenError):
        find_defined(expr, region, {parse("1/(1 + x)")})


def test_a_budget_that_runs_out_is_a_refusal(monkeypatch):
    expr, region = parse("log(x**2 - x*y + y**2 - 1/6)"), region_of("x=1/2..1, y=-1..1")
    assert len(find_defined(expr, region)) > 9
    monkeypatch.setattr(policy, "DEFINED_PARTS", 2)
    monkeypatch.setattr(policy, "MOST_PIECES", 1)
    with pytest.raises(NotProvenError, match="2 parts of the box were examined"):
        find_defined(expr, region)


@pytest.mark.parametrize(
    ("formula", "box", "said"),
    [
        ("1/x", "x=-1..1", "x=0.0312..1 would work"),
        ("log(x - y)", "x=0..1, y=0..1", "x - y may reach -1..1"),
        ("sqrt(1 - x**2 - y**2)", "x=-1..1, y=-1..1", "would work"),
        ("a*b/(c - d)", "a=0..1, b=0..1, c=1..2, d=1..2", "would work"),
        ("acos(x*y)", "x=0..2, y=0..1", "x*y may reach 0..2"),
        ("asin(x + y)", "x=0..1, y=0..1", "asin(x + y) is undefined or unbounded near x = 1, y = 1"),
        ("sqrt(1 - x**2 - y**2 - z**2)", "x=0..1, y=0..1, z=0..1", "is undefined or unbounded near"),
        ("log(1 - x**2)", "x=-1..1", "is undefined or unbounded near x = -1 "),
        ("1/(x - y)", "x=0..1, y=1..2", "is undefined or unbounded near x = 1, y = 1 "),
    ],
)
def test_a_refusal_names_the_range_and_a_box_that_works(formula, box, said):
    with pytest.raises(NotProvenError) as error:
        find_defined(parse(formula), region_of(box))
    message = str(error.value)
    assert said in message and "would work" in message
    smaller = re.search(r"from there; (.*) would work", message).group(1)
    parts = {p.split("=")[0].strip(): p.split("=")[1] for p in f"{box}, {smaller}".split(",")}
    find_defined(parse(formula), region_of(", ".join(f"{n}={i}" for n, i in parts.items())))


def test_no_box_is_suggested_where_none_can_be():
    with pytest.raises(NotProvenError) as error:
        find_defined(parse("log(0*x - 1)"), region_of("x=0..1"))
    assert "would work" not in str(error.value)
