"""Whatever is changed in a softmax model so that its function leaves the claim, verify says no.

Every checksum is recomputed, so only the mathematics can object. Each changed model is also run: where it is
off by more than it claims, the checker must refuse it.
"""

import copy

import numpy as np
import pytest
from flint import fmpq
from safetensors.numpy import save

import transformula as tf
from support.circuit_models import SMALL
from support.folders import open_model
from support.judging import Judge
from support.layer_models import layered
from support.one_layer_models import SAMPLES, model_named
from transformula.kernel.check import verify_files

KINDS = {
    "one variable": "float64", "softmax itself": "float32", "two heads": "float64", "linear forms": "float64",
    "kinks": "float64", "no table": "float64", "two outputs": "float32", "two variables": "float64",
    "partition": "float64", "partition in two": "float32", "partition of a form": "float64", "memorize": "float64",
    "sorting": "float64", "sequence": "float32", "sequence by cells": "float64",
}  # fmt: skip
CIRCUITS = {"kinks": "float64", "power": "float32", "two outputs": "float64", "root": "float64", "quotient": "float64",
            "distance": "float32"}  # fmt: skip

LAYERS = {"attention only": "float64", "local lines": "float64"}

CHANGES = {
    "a thousandth": lambda v: v * 1.001,
    "half as much again": lambda v: v * 1.5,
    "ten times": lambda v: v * 10,
    "a tenth": lambda v: v / 10,
    "sign": lambda v: -v,
    "zero": lambda v: v * 0,
    "shifted": lambda v: v + 0.01,
}


@pytest.fixture(params=[*KINDS, *(f"circuit: {name}" for name in CIRCUITS), *(f"layers: {name}" for name in LAYERS)])
def opened(request, circuits):
    """(model, its files as plain data, numbers of each matrix to be changed)."""
    kind, _, name = request.param.rpartition(": ")
    if kind == "layers":
        model = layered(name, LAYERS[name])
    else:
        model = circuits(name, CIRCUITS[name]) if kind else model_named(name, KINDS[name])
    return model, open_model(model), 2 if kind else 3


def _value_arrays(data):
    """(name of the array, name of its matrix) of all stored numbers."""
    return [(n, n.removesuffix(".values")) for n in data.arrays if n.endswith(".values") and len(data.arrays[n])]


def test_honest_forgeries_verify(opened):
    model, data, _ = opened
    result = verify_files(*data.forged())
    assert result.verified and not result.reasons
    assert result.approximation <= model.certificate.approximation <= model.certificate.eps


def test_changed_numbers(opened):
    """Alone, and along with the rationals that stand beside them."""
    model, data, each = opened
    judge, rng = Judge(model), np.random.default_rng(1)
    for name, stem in _value_arrays(data):
        for k in rng.permutation(len(data.arrays[name]))[: 3 * each if stem == "memory" else each]:
            for what in rng.permutation(list(CHANGES))[:2]:
                changed = copy.deepcopy(data)
                new = CHANGES[what](changed.arrays[name][k])
                changed.arrays[name][k] = new
                if stem in changed.body["exact"]:
                    judge(changed, (name, k, what, "the float alone"))
                    changed.body["exact"][stem][k] = str(fmpq(*float(new).as_integer_ratio()))
                judge(changed, (name, k, what))
    assert judge.beyond > 10 and judge.tried > 20


def test_changed_places(opened):
    model, data, _ = opened
    judge, rng = Judge(model), np.random.default_rng(2)
    for name in (n for n in data.arrays if not n.endswith(".values")):
        stem, part = name.rsplit(".", 1)
        limit = data.body["shapes"][stem][part == "cols"]
        for k in rng.permutation(len(data.arrays[name]))[:2]:
            changed = copy.deepcopy(data)
            changed.arrays[name][k] = (changed.arrays[name][k] + rng.integers(1, max(limit, 2))) % limit
            if len(changed.matrix(stem)) == len(data.matrix(stem)):  # else it is malformed, and refused as such
                judge(changed, (name, k))
    assert judge.tried > 5 and judge.beyond >= 3


def test_swapped_numbers(opened):
    model, data, each = opened
    judge, rng = Judge(model), np.random.default_rng(3)
    for name, stem in _value_arrays(data):
        for _ in range(2 * each if stem == "memory" else 1):
            if len(data.arrays[name]) < 2:
                continue
            i, j = rng.choice(len(data.arrays[name]), 2, replace=False)
            changed = copy.deepcopy(data)
            for values in (changed.arrays[name], changed.body["exact"].get(stem)):
                if values is not None:
                    values[i], values[j] = values[j], values[i]
            judge(changed, (name, i, j))
    assert judge.tried >= 3


def test_a_float_behind_an_honest_rational_is_refused(opened):
    """The proof reads rationals where a matrix has them; the executors read floats."""
    _, data, _ = opened
    for name, stem in _value_arrays(data):
        changed = copy.deepcopy(data)
        values = changed.arrays[name]
        changed.body["exact"].setdefault(stem, [str(fmpq(*float(v).as_integer_ratio())) for v in values])
        values[0] *= 1 + 1e-4
        result = verify_files(*changed.forged())
        assert not result.verified and result.reasons, name


def test_naive_edits_are_caught_by_checksum(opened):
    _, data, _ = opened
    packed, claim = data.forged()
    data.arrays["memory.values"][-1] *= 1.5
    for changed in (("arrays", save(data.arrays)), ("description", packed.description + " "), ("evidence", "{}")):
        edited = copy.copy(packed)
        object.__setattr__(edited, *changed)
        result = verify_files(edited, claim)
        assert not result and any("sha256" in r for r in result.reasons)


def test_claims_a_hair_too_tight_are_refused_and_looser_ones_hold(opened):
    model, data, _ = opened
    proven = verify_files(*data.forged())
    for name in ("approximation", "rounding"):
        changed = copy.deepcopy(data)
        changed.claim[name] = float(np.nextafter(getattr(proven, name), 0))
        result = verify_files(*changed.forged())
        if getattr(proven, name) > 0:
            assert not result.verified and f"{name}:" in " ".join(result.reasons)
    changed = copy.deepcopy(data)
    changed.claim |= {"rounding": model.certificate.rounding * 2, "eps": model.certificate.bound * 3}
    assert verify_files(*changed.forged()).verified
    changed.claim |= {"eps": model.certificate.bound * 0.9}
    assert not verify_files(*changed.forged()).verified


#: model, what is said of it in model.json, why it is refused
OTHER = [
    ("one variable", {"formulas": ["cos(x)"]}, "not seen to be the formula"),
    ("one variable", {"formulas": ["sin(x) + 1/100"]}, "not seen to be the formula"),
    ("one variable", {"formulas": ["sin(x) + 1/(x + 1)"]}, "undefined"),
    ("one variable", {"formulas": ["sin(x)", "sin(x)"]}, "outputs"),
    ("one variable", {"formulas": ["sin(y)"]}, "y"),
    ("one variable", {"box": "x=-1..3"}, ""),
    ("one variable", {"box": "y=-1..2"}, "unknown name 'x'"),
    ("one variable", {"construction": "partition"}, "another construction"),
    ("one variable", {"construction": "memorize"}, "should not have"),
    ("one variable", {"dtype": "float32"}, ""),
    ("one variable", {"shape": [1, 1, 1]}, "shape"),
    ("one variable", {"shape": [2, 1]}, "shape"),
    ("one variable", {"shape": "1x1"}, "shape"),
    ("two heads", {"box": "y=0..1, x=-1..1"}, "inputs"),
    ("linear forms", {"formulas": ["sin(3*x + 2*y) + exp(y/3 - x)"]}, "not seen to be the formula"),
    ("kinks", {"formulas": ["exp(x) + abs(y - 1/2) - 2*max(x, y/3) + pi"]}, "not seen to be the formula"),
    ("kinks", {"formulas": ["exp(x) + abs(y - 1/3) - 2*max(x, y/3) + 22/7"]}, "not seen to be the formula"),
    ("two variables", {"formulas": ["y*exp(-x*y)"]}, "not seen to be the formula"),
    ("two variables", {"box": "x=0..1, y=-2..2"}, ""),
    ("three variables", {"formulas": ["cos(x + y*z) + z*y/8"]}, "not seen to be the formula"),
    ("partition", {"formulas": ["sin(x) + exp(y) + x/10"]}, "not seen to be the formula"),
    ("partition", {"box": "x=0..6, y=-1..1"}, ""),
    ("partition", {"construction": "lookup"}, "another construction"),
    ("sequence", {"shape": [1, 2]}, "shape"),
    ("sequence", {"shape": None}, "shape"),
    ("sequence", {"shape": [4, 1]}, "shape"),
    ("sequence", {"formulas": ["exp(x1) + abs(x2)", "sin(x1)*x2"]}, "not seen to be the formula"),
    ("sorting", {"formulas": ["max(x1, x2)", "min(x1, x2)"]}, "not seen to be the formula"),
    ("sorting", {"box": "x1..x2=-9..9"}, ""),
    ("memorize", {"samples": {"x": [[1, 2]], "y": [[1, 1]]}}, ""),
    ("memorize", {"samples": {"x": [[1, 2]]}}, "samples"),
    ("memorize", {"samples": None}, "samples"),
    ("memorize", {"samples": [1]}, "samples"),
    ("memorize", {"samples": {"x": [["a", 2]], "y": [[1, 1]]}}, "samples"),
    ("circuit: kinks", {"formulas": ["max(x*y, sin(x)) - abs(y - x/4)"]}, "not seen to be the formula"),
    ("circuit: kinks", {"formulas": ["min(x*y, sin(x)) - abs(y - x/3)"]}, "not seen to be the formula"),
    ("circuit: kinks", {"formulas": ["max(x*y, sin(x))"]}, "not seen to be the formula"),
    ("circuit: kinks", {"box": "x=-2..1, y=0..2"}, ""),
    ("circuit: root", {"box": "x=-1..1, y=0..1"}, "not seen"),
    ("circuit: root", {"box": "x=0..1, y=-1..0"}, "may be undefined"),
    ("circuit: root", {"box": "x=-1/1000..1, y=0..1"}, "not seen"),
    ("circuit: root", {"box": "x=-1/100000..1, y=0..1"}, "not seen"),
    ("circuit: root", {"box": "x=0..4, y=0..1"}, ""),
    ("circuit: root", {"formulas": ["sqrt(x*y) + 1/10"]}, "not seen to be the formula"),
    ("circuit: power", {"box": "x=1..2, y=-1..2"}, ""),
    ("circuit: power", {"box": "x=-1..2, y=-1..1"}, ""),
    ("circuit: power", {"formulas": ["y**x"]}, ""),
    ("circuit: product", {"construction": "lookup"}, "another construction"),
    ("circuit: product", {"construction": "partition"}, "another construction"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "said"), OTHER)
def test_what_the_model_is_said_to_compute_matters(name, change, said, circuits):
    kind, _, name = name.rpartition(": ")
    data = open_model(circuits(name) if kind else model_named(name))
    data.body |= change
    result = verify_files(*data.forged())
    assert not result.verified and said in " ".join(result.reasons), result.reasons
    if "construction" in change and name != "product":  # a circuit of one layer is a lookup as well
        data.claim["construction"] = data.body["construction"]
        assert not verify_files(*data.forged()).verified


def test_every_memorised_sample_matters():
    data = open_model(model_named("memorize"))
    for part in ("x", "y"):
        for row in range(0, len(SAMPLES[0]), 5):
            changed = copy.deepcopy(data)
            changed.body["samples"][part][row][1] += 1e-3 if part == "y" else 5.0
            assert not verify_files(*changed.forged()).verified, (part, row)
    more = copy.deepcopy(data)
    more.body["samples"]["x"].append([9.0, 9.0])
    more.body["samples"]["y"].append([9.0, 9.0])
    assert not verify_files(*more.forged()).verified


@pytest.mark.parametrize("name", ["two heads", "circuit: two outputs"])
def test_a_weak_gate_is_refused(name, circuits):
    """Heads must be kept out of each other's tables."""
    kind, _, name = name.rpartition(": ")
    data = open_model(circuits(name) if kind else model_named(name))
    for factor in (0.0, 1e-3, -1.0):
        changed = copy.deepcopy(data)
        for array in (n for n in changed.arrays if n.endswith("key.values")):
            values = changed.arrays[array]
            values[values < 0] *= factor
        result = verify_files(*changed.forged())
        assert not result.verified and result.reasons, factor
        assert factor != 1e-3 or "gate" in " ".join(result.reasons)


def test_small_circuits_are_all_forged_or_named():
    assert set(CIRCUITS) | {"product"} == set(SMALL)


def test_a_folder_is_judged_as_its_contents_are(tmp_path):
    data = open_model(model_named("one variable"))
    folder = model_named("one variable").save(tmp_path / "model")
    assert tf.verify(data.forge(folder)).verified
    data.arrays["memory.values"] *= 1.001
    assert not tf.verify(data.forge(folder)).verified
