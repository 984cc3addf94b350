"""Rounding bounds of softmax attention against runs in the dtype itself, in any order of summation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb

from support.kernel_tables import ends_of, exact_error, fit_geometric, fit_grid, fit_table
from transformula.compiler.evidence.grid_pieces import find_softmax
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.rounding.softmax import Arithmetic, rounding_bound
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_error import SoftmaxTable

LOG = np.concatenate([[0.0], np.logspace(-7, 0.1, 19)])


def bound_of(table, box, dtype, **more):
    ends = ends_of(box)
    return rounding_bound(table, ends, find_softmax(table, ends), Arithmetic(FORMATS[dtype], **more))


def stored(table, dtype):
    """The table in the dtype, as arrays of it and as a Table."""
    arrays = [[a.astype(dtype) for a in part] for part in (table.slopes, table.offsets, [table.values])]
    wide = [tuple(a.astype(float) for a in part) for part in arrays]
    return arrays, SoftmaxTable(wide[0], wide[1], wide[2][0])


def example(case):
    text, low, high, tokens = [
        ("sin(x)", 0.0, 6.0, 16), ("exp(x)", -1.0, 1.0, 12), ("sin(20*x)", 0.0, 3.0, 60),
        ("sqrt(x)", 0.0, 1.0, 0), ("tanh(50*x)", -1.0, 1.0, -1), ("sin(x)+100", 3.0, 9.0, 16),
    ][case]  # fmt: skip
    expr = parse(text)
    if tokens > 0:
        return fit_table(expr, low, high, tokens), low, high
    if tokens == 0:
        return fit_geometric(expr, low, high, LOG), low, high
    return SoftmaxTable((np.array([50.0, -50.0]),), (np.zeros(2),), np.array([1.0, -1.0])), low, high


#: What was proven of the examples in float32 and float64 when these tests were written.
REACHED = ((1.72e-4, 3.19e-13), (2.6e-4, 4.84e-13), (0.0646, 1.21e-10), (3.88e-6, 7.06e-15), (2.5e-6, 4.65e-15),
           (5.48e-4, 1.02e-12))  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", range(6))
def test_rounding_stays_below_its_bound(dtype, case):
    rng = np.random.default_rng(case)
    table, low, high = example(case)
    (slopes, offsets, values), table = stored(table, dtype)
    bound = bound_of(table, [(low, high)], dtype)
    assert bound <= 1.05 * REACHED[case][dtype == "float64"]
    worst = 0.0
    for x in rng.uniform(low, high, 60):
        scores = slopes[0] * np.dtype(dtype).type(x) + offsets[0]
        weights = np.exp(scores - scores.max())
        result = (weights / weights.sum(dtype=dtype) * values[0]).sum(dtype=dtype)
        worst = max(worst, float(abs(arb(float(result)) - exact_error(None, ["x"], table, [x]))))
    assert worst <= bound <= 200 * worst


def test_scores_that_grow_very_steeply_are_cut_finely_enough():
    """A root at 1e-10 has slopes like these next to zero."""
    slopes = np.concatenate([[0.0], -np.geomspace(1.0, 1e20, 40)])
    table = SoftmaxTable(
        (slopes,), (np.concatenate([[0.0], np.full(40, -20.0)]),), np.concatenate([[1.0], np.full(40, -1e5)])
    )
    assert bound_of(table, [(0.0, 1.0)], "float64") < 1e-12


def test_rounding_of_a_grid():
    expr, rng = parse("exp(-x*y)*sin(3*x+y)"), np.random.default_rng(7)
    box = [(0.0, 2.0), (0.0, 2.0)]
    fitted = fit_grid(expr, ["x", "y"], box, (14, 14), 1e-6)
    for dtype in ("float32", "float64"):
        kind = np.dtype(dtype).type
        (slopes, offsets, (values,)), table = stored(fitted, dtype)
        flat, split = bound_of(table, box, dtype), bound_of(table, box, dtype, factorised=True)
        worst = 0.0
        for x, y in rng.uniform(0, 2, (60, 2)):
            s = [a * kind(z) + b for a, b, z in zip(slopes, offsets, (x, y), strict=True)]
            joint = (s[0][:, None] + s[1]).ravel()
            w = np.exp(joint - joint.max())
            one = ((w / w.sum(dtype=dtype)) * values.ravel()).sum(dtype=dtype)
            u, v = (np.exp(p - p.max()) for p in s)
            two = (u / u.sum(dtype=dtype)) @ values @ (v / v.sum(dtype=dtype))
            real = exact_error(None, ["x", "y"], table, [x, y])
            worst = max(worst, float(abs(arb(float(one)) - real)))
            assert abs(arb(float(one)) - real) <= flat
            assert abs(arb(float(two)) - real) <= split
        assert flat <= 1000 * worst


@pytest.mark.parametrize("seed", range(20))
def test_rounding_of_random_tables_summed_in_random_orders(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 40))
    slopes = (rng.normal(size=count) * 10 ** rng.uniform(-1, 4)).astype(np.float32)
    centres = rng.uniform(-1, 1, count)
    offsets = (-slopes * centres * rng.uniform(0, 1)).astype(np.float32)
    values = (rng.normal(size=count) * 10 ** rng.uniform(-2, 4) + rng.normal()).astype(np.float32)
    table = SoftmaxTable((slopes.astype(float),), (offsets.astype(float),), values.astype(float))
    bound = bound_of(table, [(-1.0, 1.0)], "float32")
    for x in rng.uniform(-1, 1, 25):
        order = rng.permutation(count)
        scores = (slopes * np.float32(x) + offsets)[order]
        powers = np.exp(scores - scores.max())
        total = result = np.float32(0)
        for p in powers:
            total = np.float32(total + p)
        for p, y in zip(powers, values[order], strict=True):
            result = np.float32(result + np.float32(p / total) * y)
        assert abs(arb(float(result)) - exact_error(None, ["x"], table, [x])) <= bound


@pytest.mark.parametrize("seed", range(4))
def test_an_argument_that_is_off_moves_the_result_within_the_bound(seed):
    rng = np.random.default_rng(seed)
    (slopes, offsets, values), table = stored(example(seed % 3)[0], "float32")
    low, high = example(seed % 3)[1:]
    off = 10.0 ** rng.uniform(-6, -3)
    bound = bound_of(table, [(low, high)], "float32", argument_errors=(off,))
    assert bound > bound_of(table, [(low, high)], "float32")
    for x in rng.uniform(low, high, 20):
        moved = np.float32(x + off * rng.choice([-0.999, 0.999]))
        if not abs(float(moved) - x) <= off:
            continue
        scores = slopes[0] * moved + offsets[0]
        weights = np.exp(scores - scores.max())
        result = (weights / weights.sum() * values[0]).sum()
        assert abs(arb(float(result)) - exact_error(None, ["x"], table, [x])) <= bound


@pytest.mark.parametrize("dtype", FORMATS)
def test_values_whose_sum_is_too_large_for_the_dtype(dtype):
    """Each is far from overflow, but they may be added up before they are divided."""
    most = float(FORMATS[dtype].largest)
    for share, finite in ((0.05, False), (0.01, True)):
        table = SoftmaxTable((np.zeros(12),), (np.zeros(12),), np.full(12, share * most))
        assert math.isfinite(bound_of(table, [(0.0, 1.0)], dtype)) == finite


def test_scores_too_large_for_the_dtype():
    table = SoftmaxTable((np.array([0.0, 1e9]),), (np.array([0.0, -1e9 / 3]),), np.array([0.0, 1.0]))
    assert bound_of(table, [(0.0, 1.0)], "float32") == math.inf
    assert bound_of(table, [(0.0, 1.0)], "float64") < 1e-5
    for slope, value in ((1e39, 1.0), (1.0, 2e38)):
        huge = SoftmaxTable((np.array([0.0, slope]),), (np.zeros(2),), np.array([0.0, value]))
        assert bound_of(huge, [(0.0, 1.0)], "float32") == math.inf


@pytest.mark.parametrize(
    "edges",
    [None, [], [[0.0, 1.0]], [[0.0, 6.0], [0.0, 6.0]], [[0.0, 3.0, 2.0, 6.0]], [[0.0, math.nan, 6.0]],
     [[0, 6]], [[0.0, math.inf]], "x", [["a", "b"]], [np.linspace(0, 6, 1_000_002).tolist()]],
    ids=lambda e: repr(e)[:40],
)  # fmt: skip
def test_edges_that_do_not_cover_are_refused(edges):
    table, low, high = example(0)
    with pytest.raises(RefutedError):
        rounding_bound(table, ends_of([(low, high)]), edges, Arithmetic(FORMATS["float64"]))


def test_coarse_edges_give_a_larger_bound_never_a_smaller_one():
    table, low, high = example(0)
    ends, arithmetic = ends_of([(low, high)]), Arithmetic(FORMATS["float64"])
    fine = rounding_bound(table, ends, find_softmax(table, ends), arithmetic)
    assert rounding_bound(table, ends, [[low, high]], arithmetic) >= fine
