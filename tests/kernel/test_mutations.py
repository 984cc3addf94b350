"""Whatever is changed in a saved polynomial model, verify says no: by checksum for accidents, by proof for malice."""

import copy
import json

import numpy as np
import pytest
from safetensors.numpy import save

import transformula as tf
from support.folders import open_folder
from transformula.kernel.check import verify_files
from transformula.kernel.folder.weights import named_matrices
from transformula.runtime.matrices import matrix_of

CASES = {
    "single head": ("x**3/3 - 5*x*y + 1/7", False),
    "multi-head": ("x**3/3 - 5*x*y + 1/7", True),
    "two outputs": (["x*y", "x + 1/3"], False),
}


@pytest.fixture(params=CASES)
def saved(request, tmp_path):
    formula, multi_head = CASES[request.param]
    model = tf.compile(formula, on="x=-2..2, y=-1..3", multi_head=multi_head)
    return model.save(tmp_path / "model")


@pytest.fixture
def plain(tmp_path):
    return tf.compile("x**3/3 - 5*x*y + 1/7", on="x=-2..2, y=-1..3").save(tmp_path / "model")


def _refused(folder, said=""):
    result = tf.verify(folder)
    assert not result.verified and not result and result.reasons
    assert said in " ".join(result.reasons), result.reasons
    return result


def test_untouched_it_verifies_and_so_does_an_honest_forgery(saved):
    assert tf.verify(saved).verified
    opened = open_folder(saved)
    result = tf.verify(opened.forge(saved))
    assert result.verified and not result.reasons
    assert result.bound <= result.eps and result.approximation == 0


def test_naive_edits_are_caught_by_checksum(saved):
    opened = open_folder(saved)
    original = {p.name: p.read_bytes() for p in saved.iterdir()}
    data = bytearray(original["model.safetensors"])
    data[-1] ^= 1
    (saved / "model.safetensors").write_bytes(data)
    _refused(saved, "model.safetensors")
    opened.arrays["bias.values"][0] += 1
    (saved / "model.safetensors").write_bytes(save(opened.arrays))
    _refused(saved, "sha256 differs")
    (saved / "model.safetensors").write_bytes(original["model.safetensors"])
    text = original["model.json"].decode().replace("..2", "..1")
    (saved / "model.json").write_text(text)
    _refused(saved, "sha256 differs")
    (saved / "model.json").write_bytes(original["model.json"])
    claim = opened.claim | {"rounding": opened.claim["rounding"] * 2}
    (saved / "certificate.json").write_text(json.dumps(claim))
    _refused(saved, "digest does not match")


def test_every_stored_number_matters(saved):
    """One entry at a time, by one part in a million and by one bit, with all checksums recomputed."""
    opened = open_folder(saved)
    values = [name for name in opened.arrays if name.endswith(".values")]
    tried = 0
    for name in values:
        for k in range(len(opened.arrays[name])):
            for change in (lambda v: v * (1 + 1e-6), lambda v: -v, lambda v: np.nextafter(v, 2 * v)):
                forged = copy.deepcopy(opened)
                old = forged.arrays[name][k]
                forged.arrays[name][k] = change(old)
                stem = name.removesuffix(".values")
                if stem in forged.body["exact"] and change(old) == np.nextafter(old, 2 * old):
                    continue  # the other neighbour of a rational may be as near: covered by the claim
                assert not verify_files(*forged.forged()).verified, (name, k, old)
                tried += 1
    assert tried > 100


def test_every_stored_rational_matters(saved):
    opened = open_folder(saved)
    assert opened.body["exact"]
    for name, texts in opened.body["exact"].items():
        for k, text in enumerate(texts):
            for new in (f"-{text}".replace("--", ""), text + "1" if "/" in text else text + "0"):
                forged = copy.deepcopy(opened)
                forged.body["exact"][name][k] = new
                assert not verify_files(*forged.forged()).verified, (name, new)


def test_float_and_rational_changed_together(plain):
    opened = open_folder(plain)
    name = "readout"
    value = opened.arrays[f"{name}.values"][0] * 1.5
    opened.arrays[f"{name}.values"][0] = value
    numerator, denominator = float(value).as_integer_ratio()
    opened.body["exact"][name][0] = f"{numerator}/{denominator}"
    opened.forge(plain)
    result = _refused(plain, "approximation: 0 is claimed")
    assert result.approximation > 0.1


def test_every_stored_place_matters(saved):
    opened = open_folder(saved)
    for name in opened.arrays:
        part = name.rsplit(".", 1)[1]
        stem = name.rsplit(".", 1)[0]
        if part == "values":
            continue
        limit = opened.body["shapes"][stem][part == "cols"]
        for k in range(min(3, len(opened.arrays[name]))):
            for new in {(int(opened.arrays[name][k]) + step) % limit for step in (1, 2)}:
                forged = copy.deepcopy(opened)
                if new == forged.arrays[name][k]:
                    continue
                forged.arrays[name][k] = new
                assert not verify_files(*forged.forged()).verified, (name, k, new)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("formulas", ["x**3/3 - 5*x*y + 1/8"]),
        ("formulas", ["x**3/3 - 5*x*y"]),
        ("formulas", ["x**3/3 - 5*x*y + 1/7", "x"]),
        ("formulas", ["sin(x)*y"]),
        ("formulas", ["__import__('os')"]),
        ("formulas", "x*y"),
        ("formulas", None),
        ("box", "x=-2..3, y=-1..3"),
        ("box", "y=-1..3, x=-2..2"),
        ("box", "x=-2..2, z=-1..3"),
        ("box", "x=-200..2, y=-1..3"),
        ("box", 3),
        ("construction", "lookup"),
        ("construction", None),
        ("dtype", "float32"),
        ("dtype", "float16"),
        ("tokens", 1),
        ("tokens", 10**12),
        ("tokens", float("inf")),
        ("inputs", ["y", "x"]),
        ("inputs", [1, 2]),
        ("slots", ["t"]),
        ("slots", list(range(99))),
        ("version", 1),
        ("version", None),
        ("format", "other"),
        ("shapes", {}),
        ("blocks", []),
        ("blocks", [{}]),
        ("blocks", 5),
        ("exact", {}),
        ("exact", {"readout": ["1/0"]}),
        ("exact", None),
    ],
)
def test_every_field_of_the_description_matters(plain, key, value):
    opened = open_folder(plain)
    opened.body[key] = value
    _refused(opened.forge(plain))
    if key not in ("construction", "box"):
        return
    opened.claim["construction"] = opened.body["construction"]
    _refused(opened.forge(plain))


# Models that are right in rational arithmetic but would not be in floats, or the other way round.


def test_cancelling_readouts_are_refused(tmp_path):
    """10^20 t - 10^20 t is zero in rationals; in floats it is whatever rounding left."""
    model = tf.compile("x/3", on="x=-1..1")
    folder = model.save(tmp_path / "model")
    opened = open_folder(folder)
    t, p1 = model.weights.slot("t"), model.weights.slot("p1")
    values = opened.arrays["readout.values"]
    opened.arrays["readout.rows"] = np.array([0, 0], dtype=np.int32)
    opened.arrays["readout.cols"] = np.array([t, p1], dtype=np.int32)
    opened.arrays["readout.values"] = np.array([1e20, values[0] + 1e20])
    exact = opened.body["exact"].pop("readout")[0]
    numerator, denominator = (int(v) for v in exact.split("/"))
    opened.body["exact"]["readout"] = [f"{10**20}", f"{numerator + 10**20 * denominator}/{denominator}"]
    _refused(opened.forge(folder), "one power of t from two slots")


@pytest.mark.parametrize("name", ["memory", "blocks.0.heads.0.value", "blocks.0.feed_forward.output",
                                  "blocks.0.feed_forward.hidden", "blocks.0.feed_forward.output_bias",
                                  "blocks.0.heads.0.key"])  # fmt: skip
def test_a_float_a_hair_off_behind_an_honest_rational_is_refused(plain, name):
    opened = open_folder(plain)
    values = opened.arrays[f"{name}.values"]
    opened.body["exact"][name] = [str(int(v)) for v in values]
    values[0] = np.nextafter(values[0], 0)
    _refused(opened.forge(plain), "is not its rational")


def test_split_hidden_units_that_cancel_are_refused(plain):
    """-2 written as 2^52 and -2^52 - 2 on two units with the same input."""
    opened = open_folder(plain)
    prefix = "blocks.0.feed_forward"
    hidden, output = f"{prefix}.hidden", f"{prefix}.output"
    slot = int(opened.arrays[f"{hidden}.cols"][0])
    opened.body["shapes"][hidden][0] = opened.body["shapes"][output][1] = 3
    opened.body["shapes"][f"{prefix}.hidden_bias"][0] = 3
    opened.arrays[f"{hidden}.rows"] = np.array([0, 1, 2], dtype=np.int32)
    opened.arrays[f"{hidden}.cols"] = np.array([slot] * 3, dtype=np.int32)
    opened.arrays[f"{hidden}.values"] = np.array([1.0, -1.0, 1.0])
    opened.arrays[f"{output}.rows"] = np.array([slot] * 3, dtype=np.int32)
    opened.arrays[f"{output}.cols"] = np.array([0, 1, 2], dtype=np.int32)
    opened.arrays[f"{output}.values"] = np.array([2.0**52, 2.0, -(2.0**52) - 2])
    _refused(opened.forge(plain), "two hidden units")


def _with_offset(folder, offsets):
    opened = open_folder(folder)
    for b, offset in enumerate(offsets):
        query = opened.arrays[f"blocks.{b}.heads.0.query.values"]
        query[query != 1] = offset
        opened.arrays[f"blocks.{b}.feed_forward.output_bias.values"][:] = offset
    return opened.forge(folder)


def test_too_small_an_offset_is_refused(tmp_path):
    folder = tf.compile("x*y", on="x=-1..1, y=-1..1").save(tmp_path / "model")
    assert tf.verify(_with_offset(folder, [3.0, 3.0])).verified
    (larger,) = tf.verify(_with_offset(folder, [4.0, 4.0])).reasons
    assert larger.startswith("rounding:")  # still the right token, but v + C rounds more coarsely
    _refused(_with_offset(folder, [3.0, 1.9]), "hardmax may pick the wrong token")
    _refused(_with_offset(folder, [2.0, 2.0]), "hardmax may pick the wrong token")
    _refused(_with_offset(folder, [-3.0, 3.0]))


def test_the_papers_own_offset_is_refused_where_it_is_too_small(tmp_path):
    """Fang: C_i = 2 B^(2(i-1)) with B = sup|t| < 1: at i = 3 it is 2 B^4 < 2 sup|t| sup|t^2|."""
    box = "x=-0.3..0.3, y=-0.3..0.3"
    model = tf.compile("(x + y)**3 + (x - y)**3", on=box)
    folder = model.save(tmp_path / "model")
    sup = 0.3 * 2 * 2.0 ** model_shift(model)
    assert 0.5 < sup < 1
    paper = [2 * sup ** (2 * (i - 1)) + 0.05 * (i == 1) for i in (1, 2, 3)]
    enough = [2.01 * sup**i for i in (1, 2, 3)]
    refused = _refused(_with_offset(folder, paper), "hardmax may pick the wrong token")
    assert refused.bound is None
    # the same weights with offsets just above twice the product pass that hurdle
    assert not any("hardmax" in r for r in tf.verify(_with_offset(folder, enough)).reasons)


def model_shift(model):
    return np.log2(float(abs(model.weights.embedding.values[0])))


def test_a_matrix_without_zeros_is_what_is_stored():
    """Matrix.of drops zeros, so 'non-zeros' counts what it says."""
    matrix = matrix_of((2, 2), [(0, 0, 0), (1, 1, 2)])
    assert matrix.nonzeros == 1
    model = tf.compile("x**2 - y", on="x=-1..1, y=-1..1")
    assert all((m.values != 0).all() for _, m in named_matrices(model.weights))
