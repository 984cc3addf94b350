"""Five messy tables, from a CSV file to a report, a formula, predictions and ONNX, one command each."""

import csv
import json

import numpy as np
import pytest
from tests.support.messy_tables import TABLES, homes, write_table

from transformula.learn import TableModel, fit_table
from transformula.learn.raw_onnx import raw_inputs


def _read(path, delimiter):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter=delimiter))
    return dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("tables"), {}


@pytest.fixture(params=TABLES)
def case(request, folders, cli):
    """A fitted folder with its file: name, path of the table, its delimiter, folder, facts of the fit."""
    place, made = folders
    if request.param not in made:
        generator, delimiter, options = TABLES[request.param]
        columns, target, y = generator()
        source = write_table(place / f"{request.param}.csv", {**columns, target: y}, delimiter)
        folder = place / request.param
        done = cli("fit", str(source), "--target", target, "--out", str(folder), "--json", *options)
        assert done.code == 0, done.err
        made[request.param] = (request.param, source, delimiter, folder, json.loads(done.out))
    return made[request.param]


def test_every_column_is_accounted_for_in_one_list(case):
    name, _, _, _, facts = case
    columns, target, _ = TABLES[name][0]()
    assert len(facts["preparation"]) == len(columns) and facts["target"] == target
    said = "\n".join(facts["preparation"])
    wanted = {
        "homes": ["id: left out (text with", "city: category (4 levels)", "age again\": left out (the same as age)",
                  "country: left out (the only value is 'EU')", "\"sold on\": date", "empty cells become the median"],
        "shops": ["Straße: target mean (200 levels", "opened: date", "kind: category"],
        "customers": ["plan: category (3 levels)", "such as 'unknown' (row 1) are read as empty"],
        "sensors": ["leer: left out (every cell is empty)", "zeit: date", "\"Fühler 0 °C\": number"],
        "grades": ["school: category (6 levels)", "hours: number"],
    }[name]  # fmt: skip
    assert all(text in said for text in wanted), said


def test_the_fit_is_good_on_rows_it_has_not_seen(case):
    name, _, _, _, facts = case
    held = facts["held_out"]
    if facts["task"] == "regression":
        assert held["this fit"]["rmse"] <= 1.02 * held["linear model"]["rmse"]
        assert held["this fit"]["r2"] > {"homes": 0.9, "shops": 0.9, "sensors": 0.9}[name]
        assert abs(facts["r2_change_by_rounding"]) < 1e-3
    else:
        assert set(held["this fit"]) == {"accuracy", "log_loss", "auc"}
        assert held["this fit"]["auc"] > 0.8 and held["this fit"]["log_loss"] < held["mean"]["log_loss"]
        assert abs(facts["log_loss_change_by_rounding"]) < 1e-2


def test_formulas_have_indicators_to_the_first_power_and_decimals(case):
    text = str(case[4]["formula"])
    assert "/" not in text
    model = TableModel.load(case[3])
    for group in model.preparation.indicators:
        names = [list(case[4]["columns"])[k] for k in group]
        assert not any(f"{name}**" in text for name in names)
        terms = [term.split("*") for term in text.replace(" - ", " + ").split(" + ")]
        assert not any(sum(name in term for name in names) > 1 for term in terms)


def test_every_row_is_predicted_with_a_status_and_onnx_agrees(case, cli, tmp_path):
    _, source, delimiter, folder, facts = case
    table = _read(source, delimiter)
    first = next(name for name in table if name != facts["target"])
    raw = {name: [*values[:40], *values[:2]] for name, values in table.items()}
    fitted = TableModel.load(folder)
    numbers = [column for column in fitted.reads.used if column.kind == "number"]
    texts = [column for column in fitted.reads.used if column.kind == "category"]
    for column in numbers:
        raw[column.name][40] = "1e6"
        raw[column.name][41] = ""
    for column in texts:
        raw[column.name][41] = "never seen"
    new = write_table(tmp_path / "new.csv", {k: v for k, v in raw.items() if k != facts["target"]}, delimiter)
    assert cli("eval", str(folder), "--csv", str(new), "--out", str(tmp_path / "p.csv")).code == 0
    found = _read(tmp_path / "p.csv", delimiter)
    assert len(found["status"]) == 42 and len(found[first]) == 42
    assert "outside" in found["status"][40] and "imputed" in found["status"][41]
    assert not texts or "unknown category" in found["status"][41]
    assert "inside" in found["status"][:40]
    cells = {name: np.array(values, dtype=object) for name, values in raw.items()}
    outputs = fitted.rows(cells).outputs
    predicted = found[f"predicted {facts['target']}"]
    if facts["task"] == "regression":
        np.testing.assert_allclose([float(v) for v in predicted], outputs[:, 0], rtol=1e-12)
    else:
        assert predicted == list(fitted.labels(outputs)) and set(predicted) <= set(facts["classes"])
        assert all(0 <= float(p) <= 1 for p in found[f"probability {facts['classes'][1]}"])
    ort = pytest.importorskip("onnxruntime")
    done = cli("export", str(folder), "--to", "onnx", "--json")
    assert done.code == 0, done.err
    run = ort.InferenceSession(str(folder / "raw.onnx"))
    assert json.loads(done.out)["raw_inputs"] == [one.name for one in run.get_inputs()]
    made = run.run(["y"], raw_inputs(fitted, cells))[0]
    if facts["task"] == "classification":
        assert run.run(["label"], raw_inputs(fitted, cells))[0].tolist() == predicted
    within = np.r_[0:40, 41]
    made, largest = made.reshape(outputs.shape), np.abs(outputs[within]).max()
    np.testing.assert_allclose(made[within], outputs[within], rtol=1e-9, atol=1e-9 * largest)
    np.testing.assert_allclose(made[40], outputs[40], rtol=1e-6)  # far outside, where powers of 1e6 cancel
    assert cli("verify", str(folder), "--onnx", str(folder / "model.onnx")).code == 0


def test_the_report_is_about_the_data(case, cli, tmp_path):
    _, _, _, folder, facts = case
    page = tmp_path / "page.html"
    done = cli("report", str(folder), "--out", str(page))
    assert done.code == 0, done.err
    text = page.read_text(encoding="utf-8")
    wanted = ["on held-out rows", "linear model", "boosted trees", "importance", "Shapley", "effect of"]
    wanted += (
        ["predicted against actual", "residuals"] if facts["task"] == "regression" else ["calibration", "log loss"]
    )
    assert all(words in text for words in wanted) and "cannot be drawn" not in text


def test_a_point_may_have_values_with_commas_and_names_its_columns(cli, tmp_path):
    paid = [f"€{k * 37 % 3000:,.2f}" for k in range(1, 301)]
    table = {"paid (€)": paid, "way, in": ["by Zug"] * 150 + ["zu Fuß"] * 150}
    cost = [k * 37 % 3000 + 50 * (k > 150) for k in range(1, 301)]
    folder, source = str(tmp_path / "m"), write_table(tmp_path / "t.csv", {**table, "cost": cost})
    assert cli("fit", str(source), "--target", "cost", "--degree", "1", "--out", folder).code == 0
    for point in ('paid (€)=€1,250.00, "way, in"=zu Fuß', '"paid (€)"="€1,250.00","way, in"="zu Fuß"'):
        assert float(cli("eval", folder, "--at", point).out) == pytest.approx(1300, abs=0.1)
    assert 'is not a column of the formula (it has "paid (€)", "way, in")' in cli("eval", folder, "--at", "x3=4").err


def test_rows_outside_are_refused_emptied_clipped_or_allowed(cli, tmp_path):
    target = "price"
    folder = tmp_path / "m"
    source = write_table(tmp_path / "t.csv", {"sq m": np.arange(300) / 3, target: np.arange(300) * 2.0})
    assert cli("fit", str(source), "--target", target, "--out", str(folder)).code == 0
    new = write_table(tmp_path / "new.csv", {"sq m": [10, 200]})
    found = {}
    for how in ("nan", "clip", "allow"):
        out = tmp_path / f"{how}.csv"
        assert (
            cli("eval", str(folder), "--csv", str(new), "--out", str(out), "--outside", how, "--name", "euros").code
            == 0
        )
        found[how] = _read(out, ",")
        assert found[how]["status"] == ["inside", "outside"]
    assert found["nan"]["euros"][1] == ""
    assert float(found["clip"]["euros"][1]) == pytest.approx(598, rel=1e-3)
    assert float(found["allow"]["euros"][1]) == pytest.approx(1200, rel=1e-3)
    done = cli("eval", str(folder), "--csv", str(new), "--out", str(tmp_path / "e.csv"), "--outside", "error")
    assert done.code == 2 and "line 3" in done.err and "outside the box" in done.err
    done = cli("eval", str(folder), "--csv", str(new), "--out", str(tmp_path / "e.csv"), "--outside", "never")
    assert done.code == 2 and "error, nan, clip, allow" in done.err


def test_frames_and_dicts_of_python_are_tables_too(tmp_path):
    pd = pytest.importorskip("pandas")
    columns, target, y = homes(300)
    frame = pd.DataFrame({**columns, target: y})
    frame["sq m"] = pd.to_numeric(frame["sq m"])
    frame["sold on"] = pd.to_datetime(frame["sold on"])
    fitted = fit_table(frame, target, degree=2, folder=tmp_path / "m")
    assert np.array_equal(TableModel.load(tmp_path / "m").predict(frame), fitted.predict(frame))
    assert np.corrcoef(fitted.predict(frame), y)[0, 1] > 0.95
    assert np.isnan(fitted.predict({**frame.iloc[:2].assign(age=500.0)}, outside="nan")).any() or "age" not in str(
        fitted.notes["formula"]
    )


def test_a_preparation_that_was_tampered_with_is_refused(cli, tmp_path):
    columns, target, y = homes(300)
    source = write_table(tmp_path / "t.csv", {"city": columns["city"], "age": columns["age"], target: y})
    folder = tmp_path / "m"
    assert cli("fit", str(source), "--target", target, "--out", str(folder)).code == 0
    notes = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    for change in (
        {"preparation": 3},
        {"preparation": [{"name": "city", "kind": "category", "features": ["a"], "levels": ["x"], "values": [[1, 2]]}]},
        {"preparation": [{"name": "age", "kind": "number", "features": ["age"], "fill": "1e400"}]},
        {"preparation": [{"name": "age", "kind": "pickle"}]},
        {"classes": ["a", "b", "c"]},
    ):
        (folder / "fit.json").write_text(json.dumps(notes | change), encoding="utf-8")
        done = cli("eval", str(folder), "--csv", str(source), "--out", str(tmp_path / "o.csv"))
        assert done.code == 2 and done.err.count("\n") == 1, done.err


def test_eval_names_the_cells_that_it_reads_as_empty(cli, tmp_path):
    rows = "".join(f"{k},5;0{1 + k % 9}.05.2021;{2 * k}.500 €\n" for k in range(30, 70))
    (tmp_path / "flats.csv").write_text(f"m²;sold;price\n{rows}", encoding="utf-8")
    folder, new = tmp_path / "flat", tmp_path / "new.csv"
    assert cli("fit", str(tmp_path / "flats.csv"), "--target", "price", "--out", str(folder)).code == 0
    notes = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    assert notes["held_out"]["mean"]["mae"] > 1000  # 60.500 € is not 60.5
    new.write_text("m²;sold\n5o,5;01.05.2021\n40,5;02.05.2021\n;02.05.2021\n", encoding="utf-8")
    done = cli("eval", str(folder), "--csv", str(new), "--out", str(tmp_path / "p.csv"), "--json")
    assert json.loads(done.out)["imputed"] == 2
    said = f"{new}, line 2: m² is '5o,5', which is not a number"
    assert json.loads(done.out)["read_as_empty"] == [said]
    done = cli("eval", str(folder), "--csv", str(new), "--out", str(tmp_path / "p.csv"))
    assert "read as empty" in done.out
    with pytest.warns(UserWarning, match="'5o,5' in row 1 of m² is not a number: read as empty"):
        TableModel.load(folder).predict({"m²": ["5o,5"], "sold": ["01.05.2021"]})
