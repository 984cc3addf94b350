"""Whatever is changed in a one-layer model so that its function leaves the claim, verify says no.

Every checksum is recomputed, so only the mathematics can object. Each changed model is also run: where it is
off by more than it claims, the checker must refuse it.
"""

import contextlib
import copy
import json

import numpy as np
import pytest
from flint import fmpq
from safetensors.numpy import save

import transformula as tf
from support.folders import open_folder
from support.one_layer_models import SAMPLES, model_named, points_of, truth
from transformula.certificates.checker import verify_files
from transformula.transformers import reference
from transformula.transformers.files import Packed, unpack
from transformula.transformers.one_layer import NotOneLayerError, read_heads, run_one_layer

KINDS = {
    "one variable": "float64", "softmax itself": "float32", "two heads": "float64", "linear forms": "float64",
    "kinks": "float64", "no table": "float64", "two outputs": "float32", "two variables": "float64",
    "partition": "float64", "partition in two": "float32",
    "partition of a form": "float64", "memorize": "float64", "sorting": "float64", "sequence": "float32",
    "wide sequence": "float64", "sequence by cells": "float64",
}  # fmt: skip

CHANGES = {
    "a thousandth": lambda v: v * 1.001,
    "half as much again": lambda v: v * 1.5,
    "ten times": lambda v: v * 10,
    "a tenth": lambda v: v / 10,
    "sign": lambda v: -v,
    "zero": lambda v: v * 0,
    "shifted": lambda v: v + 0.01,
}


@pytest.fixture(params=KINDS)
def opened(request, tmp_path):
    model = model_named(request.param, KINDS[request.param])
    return model, open_folder(model.save(tmp_path / "model")), tmp_path / "model"


def _packed(changed, folder):
    changed.forge(folder)
    files = [(folder / name).read_bytes() for name in ("model.safetensors", "model.json", "certificate.json")]
    return Packed(files[0], files[1].decode()), files[2].decode()


def _error(packed, model, x, wanted):
    """Largest error of the changed weights, by the definition and by the fast path where it exists."""
    weights, _ = unpack(packed)
    with np.errstate(all="ignore"):
        wrong = np.abs(reference.run(weights, x).astype(float) - wanted).max()
        with contextlib.suppress(NotOneLayerError):
            wrong = np.fmax(wrong, np.abs(run_one_layer(weights, read_heads(weights), x) - wanted).max())
    return np.inf if np.isnan(wrong) else wrong


class Judge:
    """Counts what was tried; fails where a change beyond the claim is not refused."""

    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.x = points_of(model, 40, seed=4)
        self.wanted = np.array([[float(v.mid()) for v in truth(model, p)] for p in self.x])
        self.tried = self.beyond = 0

    def __call__(self, changed, what):
        packed, claim = _packed(changed, self.folder)
        allowed = self.model.certificate.bound
        self.tried += 1
        wrong = _error(packed, self.model, self.x, self.wanted)
        if wrong > allowed:
            self.beyond += 1
            result = verify_files(packed, claim)
            assert not result.verified and result.reasons, (what, wrong, allowed)


def test_honest_forgeries_verify(opened):
    model, folder_data, folder = opened
    packed, claim = _packed(folder_data, folder)
    result = verify_files(packed, claim)
    assert result.verified and not result.reasons
    assert result.approximation <= model.certificate.approximation <= model.certificate.eps


def test_changed_numbers(opened):
    model, data, folder = opened
    judge, rng = Judge(model, folder), np.random.default_rng(1)
    for name in (n for n in data.arrays if n.endswith(".values")):
        stem, size = name.removesuffix(".values"), len(data.arrays[name])
        for k in rng.permutation(size)[: 12 if stem == "memory" else 3]:
            for what in rng.permutation(list(CHANGES))[:3]:
                changed = copy.deepcopy(data)
                new = CHANGES[what](changed.arrays[name][k])
                changed.arrays[name][k] = new
                judge(changed, (name, k, what))
                if stem in changed.body["exact"]:  # float and rational changed together
                    value = fmpq(*float(new).as_integer_ratio())
                    changed.body["exact"][stem][k] = str(value)
                    judge(changed, (name, k, what, "rational too"))
    assert judge.beyond > 15 and judge.tried > 30


def test_changed_places(opened):
    model, data, folder = opened
    judge, rng = Judge(model, folder), np.random.default_rng(2)
    for name in (n for n in data.arrays if not n.endswith(".values")):
        stem, part = name.rsplit(".", 1)
        limit = data.body["shapes"][stem][part == "cols"]
        for k in rng.permutation(len(data.arrays[name]))[:3]:
            changed = copy.deepcopy(data)
            changed.arrays[name][k] = (changed.arrays[name][k] + rng.integers(1, max(limit, 2))) % limit
            entries = zip(changed.arrays[f"{stem}.rows"], changed.arrays[f"{stem}.cols"], strict=True)
            pairs = [(int(r), int(c)) for r, c in entries]
            if len(set(pairs)) == len(pairs):  # else it is malformed, and refused as such
                judge(changed, (name, k))
    assert judge.tried > 8 and judge.beyond >= 4


def test_swapped_numbers(opened):
    model, data, folder = opened
    judge, rng = Judge(model, folder), np.random.default_rng(3)
    for name in (n for n in data.arrays if n.endswith(".values") and len(data.arrays[n]) > 1):
        for _ in range(6 if name.startswith("memory") else 2):
            i, j = rng.choice(len(data.arrays[name]), 2, replace=False)
            changed = copy.deepcopy(data)
            values = changed.arrays[name]
            values[i], values[j] = values[j], values[i]
            exact = changed.body["exact"].get(name.removesuffix(".values"))
            if exact:
                exact[i], exact[j] = exact[j], exact[i]
            judge(changed, (name, i, j))
    assert judge.tried >= 3


def test_a_float_behind_an_honest_rational_is_refused(opened):
    """The proof reads rationals where a matrix has them; the executors read floats."""
    _, data, folder = opened
    for name in (n for n in data.arrays if n.endswith(".values") and len(data.arrays[n])):
        changed = copy.deepcopy(data)
        stem, values = name.removesuffix(".values"), changed.arrays[name]
        fractions = [str(fmpq(*float(v).as_integer_ratio())) for v in values]
        changed.body["exact"].setdefault(stem, fractions)
        values[0] *= 1 + 1e-4
        result = verify_files(*_packed(changed, folder))
        assert not result.verified and result.reasons, name


def test_naive_edits_are_caught_by_checksum(opened):
    _, data, folder = opened
    values = data.arrays["memory.values"]
    values[-1] *= 1.5
    (folder / "model.safetensors").write_bytes(save(data.arrays))
    result = tf.verify(folder)
    assert not result and any("sha256" in r for r in result.reasons)


def test_claims_a_hair_too_tight_are_refused_and_looser_ones_hold(opened):
    model, data, folder = opened
    proven = tf.verify(folder)
    for name in ("approximation", "rounding"):
        changed = copy.deepcopy(data)
        changed.claim[name] = float(np.nextafter(getattr(proven, name), 0))
        result = verify_files(*_packed(changed, folder))
        if getattr(proven, name) > 0:
            assert not result.verified and f"{name}:" in " ".join(result.reasons)
    changed = copy.deepcopy(data)
    changed.claim |= {"rounding": model.certificate.rounding * 2, "eps": model.certificate.bound * 3}
    assert verify_files(*_packed(changed, folder)).verified
    changed.claim |= {"eps": model.certificate.bound * 0.9}
    assert not verify_files(*_packed(changed, folder)).verified


@pytest.mark.parametrize(
    ("name", "key", "value", "said"),
    [
        ("one variable", "formulas", ["cos(x)"], "claimed"),
        ("one variable", "formulas", ["sin(x) + 1/100"], ""),
        ("one variable", "formulas", ["sin(x) + 1/(x + 1)"], "undefined"),
        ("one variable", "formulas", ["sin(x)", "sin(x)"], "outputs"),
        ("one variable", "formulas", ["sin(y)"], "y"),
        ("one variable", "box", "x=-1..3", "claimed"),
        ("one variable", "box", "y=-1..2", "unknown name 'x'"),
        ("one variable", "construction", "partition", "another construction"),
        ("one variable", "construction", "memorize", "another construction"),
        ("one variable", "dtype", "float32", "malformed"),
        ("one variable", "shape", [1, 1, 1], "shape"),
        ("one variable", "shape", [2, 1], "shape"),
        ("one variable", "shape", "1x1", "shape"),
        ("two heads", "box", "y=0..1, x=-1..1", "inputs"),
        ("linear forms", "formulas", ["sin(3*x + 2*y) + exp(y/3 - x)"], "claimed"),
        ("kinks", "formulas", ["exp(x) + abs(y - 1/2) - 2*max(x, y/3) + pi"], "claimed"),
        ("kinks", "formulas", ["exp(x) + abs(y - 1/3) - 2*max(x, y/3) + 22/7"], ""),
        ("two variables", "formulas", ["y*exp(-x*y)"], "claimed"),
        ("two variables", "box", "x=0..1, y=-2..2", "claimed"),
        ("three variables", "formulas", ["cos(x + y*z) + z*y/8"], "claimed"),
        ("partition", "formulas", ["sin(x) + exp(y) + x/10"], ""),
        ("partition", "box", "x=0..6, y=-1..1", "claimed"),
        ("partition", "construction", "lookup", "another construction"),
        ("sequence", "shape", [1, 2], "shape"),
        ("sequence", "shape", None, "sequence"),
        ("sequence", "shape", [4, 1], "shape"),
        ("sequence", "formulas", ["exp(x1) + abs(x2)", "sin(x1)*x2"], "claimed"),
        ("sorting", "formulas", ["max(x1, x2)", "min(x1, x2)"], "claimed"),
        ("sorting", "box", "x1..x2=-9..9", ""),
        ("memorize", "samples", {"x": [[1, 2]], "y": [[1, 1]]}, ""),
        ("memorize", "samples", {"x": [[1, 2]]}, "samples"),
        ("memorize", "samples", None, "formulas"),
        ("memorize", "samples", [1], "samples"),
        ("memorize", "samples", {"x": [["a", 2]], "y": [[1, 1]]}, "numbers"),
        ("memorize", "samples", {"x": [[1, 2], [1, 2]], "y": [[1, 1], [1, 2]]}, "contradict"),
    ],
)
def test_what_the_model_is_said_to_compute_matters(name, key, value, said, tmp_path):
    data = open_folder(model_named(name).save(tmp_path / "model"))
    data.body[key] = value
    result = tf.verify(data.forge(tmp_path / "model"))
    assert not result.verified and said in " ".join(result.reasons), result.reasons
    if key == "construction":
        data.claim["construction"] = value
        assert not tf.verify(data.forge(tmp_path / "model")).verified


def test_every_memorised_sample_matters(tmp_path):
    data = open_folder(model_named("memorize").save(tmp_path / "model"))
    for part in ("x", "y"):
        for row in range(0, len(SAMPLES[0]), 5):
            changed = copy.deepcopy(data)
            changed.body["samples"][part][row][1] += 1e-3 if part == "y" else 5.0
            result = tf.verify(changed.forge(tmp_path / "model"))
            assert not result.verified, (part, row)
    more = copy.deepcopy(data)
    more.body["samples"]["x"].append([9.0, 9.0])
    more.body["samples"]["y"].append([9.0, 9.0])
    assert not tf.verify(more.forge(tmp_path / "model")).verified


def test_a_weak_gate_is_refused(tmp_path):
    """Heads must be kept out of each other's tables."""
    model = model_named("two heads")
    data = open_folder(model.save(tmp_path / "model"))
    names = [n for n in data.arrays if n.endswith("key.values")]
    for factor in (0.0, 1e-3, -1.0):
        changed = copy.deepcopy(data)
        for name in names:
            values = changed.arrays[name]
            values[values < 0] *= factor
        result = tf.verify(changed.forge(tmp_path / "model"))
        assert not result.verified and result.reasons, factor
        assert factor != 1e-3 or "gate" in " ".join(result.reasons)


def test_the_model_file_is_judged_not_its_words(tmp_path):
    data = open_folder(model_named("one variable").save(tmp_path / "model"))
    claim = json.loads((tmp_path / "model" / "certificate.json").read_text())
    data.claim["details"] = {"pieces": 1, "tables": [10**9]}
    assert claim["details"] != data.claim["details"]
    assert tf.verify(data.forge(tmp_path / "model")).verified  # details are for people; the proof is redone
