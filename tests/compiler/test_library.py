"""Stored scores: what is like a stored function is found at once, and anything else as if there were none."""

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from transformula.compiler.tables import expression_fits as kept
from transformula.compiler.tables import one_size as library
from transformula.compiler.tables.fit_task import PROFILE_NODES, prepare
from transformula.compiler.tables.smallest_table import fit_table

#: function, interval, eps, tokens that were always enough
SIMILAR = [
    (lambda u: 1 / u, 1.0, 5.0, 2e-7, 6),
    (lambda u: 7 / u - 3, -12.0, -2.4, 1e-6, 6),
    (lambda u: u**-2.0, 0.05, 0.25, 4e-4, 6),
    (np.log, 30.0, 150.0, 4e-7, 6),
    (lambda u: u**-0.5, 2.0, 18.0, 2.2e-7, 7),
    (lambda u: u**-1.5, 1.0, 6.0, 1e-6, 7),
    (np.sqrt, 0.1, 0.7, 1e-6, 6),
]


@pytest.mark.parametrize(("function", "low", "high", "eps", "tokens"), SIMILAR)
def test_what_is_like_a_stored_function_is_found_within_two_sizes(sizes, function, low, high, eps, tokens):
    table = fit_table(function, low, high, eps, linear=False)
    assert table.size <= tokens and len([size for size in sizes if size > 2]) <= 2
    x = np.linspace(low, high, 5001)
    assert np.abs(table.on_mesh([x]) - function(x)).max() <= eps


def test_stored_scores_are_closest_to_their_own_functions_in_every_gauge_and_either_way():
    near = library.closest(1 / (3 + 2 * PROFILE_NODES), 6)  # 1/u on 1..5
    assert near.similar and near.distance < 1.5 * near.likely
    for values in (1 / (3 - 2 * PROFILE_NODES), 5 - 40 / (3 + 2 * PROFILE_NODES)):
        other = library.closest(values, 6)
        assert other.distance / np.ptp(values) == pytest.approx(
            near.distance / np.ptp(1 / (3 + 2 * PROFILE_NODES)), rel=1e-5
        )
    assert not library.closest(np.sin(7 * PROFILE_NODES), 6).similar
    assert not library.closest(np.sign(PROFILE_NODES), 6).similar  # though it is in many spaces


def test_more_tokens_promise_more():
    distances = [library.closest(np.log(3 + 2 * PROFILE_NODES), size).distance for size in (2, 3, 4, 5, 6)]
    assert all(b < a / 5 for a, b in pairwise(distances))
    goals = [library.closest(np.log(3 + 2 * PROFILE_NODES), size).promises(1e-6) for size in (2, 3, 4, 5, 6)]
    assert goals == sorted(goals) and goals[-1] and not goals[0]


def test_singular_and_unresolved_functions_do_not_start_from_stored_scores():
    for function in (np.sqrt, lambda x: np.cos(5000 * np.pi * x)):
        task = prepare(function, 0.0, 1.0, 1e-4, "float64", linear=True, most_crossings=100)
        assert library.promising_sizes(task, 100) == []


def test_steps_and_other_functions_are_fitted_as_ever(sizes):
    """On a few points a step looks like much; sines are like nothing that is stored, whatever their tables come to."""
    assert fit_table(lambda x: np.tanh(50 * x), -1.0, 1.0, 1e-3).size == 2
    assert fit_table(lambda x: np.full_like(x, 3.0), -1.0, 1.0, 1e-3).size == 1
    assert max(sizes) == 2
    assert fit_table(np.cos, 1.0, 5.0, 5e-7, linear=False).size == 5


def test_where_stored_scores_fail_the_search_goes_on(monkeypatch, sizes):
    """Scores that promise much and lead nowhere cost time, not the table."""
    monkeypatch.setattr(library.Neighbours, "promises", lambda self, goal: True)
    monkeypatch.setattr(library, "sizes", lambda: (4,))
    table = fit_table(lambda u: 1 / u, 1.0, 5.0, 2e-7, linear=False)
    assert table.total_error <= 2e-7 and table.size <= 7 and sizes[:3] == [1, 2, 4]


def test_the_file_is_small_and_sound():
    assert library.LIBRARY.stat().st_size < 200_000
    assert library.sizes() == tuple(range(2, 13))
    for size in library.sizes():
        stored = library.spans(size)
        assert stored.slopes.shape == stored.offsets.shape == (len(stored.errors), size)
        assert all(np.isfinite(part).all() for part in stored) and (stored.errors > 0).all()
        products = np.einsum("kni,knj->kij", stored.basis, stored.basis)
        assert np.allclose(products, np.eye(size))


def test_tables_that_are_kept_depend_on_what_is_stored(tmp_path, monkeypatch):
    """A table that was kept before the library changed is not taken for one of today's."""
    copy = tmp_path / "tables"
    shutil.copytree(Path(library.LIBRARY).parent, copy)
    monkeypatch.setattr(kept.here, "__path__", [str(copy)])
    codes = []
    for text in (None, "{}"):
        if text is not None:
            (copy / "library.json").write_text(text)
        kept._code.cache_clear()
        codes.append(kept._code())
    kept._code.cache_clear()
    assert codes[0] != codes[1]
