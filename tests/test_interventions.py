"""Wires held at numbers: predictions against the formula with the wire replaced, and against hooks on the blocks."""

import numpy as np
import pytest
import torch

import transformula as tf
from transformula.compiler.interventions import slot_wires, wire_range
from transformula.errors import InputError, NotProvenError, PointError
from transformula.formula.evaluation import evaluate_accurately
from transformula.kernel.syntax.parsing import parse

FORMULAS = {
    "gravity": ("G*m1*m2/r**2", "G=1..2, m1=1..2, m2=1..2, r=1..3", "float64"),
    "damped": ("exp(-x*y)*sin(3*x+y)", "x=0..1, y=0..1", "float64"),
    "float32": ("exp(-x*y)*sin(3*x+y)", "x=0..1, y=0..1", "float32"),
    "relu": ("max(x*y, 1/4)*exp(x)", "x=0..1, y=0..1", "float64"),
}


@pytest.fixture(scope="module")
def models():
    made = {}

    def get(name):
        if name not in made:
            formula, box, dtype = FORMULAS[name]
            eps = 1e-6 if dtype == "float64" else 1e-3
            made[name] = tf.compile(formula, on=box, eps=eps, dtype=dtype, construction="circuit")
        return made[name]

    return get


def _points(model, rng, count=200):
    ends = np.array(model.box.floats())
    return rng.uniform(ends[:, 0], ends[:, 1], (count, len(ends))).astype(model.weights.dtype)


def _predicted(held, model, x):
    """The formula with the numbers in place of the wires, from its text and by Arb."""
    return _exact(held.formula[0], model, x)


def _exact(text, model, x):
    """An expression in the inputs, by Arb."""
    names = model.box.variables
    expr = parse(text, names)
    return np.broadcast_to(evaluate_accurately(expr, names, list(x.astype(float).T)), len(x))


@pytest.mark.parametrize("name", FORMULAS)
def test_predictions_hold_for_every_wire(name, models):
    model, rng = models(name), np.random.default_rng(0)
    for slot in slot_wires(model):
        low, high = wire_range(model, slot)
        held = model.patch(**{slot: rng.uniform(low, high)})
        x = _points(model, rng)
        wanted = _predicted(held, model, x)
        assert np.abs(np.asarray(held(x), dtype=float) - wanted).max() <= held.certificate.bound < 0.5, slot
        assert held.cut.proven


def test_a_hook_on_the_blocks_computes_the_same(models):
    model, rng = models("gravity"), np.random.default_rng(1)
    x = _points(model, rng)
    for slot, k in slot_wires(model).items():
        block, place = model.circuit.wires[k].place[0], model.weights.slot(slot)
        value = float(np.mean(wire_range(model, slot)))
        module = model.to_torch(blocks=True)

        def put(_module, _given, stream, place=place, value=value):
            changed = stream.clone()
            changed[:, 0, place] = value
            return changed

        module.blocks[block].register_forward_hook(put)
        with torch.no_grad():
            seen = module(torch.from_numpy(x)).numpy()[:, 0]
        held = model.patch(**{slot: value})
        assert np.abs(seen - held(x)).max() <= 2 * held.certificate.rounding
        assert np.array_equal(held(torch.from_numpy(x)).numpy(), held(x))


def test_several_wires_and_an_ablated_head(models):
    model, rng = models("damped"), np.random.default_rng(2)
    slots = list(slot_wires(model))
    held = model.patch(**{slot: np.mean(wire_range(model, slot)) for slot in slots[:2]})
    x = _points(model, rng)
    assert np.abs(held(x) - _predicted(held, model, x)).max() <= held.certificate.bound
    wire = next(k for k in slot_wires(model).values() if model.circuit.wires[k].place[:2] == (0, 0))
    off = model.ablate(block=0, head=0)
    assert list(off.values.values()) == [0.0] and model.circuit.wires[wire].place[1] == 0
    assert np.abs(off(x) - _predicted(off, model, x)).max() <= off.certificate.bound


def test_a_wire_with_the_name_of_an_input():
    """The slot w2 holds a table here, and the formula has a variable w2: the prediction replaces the wire alone."""
    model = tf.compile("exp(w2*y)*y", on="w2=0..1, y=0..1", eps=1e-4, construction="circuit")
    assert "w2" in slot_wires(model)
    held = model.patch(w2=0.25)
    x = _points(model, np.random.default_rng(5))
    assert "w2_set" in held.cut.box.variables and "w2_set" not in held.formula[0]
    assert np.abs(held(x) - _predicted(held, model, x)).max() <= held.certificate.bound


def test_mistakes_are_named(models):
    model = models("gravity")
    with pytest.raises(InputError, match="no wire 'w99': the wires are w4"):
        model.patch(w99=1.0)
    with pytest.raises(InputError, match="at least one wire"):
        model.patch()
    with pytest.raises(InputError, match="finite"):
        model.patch(w4=float("nan"))
    with pytest.raises(InputError, match="no head 7 in block 0"):
        model.ablate(block=0, head=7)
    with pytest.raises(InputError, match="construction='circuit'"):
        tf.compile("x**2", on="x=0..1").patch(w1=1.0)


def test_a_value_for_which_nothing_can_be_proven_is_refused(models):
    with pytest.raises(NotProvenError):
        tf.compile("log(1 + x*y)", on="x=1..2, y=1..2", eps=1e-6, construction="circuit").patch(w2=-1e6)


@pytest.mark.parametrize("name", FORMULAS)
def test_ground_truth_is_what_the_stream_holds(name, models):
    model = models(name)
    truth, x = model.ground_truth, _points(model, np.random.default_rng(3), 50)
    seen = model.trace(x)
    for node in truth.nodes:
        if node.kind not in ("table", "relu"):
            continue
        exact = _exact(node.expression, model, x)
        held = seen.residual(node.name, token="data")
        assert np.abs(held - exact).max() <= node.error + node.rounding, node
        assert exact.min() >= node.low - 1e-12 and exact.max() <= node.high + 1e-12, node
    assert {edge.source for edge in truth.edges} <= {node.name for node in truth.nodes}
    error = truth["output 0"].error + truth["output 0"].rounding
    assert error <= model.certificate.bound
    graph = pytest.importorskip("networkx") and truth.to_networkx()
    assert graph.number_of_nodes() == len(truth.nodes)


def test_hooks_see_and_change_attention_patterns(models):
    """A pattern that puts all weight on one memory token makes the slot that token's value."""
    model = models("gravity")
    module, seen = model.to_torch(blocks=True), []
    x = torch.from_numpy(_points(model, np.random.default_rng(4), 5))
    module.blocks[0].heads[0].pattern.register_forward_hook(lambda _m, _given, made: seen.append(made))
    module(x)
    assert torch.allclose(seen[0][:, 0].detach(), torch.from_numpy(model.trace(x.numpy()).pattern(0, 0, 0)))
    assert module.config["slots"] == list(model.weights.slots) and module.config["num_hidden_layers"] == model.layers
    table, token = model.tables[0], model.token_labels.index("table 0, token 0")
    one_hot = torch.zeros(model.tokens, dtype=torch.float64)
    one_hot[token] = 1
    module.blocks[0].heads[0].pattern.register_forward_hook(lambda _m, _given, made: one_hot.expand_as(made))
    module.blocks[0].register_forward_hook(lambda _m, _given, stream: seen.append(stream))
    module(x)
    held = seen[-1][:, 0, model.weights.slot(table.writes[0])].detach()
    assert torch.equal(held, torch.full_like(held, float(table.values[0, 0])))


def test_points_are_given_as_to_the_model():
    model = tf.compile("exp(x*y)*y", on="x=0..1, y=0..1", eps=1e-3, construction="circuit")
    held = model.patch(w5=2)
    wanted = held([[0.3, 0.5]])
    assert wanted.shape == (1,) and held([0.3, 0.5]) == wanted[0] == held({"y": 0.5, "x": 0.3})
    with pytest.raises(PointError, match=r"expected rows of 2 numbers \(x, y\)"):
        held([[0.3, 0.5, 1.0]])
    for value in ("a", [1, 2], None):
        with pytest.raises(InputError, match="w5 must be set to a finite number"):
            model.patch(w5=value)
