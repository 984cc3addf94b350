"""Proofs run on one thread."""

from threadpoolctl import threadpool_info, threadpool_limits

import transformula as tf
from transformula.compiler import package as packaging


def test_proofs_run_on_one_thread(monkeypatch):
    """Threads of BLAS that wait for each other took most of the time of grids."""
    seen = []

    def spied(rule):
        def asked(*arguments):
            seen.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
            return rule(*arguments)

        return asked

    monkeypatch.setattr(packaging, "prove", spied(packaging.prove))
    with threadpool_limits(limits=2):
        assert tf.verify(tf.compile("x*y", on="x=0..1, y=0..1")).verified
    assert len(seen) >= 2 and set(seen) == {1}
