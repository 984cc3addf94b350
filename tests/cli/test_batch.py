"""The verb batch as a process: killed, interrupted, resumed, and given tables that cannot be used."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import transformula as tf

SOURCE = Path(tf.__file__).parents[1]
TABLE = "name,formula,box,eps\n" + "".join(f"m{k},exp({k + 1}*x/4),x=0..2,1e-3\n" for k in range(14))


def started(*arguments, cwd):
    """The command; Ctrl-C reaches it even where the tests run in the background of a shell, which ignores it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "transformula", "batch", *arguments]
    return subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def wait_for(lines, out):
    """Until the journal has that many lines."""
    journal, end = out / "batch.jsonl", time.monotonic() + 60
    while not (journal.exists() and len(journal.read_text().splitlines()) >= lines):
        assert time.monotonic() < end
        time.sleep(0.02)


def processes(group):
    """What still runs of a process group, zombies left out."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, owner = status.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(owner) == group and state != "Z":
            found.append(int(status.parent.name))
    return found


def gone(group):
    end = time.monotonic() + 20
    while processes(group):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_batch_goes_on_after_ctrl_c_a_dead_worker_and_kill_9(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    out, common = tmp_path / "out", ("t.csv", "--out", "out", "--jobs", "2")

    running = started(*common, cwd=tmp_path)
    wait_for(1, out)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=60)
    assert running.returncode == 130 and "Traceback" not in said[1], said
    assert said[1].startswith("error: interrupted: ") and "resume to go on" in said[1]
    assert gone(running.pid)

    finished = len((out / "batch.jsonl").read_text().splitlines())
    running = started(*common, "--resume", cwd=tmp_path)
    wait_for(finished + 1, out)
    workers = [p for p in processes(running.pid) if b"popen_loky" in Path(f"/proc/{p}/cmdline").read_bytes()]
    os.kill(workers[0], signal.SIGKILL)
    wait_for(finished + 2, out)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)
    assert gone(running.pid)  # workers end when nobody gives them work

    kept = {line["name"] for line in map(json.loads, filter(str.strip, (out / "batch.jsonl").open())) if line}
    before = {path: path.stat().st_mtime_ns for name in kept for path in (out / name).iterdir()}
    running = started(*common, "--resume", "--json", cwd=tmp_path)
    answer = json.loads(running.communicate(timeout=60)[0])
    assert running.returncode == 0 and (answer["proven"], answer["failed"]) == (14, 0)
    assert len(kept) >= finished + 2 and answer["kept"] == len(kept)
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    assert {p.name for p in out.iterdir() if p.is_dir()} == {f"m{k}" for k in range(14)}
    assert all(tf.verify(out / f"m{k}").verified for k in (0, 13))


def test_the_table_on_screen_and_the_exit_codes(tmp_path, cli):
    table = tmp_path / "t.csv"
    long = "line" * 24
    table.write_text(f"name;formula;on;eps\n{long};2*x;x=0..1;\npole;1/x;x=-1..1;1e-3\n")
    done = cli("batch", str(table), "--out", str(tmp_path / "out"), "--jobs", "1")
    assert done.code == 1 and done.err == ""
    lines = done.out.splitlines()
    assert lines[0].split() == ["name", "construction", "layers", "tokens", "bound", "found", "seconds"]
    assert lines[1].split()[:3] == [long, "polynomial", "1"]
    assert lines[2].startswith("not proven: pole: 1/x is undefined or unbounded near x = 0")
    again = cli("batch", str(table), "--out", str(tmp_path / "out"), "--resume", "--json")
    assert again.code == 1 and json.loads(again.out)["kept"] == 2


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("name,formula,box\n../up,x,x=0..1\n", (), "t.csv, line 2: the name '../up' cannot be a folder name"),
        ("name,formula,box\na,x,x=0..1\nA,x,x=0..1\n", (), "line 3: the name 'A' is the same as 'a' on some file systems"),
        ("name,formula\na,x\n", (), "has no column box"),
        ("name,formula,box,tol\na,x,x=0..1,1\n", (), "has a column 'tol', which is not known"),
        ("name,formula,box\n", (), "there is no formula in the table"),
        ("name,formula,box\na,x,x=0..1\n", ("--jobs", "0"), "the number of jobs must be a whole number"),
        ("name,formula,box\na,x,x=0..1\n", ("--scheduler", "nowhere"), "a scheduler's address is written like"),
        ("name,formula,box\na,x,x=0..1\n", ("--scheduler", "tcp://127.0.0.1:1"), "no Dask scheduler answers at"),
        ("name,formula,box\na,x,x=0..1\n", ("--scheduler", "tcp://a:1", "--jobs", "2"), "give either a number of jobs"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_is_refused_in_one_sentence(text, options, said, tmp_path, cli):
    (tmp_path / "t.csv").write_text(text)
    refused = cli("batch", str(tmp_path / "t.csv"), "--out", str(tmp_path / "out"), *options)
    assert refused.code == 2 and refused.out == "" and said in refused.err
    assert refused.err.startswith("error: ") and len(refused.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_compile_takes_workers(cli):
    asked = "compile", "x*y", "--on", "x=0..1, y=0..1"
    made = cli(*asked, "--jobs", "2", "--json")
    assert made.code == 0 and json.loads(made.out)["status"] == "proven"
    refused = cli(*asked, "--scheduler", "tcp://127.0.0.1:1")
    assert refused.code == 2 and refused.out == "" and "no Dask scheduler answers at" in refused.err
