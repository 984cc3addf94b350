"""Certificates, the checker's verdict, and ``python -m transformula.kernel`` on honest and hostile folders."""

import copy
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from support.kernel_models import certified, claim_for, cubic, memory_weights, ridge_weights
from transformula.compiler.certify import certify, pack
from transformula.kernel import check
from transformula.kernel.__main__ import USAGE, main
from transformula.kernel.check import OUT_OF_RESOURCES, prove, verify_files, verify_folder
from transformula.kernel.exceptions import ModelFileError, NotProvenError
from transformula.kernel.folder.description import Certificate, Description, Proof, add_up
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed, unpack

SINE = {"defined": [[-1]], "corollary": [np.linspace(0, 1, 9).tolist()]}


def _models():
    yield (*cubic(), {})
    yield (*cubic("float32"), {})
    sine = ridge_weights(("x",), [{0: 1}], {(0, 0, 1): 1, (0, 0, 3): "-1/6"}, [0])
    yield sine, Description("corollary", ["sin(x)"], "x=0..1"), SINE
    x, y = [[0.0], [1.0], [2.0]], [[5.0], [-1.0], [0.5]]
    yield memory_weights(x, y, 90.0), Description("memorize", samples={"x": x, "y": y}), {}


def _write(folder, packed, claim):
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(packed.arrays)
    (folder / "model.json").write_text(packed.description)
    (folder / "evidence.json").write_text(packed.evidence)
    (folder / "certificate.json").write_text(claim)
    return folder


@pytest.fixture
def honest():
    return certified(*cubic(), {})


def _forged(claim, **changes):
    body = {k: v for k, v in json.loads(claim).items() if k != "digest"} | changes
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({**body, "digest": digest})


def _refused(packed, claim, said=""):
    result = verify_files(packed, claim)
    assert not result.verified and not result and result.reasons
    assert said in " ".join(result.reasons), result.reasons
    return result


@pytest.mark.parametrize("index", range(4))
def test_an_honest_folder_verifies(index, tmp_path):
    weights, description, evidence = list(_models())[index]
    packed, claim = certified(weights, description, evidence)
    result = verify_folder(_write(tmp_path / "model", packed, claim))
    assert result.verified and result and not result.reasons
    certificate = Certificate.from_json(claim)
    assert certificate == Certificate.from_json(certificate.to_json())
    assert (result.approximation, result.rounding) == (certificate.approximation, certificate.rounding)
    assert result.bound <= result.eps


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rounding": 0.0}, "rounding: 0 is claimed"),
        ({"eps": 0.0}, "above eps"),
        ({"dtype": "float32"}, "rounding model"),
        ({"rounding_model": {}}, "rounding model"),
        ({"construction": "circuit"}, "another construction"),
        ({"approximation": -1.0}, "not a number >= 0"),
        ({"rounding": float("nan")}, "not a finite number"),
        ({"eps": float("inf")}, "not a finite number"),
        ({"eps": 10**400}, "10000000000000000000 is not a finite number"),
        ({"eps": 2**1024 - 1}, "17976931348623159077 is not a finite number"),
        ({"eps": 2**53 + 1}, "no float equals the whole number 9007199254740993"),
        ({"eps": 2**1023 + 2**971}, "not a number >= 0"),
        ({"eps": "1"}, "not a number >= 0"),
        ({"eps": None}, "not a number >= 0"),
        ({"eps": True}, "not a number >= 0"),
        ({"version": 2}, "version 2, not 3"),
        ({"version": [3]}, "version"),
        ({"extra": 1}, "should not have 'extra'"),
        ({"details": {"identity": True}}, "should not have 'details'"),
        ({"weights_sha256": 3}, "wrong kind"),
        ({"weights_sha256": "0"}, "model.safetensors is not the file"),
        ({"model_sha256": "0"}, "model.json is not the file"),
        ({"evidence_sha256": "0"}, "evidence.json is not the file"),
        ({"rounding_model": []}, "wrong kind"),
    ],
)
def test_every_field_of_the_claim_matters(honest, change, said):
    packed, claim = honest
    assert verify_files(packed, _forged(claim)).verified
    _refused(packed, _forged(claim, **change), said)


def test_a_claim_a_hair_too_tight_is_refused_and_a_looser_one_holds(honest):
    packed, claim = honest
    certificate = Certificate.from_json(claim)
    less = float(np.nextafter(certificate.rounding, 0))
    assert "only" in _refused(packed, _forged(claim, rounding=less)).reasons[0]
    assert verify_files(packed, _forged(claim, rounding=2 * certificate.rounding)).verified
    _refused(packed, _forged(claim, rounding=4 * certificate.rounding), "above eps")


def test_a_whole_number_is_not_rounded_before_it_is_compared():
    """The weights compute x and the formula is x + 2**53 + 4: off by 2**53 + 4, whatever float is nearest to a claim."""
    identity, off = ridge_weights(("x",), [{0: 1}], {(0, 0, 1): 1}, [0]), 2**53 + 4
    packed, claim = certified(identity, Description("polynomial", [f"x + {off}"], "x=0..1"), {})
    body = json.loads(claim)
    assert Certificate.from_json(claim).approximation == off
    assert verify_files(packed, _forged(claim, approximation=off, eps=off + 2**20)).verified
    for less in (off - 1, off - 3):
        assert less != float(less)
        _refused(packed, _forged(claim, approximation=less, eps=body["eps"]), "no float equals the whole number")
    _refused(packed, _forged(claim, approximation=off - 2), "only 9.0072e+15 is proven")


def test_a_missing_field_or_an_edited_claim_is_refused(honest):
    packed, claim = honest
    body = json.loads(claim)
    for key in body:
        _refused(packed, json.dumps({k: v for k, v in body.items() if k != key}), "certificate.json")
    _refused(packed, json.dumps(body | {"eps": 1.0}), "digest does not match")
    for text in ("", "[]", "{", "null", "[" * 100_000, '{"version": 2, "version": 2}', "9" * 10_000):
        _refused(packed, text, "certificate.json")


def test_every_stored_number_matters(honest):
    """One entry at a time, with all checksums recomputed: only the proof can say no."""
    packed, claim = honest
    old = Certificate.from_json(claim)
    arrays = load(packed.arrays)
    _, description = unpack(packed)
    tried = 0
    for name in [n for n in arrays if n.endswith(".values")]:
        for k in range(len(arrays[name])):
            for change in (1 + 1e-6, -1.0, 0.0):
                forged = copy.deepcopy(arrays)
                forged[name][k] *= change
                other = Packed(save(forged), packed.description, packed.evidence)
                result = verify_files(
                    other, claim_for(other, description, "float64", old.approximation, old.rounding).to_json()
                )
                assert not result.verified, (name, k, change)
                tried += 1
    assert tried > 100


def test_the_target_matters(honest):
    packed, claim = honest
    body = json.loads(packed.description)
    for change in ({"box": "x=-2..2, y=-1..4"}, {"formulas": ["x**3/3 - 5*x*y + 1/8"]}, {"formulas": ["x*y", "x"]}):
        other = Packed(packed.arrays, json.dumps(body | change), packed.evidence)
        _refused(other, _forged(claim, **other.hashes))
    assert verify_files(packed, _forged(claim, **packed.hashes)).verified


def test_numbers_round_up():
    rng = np.random.default_rng(0)
    from fractions import Fraction

    for a, b in rng.exponential(size=(200, 2)).tolist():
        assert Fraction(add_up(a, b)) >= Fraction(a) + Fraction(b)
    assert add_up(0.0, 1.0) == 1.0 and Proof(0.0, 1e-3).bound == 1e-3


def test_a_claim_is_made_only_of_what_is_proven():
    weights, description = cubic()
    packed = pack(weights, description, {})
    proof = prove(weights, description, Evidence({}))
    certificate = certify(packed, description, "float64", proof, 1e-9)
    assert certificate.eps == 1e-9 and certificate.rounding > proof.rounding
    assert verify_files(packed, certificate.to_json()).verified
    with pytest.raises(NotProvenError, match="ask for eps") as caught:
        certify(packed, description, "float64", proof, proof.rounding)
    assert caught.value.best_bound == pytest.approx(proof.rounding * 1.001)
    for bad in (float("inf"), float("nan")):
        with pytest.raises(NotProvenError, match="no finite bound"):
            certify(packed, description, "float64", Proof(bad, 0.0), None)


def test_a_bound_that_is_not_a_number_never_verifies(honest, monkeypatch):
    packed, claim = honest
    for bad in (float("nan"), float("inf"), -1.0):
        monkeypatch.setattr(check, "prove", lambda *_, bad=bad: Proof(bad, 0.0))
        _refused(packed, claim, "is claimed, only")


@pytest.mark.parametrize("error", [MemoryError, RecursionError, KeyError, ZeroDivisionError, OverflowError])
def test_whatever_happens_is_a_refusal(honest, monkeypatch, error):
    def fail(*_):
        raise error("far too much")

    packed, claim = honest
    own = {RecursionError: "nested too deeply", MemoryError: OUT_OF_RESOURCES}
    said = own.get(error, f"the check stopped: {error.__name__}")
    monkeypatch.setattr(check, "prove", fail)
    _refused(packed, claim, said)
    monkeypatch.setattr(check, "unpack", fail)
    _refused(packed, claim, said)


# python -I -m transformula.kernel


def test_the_command_in_a_strangers_folder_runs_nothing_of_it(honest, tmp_path):
    folder = _write(tmp_path / "model", *honest)
    for name in ("transformula", "numpy", "flint", "json"):
        (folder / f"{name}.py").write_text("print('verified: by myself')\nraise SystemExit(0)\n")
    command = [sys.executable, *USAGE.split()[2:-2], "."]  # usage: python .. FOLDER [--json]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stdout.startswith("verified: |computed - formula| <= "), run


def test_the_command_says_it_in_one_line(honest, tmp_path, capsys):
    packed, claim = honest
    folder = str(_write(tmp_path / "model", packed, claim))
    assert main([folder]) == 0
    said = capsys.readouterr().out
    assert said.startswith("verified: |computed - formula| <= ") and said.count("\n") == 1
    assert main([folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True
    (tmp_path / "model" / "certificate.json").write_text(_forged(claim, rounding=0.0))
    assert main([folder]) == 1
    assert capsys.readouterr().out.startswith("not verified: rounding: 0 is claimed")
    assert main(["--json", folder]) == 1
    assert json.loads(capsys.readouterr().out)["reasons"]
    (tmp_path / "model" / "evidence.json").unlink()
    assert main([folder]) == 2
    assert "has no evidence.json" in capsys.readouterr().out
    for wrong in ([], ["--help"], ["a", "b"]):
        assert main(wrong) == 2
    assert main([str(tmp_path / "nowhere\n\x1b[31m\u2603")]) == 2
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and said.isascii() and "\x1b" not in said


def test_hostile_files_end_in_a_refusal(honest, tmp_path, capsys):
    packed, claim = honest
    folder = _write(tmp_path / "model", packed, claim)
    contents = {p.name: p.read_bytes() for p in folder.iterdir()}
    hostile = [b"", b"\xff" * 100, b"[" * 300_000, b'{"a":' * 300_000, b"null", b"\x00" * 1000, b"{}", b"1" * 100_000]
    for name in contents:
        for data in hostile:
            (folder / name).write_bytes(data)
            assert main([str(folder)]) == 1
            said = capsys.readouterr()
            assert said.out.startswith("not verified: ") and not said.err
        (folder / name).write_bytes(contents[name])
    assert main([str(folder)]) == 0


_BARE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        absent = {"scipy", "torch", "safetensors", "sympy", "sklearn", "matplotlib", "threadpoolctl"}
        if name.partition(".")[0] in absent:
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Missing())
import runpy
sys.argv = ["kernel", sys.argv[1]]
try:
    runpy.run_module("transformula.kernel", run_name="__main__")
finally:
    ours = sorted(m for m in sys.modules if m.startswith("transformula") and not m.startswith("transformula.kernel"))
    print(ours, file=sys.stderr)
"""


@pytest.mark.parametrize("index", range(4))
def test_the_kernel_runs_alone(index, tmp_path):
    """Without scipy, torch, safetensors and the rest, and without any other module of ours."""
    weights, description, evidence = list(_models())[index]
    folder = _write(tmp_path / "model", *certified(weights, description, evidence))
    root = Path(check.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _BARE, str(folder)], capture_output=True, text=True,
        env={"PYTHONPATH": str(root), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("verified: "), done
    assert done.stderr.strip() == "['transformula']"


def test_no_whole_folder_is_an_error_of_its_own(tmp_path):
    with pytest.raises(ModelFileError, match="there is no model folder"):
        verify_folder(tmp_path / "nowhere")
