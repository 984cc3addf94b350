"""Stored circuits: read back they compute the formula, and their forms are those the weights hold."""

import json
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from support.guides import PositiveGuide, RandomGuide
from support.prover import random_formula
from transformula.compiler.attempts import Findings
from transformula.compiler.circuit import SPLITS, Circuits
from transformula.compiler.circuit_analysis import circuit_design, circuit_places
from transformula.compiler.circuit_tables import fit_tables
from transformula.compiler.layout import TableTokens, assemble, assembled
from transformula.compiler.lower.additive import decompose, without_cancelled
from transformula.compiler.lower.lowered_circuit import Guide, collected, has_slot
from transformula.compiler.lower.lowering import build_circuit
from transformula.compiler.lower.store_circuit import store_circuit, store_one_layer
from transformula.compiler.partition import one_layer_spec
from transformula.compiler.prepare import Prepared
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.structures.network import ONE, read_network
from transformula.kernel.structures.stored_circuit import SQUARE, CircuitReader, Measure
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import to_text, variables_of
from transformula.kernel.syntax.parsing import parse

BITS = 300


def _linear(item, values):
    return sum((enclose(parse(c, ())) * values[k] for k, c in item["wires"]), enclose(parse(item["plus"], ())))


def evaluate_stored(stored, inputs):
    """The outputs at a point, from the JSON alone; products are multiplied and also added up."""
    values = list(inputs)
    for wire in stored["wires"]:
        kind = next(iter(wire))
        if kind == "table":
            arguments = [_linear(form, values) for form in wire["of"]]
            names = ["u"] if len(arguments) == 1 else [f"u{k + 1}" for k in range(len(arguments))]
            values.append(enclose(parse(wire["table"], names), dict(zip(names, arguments, strict=True))))
        elif kind == "relu":
            values.append(_linear(wire["relu"], values).max(arb(0)))
        elif kind == "product":
            left, right = (_linear(form, values) for form in wire["product"])
            total = _linear(wire["sum"], values)
            assert not (left * right).is_finite() or total.overlaps(left * right)
            used = {k for k, _ in wire["sum"]["wires"]}
            assert {k for k, _ in wire["squares"]} <= used
            values.append(total)
        else:
            left, right = (_linear(form, values) for form in wire["norm"])
            values += [arb("nan")] * len(wire["folds"] if "folds" in wire else wire["from"]) + [
                (left**2 + right**2).sqrt()
            ]
    return [_linear(output, values) for output in stored["outputs"]]


def _places(circuit):
    return {k: [0, k, 0] for k, wire in enumerate(circuit.wires) if has_slot(wire)}


def _assert_computes(stored, outputs, names, points):
    stored = json.loads(json.dumps(stored))
    with precision(BITS):
        for point in points:
            at = [arb(float(v)) for v in point]
            found = evaluate_stored(stored, at)
            for value, expr in zip(found, outputs, strict=True):
                wanted = enclose(expr, dict(zip(names, at, strict=True)))
                if wanted.is_finite() and value.is_finite():
                    assert value.overlaps(wanted) and value.rad() < 1e-20
    return stored


def _random_scales(circuit, rng):
    scales = {}
    for k, wire in enumerate(circuit.wires):
        if wire.function == SQUARE:
            s = _scale(rng)
            scales[k] = (s, s**2)
        elif wire.function is not None and rng.random() < 0.5:
            scales[k] = (_scale(rng), _scale(rng))
    return scales


def _scale(rng):
    return Fraction(int(rng.integers(8, 16)), 8) * Fraction(2) ** int(rng.integers(-5, 6))


@given(st.integers(0, 10_000), st.booleans())
def test_random_formulas_survive_storing(seed, scaled):
    names, rng = ["x", "y", "z"], np.random.default_rng(seed)
    expr = without_cancelled(random_formula(seed, names), names)
    circuit = build_circuit([expr], names, RandomGuide(seed)).circuit
    stored = store_circuit(circuit, _places(circuit), _random_scales(circuit, rng) if scaled else None)
    _assert_computes(stored, [expr], names, rng.uniform(-1.2, 1.7, (4, 3)))
    read = CircuitReader(names).read(json.loads(json.dumps(stored)))
    assert len(read.wires) == len(circuit.wires)
    for wire, same in zip(circuit.wires, read.wires, strict=True):
        assert (wire.function is None, wire.total is None) == (same.function is None, same.total is None)
        assert wire.parts == same.parts or (scaled and not wire.is_norm)
        assert (wire.measure, wire.inside is None) == (same.measure, same.inside is None)


@pytest.mark.parametrize("text", ["tanh(x*y/z)", "x**y*pi", "x*y*z/(x + y)", "acos(x/(x + y))", "2*pi*sqrt(x*y)"])
def test_positive_formulas_survive_storing(text):
    names, rng = ["x", "y", "z"], np.random.default_rng(0)
    expr = parse(text, names)
    for seed in range(4):
        circuit = build_circuit([expr], names, PositiveGuide(seed)).circuit
        stored = store_circuit(circuit, _places(circuit), _random_scales(circuit, rng))
        _assert_computes(stored, [expr], names, rng.uniform(0.3, 2, (5, 3)))


def test_a_scaled_square_stays_a_square():
    circuit = build_circuit([parse("x**2/3")], ("x",), Guide()).circuit
    stored = store_circuit(circuit, {1: [0, 0, 0]}, {1: (Fraction(1, 8), Fraction(1, 64))})
    table, product = stored["wires"]
    assert table["table"] == "u**2" and table["of"] == [{"wires": [[0, "1/8"]], "plus": "0"}]
    assert product["sum"]["wires"] == [[1, "64"]] and product["squares"] == [[1, "64"]]
    assert stored["outputs"] == [{"wires": [[2, "1/3"]], "plus": "0"}]


class _Folding(Guide):
    def measure(self, radicand):
        return Measure(8)


def test_lengths_are_stored_with_the_places_of_their_units():
    names = ["x", "y", "z"]
    texts = ["sqrt(x**2 + y**2 + 4*z**2)", "exp(-sqrt(x**2 + y**2))", "x*sqrt(x**2 + y**2)"]
    outputs = [parse(t, names) for t in texts]
    circuit = build_circuit(outputs, names, _Folding()).circuit
    stored = store_circuit(circuit, _places(circuit))
    norms = [w for w in stored["wires"] if "norm" in w]
    assert len(norms) == 2 and all(len(w["folds"]) == 8 for w in norms)  # equal lengths are measured once
    _assert_computes(stored, outputs, names, np.random.default_rng(0).uniform(-1, 1, (6, 3)))
    read = CircuitReader(names).read(stored)
    for wire, same in zip(circuit.wires, read.wires, strict=True):
        assert (same.parts, same.total) == (wire.parts, wire.total) or not wire.is_norm
        if wire.inside is not None:  # the kernel's own forms are those of the circuit
            assert same.arguments[0].terms == wire.arguments[0].terms and same.inside == wire.inside


def test_lengths_of_constants():
    expr = parse("y*sqrt(pi**2 + E**2 + x**2 + y**2)", ["x", "y"])
    circuit = build_circuit([expr], ["x", "y"], _Folding()).circuit
    stored = store_circuit(circuit, _places(circuit))
    _assert_computes(stored, [expr], ["x", "y"], [(1, 2), (-1, 0.5)])


@given(st.integers(0, 10_000))
def test_constants_are_read_back_as_they_are(seed):
    rng = np.random.default_rng(seed)
    atoms = ["pi", "E", "sqrt(2)", "2**(1/3)", "sin(3/16*pi)", "log(2*pi)", "1/pi", "7/3", "-5"]
    terms = [f"({rng.choice(atoms)}){rng.choice(['*', '/'])}({rng.choice(atoms)})" for _ in range(4)]
    constant = collected(parse(" + ".join(terms) + f" - ({terms[0]})", ()))
    assert parse(to_text(constant), ()) == constant and not variables_of(constant)
    with precision(200):
        assert enclose(constant).overlaps(enclose(parse(" + ".join(terms[1:]), ())))
    assert collected(parse(f"{terms[0]} - ({terms[0]})", ())).number in (0, None)


def test_what_cancels_is_left_out():
    circuit = build_circuit([parse("pi*sin(x) - (sin(x)*pi) + x", ["x"])], ("x",), Guide()).circuit
    assert store_circuit(circuit, _places(circuit))["outputs"] == [{"wires": [[0, "1"]], "plus": "0"}]


def _holds(stored, network, variables):
    """Every wire of the weights has its place in the circuit, and asks for what that says."""
    read = CircuitReader(variables).read(json.loads(json.dumps(stored)))
    at = {(w.function is None, w.place): k for k, w in enumerate(read.wires) if w.place is not None}
    slots = [*range(len(variables)), *(at[wire.table is None, wire.place] for wire in network.wires)]
    assert len(at) == len(network.wires)

    def same(form, linear):
        linear, _ = read.written_out(linear)
        ours = {slots[k] if k != ONE else ONE: arb(t.coefficient) for k, t in form.terms.items()}
        meant = {k: enclose(c) for k, c in linear.terms} | {ONE: enclose(linear.constant)}
        with precision(BITS):
            for k in {*ours, *meant}:
                apart = ours.get(k, arb(0)) - meant.get(k, arb(0))
                assert abs(apart) < 1e-25, (k, ours.get(k), meant.get(k))

    with precision(BITS):
        for wire in network.wires:
            meant = read.wires[at[wire.table is None, wire.place]]
            for form, linear in zip(wire.arguments, meant.arguments, strict=True):
                same(form, linear)
        for form, linear in zip(network.outputs, read.outputs, strict=True):
            same(form, linear)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("x*y*pi + max(x*y, sin(x)) - abs(y - x/3)", "x=-1..1, y=0..2"),
        ("sqrt(x*y)*exp(x/3)", "x=0..1, y=0..1"),
        ("acos(x*y) + x**2", "x=-1..1, y=-1..1"),
    ],
)
def test_the_weights_hold_the_stored_circuit(text, box):
    formula = Formula.of(text, box)
    analysis = next(Circuits(Prepared(formula), "float64").all(0.05))
    nodes = analysis.planned(0.05, SPLITS[0], "float64")
    tables = fit_tables(nodes, 0.05, SPLITS[0], "float64", Findings(), 0.05)
    circuit = analysis.lowered.circuit
    weights = assembled(circuit_design(circuit, nodes, tables, 1, formula.box.variables), "float64")
    scales = {k: (n.scale, n.held) for k, n in nodes.items()}
    stored = store_circuit(circuit, circuit_places(nodes), scales)
    _holds(stored, read_network(weights), formula.box.variables)
    points = np.random.default_rng(0).uniform(*np.array(formula.box.floats()).T, (5, 2))
    _assert_computes(stored, formula.outputs, formula.box.variables, points)


def _fake_fit(linear):
    def fit(part, ranges, share):
        axes = len(ranges)
        slopes = np.arange(1.0, 4.0)[:, None] * np.ones(axes)
        return TableTokens(slopes, -slopes, np.array([[1.0], [2.0], [3.0]]), linear if axes == 1 else 0.0)

    return lambda parts: [fit(*part) for part in parts]


ONE_LAYER = [
    (["sin(x) + pi*abs(x - 1/3) + 2*y + cos(x*y) + pi"], None),
    (["exp(x - 2*y)", "max(x, 3*y + 1) - min(x, y)/3 + sqrt(2)"], None),
    (["sin(x)", "abs(y) + x", "x*y + 1/3", "pi*x - x*pi + 2"], (2, 2)),
    (["sin(x) + abs(x)/7", "cos(y) - max(x, y)", "x + y"], (3, 1)),
    (["sin(x) + abs(x)/7 + y"], (1, 1)),
]


@pytest.mark.parametrize(("texts", "shape"), ONE_LAYER)
@pytest.mark.parametrize("linear", [0.0, -1.25])
def test_one_layer_models_hold_what_is_stored(texts, shape, linear):
    formula = Formula.of(texts, "x=-1..2, y=-2..1")
    names = formula.box.variables
    spec = one_layer_spec(Prepared(formula), 0.1, _fake_fit(linear), "float64", shape)
    weights = assemble(spec)
    splits = [decompose(expr, names) for expr in formula.outputs]
    linears = [[linear if len(part.forms) == 1 else 0 for part in split.parts] for split in splits]
    limit, relu_limits = _limits(weights, spec) if shape else (0, ())
    stored = store_one_layer(names, formula.outputs, linears, shape, limit, relu_limits)
    points = np.random.default_rng(0).uniform(*np.array(formula.box.floats()).T, (5, 2))
    _assert_computes(stored, formula.outputs, names, points)
    if weights.blocks[0].attention.heads:
        _holds(stored, read_network(weights), names)


def _limits(weights, spec):
    layer = weights.blocks[0].feed_forward
    reads = {(r, c): v for r, c, v in layer.hidden.entries()}
    kinks, where = len(spec.relus), weights.slot("position1")
    columns = spec.shape[1]
    limits = [Fraction(int(v.p), int(v.q)) for v in (
        reads[u, where + relu.output // columns] for u, relu in enumerate(spec.relus))]  # fmt: skip
    selector = reads[kinks, where]
    return Fraction(int(selector.p), int(selector.q)) / 2, limits


def test_only_one_form_has_a_slope():
    with pytest.raises(ValueError, match="slope"):
        store_one_layer(("x", "y"), [parse("exp(x*y)")], [[Fraction(1)]])


def test_irrational_constants_stay_as_they_are():
    stored = store_one_layer(("x",), [parse("sin(x + pi/3)/pi + sqrt(2)", ["x"])], [[0]])
    assert stored["outputs"] == [{"wires": [[1, "1"]], "plus": "sqrt(2)"}]
    assert stored["wires"][0]["table"] == "(1/pi)*sin(u + 1/3*pi)"
