"""What is hopeless is given up soon, by counting what is done and not by the clock."""

import numpy as np
import pytest

from transformula.constructions.tables import fitting, grids
from transformula.constructions.tables.patience import AFTER_FAILURE, LEAST, allowed, patience, spent
from transformula.constructions.tables.tasks import MAX_SPOILED, CannotFit


def test_the_first_failure_limits_all_that_follows():
    assert allowed(1e12) == 1e12
    with patience():
        spent(1e11, failed=False)
        assert allowed(1e12) == 1e12  # what succeeds may take what it takes
        spent(1e11, failed=True)
        assert allowed(1e12) == AFTER_FAILURE and allowed(1e9) == 1e9
        spent(0.75 * AFTER_FAILURE, failed=False)
        assert allowed(1e12) == 0.25 * AFTER_FAILURE
        spent(AFTER_FAILURE, failed=True)
        assert allowed(1e12) == LEAST
    spent(1.0, failed=True)
    assert allowed(1e12) == 1e12


def test_tables_that_only_rounding_spoils_stop_growing(monkeypatch):
    sizes, attempt = [], fitting._attempt

    def counted(task, effort, size, *others):
        sizes.append(size)
        return attempt(task, effort, size, *others)

    monkeypatch.setattr(fitting, "_attempt", counted)
    with pytest.raises(CannotFit) as error:
        fitting.fit_table(np.exp, 0.0, 1.0, 4e-7, "float32")
    assert error.value.best_error < 4e-6  # rounding, of a table that fits
    assert len(sizes) <= MAX_SPOILED + 4


def test_an_axis_that_gains_nothing_more_is_left(monkeypatch):
    sizes, fit = [], grids._Axis._fit

    def counted(axis, size, eps):
        sizes.append(size)
        fit(axis, size, eps)

    monkeypatch.setattr(grids._Axis, "_fit", counted)
    with pytest.raises(CannotFit):
        grids.fit_grid(lambda x, y: np.sign(x - 0.3) + 0 * y, (0.0, 0.0), (1.0, 1.0), 1e-3, "float32")
    assert max(sizes) <= 20
