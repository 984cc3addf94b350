"""Shared set-up: the helpers in tests/support are importable, and hypothesis is repeatable."""

import os

# The workers of pytest-xdist are the parallelism; a second thread for each would only wait for the others' cores.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["support.browser_fixtures"]

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")
# It takes constants from the modules that are loaded, and those depend on what a worker has run before.
providers._get_local_constants = Constants
os.environ["TRANSFORMULA_CACHE"] = "off"  # a test must not depend on what an earlier one has left
torch.backends.mkldnn.set_flags(False)  # its AMX kernels end the process on machines that only announce AMX

F2 = "x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4 + 3*x5**2 + 2*x6*x7*x8 + 2*x9"


@pytest.fixture(scope="session")
def f2():
    """The paper's f2* on -3..3, compiled once a process."""
    import transformula as tf

    return tf.compile(F2, on="x1..x9=-3..3")


@pytest.fixture(scope="session")
def circuits(tmp_path_factory):
    """circuits(name, dtype) compiles a named circuit once a test run, whatever worker asks."""
    from support.circuit_models import Shelf

    root = tmp_path_factory.getbasetemp()
    return Shelf((root.parent if os.environ.get("PYTEST_XDIST_WORKER") else root) / "circuits")


@pytest.fixture
def no_advice(monkeypatch):
    """A refusal says what was found and looks no further for options that would be met: seconds of work for each."""
    from transformula.compiler.advice import AdviceSearch

    monkeypatch.setattr(AdviceSearch, "look", lambda *_: None)


@pytest.fixture
def table(tmp_path):
    """A CSV file of 120 houses whose price is 3 + 2*size*rooms + age**2."""
    X = np.random.default_rng(0).uniform(0, 10, size=(120, 3))
    price = 3 + 2 * X[:, 0] * X[:, 1] + X[:, 2] ** 2
    path = tmp_path / "houses.csv"
    lines = ["size,rooms per floor,age,price"]
    lines += [",".join(map(repr, row)) for row in np.column_stack([X, price]).tolist()]
    path.write_text("\n".join(lines) + "\n")
    return path
