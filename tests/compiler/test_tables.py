"""The solvers behind the tables: what they return does what they say, in the dtype asked for."""

import numpy as np
import pytest
from flint import arb

from transformula.budget import one_thread
from transformula.compiler.evidence.finder import SQUARE_ENDS
from transformula.compiler.evidence.grid_pieces import find_softmax
from transformula.compiler.tables import smallest_table
from transformula.compiler.tables.descent import FitProblem, Fresh, equalise, improve
from transformula.compiler.tables.grid_fit import fit_grid
from transformula.compiler.tables.one_size import ready_square, squares
from transformula.compiler.tables.smallest_table import CannotFit, fit_table
from transformula.compiler.tables.start_scores import stretched
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.rounding.softmax import Arithmetic, rounding_bound


def _softmax(slopes, offsets, x):
    scores = slopes * x[:, None] + offsets
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _x_log_x(x):
    return np.where(x > 0, x * np.log(np.where(x > 0, x, 1.0)), 0.0)


FUNCTIONS = {
    "sine": (np.sin, 0.0, 6.0, 1e-4),
    "runge": (lambda x: 1 / (1 + 25 * x**2), -1.0, 1.0, 1e-3),
    "root": (lambda x: np.sqrt(np.maximum(x, 0)), 0.0, 1.0, 1e-2),
    "bend": (np.abs, -1.0, 1.0, 1e-2),
    "logistic": (lambda x: 1 / (1 + np.exp(-30 * x)), -1.0, 1.0, 1e-5),
    "line": (lambda x: 3 * x - 1, -1.0, 1.0, 1e-6),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_variable(name, dtype):
    function, low, high, eps = FUNCTIONS[name]
    eps = eps if dtype == "float64" else max(eps, 1e-3)
    table = fit_table(function, low, high, eps, dtype)
    for stored in (table.slopes[0], table.offsets[0], table.values):
        assert np.array_equal(stored.astype(dtype).astype(float), stored)
    x = np.linspace(low, high, 3001)
    values = _softmax(table.slopes[0], table.offsets[0], x) @ table.values + float(table.linear) * x
    assert np.abs(values - function(x)).max() <= eps * 1.01


def test_a_linear_part_that_is_only_rounding_is_left_out():
    table = fit_table(lambda x: np.tanh(50 * x), -1.0, 1.0, 1e-6)
    assert table.linear == 0 and sorted(np.abs(table.values)) == pytest.approx([1.0, 1.0], abs=1e-15)


def test_growth_next_to_a_singularity_ends_where_tokens_are_not_worth_it():
    """The cube root at 8e-7: two tokens more, and two more, hardly help; other starts do."""
    errors = [(20, 1.05e-5), (22, 6.98e-6), (24, 6.62e-6), (26, 6.51e-6)]
    assert (
        smallest_table._stalled(errors)
        and not smallest_table._stalled(errors[:3])
        and not smallest_table._stalled(errors[2:])
    )


@pytest.mark.parametrize(
    ("function", "eps", "tokens"), [(np.sqrt, 1e-8, 33), (np.cbrt, 1e-6, 28), (_x_log_x, 1e-8, 18)]
)
def test_tables_next_to_a_singularity_stay_small(function, eps, tokens):
    """Grown by splitting alone they take 55, 36 and 21 tokens, by stretching 34, 30 and 19."""
    with one_thread():
        table = fit_table(function, 0.0, 1.0, eps)
    assert table.size <= tokens and table.total_error <= 0.9 * eps


def test_stretched_scores_keep_their_shape():
    """Slopes that grow geometrically from a flat token do so again, over a range that has grown like the root of their number."""
    slopes, points = (
        np.concatenate([[0.0, -1e-3], -np.geomspace(1.0, 1e8, 16)]),
        np.concatenate([[0.0], np.geomspace(1e-9, 1, 99)]),
    )
    offsets = np.concatenate([[0.0, 0.0], np.full(16, -20.0)])
    merged, whole = stretched((slopes, offsets), points, _softmax(slopes, offsets, points), 65)
    assert len(merged[0]) == len(whole[0]) == 65
    assert np.sort(-merged[0])[1:] == pytest.approx(np.geomspace(1.0, 1e16, 64)) and set(merged[1]) == {0.0, -20.0}
    assert np.sort(-whole[0])[1] == pytest.approx(1e-3)  # the second flat token is in only one of the two


def test_tighter_tolerances_take_more_tokens_but_not_many():
    counts = [fit_table(np.sin, 0.0, 6.0, eps, "float64").size for eps in (1e-2, 1e-5, 1e-7)]
    assert counts == sorted(counts) and counts[-1] <= 10  # spectral: digits cost tokens, not powers of them


@pytest.mark.parametrize(
    ("periods", "eps", "linear", "tokens"),
    [(10, 1e-6, True, 19), (10, 1e-9, True, 31), (10, 1e-6, False, 26), (10, 1e-11, True, 53), (30, 1e-6, True, 40)],
)
def test_a_wave_takes_a_few_tokens_a_period(periods, eps, linear, tokens):
    """With a linear term one token each and a few at the ends, as long as large values may round; else two, or four."""
    with one_thread():
        assert fit_table(lambda x: np.sin(2 * np.pi * periods * x), 0.0, 1.0, eps, linear=linear).size <= tokens


def test_rounding_is_estimated_as_it_is_proven():
    """Values of a wave with a linear term beside it are large, and neighbours are alike: that does not round as much."""
    with one_thread():
        table = fit_table(lambda x: np.sin(20 * np.pi * x), 0.0, 1.0, 1e-6)
    ends = [(arb(0), arb(1))]
    proven = rounding_bound(table, ends, find_softmax(table, ends), Arithmetic(FORMATS["float64"], 2))
    assert 0.5 * proven <= table.rounding_estimate <= 1.2 * proven


def test_a_table_that_grows_does_not_get_worse():
    """Split more gently, tokens keep what they had reached: else 24 and more are needed, or 48 for another digit."""
    with one_thread():
        assert fit_table(lambda x: x * np.tanh(1 / x), 0.04, 25.0, 1e-9, linear=False).size <= 19


def test_poles_are_seen():
    assert fit_table(lambda x: 1 / (1 + 25 * x**2), -1.0, 1.0, 1e-8, linear=False).size <= 9  # 15 if they are not


def test_the_same_task_gives_the_same_table():
    first, second = (fit_table(np.exp, -1.0, 1.0, 1e-6, "float64") for _ in range(2))
    assert np.array_equal(first.slopes[0], second.slopes[0]) and np.array_equal(first.values, second.values)


def test_two_variables():
    def function(x, y):
        return np.exp(-x * y)

    grid = fit_grid(function, (0.0, 0.0), (1.0, 2.0), 1e-3, "float64", max_tokens=2000)
    x, y = np.random.default_rng(0).uniform(0, [[1], [2]], size=(2, 4000))
    u, v = (_softmax(a, b, p) for a, b, p in zip(grid.slopes, grid.offsets, (x, y), strict=True))
    values = np.einsum("ni,nj,ij->n", u, v, grid.values.reshape(u.shape[1], v.shape[1]))
    assert np.abs(values - function(x, y)).max() <= 1.01e-3


def test_what_can_not_be_fitted_comes_with_the_best_error():
    with pytest.raises(CannotFit) as error:
        fit_table(lambda x: np.sin(1 / (x * x + 1e-9)), -1.0, 1.0, 1e-3, "float64")
    assert error.value.best_error > 1e-3


@pytest.mark.parametrize("functions", [1, 3])
def test_starts_that_step_together_step_as_each_would_alone(functions):
    points = np.linspace(-1, 1, 60)
    target = np.stack([np.exp((k + 1) * points) for k in range(functions)], axis=1)
    rng = np.random.default_rng(0)
    starts = [Fresh(np.sort(rng.normal(size=4)), rng.normal(size=4), 1e-10) for _ in range(5)]
    together = improve(FitProblem(points, target, 1e-10, True), starts, 12)
    for start, state in zip(starts, together, strict=True):
        (alone,) = improve(FitProblem(points, target, 1e-10, True), [start], 12)
        assert np.array_equal(alone.slopes, state.slopes) and alone.cost == state.cost
        (before,) = improve(FitProblem(points, target, 1e-10, True), [start], 0)
        assert state.cost < 0.5 * before.cost


def test_errors_are_made_equal():
    points = np.linspace(-1, 1, 60)
    problem = FitProblem(points, np.abs(points)[:, None], 1e-10, False)
    (start,) = improve(problem, [Fresh(np.linspace(-4, 4, 5), np.zeros(5), 1e-10)], 40)
    (state,) = equalise(problem, [start], 0.0, 25)
    assert state.sup < 0.8 * start.sup
    softmax = _softmax(state.slopes, state.offsets, points)
    assert np.allclose(np.abs(softmax @ state.values[:, 0] - np.abs(points)), state.errors)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_stored_squares_are_what_they_say(dtype):
    x = np.linspace(*SQUARE_ENDS, 5001)
    before = np.inf
    for table in squares()[dtype]:
        for stored in (table.slopes[0], table.offsets[0], table.values):
            assert np.array_equal(stored.astype(dtype).astype(float), stored)
        values = _softmax(table.slopes[0], table.offsets[0], x) @ table.values
        assert np.abs(values - x * x).max() <= 1.05 * table.error_estimate + table.rounding_estimate
        assert table.total_error < before  # more tokens come closer
        before = table.total_error
    assert [table.size for table in squares()[dtype]] == {
        "float64": [3, 4, 7, 9, 10, 11],
        "float32": [3, 4, 5],
    }[dtype]


def test_a_stored_square_leaves_the_proof_its_headroom():
    table = ready_square(1e-6, "float64")
    assert table.size == 3 and table.total_error <= 0.9e-6
    assert ready_square(1e-12, "float64").size > 3
    assert ready_square(1e-9, "float32") is squares()["float32"][-1]  # the closest there is


def test_what_oscillates_too_often_is_given_up_at_once():
    """A constant is left, so that a refusal has a bound."""
    with pytest.raises(CannotFit) as failure:
        fit_table(lambda x: np.cos(5000 * np.pi * x), -1.0, 1.0, 1e-6)
    assert failure.value.best.size == 1 and failure.value.best_error < 1.5
