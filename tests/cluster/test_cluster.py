"""A real Dask cluster: two worker processes over TCP, one of which is killed in mid-run."""

import pytest

pytest.importorskip("distributed")

import transformula as tf
from support.cluster import cluster, fall, who
from transformula.cluster import EngineError, WorkerLostError, opened_engine

OLD = "import transformula\ntransformula.__version__ = '0.0.1'\n"
DYING = """
import os, transformula
del transformula.__version__
transformula.__getattr__ = lambda name: os._exit(1)
"""


@pytest.fixture(scope="module")
def dask():
    with cluster(workers=2) as started:
        yield started


def test_outcomes_come_from_both_workers_and_failures_are_not_fatal(dask):
    with opened_engine(scheduler=dask.address) as engine:
        assert engine.workers == 2
        assert {one.get() for one in engine.run(who, [0.05] * 8)} == {worker.pid for worker in dask.workers}
        outcomes = sorted(engine.run(fall, range(3)), key=lambda one: one.index)
        assert [one.value for one in outcomes] == [0, None, 2] and str(outcomes[1].error) == "this one fails"
        assert not isinstance(outcomes[1].error, WorkerLostError)


def test_fits_are_shared_by_the_workers_of_a_cluster(dask):
    formula, box = "sin(x) + exp(y) + cos(2*z)", "x=0..1, y=0..1, z=0..1"
    with tf.workers(scheduler=dask.address) as engine:
        sent, run = [], engine.run
        engine.run = lambda function, tasks: (sent.append(one) or one for one in run(function, tasks))
        model = tf.compile(formula, on=box, eps=1e-3, construction="lookup")
    assert len(sent) > 2 and not any(one.error for one in sent)
    assert model.contents == tf.compile(formula, on=box, eps=1e-3, construction="lookup").contents


def test_a_worker_of_another_version_is_refused_in_one_sentence(dask):
    dask.add(OLD)
    try:
        with pytest.raises(EngineError, match=r"^the worker tcp://\S+ has transformula 0.0.1, this machine trans"):
            opened_engine(scheduler=dask.address)
    finally:
        dask.workers.pop().kill()


def test_a_worker_that_dies_while_it_is_asked_is_left_out(dask):
    dask.add(DYING)
    dying = dask.workers.pop()
    with opened_engine(scheduler=dask.address) as engine:
        assert dying.wait(timeout=60) == 1
        assert {one.get() for one in engine.run(who, [0.05] * 8)} <= {worker.pid for worker in dask.workers}
    dying.stderr.close()


def test_a_worker_killed_in_mid_run_costs_time_only(dask):
    with opened_engine(scheduler=dask.address) as engine:
        outcomes = engine.run(who, [0.1] * 12)
        done = [next(outcomes)]
        dask.workers[0].kill()
        done += outcomes
    assert sorted(one.index for one in done) == list(range(12)) and not any(one.error for one in done)
    assert done[-1].value == dask.workers[1].pid


def test_a_scheduler_without_workers_and_one_that_goes_away(monkeypatch, capfd):
    monkeypatch.setattr("transformula.cluster.dask_engine.PATIENCE", 1.0)
    with cluster(workers=0) as empty:
        with pytest.raises(
            EngineError, match=r"^the scheduler at tcp://\S+ has no workers: start some with `dask worker"
        ):
            opened_engine(scheduler=empty.address)
        empty.add()
        with opened_engine(scheduler=empty.address) as engine:
            outcomes = engine.run(who, [0.1] * 9)
            next(outcomes)
            empty.scheduler.kill()
            with pytest.raises(EngineError, match=r"^the connection to the scheduler at tcp://\S+ was lost$"):
                list(outcomes)
    assert capfd.readouterr().err == ""


def test_a_scheduler_that_is_not_there():
    with pytest.raises(EngineError, match=r"^no Dask scheduler answers at tcp://127.0.0.1:1 \(Connection refused\)"):
        opened_engine(scheduler="tcp://127.0.0.1:1")
    with pytest.raises(EngineError, match=r"^a scheduler's address is written like tcp://10.0.0.1:8786, not 'here'$"):
        opened_engine(scheduler="here")
