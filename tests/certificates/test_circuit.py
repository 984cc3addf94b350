"""The circuit proof under attack: nothing found exceeds a bound, no forgery beyond its claim verifies.

Attacks look for the largest |T_w − f| by random points, a lattice and ascent, judged in 300 bits on the
stored weights. Forgeries change weights, plan, formula and box with every checksum recomputed, so that only
the mathematics can object.
"""

import copy
import json
from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq
from safetensors.numpy import save

import transformula as tf
from support.circuit_models import SMALL
from support.folders import open_folder
from support.one_layer_models import points_of, truth
from support.prover import attack_model, random_formula
from transformula.certificates import replay as replaying
from transformula.certificates.checker import verify_files
from transformula.certificates.proof import RefutedError
from transformula.certificates.rules import prove
from transformula.errors import NotProvenError, TransformulaError
from transformula.formulas import expression as ex
from transformula.formulas.additive import without_cancelled
from transformula.formulas.expression import variables_of
from transformula.transformers import reference
from transformula.transformers.circuit import NotCircuitError, read_circuit, run_circuit
from transformula.transformers.files import Packed, unpack

#: From the far end of the list in tests/constructions, so that two workers do not compile the same at once
CASES = ("otl_circuit", "friedman1", "test_5", "I.50.26", "I.27.6", "I.18.4", "I.12.2", "I.6.2b", "I.9.18")
FORGED = {
    "kinks": "float64",
    "power": "float32",
    "two outputs": "float64",
    "root": "float64",
    "quotient": "float64",
}
CHANGES = {
    "a thousandth": lambda v: v * 1.001,
    "half as much again": lambda v: v * 1.5,
    "ten times": lambda v: v * 10,
    "sign": lambda v: -v,
    "zero": lambda v: v * 0,
    "shifted": lambda v: v + 0.01,
}


@pytest.mark.parametrize("name", (*CASES, *SMALL))
def test_named_circuits_under_attack(name, circuits):
    model = circuits(name)
    found = attack_model(model, seed=1, points=4000, keep=5)
    assert 0.1 * model.certificate.approximation <= found <= model.certificate.approximation
    assert tf.verify(model).verified


@pytest.mark.parametrize("name", ["product", "kinks", "root", "power"])
def test_float32_circuits_under_attack(name, circuits):
    model = circuits(name, "float32")
    assert attack_model(model, seed=2, points=3000) <= model.certificate.approximation
    x = points_of(model, 3000, seed=3).astype(np.float32)
    exact = np.array([[float(v.mid()) for v in truth(model, p)] for p in x[:400].astype(float)])
    inside = np.all(
        [(x[:400, k] >= a) & (x[:400, k] <= b) for k, (a, b) in enumerate(model.box.floats())], axis=0
    )
    wrong = np.abs(np.asarray(model(x[:400]), dtype=float).reshape(400, -1) - exact)[inside]
    assert wrong.max() <= model.certificate.bound


@pytest.mark.parametrize("batch", range(6))
def test_random_circuits_under_attack(batch):
    """Formulas in two to five variables, kinks in every third."""
    ratios = []
    for seed in range(9000 + 3 * batch, 9003 + 3 * batch):
        names = ["a", "b", "c", "d", "e"][: 2 + seed % 4]
        expr = without_cancelled(random_formula(seed, names, smooth=seed % 3 > 0), names)
        box = {n: (-0.75, 1) for n in names if n in variables_of(expr)}
        try:
            model = tf.compile(str(expr), on=box, rel=1e-2, construction="circuit")
        except NotProvenError:
            continue
        found = attack_model(model, seed, points=2000, keep=3)
        assert found <= model.certificate.approximation, str(expr)
        assert model.certificate.bound <= model.certificate.eps
        if found > 1e-11:
            ratios.append(model.certificate.approximation / found)
    assert ratios and np.median(ratios) < 6


class Judge:
    """Fails where a change beyond the claim is not refused; counts what was tried."""

    def __init__(self, model):
        self.model = model
        self.x = points_of(model, 60, seed=4)
        self.wanted = np.array([[float(v.mid()) for v in truth(model, p)] for p in self.x])
        self.tried = self.beyond = 0

    def error(self, packed):
        weights, _ = unpack(packed)
        with np.errstate(all="ignore"):
            wrong = np.abs(reference.run(weights, self.x).astype(float) - self.wanted).max()
            try:
                fast = np.abs(run_circuit(weights, read_circuit(weights), self.x).astype(float) - self.wanted)
                wrong = np.maximum(wrong, fast.max())
            except NotCircuitError:
                pass
        return np.inf if np.isnan(wrong) else wrong

    def __call__(self, changed, folder, what):
        packed, claim = _packed(changed, folder)
        self.tried += 1
        wrong = self.error(packed)
        if wrong > self.model.certificate.bound:
            self.beyond += 1
            result = verify_files(packed, claim)
            assert not result.verified and result.reasons, (what, wrong)
            return True
        return False


def _packed(changed, folder):
    changed.forge(folder)
    files = [(folder / name).read_bytes() for name in ("model.safetensors", "model.json", "certificate.json")]
    return Packed(files[0], files[1].decode()), files[2].decode()


@pytest.fixture(params=FORGED)
def opened(request, circuits, tmp_path):
    model = circuits(request.param, FORGED[request.param])
    folder = model.save(tmp_path / "model")
    return model, open_folder(folder), folder


def _numbers(data, rng, each):
    """(matrix, index, name of the change, changed folder), rationals changed along with floats."""
    for name in (n for n in data.arrays if n.endswith(".values")):
        stem, size = name.removesuffix(".values"), len(data.arrays[name])
        for k in rng.permutation(size)[: 10 * each if stem == "memory" else each]:
            for what in rng.permutation(list(CHANGES))[:2]:
                changed = copy.deepcopy(data)
                new = CHANGES[what](changed.arrays[name][k])
                changed.arrays[name][k] = new
                if stem in changed.body["exact"]:
                    changed.body["exact"][stem][k] = str(fmpq(*float(new).as_integer_ratio()))
                yield stem, int(k), what, changed


def test_honest_forgeries_verify(opened):
    model, data, folder = opened
    result = verify_files(*_packed(data, folder))
    assert result.verified and result.approximation <= model.certificate.approximation


def test_changed_numbers(opened):
    model, data, folder = opened
    judge = Judge(model)
    for stem, k, what, changed in _numbers(data, np.random.default_rng(1), 3):
        judge(changed, folder, (stem, k, what))
    assert judge.beyond > 20 and judge.tried > 40


def test_floats_changed_behind_their_rationals(opened):
    """What runs is the floats: a rational beside them must not hide a change."""
    model, data, folder = opened
    judge, rng = Judge(model), np.random.default_rng(2)
    for name in (
        n for n in data.arrays if n.endswith(".values") and n.removesuffix(".values") in data.body["exact"]
    ):
        for k in rng.permutation(len(data.arrays[name]))[:3]:
            changed = copy.deepcopy(data)
            changed.arrays[name][k] *= 1.1
            judge(changed, folder, (name, k))


def test_changed_places(opened):
    model, data, folder = opened
    judge, rng = Judge(model), np.random.default_rng(3)
    for name in (n for n in data.arrays if not n.endswith(".values")):
        stem, part = name.rsplit(".", 1)
        limit = data.body["shapes"][stem][part == "cols"]
        for k in rng.permutation(len(data.arrays[name]))[:3]:
            changed = copy.deepcopy(data)
            changed.arrays[name][k] = (changed.arrays[name][k] + rng.integers(1, max(limit, 2))) % limit
            entries = zip(changed.arrays[f"{stem}.rows"], changed.arrays[f"{stem}.cols"], strict=True)
            pairs = [(int(r), int(c)) for r, c in entries]
            if len(set(pairs)) == len(pairs):
                judge(changed, folder, (name, k))
    assert judge.tried > 15 and judge.beyond > 10


def _wrong_plans(plan):
    """(what, plan) with every field changed in several ways."""
    for name in ("balances", "centres", "clamps"):
        for k, entry in enumerate(plan[name]):
            for value in ("0", "-3/7", "5", "1/1048576", "1e3"):
                entries = [value] if name == "centres" else [
                    [*entry[:j], value, *entry[j + 1 :]] for j in range(len(entry))
                ]  # fmt: skip
                for new in entries if name != "clamps" else []:
                    yield (name, k, value), plan | {name: [*plan[name][:k], new, *plan[name][k + 1 :]]}
            if name == "clamps":
                for new in ([not entry[0], entry[1]], [entry[0], not entry[1]]):
                    yield (name, k, new), plan | {name: [*plan[name][:k], new, *plan[name][k + 1 :]]}
        if plan[name]:
            yield (name, "shorter"), plan | {name: plan[name][:-1]}
            yield (name, "reversed"), plan | {name: plan[name][::-1]}
        yield (name, "longer"), plan | {name: plan[name] * 2 + plan[name][:1]}
        yield (name, "none"), {k: v for k, v in plan.items() if k != name}
    for key, (scale, held) in plan["scales"].items():
        for new in (
            [scale + 1, held],
            [scale, held + 1],
            [scale - 1, held - 2],
            [scale + 40, held + 80],
            [0, 0],
        ):
            yield ("scales", key, new), plan | {"scales": plan["scales"] | {key: new}}
    yield from _wrong_choices(plan)
    yield "no scales", plan | {"scales": {}}
    yield "empty", {}


def _wrong_choices(plan):
    """Factors exchanged or not, lengths measured and values held otherwise, than they were."""
    instead = {
        "exchanges": lambda v: [not v],
        "logs": lambda v: [not v],
        "norms": lambda v: [0, 2, v + 2],
        "offsets": lambda v: ["1/2", "-9"],
    }
    for name, others in instead.items():
        for k, entry in enumerate(plan[name]):
            for new in others(entry):
                yield (name, k, new), plan | {name: [*plan[name][:k], new, *plan[name][k + 1 :]]}
            yield (name, k, "dropped"), plan | {name: [*plan[name][:k], *plan[name][k + 1 :]]}
        for extra in others(False) if name == "exchanges" else [0, 8]:
            yield (name, "first", extra), plan | {name: [extra, *plan[name]]}
            yield (name, "last", extra), plan | {name: [*plan[name], extra]}
        yield (name, "none"), {k: v for k, v in plan.items() if k != name}


def test_wrong_plans_prove_nothing_wrong(opened):
    """Whatever the plan says, what is proven with it bounds the attacked error."""
    model, data, _ = opened
    found = attack_model(model, seed=5, points=2000)
    proven = refused = 0
    for what, plan in _wrong_plans(data.body["plan"]):
        try:
            proof = prove("circuit", model.weights, model.formula, plan)
        except TransformulaError:
            refused += 1
            continue
        proven += 1
        assert proof.approximation >= found, what
    assert refused > 10


def test_wrong_plans_do_not_save_wrong_networks(opened):
    model, data, folder = opened
    judge, rng = Judge(model), np.random.default_rng(6)
    broken = [
        c for *_, c in _numbers(data, rng, 1) if judge.error(_packed(c, folder)[0]) > model.certificate.bound
    ]
    plans = list(_wrong_plans(data.body["plan"]))
    tried = 0
    for changed in broken[:25]:
        for k in rng.permutation(len(plans))[:4]:
            what, plan = plans[k]
            changed.body["plan"] = plan
            assert not verify_files(*_packed(changed, folder)).verified, what
            tried += 1
    assert tried >= 40


#: "key: what it is replaced by"; none of these is a plan
MALFORMED = [
    *(
        (key, value)
        for key in ("balances", "centres", "offsets", "clamps", "exchanges", "logs", "norms", "scales")
        for value in (None, 1, "x", True, [None], [[]], [{}], [1.5], [["0"]])
    ),
    ("balances", [["1", "1"]]),
    ("balances", [["a", "b", "c"]]),
    ("balances", [["0", "0", "1", "0"]]),
    ("balances", [["0", "0", "0"]] * 9),
    ("balances", [["0", "0", "-1"]] * 9),
    ("balances", [["1/0", "0", "1"]] * 9),
    ("balances", [["0", "0", "1/0"]] * 9),
    ("balances", [[0, 0, 1]] * 9),
    ("balances", [["0", "0", "1e3"]] * 9),
    ("balances", [["0", "0", "nan"]] * 9),
    ("balances", [["0", "0", " 1"]] * 9),
    ("balances", [["0", "0", "\u0661"]] * 9),
    ("balances", [["0", "0", "9" * 401]] * 9),
    ("balances", [["0", "0", "1/" + "9" * 401]] * 9),
    ("balances", []),
    ("clamps", [[0, 0]] * 9),
    ("clamps", [[True]] * 9),
    ("clamps", [["true", "false"]] * 9),
    ("clamps", [[True] * 3] * 9),
    ("exchanges", [0]),
    ("exchanges", ["true"]),
    ("exchanges", [None]),
    ("exchanges", [[True]]),
    ("exchanges", {"0": 1}),
    ("norms", [3]),
    ("norms", [-2]),
    ("norms", [True]),
    ("norms", ["8"]),
    ("norms", [8.0]),
    ("norms", [4098]),
    ("norms", [10**30]),
    ("scales", {"x": [0, 0]}),
    ("scales", []),
    ("scales", {"2": [0]}),
    ("scales", {"2": [0.5, 0]}),
    ("scales", {"2": [True, 0]}),
    ("scales", {"2": ["0", "0"]}),
    ("scales", {"2": "ab"}),
    ("scales", {"2": None}),
    ("scales", {"2": [401, 0]}),
    ("scales", {"2": [0, -401]}),
    ("scales", {"2.5": [0, 0]}),
    ("scales", {"9" * 5000: [0, 0]}),
]


@pytest.mark.parametrize("plan", [None, [], "x", 3, {}, {"balances": 1}])
def test_plans_that_are_none_are_refused_in_words(plan, circuits, tmp_path):
    data = open_folder(circuits("power", "float32").save(tmp_path / "model"))
    data.body["plan"] = plan
    result = verify_files(*_packed(data, tmp_path / "model"))
    assert not result.verified and "plan" in " ".join(result.reasons)


def test_malformed_plans_are_refused_in_words(circuits, tmp_path):
    """One entry at a time: with everything else as it was, only that entry can be the reason."""
    folder = circuits("power", "float32").save(tmp_path / "model")
    honest = open_folder(folder)
    assert verify_files(*_packed(honest, folder)).verified
    assert set(honest.body["plan"]) == {k for k, _ in MALFORMED} and honest.body["plan"]["balances"]
    for key, value in MALFORMED:
        data = copy.deepcopy(honest)
        data.body["plan"][key] = value
        result = verify_files(*_packed(data, folder))
        assert not result.verified and "plan" in " ".join(result.reasons), (key, value, result)
    for key in honest.body["plan"]:
        data = copy.deepcopy(honest)
        del data.body["plan"][key]
        result = verify_files(*_packed(data, folder))
        assert not result.verified and "plan" in " ".join(result.reasons), key


#: Rationals and exponents as large as a plan may hold
HUGE = ("9" * 399, "1/" + "9" * 399, "1" + "0" * 398 + "/7", "9" * 400 + "/" + "7" * 400, "-" + "9" * 399)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("huge", HUGE, ids=["large", "small", "sevenths", "ratio", "negative"])
def test_huge_splits_are_refused_in_words(huge, place, circuits, tmp_path):
    """Squares of 10^399 or of 10^-399, and centres there: far beyond floats, on the way to every wire."""
    for name in ("power", "quotient"):
        folder = circuits(name).save(tmp_path / name)
        data = open_folder(folder)
        data.body["plan"]["balances"][0][place] = huge
        result = verify_files(*_packed(data, folder))
        assert result.verified == (not result.reasons)
        if place == 2 or not huge.startswith("1/"):  # a centre of 10^-399 is as good as one of 0
            assert not result.verified


def test_huge_centres_are_refused_in_words(circuits, tmp_path):
    folder = circuits("quotient").save(tmp_path / "model")
    data = open_folder(folder)
    for k in range(len(data.body["plan"]["centres"])):
        for huge in HUGE:
            changed = copy.deepcopy(data)
            changed.body["plan"]["centres"][k] = huge
            result = verify_files(*_packed(changed, folder))
            assert result.verified == (not result.reasons)
            assert not result.verified or huge.startswith("1/"), (k, huge)


@pytest.mark.parametrize("scale", [400, -400])
@pytest.mark.parametrize("held", [0, 400, -400])
def test_the_largest_scales_are_refused_in_words(scale, held, circuits, tmp_path):
    for name in ("power", "kinks"):
        folder = circuits(name).save(tmp_path / name)
        data = open_folder(folder)
        honest = data.body["plan"]["scales"]
        tables = [k for k, ends in honest.items() if ends != [0, 0]]
        assert tables
        for keys in ([tables[0]], [tables[-1]], list(honest)):
            for pair in ([scale, held], [held, scale]):
                changed = copy.deepcopy(data)
                changed.body["plan"]["scales"] = honest | dict.fromkeys(keys, pair)
                result = verify_files(*_packed(changed, folder))
                assert not result.verified and result.reasons, (name, keys, pair)


@pytest.mark.parametrize(
    ("text", "box", "eps", "dtype", "key"),
    [
        ("x/(exp(x/y) - 1)", "x=1/10..1, y=1/2..2", 1e-3, "float64", "exchanges"),
        ("sqrt(x**2 + y**2)*y", "x=-1..1, y=0..1", 1e-2, "float32", "norms"),
        ("tanh(x*y/z)", "x=1..2, y=1/2..2, z=1..3", 1e-3, "float64", "logs"),
    ],
)
def test_wrong_choices_prove_nothing_wrong(text, box, eps, dtype, key, tmp_path):
    """With a factor exchanged or a length measured otherwise, the wires are others: no, or a true bound."""
    model = tf.compile(text, on=box, eps=eps, dtype=dtype, construction="circuit")
    data = open_folder(model.save(tmp_path / "model"))
    plan = data.body["plan"]
    assert plan[key] and any(plan[key])
    found = attack_model(model, seed=8, points=1500)
    refused = []
    for what, changed in _wrong_choices(plan):
        try:
            proof = prove("circuit", model.weights, model.formula, changed)
            assert proof.approximation >= found, what
        except TransformulaError:
            refused.append(what)
    assert all((key, k, "dropped") in refused for k in range(len(plan[key])))
    assert len(refused) >= 4


def test_a_lowering_that_means_something_else_is_refused(circuits, tmp_path, monkeypatch):
    """No part of the proof, but a net below the identities it rests on."""
    model = circuits("product")
    plan = open_folder(model.save(tmp_path / "model")).body["plan"]
    build = replaying.build_circuit
    assert prove("circuit", model.weights, model.formula, plan).approximation > 0

    def elsewhere(change):
        def built(outputs, variables, guide):
            return build([change(e) for e in outputs], variables, guide)

        return built

    for change in (
        lambda e: ex.add(e, ex.number(Fraction(1, 10**20))),
        lambda e: ex.mul(ex.number(1 + Fraction(1, 10**25)), e),
        lambda e: ex.add(e, ex.variable("x")),
    ):
        monkeypatch.setattr(replaying, "build_circuit", elsewhere(change))
        with pytest.raises(RefutedError, match="does not compute the formula"):
            prove("circuit", model.weights, model.formula, plan)


@pytest.mark.parametrize("scale", [[1100, 0], [0, 1100], [-1100, 0], [0, -1100], [10**6, 0], [0, 10**6]])
def test_absurd_scales_are_refused_in_words(scale, circuits, tmp_path):
    model = circuits("power", "float32")
    data = open_folder(model.save(tmp_path / "model"))
    for key in data.body["plan"]["scales"]:
        changed = copy.deepcopy(data)
        changed.body["plan"]["scales"][key] = scale
        assert not verify_files(*_packed(changed, tmp_path / "model")).verified


#: model: what its formula or box is replaced by
OTHER_TARGETS = {
    "kinks": [
        ({"formulas": ["max(x*y, sin(x)) - abs(y - x/4)"]}, "another coefficient"),
        ({"formulas": ["min(x*y, sin(x)) - abs(y - x/3)"]}, "min for max"),
        ({"formulas": ["max(x*y, sin(x))"]}, "a term less"),
        ({"box": "x=-2..1, y=0..2"}, "a larger box"),
    ],
    "root": [
        ({"box": "x=-1..1, y=0..1"}, "undefined there"),
        ({"box": "x=0..1, y=-1..0"}, "undefined nearly everywhere"),
        ({"box": "x=0..4, y=0..1"}, "a larger box"),
        ({"formulas": ["sqrt(x*y) + 1/10"]}, "a constant more"),
    ],
    "power": [
        ({"box": "x=1..2, y=-1..2"}, "a larger box"),
        ({"box": "x=-1..2, y=-1..1"}, "undefined there"),
        ({"formulas": ["y**x"]}, "the other way round"),
    ],
}


@pytest.mark.parametrize("name", OTHER_TARGETS)
def test_another_target_does_not_verify(name, circuits, tmp_path):
    model = circuits(name)
    data = open_folder(model.save(tmp_path / "model"))
    for change, what in OTHER_TARGETS[name]:
        changed = copy.deepcopy(data)
        changed.body |= change
        assert not verify_files(*_packed(changed, tmp_path / "model")).verified, what


@pytest.mark.parametrize("box", ["x=-1/1000..1, y=0..1", "x=-1/100000..1, y=0..1"])
def test_a_box_with_a_sliver_where_the_formula_is_undefined(box, circuits, tmp_path):
    data = open_folder(circuits("root").save(tmp_path / "model"))
    data.body["box"] = box
    assert not verify_files(*_packed(data, tmp_path / "model")).verified


def test_a_smaller_claim_than_is_true_does_not_verify(opened):
    model, data, folder = opened
    found = attack_model(model, seed=7, points=1500)
    changed = copy.deepcopy(data)
    changed.claim["approximation"] = 0.99 * found
    assert not verify_files(*_packed(changed, folder)).verified


def test_naive_changes_fail_the_checksum(circuits, tmp_path):
    folder = circuits("product").save(tmp_path / "model")
    text = json.loads((folder / "model.json").read_text())
    text["plan"]["clamps"] = []
    (folder / "model.json").write_text(json.dumps(text) + " ")
    data = open_folder(folder)
    (folder / "model.safetensors").write_bytes(save(data.arrays))
    result = tf.verify(folder)
    assert not result.verified and "sha256" in " ".join(result.reasons)
