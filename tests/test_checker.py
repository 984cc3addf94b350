"""Checks in processes of their own: many threads, killed processes, interrupts."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import transformula as tf
from support.folders import open_model
from transformula import proven
from transformula.kernel.check import verify_files


def _contents(model):
    return model.packed, model.certificate.to_json()


@pytest.fixture(scope="module")
def models():
    """Honest and forged contents, mixed."""
    honest = [
        tf.compile("sin(3*x) + exp(x)", on="x=-1..1", eps=1e-5),
        tf.compile("x*y", on="x=0..1, y=0..1"),
        tf.compile("sqrt(x)", on="x=0..1", eps=1e-2),
    ]
    found = [_contents(model) for model in honest]
    for model in honest:
        opened = open_model(model)
        name = "readout.values" if "readout.values" in opened.arrays else "memory.values"
        opened.arrays[name] = opened.arrays[name] * 1.5
        found.append(opened.forged())
    return found


def test_threads_get_the_verdicts_that_each_folder_gets_alone(models):
    alone = [verify_files(*contents) for contents in models]
    assert {result.verified for result in alone} == {True, False}
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda k: proven.verify_files(*models[k % len(models)]), range(10 * len(models))))
    assert results == alone * 10


def test_a_checker_that_was_killed_is_replaced(models):
    assert proven.verify_files(*models[0]).verified
    for idle in list(proven._pool.idle.queue):
        idle.process.kill()
        idle.process.wait()
    assert proven.verify_files(*models[0]).verified


def test_a_checker_is_kept(models):
    proven.verify_files(*models[0])
    before = {idle.process.pid for idle in proven._pool.idle.queue}
    proven.verify_files(*models[1])
    assert {idle.process.pid for idle in proven._pool.idle.queue} == before


def test_an_interrupt_ends_the_check_and_its_process(models, monkeypatch):
    started = []

    def interrupted(self, packed, claim):
        started.append(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(proven.Checker, "verify", interrupted)
        with pytest.raises(KeyboardInterrupt):
            proven.verify_files(*models[0])
    assert not started[0].alive
    assert proven.verify_files(*models[0]).verified


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_checkers_of_its_own(models):
    proven.verify_files(*models[0])
    child = os.fork()
    if child == 0:
        same = proven._pool.idle.empty() and proven.verify_files(*models[0]).verified
        proven._pool.close()
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert proven.verify_files(*models[1]).verified


def test_a_checker_ends_with_the_process_that_started_it(models):
    own = proven.Checker()
    assert own.verify(*models[0]).verified
    own.process.stdin.close()
    assert own.process.wait(timeout=60) == 0
    own.process.stdout.close()
    assert not own.alive


_ELSEWHERE = """
import os, sys
import transformula as tf
os.chdir(sys.argv[1])
print(tf.verify(".").verified)
"""
_FORGER = """
import sys
sys.stdin.buffer.read(1)
print('{"verified": true, "approximation": 0, "rounding": 0, "eps": 1, "reasons": [], "mean": null}', flush=True)
"""


def test_code_in_the_folder_is_never_run(models, tmp_path):
    """The kept process searched the working directory: a folder with a transformula.py judged itself."""
    packed, claim = models[3]  # forged
    for name, content in (
        ("model.json", packed.description),
        ("evidence.json", packed.evidence),
        ("certificate.json", claim),
    ):
        (tmp_path / name).write_text(content)
    (tmp_path / "model.safetensors").write_bytes(packed.arrays)
    (tmp_path / "transformula.py").write_text(_FORGER)
    done = subprocess.run([sys.executable, "-c", _ELSEWHERE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_process_that_cannot_start_is_no_verdict_about_the_folder(models, monkeypatch):
    monkeypatch.setattr(proven, "_START", "raise SystemExit(1)")
    pool = proven._Pool()
    (reason,) = pool.verify(*models[0]).reasons
    assert reason.startswith("no check could be run")


def test_a_deadline_of_the_caller_is_not_swallowed(models, monkeypatch):
    """TimeoutError is an OSError, and counted as a process that is gone: the check began again."""

    asked = []

    def late(*_):
        asked.append(1)
        raise TimeoutError

    pool = proven._Pool()
    assert pool.verify(*models[0]).verified
    monkeypatch.setattr(proven.Checker, "verify", late)
    with pytest.raises(TimeoutError):
        pool.verify(*models[0])
    assert asked == [1]
