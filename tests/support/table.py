"""One table of models for all executors: compiled polynomials and hand-made softmax Transformers."""

from dataclasses import dataclass
from functools import cache

import numpy as np

import transformula as tf
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.runtime.matrices import dense_matrix, sinusoidal

POLYNOMIALS = {
    "line": ("3*x - 1/3", "x=-1..1"),
    "square sum": ("x**2 + y**2", "x=-10..10, y=-10..10"),
    "product": ("x*y*z - x/7 + pi", "x=-1..2, y=0..3, z=-1/3..1/2"),
    "f2": (
        "x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4 + 3*x5**2 + 2*x6*x7*x8 + 2*x9",
        "x1..x9=-3..3",
    ),
    "three outputs": (["x*y", "x**3 - y", "2 - x"], "x=-2..1, y=5..6"),
    "degree nine": ("(x - 2*y)**9/1000 + x**4", "x=-1..1, y=-1..1"),
    "constant": ("x - x + 2/3", "x=0..1"),
}


@dataclass(frozen=True)
class Case:
    """Weights and inputs to run them on."""

    name: str
    weights: Weights
    x: np.ndarray

    @property
    def is_rational(self) -> bool:
        return all(b.attention.kind != "softmax" for b in self.weights.blocks)


def compiled(name: str, multi_head: bool = False, dtype: str = "float64") -> Case:
    formula, box = POLYNOMIALS[name]
    model = tf.compile(formula, on=box, multi_head=multi_head, dtype=dtype)
    low, high = np.array(model.box.floats()).T
    x = np.random.default_rng(0).uniform(low, high, size=(40, len(low)))
    return Case(f"{name}{' multi-head' if multi_head else ''} {dtype}", model.weights, x.astype(dtype))


def attention_only() -> Case:
    """Two softmax layers; tables that cancel, as those of products do, are compared within their proven rounding."""
    model = tf.compile("x*exp(-y)", on="x=-1..1, y=0..1", eps=0.3, construction="attention-only")
    x = np.random.default_rng(1).uniform([-1, 0], [1, 1], size=(40, 2))
    return Case("attention only", model.weights, x)


def _random(rng, *shape, dtype="float64") -> Matrix:
    return dense_matrix(rng.normal(size=shape) / np.sqrt(shape[-1]), dtype)


def random_block(rng, width, heads, depth, units, kind="softmax", projected=True, scale=None) -> Block:
    def head() -> Head:
        rows = depth if projected else width
        return Head(
            _random(rng, depth, width),
            _random(rng, depth, width),
            _random(rng, rows, width),
            _random(rng, width, depth) if projected else None,
        )

    layer = None
    if units:
        shapes = ((units, width), (units, 1), (width, units), (width, 1))
        layer = FeedForward(*(_random(rng, *s) for s in shapes))
    scale = 1 / np.sqrt(depth) if scale is None else scale
    return Block(Attention(tuple(head() for _ in range(heads)), kind, float(scale)), layer)


def hand_made(name: str, blocks, inputs=2, tokens=5, width=6, outputs=2, memory=None) -> Case:
    rng = np.random.default_rng(len(name))
    memory = rng.normal(size=(tokens, width)) if memory is None else memory
    weights = Weights(
        inputs=tuple(f"x{k}" for k in range(inputs)),
        slots=tuple(f"s{k}" for k in range(width)),
        tokens=tokens,
        embedding=_random(rng, tokens * width, inputs),
        memory=dense_matrix(memory),
        blocks=tuple(blocks),
        readout=_random(rng, outputs, tokens * width),
        bias=_random(rng, outputs, 1),
    )
    return Case(name, weights, rng.normal(size=(30, inputs)))


@cache
def table() -> tuple[Case, ...]:
    """Every case, built once."""
    rng = np.random.default_rng(7)
    cases = [compiled(name, multi) for name in POLYNOMIALS for multi in (False, True)]
    cases.append(attention_only())
    cases += [
        hand_made("one softmax head", [random_block(rng, 6, 1, 3, 0)]),
        hand_made("softmax heads with feed-forward", [random_block(rng, 6, 3, 2, 9) for _ in range(2)]),
        hand_made("softmax without output projection", [random_block(rng, 6, 2, 4, 5, projected=False)]),
        hand_made(
            "sinusoidal positions", [random_block(rng, 6, 2, 3, 4)], memory=sinusoidal(5, 6)
        ),
        hand_made(
            "learned positions", [random_block(rng, 6, 2, 3, 4)], memory=rng.normal(0.0, 0.02, size=(5, 6))
        ),
        hand_made("random hardmax", [random_block(rng, 6, 2, 3, 4, "hardmax", scale=0.5)]),
        hand_made("hardmax then softmax", [
            random_block(rng, 6, 1, 3, 4, "hardmax", scale=1.0), random_block(rng, 6, 2, 3, 4)
        ]),
        hand_made("random linear", [random_block(rng, 6, 2, 3, 4, "linear", scale=0.5) for _ in range(2)]),
        hand_made("linear then softmax", [
            random_block(rng, 6, 2, 3, 0, "linear"), random_block(rng, 6, 2, 3, 4, projected=False)
        ]),
        hand_made("no blocks", []),
    ]  # fmt: skip
    return tuple(cases)


NAMES = tuple(case.name for case in table())
