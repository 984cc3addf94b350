"""Dask and Arrow tables as X and y: the same fit as from arrays, and nothing of Dask's gathered."""

import numpy as np
import pytest

from transformula.learn import OneLayerTransformerRegressor, PolynomialTransformerRegressor, states

rng = np.random.default_rng(0)
X = rng.uniform(1, 3, size=(900, 3))
y = X[:, 0] ** 2 * X[:, 1] - X[:, 2] + 0.1 * rng.normal(size=900)
W = rng.uniform(0.5, 2, size=900)
NAMES = ["area m2", "age", "floor"]


@pytest.fixture
def small_samples(monkeypatch):
    """Samples of 200 rows, so that 900 rows are a large table."""
    monkeypatch.setattr(states, "_LEAST_SAMPLE", 200)
    monkeypatch.setattr(states, "_MOST_SAMPLE", 200)


def _same(one, other):
    np.testing.assert_allclose(one.fitted_.predict(X), other.fitted_.predict(X), rtol=1e-9, atol=1e-9)


class TestArrow:
    pa = pytest.importorskip("pyarrow")

    def test_a_small_table_is_fitted_as_arrays_are(self):
        table = self.pa.table(dict(zip(NAMES, X.T, strict=True)))
        model = PolynomialTransformerRegressor(3).fit(table, self.pa.array(y), sample_weight=W)
        plain = PolynomialTransformerRegressor(3).fit(X, y, sample_weight=W)
        assert np.array_equal(model.fitted_.predict(X), plain.fitted_.predict(X))
        assert list(model.feature_names_in_) == NAMES and "area_m2" in model.to_formula()
        assert model.predict(table).shape == (900,)

    def test_what_is_missing_is_refused(self):
        table = self.pa.table({"a": [1.0, None, 3.0]})
        with pytest.raises(ValueError, match="X contains NaN"):
            PolynomialTransformerRegressor(1).fit(table, [1.0, 2.0, 3.0])
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            PolynomialTransformerRegressor(1).fit(table.drop_null(), [1.0, 2.0, 3.0])


class TestDask:
    da = pytest.importorskip("dask.array")

    def _cut(self, *sizes):
        return [self.da.from_array(a, chunks=(sizes, *a.shape[1:])) for a in (X, y, W)]

    def test_any_blocks_give_the_same_fit(self, small_samples):
        fits = []
        for sizes in [(900,), (1, 400, 499), (300, 300, 300)]:
            x, target, weight = self._cut(*sizes)
            fits.append(PolynomialTransformerRegressor(3, "exact").fit(x, target, sample_weight=weight))
        _same(fits[1], fits[0])
        _same(fits[2], fits[0])

    def test_a_small_table_is_fitted_as_arrays_are(self):
        x, target, weight = self._cut(500, 400)
        model = PolynomialTransformerRegressor(2).fit(x.rechunk((None, 1)), target, sample_weight=weight)
        plain = PolynomialTransformerRegressor(2).fit(X, y, sample_weight=W)
        assert np.array_equal(model.predict(X), plain.predict(X))

    def test_what_cannot_be_done_is_said(self):
        x, target, _ = self._cut(500, 400)
        for model in (PolynomialTransformerRegressor(2, "adam"), OneLayerTransformerRegressor()):
            with pytest.raises(ValueError, match=r"its rows are needed in memory here: .*X\.compute\(\)"):
                model.fit(x, target)
        with pytest.raises(ValueError, match="X has 2 parts and y has 1: cut them at the same rows"):
            PolynomialTransformerRegressor(2).fit(x, target.rechunk(900))
        with pytest.raises(ValueError, match="so y must be one too"):
            PolynomialTransformerRegressor(2).fit(x, y)
        with pytest.raises(ValueError, match=r"X\.map_partitions\(model\.predict\)"):
            PolynomialTransformerRegressor(2).fit(X, y).predict(x)

    def test_data_frames_keep_their_names(self, small_samples):
        pytest.importorskip("pandas", reason="Dask's data frames are made of those of pandas")
        import dask.dataframe as dd
        import pandas as pd

        frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES).assign(y=y), npartitions=3)
        model = PolynomialTransformerRegressor(3, "sparse").fit(frame[NAMES], frame["y"])
        assert list(model.feature_names_in_) == NAMES
        _same(model, PolynomialTransformerRegressor(3, "sparse").fit(self.da.from_array(X), self.da.from_array(y)))
