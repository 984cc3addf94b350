"""Bounds of table minus formula: true under attack, tight, and empty where there is nothing to claim."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

from support.prover import as_grid, attack, fit_geometric, fit_grid, fit_table, make_axis, random_formula
from transformula.certificates.axis_models import Axis, axis_models
from transformula.certificates.grid_bounds import bound_grid
from transformula.certificates.grid_models import Grid
from transformula.certificates.softmax_rounding import Arithmetic, rounding_bound
from transformula.certificates.table_bounds import Table, bound_1d
from transformula.formulas import parse
from transformula.formulas.enclosures import enclose, precision
from transformula.taylor.results import Limits

LOG = np.logspace(-7, 0.1, 19)


def ends(box):
    return [(arb(float(a)), arb(float(b))) for a, b in box]


def test_axis_models_contain_the_weights():
    axis = make_axis(0, 2, 14)
    centre, radius = np.array([0.1, 0.9, 1.7]), np.array([0.05, 0.3, 1e-3])
    models = axis_models(axis, centre, radius, 7)
    with precision(200):
        for i in range(3):
            for t in (-1.0, -0.4, 0.0, 0.77, 1.0):
                x = arb(float(centre[i])) + arb(float(radius[i])) * t
                terms = [(arb(float(a)) * x + arb(float(b))).exp()
                         for a, b in zip(axis.slopes, axis.offsets, strict=True)]  # fmt: skip
                total = sum(terms, arb(0))
                for j, term in enumerate(terms):
                    series = models.terms[i, :, j]
                    p = sum(arb(float(c)) * arb(t) ** k for k, c in enumerate(series))
                    assert not abs(p - term / total).lower() > models.rest[i, j]


ONE = [  # formula, low, high, centres or tokens
    ("sin(x)", "0", "2*pi", 20),
    ("sin(20*pi*x)", "0", "1", 100),
    ("1/(1+25*x**2)", "-1", "1", 64),
    ("sqrt(x)", "0", "1", np.concatenate([[0.0], LOG])),
    ("abs(x)**(1/3)", "-1", "1", np.concatenate([-LOG, [0.0], LOG])),
    ("x**0.7", "0", "1", 30),
    ("asin(x)", "-1", "1", 30),
    ("sqrt(1-x**2)", "-1", "1", 30),
    ("log(x)", "0.01", "1", 40),
    ("abs(x-1/3)", "-1", "1", 40),
    ("sqrt(sin(x))", "0", "pi", 30),
    ("max(sin(3*x), cos(2*x))", "-1", "2", 30),
]


@pytest.mark.parametrize(("text", "low", "high", "tokens"), ONE, ids=[c[0] for c in ONE])
def test_one_variable_is_tight(text, low, high, tokens):
    expr, ball = parse(text), (enclose(parse(low)), enclose(parse(high)))
    box = [(float(ball[0]), float(ball[1]))]
    if isinstance(tokens, int):
        table = fit_table(expr, *box[0], tokens)
    else:
        table = fit_geometric(expr, *box[0], tokens)
    bound = bound_1d(expr, "x", *ball, table)
    found = attack(expr, ["x"], box, table, special=(1 / 3,))
    assert found <= bound.value <= 1.35 * found
    assert bound.closed and bound.seen <= bound.value


@pytest.mark.parametrize("seed", range(100))
def test_attack_on_random_formulas_of_one_variable(seed):
    expr = random_formula(1000 + seed, ["x"])
    tokens = int(np.random.default_rng(seed).integers(9, 40))
    table = fit_table(expr, -1.0, 1.5, tokens)
    table = Table(table.slopes, table.offsets, table.values, 0.01 * (seed % 3), 0.001 * (seed % 2))
    bound = bound_1d(expr, "x", arb(-1), arb(1.5), table, None, Limits(boxes=800, seconds=100))
    found = attack(expr, ["x"], [(-1.0, 1.5)], table, seed, 4000)
    assert found <= bound.value, str(expr)
    assert bound.value <= 3 * found + 1e-10, str(expr)


@pytest.mark.parametrize("seed", range(60))
def test_attack_on_random_formulas_of_several_variables(seed):
    names = ["x", "y", "z"][: 2 + (seed % 4 == 3)]
    expr = random_formula(2000 + seed, names)
    box = [(-1.0, 1.0), (0.0, 1.5), (-0.5, 0.5)][: len(names)]
    rng = np.random.default_rng(seed)
    tokens = [int(rng.integers(9, 16)) for _ in names]
    grid = fit_grid(expr, names, box, tokens, rcond=1e-5)
    grid = Grid(grid.axes, grid.values, (0.01,) * len(names), 0.002)
    bound = bound_grid(expr, names, ends(box), grid, None, Limits(seconds=100, boxes=12_000))
    found = attack(expr, names, box, grid, seed, 8000)
    assert found <= bound.value, str(expr)
    assert bound.value <= 3 * found + 1e-8, str(expr)


def test_a_changed_weight_is_noticed():
    expr = parse("sin(x)")
    table = fit_table(expr, 0.0, 6.0, 18)
    values = table.values.copy()
    values[9] += 1e-5
    changed = Table(table.slopes, table.offsets, values)
    good = bound_1d(expr, "x", arb(0), arb(6), table, 1e-6)
    bad = bound_1d(expr, "x", arb(0), arb(6), changed, 1e-6)
    assert good.closed and not bad.closed and bad.seen > 1e-6


@pytest.mark.parametrize("field", ["slopes", "offsets", "values"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_numbers_prove_nothing(field, bad):
    table = fit_table(parse("sin(x)"), 0.0, 1.0, 9)
    arrays = {n: getattr(table, n).copy() for n in ("slopes", "offsets", "values")}
    arrays[field][4] = bad
    with np.errstate(all="ignore"):
        bound = bound_1d(parse("sin(x)"), "x", arb(0), arb(1), Table(**arrays), 1.0, Limits(boxes=50))
        assert bound.value == np.inf and not bound.closed
        grid = as_grid(Table(**arrays))
        double = Grid((grid.axes[0], grid.axes[0]), np.add.outer(grid.values, grid.values))
        box = [(arb(0), arb(1))] * 2
        bound = bound_grid(parse("x+y"), ["x", "y"], box, double, 1.0, Limits(boxes=200))
        assert bound.value == np.inf and not bound.closed
        assert rounding_bound(Table(**arrays), box[:1], Arithmetic.of("float64")) == np.inf


def test_a_sharp_table_of_many_tokens():
    centres = (np.arange(400) + 0.5) / 400
    table = Table(4e5 * centres, -2e5 * centres**2, np.sin(3 * centres))
    bound = bound_1d(parse("sin(3*x)"), "x", arb(0), arb(1), table, 0.01)
    found = attack(parse("sin(3*x)"), ["x"], [(0.0, 1.0)], table)
    assert bound.closed and found <= bound.value <= 1.5 * found


@pytest.mark.parametrize("seed", range(40))
def test_spoilt_tables_are_bounded_too(seed):
    """Whatever the weights are: large and small changes of slopes, offsets, values and the affine part."""
    rng = np.random.default_rng(seed)
    expr = random_formula(4000 + seed, ["x"])
    table = fit_table(expr, -1.0, 1.0, int(rng.integers(8, 20)))
    arrays = [table.slopes.copy(), table.offsets.copy(), table.values.copy()]
    for array in arrays:
        some = rng.random(len(array)) < 0.4
        array[some] *= 1 + rng.normal(size=some.sum()) * 10 ** rng.uniform(-4, 1)
    spoilt = Table(*arrays, float(rng.normal()), float(rng.normal()))
    bound = bound_1d(expr, "x", arb(-1), arb(1), spoilt, None, Limits(boxes=1500, seconds=100))
    found = attack(expr, ["x"], [(-1.0, 1.0)], spoilt, seed, 3000)
    assert found <= bound.value <= 3 * found + 1e-10, str(expr)


@pytest.mark.parametrize("seed", range(16))
def test_spoilt_grids_are_bounded_too(seed):
    rng = np.random.default_rng(seed)
    expr = random_formula(4500 + seed, ["x", "y"])
    box = [(-1.0, 1.0), (0.0, 1.5)]
    grid = fit_grid(expr, ["x", "y"], box, [int(v) for v in rng.integers(8, 12, 2)], rcond=1e-4)
    size = 10 ** rng.uniform(-4, -0.5)
    axes = [
        Axis(*(v * (1 + size * (rng.random(len(v)) < 0.3)) for v in (axis.slopes, axis.offsets)))
        for axis in grid.axes
    ]
    values = grid.values * (1 + size * rng.normal(size=grid.values.shape))
    spoilt = Grid(tuple(axes), values, (0.1, -0.2), 0.3)
    bound = bound_grid(expr, ["x", "y"], ends(box), spoilt, None, Limits(seconds=100, boxes=40_000))
    found = attack(expr, ["x", "y"], box, spoilt, seed, 6000)
    assert found <= bound.value <= 3 * found + 1e-8, str(expr)
