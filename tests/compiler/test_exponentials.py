"""Minimax sums of exponentials: tables of what is singular at one end."""

import itertools

import numpy as np
import pytest

import transformula as tf
from transformula.budget import one_thread
from transformula.compiler.tables.smallest_table import fit_table
from transformula.compiler.tables.theory_tables import sums


def _first(function, count, linear=True):
    return list(itertools.islice(sums(function, lambda d: d, 100, linear), count))


def _errors(found, function, points, low):
    decaying = np.exp(-np.exp(found.logs) * points[:, None])
    return points[:, None] ** np.arange(low) @ found.factors[:low] + decaying @ found.factors[low:] - function(points)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("power", [0.1, 1 / 3, 0.5, 0.75])
def test_errors_are_level_at_as_many_points_as_there_are_numbers(power, linear):
    low = 1 + linear
    for found in _first(lambda d: d**power, 12, linear):
        assert len(found.points) == 2 * len(found.logs) + low + 1
        errors = _errors(found, lambda d: d**power, found.points, low)
        assert (errors[1:] * errors[:-1] < 0).all() and np.abs(errors).min() > 0.95 * found.error
        between = np.concatenate([[0.0], np.geomspace(found.points[1] / 10, 1, 5000)])
        assert np.abs(_errors(found, lambda d: d**power, between, low)).max() < 1.02 * found.error


def test_more_exponentials_come_closer_as_theory_has_it():
    """The root's error is like exp(−π√n), to the last digits that floats have."""
    errors = {len(found.logs): found.error for found in _first(np.sqrt, 46)}
    assert errors[10] < 2.6e-5 and errors[40] < 8e-10 and errors[48] < 1.15e-10
    rates = [errors[n] / np.exp(-np.pi * np.sqrt(n)) for n in errors]
    assert all(after < 1.02 * before for before, after in itertools.pairwise(rates))


def test_what_has_no_such_sum_is_left_to_the_general_search():
    assert len(_first(lambda d: np.sqrt(d * (2 - d)), 40)) < 20
    with one_thread():
        table = fit_table(lambda x: np.sqrt(x * (2 - x)), 0.0, 1.0, 1e-5)
    assert table.total_error <= 1e-5


@pytest.mark.parametrize(
    ("function", "ends", "eps", "tokens"),
    [
        (np.sqrt, (0.0, 1.0), 1e-9, 41),
        (np.sqrt, (0.0, 1.0), 1e-10, 50),
        (np.cbrt, (0.0, 1.0), 1e-6, 28),
        (lambda x: np.sqrt(3 - x), (-1.0, 3.0), 1e-6, 22),
        (lambda x: -(x**0.75), (0.0, 2.0), 1e-6, 13),
    ],
)
def test_tables(function, ends, eps, tokens):
    with one_thread():
        table = fit_table(function, *ends, eps)
    assert table.size <= tokens and table.total_error <= 0.9 * eps


@pytest.mark.parametrize(
    ("formula", "box", "eps", "tokens"),
    [
        ("sqrt(x)", "x=0..1", 1e-9, 41),
        ("sqrt(x)", "x=0..1", 1e-10, 50),
        ("cbrt(x)", "x=0..1", 1e-6, 28),  # refused when pieces of the proof went on beyond 0
        ("cbrt(x)", "x=-1..1", 1e-6, 32),
    ],
)
def test_models_are_proven(formula, box, eps, tokens):
    model = tf.compile(formula, box, eps)
    assert model.memory_tokens <= tokens and tf.verify(model).verified
