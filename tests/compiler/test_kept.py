"""Tables kept on disk: the same result with them and without, and no trust in them."""

import contextlib
import json
import os

import numpy as np
import pytest

import transformula as tf
from transformula.budget import counting
from transformula.compiler.tables import expression_fits as kept
from transformula.compiler.tables.fit_task import Allowance, CannotFit
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.syntax.parsing import parse

SINE = parse("sin(3*u)", ["u"])


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(kept.VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def fits(monkeypatch):
    """How often something was fitted."""
    calls, fit = [], kept.fit_table

    def counted(*args, **kwargs):
        calls.append(args)
        return fit(*args, **kwargs)

    monkeypatch.setattr(kept, "fit_table", counted)
    return calls


def fitted(eps=1e-6):
    with counting() as spent:
        return kept.fit_expression(SINE, "u", 0.0, 1.0, eps, "float64"), spent()


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("slopes", "offsets", "values"))


def test_a_table_is_fitted_once_and_counts_the_same_again(place, fits):
    first, work = fitted()
    second, again = fitted()
    assert len(fits) == 1 and same(first, second) and second.linear == first.linear
    assert again == pytest.approx(work, rel=1e-12) and work > 0
    assert [path.suffix for path in place.iterdir()] == [".json"]
    fitted(1e-5)
    assert len(fits) == 2


def test_what_was_not_found_is_not_looked_for_again(place, fits):
    def missed():
        with pytest.raises(CannotFit) as failure:
            kept.fit_expression(SINE, "u", 0.0, 1.0, 1e-9, "float64", max_tokens=3, most=Allowance(1e7, 0.0))
        return failure.value

    first, second = missed(), missed()
    assert len(fits) == 1 and str(first) == str(second)
    assert first.best is not None and same(first.best, second.best)


@pytest.mark.parametrize("change", [
    lambda data: b"",
    lambda data: b"[" * 100_000,
    lambda data: b"null",
    lambda data: b"\xff\xfe",
    lambda data: json.dumps({**data, "work": -1}).encode(),
    lambda data: json.dumps({**data, "work": float("nan")}).encode(),
    lambda data: json.dumps({**data, "table": None}).encode(),
    lambda data: json.dumps({**data, "table": {**data["table"], "slopes": [1.0]}}).encode(),
    lambda data: json.dumps({**data, "table": {**data["table"], "values": [[0.0]]}}).encode(),
    lambda data: json.dumps({**data, "table": {**data["table"], "offsets": ["a"]}}).encode(),
    lambda data: json.dumps({**data, "table": {**data["table"], "linear": float("inf")}}).encode(),
    lambda data: json.dumps({**data, "table": {k: v for k, v in data["table"].items() if k != "dtype"}}).encode(),
])  # fmt: skip
def test_files_that_make_no_sense_are_written_anew(place, fits, change):
    table, _ = fitted()
    (path,) = place.iterdir()
    good = path.read_bytes()
    path.write_bytes(change(json.loads(good)))
    assert same(fitted()[0], table) and len(fits) == 2
    assert path.read_bytes() == good


@pytest.mark.parametrize("change", [1.0, -1e9])
def test_a_wrong_table_proves_nothing_false(place, change):
    def compiled():
        return tf.compile("sin(3*x)", on="x=0..1", eps=1e-4, construction="lookup")

    assert compiled().certificate.bound <= 1e-4
    for path in place.iterdir():
        data = json.loads(path.read_bytes())
        data["table"]["values"][0] += change
        path.write_text(json.dumps(data))
    with contextlib.suppress(NotProvenError):  # or a coarser table, which is fitted anew, is close enough
        model, x = compiled(), np.linspace(0, 1, 1001)
        assert np.abs(np.ravel(model(x[:, None])) - np.sin(3 * x)).max() <= model.certificate.bound <= 1e-4


def test_a_model_is_the_same_with_and_without(place, monkeypatch):
    def weights():
        model = tf.compile("exp(x)*sqrt(1 + y)", on="x=0..1, y=0..1", eps=1e-4)
        return model.certificate.bound, model.weights.memory.values.tolist()

    first, second = weights(), weights()
    monkeypatch.setenv(kept.VARIABLE, "off")
    assert first == second == weights()


def test_nothing_is_kept_where_nothing_can_be(tmp_path, monkeypatch, fits):
    (tmp_path / "file").write_text("")
    for value in ("off", "", str(tmp_path / "file" / "below")):
        monkeypatch.setenv(kept.VARIABLE, value)
        fitted()
    assert len(fits) == 3 and [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_oldest_files_go(place, monkeypatch):
    monkeypatch.setattr(kept, "MAX_FILES", 3)
    for age, eps in enumerate((1e-2, 1e-3, 1e-4, 1e-5)):
        before = set(place.glob("*.json"))
        fitted(eps)
        for path in set(place.glob("*.json")) - before:
            os.utime(path, (age, age))
    assert len(list(place.glob("*.json"))) == 2
