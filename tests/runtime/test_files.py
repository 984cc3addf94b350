"""Model folders: whole or not at all, nothing executed, nothing foreign overwritten."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest

import transformula as tf
from support.folders import contents, open_folder
from transformula.errors import InputError, ModelFileError, SavingError
from transformula.kernel.folder import description
from transformula.kernel.folder.weights import named_matrices
from transformula.show.report_page import write_report


@pytest.fixture
def model():
    return tf.compile("x**2/3 - y", on="x=-1..1, y=0..2*pi")


def test_a_round_trip_gives_everything_back(model, tmp_path):
    loaded = tf.load(model.save(tmp_path / "m"))
    for (name, a), (other, b) in zip(named_matrices(model.weights), named_matrices(loaded.weights), strict=True):
        assert name == other and a.shape == b.shape and a.exact == b.exact
        assert all(np.array_equal(getattr(a, p), getattr(b, p)) for p in ("rows", "cols", "values"))
    assert loaded.certificate == model.certificate
    assert loaded.formula == model.formula and loaded.box == model.box
    assert loaded.construction == model.construction
    x = np.random.default_rng(0).uniform(0, 1, size=(50, 2))
    assert np.array_equal(loaded(x), model(x))
    assert contents(loaded.save(tmp_path / "again")) == contents(tmp_path / "m")


def test_saving_is_repeatable(tmp_path):
    first = tf.compile("x**3 - x*y", on="x=-1..1, y=0..1").save(tmp_path / "a")
    second = tf.compile("x**3 - x*y", on="x=-1..1, y=0..1").save(tmp_path / "b")
    assert contents(first) == contents(second)


def test_rationals_of_any_length_survive(tmp_path):
    model = tf.compile("x/3**6000 + x**2", on="x=-1..1")
    assert tf.load(model.save(tmp_path / "m")).formula == model.formula
    assert tf.verify(tmp_path / "m").verified
    long = "(x/3**2000)**9"
    assert tf.verify(tf.compile(f"x + {long}", on="x=-1..1").save(tmp_path / "n")).verified


def test_the_folder_holds_four_files_that_others_can_read(model, tmp_path):
    folder = model.save(tmp_path / "deep" / "er" / "m")
    names = ["certificate.json", "evidence.json", "model.json", "model.safetensors"]
    assert sorted(p.name for p in folder.iterdir()) == names
    assert folder.stat().st_mode & 0o777 == 0o755
    assert list(folder.parent.iterdir()) == [folder]


def test_an_older_model_of_the_formula_is_replaced(model, tmp_path):
    folder = model.save(tmp_path / "m")
    again = tf.compile("x**2/3 - y", on="x=-1..1, y=0..2*pi", dtype="float32", eps=1e-3)
    assert tf.load(again.save(folder)).certificate == again.certificate
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (lambda: tf.compile("x", on="x=0..1"), "the model of x on x=0..1"),
        (lambda: tf.compile("x**2/3 - y", on="x=-1..1, y=0..1"), "the model of x[*][*]2/3 - y on x=-1..1, y=0..1"),
        (lambda: tf.compile(["x", "y"], on="x=0..1, y=0..1", shape=(2, 1)), "the model of x; y on x=0..1, y=0..1"),
        (lambda: tf.memorize([[0.0, 1.0]], [2.0]), "a memorised table"),
        (lambda: tf.in_context("recurrence", steps=2), "an in-context model"),
        (lambda: tf.compile(" + ".join(["x"] * 50), on="x=0..1"), r"\.\.\.: choose"),
    ],
)
def test_another_formulas_model_is_replaced_only_by_force(model, other, named, tmp_path):
    folder = other().save(tmp_path / "m")
    before = contents(folder)
    assert contents(other().save(folder)) == before  # the same again
    with pytest.raises(SavingError, match=f"{named}.*--force .in Python, force=True") as caught:
        model.save(folder)
    assert contents(folder) == before and len(str(caught.value)) < len(str(folder)) + 200
    assert tf.load(model.save(folder, force=True)).formula == model.formula
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(SavingError, match="holds other files"):
        model.save(folder, force=True)


def test_a_path_is_text_or_a_path(model):
    for given in (None, 3, ["m"]):
        for use in (model.save, tf.load, tf.verify, model.to_onnx, write_report):
            with pytest.raises(InputError, match="is given as text or as a path"):
                use(given)


def test_a_folder_of_the_first_format_is_refused_and_may_be_replaced(model, tmp_path):
    folder = model.save(tmp_path / "m")
    (folder / "evidence.json").unlink()
    body = json.loads((folder / "model.json").read_text()) | {"version": 1}
    (folder / "model.json").write_text(json.dumps(body))
    with pytest.raises(ModelFileError, match="format version 1, not 3: compile the formula again"):
        tf.load(folder)
    assert tf.verify(model.save(folder)).verified


def test_an_empty_folder_may_be_used(model, tmp_path):
    (tmp_path / "m").mkdir()
    assert tf.verify(model.save(tmp_path / "m")).verified


@pytest.mark.parametrize("step", ["fsync", "rename", "chmod"])
def test_a_failure_midway_leaves_the_old_model(model, tmp_path, monkeypatch, step):
    folder = model.save(tmp_path / "m")
    before = contents(folder)
    calls = []

    def fail(*args, **kwargs):
        calls.append(args)
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    elif step == "chmod":
        monkeypatch.setattr(type(folder), "chmod", fail)
    else:
        rename = type(folder).rename

        def second_rename_fails(self, target):
            calls.append(target)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            return rename(self, target)

        monkeypatch.setattr(type(folder), "rename", second_rename_fails)
    with pytest.raises(SavingError, match="No space left"):
        tf.compile("x", on="x=0..1").save(folder, force=True)
    assert calls and contents(folder) == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_an_interrupt_midway_leaves_nothing_behind(model, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "present",
    [
        {"notes.txt": "mine"},
        {"model.json": "{}"},
        {"model.json": "not json"},
        {"model.json": '{"format": "transformula"}', "thesis.tex": "years of work"},
    ],
)
def test_a_foreign_folder_is_left_alone(model, tmp_path, present):
    folder = tmp_path / "m"
    folder.mkdir()
    for name, text in present.items():
        (folder / name).write_text(text)
    before = contents(folder)
    with pytest.raises(SavingError, match="is not a model folder"):
        model.save(folder)
    assert contents(folder) == before and [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_file_in_the_way_is_left_alone(model, tmp_path):
    (tmp_path / "m").write_text("mine")
    with pytest.raises(SavingError):
        model.save(tmp_path / "m")
    with pytest.raises(SavingError, match="cannot write"):
        model.save(tmp_path / "m" / "inside")
    assert (tmp_path / "m").read_text() == "mine"


def test_loading_executes_nothing(model, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    folder = model.save(tmp_path / "m")
    for name in ("model.safetensors", "model.json", "evidence.json", "certificate.json"):
        keep = (folder / name).read_bytes()
        (folder / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(ModelFileError):
            tf.load(folder)
        assert not tf.verify(folder).verified
        (folder / name).write_bytes(keep)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: shutil.rmtree(f), "there is no model folder"),
        (lambda f: (f / "model.json").unlink(), "has no model.json"),
        (lambda f: (f / "certificate.json").unlink(), "has no certificate.json"),
        (lambda f: (f / "evidence.json").unlink(), "has no evidence.json"),
        (lambda f: (f / "model.safetensors").write_bytes(b"12345678"), "model.safetensors is truncated"),
        (lambda f: (f / "model.json").write_text("{"), "model.json cannot be read as JSON"),
        (lambda f: (f / "certificate.json").write_text("{}"), "certificate.json has version None, not 3"),
        (lambda f: (f / "model.json").write_text((f / "model.json").read_text() + " "), "sha256 differs"),
        (lambda f: (f / "evidence.json").write_text("{ }"), "evidence_sha256 differs"),
    ],
)
def test_load_refuses_a_damaged_folder_by_name(model, tmp_path, damage, said):
    folder = model.save(tmp_path / "m")
    damage(folder)
    with pytest.raises(ModelFileError, match=said):
        tf.load(folder)


def test_load_refuses_weights_of_another_formula(model, tmp_path):
    folder = model.save(tmp_path / "m")
    opened = open_folder(folder)
    opened.body["formulas"], opened.body["box"] = ["x"], "x=-1..1"
    with pytest.raises(ModelFileError, match="inputs or outputs"):
        tf.load(opened.forge(folder))


def test_a_description_of_absurd_size_is_not_read(model, tmp_path, monkeypatch):
    folder = model.save(tmp_path / "m")
    monkeypatch.setitem(description.MAX_BYTES, "model.json", 10)
    with pytest.raises(ModelFileError, match="too large"):
        tf.load(folder)
