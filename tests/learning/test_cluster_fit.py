"""A fit on a real Dask cluster: two worker processes over TCP, from files and from collections."""

import json
import os

import numpy as np
import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from support.cluster import cluster
from support.remote import block
from transformula.cli.app import app
from transformula.learning import PolynomialTransformerRegressor, states


@pytest.fixture(scope="module")
def dask():
    with cluster(workers=2) as started:
        yield started


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    """Samples of 200 rows, so that 1,200 rows are a large table; workers are told the size."""
    monkeypatch.setattr(states, "_LEAST_SAMPLE", 200)
    monkeypatch.setattr(states, "_MOST_SAMPLE", 200)


def test_files_are_fitted_alike_by_a_cluster_by_processes_and_here(dask, tmp_path):
    for k in range(4):
        names, X = ("area", "age", "floor"), block(k, 0, False)
        table = pa.table({**dict(zip(names, X.T, strict=True)), "price": block(k, 0, True)})
        pq.write_table(table, tmp_path / f"{k}.parquet", row_group_size=100)
    found = []
    for who in ([], ["--jobs", "2"], ["--scheduler", dask.address]):
        command = ["fit", str(tmp_path / "*.parquet"), "--target", "price", "--solver", "exact", "--json", *who]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        found.append({k: v for k, v in json.loads(done.stdout).items() if k != "seconds"})
    assert found[0]["in_parts"] and found[0]["rows"] + found[0]["held_out_rows"] == 1200
    assert found[1] == found[0] and found[2] == found[0], "the last digits depend on who computed what"


def test_collections_are_fitted_where_they_are(dask):
    import dask.array as da
    from dask import delayed
    from distributed import Client

    def collection(forbidden, target):
        shape = (300,) if target else (300, 3)
        parts = [da.from_delayed(delayed(block)(k, forbidden, target), shape, float) for k in range(4)]
        return da.concatenate(parts)

    with Client(dask.address):
        remote = PolynomialTransformerRegressor(3, "exact").fit(
            collection(os.getpid(), False), collection(os.getpid(), True)
        )
    here = PolynomialTransformerRegressor(3, "exact").fit(collection(0, False), collection(0, True))
    X = block(9, 0, False)
    np.testing.assert_allclose(remote.predict(X), here.predict(X), rtol=1e-9)
