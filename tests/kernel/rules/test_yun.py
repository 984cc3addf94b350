"""Yun's construction: the mean is bounded, so is the error outside the seams, and nothing else passes."""

import copy
import json
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import transformula as tf
from support.faults import active, fault
from support.folders import open_model
from support.table import hand_made, random_block
from transformula.errors import NotProvenError, RefutedError
from transformula.formula.evaluation import evaluate
from transformula.kernel.check import verify_files
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import unpack
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Matrix, Weights
from transformula.kernel.gallery.yun_rule import Runner, prove_yun
from transformula.runtime import reference
from transformula.runtime.matrices import matrix_of

CASES = {
    "one variable": ("sin(x)", "x=0..2*pi", 0.1),
    "two variables": ("x*y", "x=0..1, y=-1..2", 0.2),
    "three variables": ("x*y*z + x", "x=0..1, y=0..1, z=0..1", 0.2),
    "two outputs": (["x - y", "exp(x)*y"], "x=-1..1, y=0..1", 0.2),
    "kinks and roots": ("sqrt(x) + abs(y - 0.3)", "x=0..1, y=0..1", 0.15),
    "a removable singularity": ("sin(x)/x + y", "x=-1..1, y=0..1", 0.15),
}
BOTH = [(name, dtype) for name in CASES for dtype in ("float64", "float32")]
_models = {}


def _model(name, dtype="float64"):
    if (name, dtype) not in _models:
        formula, box, eps = CASES[name]
        _models[name, dtype] = tf.compile(formula, box, eps, "yun", dtype)
    return _models[name, dtype]


def _grid(model):
    return json.loads(model.packed.evidence)["grid"]


def _in_seams(model, x):
    """Whether each point lies in a seam, by the exact ends that evidence.json has."""
    inside = np.ones(len(x), bool)
    for k, name in enumerate(model.box.variables):
        cells = np.array([[edges[0], edges[-1]] for edges in _grid(model)[name]])
        inside &= ((x[:, k, None] >= cells[:, 0]) & (x[:, k, None] <= cells[:, 1])).any(axis=1)
    return ~inside


def _errors(model, x, weights=None):
    """|computed − formula| and |computed|, shapes (points, outputs)."""
    found = reference.run(weights or model.weights, x).astype(float)
    exact = [evaluate(e, model.box.variables, list(x.T)) for e in model.formula.outputs]
    return np.abs(found - np.stack(exact, axis=1)), np.abs(found)


def _attacks(model, count=3000, seed=0):
    """Random points, corners, points next to the ends of cells, and points on the seams."""
    rng = np.random.default_rng(seed)
    low, high = np.array(model.box.floats()).T
    x = rng.uniform(low, high, (count, len(low)))
    ends = [np.array([[e[0], e[-1]] for e in _grid(model)[name]]).ravel() for name in model.box.variables]
    for k, at in enumerate(ends):
        chosen = rng.random(count) < 0.6
        x[chosen, k] = rng.choice(at, chosen.sum())
        within = rng.random(count) < 0.3
        first = rng.integers(0, max(len(at) // 2 - 1, 1), within.sum())
        if len(at) > 2:
            x[within, k] = rng.uniform(at[2 * first + 1], at[2 * first + 2])
    return np.clip(x, np.nextafter(low, high), np.nextafter(high, low))


@pytest.mark.parametrize(("name", "dtype"), BOTH)
def test_attacked(name, dtype):
    model = _model(name, dtype)
    mean, x = model.certificate.mean, _attacks(_model(name, dtype))
    errors, sizes = _errors(model, x)
    seams = _in_seams(model, x)
    assert seams.any() and (~seams).sum() > 300
    assert errors[~seams].max() <= mean.outside and sizes.max() <= mean.largest
    assert errors[~seams].max() > 0.5 * mean.outside  # it is no empty bound
    result = tf.verify(model)
    assert result.verified and result.bound <= result.eps and result.mean.outside <= mean.outside


def test_in_the_seams_it_is_wrong():
    model = _model("two variables")
    x = _attacks(model)
    errors = _errors(model, x)[0][_in_seams(model, x)]
    assert errors.max() > 1.5 * model.certificate.mean.outside > 3 * model.certificate.bound


@pytest.mark.parametrize("name", CASES)
def test_the_mean_is_that_of_many_points(name):
    model = _model(name)
    low, high = np.array(model.box.floats()).T
    errors, _ = _errors(model, np.random.default_rng(1).uniform(low, high, (6000, len(low))))
    assert 0.3 * model.certificate.bound < errors.mean(axis=0).max() <= model.certificate.bound


@pytest.mark.parametrize("name", CASES)
def test_seams_are_measured_exactly(name):
    model = _model(name)
    covered = Fraction(1)
    for (low, high), cells in zip(model.box.floats(), _grid(model).values(), strict=True):
        covered *= sum(Fraction(e[-1]) - Fraction(e[0]) for e in cells) / (Fraction(high) - Fraction(low))
    assert abs(tf.verify(model).mean.seams - float(1 - covered)) < 1e-14


def test_any_softmax_transformer_is_enclosed():
    """Random blocks with soft attention, which nothing was designed for: outputs at points lie in the balls of boxes."""
    rng = np.random.default_rng(3)
    for case in range(6):
        blocks = [random_block(rng, 6, 2, 3, 5, projected=case % 2 == 0, scale=1.0) for _ in range(2)]
        weights = hand_made(f"case {case}", blocks).weights
        centre, radius = rng.normal(size=(2, 20)), 10.0 ** rng.uniform(-9, -1, size=20)
        found = Runner(weights).run(centre - radius, centre + radius)
        assert np.isfinite(found.reach).all()
        for _ in range(20):
            x = (centre + radius * rng.uniform(-1, 1, size=centre.shape)).T
            values = reference.run(weights, x)
            assert (np.abs(values - found.middle) <= found.computed).all()


def test_rounding_is_enclosed_in_float32():
    model = _model("two variables", "float32")
    cells = [np.array([[e[0], e[-1]] for e in c]) for c in _grid(model).values()]
    low, high = (np.stack(np.meshgrid(*(c[:, k] for c in cells), indexing="ij")).reshape(2, -1) for k in (0, 1))
    found = Runner(model.weights).run(low, high)
    assert (found.real < found.computed).all() and found.computed.max() < 1e-4
    for part in (0.0, 0.3, 1.0):
        x = (low + part * (high - low)).T
        assert (np.abs(reference.run(model.weights, x) - found.middle) <= found.computed).all()
        # a wider format stands in for exact arithmetic
        assert (np.abs(reference.run(model.weights, x, "float64") - found.middle) <= found.real + 1e-12).all()


def _judge(model, changed):
    """Forged files: refused, or what they claim is true at many points."""
    packed, claim = changed.forged()
    result = verify_files(packed, claim)
    if not result.verified:
        assert result.reasons
        return 0
    weights, _ = unpack(packed)
    said = json.loads(claim)
    x = _attacks(model, 600, seed=5)
    grid = json.loads(packed.evidence)["grid"]
    seams = np.zeros(len(x), bool)
    for k, name in enumerate(model.box.variables):
        cells = np.array([[e[0], e[-1]] for e in grid[name]])
        seams |= ~((x[:, k, None] >= cells[:, 0]) & (x[:, k, None] <= cells[:, 1])).any(axis=1)
    errors, sizes = _errors(model, x, weights)
    assert errors[~seams].max(initial=0) <= said["mean"]["outside"] and sizes.max() <= said["mean"]["largest"]
    low, high = np.array(model.box.floats()).T
    mean, _ = _errors(model, np.random.default_rng(2).uniform(low, high, (2000, len(low))), weights)
    assert mean.mean(axis=0).max() <= said["approximation"] + said["rounding"]
    return 1


@pytest.mark.parametrize("name", ["one variable", "two variables"])
def test_every_number_matters_or_does_no_harm(name):
    model = _model(name)
    data, rng = open_model(model), np.random.default_rng(1)
    names = [name for name in data.arrays if name.endswith(".values") and len(data.arrays[name])]
    changes = (np.negative, lambda v: v * (1 + 1e-12), lambda v: v + 1, lambda v: v * 1e30, lambda v: v / 2)
    passed = 0
    for array in names:
        for change in rng.choice(changes, 1):
            changed = copy.deepcopy(data)
            values = changed.arrays[array]
            k = rng.integers(len(values))
            values[k] = change(values[k])
            passed += _judge(model, changed)
    assert 0 < passed < len(names)  # a hair more on most numbers, and steeper steps


@pytest.mark.parametrize("part", ["rows", "cols"])
def test_every_place_matters_or_does_no_harm(part):
    model = _model("two variables")
    data, rng = open_model(model), np.random.default_rng(2)
    for array in [a for a in data.arrays if a.endswith(f".{part}") and len(data.arrays[a])]:
        changed = copy.deepcopy(data)
        k = rng.integers(len(changed.arrays[array]))
        changed.arrays[array][k] += rng.choice([-1, 1])
        _judge(model, changed)


LAYOUT = "compiler.gallery.yun:"
FAULTS = [
    fault("no shift down", LAYOUT + "_YunBuilder._shift", "(-1.0, stop)", "(1.0, stop)", ""),
    fault("half the lead", LAYOUT + "_YunBuilder._shift", "math.log2(2 * lead)", "math.log2(lead / 8)", ""),
    fault("contexts in another order", LAYOUT + "_YunBuilder.weights", "[self.order]", "[self.order[::-1]]", ""),
    fault("contexts that share a number", LAYOUT + "Shifts.of", "len(set(z[:, -1])) == len(z)", "True", ""),
    fault("steps that are not steep", LAYOUT + "_YunBuilder._blocks", "STEEP * (number", "0.25 * (number", ""),
    fault("other thresholds", LAYOUT + "YunPlan.thresholds", "k / count", "k / count / 2", ""),
    fault("limits that are too narrow", LAYOUT + "_YunBuilder._blocks", "high - low, {", "(high - low) / 4, {", ""),
    fault(
        "cells over the seams",
        "compiler.gallery.yun:_grid",
        "k / count - (1 + _APART)",
        "k / count + (1 + _APART)",
        "",
    ),
    fault("cells that overlap", "compiler.gallery.yun:_grid", "k / count + _APART", "k / count / 2 + _APART", ""),
]


@pytest.mark.parametrize("it", FAULTS, ids=lambda it: it.name)
def test_a_faulty_construction_proves_nothing(it):
    """With a fault in the code that is not trusted no model meets the tolerance."""
    with active(it), pytest.raises(NotProvenError) as refused:
        tf.compile("x*y + x", on="x=0..1, y=0..2", eps=0.2, construction="yun")
    assert refused.value.best_bound is None or refused.value.best_bound > 0.2


def _said(changed):
    result = verify_files(*changed.forged())
    assert not result.verified
    return " ".join(result.reasons)


def test_a_mean_is_no_bound_at_every_point_and_the_other_way_round():
    changed = open_model(_model("two variables"))
    del changed.claim["mean"]
    assert "not both about the mean" in _said(changed)
    everywhere = open_model(tf.compile("x*y", on="x=0..1, y=0..1"))
    everywhere.claim["mean"] = {"outside": 1.0, "seams": 0.5, "largest": 2.0}
    assert "not both about the mean" in _said(everywhere)


@pytest.mark.parametrize("key", ["outside", "seams", "largest"])
def test_less_beside_the_mean_is_refused(key):
    changed = open_model(_model("two variables"))
    changed.claim["mean"][key] *= 0.99
    assert f"{key}: " in _said(changed)
    for value in (-1.0, None, "0", True, 1e400):
        wrong = open_model(_model("two variables"))
        wrong.claim["mean"][key] = value
        assert _said(wrong)
    changed.claim["mean"].pop(key)
    assert "malformed mean" in _said(changed)


GRIDS = {
    "overlap": (lambda c: c.__setitem__(1, [c[0][0], *c[1][1:]]), "overlap"),
    "out of order": (lambda c: c.reverse(), "overlap"),
    "twice": (lambda c: c.insert(0, c[0]), "overlap"),
    "outside below": (lambda c: c[0].__setitem__(0, c[0][0] - 0.1), "outside the box"),
    "outside above": (lambda c: c[-1].__setitem__(-1, c[-1][-1] + 0.1), "outside the box"),
    "a piece turned round": (lambda c: c[0].__setitem__(1, c[0][0]), "piece of a cell is empty"),
    "one edge": (lambda c: c.__setitem__(0, [c[0][0]]), "two or more floats"),
    "no cell": (lambda c: c.clear(), "two or more floats"),
    "a text": (lambda c: c.__setitem__(0, ["0", "1"]), "two or more floats"),
    "whole numbers": (lambda c: c.__setitem__(0, [0, 1]), "two or more floats"),
    "no list": (lambda c: c.__setitem__(0, 3), "two or more floats"),
}


@pytest.mark.parametrize("name", GRIDS)
def test_cells_that_are_none_are_refused(name):
    changed = open_model(_model("two variables"))
    edit, said = GRIDS[name]
    edit(changed.evidence["grid"]["x"])
    assert said in _said(changed)


def test_seams_cannot_be_left_out():
    """Cells that are widened over a seam have outputs that differ; cells that are left out count as seams."""
    model = _model("two variables")
    changed = open_model(model)
    cells = changed.evidence["grid"]["x"]
    cells[0][-1] = cells[1][0]
    assert "is claimed, only" in _said(changed)
    fewer = open_model(model)
    del fewer.evidence["grid"]["x"][0]
    assert "seams: " in _said(fewer)


def test_another_formula_or_box_is_refused():
    for key, value in (("formulas", ["x*y + 1/4"]), ("box", "x=0..1, y=-1..3"), ("box", "x=0..1, z=-1..2")):
        changed = open_model(_model("two variables"))
        changed.body[key] = value
        assert _said(changed)


def test_other_attention_and_rationals_are_refused():
    for kind, scale in (("hardmax", 1.0), ("linear", 1.0), ("softmax", 2.0)):
        changed = open_model(_model("two variables"))
        changed.body["blocks"][2] |= {"kind": kind, "scale": scale}
        assert "plain softmax" in _said(changed)
    changed = open_model(_model("two variables"))
    values = changed.arrays["memory.values"]
    changed.body["exact"]["memory"] = [str(Fraction(v)) for v in values.tolist()]
    assert "rationals" in _said(changed)


def test_what_may_overflow_is_refused():
    changed = open_model(_model("two variables", "float32"))
    values = changed.arrays["blocks.0.feed_forward.hidden.values"]
    values *= np.float32(1e38) / np.abs(values).max()
    assert "range" in _said(changed)


def test_sizes_are_bounded_before_anything_is_computed():
    model = _model("two variables")
    evidence = json.loads(model.packed.evidence)
    evidence["grid"]["x"] = [np.linspace(0, 1, 100_000).tolist()]
    with pytest.raises(RefutedError, match="pieces"):
        prove_yun(model.weights, model.formula, {}, Evidence(evidence))
    wide = hand_made("wide", [random_block(np.random.default_rng(0), 6, 1, 2, 0, scale=1.0)], tokens=3000)
    with pytest.raises(RefutedError, match="too many numbers"):
        Runner(wide.weights).run(np.zeros((2, 1)), np.ones((2, 1)))


def test_a_formula_without_a_range_is_refused():
    model = _model("one variable")
    undefined = tf.Formula.of("log(x)", model.box)
    with pytest.raises(NotProvenError):
        prove_yun(model.weights, undefined, {}, Evidence(json.loads(model.packed.evidence) | {"defined": [[-1]]}))


def _with_layer(weights, units):
    """A hidden layer without entries, as wide as a file may state."""
    width = weights.width
    none = np.zeros(0, dtype=np.int32)
    shapes = ((units, width), (units, 1), (width, units), (width, 1))
    layer = FeedForward(*(Matrix(shape, none, none, np.zeros(0)) for shape in shapes))
    return replace(weights, blocks=(Block(Attention(()), layer),))


def test_memory_is_counted_before_it_is_taken():
    weights = _with_layer(tf.compile("x*y", on="x=0..1, y=0..1", eps=0.02, construction="yun").weights, 5_000_000)
    tracemalloc.start()
    with pytest.raises(RefutedError, match="too many numbers"):
        Runner(weights).run(np.zeros((2, 50)), np.ones((2, 50)))
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_more_variables_than_arrays_have_axes_are_refused():
    names = ", ".join(f"x{k}=0..1" for k in range(1, 71))
    wide = tf.Formula.of("x1", names)
    with pytest.raises(RefutedError, match="at most 16 variables"):
        prove_yun(_model("one variable").weights, wide, {}, Evidence({"grid": {}, "defined": [[-1]]}))


def test_a_share_of_the_box_that_underflows():
    """A cell of 2**-1078 of the box counted as nothing, though the network reaches 2**489 on it."""
    width, gains = 2.0**-541, (2.0**1000, 2.0**30)
    none = matrix_of((4, 1))
    first = FeedForward(
        matrix_of((1, 4), [(0, 0, -1.0), (0, 1, -1.0)]),
        matrix_of((1, 1), [(0, 0, width)]),
        matrix_of((4, 1), [(2, 0, gains[0])]),
        none,
    )
    last = FeedForward(matrix_of((1, 4), [(0, 2, 1.0)]), matrix_of((1, 1)), matrix_of((4, 1), [(3, 0, gains[1])]), none)
    weights = Weights(
        inputs=("x", "y"),
        slots=("x", "y", "s", "t"),
        tokens=1,
        embedding=matrix_of((4, 2), [(0, 0, 1), (1, 1, 1)]),
        memory=matrix_of((1, 4)),
        blocks=tuple(Block(Attention(()), layer) for layer in (first, last)),
        readout=matrix_of((1, 4), [(0, 3, 1.0)]),
        bias=matrix_of((1, 1)),
    )
    edges = [0.0, *(2.0**e for e in range(-539, 0, 40)), 1.0]
    cells = [list(pair) for pair in pairwise(edges)]
    evidence = Evidence({"defined": [[-1]], "grid": {"x": cells, "y": cells}})
    proof = prove_yun(weights, tf.Formula.of("0*x*y", "x=0..1, y=0..1"), {}, evidence)
    assert proof.approximation >= float(Fraction(width) ** 3 * Fraction(gains[0]) * Fraction(gains[1]) / 6)
