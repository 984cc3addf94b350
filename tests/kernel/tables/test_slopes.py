"""How steep a table is, and how much steeper or flatter than its function: never below what is sampled."""

import math
from itertools import pairwise

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from support.kernel_tables import exact_error, fit_geometric, fit_table, one_axis
from support.prover import random_formula
from transformula.compiler.evidence.table_pieces import find_slopes
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_error import MAX_PIECES, SoftmaxTable
from transformula.kernel.tables.table_slopes import SlopePieces, oscillation, own_edges

#: function, interval, tokens
TABLES = [
    ("sin({})", -1.0, 2.0, 14),
    ("exp(-{}**2)", -2.0, 2.0, 16),
    ("tanh(9*{})", -1.0, 1.0, 24),
    ("{}**2", -1.0, 1.0, 12),
    ("1/(1 + 25*{}**2)", -1.0, 1.0, 30),
    ("log({})", 0.5, 3.0, 14),
    ("3 - {}/7", 0.0, 1.0, 10),
    ("sin({})", 100.0, 101.0, 12),
    ("{}**3*1000000", 0.0, 1.0, 12),
    ("exp({})/1000000", 0.0, 1e-3, 10),
]  # fmt: skip


def _table_slope_at(table, x):
    """T' in 200 bits: Σ w a y − Σ w a Σ w y."""
    scores = [
        (arb(float(a)) * arb(x) + arb(float(b)), arb(float(a)), arb(float(y)))
        for a, b, y in zip(*table.slopes, *table.offsets, table.values, strict=True)
    ]
    top = max(float(s.mid()) for s, _, _ in scores)
    terms = [((s - top).exp(), a, y) for s, a, y in scores]
    total = sum((w for w, _, _ in terms), arb(0))
    mean = [sum(t, arb(0)) / total for t in zip(*((w * a, w * y, w * a * y) for w, a, y in terms), strict=True)]
    return mean[2] - mean[0] * mean[1]


def slope_gap(table, function, edges):
    pieces = SlopePieces(table, function)
    return max(pieces.on(a, b)[0] for a, b in pairwise(edges))


def steepest(table, low, high):
    return slope_gap(table, None, find_slopes(table, None, low, high, 0.0))


def gap_to(table, function, low, high, enough):
    return slope_gap(table, function, find_slopes(table, function, low, high, enough))


def _function_slope_at(function, x):
    h = arb(2) ** -60
    return (enclose(function, {"u": arb(x) + h}) - enclose(function, {"u": arb(x) - h})) / (2 * h)


def _seen(table, function, low, high, points=300):
    """(largest |T'|, largest |T' − f'|) at points of the interval and near its ends."""
    near = (high - low) * 10.0 ** np.linspace(-12, -1, 12)
    at = np.concatenate([np.linspace(low, high, points + 2)[1:-1], low + near, high - near])
    with precision(200):
        steep = [_table_slope_at(table, float(x)) for x in at]
        gaps = [abs(s - _function_slope_at(function, float(x))) for s, x in zip(steep, at, strict=True)]
        return max(float(abs(s).lower()) for s in steep), max(float(g.lower()) for g in gaps)


@pytest.mark.parametrize(("text", "low", "high", "tokens"), TABLES)
def test_slopes_of_fitted_tables(text, low, high, tokens):
    table = fit_table(parse(text.format("x")), low, high, tokens)
    function = parse(text.format("u"))
    steep, gap = _seen(table, function, low, high)
    for enough in (0.0, 0.02 * steep):
        assert gap <= gap_to(table, function, low, high, enough) <= max(1.5 * gap, enough) * 1.0001
    assert steep <= steepest(table, low, high) <= 1.5 * steep


def test_a_table_against_a_function_with_an_unbounded_slope():
    table = fit_geometric(parse("sqrt(x)"), 0.0, 1.0, 1 - (1 - np.linspace(0, 1, 30)) ** 0.5)
    assert gap_to(table, parse("sqrt(u)"), 0.0, 1.0, 1e-3) == math.inf
    steep, _ = _seen(table, parse("u"), 0.0, 1.0)
    assert steep <= steepest(table, 0.0, 1.0) < math.inf


def test_points_and_beyond():
    table = fit_table(parse("sin(x)"), -1.0, 2.0, 14)
    for low, high in ((0.3, 0.3), (0.3, math.nextafter(0.3, 1)), (2.0, 2.5), (-9.0, -8.0)):
        steep, gap = _seen(table, parse("sin(u)"), low, high, points=20) if high > low + 1e-9 else (0.0, 0.0)
        assert gap <= gap_to(table, parse("sin(u)"), low, high, 1e-9)
        assert steep <= steepest(table, low, high)


def test_one_token_is_flat():
    table = one_axis(np.ones(1), np.ones(1), np.array([7.0]))
    assert steepest(table, 0.0, 1.0) == 0
    assert 1 <= gap_to(table, parse("u"), 0.0, 1.0, 0.0) <= 1.0001


@settings(max_examples=20)
@given(seed=st.integers(0, 3000))
def test_random_tables_against_random_functions(seed):
    """Neither fits the other: the gap is as large as the slopes."""
    rng = np.random.default_rng(seed)
    tokens = int(rng.integers(2, 9))
    table = one_axis(
        rng.normal(size=tokens) * 10 ** rng.uniform(-1, 2),
        rng.normal(size=tokens) * 3,
        rng.normal(size=tokens),
    )
    function = random_formula(seed, ["u"], smooth=True)
    low = float(rng.uniform(-1, 1))
    high = low + float(10 ** rng.uniform(-4, 0.3))
    steep, gap = _seen(table, function, low, high, points=60)
    assert gap <= gap_to(table, function, low, high, 0.01)
    assert steep <= steepest(table, low, high)


def test_the_bound_holds_on_whatever_pieces_are_given():
    table, function = fit_table(parse("sin(x)"), -1.0, 2.0, 14), parse("sin(u)")
    steep, gap = _seen(table, function, -1.0, 2.0)
    for edges in ([-1.0, 2.0], [-1.0, 0.3, 2.0], np.linspace(-1, 2, 9).tolist()):
        assert slope_gap(table, None, edges) >= steep and slope_gap(table, function, edges) >= gap


def test_remainders_count_on_wide_pieces():
    """All coefficients are positive, so that what is left out is missing from the sum."""
    step = one_axis(np.array([0.0, 1.0]), np.zeros(2), np.array([0.0, 1.0]))  # about e**u far to the left
    steep, _ = _seen(step, parse("u"), -13.0, -7.0)
    assert steep <= slope_gap(step, None, [-13.0, -7.0]) < 9 * steep
    flat = one_axis(np.zeros(1), np.zeros(1), np.zeros(1))
    assert math.exp(4) <= slope_gap(flat, parse("exp(u)"), [-4.0, 4.0]) < 9 * math.exp(4)


@pytest.mark.parametrize("edges", [None, [], [0.0], [0.0, 0.0], [1.0, 0.0], [0.0, math.nan, 1.0],
                                   [0.0, math.inf],
                                   ["0", "1"], [0, 1], [0.0, None, 1.0], [0.0] * 400_002])  # fmt: skip
def test_edges_that_are_none_are_refused(edges):
    with pytest.raises(RefutedError):
        own_edges(edges, MAX_PIECES)


def test_other_tables_and_functions_are_refused():
    table = fit_table(parse("sin(x)"), -1.0, 2.0, 14)
    with pytest.raises(RefutedError):
        slope_gap(table, parse("x"), [0.0, 1.0])
    with pytest.raises(RefutedError):
        slope_gap(SoftmaxTable((np.zeros(2),) * 2, (np.zeros(2),) * 2, np.zeros((2, 2))), None, [0.0, 1.0])


@pytest.mark.parametrize(("low", "high"), [(-1.0, 2.0), (0.3, 0.30001), (0.3, math.nextafter(0.3, 1)), (-9.0, 9.0)])
def test_oscillation(low, high):
    table = fit_table(parse("sin(x)"), -1.0, 2.0, 14)
    with precision(200):
        values = [exact_error(None, ["x"], table, [x]) for x in np.linspace(low, high, 60)]
        seen = max(float(abs(a - b).lower()) for a in values for b in values[:5] + values[-5:])
    bound = oscillation(table, low, high)
    assert seen <= bound <= np.ptp(table.values) * (1 + 1e-15)
    if high - low < 1e-3:
        assert bound <= 1.1 * seen


def test_oscillation_of_what_is_no_interval():
    table = fit_table(parse("sin(x)"), -1.0, 2.0, 14)
    assert oscillation(table, 0.3, 0.3) == 0
    for low, high in ((1.0, 0.0), (math.nan, 1.0), (0.0, math.nan), (0.0, math.inf), (-math.inf, 0.0)):
        assert oscillation(table, low, high) == math.inf
