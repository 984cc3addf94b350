"""Ranges, oscillations, and whether a formula is defined on its box at all."""

from __future__ import annotations

import re

import numpy as np
import pytest
from flint import arb

from support.prover import numpy_function, random_formula
from transformula.errors import NotProvenError
from transformula.formulas import Formula, parse
from transformula.formulas.enclosures import precision
from transformula.taylor.cells import enclose_range, enclose_ranges, oscillations
from transformula.taylor.definedness import check_defined_on
from transformula.taylor.ranges import check_defined, enclose_ends


@pytest.mark.parametrize(
    "text, box, part",
    [
        ("1/x", {"x": (-1, 1)}, "1/x"),
        ("2 + log(x)", {"x": (0, 1)}, "log(x)"),
        ("tan(x)", {"x": (0, 2)}, "tan(x)"),
        ("sqrt(x)", {"x": (-1, 1)}, "sqrt(x)"),
        ("asin(2*x)", {"x": (0, 1)}, "asin(2*x)"),
        ("x**(-1/2)", {"x": (0, 1)}, "x**(-1/2)"),
        ("sin(x)/x", {"x": (-1, 1)}, "sin(x)/x"),
        ("exp(x)/(x-y)", {"x": (0, 1), "y": (0, 1)}, "exp(x)/(x - y)"),
        ("log(x*y - z)", {"x": (0, 1), "y": (0, 1), "z": (0, 1)}, "log"),
        ("1/(x**2 + y**2 - 1/3)", {"x": (-1, 1), "y": (-1, 1)}, "1/"),
    ],
)
def test_undefined_formulas_are_refused_by_name(text, box, part):
    with pytest.raises(NotProvenError, match="undefined or unbounded") as error:
        check_defined(parse(text), {n: (arb(a), arb(b)) for n, (a, b) in box.items()})
    assert part in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["sqrt(x)", "sqrt(1-x**2)", "asin(x)", "x**pi", "sqrt(x - x**3)", "1/(1.001-x**2)",
     "1/(x**2 - x + 1)", "log(1.1 - sin(x)**2)", "tan(x)", "acos(1-x)"],
)  # fmt: skip
def test_defined_formulas_are_not_refused(text):
    with precision(128):
        check_defined(parse(text), {"x": (arb(0), arb(1))})


def test_ranges_keep_exact_ends():
    low, high = enclose_ends(parse("sqrt(1-x**2)"), {"x": (arb(-1), arb(1))})
    assert low == 0 and high == 1


@pytest.mark.parametrize("seed", range(40))
def test_ranges_and_oscillations_contain_samples(seed):
    rng = np.random.default_rng(seed)
    expr = random_formula(3000 + seed, ["x", "y"])
    lower = rng.uniform(-1, 1, (2, 30))
    upper = lower + 10.0 ** rng.uniform(-3, 0, (2, 30))
    low, high = enclose_ranges(expr, ["x", "y"], lower, upper)
    swing = oscillations(expr, ["x", "y"], lower, upper)
    t = rng.random((200, 2, 1))
    x = lower + t * (upper - lower)
    values = numpy_function(expr, ["x", "y"])(x[:, 0], x[:, 1])
    assert (values >= low - 1e-12).all() and (values <= high + 1e-12).all()
    assert (values.max(axis=0) - values.min(axis=0) <= swing + 1e-12).all()


def test_one_range_is_tight():
    low, high = enclose_range(parse("x*(1-x)*sin(y)"), ["x", "y"], np.zeros(2), np.array([1.0, 3]))
    assert -1e-3 <= low <= 0 and 0.25 <= high <= 0.2505


@pytest.mark.parametrize(
    "formula, box, said",
    [
        ("1/x", "x=-1..1", "x=0.0312..1 would work"),
        ("log(x - y)", "x=0..1, y=0..1", "x - y may reach -1..1"),
        ("sqrt(1 - x**2 - y**2)", "x=-1..1, y=-1..1", "would work"),
        ("a*b/(c - d)", "a=0..1, b=0..1, c=1..2, d=1..2", "would work"),
        ("acos(x*y)", "x=0..2, y=0..1", "x*y may reach 0..2"),
    ],
)
def test_a_refusal_names_the_range_and_a_box_that_works(formula, box, said):
    with pytest.raises(NotProvenError) as error:
        check_defined_on(Formula.of(formula, box))
    message = str(error.value)
    assert said in message
    if "would work" in message:
        smaller = re.search(r"from there; (.*) would work", message).group(1)
        ends = {
            name.strip(): interval.strip() for name, interval in (p.split("=") for p in smaller.split(","))
        }
        parts = {p.split("=")[0].strip(): p.split("=")[1] for p in box.split(",")}
        check_defined_on(Formula.of(formula, ", ".join(f"{n}={i}" for n, i in {**parts, **ends}.items())))


def test_no_box_is_suggested_where_none_can_be():
    with pytest.raises(NotProvenError) as error:
        check_defined_on(Formula.of("log(0*x - 1)", "x=0..1"))
    assert "would work" not in str(error.value)
