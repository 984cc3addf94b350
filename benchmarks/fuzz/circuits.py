"""Circuits in three states: what is meant (the formula), what the weights hold, and what an adversary's floats compute.

The weights of a circuit are changed, and in half of the cases its constants too, so that it means another formula. What
the kernel still proves must hold at every point tried: the approximation between the first two states, the rounding
between the last two. Formats of few digits make the rounding large, and so every term of its bound counts.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flint import fmpq

from fuzz.cases import Case, fuzzer
from fuzz.rounded import Blocks, Rounding
from fuzz.values import Unknown, Value, put
from transformula.budget import OutOfWork, limited
from transformula.compiler.attempts import Built, Findings
from transformula.compiler.certify import outlined
from transformula.compiler.circuit import circuits_of
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.prepare import Prepared
from transformula.errors import TransformulaError
from transformula.kernel.check import prove
from transformula.kernel.folder.description import Description, Proof
from transformula.kernel.folder.weights import Block, Head, Matrix, Weights
from transformula.kernel.rounding.formats import FORMATS, FloatFormat
from transformula.kernel.syntax.boxes import Formula
from transformula.runtime.matrices import dense_matrix, matrix_of
from truth import Domain

#: One after the other: first those in which the adversary comes closest to the bound.
FORMULAS = (
    ("exp(x) + 50", "x=-1..1"),
    ("abs(3*x/7 - 5*y/11)", "x=-1..1, y=-1..1"),
    ("max(3*x/7, 5*y/11 - 1/3)", "x=-1..1, y=-1..1"),
    ("log(x)", "x=1/10..1"),
    ("x*y", "x=-1..1, y=-1..1"),
    ("max(x*y, x - 1/4)", "x=-1..1, y=0..1"),
    ("sqrt(x**2 + y**2)", "x=-1..1, y=-1..1"),
    ("sqrt(x)*y + x", "x=0..1, y=-1..1"),
    ("x/(1 + y**2)", "x=-1..1, y=0..1"),
    ("sin(x)*y + max(x, y)", "x=-1..1, y=0..1"),
    ("sqrt((x*y)**2 + sin(x)**2)*y", "x=-1..1, y=-1..1"),
    ("sin(3*sqrt(x**2 + y**2)) + x*y", "x=-1..1, y=-1..1"),
    ("exp(-abs(x*y))*cos(x)", "x=-1..1, y=-1..1"),
    ("sqrt(abs(x*y))", "x=-1..1, y=-1..1"),
    ("acos(x)*y", "x=-1..1, y=-1..1"),
    ("log(x*y)", "x=1/10..1, y=1/10..1"),
    ("max(sin(x), cos(y), x*y)", "x=-1..1, y=-1..1"),
    ("x*y*z*sin(x)", "x=-1..1, y=-1..1, z=0..1"),
    ("tanh(3*x*y)*abs(x - y)", "x=-1..1, y=-1..1"),
    ("sqrt(1 - x*x)*y", "x=-1..1, y=-1..1"),
    ("abs(x*y - sin(x))*y", "x=-1..1, y=-1..1"),
    ("exp(x*y*(1 - x*y) - x*y)", "x=0..1, y=0..1"),
    ("cos(3*x*y) + sin(x + 2*y)", "x=-1..1, y=-1..1"),
    ("100*sin(x)*y", "x=-3/2..3/2, y=-1/100..1/100"),
)
#: Binary digits of the formats, and how much numbers are changed.
DIGITS, STRENGTHS = (10, 12, 14, 18, 24), (0.0, 1e-3, 1e-2, 0.1, 0.3)
#: Points, steps of the adversary in each direction, and seconds of work for one proof.
POINTS, STEPS, SECONDS = 60, 3, 3.0


@lru_cache
def built(formula: str, box: str, eps: float) -> Built | None:
    """The first circuit for a formula, if one can be built."""
    target = Formula.of([formula], box)
    try:
        return next(circuits_of(Prepared(target), eps, "float32", Findings(), 1, target.box.variables)).build()
    except TransformulaError:
        return None


@contextmanager
def few_digits(digits: int) -> Iterator[None]:
    """float32 with a shorter significand."""
    before = FORMATS["float32"]
    FORMATS["float32"] = FloatFormat("float32", digits, before.largest_exponent)
    try:
        yield
    finally:
        FORMATS["float32"] = before


# -- changes of weights and constants ----------------------------------------------------------------------------------


def _factor(rng: random.Random, strength: float) -> fmpq:
    return fmpq(round((1 + strength * rng.uniform(-1, 1)) * 2**20), 2**20)


def _scaled(matrix: Matrix, rng: random.Random, strength: float, rows: Sequence[int] | None = None) -> Matrix:
    """Half of the entries (of some rows) changed."""
    entries = [
        (r, c, v * _factor(rng, strength) if rng.random() < 0.5 and (rows is None or r in rows) else v)
        for r, c, v in matrix.entries()
    ]
    return matrix_of(matrix.shape, entries, str(matrix.values.dtype))


def changed(weights: Weights, rng: random.Random, strength: float) -> Weights:
    """Other queries, feed-forward layers, readout or table values."""
    which = rng.choice(("queries", "layers", "readout", "values", "all"))

    def head(old: Head) -> Head:
        asking = range(0, old.query.shape[0] - 1, 2)  # the other rows read the constant 1
        return replace(old, query=_scaled(old.query, rng, strength, asking))

    def block(old: Block) -> Block:
        heads = tuple(map(head, old.attention.heads)) if which in ("queries", "all") else old.attention.heads
        layer = old.feed_forward
        if layer is not None and which in ("layers", "all"):
            layer = type(layer)(*(_scaled(matrix, rng, strength) for matrix in vars(layer).values()))
        return Block(replace(old.attention, heads=heads), layer)

    weights = replace(weights, blocks=tuple(map(block, weights.blocks)))
    if which in ("readout", "all"):
        weights = replace(weights, readout=_scaled(weights.readout, rng, strength))
    if which in ("values", "all"):
        memory = weights.memory.dense()
        columns = sorted({c for b in weights.blocks for h in b.attention.heads for c in h.value.cols.tolist()})
        memory[:, columns] *= [[1 + strength * rng.uniform(-1, 1) for _ in columns] for _ in memory]
        weights = replace(weights, memory=dense_matrix(memory, weights.dtype))
    return weights


def other_constants(circuit: dict[str, Any], rng: random.Random, strength: float) -> dict[str, Any]:
    """The circuit with other constants in arguments, functions and outputs; products stay products."""
    circuit = copy.deepcopy(circuit) | {"extends": []}

    def move(linear: dict[str, Any]) -> None:
        for pair in linear["wires"]:
            if rng.random() < 0.4:
                pair[1] = f"({pair[1]})*({_factor(rng, strength)})"
        if rng.random() < 0.2:
            linear["plus"] = f"({linear['plus']}) + ({_factor(rng, strength) - 1})"

    for wire in circuit["wires"]:
        if wire.get("table", "u**2") != "u**2":  # squares serve products
            wire["table"] = put(
                rng.choice(("f", "(f)*c", "(f)/64", "f + c")), f=wire["table"], c=str(_factor(rng, strength))
            )
            move(wire["of"][0])
        elif "relu" in wire:
            move(wire["relu"])
        elif "norm" in wire:
            move(rng.choice(wire["norm"]))
    for output in circuit["outputs"]:
        move(output)
    return circuit


def meaning(circuit: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The formulas that a circuit stands for."""
    known = list(names)

    def said(linear: dict[str, Any]) -> str:
        return " + ".join([f"({c})*({known[k]})" for k, c in linear["wires"]] + [f"({linear['plus']})"])

    for wire in circuit["wires"]:
        if "table" in wire:
            known.append(put(wire["table"], u=said(wire["of"][0])))
        elif "relu" in wire:
            known.append(f"max({said(wire['relu'])}, 0)")
        elif "product" in wire:
            known.append("*".join(f"({said(factor)})" for factor in wire["product"]))
        else:
            known += ["0"] * len(wire["folds"])  # the ReLUs of a length, which nothing else reads
            known.append(f"sqrt({' + '.join(f'({said(side)})**2' for side in wire['norm'])})")
    return [said(output) for output in circuit["outputs"]]


# -- the three states --------------------------------------------------------------------------------------------------


@fuzzer
def circuits(case: Case) -> None:
    """Change a circuit, prove it again, and look for points and rounding errors that contradict the proof."""
    rng = case.rng
    (formula, box), eps, digits = FORMULAS[case.seed % len(FORMULAS)], rng.choice((0.01, 0.1)), rng.choice(DIGITS)
    base = built(formula, box, eps)
    if base is None or base.circuit is None:
        return
    weights, circuit, texts = changed(base.weights, rng, rng.choice(STRENGTHS)), base.circuit, [formula]
    if rng.random() < 0.5:
        circuit = other_constants(circuit, rng, rng.choice(STRENGTHS))
        texts = meaning(circuit, base.weights.inputs)
    case.given = f"{formula} at {eps}, {digits} digits, meant as {texts[0]}"
    with few_digits(digits):
        proof = _proof(weights, Description("circuit", texts, box, circuit=circuit), base.evidence, rng)
    if proof is not None:
        _attack(case, weights, texts, box, proof, digits)


def _proof(weights: Weights, description: Description, known: Finder, rng: random.Random) -> Proof | None:
    evidence = Finder(known.wires if rng.random() < 0.7 else None, known.singular, True, known.trees)
    try:
        with limited(SECONDS):
            return prove(weights, outlined(weights, description), evidence)
    except (TransformulaError, OutOfWork):
        return None


def _attack(case: Case, weights: Weights, texts: list[str], box: str, proof: Proof, digits: int) -> None:
    domain = Domain(box)
    points = domain.points(np.random.default_rng(case.seed), POINTS)
    x, blocks, exact = torch.from_numpy(points), Blocks(weights), Rounding(0.0, digits)
    with torch.no_grad():
        held = blocks.run(x, exact)
    slack = 1e-9 * (1 + float(held.abs().max()))  # of these float64
    wrong = _meant(texts, domain.names, points) - held.numpy()
    largest = float(np.nanmax(np.abs(wrong), initial=0.0))
    case.check("the formula is defined", not np.isposinf(wrong).any())
    case.check("the weights hold what is meant", largest <= proof.approximation + slack, f"{largest} for {proof}")
    for sign in (1, -1):
        fl = Rounding(2.0**-digits, digits)
        for _ in range(STEPS):
            fl.follow(sign * blocks.run(x, fl).sum())
            largest = float((blocks.run(x, fl).detach() - held).abs().max())
            case.check(
                "floats compute what the weights hold", largest <= proof.rounding + slack, f"{largest} for {proof}"
            )


def _meant(texts: list[str], names: Sequence[str], points: Any) -> Any:
    """The formulas at the points: infinite where undefined, nan where that is unknown."""

    def at(text: str, point: Any) -> float:
        try:
            value = Value(text).at(dict(zip(names, map(Fraction, point), strict=True)))
        except Unknown:
            return float("nan")
        return float("inf") if value is None else float(value)

    return np.array([[at(text, point) for text in texts] for point in points.tolist()])
