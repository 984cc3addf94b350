"""Weights laid out number by number whose values are a given power of two: claims about them are simple, and true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from flint import fmpq

import transformula as tf
from support.forging import with_values
from support.kernel_models import memory_weights, ridge_weights
from support.nets import Layer, Net, linear
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.weights import Attention, Block, Head, Matrix, Weights
from transformula.runtime.matrices import dense_matrix, matrix_of

Made = tuple[Weights, Description]
#: Exponents of subnormal and tiny numbers, of numbers that are small, and next to overflow.
EXPONENTS = {"float64": (-1060, -1021, -300, 1010, 1015, 1020), "float32": (-140, -125, -40, 112, 119, 124)}


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def text(value: Any) -> str:
    """An exact number as the kernel reads it."""
    value = Fraction(value)
    return f"({value.numerator}/{value.denominator})"


def exact(value: Fraction) -> fmpq:
    return fmpq(value.numerator, value.denominator)


def _inverse(exponent: int, dtype: str) -> Fraction:
    """A factor that brings 2^exponent back to about 1, as far as the dtype has one."""
    most = {"float64": 1022, "float32": 126}[dtype]
    return power(max(-most, min(most, -exponent)))


def _tables(net: Net, formulas: list[str], functions: list[tuple[str, Any]], factors: list[Any]) -> Made:
    """Heads in one layer that all read x, read out with factors."""
    wires = [{"table": f, "of": [linear((0, "1"))], "from": place} for f, place in functions]
    outputs = [linear(*((1 + k, text(c)) for k, c in enumerate(factors)))]
    return net.weights(), Description("lookup", formulas, "x=-1..1", circuit={"wires": wires, "outputs": outputs})


def equal_tokens(exponent: int, dtype: str, tokens: int = 20) -> Made:
    """A table of one value, which many tokens hold: products are added up before they are divided."""
    value = float(power(exponent))
    net = Net(["x"], ["w"], [[(0.0, 0.0, value)] * tokens], [Layer([(0, {"x.x": 1}, "w")])], [{(0, "w"): 1}], [0])
    return _tables(replace(net, dtype=dtype), [text(value)], [(text(value), [0, 0, 0])], [1])


def steep_scores(exponent: int, dtype: str) -> Made:
    """The same with scores up to where exponentials overflow; an anchor among them."""
    far, value = {"float64": 690.0, "float32": 80.0}[dtype], float(power(exponent))
    rows = [(far * k / 4, 0.0, value) for k in range(-4, 5)]
    net = Net(["x"], ["w"], [rows], [Layer([(0, {"x.x": 1}, "w")])], [{(0, "w"): 1}], [0])
    return _tables(replace(net, dtype=dtype), [text(value)], [(text(value), [0, 0, 0])], [1])


def foreign_tokens(exponent: int, dtype: str) -> Made:
    """A small table behind many tokens that no head reads: more than a fused kernel takes at a time."""
    rows = [(0.0, 0.0, float(power(exponent)))] * 600
    net = Net(["x"], ["w"], [rows, [(0.0, 0.0, 1.0)] * 2], [Layer([(1, {"x.x": 1}, "w")])], [{(0, "w"): 1}], [0])
    return _tables(replace(net, dtype=dtype), ["1"], [("1", [0, 0, 0])], [1])


def logistic(exponent: int, dtype: str) -> Made:
    """A table of two values, each held by several tokens, and a table of 1: the first is scaled back."""
    values, back = (-float(power(exponent)), float(power(exponent))), _inverse(exponent, dtype)
    rows = [(slope, 0.5, value) for slope, value in zip((-1.0, 1.0), values, strict=True) for _ in range(10)]
    heads = [(0, {"x.x": 1}, "w"), (1, {"x.x": 1}, "v")]
    outputs = [{(0, "w"): exact(back), (0, "v"): 1}]
    net = Net(["x"], ["w", "v"], [rows, [(0.0, 0.0, 1.0)]], [Layer(heads)], outputs, [0], dtype=dtype)
    function = f"{text(values[1])}*tanh(u)"
    formula = f"{text(back)}*({function.replace('u', 'x')}) + 1"
    return _tables(net, [formula], [(function, [0, 0, 0]), ("1", [0, 1, 0])], [back, 1])


def two_layers(exponent: int, dtype: str) -> Made:
    """A table that reads a scaled table."""
    value, back = float(power(exponent)), _inverse(exponent, dtype)
    rows = [[(-1.0, 0.0, -value), (1.0, 0.0, value)] * 5, [(-1.0, 0.0, -1.0), (1.0, 0.0, 1.0)] * 5]
    layers = [Layer([(0, {"x.x": 1}, "w")]), Layer([(1, {"w": exact(back)}, "v")])]
    net = Net(["x"], ["w", "v"], rows, layers, [{(0, "v"): 1}], [0], dtype=dtype)
    wires = [
        {"table": f"{text(value)}*tanh(u)", "of": [linear((0, "1"))], "from": [0, 0, 0]},
        {"table": "tanh(u)", "of": [linear((1, text(back)))], "from": [1, 0, 0]},
    ]
    circuit = {"wires": wires, "outputs": [linear((2, "1"))]}
    formula = f"tanh({text(back)}*({text(value)}*tanh(x)))"
    return net.weights(), Description("circuit", [formula], "x=-1..1", circuit=circuit)


def rectified(exponent: int, dtype: str) -> Made:
    """A ReLU of a large or tiny multiple, scaled back."""
    factor, back = power(exponent) / 3, _inverse(exponent, dtype)
    layers = [Layer([], [({"x.x": exact(factor)}, 0, {"r": 1})])]
    net = Net(["x"], ["r"], [], layers, [{(0, "r"): exact(back)}], [0], dtype=dtype)
    wires = [{"relu": linear((0, text(factor))), "from": [0, 0, 0]}]
    circuit = {"wires": wires, "outputs": [linear((1, text(back)))]}
    formula = f"{text(back)}*max({text(factor)}*x, 0)"
    return net.weights(), Description("circuit", [formula], "x=-1..1", circuit=circuit)


def wide_queries(exponent: int, dtype: str) -> Made:
    """A memory of eight inputs up to 2^exponent: exports multiply their queries by 16."""
    value = float(power(exponent))
    x = np.array([[value] * 8, [-value] * 8])
    weights = memory_weights(np.sign(x), [[1.0], [2.0]], 1.0, dtype)
    memory = weights.memory.dense()
    for k in range(8):
        slope, offset = (weights.slot(f"{part}{k}") for part in ("slope", "offset"))
        memory[1:, slope], memory[1:, offset] = np.sign(x[:, k]) * float(_inverse(max(exponent, 0), dtype)) * 100, 0
    made = replace(weights, memory=with_values(weights.memory, memory))
    return made, Description("memorize", samples={"x": x.tolist(), "y": [[1.0], [2.0]]})


def memories(exponent: int, dtype: str) -> Made:
    """Samples with one large or tiny value."""
    x = np.arange(30.0)[:, None]
    y = np.full((30, 1), float(power(exponent)))
    stated = Description("memorize", samples={"x": x.tolist(), "y": y.tolist()})
    return memory_weights(x, y, 200.0, dtype, gate=-(2.0**20)), stated


def faint_words(exponent: int, dtype: str) -> Made:
    """A word that is far smaller than those beside it, scaled back: exponentials that are raised to 2η would count."""
    x, word = np.arange(3.0)[:, None], power(-abs(exponent) + 4)
    y = np.array([[float(word)], [1.0], [1.0]])
    weights = memory_weights(x, y, 2000.0, dtype, gate=-(2.0**20))
    readout = [(row, column, exact(1 / word)) for row, column, _ in weights.readout.entries()]
    made = replace(
        weights,
        readout=matrix_of(weights.readout.shape, readout, dtype),
        bias=matrix_of((1, 1), [(0, 0, fmpq(1, 2))], dtype),  # no whole number: outputs are rounded
    )
    return made, Description("compact", samples={"x": [[0.0]], "y": [[1.5]]})


def coefficients(exponent: int, dtype: str) -> Made:
    """A polynomial of small arguments: by Horner's rule coefficients are added before they are multiplied."""
    large, small = 15 * power(exponent), Fraction(1, 8)
    weights = ridge_weights(("x",), [{0: small}], {(0, 0, s): large for s in range(1, 9)}, [0], dtype)
    formula = "+".join(f"{text(large)}*({text(small)}*x)**{s}" for s in range(1, 9))
    return weights, Description("polynomial", [formula], "x=-1..1")


def lone_token(exponent: int, dtype: str) -> Made:
    """Linear attention of one token, which holds one number."""
    value, back = power(exponent), _inverse(exponent, dtype)

    def number(v: Fraction) -> Matrix:
        return matrix_of((1, 1), [(0, 0, exact(v))], dtype)

    one = number(Fraction(1))
    weights = Weights(
        inputs=("x",),
        slots=("s",),
        tokens=1,
        embedding=number(value),
        memory=dense_matrix(np.array([[float(value)]]), dtype),
        blocks=(Block(Attention((Head(one, one, one, one),), "linear")),),
        readout=number(back),
        bias=matrix_of((1, 1), [], dtype),
        dtype=dtype,
    )
    plain = replace(weights, **{n: replace(getattr(weights, n), exact=None) for n in ("embedding", "readout")})
    (block,) = plain.blocks
    (head,) = block.attention.heads
    parts = {n: replace(getattr(head, n), exact=None) for n in ("query", "key", "value", "output")}
    plain = replace(plain, blocks=(replace(block, attention=Attention((Head(**parts),), "linear")),))
    held = f"({text(value)}*x + {text(value)})"
    return plain, Description("linear-attention", [f"{text(back)}*({held} + {held}**3)"], "x=-1..1")


#: name: the compiled model that is scaled, by formula, box and construction.
COMPILED = {
    "table": ("erf(4*x)", "x=-1..1", "lookup"),
    "grid": ("sin(x)*exp(y)", "x=-1..1, y=-1..1", "lookup"),
    "cells": ("sin(x) + 1", "x=-1..1", "partition"),
    "cells of a plane": ("x*y + 1", "x=0..1, y=0..1", "partition"),
}


@cache
def compiled(name: str, dtype: str) -> tf.Model:
    formula, box, construction = COMPILED[name]
    eps = 0.3 if construction == "partition" else 1e-3 if dtype == "float64" else 1e-2
    return tf.compile(formula, on=box, eps=eps, construction=construction, dtype=dtype)


def scaled(name: str, exponent: int, dtype: str) -> Made:
    """A compiled layer whose largest value is next to 2^exponent: values, readout and formula times a power of two."""
    model = compiled(name, dtype)
    weights, circuit, inputs = model.weights, model.description.circuit, model.box.dimension
    (head,), memory = weights.blocks[0].attention.heads, weights.memory.dense().astype(np.float64)
    column, slot = int(head.value.cols[0]), int(head.value.rows[0])
    more = exponent - int(np.frexp(np.abs(memory[:, column]).max())[1])
    memory[:, column] = np.ldexp(memory[:, column], more)
    times, factor = text(power(more)), exact(power(more))
    readout = [(r, c, v if c % weights.width == slot else v * factor) for r, c, v in weights.readout.entries()]
    made = replace(
        weights,
        memory=with_values(weights.memory, memory),
        readout=matrix_of(weights.readout.shape, readout, dtype),
        bias=matrix_of(weights.bias.shape, [(r, c, v * factor) for r, c, v in weights.bias.entries()], dtype),
    )
    (wire,), (output,) = circuit["wires"], circuit["outputs"]
    terms = [[k, c if k >= inputs else f"({c})*{times}"] for k, c in output["wires"]]
    stated = circuit | {
        "wires": [wire | {"table": f"({wire['table']})*{times}"}],
        "outputs": [{"wires": terms, "plus": f"({output['plus']})*{times}"}],
    }
    formulas = [f"({formula})*{times}" for formula in model.formula.texts]
    return made, Description(model.construction, formulas, str(model.box), circuit=stated)


#: name: weights and what is said of them, for an exponent and a dtype.
FORGED: dict[str, Callable[[int, str], Made]] = {
    "equal tokens": equal_tokens,
    "steep scores": steep_scores,
    "foreign tokens": foreign_tokens,
    "two values": logistic,
    "two layers": two_layers,
    "ReLU": rectified,
    "wide queries": wide_queries,
    "memories": memories,
    "faint words": faint_words,
    "coefficients": coefficients,
    "lone token": lone_token,
    **{name: (lambda exponent, dtype, name=name: scaled(name, exponent, dtype)) for name in COMPILED},
}
