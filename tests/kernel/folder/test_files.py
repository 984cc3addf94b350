"""The reader of hostile folders: what is honest comes back as it was, all else is refused by name, soon and small."""

import json
import resource
import struct
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from support.kernel_models import cubic, memory_weights
from support.watching import ends
from transformula.compiler.certify import pack
from transformula.kernel.exceptions import ModelFileError, RefutedError
from transformula.kernel.folder.description import Description, parse_json
from transformula.kernel.folder.model_files import Packed, read_arrays, read_packed, unpack
from transformula.kernel.folder.weights import Matrix, named_matrices, to_rational
from transformula.kernel.rounding.formats import FORMATS, check_stored


@pytest.fixture(scope="module")
def packed():
    return pack(*cubic(), {})


def _header(entries, data=b"", length=None):
    text = json.dumps(entries).encode() if isinstance(entries, dict) else entries
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _entry(kind="F64", shape=(1,), offsets=(0, 8)):
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(offsets)}


def _refused(arrays=None, body=None, packed=None, said=None):
    arrays = packed.arrays if arrays is None else arrays
    text = packed.description if body is None else body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(ModelFileError, match=said):
        unpack(Packed(arrays, text))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_was_packed_comes_back(dtype):
    models = [cubic(dtype), (memory_weights([[0.0], [1.0]], [[2.0], [3.0]], 50.0, dtype), None)]
    for weights, description in models:
        description = description or Description("memorize", samples={"x": [[0.0], [1.0]], "y": [[2.0], [3.0]]})
        packed = pack(weights, description, {"a": [1.5]})
        assert json.loads(packed.evidence) == {"a": [1.5]}
        again, read = unpack(packed)
        for (name, one), (other, two) in zip(named_matrices(weights), named_matrices(again), strict=True):
            assert name == other and one.shape == two.shape and one.exact == two.exact
            for part in ("rows", "cols", "values"):
                np.testing.assert_array_equal(getattr(one, part), getattr(two, part))
                assert getattr(one, part).dtype == getattr(two, part).dtype
        assert (again.inputs, again.slots, again.tokens) == (weights.inputs, weights.slots, weights.tokens)
        assert Description.from_json(read.to_json()) == read
        assert read.construction == description.construction and read.tokens == weights.tokens


def test_arrays_are_read_as_safetensors_reads_them():
    rng = np.random.default_rng(0)
    given = {
        "a": rng.integers(0, 9, 7).astype(np.int32),
        "b": rng.normal(size=3),
        "c": rng.normal(size=5).astype(np.float32),
        "none": np.zeros(0),
    }
    data = save(given)
    ours, theirs = read_arrays(data), load(data)
    assert ours.keys() == theirs.keys()
    for name in given:
        np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 5 << 20) + b" " * (5 << 20),
        _header(b"{", b""),
        _header(b"[]"),
        _header(b"\xff\xfe"),
        _header(b'{"a": 1}'),
        _header(b'{"a": {}}'),
        _header(b'{"a": NaN}'),
        _header(b'{"__metadata__": {"format": "pt"}}'),
        _header(b"[" * 200_000),
        _header(b'{"a":' * 200_000),
        _header(b'{"a": %s, "a": %s}' % ((json.dumps(_entry()).encode(),) * 2), b"8bytes!!"),
        _header({"a": _entry("F16", (4,))}, b"8bytes!!"),
        _header({"a": _entry("I64")}, b"8bytes!!"),
        _header({"a": _entry(["F64"])}, b"8bytes!!"),
        _header({"a": _entry("F64", (1, 1))}, b"8bytes!!"),
        _header({"a": _entry("F64", ())}, b"8bytes!!"),
        _header({"a": _entry("F64", (-1,))}, b"8bytes!!"),
        _header({"a": _entry("F64", (2,))}, b"8bytes!!"),
        _header({"a": _entry("F64", (10**30,))}, b"8bytes!!"),
        _header({"a": _entry("F64", (1.0,))}, b"8bytes!!"),
        _header({"a": _entry("F64", (True,))}, b"8bytes!!"),
        _header({"a": _entry(offsets=(0, 16))}, b"8bytes!!"),
        _header({"a": _entry(offsets=(-8, 0))}, b"8bytes!!"),
        _header({"a": _entry(offsets=(8, 0))}, b"8bytes!!"),
        _header({"a": _entry(offsets=(0, 8, 16))}, b"8bytes!!"),
        _header({"a": _entry(), "b": _entry()}, b"8bytes!!"),
        _header({"a": _entry("F64", (2,), (0, 16)), "b": _entry(offsets=(8, 16))}, b"16 bytes of data"),
        _header({"a": _entry(offsets=(8, 16))}, b"16 bytes of data"),
        _header({"a": _entry()}, b"16 bytes of data"),
        _header({"a": _entry() | {"more": 1}}, b"8bytes!!"),
    ],
    ids=range(33),
)  # fmt: skip
def test_malformed_arrays_are_refused(data):
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        read_arrays(data)


@given(st.data())
@settings(max_examples=150)
def test_a_damaged_file_is_refused_or_read_as_numbers(data):
    whole = bytearray(save({"a": np.arange(4, dtype=np.int32), "b": np.arange(3.0), "c": np.ones(2)}))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for content in (bytes(whole), bytes(whole[:cut])):
        try:
            arrays = read_arrays(content)
        except ModelFileError:
            continue
        assert sum(a.nbytes for a in arrays.values()) + 8 <= len(content)


_LIMITED = """
import resource, sys
from transformula.kernel.folder.model_files import Packed, read_arrays, unpack
from transformula.kernel.exceptions import ModelFileError
data = open(sys.argv[1], "rb").read()
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_arrays(data)
except ModelFileError as error:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_millions_of_lists_are_refused_before_they_are_made():
    with ends(), pytest.raises(ModelFileError, match="too large"):
        parse_json('{"a": [' + "[]," * 3_000_000 + "0]}", "evidence.json")


@pytest.mark.parametrize("size", [8, 300])
def test_a_million_entries_are_refused_soon_and_small(tmp_path, size):
    """A long header by its length alone, a short one of tiny entries by their form."""
    count = 10**6 if size == 300 else 100_000
    entry = b'"%07d":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}' if size == 300 else b'"%07d":{}'
    text = b"{" + b",".join(entry % k for k in range(count)) + b"}"
    (tmp_path / "model.safetensors").write_bytes(_header(text))
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, tmp_path / "model.safetensors"], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 200  # megabytes


def test_too_many_small_arrays_are_refused():
    entries = {f"{k}": _entry("I32", (0,), (0, 0)) for k in range(20_001)}
    with pytest.raises(ModelFileError, match="more than 20000 arrays"):
        read_arrays(_header(entries))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", "[" * 100_000, '{"a":' * 100_000, '{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 1}}',
     '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": ' + "9" * 10_000 + "}"],
)  # fmt: skip
def test_foreign_json_is_refused(packed, text):
    with pytest.raises(ModelFileError, match=r"model\.json"):
        parse_json(text, "model.json")
    _refused(body=text, packed=packed, said=r"model\.json")


def test_a_folder_of_version_1_is_refused_in_one_sentence(packed, tmp_path):
    body = json.loads(packed.description) | {"version": 1}
    _refused(body=body, packed=packed, said=r"format version 1, not 3: compile the formula again$")
    (tmp_path / "model.safetensors").write_bytes(packed.arrays)
    (tmp_path / "model.json").write_text(json.dumps(body))
    with pytest.raises(ModelFileError, match="format version 1"):
        read_packed(tmp_path)


def test_every_key_is_needed_and_no_other_is_taken(packed):
    body = json.loads(packed.description)
    for key in body:
        _refused(body={k: v for k, v in body.items() if k != key}, packed=packed)
    for key in ("extra", "plan", "samples", "circuit", "shape"):
        _refused(body=body | {key: {}}, packed=packed, said=key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("construction", "fit"), ("construction", None), ("construction", ["polynomial"]), ("construction", "memorize"),
        ("construction", "circuit"),
        ("formulas", "x"), ("formulas", [1]), ("formulas", []), ("formulas", None), ("box", 3), ("box", None),
        ("inputs", []), ("inputs", [1, 2]), ("inputs", ["x"]), ("inputs", "xy"), ("slots", []), ("slots", ["t"]),
        ("slots", list(range(7))), ("slots", ["s"] * 200_000),
        ("tokens", 0), ("tokens", -3), ("tokens", 2), ("tokens", 3.0), ("tokens", True), ("tokens", "3"),
        ("tokens", 10**12), ("tokens", 10**400), ("tokens", 50_000_000),
        ("dtype", "float32"), ("dtype", "float16"), ("dtype", ["float64"]), ("dtype", None),
        ("blocks", []), ("blocks", {}), ("blocks", [{}]), ("blocks", 5), ("blocks", [None] * 3),
        ("blocks", [{"kind": "softmax", "scale": 1.0, "heads": [], "feed_forward": False}] * 2_000),
        ("shapes", {}), ("shapes", []), ("shapes", None), ("exact", {}), ("exact", None), ("exact", []),
        ("exact", {"readout": "123"}), ("exact", {"nothing": []}), ("version", True), ("version", 2.5), ("format", "x"),
    ],
)  # fmt: skip
def test_every_field_matters(packed, key, value):
    weights, description = unpack(packed)
    body = json.loads(packed.description) | {key: value}
    try:
        again, read = unpack(Packed(packed.arrays, json.dumps(body)))
    except ModelFileError:
        return
    # the only change that may pass the reader: fewer rationals, which the rule then judges
    assert key == "exact" and value == {} and read.exact == {} and description.exact
    assert all(m.exact is None for _, m in named_matrices(again)) and again.tokens == weights.tokens


@pytest.mark.parametrize(
    "change",
    [{"kind": "exec"}, {"kind": None}, {"scale": "x"}, {"scale": None}, {"scale": 10**400}, {"scale": True},
     {"heads": 3}, {"heads": [{}]}, {"heads": [{"output": 1}]}, {"heads": [{"output": True}]}, {"heads": []},
     {"heads": [{"output": False}] * 2}, {"feed_forward": False}, {"feed_forward": 1}, {"more": 1}],
)  # fmt: skip
def test_every_field_of_a_block_matters(packed, change):
    body = json.loads(packed.description)
    body["blocks"][0] |= change
    _refused(body=body, packed=packed)


@pytest.mark.parametrize("name", ["embedding", "memory", "readout", "bias", "blocks.0.heads.0.query",
                                  "blocks.0.heads.0.value", "blocks.0.feed_forward.hidden"])  # fmt: skip
@pytest.mark.parametrize(
    "shape", [[10**9, 10**9], [10**30, 1], [-1, -1], ["a", 1], [1], None, [1, 2, 3], [0, 0], [1e9, 1e9], {}, [[1], 2]]
)
def test_strange_shapes_are_refused(packed, name, shape):
    body = json.loads(packed.description)
    body["shapes"][name] = shape
    _refused(body=body, packed=packed)


def test_a_large_shape_without_entries_takes_no_memory(packed):
    """[10^9, 10^9] with no entries at all, consistently: refused before anything dense is made."""
    weights, description = cubic()
    empty = np.zeros(0, dtype=np.int32)
    layer = weights.blocks[0].feed_forward
    for rows in (10**9, 10**7):
        hollow = replace(
            layer,
            hidden=Matrix((rows, weights.width), empty, empty, np.zeros(0)),
            hidden_bias=Matrix((rows, 1), empty, empty, np.zeros(0)),
            output=Matrix((weights.width, rows), empty, empty, np.zeros(0)),
        )
        forged = replace(weights, blocks=(replace(weights.blocks[0], feed_forward=hollow), *weights.blocks[1:]))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with ends(), pytest.raises(ModelFileError, match="too large"):
            unpack(pack(forged, description, {}))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize(
    "text", ["1/0", "1/00", "", "1//2", "0x10", "1_0", " 1", "1/-3", "+1", "1.5", "١", "1e5", "nan", 3, None, ["1"],
             "9" * 10**6, "1/" + "9" * 10**6]
)  # fmt: skip
def test_malformed_rationals_are_refused(packed, text):
    body = json.loads(packed.description)
    body["exact"]["readout"][0] = text
    with ends():
        _refused(body=body, packed=packed, said="readout has a rational")


def test_rationals_must_be_as_many_as_the_floats(packed):
    body = json.loads(packed.description)
    body["exact"]["readout"].append("1/3")
    _refused(body=body, packed=packed, said="one rational for each number")


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update(extra=np.zeros(3)),
        lambda a: a.pop("readout.values"),
        lambda a: a.pop("blocks.0.heads.0.query.rows"),
        lambda a: a["readout.values"].__setitem__(0, np.nan),
        lambda a: a["memory.values"].__setitem__(0, -np.inf),
        lambda a: a["readout.cols"].__setitem__(0, 10**6),
        lambda a: a["readout.cols"].__setitem__(0, -1),
        lambda a: a["embedding.cols"].__setitem__(slice(None), 0) or a["embedding.rows"].__setitem__(slice(None), 0),
        lambda a: a.update({"readout.values": a["readout.values"][:-1]}),
        lambda a: a.update({"readout.values": a["readout.values"].astype(np.float32)}),
        lambda a: a.update({"readout.rows": a["readout.rows"].astype(np.float64)}),
        lambda a: a.update({"readout.values": a["readout.values"].astype(np.int32)}),
        lambda a: a.update({k: np.concatenate([v, v[:1]]) for k, v in a.items() if k.startswith("readout")}),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(packed, change):
    arrays = {k: v.copy() for k, v in load(packed.arrays).items()}
    change(arrays)
    _refused(arrays=save(arrays), packed=packed, said=r"model\.safetensors|model\.json")


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "evidence.json"])
def test_a_missing_or_unreadable_file_is_named(packed, tmp_path, name):
    files = {"model.safetensors": packed.arrays, "model.json": packed.description.encode(), "evidence.json": b"{}"}
    for key, content in files.items():
        (tmp_path / key).write_bytes(content)
    assert read_packed(tmp_path) == Packed(packed.arrays, packed.description, "{}")
    (tmp_path / name).unlink()
    with pytest.raises(ModelFileError, match=f"has no {name}"):
        read_packed(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(ModelFileError, match=f"has no {name}"):
        read_packed(tmp_path)
    if name != "model.safetensors":
        (tmp_path / name).rmdir()
        (tmp_path / name).write_bytes(b"\xff{}")
        with pytest.raises(ModelFileError, match="not UTF-8"):
            read_packed(tmp_path)
    with pytest.raises(ModelFileError, match="there is no model folder"):
        read_packed(tmp_path / "nowhere")


def test_the_description_has_no_field_that_is_not_written(packed):
    body = json.loads(packed.description)
    assert set(body) == {f.name for f in fields(Description)} - {"samples", "task", "circuit", "shape"}


# floats beside their rationals


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_floats_must_be_the_roundings_of_their_rationals(dtype):
    weights, _ = cubic(dtype)
    check_stored(weights, ("readout", "bias"))
    position = 0
    assert weights.bias.exact is not None  # 1/7
    value = weights.bias.values[position]
    for far, fine in ((np.nextafter(value, 1, dtype=dtype), False), (value, True)):
        forged = replace(weights, bias=replace(weights.bias, values=np.array([far], dtype=dtype)))
        if fine:
            check_stored(forged)
        else:
            with pytest.raises(RefutedError, match="not its rational"):
                check_stored(forged)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_rational_that_the_format_holds_is_stored_as_it_is(dtype):
    """max(x, 0) with ones stored as 1 + 2u was verified once."""
    weights, _ = cubic(dtype)
    values = weights.memory.values.copy()
    exact = tuple(to_rational(float(v)) for v in values)
    check_stored(replace(weights, memory=replace(weights.memory, exact=exact)))
    for towards in (0, 2):
        values[0] = np.nextafter(weights.memory.values[0], np.dtype(dtype).type(towards))
        forged = replace(weights, memory=replace(weights.memory, values=values, exact=exact))
        with pytest.raises(RefutedError, match="memory has a float"):
            check_stored(forged)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_which_rationals_a_format_holds(dtype):
    form, info = FORMATS[dtype], np.finfo(dtype)
    rng = np.random.default_rng(1)
    smallest = to_rational(float(info.smallest_subnormal))
    for value in (1.0, -3.0, float(info.smallest_subnormal), float(info.tiny), 0.0, *rng.normal(size=50).astype(dtype)):
        exact = to_rational(float(value))
        assert form.holds(exact) and not form.holds(exact + smallest / 2)
    assert not form.holds(to_rational(1) / 3) and not form.holds(to_rational(2**form.digits + 1))
