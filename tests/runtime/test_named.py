"""Points with names are read by name, whatever the order: silently wrong numbers otherwise."""

import warnings
from collections import namedtuple
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from flint import fmpq

import transformula as tf
from transformula.errors import PointError
from transformula.runtime.input_rows import columns_of

X, Y = [0.25, 0.5, 1.0], [0.5, 1.0, 0.0]
WANTED = [x - 2 * y for x, y in zip(X, Y, strict=True)]


@pytest.fixture
def model():
    return tf.compile("x - 2*y", on="x=0..1, y=0..1")


class Polars:
    """A table as polars has it: names in a list, columns by name, and no order of rows that has labels."""

    def __init__(self, data):
        self._data = data

    @property
    def columns(self):
        return list(self._data)

    def __getitem__(self, name):
        return np.array(self._data[name])


Row = namedtuple("Row", ["y", "x"])
STRUCTURED = np.array(list(zip(Y, X, strict=True)), dtype=[("y", "f4"), ("x", "f8")])
TABLES = {
    "pandas": pd.DataFrame({"y": Y, "x": X}),
    "pandas, nullable": pd.DataFrame({"y": pd.array(Y, dtype="Float64"), "x": X}),
    "pandas, objects": pd.DataFrame({"y": [Fraction(v) for v in Y], "x": [str(v) for v in X]}),
    "polars": Polars({"y": Y, "x": X}),
    "arrow": pa.table({"y": Y, "x": X}),
    "record batch": pa.RecordBatch.from_pydict({"y": Y, "x": X}),
    "dict": {"y": Y, "x": np.array(X)},
    "dict of series": {"y": pd.Series(Y), "x": pd.Series(X, index=[7, 8, 9])},
    "structured array": STRUCTURED,
    "records": STRUCTURED.view(np.recarray),
    "dicts": [{"y": y, "x": x} for x, y in zip(X, Y, strict=True)],
    "named tuples": [Row(y, x) for x, y in zip(X, Y, strict=True)],
    "rows of pandas": [row for _, row in pd.DataFrame({"y": Y, "x": X}).iterrows()],
    "itertuples": list(pd.DataFrame({"y": Y, "x": X}).itertuples()),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_go_by_name(model, name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model does not use Index")  # which itertuples adds
        assert model(TABLES[name]).tolist() == pytest.approx(WANTED)
        assert model.trace(TABLES[name]).outputs[:, 0].tolist() == pytest.approx(WANTED)


@pytest.mark.parametrize(
    "point",
    [
        {"y": 0.5, "x": 0.25},
        pd.Series({"y": 0.5, "x": 0.25}),
        pd.DataFrame({"y": Y, "x": X}).iloc[0],
        STRUCTURED[0],
        np.array((0.5, 0.25), dtype=[("y", float), ("x", float)]),
        Row(y=0.5, x=0.25),
        {"y": np.float32(0.5), "x": np.array(0.25)},
        [0.25, 0.5],
    ],
)
def test_one_point_has_one_answer(model, point):
    answer = model(point)
    assert np.ndim(answer) == 0 and float(answer) == -0.75
    assert tf.compile(["x", "y"], on="x=0..1, y=0..1")(point).tolist() == [0.25, 0.5]


def test_a_number_beside_columns_holds_for_every_row(model):
    assert model({"y": 0.5, "x": X}).tolist() == [x - 1 for x in X]


def test_dicts_of_tensors_give_tensors_with_gradients(model):
    x, y = torch.tensor(X, dtype=torch.float64, requires_grad=True), torch.tensor(Y, dtype=torch.float64)
    found = model({"y": y, "x": x})
    assert found.tolist() == pytest.approx(WANTED)
    found.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    assert float(model({"y": 1, "x": torch.tensor(1.0)})) == -1.0


def test_arrays_go_by_position_and_so_do_numbered_columns(model):
    rows = np.column_stack([X, Y])
    for given in (rows, rows.tolist(), torch.tensor(rows), pd.DataFrame(rows), pd.DataFrame(rows, columns=[1, 0])):
        assert np.asarray(model(given)).tolist() == pytest.approx(WANTED)
    assert float(model(pd.Series([0.25, 0.5]))) == -0.75
    line = tf.compile("3*x", on="x=0..1")
    assert line(pd.Series([0.25, 0.5])).tolist() == [0.75, 1.5]
    assert float(line(0.5)) == 1.5 == float(line({"x": 0.5})) and line({"x": [0.5]}).tolist() == [1.5]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pd.DataFrame({"a": X, "b": Y}), r"no value is given for x, y \(the names given are a, b\).*in the order x, y"),
        (pd.DataFrame({"x": X, "X": Y}), r"for y \(the names given are x, X\)"),
        ({"x": 1}, "for y "),
        ({}, r"for x, y \(the names given are none\)"),
        (pd.Series({"x": 1.0, "z": 2.0}), "for y "),
        (pa.table({"x": X}), "for y "),
        ([{"x": 1, "y": 1}, {"x": 1}], "for y "),
        ([{"x": 1, "y": 1}, [1, 2]], "for x, y "),
        (pd.DataFrame(np.zeros((2, 2)), columns=[("x", 1), ("y", 1)]), "for x, y "),
        (pd.DataFrame(np.zeros((2, 3)), columns=["x", "y", "x"]), "x stands twice"),
        ({"x": X, "y": Y[:2]}, "different lengths: y has 2 and x has 3"),
        ({"x": X, "y": [[1], [2], [3]]}, r"y: expected a number or a column.*\(3, 1\)"),
        ({"x": ["a", "b", "c"], "y": Y}, "x: expected real numbers"),
        ({"x": None, "y": 1}, "x: expected real numbers, got None"),
        ({"x": np.array([1j]), "y": 1}, "x: expected real numbers, got an array of complex128"),
        (pd.DataFrame({"x": pd.to_datetime(["2020-01-01"]), "y": [1]}), "x: expected real numbers"),
        (np.ma.array([[1.0, 2.0]], mask=[[True, False]]), "masked"),
        (torch.tensor([[1j, 0]]), "complex"),
        (torch.eye(2).to_sparse(), "dense tensor, got a sparse one"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(model, given, said):
    with pytest.raises(PointError, match=said) as caught:
        model(given)
    assert "\n" not in str(caught.value)


def test_other_columns_are_ignored_and_named_once(model):
    table = pd.DataFrame({"name": ["a", "b", "c"], "y": Y, "id": [1, 2, 3], "x": X})
    with pytest.warns(UserWarning, match="does not use name, id: only x, y") as caught:
        assert model(table).tolist() == pytest.approx(WANTED)
        assert model(table).tolist() == pytest.approx(WANTED)
    assert len(caught) == 1 and caught[0].filename == __file__


def test_a_fitted_transformer_takes_the_frame_it_was_fitted_on():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(0, 1, (60, 3)), columns=["b", "unused", "a"])
    fitted = tf.PolynomialTransformerRegressor(degree=2, solver="exact").fit(data, data["a"] ** 2 - data["b"])
    built = fitted.to_transformer(tolerance=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert np.abs(built(data[["a", "unused", "b"]]) - fitted.predict(data)).max() < 1e-4
    for other in (data[["a", "unused", "b"]], data.rename(columns={"a": "c"})):
        with pytest.raises(ValueError, match="feature names"):  # as scikit-learn has it
            fitted.predict(other)


def test_sequences_and_prompts_have_names_too():
    pair = tf.compile(["p + q", "q"], on="p=0..1, q=0..1", shape=(2, 1))
    assert pair({"q": 0.5, "p": 0.25}).tolist() == [[0.75], [0.5]]
    assert pair(pd.DataFrame({"q": [0.5], "p": [0.25]})).tolist() == [[[0.75], [0.5]]]
    assert tf.in_context("recurrence", steps=2)({"x": 1, "a": 0.5, "b": 1}).tolist() == [1.5, 1.75]


def test_exact_takes_rationals_by_name(model):
    assert model.exact({"y": Fraction(1, 3), "x": 1}) == [fmpq(1, 3)] == model.exact([1, fmpq(1, 3)])
    assert model.exact(pd.Series({"y": 0.1, "x": "1/5"})) == [0]
    for given, said in (
        ([1], "expected 2 rational numbers"),
        ([1, 2, 3], "expected 2 rational numbers"),
        ({"x": 1}, "no value is given for y"),
        (None, "got None"),
        (["pi", 1], "x = pi is not a rational number"),
        ([float("nan"), 1], "only finite numbers"),
        ([[1], 1], "a number or text is needed"),
    ):
        with pytest.raises(PointError, match=said):
            model.exact(given)


def test_a_column_may_be_called_as_an_attribute_is():
    model = tf.compile("columns - column_names", on="columns=0..1, column_names=0..1")
    assert model(pd.DataFrame({"column_names": [0.25], "columns": [1.0]})).tolist() == [0.75]
    assert float(model(pd.Series({"column_names": 0.25, "columns": 1.0}))) == 0.75


def test_what_has_no_names_has_no_columns():
    for given in (1.0, "x", [1, 2], [[1, 2]], np.zeros(3), torch.zeros(3), [], (), None, [(1, 2)]):
        assert columns_of(given) is None
