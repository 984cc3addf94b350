"""Rounding bounds of softmax attention against runs in the dtype itself, in any order of summation."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

from support.prover import exact_error, fit_geometric, fit_grid, fit_table
from transformula.certificates.grid_models import Grid
from transformula.certificates.softmax_rounding import Arithmetic, rounding_bound
from transformula.certificates.table_bounds import Table
from transformula.formulas import parse
from transformula.formulas.enclosures import precision

LOG = np.logspace(-7, 0.1, 19)


def ends(box):
    return [(arb(float(a)), arb(float(b))) for a, b in box]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", range(6))
def test_rounding_stays_below_its_bound(dtype, case):
    text, low, high, tokens = [
        ("sin(x)", 0.0, 6.0, 16), ("exp(x)", -1.0, 1.0, 12), ("sin(20*x)", 0.0, 3.0, 60),
        ("sqrt(x)", 0.0, 1.0, 0), ("tanh(50*x)", -1.0, 1.0, -1), ("sin(x)+100", 3.0, 9.0, 16),
    ][case]  # fmt: skip
    expr, rng = parse(text), np.random.default_rng(case)
    if tokens > 0:
        table = fit_table(expr, low, high, tokens)
    elif tokens == 0:
        table = fit_geometric(expr, low, high, np.concatenate([[0.0], LOG]))
    else:
        table = Table(np.array([50.0, -50.0]), np.zeros(2), np.array([1.0, -1.0]))
    stored = [np.asarray(v, dtype) for v in (table.slopes, table.offsets, table.values)]
    alpha, gamma = np.dtype(dtype).type(0.3), np.dtype(dtype).type(-1.7)
    table = Table(*[v.astype(float) for v in stored], float(alpha), float(gamma))
    bound = rounding_bound(table, [(arb(low), arb(high))], Arithmetic.of(dtype))
    worst = 0.0
    for x in rng.uniform(low, high, 150):
        z = np.dtype(dtype).type(x)
        scores = stored[0] * z + stored[1]
        weights = np.exp(scores - scores.max())
        weights = weights / weights.sum(dtype=dtype)
        result = (weights * stored[2]).sum(dtype=dtype) + alpha * z + gamma
        with precision(300):
            exact = exact_error(parse("0*x"), ["x"], table, [x])
            worst = max(worst, float(abs(arb(float(result)) - exact)))
    assert worst <= bound <= 100 * worst


def test_rounding_of_a_grid():
    expr, rng = parse("exp(-x*y)*sin(3*x+y)"), np.random.default_rng(7)
    box = [(0.0, 2.0), (0.0, 2.0)]
    grid = fit_grid(expr, ["x", "y"], box, (14, 14), 1e-6)
    for dtype in ("float32", "float64"):
        kind = np.dtype(dtype).type
        axes = [(a.slopes.astype(dtype), a.offsets.astype(dtype)) for a in grid.axes]
        values = grid.values.astype(dtype)
        exact = Grid(
            tuple(type(grid.axes[0])(a.astype(float), b.astype(float)) for a, b in axes),
            values.astype(float),
        )
        flat = rounding_bound(exact, ends(box), Arithmetic.of(dtype))
        split = rounding_bound(exact, ends(box), Arithmetic.of(dtype, factorised=True))
        for x, y in rng.uniform(0, 2, (60, 2)):
            s = [a * kind(z) + b for (a, b), z in zip(axes, (x, y), strict=True)]
            joint = (s[0][:, None] + s[1]).ravel()
            w = np.exp(joint - joint.max())
            one = ((w / w.sum(dtype=dtype)) * values.ravel()).sum(dtype=dtype)
            e = [np.exp(v - v.max()) for v in s]
            u, v = (p / p.sum(dtype=dtype) for p in e)
            two = u @ values @ v
            zero = exact_error(parse("0*x*y"), ["x", "y"], exact, [x, y])
            assert abs(arb(float(one)) - zero) <= flat
            assert abs(arb(float(two)) - zero) <= split


@pytest.mark.parametrize("seed", range(40))
def test_rounding_of_random_tables_summed_in_random_orders(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 40))
    slopes = (rng.normal(size=count) * 10 ** rng.uniform(-1, 4)).astype(np.float32)
    centres = rng.uniform(-1, 1, count)
    offsets = (-slopes * centres * rng.uniform(0, 1)).astype(np.float32)
    values = (rng.normal(size=count) * 10 ** rng.uniform(-2, 4) + rng.normal()).astype(np.float32)
    table = Table(*(v.astype(float) for v in (slopes, offsets, values)), 0.5, -0.25)
    bound = rounding_bound(table, [(arb(-1), arb(1))], Arithmetic.of("float32"))
    zero = np.float32(0)
    for x in rng.uniform(-1, 1, 40):
        order = rng.permutation(count)
        z = np.float32(x)
        scores = (slopes * z + offsets)[order]
        powers = np.exp(scores - scores.max())
        total, result = zero, zero
        for p in powers:
            total = np.float32(total + p)
        for p, y in zip(powers, values[order], strict=True):
            result = np.float32(result + np.float32(p / total) * y)
        result = np.float32(np.float32(result + np.float32(0.5) * z) + np.float32(-0.25))
        exact = exact_error(parse("0*x"), ["x"], table, [x])
        assert abs(arb(float(result)) - exact) <= bound
