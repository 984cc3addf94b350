"""``fit`` then ``eval``: the same file, the same names, and a score beside a linear model."""

import json

import numpy as np
import pytest

import transformula as tf


def _write(path, header, rows, mark=","):
    path.write_text("\n".join([mark.join(header), *(mark.join(map(repr, row)) for row in rows)]) + "\n")
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_fit_then_eval_on_the_same_file(cli, tmp_path, mark):
    """The box covers the held-out rows too, and odd column names are found again."""
    X = np.random.default_rng(3).normal(size=(60, 2)) ** 3
    rows = np.column_stack([X, X[:, 0] * X[:, 1] + X[:, 0]]).tolist()
    source = _write(tmp_path / "t.csv", ["sq ft", "é-col", "price (€)"], rows, mark)
    out = str(tmp_path / "m")
    done = cli("fit", str(source), "--target", "price (€)", "--degree", "2", "--out", out, "--json", "--test", "0.5")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["columns"] == {"sq_ft": "sq ft", "e_col": "é-col"} and facts["target"] == "price (€)"
    done = cli("eval", out, "--csv", str(source), "--out", str(tmp_path / "o.csv"), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == 60
    header = (tmp_path / "o.csv").read_text(encoding="utf-8").splitlines()[0].split(mark)
    assert header[-2:] == ["predicted price (€)", "status"]
    values = [float(line.split(mark)[-2]) for line in (tmp_path / "o.csv").read_text().splitlines()[1:]]
    np.testing.assert_allclose(values, [row[2] for row in rows], atol=1e-6)
    done = cli("eval", out, "--at", '"sq ft"=1, "é-col"=1/2')
    assert done.code == 0 and float(done.out) == pytest.approx(1.5, abs=1e-6)
    assert cli("verify", out).code == 0
    assert cli("fit", str(source), "--target", "price (€)", "--out", out).code == 0, "a fitted folder can be replaced"


def test_names_are_quoted_for_people(cli, tmp_path, table):
    done = cli("fit", str(table), "--target", "price", "--degree", "2")
    assert 'rooms_per_floor = "rooms per floor"' in done.out and "age =" not in done.out
    done = cli("fit", str(table), "--target", "prices")
    assert 'has no column prices (it has size, "rooms per floor", age, price)' in done.err
    lines = table.read_text().splitlines()
    lines[1] = lines[1].replace(lines[1].split(",")[1], "two")
    table.write_text("\n".join(lines))
    done = cli("fit", str(table), "--target", "price")
    assert done.code == 0 and "the cell 'two' (row 1) is" in done.out


def test_the_margin_widens_the_box(cli, tmp_path):
    source = _write(tmp_path / "t.csv", ["x", "y"], [[float(k), 2.0 * k] for k in range(11)])
    out = str(tmp_path / "m")
    assert cli("fit", str(source), "--target", "y", "--out", out, "--margin", "0.1").code == 0
    assert tf.load(out).box.floats() == [(-1.0, 11.0)]
    assert cli("eval", out, "--at", "x=11").code == 0 and cli("eval", out, "--at", "x=11.01").code == 2
    done = cli("fit", str(source), "--target", "y", "--margin", "-1")
    assert done.code == 2 and "--margin must be" in done.err


def test_notes_of_another_model_are_refused(cli, tmp_path):
    source = _write(tmp_path / "t.csv", ["sq ft", "y"], [[float(k), 2.0 * k] for k in range(11)])
    out = tmp_path / "m"
    assert cli("fit", str(source), "--target", "y", "--out", str(out)).code == 0
    for text, said in [("{", "cannot be read"), ('{"columns": 3}', "not a list"), ('{"columns": ["y"]}', "sq_ft")]:
        (out / "fit.json").write_text(text)
        done = cli("eval", str(out), "--at", "sq_ft=1")
        assert done.code == 2 and said in done.err and done.err.count("\n") == 1


def test_a_text_target_is_classified(cli, tmp_path):
    source = tmp_path / "t.csv"
    lines = [f"{k / 10},{'red' if k % 20 < 10 else 'blue'}" for k in range(200)]
    source.write_text("\n".join(["x,kind", *lines]))
    done = cli("fit", str(source), "--target", "kind", "--json")
    facts = json.loads(done.out)
    assert done.code == 0 and facts["task"] == "classification" and facts["classes"] == ["blue", "red"]
    assert set(facts["held_out"]["this fit"]) == {"accuracy", "log_loss", "auc"}
    done = cli("fit", str(source), "--target", "kind", "--task", "regression")
    assert done.code == 2 and "kind' has texts such as" in done.err and "--task classification" in done.err


def test_one_held_out_row_has_no_r2(cli, tmp_path):
    source = _write(tmp_path / "t.csv", ["x", "y"], [[float(k), 2.0 * k] for k in range(6)])
    done = cli("fit", str(source), "--target", "y", "--json", "--test", "0.17")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["held_out_rows"] == 1 and facts["r2_held_out"] is None
    assert facts["held_out"]["this fit"]["rmse"] < 1e-6


@pytest.mark.parametrize("seed", ["-1", str(2**32), str(10**30)])
def test_seeds_that_cannot_be(cli, table, seed):
    done = cli("fit", str(table), "--target", "price", "--seed", seed)
    assert done.code == 2 and "--seed must be from 0 to" in done.err and done.err.count("\n") == 1


def test_the_fit_stands_beside_a_linear_model(cli, table):
    done = cli("fit", str(table), "--target", "price", "--degree", "2", "--json")
    held_out = json.loads(done.out)["held_out"]
    assert list(held_out) == ["this fit", "linear model", "mean"]
    assert held_out["this fit"]["rmse"] < held_out["linear model"]["rmse"] < held_out["mean"]["rmse"]
    shown = cli("fit", str(table), "--target", "price", "--degree", "2").out
    assert "linear model" in shown and "RMSE" in shown
