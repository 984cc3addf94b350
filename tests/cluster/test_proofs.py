"""Proofs on workers: the same bytes and the same verdict, also when a worker dies or a claim is false."""

import os
import signal
from dataclasses import replace
from functools import partial

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import transformula as tf
from transformula.cluster.engines import Outcome
from transformula.cluster.lent_workers import spread
from transformula.compiler import package as packaging
from transformula.kernel import check
from transformula.kernel.check import verify_files

FORMULA, BOX, EPS = "cos(x1*x2*x3*x4)", "x1..x4=0..1", 1e-2


def deadly(function, marker, group):
    """The first task kills its process."""
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return function(group)


@pytest.fixture(scope="module")
def alone():
    return tf.compile(FORMULA, on=BOX, eps=EPS, construction="lookup")


def test_two_workers_one_of_which_dies_make_the_same_bytes_and_verdict(alone, tmp_path, monkeypatch):
    with tf.workers(jobs=2) as engine:
        given, run = [], engine.run

        def dying(function, tasks):
            for outcome in run(partial(deadly, function, str(tmp_path / "died")), tasks):
                given.append(outcome)
                yield outcome

        monkeypatch.setattr(engine, "run", dying)
        model = tf.compile(FORMULA, on=BOX, eps=EPS, construction="lookup")
        assert model.contents == alone.contents
        verdict = tf.verify(model)
        claim = replace(model.certificate, approximation=model.certificate.approximation / 1.01)
        refused = verify_files(model.packed, claim.to_json())
    assert (tmp_path / "died").exists() and len(given) > 4 and not any(one.error for one in given)
    assert verdict == tf.verify(model) and verdict.verified
    assert not refused.verified and refused == verify_files(model.packed, claim.to_json())


def test_proofs_run_on_one_thread(monkeypatch):
    """Threads of BLAS that wait for each other took most of the time of grids."""
    seen = []

    def spied(rule):
        def asked(*arguments):
            seen.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
            return rule(*arguments)

        return asked

    monkeypatch.setattr(packaging, "prove", spied(packaging.prove))
    monkeypatch.setattr(check, "verify_files", spied(check.verify_files))
    with threadpool_limits(limits=2):
        assert tf.verify(tf.compile("x*y", on="x=0..1, y=0..1")).verified
    assert len(seen) >= 3 and set(seen) == {1}


class Broken:
    """An engine whose outcomes are of no use."""

    workers = 2

    def run(self, function, tasks):
        yield Outcome(0, "nonsense")
        yield Outcome(1, None, ValueError("lost"))


def test_useless_outcomes_leave_the_parts_to_whoever_asked():
    assert spread(Broken(), abs, [1, 2, 3]) == [None, None, None]
