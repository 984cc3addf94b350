"""Raw cells as people write them: thousands, decimal commas, currency, booleans, gaps, a few bad dates."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from transformula.errors import InputError, ModelFileError
from transformula.learn import TableModel, fit_table
from transformula.learn.preparation import PrepareOptions, prepare
from transformula.learn.raw_cells import as_numbers, cells_of, number_form
from transformula.learn.raw_onnx import raw_inputs

rng = np.random.default_rng(5)
X = rng.normal(size=(240, 2)).round(2)


def _column(cells, **options):
    """The one column of a table, and its numbers."""
    found, X = prepare({"a": np.array(cells, dtype=object)}, rng.normal(size=len(cells)), PrepareOptions(**options))
    return found.columns[0], X


@pytest.mark.parametrize(
    ("cells", "form", "values"),
    [
        (["1", "2.5", "1e3"], "", [1, 2.5, 1000]),
        (["1,234.50", "-12", "1,000,000"], "1,234.5", [1234.5, -12, 1e6]),
        (["$1,250", "€ 99.5", "12 %"], "1,234.5", [1250, 99.5, 12]),
        (["0,5", "1.250,75", "-3"], "1.234,5", [0.5, 1250.75, -3]),
        (["0,125", "2,500", "0,250"], "1.234,5", [0.125, 2.5, 0.25]),
        (["12'500", "1 300", "40"], "1,234.5", [12500, 1300, 40]),
        (["1.234", "2.500", "1.234.567"], "1.234,5", [1234, 2500, 1234567]),
    ],
)
def test_numbers_are_read_as_people_write_them(cells, form, values):
    texts = np.array([*cells, "", "n/a"], dtype=object)
    assert number_form(texts) == form
    read = as_numbers(texts, form)
    assert read[:-2].tolist() == values and np.isnan(read[-2:]).all()


def test_words_and_addresses_are_not_numbers():
    for cells in (["Rome", "Paris, FR"], ["192.168.1.17", "10.0.0.1"], ["12:30", "13:45"], ["1,23,4", "5;6"]):
        texts = np.array(cells, dtype=object)
        assert np.isnan(as_numbers(texts, number_form(texts))).all()


def test_the_list_of_columns_says_how_numbers_were_read():
    column, X = _column([f"{k},{k % 10}" for k in range(1, 60)])
    assert column.kind == "number" and "written as 1.234,5" in column.note and X[0, 0] == 1.1


def test_a_number_that_is_only_there_or_not_is_a_category():
    column, X = _column(["1", "", "1", "", "", "1"])
    assert column.kind == "category" and column.levels == ("", "1") and X[:, 0].tolist() == [1, 0, 1, 0, 0, 1]


def test_a_few_bad_dates_are_empty_cells():
    days = [f"2020-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(100)]
    days[7] = days[70] = "0000-00-00"
    column, _ = _column(days)
    assert column.kind == "date" and "2 empty cells become the median" in column.note
    assert _column([*days[:10], *["soon"] * 90])[0].kind == "category"


@pytest.mark.parametrize(
    "form", ["%b %d, %Y", "%d %B %Y", "%d-%m-%Y", "%d.%m.%y", "%m/%d/%Y %H:%M", "%Y-%m-%d %H:%M:%S"]
)
def test_dates_are_read_as_people_write_them(form):
    days = [datetime(2021, 1, 1) + timedelta(days=k) for k in range(60)]
    column, X = _column([day.strftime(form) for day in days])
    assert column.kind == "date" and np.array_equal(X[:, 0] - X[0, 0], np.arange(60))


def test_numbers_that_look_like_codes_are_named():
    assert "'01234' looks like a code" in _column(["01234", "22087", "80331", "10115"])[0].note
    assert _column(["0", "0.5", "10"])[0].note == ""


def test_numbers_that_are_0_and_1_are_indicators():
    """No squares of them in a formula, and none among the terms that are tried."""
    flag = rng.integers(0, 2, 240)
    y = 3 * flag + X[:, 0] + X[:, 0] * flag
    fitted = fit_table({"flag": flag, "x": X[:, 0], "y": y}, "y", degree=3, solver="exact")
    assert fitted.preparation.columns[0].form == "0/1" and fitted.preparation.indicators == [[0]]
    assert "flag**" not in fitted.notes["formula"][0]


def test_booleans_mean_the_same_everywhere(tmp_path):
    """Fitted on a data frame, asked from a CSV file: True was read as an empty cell there."""
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    flag = rng.random(240) < 0.5
    frame = pd.DataFrame({"flag": flag, "maybe": [None if k % 3 else True for k in range(240)], "x": X[:, 0]})
    frame["y"] = 2 * frame["x"] + 5 * flag + 3 * (np.arange(240) % 3 == 0)
    fitted = fit_table(frame, "y", degree=1, folder=tmp_path / "m")
    wanted = fitted.predict(frame)
    assert np.abs(wanted - frame["y"]).max() < 1e-3
    for word in (str, lambda b: str(b).lower(), lambda b: str(b).upper()):
        texts = {"flag": np.array([word(bool(b)) for b in flag], dtype=object), "x": X[:, 0]}
        texts["maybe"] = np.array(["" if k % 3 else word(True) for k in range(240)], dtype=object)
        assert np.array_equal(fitted.predict(texts), wanted)
        ort = pytest.importorskip("onnxruntime")
        from transformula.learn.raw_onnx import raw_onnx_bytes

        run = ort.InferenceSession(raw_onnx_bytes(fitted))
        made = run.run(["y"], raw_inputs(fitted, texts))[0][:, 0]
        np.testing.assert_allclose(made, wanted, rtol=1e-12, atol=1e-12)
    assert np.array_equal(TableModel.load(tmp_path / "m").predict(pa.Table.from_pandas(frame)), wanted)


def test_only_columns_of_the_formula_are_looked_at(tmp_path):
    """An empty cell in a column that the formula does not have is nobody's business."""
    table = {"x": X[:, 0], "noise": X[:, 1], "y": 2 * X[:, 0]}
    fitted = fit_table(table, "y", degree=1)
    assert [column.name for column in fitted.reads.columns] == ["x"]
    assert fitted.statuses({"x": [0.5], "noise": [np.nan]}) == ["inside"]
    assert fitted.predict({"x": [0.5]}) == pytest.approx(1.0)
    with pytest.raises(InputError, match="has no column 'x'"):
        fitted.predict({"noise": [0.5]})


def test_frames_of_other_kinds():
    pd = pytest.importorskip("pandas")
    found = cells_of(pd.DataFrame({"t": pd.to_timedelta([12, 36], "h"), "n": pd.array([1, None], dtype="Int64")}))
    assert found["t"].tolist() == [0.5, 1.5] and found["n"][0] == 1 and np.isnan(found["n"][1])
    with pytest.raises(InputError, match="has the column 'a' twice"):
        cells_of(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_class_with_one_row_is_fitted_not_held_out():
    table = {"x": X[:60, 0], "y": np.array(["rare" if k == 5 else "no" if X[k, 0] < 0 else "yes" for k in range(60)])}
    for seed in (13, 15, 16):
        fitted = fit_table(table, "y", degree=1, seed=seed)
        assert fitted.classes == ("no", "rare", "yes") and fitted.model.weights.outputs == 3


def test_a_target_with_a_slip_names_it():
    y = [repr(v) for v in X[:, 0].tolist()]
    y[9] = "0.5?"
    with pytest.raises(InputError, match=r"'y' has the text '0.5\?' among its numbers"):
        fit_table({"x": X[:, 1], "y": np.array(y, dtype=object)}, "y")


def test_a_slip_in_a_column_of_few_numbers_names_its_row():
    """One cell of 30 made a category of the column: six levels, one of them a slip."""
    rooms = [str(k % 5 + 1) for k in range(30)]
    rooms[11], table = "two", {"age": [*map(str, range(29)), ""], "y": [float(k % 5) for k in range(30)]}
    for test in (0.0, 0.2):  # wherever the split puts the row
        column = fit_table(table | {"rooms": rooms}, "y", degree=1, test=test).preparation.columns[-1]
        assert column.kind == "number" and "the cell 'two' (row 12) is read as empty" in column.note
    with pytest.raises(InputError, match=r"'two' among its numbers \(row 12\).* --task classification"):
        fit_table({"x": table["age"], "rooms": rooms}, "rooms")
    days = [f"2024-01-{k + 1:02}" for k in range(30)]
    days[2:5] = ["soon", "2024-01-03", "2024-01-04"]
    column = fit_table({"day": days, "y": np.arange(30.0)}, "y", degree=1, test=0.0).preparation.columns[0]
    assert column.kind == "date" and "the cell 'soon' (row 3) is read as empty" in column.note


@pytest.mark.parametrize("rows", [3, 4])
def test_so_few_rows_have_no_score(rows):
    """A line through three points was reported with R² = 1."""
    with pytest.warns(UserWarning, match=f"{rows} rows are too few to judge"):
        fitted = fit_table({"x": np.arange(rows) * 1.0, "y": np.arange(rows) * 2.0}, "y", test=0.0)
    assert fitted.notes["r2_training"] is None and fitted.notes["held_out"] is None


def test_a_folder_whose_names_follow_another_rule_is_refused(tmp_path, monkeypatch):
    """Letters of other scripts were once left out of variables: such a folder has no columns for its variables."""
    from transformula.learn import columns

    table = {"温度": X[:, 0], "β": X[:, 1], "y": X[:, 0] - X[:, 1]}
    monkeypatch.setattr(columns, "_ascii_letters", lambda char: char)
    fit_table(table, "y", degree=1, folder=tmp_path / "old")
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match=r"fit\.json names no column for x"):
        TableModel.load(tmp_path / "old")


def test_two_rows_prove_nothing():
    """A line through two points has R² = 1, which is no score."""
    with pytest.warns(UserWarning, match="2 rows are too few to judge"):
        fitted = fit_table({"x": [1.0, 2.0, 4.0], "y": [3.0, 1.0, 2.0]}, "y", degree=3)
    assert fitted.notes["r2_training"] is None and fitted.notes["r2_held_out"] is None and fitted.notes["degree"] == 1


def test_a_column_that_decides_everything():
    """Three distinct rows, each seen often: to leave one out is to leave out all like it, which says nothing."""
    city = rng.choice(["Rom", "Ulm", "Wien"], 90)
    fee = np.select([city == "Rom", city == "Ulm"], [12.5, 20.0], 31.0)
    fitted = fit_table({"city": city, "fee": fee}, "fee")
    assert fitted.predict({"city": ["Wien", "Rom", "Ulm"]}) == pytest.approx([31, 12.5, 20], rel=1e-6)
