"""Batches from Python: folders, failures, resuming, verbs and a real cluster."""

import csv
import json
from pathlib import Path

import pytest

import transformula as tf
from support.cluster import cluster
from transformula.cluster import EngineError
from transformula.cluster.batch_run import Journal
from transformula.errors import InputError, SavingError
from transformula.optional import MissingPackageError

ASKED = [
    {"name": "wave", "formula": "sin(x)*y", "box": "x=0..1, y=0..1", "eps": "1e-3"},
    {"name": "pole", "formula": "1/x", "box": "x=-1..1"},
    {"name": "cubic", "formula": "x**3 - x", "on": "x=-2..2", "dtype": "float32"},
    {"name": "typo", "formula": "sin(", "box": "x=0..1"},
    {"name": "sharp", "formula": "x**2", "box": "x=0..1", "eps": 0.2, "construction": "partition"},
]
PROVEN = ["wave", "cubic", "sharp"]


def contents(out):
    """The bytes of all folders."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(Path(out).glob("*/*"))}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A batch on two processes."""
    return tf.batch(ASKED, tmp_path_factory.mktemp("first"), jobs=2)


def test_folders_are_what_compile_writes_and_failures_are_listed(first, tmp_path):
    assert [row.name for row in first.rows] == [one["name"] for one in ASKED]
    assert [row.name for row in first.rows if row.proven] == PROVEN
    assert [row.error[:16] for row in first.failed] == ["1/x is undefined", "cannot read the "]
    tf.compile("sin(x)*y", on="x=0..1, y=0..1", eps=1e-3).save(tmp_path / "wave")
    assert contents(tmp_path) == {k: v for k, v in contents(first.out).items() if k.startswith("wave/")}
    for row in first.rows:
        assert row.error or 0 <= row.found <= row.bound <= row.eps
    assert not (first.out / "pole").exists()


def test_the_summary_is_written_three_times(first):
    with (first.out / "summary.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    stored = json.loads((first.out / "summary.json").read_text())
    page = (first.out / "summary.html").read_text()
    assert (stored["proven"], stored["failed"], len(stored["rows"])) == (3, 2, 5)
    assert rows["wave"]["construction"] == "lookup" and float(rows["wave"]["bound"]) == first.rows[0].bound
    assert rows["pole"]["bound"] == "" and "undefined" in rows["pole"]["error"] and "undefined" in page
    assert float(rows["wave"]["found"]) == first.rows[0].found and ">found<" in page and "attacked" not in page
    assert {path.name for path in first.out.iterdir() if path.is_file()} == {
        "batch.jsonl", "summary.csv", "summary.html", "summary.json",
    }  # fmt: skip


def test_a_resumed_batch_does_only_what_changed_or_is_not_whole(first, tmp_path):
    out = tmp_path / "again"
    assert tf.batch(ASKED, out, jobs=1).kept == 0
    before = contents(out)
    (out / "cubic" / "evidence.json").unlink()
    (out / ".transformula-0123456789abcdef").mkdir()  # what a kill -9 leaves
    with (out / "batch.jsonl").open("a") as file:
        file.write('{"name": "wave", "as')
    changed = [one | {"eps": "0.3"} if one["name"] == "sharp" else one for one in ASKED]
    summary = tf.batch(changed, out, jobs=1, resume=True)
    assert summary.kept == 3 and [row.name for row in summary.rows if row.proven] == PROVEN
    after = contents(out)
    assert {name for name in after if after[name] != before.get(name)} == {f"sharp/{n}" for n in (
        "certificate.json", "evidence.json", "model.json", "model.safetensors")}  # fmt: skip
    assert not list(out.glob(".transformula-*"))
    journal = out / "batch.jsonl"
    journal.write_text(journal.read_text().replace('"found":', '"attacked":'))  # its name in earlier versions
    last = tf.batch(changed, out, jobs=1, resume=True)
    assert last.kept == 5 and [row.found for row in last.rows] == [row.found for row in summary.rows]
    assert before == contents(first.out)  # one process or two


def test_verbs_use_the_folders_that_are_there(first, tmp_path):
    out = tmp_path / "verbs"
    tf.batch(ASKED[:1], out, jobs=1)
    before = contents(out)
    assert not tf.batch(ASKED[:1], out, jobs=1, verb="export").failed
    after = contents(out)
    assert after.pop("wave/model.onnx") and after == before
    assert not tf.batch(ASKED[:1], out, jobs=1, verb="report").failed
    assert b"sin" in contents(out)["wave/report.html"]
    weights = out / "wave" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    failed = tf.batch(ASKED[:1], out, jobs=1, verb="verify").failed
    assert [row.name for row in failed] == ["wave"] and "is malformed" in failed[0].error
    assert not tf.batch(ASKED[:1], out, jobs=1, resume=True).failed  # which makes it again
    assert contents(out) == before


def test_a_folder_of_others_is_left_alone(tmp_path):
    (tmp_path / "cubic").mkdir()
    (tmp_path / "cubic" / "notes.txt").write_text("mine")
    failed = tf.batch([ASKED[2]], tmp_path, jobs=1).failed
    assert "is not a model folder" in failed[0].error and (tmp_path / "cubic" / "notes.txt").read_text() == "mine"


def test_another_formulas_folder_is_replaced_only_by_force(tmp_path):
    tf.batch([ASKED[2]], tmp_path, jobs=1)
    before, other = contents(tmp_path), [ASKED[2] | {"formula": "x**3 + 1"}]
    for resume in (False, True):
        (row,) = tf.batch(other, tmp_path, jobs=1, resume=resume).failed
        assert "holds the model of" in row.error and "--force" in row.error and contents(tmp_path) == before
    assert not tf.batch(other, tmp_path, jobs=1, resume=True, force=True).failed
    assert tf.load(tmp_path / "cubic").formula.typed == ("x**3 + 1",)


def test_one_batch_at_a_time_in_a_folder(tmp_path):
    with Journal(tmp_path, forget=False), pytest.raises(SavingError, match="another batch is writing to"):
        tf.batch(ASKED, tmp_path, jobs=1)


def test_what_cannot_be_begun_is_refused_before_any_work(tmp_path, monkeypatch):
    for options, said in (({"verb": "fly"}, "unknown verb"), ({"jobs": 0}, "number of jobs")):
        with pytest.raises(InputError, match=said):
            tf.batch(ASKED, tmp_path / "new", **options)
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingPackageError, match=r"^a cluster needs distributed.*'transformula\[dask\]'$"):
        tf.batch(ASKED, tmp_path / "new", scheduler="tcp://127.0.0.1:1")
    assert not (tmp_path / "new").exists()


def test_a_cluster_makes_the_same_bytes_though_a_worker_dies(first, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    with cluster(workers=2) as dask:
        from transformula import budget

        def kill(stage, done, left):
            if done == 1 and dask.workers[0].poll() is None:
                dask.workers[0].kill()

        with budget.listening(kill):
            summary = tf.batch(ASKED, tmp_path, scheduler=dask.address)
        assert dask.workers[0].wait() != 0
        assert [row.name for row in summary.rows if row.proven] == PROVEN and contents(tmp_path) == contents(first.out)

        def leave(stage, done, left):
            if done == 1:
                dask.scheduler.kill()

        out, said = (
            tmp_path / "left",
            r"^the connection to the scheduler at \S+ was lost: [1-4] of 5 formulas are finished and in .*; resume",
        )
        with budget.listening(leave), pytest.raises(EngineError, match=said):
            tf.batch(ASKED, out, scheduler=dask.address)
    assert 1 <= len(json.loads((out / "summary.json").read_text())["rows"]) < 5


def test_the_page_shows_hostile_text_as_text(tmp_path):
    asked = [{"name": "a", "formula": "<script>alert(1)</script>", "box": "x=0..<img src=q>"}]
    summary = tf.batch(asked, tmp_path / "<svg onload=go()>", jobs=1)
    page = (summary.out / "summary.html").read_text()
    assert "&lt;script&gt;alert" in page and "&lt;svg onload" in page
    assert not any(tag in page for tag in ("<script>alert", "<svg onload", "<img src=q"))


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    """summary.csv of a user, and a model folder, were written into without a word."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "summary.csv").write_text("my numbers\n")
    tf.compile("x*y", "x=0..1, y=0..1").save(tmp_path / "model")
    asked = [{"name": "square", "formula": "x**2", "box": "x=0..1"}]
    for name in ("mine", "model"):
        with pytest.raises(SavingError, match="which no batch wrote: choose another folder"):
            tf.batch(asked, tmp_path / name)
    assert (tmp_path / "mine" / "summary.csv").read_text() == "my numbers\n"
    assert not (tmp_path / "model" / "batch.jsonl").exists()
