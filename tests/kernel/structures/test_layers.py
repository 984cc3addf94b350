"""Softmax layers without feed-forward layers: attention only, and local polynomials, under attack."""

import copy

import numpy as np
import pytest

import transformula as tf
from support.claims import holds_under_attack
from support.folders import open_model
from support.layer_models import DTYPES, FORMULAS, layered
from support.one_layer_models import points_of, truth
from support.prover import attack_model, random_formula
from transformula.errors import NotProvenError
from transformula.kernel.check import verify_files
from transformula.kernel.rules.softmax_rule import Walk

LOCAL = [name for name in FORMULAS if name.startswith("local")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMULAS)
def test_nothing_found_exceeds_the_bound(name, dtype):
    holds_under_attack(layered(name, dtype), least=0.2, points=1500, keep=3)


@pytest.mark.parametrize("name", FORMULAS)
def test_computed_in_float32_within_the_bound(name):
    model = layered(name, "float32")
    x = points_of(model, 300, seed=3).astype(np.float32)
    low, high = np.array(model.box.floats()).T
    x = x[np.all((x >= low) & (x <= high), axis=1)]
    exact = np.array([[float(v.mid()) for v in truth(model, p)] for p in x.astype(float)])
    assert np.abs(np.asarray(model(x), dtype=float).reshape(exact.shape) - exact).max() <= model.certificate.bound


@pytest.mark.parametrize("construction", ["attention-only", "local-polynomials"])
def test_random_formulas_under_attack(construction):
    proven = 0
    for seed in range(7100, 7104):
        names = ["x", "y"][: 1 + seed % 2]
        expr, box = (
            random_formula(seed, names, smooth=construction == "local-polynomials"),
            dict.fromkeys(names, (-0.75, 1.0)),
        )
        try:
            model = tf.compile(str(expr), on=box, rel=0.1, construction=construction)
        except NotProvenError:
            continue
        assert attack_model(model, seed, points=1000, keep=2) <= model.certificate.approximation, str(expr)
        assert model.certificate.bound <= model.certificate.eps
        assert all(block.feed_forward is None for block in model.weights.blocks)
        proven += 1
    assert proven >= 2


def test_columns_are_no_inputs(monkeypatch):
    """What a head looks up is off by its sums: neither by a part of itself, nor on one side of 0."""
    model, walks = layered("local polynomials"), []
    run = Walk.run
    monkeypatch.setattr(Walk, "run", lambda self: walks.append(dict(self.values)) or run(self))
    assert verify_files(*open_model(model).forged()).verified
    inputs = model.box.dimension
    assert all(walks[0][k].relative is not None for k in range(inputs)) and len(walks[0]) > inputs
    assert all(v.relative is None and not v.nonnegative for k, v in walks[0].items() if k >= inputs)


#: what is changed in model.json's "local", and why it is refused
CHANGES = {
    "another head": ({"head": 1}, ""),
    "no such head": ({"head": 99}, "not there"),
    "a head that is no number": ({"head": True}, "head and the bits"),
    "no bits": ({"bits": None}, "head and the bits"),
    "all bits": ({"bits": 10**6}, "no sensible weight"),
    "few bits": ({"bits": 1}, "is claimed"),
    "no models": ({"models": []}, "for each output"),
    "models that are no lists": ({"models": [3]}, "another number of terms"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_said_of_the_local_models_matters(change):
    data = open_model(layered("local polynomials"))
    said, why = CHANGES[change]
    data.body["circuit"]["local"] |= said
    result = verify_files(*data.forged())
    assert not result.verified and why in " ".join(result.reasons), result.reasons


@pytest.mark.parametrize("name", LOCAL)
def test_other_basis_functions_are_refused(name):
    """Terms that the circuit does not compute, or that other columns belong to."""
    data = open_model(layered(name))
    terms = data.body["circuit"]["local"]["models"][0]
    for k in range(len(terms)):
        for text in (f"{terms[k]} + 1", "log(x)", "z", "sqrt(", f"{terms[k]} + local1", 7):
            changed = copy.deepcopy(data)
            changed.body["circuit"]["local"]["models"][0][k] = text
            assert not verify_files(*changed.forged()).verified, (k, text)
    for missing in ("local", "wires", "outputs"):
        changed = copy.deepcopy(data)
        del changed.body["circuit"][missing]
        assert not verify_files(*changed.forged()).verified, missing


def test_a_coefficient_of_any_cell_matters():
    model = layered("local polynomials")
    data, weights = open_model(model), model.weights
    slots = [k for k, name in enumerate(weights.slots) if name.startswith("coefficient")]
    entries = np.flatnonzero(np.isin(data.arrays["memory.cols"], slots))
    for k in np.random.default_rng(0).permutation(entries)[:12]:
        changed = copy.deepcopy(data)
        changed.arrays["memory.values"][k] += 1.0
        assert not verify_files(*changed.forged()).verified, k


@pytest.mark.parametrize("name", ["attention only", "local polynomials"])
def test_other_formulas_boxes_and_constructions_are_refused(name):
    data = open_model(layered(name))
    changes = [
        {"formulas": [data.body["formulas"][0] + " + 1/2"]},
        {"formulas": ["log(x - 1/2)"]},
        {"formulas": data.body["formulas"] * 2},
        {"box": data.body["box"].replace("..1", "..3")},
        {"shape": [1, 2]},
    ]
    for change in changes:
        changed = copy.deepcopy(data)
        changed.body |= change
        assert not verify_files(*changed.forged()).verified, change
    for construction in ("attention-only", "local-polynomials", "circuit", "lookup"):
        if construction != data.body["construction"]:  # but attention only is a partition as well
            changed = copy.deepcopy(data)
            changed.body["construction"] = changed.claim["construction"] = construction
            assert not verify_files(*changed.forged()).verified, construction


def test_a_first_layer_that_is_no_line_is_refused():
    """The second layer reads what the first interpolates: its errors widen the cells."""
    data = open_model(layered("attention only"))
    wires = data.body["circuit"]["wires"]
    assert wires[0]["table"] == "u"
    for text in ("u + 1/100", "2*u", "sin(u)"):
        changed = copy.deepcopy(data)
        changed.body["circuit"]["wires"][0]["table"] = text
        assert not verify_files(*changed.forged()).verified, text


@pytest.mark.parametrize("name", ["attention only", "local polynomials"])
def test_a_feed_forward_layer_is_refused(name):
    """It is what these constructions do without."""
    from dataclasses import replace

    from transformula.kernel.check import prove
    from transformula.kernel.exceptions import RefutedError
    from transformula.kernel.folder.description import Description, parse_json
    from transformula.kernel.folder.evidence import Evidence
    from transformula.kernel.folder.weights import FeedForward
    from transformula.runtime.matrices import matrix_of

    model = layered(name)
    width = model.weights.width
    empty = FeedForward(*(matrix_of(shape, []) for shape in ((1, width), (1, 1), (width, 1), (width, 1))))
    blocks = (replace(model.weights.blocks[0], feed_forward=empty), *model.weights.blocks[1:])
    evidence = Evidence(parse_json(model.packed.evidence, "evidence.json"))
    with pytest.raises(RefutedError, match="without feed-forward"):
        prove(replace(model.weights, blocks=blocks), model.description, evidence)
    assert isinstance(model.description, Description)
