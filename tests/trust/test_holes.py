"""Forged folders that once verified though their claim was false, each a regression test.

Each is laid out number by number and claims exactly what the kernel proves of it. It must be refused, or what its
weights compute must be within the claimed bound of the formula.
"""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq, fmpz

from support.limited_checks import is_stopped
from support.nets import Layer, Net, forge, linear
from transformula.compiler.certify import outlined
from transformula.errors import ModelFileError, RefutedError, TransformulaError
from transformula.kernel.circuit.head_proofs import as_table
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.kernel.structures.network import HeadTable, read_network
from transformula.kernel.structures.stored_circuit import CircuitReader
from transformula.runtime.matrices import matrix_of


def assert_not_false(net, formulas, box, circuit, points, truth, **more):
    """Refused, or right at the points."""
    try:
        found = forge(net.weights(), formulas, box, circuit, **more)
    except TransformulaError:
        return
    if found.verification:
        error = np.max(np.abs(found.run(points) - np.reshape(truth, (len(points), -1))))
        assert error <= found.bound, f"off by {error} where {found.bound} is claimed"


def staircase(start, stop, steps, steepness, height):
    """Tokens of a sharp table: constant pieces between middles of neighbouring points."""
    points = np.linspace(start, stop, steps + 1).tolist()
    tokens, offset = [], 0.0
    for j, u in enumerate(points):
        offset -= steepness * (u + points[j - 1]) / 2 if j else 0.0
        tokens.append((j * steepness, offset, height(u)))
    return tokens


RELU = {"wires": [{"relu": linear((0, "1")), "from": [0, 0, 0]}], "outputs": [linear((1, "1"))]}
TWICE = {
    "wires": [*RELU["wires"], {"relu": linear((1, "1")), "from": [1, 0, 0]}],
    "outputs": [linear((2, "1"))],
}
POINTS = [[-0.5], [0.53], [9.0]]


def test_the_helper_does_not_make_a_folder_fail():
    net = Net(["x"], ["r"], [], [Layer([], [({"x.x": 1}, 0, {"r": 1})])], [{(0, "r"): 1}])
    found = forge(net.weights(), ["max(x, 0)"], "x=-1..10", RELU)
    assert found.verification
    assert found.bound < 1e-14
    assert np.allclose(found.run(POINTS).ravel(), [0, 0.53, 9])


def test_a_slot_that_overflows_between_two_products():
    """2^1023 r is infinite for r = 9, whatever it is multiplied by next."""
    first = Layer([], [({"x.x": 1}, 0, {"r": 2.0**1023})])
    second = Layer([], [({"r": 2.0**-1023}, 0, {"s": 1})])
    net = Net(["x"], ["r", "s"], [], [first, second], [{(0, "s"): 1}])
    assert_not_false(net, ["max(x, 0)"], "x=-1..10", TWICE, POINTS, [0, 0.53, 9])


def test_a_slot_that_overflows_and_is_read_by_nobody():
    """Zero times infinity is not a number in a dense product."""
    first = Layer([], [({"x.x": 1}, 0, {"r": 1, "dead": 1e308})])
    second = Layer([], [({"r": 1}, 0, {"s": 1})])
    net = Net(["x"], ["r", "dead", "s"], [], [first, second], [{(0, "s"): 1}])
    assert_not_false(net, ["max(x, 0)"], "x=-1..10", TWICE, POINTS, [0, 0.53, 9])


def test_a_constant_hidden_unit_that_overflows():
    units = [({"x.x": 1}, 0, {"r": 1}), ({"one": 1.5e308}, 1.5e308, {"c": 2.0**-1000})]
    net = Net(["x"], ["r", "c"], [], [Layer([], units)], [{(0, "r"): 1, (0, "c"): 2.0**-100}])
    constant = 2 * Fraction(1.5e308) / 2**1100
    circuit = {**RELU, "outputs": [linear((1, "1"), plus=str(constant))]}
    truth = [float(constant) + v for v in (0, 0.53, 9)]
    assert_not_false(net, [f"max(x, 0) + {constant}"], "x=-1..10", circuit, POINTS, truth)


def test_a_hidden_unit_that_overflows_in_a_memory_token():
    """Its slot is not a number in a key of every token, and so are all scores."""
    table = [(1.0, 0.0, 1.0), (2.0, 0.0, 1.0)]
    units = [({"x.x": 1}, 0, {"r": 1}), ({"slope": 1e307, "one": -1e10}, 1.75e308, {"dead": 1e-300})]
    layers = [Layer([], units), Layer([(0, {"x.x": 1}, "w")])]
    net = Net(["x"], ["r", "dead", "w"], [table], layers, [{(0, "r"): 1}])
    one = {"table": "1 + 0*u", "of": [linear((0, "1"))], "from": [1, 0, 0]}
    circuit = {"wires": [*RELU["wires"], one], "outputs": RELU["outputs"]}
    assert_not_false(net, ["max(x, 0)"], "x=-1..1", circuit, POINTS[:2], [0, 0.53])


def test_a_head_that_writes_nothing_and_overflows():
    table = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0)]
    layer = Layer([(0, {"x.x": 1e308}, "")], [({"x.x": 1}, 0, {"r": 1})])
    net = Net(["x"], ["r"], [table], [layer], [{(0, "r"): 1}])
    assert_not_false(net, ["max(x, 0)"], "x=-10..10", RELU, POINTS, [0, 0.53, 9])


def test_a_power_of_two_that_underflows():
    """2^-1070 r has four bits after the point."""
    first = Layer([], [({"x.x": 1}, 0, {"r": 2.0**-1070})])
    second = Layer([], [({"r": 2.0**1000}, 0, {"s": 2.0**70})])
    net = Net(["x"], ["r", "s"], [], [first, second], [{(0, "s"): 1}])
    small = {"relu": linear((1, "2**-70")), "from": [1, 0, 0]}
    circuit = {"wires": [*RELU["wires"], small], "outputs": [linear((2, "2**70"))]}
    assert_not_false(net, ["max(x, 0)"], "x=-1..10", circuit, POINTS, [0, 0.53, 9])


def test_a_sum_of_relus_that_rounds_below_zero():
    """(a + b - c) r with a + b > c is never negative, but a r + b r - c r is in floats: a token waits there."""
    a, b, c = 0.9461081055596766, 0.8153679535250593, 1.7614760590847358
    r, rest = 0.622119202171808, Fraction(a) + Fraction(b) - Fraction(c)
    assert rest > 0 > (a * r + b * r) - c * r
    layers = [Layer([], [({"x.x": 1}, 0, {"A": a, "B": b, "C": -c})]), Layer([(0, {"A": 1, "B": 1, "C": 1}, "w")])]
    table = [(0.0, 0.0, 0.0), (-(2.0**62), -60.0, 1e6)]
    outputs = [{(0, "x.x"): 1, (0, "w"): 1}]
    net = Net(["x"], ["A", "B", "C", "w"], [table], layers, outputs, gate=-(2.0**62))
    tiny = {"table": "u", "of": [linear((1, str(rest)))], "from": [1, 0, 0]}
    circuit = {"wires": [*RELU["wires"], tiny], "outputs": [linear((0, "1"), (2, "1"))], "signs": ["x"]}
    assert_not_false(net, [f"x + {rest}*max(x, 0)"], "x=0..1", circuit, [[r], [0.5]], [r, 0.5])


def test_one_wire_at_two_positions_is_not_one_float():
    """w - w is zero, but the two positions add up their arguments in another order."""
    table, big = [(0.0, 0.0, 0.0), (4.0, 0.0, 1.0)], 2.0**30
    data = [{"a": big, "b": -big, "c": 1 / 3}, {"a": 1 / 3, "b": -big, "c": big}]
    outputs = [{(0, "x.x"): 1, (0, "w"): 2.0**20, (1, "w"): -(2.0**20)}, {(0, "x.y"): 1}]
    layer = Layer([(0, {"x.x": 1, "a": 1, "b": 1, "c": 1}, "w")])
    net = Net(["x", "y"], ["a", "b", "c", "w"], [table], [layer], outputs, data=data, gate=-(2.0**40))
    argument = linear((0, "1"), plus=str(Fraction(1 / 3)))
    circuit = {
        "wires": [{"table": "1/2 + tanh(2*u)/2", "of": [argument], "from": [0, 0, 0]}],
        "outputs": [linear((0, "1")), linear((1, "1"))],
    }
    points = np.random.default_rng(0).random((200, 2)) * [0.5, 1]
    assert_not_false(net, ["x", "y"], "x=0..1/2, y=0..1", circuit, points, points, shape=[2, 1])


def test_a_sharp_table_of_one_axis_is_no_relu_to_the_flow_of_errors():
    table = staircase(-2, -1, 8, 2.0**14, lambda u: u + 10)
    layer = Layer([(0, {"x.x": 1}, "w")], [({"w": 1}, -5, {"r": 1})])
    net = Net(["x"], ["w", "r"], [table], [layer], [{(0, "r"): 1}], gate=-(2.0**40))
    shifted = {"table": "u + 10", "of": [linear((0, "1"))], "from": [0, 0, 0]}
    bent = {"relu": linear((1, "1"), plus="-5"), "from": [0, 0, 0]}
    circuit = {"wires": [shifted, bent], "outputs": [linear((2, "1"))], "signs": ["x + 5"]}
    points = np.linspace(-2, -1, 41)[:, None]

    def follow(evidence):
        evidence["parts"] = {"o0": [-1]}

    more = {"construction": "partition", "change": follow}
    assert_not_false(net, ["x + 5"], "x=-2..-1", circuit, points, points + 5, **more)


def test_cells_that_end_before_rounding_does():
    """x + 2^53 - 2^53 is off by one, where the function is steep and no cell says so."""
    table, big = [(0.0, 0.0, 0.0), (80.0, -140.0, 2000.0)], 2.0**53
    layer, data = Layer([(0, {"x.x": 1, "a": 1, "b": 1}, "w")]), [{"a": big, "b": -big}]
    net = Net(["x"], ["a", "b", "w"], [table], [layer], [{(0, "w"): 1}], data=data, gate=-(2.0**30))
    text = "1000 + 1000*tanh(40*({} - 7/4))"
    circuit = {
        "wires": [{"table": text.format("u"), "of": [linear((0, "1"))], "from": [0, 0, 0]}],
        "outputs": [linear((1, "1"))],
    }
    points = np.linspace(0, 1.25, 41)[:, None]

    def shorten(evidence):
        evidence["tables"][0]["cells"] = [-1e-300, *(v / 64 for v in range(1, 80)), 1.25 + 2.0**-50]

    truth = 1000 + 1000 * np.tanh(40 * (points - 1.75))
    assert_not_false(net, [text.format("x")], "x=0..5/4", circuit, points, truth, change=shorten)


def test_pieces_that_end_before_errors_do_and_cells_that_do_not():
    """100 w - 100 w cancels, but the table of 100 u bends beyond its pieces, where w is in truth."""
    wrong, bent = [(0.0, 0.0, 0.1)], [(-40.0, 0.0, -2.5), (40.0, 0.0, 2.5)]
    layers = [Layer([(0, {"x.x": 1}, "w1")]), Layer([(1, {"w1": 1}, "w2")])]
    outputs = [{(0, "x.x"): 1, (0, "w2"): 1, (0, "w1"): -100}]
    net = Net(["x"], ["w1", "w2"], [wrong, bent], layers, outputs)
    wires = [
        {"table": "u", "of": [linear((0, "1"))], "from": [0, 0, 0]},
        {"table": "100*u", "of": [linear((1, "1"))], "from": [1, 0, 0]},
    ]
    circuit = {"wires": wires, "outputs": [linear((0, "1"), (1, "-100"), (2, "1"))]}
    points = np.linspace(0, 0.01, 11)[:, None]

    def shorten(evidence):
        item = evidence["tables"][evidence["uses"]["2"]]
        item["pieces"], item["cells"] = [-(2.0**-40), 0.01 + 2.0**-40], [-2.0, 3.0]
        item["slopes"] = np.linspace(-0.2, 0.2, 101).tolist()
        evidence["parts"] = {"o0": [-1]}

    assert_not_false(net, ["x"], "x=0..1/100", circuit, points, points, change=shorten)


@pytest.mark.parametrize("numerator", ["sin(x) + 0*log(x)", "exp(log(x))", "sqrt(x)**2"])
def test_a_quotient_is_not_extended_where_its_numerator_is_undefined(numerator):
    """All are x or sin(x) where they are defined, and none is at -1/2."""
    extension = "sinc(x)" if "sin" in numerator else "1"
    text = f"({numerator})/x"
    table = staircase(-1, 1, 64, 2.0**12, lambda u: np.sinc(u / np.pi) if "sin" in numerator else 1.0)
    net = Net(["x"], ["w"], [table], [Layer([(0, {"x.x": 1}, "w")])], [{(0, "w"): 1}], gate=-(2.0**40))
    function = extension.replace("x", "u") if "sin" in numerator else "1 + 0*u"
    circuit = {
        "wires": [{"table": function, "of": [linear((0, "1"))], "from": [0, 0, 0]}],
        "outputs": [linear((1, "1"))],
        "extends": [{"of": text, "is": extension, "at": {"x": "1/2"}}],
    }
    try:
        found = forge(net.weights(), [f"{text} + 0*x"], "x=-1..1", circuit).verification
    except TransformulaError:
        return
    assert not found, "the formula is not defined at x = -1/2"


def test_cells_that_end_where_pieces_do_not():
    """x/3 ends between two floats. With a larger factor stored the table is read beyond, where it is steep."""
    end = math.nextafter(1 / 3, 1)
    steep, middle = 2**55, int(2**55 * Fraction(end)) + 20
    table = [(0.0, 0.0, 0.0), (float(steep), -float(middle), 2.0**28)]
    layer = Layer([(0, {"x.x": end}, "w")])
    net = Net(["x"], ["w"], [table], [layer], [{(0, "w"): 1}], gate=-(2.0**60))
    text = f"2**27 + 2**27*tanh(2**54*{{}} - {middle // 2})"
    wire = {"table": text.format("u"), "of": [linear((0, "1/3"))], "from": [0, 0, 0]}
    ulp = end - 1 / 3
    near = [end + k * ulp for k in range(-200, 7)]
    edges = [-1e-3, *sorted(near[0] - 200 * ulp * (2.0**k - 1) for k in range(1, 45)), *near]
    item = {"pieces": edges, "slopes": edges, "softmax": [edges], "cells": [0.0, 1 / 3, end]}
    evidence = {"defined": [[-1]], "uses": {"1": 0}, "tables": [item]}
    circuit = {"wires": [wire], "outputs": [linear((1, "1"))]}
    found = forge(net.weights(), [text.format("x/3")], "x=0..1", circuit, evidence=evidence).verification
    score = float(steep * Fraction(end) - middle), float(Fraction(steep, 3) - middle)
    truth = 2.0**28 * (1 / (1 + math.exp(-score[0])) - 1 / (1 + math.exp(-score[1])))  # at x = 1
    assert not found or found.approximation >= truth


def one_input(width, blocks=(), readout=None, constants=(), tokens=1):
    """A model of one input; slot 0 carries it, slot 1 is the constant 1."""
    return Weights(
        inputs=("x",),
        slots=("x", "one", *(f"s{k}" for k in range(2, width))),
        tokens=tokens,
        embedding=matrix_of((tokens * width, 1), [(0, 0, 1)]),
        memory=matrix_of((tokens, width), [(0, 1, 1), *((0, k, 1) for k in constants)]),
        blocks=blocks,
        readout=readout or matrix_of((1, tokens * width), [(0, 0, 1)]),
        bias=matrix_of((1, 1)),
    )


def hidden_units():
    """Two million units that read nothing."""
    units = 100_000
    parts = (units, 2), (units, 1), (2, units), (2, 1)
    return one_input(2, (Block(Attention(()), FeedForward(*map(matrix_of, parts))),) * 20)


def many_heads():
    """A thousand heads over the same five million tokens."""
    query, key = matrix_of((3, 3), [(1, 1, 1), (2, 1, 1)]), matrix_of((3, 3), [(0, 1, 1), (1, 1, 1)])
    head = Head(query, key, matrix_of((3, 3), [(2, 1, 1)]))
    return one_input(3, (Block(Attention((head,) * 1000)),), tokens=4_900_000)


def long_sums():
    """The sum of 600 rationals of 24,000 digits has 14 million."""
    n, big = 600, fmpz(10) ** 24_000
    values = tuple(fmpq(big + 2 * k + 1, big + 2 * k) for k in range(n))
    columns = np.arange(2, n + 2, dtype=np.int32)
    readout = Matrix((1, n + 2), np.zeros(n, np.int32), columns, np.ones(n), values)
    return one_input(n + 2, readout=readout, constants=range(2, n + 2))


@pytest.mark.parametrize("made", [hidden_units, many_heads, long_sums])
def test_weights_that_take_minutes_to_read_are_out_of_resources(made):
    weights = made()
    assert is_stopped(lambda: read_network(weights))


def test_many_ranges_of_one_wire_end():
    net = Net(["x"], ["r"], [], [Layer([], [({"x.x": 1}, 0, {"r": 1})])], [{(0, "r"): 1}])
    evidence = {"defined": [[-1]], "ranges": {"1": [["u", "x", [-1]]] * 10_000}}
    found = forge(net.weights(), ["max(x, 0)"], "x=-1..10", RELU, evidence=evidence).verification
    assert found.verified


def test_a_key_that_is_null_and_unknown():
    text = outlined(one_input(2), Description("circuit", formulas=["x"], box="x=0..1", circuit={})).to_json()
    with pytest.raises(ModelFileError, match="should not have"):
        Description.from_json(json.dumps({**json.loads(text), "more": None}))


def test_a_table_that_reads_nothing():
    with pytest.raises(RefutedError, match="reads nothing"):
        CircuitReader(["x"]).read({"wires": [{"table": "1", "of": [], "from": [0, 0, 0]}], "outputs": []})


def test_a_table_of_more_axes_than_arrays_have():
    one, none = np.zeros((1, 40)), np.zeros((0, 40))
    with pytest.raises(RefutedError, match="axes"):
        as_table(HeadTable(one, one, np.ones(1), none, none, np.ones(0), np.ones(0)))


def follow(evidence):
    evidence["parts"] = {"o0": [-1]}


def test_errors_followed_to_a_constant():
    net = Net(["x"], ["r"], [], [Layer([], [({"x.x": 2.0**-60, "one": 0.5}, 0, {"r": 1})])], [{(0, "r"): 1}])
    circuit = {"wires": [{"relu": linear(plus="1/2"), "from": [0, 0, 0]}], "outputs": [linear((1, "1"))]}
    found = forge(net.weights(), ["1/2 + 0*x"], "x=0..1", circuit, change=follow).verification
    assert found
    assert found.approximation >= 2.0**-60


def test_errors_followed_along_slopes_that_underflow():
    """An argument is off by 2^996, its table has the slope 2^-545, and what the table holds counts 2^-532 times."""
    table, more = [(0.0, 0.0, 0.0), (2.0**-1011, 0.0, 2.0**468)], "(1 + 2**-16)"
    net = Net(["x"], ["w"], [table], [Layer([(0, {"x.x": 1}, "w")])], [{(0, "w"): 2.0**-532}])
    wire = {"table": "2**468/(1 + exp(-u*2**-1011))", "of": [linear((0, more))], "from": [0, 0, 0]}
    circuit = {"wires": [wire], "outputs": [linear((1, "2**-532"))]}
    truth = [2.0**-64 / (1 + math.exp(-1 - 2.0**-16))]
    text = f"2**-64/(1 + exp(-x*2**-1011*{more}))"
    assert_not_false(net, [text], "x=0..2**1012", circuit, [[2.0**1011]], truth, change=follow)


def test_errors_followed_through_a_product_of_sharp_squares():
    table = staircase(-2, 2, 64, 2.0**12, lambda u: u * u)
    net = Net(["x"], ["w"], [table], [Layer([(0, {"x.x": 1}, "w")])], [{(0, "w"): 1}], gate=-(2.0**40))
    x, square = linear((0, "1")), {"table": "u**2", "of": [linear((0, "1"))], "from": [0, 0, 0]}
    product = {"product": [x, x], "squares": [[1, "1"]], "sum": linear((1, "1"))}
    circuit = {"wires": [square, product], "outputs": [linear((2, "1"))]}
    more = {"construction": "partition", "change": follow}
    found = forge(net.weights(), ["x*x"], "x=-2..2", circuit, **more).verification
    assert "no smooth tables" in found.reasons[0]


def test_evidence_nested_almost_too_deeply_to_be_read():
    net = Net(["x"], ["w"], [[(0.0, 0.0, 1.0)]], [Layer([(0, {"x.x": 1}, "w")])], [{(0, "w"): 1}])
    one = {"table": "1 + 0*u", "of": [linear((0, "1"))], "from": [0, 0, 0]}
    circuit = {"wires": [one], "outputs": [linear((1, "1"))]}
    reasons = set()
    for depth in range(800, 1000, 4):
        evidence = {"defined": [[-1]], "uses": {"1": json.loads("[" * depth + "]" * depth)}, "tables": []}
        try:
            reasons |= {*forge(net.weights(), ["1 + 0*x"], "x=0..1", circuit, evidence=evidence).verification.reasons}
        except RecursionError:
            break
    assert reasons
    assert not any("the check stopped" in reason for reason in reasons)
