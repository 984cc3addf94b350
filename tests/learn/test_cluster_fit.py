"""A fit on a real Dask cluster: two worker processes over TCP, from files and from collections."""

import json
import os
import signal

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
from transformula.learn import PolynomialTransformerRegressor, states


@pytest.fixture(scope="module")
def dask():
    with cluster(workers=2) as started:
        yield started


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    """Samples of 200 rows, so that 1,200 rows are a large table; workers are told the size."""
    monkeypatch.setattr(states, "_LEAST_SAMPLE", 200)
    monkeypatch.setattr(states, "_MOST_SAMPLE", 200)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Four Parquet files with three row groups each."""
    folder = tmp_path_factory.mktemp("table")
    for k in range(4):
        names, X = ("area", "age", "floor"), block(k, 0, False)
        table = pa.table({**dict(zip(names, X.T, strict=True)), "price": block(k, 0, True)})
        pq.write_table(table, folder / f"{k}.parquet", row_group_size=100)
    return str(folder / "*.parquet")


def fitted(files, *who):
    """What the command says, but for the time it took."""
    done = CliRunner().invoke(app, ["fit", files, "--target", "price", "--solver", "exact", "--json", *who])
    assert done.exit_code == 0, done.output
    return {k: v for k, v in json.loads(done.stdout).items() if k != "seconds"}


def test_files_are_fitted_alike_by_a_cluster_by_processes_and_here(dask, files):
    found = [fitted(files, *who) for who in ([], ["--jobs", "2"], ["--scheduler", dask.address])]
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


def test_a_worker_killed_in_mid_fit_costs_time_only(dask, files, monkeypatch, tmp_path):
    alone, said = fitted(files, "--out", str(tmp_path / "alone")), []

    def kill(stage, done, left):
        said.append((stage, done, left))
        if len(said) == 15:  # three parts into the second pass over the twelve
            dask.workers[0].kill()
            dask.workers[0].wait()

    monkeypatch.setattr("transformula.cluster.table_parts.report", kill)
    shared = fitted(files, "--out", str(tmp_path / "shared"), "--scheduler", dask.address)
    assert dask.workers[0].returncode == -signal.SIGKILL and said[14] == ("reading", 3, 9) and len(said) == 24
    assert {**shared, "out": None} == {**alone, "out": None}
    names = ("model.safetensors", "model.json", "certificate.json")
    assert all((tmp_path / "alone" / n).read_bytes() == (tmp_path / "shared" / n).read_bytes() for n in names)
