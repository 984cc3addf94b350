"""Finite maps: distinct inputs, finite numbers, a box around them."""

import numpy as np
import pytest

from transformula.errors import InputError
from transformula.formula.sample_target import Samples


def test_columns_are_made_of_lists():
    samples = Samples.of([1, 2, 3], [4, 5, 6])
    assert samples.x.shape == samples.y.shape == (3, 1)
    assert samples.variables == ("x1",) and samples.outputs == ("y1",)
    assert str(samples) == "3 samples" and samples.texts == ("y1 memorised at 3 samples",)


def test_the_box_is_around_them_exactly():
    samples = Samples.of([[0.1, 5], [-2.5, 5]], [1, 2])
    (low, high), constant = samples.box.floats()
    assert (low, high) == (-2.5, 0.1) and constant == (5, 6)


def test_the_first_of_repeated_rows_is_kept_in_order():
    samples = Samples.of([[3], [1], [3], [0.0], [-0.0]], [[1, 2], [0, 0], [1, 2], [7, 7], [7, 7]])
    assert samples.x[:, 0].tolist() == [3, 1, 0] and samples.y[-1].tolist() == [7, 7]
    assert not np.signbit(samples.x).any()


@pytest.mark.parametrize("rows", [(0, 2), (1, 4)])
def test_contradictions_are_named(rows):
    x = np.arange(6.0)
    x[rows[1]] = x[rows[0]]
    with pytest.raises(InputError, match=f"rows {rows[0]} and {rows[1]} contradict"):
        Samples.of(x, np.arange(6.0))


def test_long_rows_are_shortened_in_messages():
    with pytest.raises(InputError, match=r"\(0, 1, 2, 3, \.\.\.\)"):
        Samples.of([range(9), range(9)], [1, 2])
