"""A slice of the forging (benchmarks/forging.py): changed folders, every hash made to fit."""

import json
import random

import numpy as np
import pytest

import attacks
import forging
import judge
from transformula.kernel.check import Verification
from transformula.kernel.folder.model_files import Packed, unpack
from transformula.runtime import reference

BASES = [
    "sine", "kinks", "cells", "anchors", "local", "product", "bent", "cubic32", "memory", "sinc", "words", "ridge32",
    "lasso", "attention", "contexts",
]  # fmt: skip
COUNT = 60


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    where = tmp_path_factory.mktemp("bases")
    names = [*BASES, *(name for name in attacks.BASES if name != "step")]  # which takes long
    forging.compile_bases(where, names)
    return {name: forging.Folder.read(where / name) for name in names}


def test_no_false_claim_verifies(bases):
    results = {seed: forging.one(bases, seed) for seed in range(COUNT)}
    bad = {seed: result for seed, result in results.items() if result["status"] not in ("refused", "true")}
    assert not bad
    found = forging.summary({str(seed): result for seed, result in results.items()})
    assert found["true"] >= COUNT // 20 and found["refused"] >= COUNT // 2
    assert set(found["kinds"]) >= {"weights", "wires", "evidence", "formula", "derivation"}
    assert found["slowest"] <= judge.SECONDS and found["megabytes"] <= judge.MEGABYTES


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


@pytest.mark.parametrize(
    ("attack", "name", "reason"),
    [
        ("race", "fourteenth", "only 1 is proven"),
        ("flat", "waves", "beyond float64's range"),
        ("flat", "waves32", "beyond float32's range"),
        ("scaled", "waves", "beyond float64's range"),
        ("scaled", "waves32", "beyond float32's range"),
        ("whole claim", "line", "no float equals"),
    ],
)
def test_attacks_that_once_succeeded_are_refused(bases, attack, name, reason):
    folder = bases[name].copy()
    attacks.ATTACKS[attack][1](folder, random.Random(1))
    answer = forging.judge(folder.files())
    assert not answer["verified"] and reason in answer["reason"] and judge.problem(answer) is None


def test_verdicts_of_many_threads_are_those_alone(bases):
    few = {name: bases[name] for name in ("sine", "fourteenth", "cubic32", "line")}
    found = forging.threaded(few, 16, 8)
    assert found["different"] == [] and 4 <= found["verified"] < found["folders"] >= 18


def test_a_verdict_of_threads_that_differs_is_told(bases, monkeypatch):
    monkeypatch.setattr("transformula.proven.verify_files", lambda *_: Verification(True))
    found = forging.threaded({"sine": bases["sine"]}, 8, 2)
    assert found["different"] and "and alone" in found["different"][0]


def test_processes_side_by_side_find_the_same(bases):
    few = {name: bases[name] for name in ("sine", "line")}
    assert dict(forging.forged(few, [1, 2, 3, 4], 2)).keys() == {1, 2, 3, 4}


def test_a_judge_measures_the_check(bases):
    answer = forging.judge(bases["sine"].files())
    assert answer["verified"] and 0 < answer["seconds"] < judge.SECONDS and 10 < answer["megabytes"] < judge.MEGABYTES
    wrong = {"reason": "the check stopped: KeyError"}, {"seconds": 11.0}, {"seconds": float("nan")}, {"megabytes": 1025}
    assert [judge.problem(answer | change) for change in wrong] == ["traceback", "slow", "slow", "big"]
