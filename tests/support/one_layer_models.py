"""One table of one-layer models, every kind and both dtypes, compiled when first asked for."""

from functools import cache

import numpy as np
from flint import arb, ctx

import transformula as tf
from transformula.kernel.enclosures.balls import enclose

_RNG = np.random.default_rng(5)
SAMPLES = _RNG.normal(size=(24, 2)), _RNG.normal(size=(24, 2))

#: name: formula, box, eps in float64, eps in float32, options
FORMULAS = {
    "one variable": ("sin(x)", "x=-1..2", 1e-6, 1e-4, {}),
    "softmax itself": ("tanh(50*x)", "x=-1..1", 1e-9, 1e-3, {}),
    "singular end": ("sqrt(x)", "x=0..1", 1e-2, 2e-2, {}),
    "two heads": ("exp(x) + cos(2*y)", "x=-1..1, y=0..1", 1e-5, 1e-3, {}),
    "linear forms": ("sin(3*x + y) + exp(y/3 - x)", "x=0..1, y=-1/2..1/3", 1e-4, 1e-2, {}),
    "kinks": ("exp(x) + abs(y - 1/3) - 2*max(x, y/3) + pi", "x=-1..1, y=-1..1", 1e-5, 1e-3, {}),
    "no table": ("min(x, y/7) - 3*x + 1/3", "x=-1..1, y=-2..5", 1e-9, 1e-4, {}),
    "two outputs": (["sin(x) + y", "cos(x)*y", "y - x"], "x=-1..1, y=0..1", 1e-4, 1e-2, {}),
    "two variables": ("x*exp(-x*y)", "x=0..1, y=0..2", 1e-4, 1e-2, {}),
    "three variables": ("cos(x + y*z)", "x=-1..1, y=-1..1, z=0..1", 1e-2, 3e-2, {}),
    "partition": ("sin(x) + exp(y)", "x=0..3, y=-1..1", 0.05, 0.1, {"construction": "partition"}),
    "partition in two": ("x*sin(y)", "x=0..1, y=0..2", 0.1, 0.2, {"construction": "partition"}),
    "partition of a form": ("sin(2*x + y)", "x=0..1, y=0..1", 0.02, 0.1, {"construction": "partition"}),
    "sorting": (["min(x1, x2)", "max(x1, x2)"], "x1..x2=-1..1", 0.02, 0.02, {"shape": (2, 1)}),
    "sequence": (["sin(x1)*x2", "exp(x1) + abs(x2)"], "x1..x2=-1..1", 1e-3, 1e-2, {"shape": (2, 1)}),
    "wide sequence": (
        ["sin(a) + d", "exp(b/2)", "cos(c - d) - 1/3", "max(a, d)"],
        "a=-1..1, b=0..1, c=-1..1, d=-1..2", 1e-4, 1e-2, {"shape": (2, 2)},
    ),
    "sequence by cells": (
        ["sin(x1)", "exp(x2) + x1"], "x1..x2=-1..1", 0.1, 0.2, {"shape": (2, 1), "construction": "partition"},
    ),
}  # fmt: skip
NAMES = (*FORMULAS, "memorize")
DTYPES = ("float64", "float32")


@cache
def model_named(name: str, dtype: str = "float64") -> tf.Model:
    if name == "memorize":
        return tf.memorize(*SAMPLES, eps=1e-6 if dtype == "float64" else 1e-3, dtype=dtype)
    formula, box, fine, coarse, options = FORMULAS[name]
    eps = fine if dtype == "float64" else coarse
    return tf.compile(formula, on=box, eps=eps, dtype=dtype, **({"construction": "lookup"} | options))


def points_of(model: tf.Model, count: int = 12, seed: int = 0) -> np.ndarray:
    """Samples of a memorised model; else random points, corners and the middle of the box, float64."""
    if model.construction == "memorize":
        return model.formula.x
    low, high = np.array(model.box.floats()).T
    # float ends may lie a rounding outside an end such as pi
    low, high = np.nextafter(low, high), np.nextafter(high, low)
    t = np.random.default_rng(seed).random((count, len(low)))
    return np.concatenate([low + (high - low) * t, [low, high, (low + high) / 2]])


def truth(model: tf.Model, point: np.ndarray) -> list[arb]:
    """The formula (or the sample's target) at a float point."""
    before, ctx.prec = ctx.prec, 300
    try:
        if model.construction == "memorize":
            row = int(np.argmin(np.abs(model.formula.x - point).sum(axis=1)))
            return [arb(float(v)) for v in model.formula.y[row]]
        known = {n: arb(float(v)) for n, v in zip(model.box.variables, point, strict=True)}
        return [enclose(e, known) for e in model.formula.outputs]
    finally:
        ctx.prec = before
