"""What is hopeless is given up soon, by counting what is done and not by the clock."""

import contextlib

import numpy as np
import pytest

from transformula.budget import left, limited, one_thread, spend
from transformula.compiler import policy
from transformula.compiler.tables import grid_fit as grids
from transformula.compiler.tables import smallest_table as fitting
from transformula.compiler.tables.descent import LEAST
from transformula.compiler.tables.fit_task import PLENTY, CannotFit
from transformula.compiler.tables.smallest_table import Allowance, allowance
from transformula.compiler.tables.softmax_table import FittedTable


def test_a_table_that_was_not_found_limits_those_that_follow():
    assert allowance(doubtful=False) == allowance(doubtful=True) == PLENTY
    with limited(20.0):
        assert allowance(doubtful=False) == PLENTY
        assert allowance(doubtful=True).growing == pytest.approx(policy.DOUBTFUL_PART * 20e6)
        spend(19.99e6)
        assert allowance(doubtful=False).growing == LEAST
        assert allowance(doubtful=False).shrinking == pytest.approx(policy.GROWING_PART * 0.01e6)


def test_a_fit_gives_up_when_its_allowance_is_used_up():
    def work(most):
        with limited(100.0):
            with contextlib.suppress(CannotFit), one_thread():
                fitting.fit_table(np.sqrt, 0.0, 1.0, 1e-12, most=most)
            return 100e6 - left()

    assert work(Allowance(LEAST, 0.0)) < 0.5 * work(Allowance(6 * LEAST, 0.0))


def test_tables_that_only_rounding_spoils_stop_growing(sizes):
    with pytest.raises(CannotFit) as error:
        fitting.fit_table(np.exp, 0.0, 1.0, 4e-7, "float32")
    assert error.value.best_error < 4e-6  # rounding, of a table that fits
    assert len(sizes) <= policy.MAX_SPOILED + 4


def test_tables_stop_growing_where_the_rounding_of_the_best_is_too_much(sizes):
    """Though errors come and go around the goal, where rounding alone is eight times as much as may be."""
    with pytest.raises(CannotFit) as error:
        fitting.fit_table(np.sin, 0.0, 1.0, 1e-7, "float32")
    assert error.value.best.rounding_estimate > 5e-7 > 1e-7 > error.value.best.error_estimate
    assert len(sizes) <= error.value.best.size + policy.MAX_SPOILED


@pytest.mark.parametrize(("eps", "cautions"), [(1e-6, 1), (1e-4, 2)])
def test_more_caution_is_for_grids_that_are_close(eps, cautions, monkeypatch):
    """What so many tokens round by at least is not made less by smaller values."""
    made = []

    def search(_f, axes, _eps, dtype, _most):
        made.append(axes[0].caution)
        scores = (np.zeros(5), np.zeros(5))
        enough = len(made) == 2
        grid = FittedTable(scores, scores, np.ones((5, 5)), 0.0, 1e-7, 5e-6, dtype)
        return grids._GridSearch(grid, enough, largest=3.0)

    monkeypatch.setattr(grids, "_search", search)
    with contextlib.suppress(CannotFit):
        grids.fit_grid(lambda x, y: np.exp(x * y), (0.0, 0.0), (1.0, 1.0), eps, "float32", max_tokens=2000)
    assert len(made) == cautions


def test_an_axis_that_gains_nothing_more_is_left(monkeypatch):
    sizes, fit = [], grids._GridAxis._fit

    def counted(axis, size, eps):
        sizes.append(size)
        fit(axis, size, eps)

    monkeypatch.setattr(grids._GridAxis, "_fit", counted)
    with pytest.raises(CannotFit):
        grids.fit_grid(
            lambda x, y: np.sign(x - 0.3) + 0 * y, (0.0, 0.0), (1.0, 1.0), 1e-3, "float32", max_tokens=20_000
        )
    assert max(sizes) <= 20
