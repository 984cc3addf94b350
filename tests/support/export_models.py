"""One model of every construction, both dtypes, and points of its box: what exports are tested on."""

from functools import cache

import numpy as np

import transformula as tf
from support.in_context_models import learner
from support.layer_models import layered
from support.one_layer_models import model_named

POLYNOMIALS = {
    "polynomial": (["x*y*z - x/7 + 1/3"], False),
    "polynomial, several heads": (["x**4 - y*z**2"], True),
    "polynomial, several outputs": (["x*y", "z**3 - y", "2 - x"], False),
}
ONE_LAYER = {
    "lookup": "two heads",
    "lookup with kinks": "kinks",
    "lookup in two variables": "two variables",
    "lookup, several outputs": "two outputs",
    "partition": "partition",
    "memorize": "memorize",
    "sequence": "wide sequence",
}
CIRCUITS = {"circuit": "kinks", "circuit, several outputs": "two outputs"}
LAYERS = {"attention only": "attention only", "local polynomials": "local lines"}
IN_CONTEXT = {
    "gradient steps": "descent",
    "ridge": "mild ridge",
    "lasso": "lasso",
    "looped lasso": "looped lasso",
    "kernel": "kernel",
    "recurrence": "recurrence",
}
ATTENTION = {"linear attention": "one head", "linear attention, each token": "each token"}
MEANS = ("yun",)
#: Those that have no program beside their blocks.
BLOCKS_ONLY = (*IN_CONTEXT, *ATTENTION, *MEANS)
NAMES = (*POLYNOMIALS, *ONE_LAYER, *CIRCUITS, *LAYERS, *BLOCKS_ONLY)


@cache
def _polynomial(name: str, dtype: str) -> tf.Model:
    formulas, multi_head = POLYNOMIALS[name]
    return tf.compile(formulas, on="x=-1..2, y=0..3, z=-1/3..1/2", multi_head=multi_head, dtype=dtype)


@cache
def _mean(name: str, dtype: str) -> tf.Model:
    return tf.compile(["x*y", "x - y"], on="x=0..1, y=-1..1", eps=0.2, construction=name, dtype=dtype)


def exported(name: str, dtype: str, circuits) -> tf.Model:
    """The model; ``circuits`` is the shelf of the fixture with that name."""
    if name in POLYNOMIALS:
        return _polynomial(name, dtype)
    if name in MEANS:
        return _mean(name, dtype)
    if name in IN_CONTEXT:
        return learner(IN_CONTEXT[name], dtype)
    if name in ATTENTION:
        from support.attention_models import attention_model  # scikit-learn and scipy, which a GPU machine may lack

        return attention_model(ATTENTION[name], dtype)
    if name in LAYERS:
        return layered(LAYERS[name], dtype)
    return circuits(CIRCUITS[name], dtype) if name in CIRCUITS else model_named(ONE_LAYER[name], dtype)


def rows_of(model: tf.Model, count: int, seed: int = 0) -> np.ndarray:
    """Random points of the box (a memorised model's samples, repeated), in the model's dtype."""
    if model.construction == "memorize":
        return np.resize(model.formula.x, (count, model.formula.x.shape[1])).astype(model.weights.dtype)
    low, high = np.array(model.box.floats()).T
    x = np.random.default_rng(seed).uniform(low, high, size=(count, len(low)))
    return x.astype(model.weights.dtype)
