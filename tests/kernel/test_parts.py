"""A proof whose parts are computed elsewhere: the same answer, whatever the helpers give back."""

import numpy as np
import pytest
from flint import ctx

from transformula.kernel.arithmetic import precision
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.parts import helped, in_parts
from transformula.kernel.work import limited, spend

PARTS = [(k, np.zeros((2, 3)), np.ones((2, 3))) for k in range(4)]
RIGHT = np.repeat(np.arange(4.0), 3)[None]


def rows(part):
    spend(10.0)
    assert ctx.prec == 77
    return np.full((1, 3), float(part[0]))


@pytest.fixture(autouse=True)
def bits():
    with precision(77):
        yield


def honest(function, parts):
    with precision(53), limited():  # another process has a state of its own
        return [function(part) for part in parts]


def test_without_helpers_parts_are_computed_here():
    assert (in_parts(rows, PARTS) == RIGHT).all()


def test_helpers_are_asked_once_and_their_work_counts():
    asked = []

    def helpers(function, parts):
        asked.append(len(parts))
        return honest(function, parts)

    with helped(helpers), limited() as meter:
        assert (in_parts(rows, PARTS) == RIGHT).all()
    assert asked == [4] and meter[0] == 40
    with limited() as alone:
        in_parts(rows, PARTS)
    assert alone == meter


@pytest.mark.parametrize(
    "garbage",
    [
        lambda right: None,
        lambda right: [],
        lambda right: right[:-1],
        lambda right: [None, *right[1:]],
        lambda right: ["nonsense", *right[1:]],
        lambda right: [(np.zeros((1, 2)), 0.0), *right[1:]],
        lambda right: [(np.zeros((1, 3), dtype=np.float32), 0.0), *right[1:]],
        lambda right: [(right[0][0], float("nan")), *right[1:]],
        lambda right: [(right[0][0], -1e9), *right[1:]],
        lambda right: [right[0][0], *right[1:]],
    ],
)
def test_what_is_no_answer_is_computed_here(garbage):
    with helped(lambda function, parts: garbage(honest(function, parts))), limited() as meter:
        assert (in_parts(rows, PARTS) == RIGHT).all()
    assert meter[0] == 40


def test_too_much_work_is_refused_with_helpers_and_without():
    for helpers in (honest, lambda function, parts: None):
        with helped(helpers), limited(35.0), pytest.raises(RefutedError, match="too much work"):
            in_parts(rows, PARTS)


def test_helpers_together_do_not_do_much_more_than_is_allowed():
    """Without helpers the second part is one too many; all hundred at once would keep many workers busy."""
    done = []

    def long(part):
        for _ in range(9):
            spend(100.0)
            done.append(part)
        return np.full((1, 3), float(part[0]))

    def helpers(function, parts):
        return [_or_none(function, part) for part in parts]

    with helped(helpers), limited(1000.0), pytest.raises(RefutedError, match="too much work"):
        in_parts(long, PARTS[:1] * 100)
    assert 100.0 * len(done) <= 5000
    done.clear()
    with helped(helpers), limited(1e5):
        in_parts(long, PARTS)
    assert len(done) == 9 * len(PARTS)


def _or_none(function, part):
    try:
        with limited():
            return function(part)
    except RefutedError:
        return None
