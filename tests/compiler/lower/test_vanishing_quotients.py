"""Limits at an edge and across a diagonal: compiled, proven again, and measured next to where they vanish."""

import mpmath
import numpy as np
import pytest

import transformula as tf
from transformula.errors import NotProvenError

# formula, box, tolerance, and its continuous extension in mpmath
LIMITS = [
    ("x*log(x)", "x=0..1", 1e-6, lambda x: x * mpmath.log(x) if x else 0),
    ("-x*log2(x)", "x=0..1", 1e-6, lambda x: -x * mpmath.log(x, 2) if x else 0),
    ("-p*log(p) - (1 - p)*log(1 - p)", "p=0..1", 1e-4,
     lambda p: -sum(q * mpmath.log(q) for q in (p, 1 - p) if q)),
    ("x*log(x/y)", "x=0..1, y=1..2", 1e-3, lambda x, y: x * mpmath.log(x / y) if x else 0),
    ("r/(1 - (1 + r)^(-10))", "r=0..0.2", 1e-6, lambda r: r / -mpmath.expm1(-10 * mpmath.log1p(r)) if r else 0.1),
    ("r/(1 - (1 + r)^(-n))", "r=0..0.2, n=5..30", 1e-3,
     lambda r, n: r / -mpmath.expm1(-n * mpmath.log1p(r)) if r else 1 / n),
    ("log(1 - x)/log(1 + x)", "x=-0.5..0.5", 1e-6, lambda x: mpmath.log1p(-x) / mpmath.log1p(x) if x else -1),
    ("(exp(x) - exp(y))/(x - y)", "x=0..1, y=0..1", 1e-6,
     lambda x, y: mpmath.exp(y) * (mpmath.expm1(x - y) / (x - y) if x != y else 1)),
    ("(x - y)/(log(x) - log(y))", "x=1..2, y=1..2", 1e-5,
     lambda x, y: (x - y) / mpmath.log1p((x - y) / y) if x != y else y),
    ("(sqrt(x) - sqrt(y))/(x - y)", "x=1..2, y=1..2", 1e-5, lambda x, y: 1 / (mpmath.sqrt(x) + mpmath.sqrt(y))),
    ("(x^3 - y^3)/(x - y)", "x=0..2, y=0..2", 1e-6, lambda x, y: x * x + x * y + y * y),
    ("sin(2*x)/sin(x)", "x=-1..1", 1e-6, lambda x: 2 * mpmath.cos(x)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "box", "eps", "truth"), LIMITS)
def test_a_limit_is_proven_and_met(text, box, eps, truth):
    model = tf.compile(text, on=box, eps=eps)
    assert tf.verify(model).verified
    rng = np.random.default_rng(3)
    (low, high), d = np.array(model.formula.box.floats()).T, model.formula.box.dimension
    x = rng.uniform(low, high, (300, d))
    near = np.clip(x[:, :1] + rng.choice([0.0, 1e-300, 1e-16, -1e-9, 1e-4], (300, d)), low, high)  # next to x = y
    edge = low + (high - low) * rng.choice([0.0, 1e-300, 1e-17, 1e-8, 0.5, 1.0], (300, d))
    points = np.concatenate([x, near, edge])
    with mpmath.workdps(60):
        wanted = np.array([float(truth(*map(mpmath.mpf, row))) for row in points.tolist()])
    assert np.abs(np.ravel(model(points)) - wanted).max() <= model.certificate.bound


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("x*log(x)", "x=-1..1"),  # undefined on half of the box
        ("log(x)", "x=0..1"),
        ("log(x)*sin(x)", "x=-0.1..1"),
        ("log(x)/x", "x=0..1"),
        ("x*y/(x + y)", "x=-1..1, y=0..1"),  # a pole on x = -y
        ("(x^2 + y)/(x - y)", "x=0..1, y=0..1"),
        ("(exp(x) + exp(y))/(x - y)", "x=0..1, y=0..1"),
    ],
)
def test_what_has_no_limit_is_refused(text, box):
    with pytest.raises(NotProvenError, match="undefined"):
        tf.compile(text, on=box, eps=1e-2)
