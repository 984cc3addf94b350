"""A slice of the forging (benchmarks/forging.py): changed folders, every hash made to fit."""

import json

import numpy as np
import pytest

import forging
from transformula.kernel.folder.files import Packed, unpack
from transformula.transformers import reference

BASES = [
    "sine", "kinks", "cells", "anchors", "local", "product", "bent", "cubic32", "memory", "sinc", "words", "ridge32",
    "lasso", "attention", "contexts",
]  # fmt: skip
COUNT = 60


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    where = tmp_path_factory.mktemp("bases")
    forging.compile_bases(where, BASES)
    return {name: forging.Folder.read(where / name) for name in BASES}


def test_no_false_claim_verifies(bases):
    results = {seed: forging.one(bases, seed) for seed in range(COUNT)}
    bad = {seed: result for seed, result in results.items() if result["status"] not in ("refused", "true")}
    assert not bad
    found = forging.summary({str(seed): result for seed, result in results.items()})
    assert found["true"] >= COUNT // 20 and found["refused"] >= COUNT // 2
    assert set(found["kinds"]) >= {"weights", "wires", "evidence", "formula", "derivation"}
    assert found["slowest"] <= forging.SECONDS and found["megabytes"] <= forging.MEGABYTES


@pytest.mark.parametrize("name", BASES)
def test_writing_a_folder_back_forges_nothing(bases, name):
    files = bases[name].copy().files()
    assert forging.judge(files)["verified"], forging.judge(files)


@pytest.mark.parametrize("name", BASES)
def test_the_dense_blocks_are_those_of_the_definition(bases, name):
    folder = bases[name]
    weights, _ = unpack(Packed(*_contents(folder)))
    points = np.random.default_rng(0).random((20, len(folder.body["inputs"])))
    found = forging.dense(folder, points, np.dtype(folder.body["dtype"]).type)
    assert np.allclose(found, reference.run(weights, points), rtol=1e-5, atol=1e-5)


def _contents(folder):
    files = folder.files()
    return files["model.safetensors"], files["model.json"].decode(), files["evidence.json"].decode()


@pytest.mark.parametrize("name", ["sine", "product", "ridge32"])
def test_a_false_claim_is_seen_and_refused(bases, name):
    folder = bases[name].copy()
    wrong = forging.measured(folder, 0)
    assert 0 < wrong <= folder.claim["approximation"] + folder.claim["rounding"]
    folder.claim |= {"approximation": 0.4 * wrong, "rounding": 0.4 * wrong, "eps": wrong}
    assert not forging.judge(folder.files())["verified"]


@pytest.mark.parametrize(
    "typed", ["sin(3*x) + 0*log(x)", "sin(3*x)*(x/x)", "sin(3*x) + 0*(1/x)", "sqrt(x) - sqrt(x) + sin(3*x)"]
)
def test_a_formula_that_is_undefined_somewhere_is_refused(bases, typed):
    folder = bases["sine"].copy()
    folder.body["formulas"] = [typed]
    folder.claim |= {"approximation": 1e300, "rounding": 1e300, "eps": 2e300}
    assert not forging.judge(folder.files())["verified"]


@pytest.mark.parametrize(
    ("old", "new", "typed"),
    [
        ("(sin(3*x) + 0*log(x))/x", "3*sinc(3*x)", "x*((sin(3*x) + 0*log(x))/x)"),
        ("abs(x)/x", "1", "sin(3*x)*(abs(x)/x)"),
        ("1/x", "0", "sin(3*x) + 0*(1/x)"),
        ("max(x, 0)*sin(3*x)/max(x, 0)", "sin(3*x)", "max(x, 0)*sin(3*x)/max(x, 0)"),
    ],
)
def test_a_step_closes_no_larger_hole(bases, old, new, typed):
    """Only removable singularities are extended: not what is undefined on a part of the box, or jumps."""
    folder = bases["sine"].copy()
    folder.body["formulas"] = [typed]
    folder.body["circuit"]["extends"] = [{"of": old, "is": new, "at": {"x": "1/3"}}]
    folder.claim |= {"approximation": 1e300, "rounding": 1e300, "eps": 2e300}
    answer = forging.judge(folder.files())
    assert not answer["verified"] and "the check stopped" not in json.dumps(answer)
