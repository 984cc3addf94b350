"""Weights forged on purpose: tokens that only computed scores can hear, and wires that err where nobody looks.

Every forgery is wrong by far more than a claim would say. It must be refused, or the bound that is proven (the
evidence is searched for the forged weights) must be at least the error that it makes when it runs.
"""

from dataclasses import replace

import numpy as np
import pytest
from flint import fmpq

import transformula as tf
from support.balls import BallTransformer
from support.forging import tried, with_values
from support.judging import largest_error
from transformula.compiler import circuit_tables as circuits_made
from transformula.compiler.evidence.finder import Finder
from transformula.errors import TransformulaError
from transformula.kernel.syntax.boxes import Formula
from transformula.runtime.matrices import matrix_of

# -- tables that go wrong where only computed arguments come ------------------------------------------------

FAR_AWAY = "x=100000.003..100000.997, y=99999.9955..100001"


def test_a_table_that_is_wrong_just_beyond_the_exact_arguments(monkeypatch):
    """In float32, x − y is off by 2^-7: a token that takes over there is within reach."""
    fitted = circuits_made._fit

    def forged(function, ends, goal, shift, dtype, most):
        table, reached = fitted(function, ends, goal, shift, dtype, most)
        steep, high = 2.0**14, ends[1]
        offset = float((table.slopes * high + table.offsets).max()) - 40 - steep * high
        wrong = circuits_made.TableTokens(
            np.append(table.slopes, [[np.float32(steep)]], axis=0),
            np.append(table.offsets, [[np.float32(offset)]], axis=0),
            np.append(table.values, [[np.float32(40)]], axis=0),
        )
        return wrong, reached

    monkeypatch.setattr(circuits_made, "_fit_once", forged)
    model = tried("sin(x - y)", FAR_AWAY, eps=0.2, dtype="float32", construction="circuit")
    model.assert_not_fooled([[100000.997, 99999.9955]], 30)


@pytest.mark.parametrize("scale", [-400, -300, 300, 400])
def test_a_scale_that_shrinks_a_range_to_a_point(scale):
    """The argument is held times 2^scale: next to nothing, or beyond all floats. The tables hold zeros."""
    model = tried("sin(10**250*x) + y", "x=0..1/10**250, y=0..1", eps=1e-3, construction="circuit")
    weights, (wire,) = model.weights, model.circuit["wires"]
    memory = weights.memory.dense()
    memory[1:, [weights.slot(f"{n}1") for n in ("slope", "offset", "value")]] = 0
    (block,) = weights.blocks
    (head,) = block.attention.heads
    rows = [(r, c, v * fmpq(2) ** scale if r == 0 else v) for r, c, v in head.query.entries()]
    attention = replace(block.attention, heads=(replace(head, query=matrix_of(head.query.shape, rows)),))
    ((form,), text) = wire["of"], wire["table"]
    scaled = {"wires": [[k, f"({c})*2**({scale})"] for k, c in form["wires"]], "plus": form["plus"]}
    assert form["plus"] == "0" and text.count("u") == 1
    circuit = model.circuit | {"wires": [wire | {"of": [scaled], "table": text.replace("u", f"(u*2**({-scale}))")}]}
    forged = model.with_weights(
        memory=with_values(weights.memory, memory), blocks=(replace(block, attention=attention),)
    )
    replace(forged, circuit=circuit).assert_not_fooled([[1e-250, 0.0]], 0.8)


# -- tokens that are silent in exact arithmetic -------------------------------------------------------------


def eavesdropper(reach, slope, bits=24):
    """(slope, gate) near the given slope whose exact sum at ``reach`` is thousands below its computed one."""
    u = np.float32(reach)
    grain = np.float32(slope) * np.float32(2.0) ** (1 - bits)
    for k in range(1, 4000):
        steep = np.float32(slope + k * float(grain))
        loud = np.float32(u * steep)
        silent = float(loud) - float(steep) * reach
        if silent > 3000:
            return float(steep), -float(loud)
    raise AssertionError("no such slope")


def with_foreign_token(weights, slope, gate, value=40.0, quieter=200.0):
    """One token more, of no table; every head's own scores lowered, and the gate before it as given."""
    width, tokens = weights.width, weights.tokens + 1
    memory = np.vstack([weights.memory.dense(), np.zeros((1, width), weights.dtype)])
    heads = [head for block in weights.blocks for head in block.attention.heads]
    slopes, offsets = (heads[0].key.cols[heads[0].key.rows == row][0] for row in (0, 1))
    data = len(weights.data_tokens)
    memory[data:-1, offsets] -= quieter
    memory[-1, slopes], memory[-1, heads[0].value.cols], memory[-1, weights.slot("gate0")] = slope, value, 1

    def gated(head):
        key = head.key.dense()
        key[-1, weights.slot("gate0")] = gate
        return replace(head, key=with_values(head.key, key))

    blocks = [
        replace(b, attention=replace(b.attention, heads=tuple(map(gated, b.attention.heads)))) for b in weights.blocks
    ]
    e, r = weights.embedding, weights.readout
    return replace(
        weights,
        tokens=tokens,
        memory=with_values(weights.memory, memory),
        embedding=replace(e, shape=(tokens * width, e.shape[1])),
        readout=replace(r, shape=(r.shape[0], tokens * width)),
        blocks=tuple(blocks),
    )


def _tried(construction, reach):
    """A small float32 model whose first argument reaches ``reach``, and points to try."""
    if construction == "memorize":
        x, y = np.array([[reach], [reach / 8]]), np.array([[1.0], [-1.0]])
        return tried(x, y, eps=1e-2, dtype="float32"), x
    box = f"x={reach / 8!r}..{reach!r}, z=-2/5..-1/5"
    points = np.array([[reach, -0.3], [reach / 2, -0.25]])
    return tried("sin(x) + cos(z)", box, eps=0.2, dtype="float32", construction=construction), points


@pytest.mark.parametrize("construction", ["lookup", "partition", "memorize", "circuit"])
@pytest.mark.parametrize(
    ("reach", "slope"),
    [(0.9, 1.3 * 2.0**39), (0.9, 1.3 * 2.0**60), (0.8, 1.7 * 2.0**38)],
    ids=["rounded scores", "huge scores", "rounded inputs"],
)
def test_a_token_that_only_computed_scores_hear(construction, reach, slope):
    """Its score is far below the others', but in float32 it is rounded upwards by thousands.

    0.8 itself is rounded upwards; 0.9 is not, and the product is.
    """
    model, points = _tried(construction, reach)
    steep, gate = eavesdropper(reach, slope)
    forged = replace(model, weights=with_foreign_token(model.weights, steep, gate))
    exact, wanted = BallTransformer(forged.weights)(points[0]), forged.truth(points)[0]
    assert all(abs(float(a.mid()) - b) < 0.3 for a, b in zip(exact, wanted, strict=True))
    forged.assert_not_fooled(points, 10)


@pytest.mark.parametrize("construction", ["lookup", "circuit"])
def test_a_token_that_only_computed_arguments_wake(construction):
    """x − y is off by 2^-7 in float32, which times 2^20 is more than the gate has to spare."""
    model = tried("sin(x - y)", FAR_AWAY, eps=0.2, dtype="float32", construction=construction)
    gate = -float(np.float32(2.0**20 * 1.0015 + 1200))
    forged = replace(model, weights=with_foreign_token(model.weights, 2.0**20, gate, quieter=0.0))
    forged.assert_not_fooled([[100000.997, 99999.9955]], 10)


# -- wires that err where the followed paths do not look ----------------------------------------------------


def test_a_coefficient_that_multiplies_errors():
    """A wire that means nearly nothing but holds 1, read a hundred times too strongly."""
    model = tried("sin(x)", "x=0..1/1000", eps=1e-5, construction="circuit")
    weights = model.weights
    memory = weights.memory.dense()
    memory[1:, [weights.slot("slope1"), weights.slot("offset1")]] = 0
    memory[1:, weights.slot("value1")] = 1
    readout = replace(weights.readout, values=weights.readout.values * 100)
    model.with_weights(memory=with_values(weights.memory, memory), readout=readout).assert_not_fooled([[0.0]], 90)


@pytest.mark.parametrize("shift", [-5.0, -0.5, 2.0])
@pytest.mark.parametrize("text", ["max(x, 0)*max(y, 0)", "max(x, y/2)**2", "exp(x)*max(x - y, 0)"])
def test_rectified_wires_moved_away_from_what_they_mean(text, shift):
    """ReLU(x − 5) is 0, and so is the product of two of them, and its derivatives."""
    model = tried(text, "x=-1..1, y=-1..1", eps=1e-3, construction="circuit")
    weights = model.weights
    (k,) = [k for k, block in enumerate(weights.blocks) if block.feed_forward is not None]
    layer = weights.blocks[k].feed_forward
    hidden = layer.hidden.dense()
    hidden[:, weights.slot("one")] += shift
    block = replace(weights.blocks[k], feed_forward=replace(layer, hidden=with_values(layer.hidden, hidden)))
    points = np.stack(np.meshgrid(*[np.linspace(-1, 1, 9)] * 2), axis=-1).reshape(-1, 2)
    forged = model.with_weights(blocks=(*weights.blocks[:k], block, *weights.blocks[k + 1 :]))
    forged.assert_not_fooled(points, 0.05)


@pytest.mark.parametrize("factor", [fmpq(1, 4), fmpq(1, 2), fmpq(3, 4)])
def test_a_square_of_a_product_that_reads_a_wrong_wire_too_weakly(factor):
    """The wire errs by 99 times what it means, and one of two squares reads less of it than the other."""
    model = tried("80*sin(x)*y", "x=-3/2..3/2, y=-1/1000..1/1000", eps=1e-4, construction="circuit")
    first, last = model.weights.blocks
    head, other = last.attention.heads
    slot = model.weights.slot("w2")
    rows = [(r, c, factor * v if c == slot else v) for r, c, v in head.query.entries()]
    heads = replace(head, query=matrix_of(head.query.shape, rows)), other
    weights = replace(model.weights, blocks=(first, replace(last, attention=replace(last.attention, heads=heads))))
    table, *others = model.circuit["wires"]
    circuit = model.circuit | {"wires": [table | {"table": "sin(u)/100"}, *others]}
    meant = Formula.of(["4*sin(x)*y/5"], "x=-3/2..3/2, y=-1/10**6..1/10**6")
    assert table["table"] == "sin(u)"
    forged = replace(model, weights=weights, circuit=circuit, evidence=Finder(), target=meant)
    forged.assert_not_fooled([[1.5, 0.0]], 0.008)


def test_tokens_nobody_attends_to_may_not_overflow():
    """Memory tokens attend too: what overflows there is 0 · nan in the next block's keys."""
    box = "x=0..1, y=0..1, z=0..1"
    honest = tried("y*sin(3*exp(x + y) - z*x)", box, eps=1e-2, dtype="float32", construction="circuit")
    weights = honest.weights
    gate = float(weights.blocks[0].attention.heads[0].key.values.min())
    for _ in range(200):
        weights = with_foreign_token(weights, 0.0, gate, value=3e38, quieter=0.0)
    assert honest.error([[0.5, 0.5, 0.5]]) < 1e-2
    replace(honest, weights=weights).assert_not_fooled([[0.5, 0.5, 0.5]], 1)


# -- honest weights at the edge of their format -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "box", "points", "options"),
    [
        ("max(x, y)/2**151", "x=0..2**126, y=0..2**126", [[2.0**126, 0.0]], {"eps": 1e-10}),
        (
            "sin(x)/2**20 + y/2**151", "x=0..1, y=0..2**126", [[0.0, 2.0**126]],
            {"eps": 1e-8, "construction": "lookup"},
        ),
        ("10**38*x - 10**38*y", "x=4..5, y=4..5", [[5.0, 5.0]], {"rel": 1e-3}),
        ("10**38*(exp(x) + exp(-y))", "x=0..5, y=0..1", [[5.0, 1.0]], {"rel": 1e-3}),
        ("10**39*x*y", "x=0..1, y=0..1", [[1.0, 1.0]], {"rel": 1e-3}),
        ("10**30*exp(x)*(1 + y)", "x=0..23, y=0..1", [[23.0, 1.0]], {"rel": 1e-3}),
    ],
)  # fmt: skip
def test_numbers_the_format_cannot_hold(text, box, points, options):
    """Coefficients that underflow, sums that overflow: refused in words, or within the bound."""
    options = {"construction": "circuit", "dtype": "float32"} | options
    try:
        model = tf.compile(text, on=box, **options)
    except TransformulaError:
        return
    x = np.array(points)
    wanted = tried(text, box, **options).truth(x)
    assert largest_error(model.weights, x, wanted) <= model.certificate.bound
