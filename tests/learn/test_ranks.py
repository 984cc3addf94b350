"""Training under a real torchrun: two processes, one of which is killed, end where one process does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import transformula as tf
from support import ranks
from transformula.cli.app import app
from transformula.learn import states

SOURCE = Path(tf.__file__).parents[1]
#: Sums over the ranks are taken in another order; that is all that may be seen, in float64, after these few steps.
TOLERANCE = 1e-9


def torchrun(*arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=400)


def test_a_killed_rank_is_started_again_and_two_ranks_end_where_one_process_does(tmp_path, monkeypatch):
    done = torchrun("--max-restarts", "1", "--monitor-interval", "0.1", ranks.__file__, str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = np.load(tmp_path / "predictions.npz")
    X, y = ranks.rows()
    # 4 steps an epoch for all rows, 3 with those that adam holds out: 24, 18 and 24 steps in all. The rank died in
    # the fifth epoch of adam; sgd was done, and adam has gone on after its fourth epoch.
    assert "exitcode: -9) local_rank: 1" in done.stderr
    assert int(found["steps"]) == 6 + 24
    for name, model in ranks.estimators(tmp_path, checkpoints=False).items():
        np.testing.assert_allclose(found[name], model.fit(X, y).predict(X), rtol=TOLERANCE, atol=TOLERANCE)
    for name in ("_LEAST_SAMPLE", "_MOST_SAMPLE"):  # restored, after `in_parts` has changed them
        monkeypatch.setattr(states, name, getattr(states, name))
    assert np.array_equal(found["in parts"], ranks.in_parts(None)), "the ranks' states add up in the same order"


def test_fit_under_torchrun_writes_what_one_process_writes(tmp_path):
    X, y = ranks.rows()
    table = "\n".join(["a,b,y", *(f"{a!r},{b!r},{c!r}" for (a, b), c in zip(X.tolist(), y.tolist(), strict=True))])
    (tmp_path / "t.csv").write_text(table)
    arguments = ["fit", "t.csv", "--target", "y", "--degree", "2", "--solver", "adam", "--epochs", "4"]
    arguments += ["--batch-size", "16", "--json"]
    done = torchrun("-m", "transformula", *arguments, "--out", "two", "--checkpoint", "run.pt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    two = json.loads(done.stdout)  # one object: the first rank's
    assert tf.verify(tmp_path / "two").verified and (tmp_path / "run.pt").is_file()
    arguments[1] = str(tmp_path / "t.csv")
    one = json.loads(CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "one")]).stdout)
    assert two["r2_held_out"] == pytest.approx(one["r2_held_out"], rel=TOLERANCE)
    models = [tf.load(tmp_path / name) for name in ("one", "two")]
    inside = np.clip(X, *np.array(models[0].box.floats()).T)
    np.testing.assert_allclose(models[1](inside), models[0](inside), rtol=1e-8, atol=1e-8)
