"""Ranges, signs and definedness on the leaves of trees, found by the search and checked by the kernel."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from flint import arb, fmpq

from support.prover import random_formula
from transformula.compiler.evidence.range_trees import Tree, find_sign_tree, find_tree, sub_region
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose, from_float
from transformula.kernel.enclosures.expression_ranges import check_defined, each_once, enclose_ranges, range_on, sign_on
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.parsing import parse


def region_of(text):
    return Region.of_box(Box.of(text))


def values_at(expr, region, rng, count=30):
    """Values of an expression at random points of a region, as balls."""
    for _ in range(count):
        point = {n: a + (b - a) * fmpq(rng.randint(0, 64), 64) for n, (a, b) in region.ends.items()}
        with precision(200):
            yield enclose(expr, {n: arb(x) for n, x in point.items()})


def halves(axes, depth):
    """A full tree."""
    tree = [-1]
    for k in range(depth):
        tree = [k % axes, *tree, *tree]
    return tree


@pytest.mark.parametrize("seed", range(30))
def test_ranges_contain_the_values_and_get_better_by_cutting(seed):
    rng = random.Random(seed)
    expr = random_formula(7000 + seed, ["x", "y"])
    region = sub_region(region_of("x=-1/3..1, y=0.1..1.7"), sorted(expr.names))
    last = None
    for tree, share in (([-1], 0), (halves(len(region.names), 4), 1e-12), (find_tree(expr, region), 4e-3)):
        low, high = range_on(expr, region, tree)
        for value in values_at(expr, region, rng):
            assert arb(low) <= value.upper() and value.lower() <= arb(high)
        if last is not None and tree[0] >= 0:
            slack = share * (abs(last[0]) + abs(last[1]))
            assert low >= last[0] - slack and high <= last[1] + slack
        last = low, high


@pytest.mark.parametrize(
    ("text", "box", "low", "high", "slack"),
    [
        ("x*(1-x)*sin(y)", "x=0..1, y=0..3", 0, 0.25, 1e-3),
        ("sqrt(x**2 + y**2) - x", "x=0..1, y=0..1", 0, 1, 3e-3),
        ("abs(x-y)*x/(1+y**2)", "x=-1..1, y=0..2", -1.2071068, 1, 5e-3),
        ("sqrt(exp(x) - x - 1/2)", "x=-3..3", 0.70710678, 4.0725344, 5e-3),
        ("x - x", "x=0..1", 0, 0, 1e-12),
        ("x**2 - 2*x + 1", "x=0..2", 0, 1, 3e-3),
    ],
)
def test_found_trees_make_the_range_tight(text, box, low, high, slack):
    expr, region = parse(text), region_of(box)
    tree = find_tree(expr, region)
    found = range_on(expr, region, tree)
    assert low - slack <= found[0] <= low + 1e-7 and high - 1e-7 <= found[1] <= high + slack
    assert len(tree) < 12_001


def test_expressions_with_each_variable_once_need_no_cut():
    expr, region = parse("exp(x)*sin(y) + 1/3"), region_of("x=0..1, y=0..3")
    assert each_once(expr) and not each_once(parse("x*sin(x)")) and not each_once(parse("sin(x) + sin(x)"))
    assert find_tree(expr, region) == [-1]
    low, high = range_on(expr, region, [-1])
    assert low <= 1 / 3 and low >= np.nextafter(1 / 3, 0) and abs(high - (np.e + 1 / 3)) < 1e-15


def test_a_tree_is_cut_where_the_expression_is_not_seen_to_be_defined():
    expr, region = parse("x*sqrt(exp(x) - x - 1/2)"), region_of("x=-3..3")
    with pytest.raises(NotProvenError, match=r"may be undefined or unbounded near x = -3..3"):
        range_on(expr, region, [-1])
    low, high = range_on(expr, region, find_tree(expr, region))
    assert low <= -4.7 and high >= 12.2 and high - low < 17.2
    assert range_on(expr, region, [-1], {parse("sqrt(exp(x) - x - 1/2)")})[1] >= 12.2


def test_a_range_that_is_not_finite_is_a_refusal():
    with pytest.raises(NotProvenError):
        range_on(parse("x/(y - y + x)"), region_of("x=-1..1, y=0..1"), [-1])
    with pytest.raises(NotProvenError):
        range_on(parse("log(0*x - 1)"), region_of("x=0..1"), [0, -1, -1])
    with pytest.raises(NotProvenError):
        range_on(parse("x*exp(x)"), region_of("x=0..5000"), [-1])
    for tree in ([0], None, [5, -1, -1], "x"):
        with pytest.raises(RefutedError):
            range_on(parse("x*x - x"), region_of("x=-1..1"), tree)


@pytest.mark.parametrize(
    ("text", "box", "sign"),
    [
        ("x", "x=0..1", 1),
        ("-x**2", "x=-1..1", -1),
        ("x**2 + y**2 - x*y + 1/1000", "x=-1..1, y=-1..1", 2),
        ("cos(x) - 1", "x=-1..9", -1),
        ("sin(x) - x", "x=1/10..3", -2),
        ("x - x**2", "x=0..1", 1),
        ("x**2 - x", "x=0..1/2", -1),
        ("x*y - x**2*y", "x=0..1, y=0..1", None),
        ("x - x**3 + 1/100", "x=0..1", 2),
        ("x - 0.1", "x=0.1..1", 1),
    ],
)
def test_signs_are_found_and_seen(text, box, sign):
    expr, region = parse(text), region_of(box)
    if sign is None:  # on y = 0 and at both ends of x: too flat for halvings
        with pytest.raises(NotProvenError, match="is not seen"):
            find_sign_tree(expr, region, max_boxes=300)
        return
    tree = find_sign_tree(expr, region)
    assert sign_on(expr, region, tree) == sign


@pytest.mark.parametrize(
    ("text", "box"),
    [("x - y", "x=0..1, y=0..1"), ("x**2 - 1e-9", "x=-1..1"), ("sin(x) - x + 1e-9", "x=0..1"), ("x", "x=-1e-30..1")],
)
def test_both_signs_are_never_seen_as_one(text, box):
    expr, region = parse(text), region_of(box)
    with pytest.raises(NotProvenError):
        find_sign_tree(expr, region)
    for depth in (0, 3, 9):
        with pytest.raises(NotProvenError):
            sign_on(expr, region, halves(len(region.names), depth))


def test_a_sign_needs_a_defined_expression():
    with pytest.raises(NotProvenError, match=r"sqrt\(x\)"):
        sign_on(parse("1 + sqrt(x)"), region_of("x=-1..1"), halves(1, 3))
    assert sign_on(parse("1 + sqrt(x)"), region_of("x=-1..1"), [-1], {parse("sqrt(x)")}) == 2


def test_definedness_is_checked_on_every_leaf():
    expr, region = parse("log(x**2 - x + 1/2)"), region_of("x=-1..1")
    with pytest.raises(NotProvenError, match="log") as error:
        check_defined(expr, region, [-1])
    assert "x = -1..1" in error.value.place
    with pytest.raises(NotProvenError):  # the left half is fine, the right one is not yet
        check_defined(expr, region, [0, 0, -1, -1, -1])
    check_defined(expr, region, halves(1, 4))
    check_defined(parse("sqrt(x)"), region_of("x=-1..1"), [-1], [parse("sqrt(x)")])


@pytest.mark.parametrize("seed", range(20))
def test_taylor_ranges_contain_the_values(seed):
    rng = np.random.default_rng(seed)
    expr = random_formula(3000 + seed, ["x", "y"])
    lower = rng.uniform(-1, 1, (2, 12))
    upper = lower + 10.0 ** rng.uniform(-3, 0, (2, 12))
    low, high = enclose_ranges(expr, ["x", "y"], lower, upper)
    assert np.isfinite(low).any()
    for k in range(12):
        for t in rng.integers(0, 65, (10, 2)):
            x = [from_float(a) + (from_float(b) - from_float(a)) * int(s) / 64
                 for a, b, s in zip(lower[:, k], upper[:, k], t, strict=True)]  # fmt: skip
            with precision(150):
                value = enclose(expr, {"x": arb(x[0]), "y": arb(x[1])})
                assert not value.is_finite() or (arb(low[k]) <= value.upper() and value.lower() <= arb(high[k]))


def test_many_variables_are_affordable():
    names = [f"x{k}" for k in range(1, 201)]
    expr = parse(" + ".join(f"{n}*{m}" for n, m in pairwise(names)))
    low, high = range_on(expr, region_of("x1..x200=0..1"), [0, -1, -1])
    assert -1e-9 <= low <= 0 and 199 <= high <= 300


@pytest.mark.parametrize("seed", range(5))
def test_growing_trees_keep_their_order(seed):
    rng = random.Random(seed)
    tree = Tree([0, 1, -1, -1, -1])
    assert tree.preorder() == [0, 1, -1, -1, -1] and len(tree.start) == 3
    leaves = list(tree.start)
    for _ in range(20):
        child = tree.split(leaves.pop(rng.randrange(len(leaves))), rng.randrange(2))
        leaves += [child, child + 1]
    again = Tree(tree.preorder())
    assert again.preorder() == tree.preorder() and len(again.start) == len(leaves) == 23
