"""The one writer: whole or not at all, regular files only, links followed, modes kept."""

import json
import os
import socket
import stat

import pytest

import transformula as tf
from support.folders import contents
from transformula.errors import SavingError
from transformula.files import check_folder, opened, write_file
from transformula.show.report_page import write_report


@pytest.fixture(scope="module")
def model():
    return tf.compile("x*y", on="x=0..1, y=0..1")


@pytest.fixture
def umask():
    """umask(0o027) holds until the test ends."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def _socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


NOT_FILES = {"a pipe": os.mkfifo, "a folder": os.mkdir, "a socket": _socket}


@pytest.mark.parametrize("kind", NOT_FILES)
def test_what_is_not_a_file_is_refused_and_stays(kind, model, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    folder = model.save(tmp_path / "m")
    (tmp_path / "t.csv").write_text("x,y\n1,1\n")
    place = tmp_path / "there.onnx"
    NOT_FILES[kind](place.relative_to(tmp_path))
    before = place.stat()
    said = f"cannot write {place}: it is {kind}, not a file"
    with pytest.raises(SavingError, match=said):
        model.to_onnx(place)
    for verb in (["eval", "--csv", "t.csv"], ["report"], ["export", "--to", "onnx"]):
        refused = cli(verb[0], str(folder), *verb[1:], "--out", str(place))
        assert refused.code == 2 and said in refused.err
    after = place.stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "t.csv", "there.onnx"]


def test_a_device_stays_a_device(cli, model, tmp_path):
    folder = str(model.save(tmp_path / "m"))
    refused = cli("report", folder, "--out", "/dev/null")
    assert refused.code == 2 and "/dev/null: it is a device, not a file" in refused.err
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_link_is_followed_and_stays_a_link(model, tmp_path):
    folder = model.save(tmp_path / "m")
    (tmp_path / "far").mkdir()
    target, link, dangling = tmp_path / "far" / "page.html", tmp_path / "page.html", tmp_path / "new.html"
    target.write_text("old")
    link.symlink_to(target)
    dangling.symlink_to("far/made.html")
    write_report(folder, link, verify=False)
    write_report(folder, dangling, verify=False)
    assert link.is_symlink() and dangling.is_symlink()
    assert target.read_text().startswith("<!doctype") and (tmp_path / "far" / "made.html").is_file()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SavingError, match="cannot write"):
        write_file(tmp_path / "loop", b"")


def test_a_model_folder_behind_a_link_is_replaced_there(model, tmp_path):
    real, link = model.save(tmp_path / "real"), tmp_path / "link"
    link.symlink_to("real")
    tf.compile("x", on="x=0..1").save(link, force=True)
    assert link.is_symlink() and tf.load(real).formula.texts == ("x",)


def test_compile_does_not_replace_another_formulas_model(cli, tmp_path, monkeypatch):
    out = str(tmp_path / "sum")
    assert cli("compile", "x + y", "--on", "x=0..1, y=0..1", "--out", out).code == 0
    before = contents(tmp_path / "sum")
    with monkeypatch.context() as patch:
        patch.setattr(
            "transformula.cli.compile_verb.compile", lambda *_: pytest.fail("work is spent on what cannot be saved")
        )
        refused = cli("compile", "x*y", "--on", "x=0..1, y=0..1", "--out", out)
        assert refused.code == 2 and not refused.out and refused.err.count("\n") == 1
        assert "holds the model of x + y on x=0..1, y=0..1" in refused.err and "--force" in refused.err
        other = cli("compile", "x + y", "--on", "x=0..2, y=0..1", "--out", out, "--json")
        assert other.code == 2 and json.loads(other.out)["kind"] == "SavingError"
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("years of work")
        assert cli("compile", "x", "--on", "x=0..1", "--out", str(tmp_path / "mine"), "--force").code == 2
    assert contents(tmp_path / "sum") == before
    assert cli("compile", "x + y", "--on", "x=0..1, y=0..1", "--out", out, "--dtype", "float32").code == 0
    assert cli("compile", "x*y", "--on", "x=0..1, y=0..1", "--out", out, "--force").code == 0
    assert tf.load(out).formula.texts == ("x*y",)


def test_in_context_fit_and_export_do_not_either(cli, tmp_path, table):
    out, torch = str(tmp_path / "m"), str(tmp_path / "torch")
    assert cli("in-context", "recurrence", "--steps", "2", "--out", out).code == 0
    assert cli("in-context", "recurrence", "--steps", "2", "--out", out).code == 0
    assert cli("export", out, "--to", "torch", "--out", torch).code == 0
    fit = ("fit", str(table), "--target", "price", "--degree", "2", "--out", out)
    for again in (("in-context", "recurrence", "--steps", "3", "--out", out), fit):
        refused = cli(*again)
        assert refused.code == 2 and "holds an in-context model" in refused.err and "--force" in refused.err
    assert cli(*fit, "--force").code == 0
    assert cli(*fit, "--test", "0.4").code == 0  # the same columns and target: another fit of it
    refused = cli("fit", str(table), "--target", "age", "--degree", "2", "--out", out)
    assert refused.code == 2 and "holds the model of" in refused.err and "--force" in refused.err
    before = contents(tmp_path / "torch")
    refused = cli("export", out, "--to", "torch", "--out", torch)
    assert refused.code == 2 and "another export" in refused.err and "--force" in refused.err
    assert contents(tmp_path / "torch") == before
    for _ in range(2):
        assert cli("export", out, "--to", "torch", "--out", torch, "--force").code == 0


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_files_and_folders_have_what_the_umask_leaves(mask, model, tmp_path, umask, cli):
    umask(mask)
    folder = model.save(tmp_path / "m")
    (tmp_path / "t.csv").write_text("x,y\n1,1\n")
    assert cli("eval", str(folder), "--csv", str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.csv")).code == 0
    page = write_report(folder, verify=False).page
    assert {_mode(p) for p in (*folder.iterdir(), tmp_path / "o.csv", page)} == {0o666 & ~mask}
    assert _mode(folder) == 0o777 & ~mask


def test_what_is_replaced_keeps_its_mode(model, tmp_path, umask):
    umask(0o022)
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o640)
    folder = model.save(tmp_path / "m")
    folder.chmod(0o700)
    write_report(folder, path, verify=False)
    assert _mode(path) == 0o640 and path.read_text() != "old"
    assert _mode(model.save(folder)) == 0o700


def test_nothing_is_left_of_a_block_that_fails(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    for fault in (KeyboardInterrupt, ValueError, OSError(28, "No space left on device")):
        with pytest.raises((KeyboardInterrupt, ValueError)), opened(path) as file:
            file.write(b"new")
            raise fault
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_a_sentence(cli, model, tmp_path, monkeypatch):
    folder, path = model.save(tmp_path / "m"), tmp_path / "o.csv"
    (tmp_path / "t.csv").write_text("x,y\n1,1\n")
    path.write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for verb in (["eval", "--csv", str(tmp_path / "t.csv")], ["report", "--no-verify"]):
        refused = cli(verb[0], str(folder), *verb[1:], "--out", str(path))
        assert refused.code == 2 and refused.err == f"error: cannot write {path}: No space left on device\n"
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 3


def test_a_file_that_must_not_be_written_is_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(SavingError, match="Permission denied"):
        write_file(path, b"new")
    with pytest.raises(SavingError, match="Permission denied"):
        check_folder(tmp_path / "m")
    assert path.read_text() == "old"


def test_a_folder_is_refused_before_work_is_spent_on_it(tmp_path, cli):
    (tmp_path / "f").write_text("mine")
    for verb in (["reproduce", "fang-f2", "--full"], ["compile", "sin(x)", "--on", "x=0..1"]):
        refused = cli(*verb, "--out", str(tmp_path / "f" / "inside"))
        assert refused.code == 2 and "is not a folder" in refused.err


def test_a_path_with_a_null_character(model):
    with pytest.raises(SavingError, match="null character"):
        model.save("a\0b")
