"""Tables that workers fit are those that one process finds, before and after a failure."""

import os

import pytest

import transformula as tf
from transformula.constructions.tables.patience import AFTER_FAILURE, allowed, patience, spent
from transformula.constructions.tables.sharing import fit_all
from transformula.errors import NotProvenError
from transformula.progress import OutOfTime, checkpoint, deadline

MUCH = 2 * AFTER_FAILURE


def fit(number):
    """What a fit may spend, and who makes it; the third fails, the second cannot be made."""
    if number == 1:
        raise NotProvenError("no table")
    budget = allowed(MUCH)
    spent(1.0, number == 2)
    return budget, os.getpid()


def endless(number):
    while True:
        checkpoint()


@pytest.fixture(scope="module")
def lent():
    with tf.workers(jobs=2) as engine:
        yield engine


def fits(numbers):
    with patience():
        return list(fit_all(fit, [(n,) for n in numbers]))


def test_after_a_failure_the_budget_is_what_one_process_would_have(lent):
    found = fits([0, 3, 2, 4, 5, 6])
    assert [budget for budget, _ in found] == [MUCH, MUCH, MUCH, AFTER_FAILURE, AFTER_FAILURE - 1, AFTER_FAILURE - 2]
    assert os.getpid() not in {who for _, who in found[:3]} and {who for _, who in found[3:]} == {os.getpid()}


def test_what_cannot_be_made_is_said_in_its_turn(lent):
    with patience():
        made = fit_all(fit, [(0,), (1,), (3,)])
        assert next(made)[0] == MUCH
        with pytest.raises(NotProvenError, match=r"^no table$"):
            next(made)


def test_a_deadline_holds_for_workers_too(lent):
    with deadline(0.3), pytest.raises(OutOfTime):
        list(fit_all(endless, [(0,), (1,), (2,)]))
    assert len(fits([0, 3])) == 2, "the workers are free again"


@pytest.mark.parametrize("construction", ["lookup", "circuit"])
def test_many_heads_are_fitted_by_workers_and_the_model_is_the_same(lent, construction, monkeypatch):
    formula, box = "sin(x) + exp(y) + cos(2*z)", "x=0..1, y=0..1, z=0..1"
    given, run = [], lent.run
    monkeypatch.setattr(lent, "run", lambda function, tasks: (given.append(one) or one for one in run(function, tasks)))
    model = tf.compile(formula, on=box, eps=1e-3, construction=construction)
    assert len(given) >= 3 and not any(one.error for one in given)
    monkeypatch.undo()
    monkeypatch.setattr("transformula.constructions.tables.sharing.ahead", lambda *_: ())
    assert tf.compile(formula, on=box, eps=1e-3, construction=construction).contents == model.contents
