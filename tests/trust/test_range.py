"""Next to overflow and underflow a model is refused, or every runtime is within its claim.

Runtimes take their operations in different orders: values are added up before or after they are divided by the sum of
the weights, fused kernels add up the tokens of other heads, Horner's rule adds coefficients, exports scale queries, and
exponentials next to underflow are raised. What the kernel proves has to cover all of them.
"""

import random
from itertools import product

import numpy as np
import pytest
from flint import arb

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import transformula as tf
from support.edge_models import COMPILED, EXPONENTS, FORGED, logistic, power, text, two_layers
from support.runtimes import errors, outside_claim, sealed
from transformula.errors import NotProvenError, TransformulaError
from transformula.export.stock_packing import HEAD_DIMS
from transformula.kernel.rounding.formats import FORMATS, QUERY_FACTOR
from transformula.runtime.program.numpy_backend import scores_kept
from transformula.runtime.program.packed_steps import lowest_score

pytestmark = pytest.mark.usefixtures("no_advice")
DTYPES = ("float64", "float32")
#: name: formula, box, tolerance relative to the scale, construction
HONEST = {
    "polynomial": ("x**3 - x*y/3 + 1/7", "x=-1..1, y=-2..2", 1e-4, "polynomial"),
    "corollary": ("exp(x)", "x=-1..1", 0.05, "polynomial"),
    "lookup": ("sin(3*x) + x/7", "x=-1..1", 1e-3, "lookup"),
    "grid": ("sin(x)*exp(y)", "x=-1..1, y=-1..1", 1e-2, "lookup"),
    "partition": ("sin(x) + 1", "x=-1..1", 0.5, "partition"),
    "circuit": ("exp(x)*sin(y) + x/(2 + y)", "x=-1..1, y=-1..1", 1e-2, "circuit"),
    "attention only": ("x*sin(y) + abs(x - 1/3)", "x=0..1, y=0..2", 1, "attention-only"),
    "local polynomials": ("1/(1 + 25*x**2)", "x=-1..1", 0.1, "local-polynomials"),
    "yun": ("x*y", "x=0..1, y=0..1", 0.3, "yun"),
}
#: Scales near the ends of the range at which something is proven; beyond them honest formulas are refused, after a while.
SCALES = {"float64": ("1e250", "1e306"), "float32": ("1e-36", "1e30", "3e37")}
TINY = ("polynomial", "circuit")
#: Tables whose values leave the range of float64 while they are fitted: no scale here gives a model.
REFUSED = {("lookup", "float64"), ("grid", "float64")}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORGED)
def test_forged_models_next_to_the_ends_of_the_range(name, dtype):
    """The same folder with moderate numbers is verified: it is the range that is refused."""
    exponents = EXPONENTS[dtype][2:] if name in COMPILED else EXPONENTS[dtype]  # tables of tiny values are slow
    assert not outside_claim(sealed(*FORGED[name](0, dtype)))
    for exponent in exponents:
        try:
            model = sealed(*FORGED[name](exponent, dtype))
        except TransformulaError:
            continue
        assert not outside_claim(model), exponent


@pytest.mark.parametrize(("name", "dtype"), [pair for pair in product(HONEST, DTYPES) if pair not in REFUSED])
def test_formulas_next_to_the_ends_of_the_range(name, dtype):
    formula, box, eps, construction = HONEST[name]
    proven = 0
    for scale in (*SCALES[dtype], *(("1e-307",) if name in TINY and dtype == "float64" else ())):
        try:
            model = tf.compile(
                f"({formula})*{text(scale)}", on=box, eps=eps * float(scale), construction=construction, dtype=dtype
            )
        except TransformulaError:
            continue
        proven += 1
        assert not outside_claim(model), scale
    assert proven


@pytest.mark.parametrize("dtype", DTYPES)
def test_samples_next_to_the_ends_of_the_range(dtype):
    x, proven = np.random.default_rng(0).uniform(-1, 1, (40, 2)), 0
    for exponent in (0, *EXPONENTS[dtype]):
        y = np.ldexp(np.random.default_rng(1).uniform(-1, 1, 40).astype(dtype).astype(float), exponent)
        try:
            model = tf.memorize(x, y, eps=float(power(exponent - 10)), dtype=dtype)
        except TransformulaError:
            continue
        proven += 1
        assert not outside_claim(model), exponent
    assert proven > 2


def test_kernel_regression_of_large_targets():
    """All targets are the same, and so is the answer; a fused kernel adds them up first. A task has 60 digits."""
    pairs, features, proven = 40, 2, 0
    for exponent in (0, *EXPONENTS["float32"]):
        y = float(power(exponent))
        try:
            model = tf.in_context("kernel", pairs=pairs, features=features, y=text(y).strip("()"), dtype="float32")
        except NotProvenError:
            continue
        proven += 1
        points = np.random.default_rng(2).uniform(-1, 1, (6, (pairs + 1) * features))
        split = pairs * features
        rows = np.concatenate([points[:, :split], np.full((6, pairs), y), points[:, split:]], axis=1)
        found = errors(model, rows, [[arb(y)]] * len(rows))
        assert max(found.values()) <= model.certificate.bound, found
    assert proven > 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_powers_of_two(dtype):
    """Tables of two values, read out or read by others, anywhere in the range."""
    draw, (low, *_, high) = random.Random(7), EXPONENTS[dtype]
    for make in (logistic, two_layers):
        for exponent in (draw.randint(low, high) for _ in range(6)):
            try:
                model = sealed(*make(exponent, dtype))
            except TransformulaError:
                continue
            assert not outside_claim(model, count=6), (make, exponent)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_kernel_assumes_of_executors(dtype):
    """Queries are multiplied by no more, and exponentials raised no further, than its rules count."""
    import torch

    assert max(HEAD_DIMS) <= QUERY_FACTOR**2
    raised = (
        np.exp(scores_kept(np.dtype(dtype))),
        np.exp(np.dtype(dtype).type(lowest_score(getattr(torch, dtype)))),
    )
    assert all(FORMATS[dtype].normal <= arb(float(e)) <= FORMATS[dtype].faint for e in raised)
