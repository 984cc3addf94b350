"""Interval ranges with exact ends: enclosure against Arb at points, exactness, strict domains."""

from __future__ import annotations

import random

import pytest
from flint import arb, ctx, fmpq

from support.watching import ends
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.enclosures.intervals import UndefinedError, corner_range, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.parsing import parse


def on(box):
    return Region.of_box(Box.of(box)).ends


def of(text, box, defined=()):
    return range_of(parse(text), on(box), [parse(d) for d in defined])


def random_text(rng, depth):
    if depth == 0:
        return rng.choice(["x", "y", "z", "pi", "E", "1/3", "2", "-0.7", "10"])
    inner = [random_text(rng, rng.randrange(depth)) for _ in range(3)]
    kind = rng.randrange(9)
    if kind == 0:
        return f"({inner[0]} + {inner[1]} - {inner[2]})"
    if kind == 1:
        return f"({inner[0]})*({inner[1]})*({inner[0]})"
    if kind == 2:
        return f"({inner[0]})/({inner[1]})"
    if kind == 3:
        return f"({inner[0]})**({rng.choice(['2', '3', '0', '-1', '1/2', '-3/2', '5/3', '17'])})"
    if kind == 4:
        return f"({inner[0]})**({inner[1]})"
    if kind == 5:
        return f"{rng.choice(['min', 'max'])}({', '.join(inner)})"
    names = ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "sqrt", "abs"]
    return f"{rng.choice([*names, 'sinc'])}({inner[0]})"


@pytest.mark.parametrize("seed", range(6))
def test_ranges_enclose_what_arb_says_at_points(seed):
    rng = random.Random(seed)
    checked = 0
    for _ in range(250):
        expr = parse(random_text(rng, 4), ["x", "y", "z"])
        values = {}
        for name in "xyz":
            low = fmpq(rng.randint(-30, 30), rng.randint(1, 12))
            values[name] = low, low + fmpq(rng.randint(0, 20), 10 ** rng.randint(0, 6))
        try:
            low, high = range_of(expr, values)
        except UndefinedError:
            continue
        assert low <= high
        for _ in range(4):
            point = {
                n: a + (b - a) * fmpq(rng.choice([0, 1, rng.randint(0, 99)]), 1) / 99 for n, (a, b) in values.items()
            }
            point = {n: min(x, values[n][1]) for n, x in point.items()}
            with precision(400):
                ball = enclose(expr, {n: arb(x) for n, x in point.items()})
                if not ball.is_finite():  # touches the end of a domain: a ball cannot tell
                    continue
                assert ball.overlaps(arb(low).union(arb(high))), (str(expr), point)
                checked += 1
    assert checked > 150


@pytest.mark.parametrize("seed", range(3))
def test_ranges_prove_that_every_node_is_defined(seed):
    """If a range is found, no node is undefined at any point: balls around points are finite or touch an end."""
    rng = random.Random(100 + seed)
    found = 0
    for _ in range(300):
        expr = parse(random_text(rng, 3), ["x", "y", "z"])
        values = {n: (fmpq(rng.randint(-4, 4), 2), fmpq(rng.randint(5, 9), 2)) for n in "xyz"}
        try:
            range_of(expr, values)
        except UndefinedError:
            continue
        found += 1
        for _ in range(5):
            point = {n: a + (b - a) * fmpq(rng.randint(1, 998), 999) for n, (a, b) in values.items()}
            try:
                range_of(expr, {n: (x, x) for n, x in point.items()})
            except UndefinedError as error:
                pytest.fail(f"{expr} is defined on a box but not at {point}: {error}")
    assert found > 50


@pytest.mark.parametrize(
    ("text", "box", "low", "high"),
    [
        ("sqrt(x)", "x=0..1", 0, 1),
        ("sqrt(x - 1/10)", "x=0.1..0.35", 0, fmpq(1, 2)),
        ("1/3 + x*y", "x=-1..1, y=-1/7..1/7", fmpq(4, 21), fmpq(10, 21)),
        ("x*x", "x=-1..2", 0, 4),
        ("x*y*x", "x=-1..2, y=-1..1", -4, 4),
        ("x**3", "x=-2..1", -8, 1),
        ("x**-2", "x=-2..-1", fmpq(1, 4), 1),
        ("x**0", "x=-1..1", 1, 1),
        ("x**(1/3)", "x=0..8/27", 0, fmpq(2, 3)),
        ("abs(x)", "x=-2..1", 0, 2),
        ("min(x, y, 1/2)", "x=0..3, y=-1..1", -1, fmpq(1, 2)),
        ("max(x, y)", "x=0..3, y=-1..1", 0, 3),
        ("cos(x)", "x=-1..10", -1, 1),
        ("x/y", "x=1..2, y=-4..-3", fmpq(-2, 3), fmpq(-1, 4)),
        ("x**y", "x=0..1, y=1/2..2", 0, 1),
        ("acos(x/(n*d))", "x=1..2, n=1..2, d=2..3", 0, None),
        ("sinc(x)", "x=-1..3", None, 1),
        ("0.1*x - 0.1", "x=1..2", 0, fmpq(1, 10)),
    ],
)
def test_exact_ends(text, box, low, high):
    found = of(text, box)
    assert low is None or found[0] == low
    assert high is None or found[1] == high


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("sqrt(x)", "x=0..1"),
        ("sqrt(x - 1/10)", "x=0.1..1"),
        ("asin(x*y)", "x=-1..1, y=-1..1"),
        ("sqrt(1 - cos(x))", "x=-9..9"),
        ("sqrt(1 - tanh(x))", "x=0..1000"),
        ("asin(n*sin(t))", "n=0..1, t=-7..7"),
        ("acos(l/(n*d))", "l=0..3, n=1..2, d=3..4"),
        ("sqrt(x - x**3)", "x=3/4..1"),  # only seen at corners
        ("sqrt(x*y - x**2*y)", "x=3/4..1, y=1..5/4"),
        ("log(x)", "x=1e-300..1"),
        ("sqrt(1 - x**2)", "x=-1..1"),
        ("sqrt(x**2 - 4)", "x=-3..-2"),
        ("(1 - x)**(3/2)", "x=0..1"),
        ("acos(sqrt(x))", "x=0..1"),
        ("asin(3/2*sqrt(x))", "x=0..4/9"),
    ],
)
def test_touching_a_domain_is_no_leaving(text, box):
    of(text, box)


@pytest.mark.parametrize(
    ("text", "box", "part", "certain"),
    [
        ("sqrt(x)", "x=-1e-30..1", "sqrt(x)", False),
        ("asin(x)", "x=0..1.0000000000000000000000000000000000000000001", "asin(x)", False),
        ("1 + log(x)", "x=0..1", "log(x)", False),
        ("log(x)", "x=-2..-1", "log(x)", True),
        ("sqrt(x - 3)", "x=0..1", "sqrt(x - 3)", True),
        ("1/x", "x=0..1", "1/x", False),
        ("1/(x - x)", "x=0..1", "1/(x - x)", False),
        ("y/(0*x)", "x=0..1, y=0..1", "y/(0*x)", True),
        ("x**-1", "x=-1..1", "x**(-1)", False),
        ("x**(-1/2)", "x=0..1", "x**(-1/2)", False),
        ("x**y", "x=0..1, y=0..1", "x**y", False),
        ("x**y", "x=-1..1, y=1..2", "x**y", False),
        ("x**pi", "x=-2..-1", "x**pi", True),
        ("tan(x)", "x=1..2", "tan(x)", False),
        ("acos(1/2 + x)", "x=0..1", "acos(x + 1/2)", False),
        ("acos(3 + x)", "x=0..1", "acos(x + 3)", True),
        ("x*log(-1)", "x=0..1", "log(-1)", True),
        ("x + sqrt(sin(pi))", "x=0..1", "sqrt(sin(pi))", False),
        ("exp(exp(x))", "x=0..100", "exp(exp(x))", False),
        ("sqrt(x*x - 2*x*y + y*y + min(0, x + 1/2))", "x=-1..1, y=-1..1", "sqrt", False),
        ("log(x)**0", "x=-2..-1", "log(x)", True),
        ("0*log(x)", "x=-1..1", "log(x)", False),
    ],
)
def test_what_may_be_undefined_is_refused_by_name(text, box, part, certain):
    with pytest.raises(UndefinedError, match="undefined or unbounded") as error:
        of(text, box)
    assert str(error.value.part).startswith(part) and error.value.certain is certain
    assert isinstance(error.value, NotProvenError)


def test_nodes_known_to_be_defined_are_cut_to_their_domain():
    low, high = of("sqrt(x*x - 2*x*y + y*y)", "x=-1..1, y=-1..1", ["sqrt(x*x - 2*x*y + y*y)"])
    assert low == 0 and high == 2
    assert of("acos(x)", "x=0..2", ["acos(x)"])[0] == 0
    with pytest.raises(UndefinedError):  # another node is not known
        of("sqrt(x) + sqrt(2*x)", "x=-1..1", ["sqrt(x)"])
    for text in ("1/x", "log(x)", "x**(-1/2)", "x**y"):  # defined does not mean bounded
        with pytest.raises(UndefinedError):
            of(text, "x=-1..1, y=-1..1", [text])
    with pytest.raises(UndefinedError) as error:  # no point of it can be defined
        of("sqrt(x)", "x=-2..-1", ["sqrt(x)"])
    assert error.value.certain


def test_corners_are_used_only_where_the_slope_keeps_its_sign():
    assert corner_range(parse("x - x**2"), on("x=0..1/4")) == (0, fmpq(3, 16))
    low, high = corner_range(parse("x - x**2"), on("x=0..1"))
    assert low <= 0 and high >= fmpq(1, 4)
    low, high = corner_range(parse("abs(x) - x"), on("x=-1..1"))  # a kink: no slope
    assert low <= 0 and high >= 2
    low, high = corner_range(parse("x*y - y"), on("x=2..3, y=-1..1"))
    assert (low, high) == (-2, 2)


@ends()
def test_large_and_small_numbers_do_not_explode():
    low, high = of("x**(9**80)", "x=-1..1")
    assert low == -1 and high == 1
    low, high = of("x**(9**80)", "x=0..1/2")
    assert low == 0 < high < fmpq(1, 10**1000)
    with pytest.raises(UndefinedError):
        of("x**(9**80)", "x=0..2")
    low, high = of("((((x**9)**9)**9)**9)**9", "x=1/3..1")
    assert 0 <= low < fmpq(1, 10**1000) and high == 1
    low, high = range_of(parse("+".join(f"x/{k}" for k in range(1, 3000))), on("x=1/7..1"))
    assert fmpq(8584, 7000) > low > fmpq(8583, 7000) and low.height_bits() < 1600
    low, high = of("x - " + "1" * 3000, "x=0..1")
    assert low <= -int("1" * 3000) <= high


def test_the_callers_precision_does_not_matter():
    expr, values = parse("exp(sin(x)/3) + sqrt(x)"), on("x=0.1..1")
    expected = range_of(expr, values)
    for bits in (2, 53, 1000):
        with precision(bits):
            assert range_of(expr, values) == expected
            assert ctx.prec == bits


def test_a_variable_without_a_range_is_refused():
    with pytest.raises(UndefinedError):
        range_of(parse("x + y"), on("x=0..1"))
