"""Workers of this machine: outcomes, failures, deaths and interrupts."""

import os
import signal
import time

import pytest

from transformula.cluster import Outcome, WorkerLostError, opened_engine
from transformula.errors import InputError


def act(task):
    """Do what the task says."""
    verb, argument = task
    if verb == "fail":
        raise ValueError(argument)
    if verb == "die" or (verb == "die once" and not argument.exists()):
        if verb == "die once":
            argument.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if verb == "sleep":
        time.sleep(argument)
    return verb, argument, os.getpid()


def test_outcomes_belong_to_their_tasks_and_failures_are_not_fatal():
    with opened_engine(jobs=2) as engine:
        outcomes = sorted(engine.run(act, [("say", 1), ("fail", "no"), ("say", 3)]), key=lambda one: one.index)
        assert [one.value[1] for one in (outcomes[0], outcomes[2])] == [1, 3]
        assert outcomes[0].value[2] != os.getpid()
        with pytest.raises(ValueError, match="no"):
            outcomes[1].get()


def test_a_dead_worker_costs_its_own_task_alone_and_only_the_second_time(tmp_path):
    with opened_engine(jobs=2) as engine:
        outcomes = {one.index: one for one in engine.run(act, [("say", 0), ("die", 1), ("say", 2)])}
        # on its own: if it were running when the other one dies, that would count against it
        once = [one.error for one in engine.run(act, [("die once", tmp_path / "died"), ("say", 1)])]
    assert [k for k, one in sorted(outcomes.items()) if one.error] == [1] and len(outcomes) == 3
    assert isinstance(outcomes[1].error, WorkerLostError)
    assert once == [None, None] and (tmp_path / "died").exists()


def test_tasks_are_taken_as_workers_come_free_and_whoever_stops_reading_stops_the_work():
    taken = []

    def endless():
        while True:
            taken.append(("sleep", 0.01))
            yield taken[-1]

    with opened_engine(jobs=2) as engine:
        for outcome in engine.run(act, endless()):
            if outcome.index >= 5:
                break
        assert len(taken) < 12
        assert [one.value[1] for one in engine.run(act, [("say", "again")])] == ["again"]


@pytest.mark.parametrize("jobs", [0, -1, 1.5, 10**6])
def test_a_senseless_number_of_jobs_is_refused(jobs):
    with pytest.raises(InputError, match="whole number from 1 to"):
        opened_engine(jobs=jobs)


def test_either_jobs_or_a_scheduler():
    with pytest.raises(InputError, match="either"):
        opened_engine(jobs=2, scheduler="tcp://127.0.0.1:1")
    assert Outcome(0, 5).get() == 5
