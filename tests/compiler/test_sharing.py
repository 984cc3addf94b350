"""Tables that workers fit are those that one process finds, before and after a failure."""

import os

import pytest

import transformula as tf
from transformula.budget import OutOfTime, checkpoint, left, limited, spend
from transformula.compiler import policy
from transformula.compiler.tables.expression_fits import fit_all
from transformula.compiler.tables.fit_task import PLENTY
from transformula.errors import NotProvenError


def fit(number, most):
    """What a fit may take, and who makes it; the second cannot be made."""
    if number == 1:
        raise NotProvenError("no table")
    spend(1e6)
    return most, os.getpid(), number


def endless(number, most):
    while True:
        checkpoint()


@pytest.fixture(scope="module")
def lent():
    with tf.workers(jobs=2) as engine:
        yield engine


def fits(numbers, seconds=100.0):
    """The third fails: what follows is doubtful."""
    found = []
    with limited(seconds):
        for one in fit_all(fit, [(n,) for n in numbers], lambda: any(number == 2 for *_, number in found)):
            found.append(one)
        return found, left()


def test_after_a_failure_the_allowance_is_what_one_process_would_have(lent):
    found, rest = fits([0, 3, 2, 4, 5], 20.0)
    assert [most for most, *_ in found[:3]] == [PLENTY] * 3
    assert [most.growing for most, *_ in found[3:]] == pytest.approx(
        [policy.DOUBTFUL_PART * 17e6, policy.DOUBTFUL_PART * 16e6]
    )
    assert os.getpid() not in {who for _, who, _ in found[:3]} and {who for _, who, _ in found[3:]} == {os.getpid()}
    assert rest == pytest.approx(15e6), "the work of workers counts"


def test_what_took_much_of_what_is_left_is_fitted_here(lent):
    found, rest = fits([0, 3], 3.0)
    assert {who for _, who, _ in found} == {os.getpid()} and rest == pytest.approx(1e6)


def test_what_cannot_be_made_is_said_in_its_turn(lent):
    made = fit_all(fit, [(0,), (1,), (3,)])
    assert next(made)[0] == PLENTY
    with pytest.raises(NotProvenError, match=r"^no table$"):
        next(made)


def test_a_time_limit_holds_for_workers_too(lent):
    with limited(1e9, time_limit=0.3), pytest.raises(OutOfTime):
        list(fit_all(endless, [(0,), (1,), (2,)]))
    assert len(fits([0, 3])[0]) == 2, "the workers are free again"


@pytest.mark.parametrize("construction", ["lookup", "circuit"])
def test_many_heads_are_fitted_by_workers_and_the_model_is_the_same(lent, construction, monkeypatch):
    formula, box = "sin(x) + exp(y) + cos(2*z)", "x=0..1, y=0..1, z=0..1"
    given, run = [], lent.run
    monkeypatch.setattr(lent, "run", lambda function, tasks: (given.append(one) or one for one in run(function, tasks)))
    model = tf.compile(formula, on=box, eps=1e-3, construction=construction)
    assert len(given) >= 3 and not any(one.error for one in given)
    monkeypatch.undo()
    monkeypatch.setattr("transformula.compiler.tables.expression_fits.ahead", lambda *_: ())
    assert tf.compile(formula, on=box, eps=1e-3, construction=construction).contents == model.contents
