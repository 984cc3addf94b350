"""Cells of a function contain its values and slopes at every point, and are not much larger than that."""

import math

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from support.prover import numpy_function, random_formula
from transformula.compiler.evidence.table_pieces import find_function_cells
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_slopes import FunctionCells, SquareCells

#: function, interval, whether f' is bounded there
FUNCTIONS = [
    ("sin(u)", -2.0, 7.0, True), ("exp(u)", -30.0, 5.0, True), ("tanh(50*u)", -1.0, 1.0, True),
    ("1/u", 0.01, 3.0, True), ("u/(exp(u) - 1)", 0.1, 5.0, True), ("u/(exp(u) - 1)", -1.0, 1.0, False),
    ("log(u)", 1e-3, 2.0, True), ("u**3 - u", -2.0, 2.0, True), ("exp(-u**2)*sin(9*u)", -3.0, 3.0, True),
    ("(1 + u**2)**(-3/2)", -5.0, 5.0, True), ("sin(1000*u)", 0.0, 1.0, True),
    ("exp(u) - exp(u) + u", 0.0, 1.0, True), ("cos(1000000 + u)", 0.0, 4.0, True),
    ("sqrt(u)", 0.0, 1.0, False), ("sqrt(u)", 1e-12, 1.0, True), ("u**(3/2)", 0.0, 4.0, False),
    ("acos(u)", -1.0, 1.0, False), ("asin(u)*u", -1.0, 0.5, False), ("abs(u)", -1.0, 2.0, False),
    ("abs(u - 1/3)*exp(u)", 0.0, 1.0, False), ("max(u, u**2)", -1.0, 2.0, False),
    ("u*log(u)", 0.0, 1.0, False),
    ("sqrt(u)", -1e-9, 1.0, False), ("1/u", -1.0, 1.0, False),
    ("sin(u)", 1.0, 1.0, True), ("sin(u)", 1.0, math.nextafter(1.0, 2.0), True),
    ("exp(u)", 1e-300, 2e-300, True), ("u", -1e200, 1e200, True), ("exp(-u)", 700.0, 740.0, True),
]  # fmt: skip


def cells_of(expr, low, high):
    return FunctionCells(expr, find_function_cells(expr, low, high))


def _at(expr, point):
    """(f, f') at a float, as balls in 400 bits; f' by a difference so close that its error is no matter."""
    with precision(400):
        x, h = arb(point), arb(2) ** (-120 + max(-200, int(math.log2(abs(point) + 1e-30))))
        value = enclose(expr, {"u": x})
        slope = (enclose(expr, {"u": x + h}) - enclose(expr, {"u": x - h})) / (2 * h)
    return value, slope


def _intervals(low, high, rng, count):
    """Parts of [low, high]: of all sizes, points, those at its ends, and all of it."""
    ends = low + (high - low) * np.sort(rng.random((2, count)), axis=0)
    middle = low + (high - low) * rng.random(count)
    size = (high - low) * 10.0 ** -rng.uniform(1, 15, count)
    starts = [ends[0], middle, middle, [low] * 3, low + 0 * size, high - size]
    stops = [ends[1], middle + size, middle, [low, high, low + (high - low) / 7], low + size, high + 0 * size]
    return np.clip(np.concatenate(starts), low, high), np.clip(np.concatenate(stops), low, high)


def steepest(cells, low, high):
    return np.abs(cells.slopes(np.array([low]), np.array([high]))).max()


def _assert_contained(expr, cells, low, high, seed, count=4):
    rng = np.random.default_rng(seed)
    starts, stops = _intervals(low, high, rng, count)
    values, slopes = cells.values(starts, stops), cells.slopes(starts, stops)
    assert (values[0] <= values[1]).all() and (slopes[0] <= slopes[1]).all()
    for k, (a, b) in enumerate(zip(starts, stops, strict=True)):
        for share in (0.0, 1.0, *rng.random(3)):
            point = float(np.clip(a + share * (b - a), a, b))
            value, slope = _at(expr, point)
            if value.is_finite():
                assert not value < values[0][k] and not value > values[1][k], (str(expr), point)
            if slope.is_finite() and low < point < high:
                assert not slope < slopes[0][k] and not slope > slopes[1][k], (str(expr), point)


@pytest.mark.parametrize(("text", "low", "high", "smooth"), FUNCTIONS)
def test_values_and_slopes_of_parts(text, low, high, smooth):
    expr = parse(text)
    cells = cells_of(expr, low, high)
    _assert_contained(expr, cells, low, high, seed=1)
    assert (steepest(cells, low, high) < math.inf) == smooth


@pytest.mark.parametrize(("text", "low", "high", "smooth"), [f for f in FUNCTIONS if f[3]])
def test_the_steepest_is_hardly_exceeded(text, low, high, smooth):
    expr = parse(text)
    points = np.unique(np.linspace(low, high, 801))
    seen = max(float(abs(_at(expr, float(p))[1]).mid()) for p in points)
    assert seen * (1 - 1e-12) <= steepest(cells_of(expr, low, high), low, high) <= 1.35 * seen + 1e-300


def test_a_constant():
    cells = cells_of(parse("3/7"), -1.0, 1.0)
    low, high = cells.values(np.array([-0.5]), np.array([0.5]))
    assert low[0] <= 3 / 7 <= high[0] <= low[0] + 1e-15 and steepest(cells, -1.0, 1.0) == 0


def test_an_unbounded_slope_is_confined_to_the_end():
    """Away from a singular end slopes are finite: the paths of errors are cut there and nowhere else."""
    cells = cells_of(parse("sqrt(u)"), 0.0, 1.0)
    low, high = cells.slopes(np.array([0.0, 1e-12, 0.1]), np.array([1e-3, 1e-3, 0.2]))
    assert high[0] == math.inf and high[1] < 2 * 0.5e6 and 0.5 / math.sqrt(0.2) * 0.9 < low[2]


def test_nothing_is_known_beyond_the_cells():
    cells = cells_of(parse("exp(u)"), 0.0, 1.0)
    past = math.nextafter(1.0, 2)
    low = np.array([-5.0, 0.5, 2.0, -1.0, -5e-324, 0.5, 0.6, math.nan, 0.5])
    high = np.array([9.0, past, 3.0, 0.0, 0.5, math.inf, 0.5, 0.5, math.nan])
    for bottom, top in (cells.values(low, high), cells.slopes(low, high)):
        assert (bottom == -math.inf).all() and (top == math.inf).all()
    bottom, top = cells.values(np.array([0.0]), np.array([1.0]))
    assert 0.9 < bottom[0] <= 1 and math.e <= top[0] < 2.8


@pytest.mark.parametrize("edges", [None, [], [0.0], [0, 1], [0.0, 0.0], [1.0, 0.0], [0.0, math.nan, 1.0],
                                   [0.0, math.inf], ["0.0", "1.0"], [0.0, None, 1.0],
                                   np.linspace(0, 1, 4002).tolist()])  # fmt: skip
def test_edges_that_are_none_are_refused(edges):
    with pytest.raises(RefutedError):
        FunctionCells(parse("u"), edges)


def test_a_function_of_something_else_is_refused():
    with pytest.raises(RefutedError):
        FunctionCells(parse("x"), [0.0, 1.0])


@pytest.mark.parametrize("text", ["sqrt(u)", "log(u)", "1/(u + 3/4)", "asin(u - 1)", "sqrt(u) - sqrt(u)", "0*log(u)"])
def test_undefined_is_infinite(text):
    cells = FunctionCells(parse(text), [-1.0, -0.5, 0.5, 1.0])
    low, high = cells.values(np.array([-1.0, 0.6]), np.array([-0.9, 0.7]))
    assert low[0] == -math.inf and high[0] == math.inf and math.isfinite(low[1]) and math.isfinite(high[1])
    assert cells.modulus(-1.0, 1.0, 0.1) == math.inf and cells.modulus(0.6, 0.7, 0.1) < math.inf


#: function, interval, whether f' is bounded there
MODULI = [
    ("sqrt(u)", 0.0, 1.0), ("u**2", -1.0, 3.0), ("sin(20*u)", 0.0, 2.0), ("acos(u)", -1.0, 1.0),
    ("log(u)", 0.01, 5.0), ("abs(u)**(7/10)", -1.0, 2.0), ("exp(-u**2)*u", -3.0, 3.0), ("1/u", 0.1, 1.0),
    ("u**(3/2)", 0.0, 4.0), ("tanh(50*u)", -1.0, 1.0), ("3 - u/7", -2.0, 9.0),
]  # fmt: skip


def _moved(function, low, high, shift):
    """Largest |f(x) − f(y)| on pairs within the shift, the ends included."""
    near = np.concatenate([[0], 10.0 ** np.linspace(-9, 0, 200)]) * (high - low)
    x = np.concatenate([np.linspace(low, high, 4001), low + near, high - near])
    return max(
        np.nanmax(np.abs(function(np.clip(x + part * shift, low, high)) - function(x))) for part in (1, 0.5, 0.1)
    )


@pytest.mark.parametrize("shift", [1e-9, 1e-4, 0.1, 100.0])
@pytest.mark.parametrize(("text", "low", "high"), MODULI)
def test_modulus_against_sampling(text, low, high, shift):
    expr = parse(text)
    bound = cells_of(expr, low, high).modulus(low, high, shift)
    seen = _moved(numpy_function(expr, ["u"]), low, high, shift)
    assert seen <= bound * (1 + 1e-9) + 1e-15
    if shift != 0.1 and "abs" not in text:  # a singular point inside takes many cells
        assert bound <= 4 * seen + 1e-14


@given(seed=st.integers(0, 5000), shift=st.floats(1e-8, 0.3), low=st.floats(-1, 0.4), width=st.floats(0, 1))
@settings(max_examples=25)
def test_modulus_of_random_functions(seed, shift, low, width):
    expr = random_formula(seed, ["u"])
    high = min(low + width, 1.5)
    bound = cells_of(expr, -1.0, 1.5).modulus(low, high, shift)
    assert _moved(numpy_function(expr, ["u"]), low, high, shift) <= bound * (1 + 1e-9) + 1e-12


def test_modulus_of_what_is_no_interval():
    cells = cells_of(parse("sin(u)"), 0.0, 1.0)
    assert cells.modulus(0.0, 1.0, 0.0) == cells.modulus(0.5, 0.5, 0.1) == 0
    for low, high, shift in (
        (-0.1, 1.0, 0.1), (0.0, 1.1, 0.1), (1.0, 0.0, 0.1), (math.nan, 1.0, 0.1), (0.0, math.nan, 0.1),
        (0.0, 1.0, math.nan), (0.0, 1.0, -0.1),
    ):  # fmt: skip
        assert cells.modulus(low, high, shift) == math.inf
    assert math.sin(1) <= cells.modulus(0.0, 1.0, math.inf) < 1
    assert FunctionCells(parse("7"), [0.0, 1.0]).modulus(0.0, 1.0, math.inf) < 1e-300


@settings(max_examples=25)
@given(seed=st.integers(0, 5000), low=st.floats(-2, 2), width=st.sampled_from([0.0, 1e-13, 1e-6, 1e-2, 0.5, 3.0]))
def test_random_functions(seed, low, width):
    expr = random_formula(seed, ["u"])
    high = low + width
    _assert_contained(expr, cells_of(expr, low, high), low, high, seed, count=2)


@given(
    low=st.floats(-1e150, 1e150) | st.floats(-3, 3) | st.sampled_from([0.0, -0.0, 1e-200, -1e-170]),
    width=st.floats(0, 1e100) | st.floats(0, 2),
    share=st.floats(0, 1),
)
def test_squares(low, width, share):
    high = low + width
    cells = SquareCells()
    a, b = np.array([low]), np.array([high])
    point = min(max(low + share * width, low), high)
    with precision(400):
        (least,), (most,) = cells.values(a, b)
        assert arb(float(least)) <= arb(point) ** 2 and (most == math.inf or arb(point) ** 2 <= arb(float(most)))
        (least,), (most,) = cells.slopes(a, b)
        assert least <= 2 * point <= most


@pytest.mark.parametrize(("text", "low", "high", "most"), [
    ("1/u", 1.0, 5.0, 60), ("log(u)", 1.0, 5.0, 60), ("tanh(50*u)", -1.0, 1.0, 250), ("u/(exp(u) - 1)", 0.1, 5.0, 500),
])  # fmt: skip
def test_smooth_functions_take_few_cells(text, low, high, most):
    assert len(find_function_cells(parse(text), low, high)) <= most


def test_cells_shrink_towards_an_end_without_a_slope_and_only_there():
    edges = find_function_cells(parse("sqrt(u)"), 0.0, 1.0)
    assert edges[1] < 1e-12 and edges[-1] - edges[-2] > 1e-3
