"""Valid formulas that once crashed or never ended: each is compiled right, or refused in one sentence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import transformula as tf
from transformula.compiler import lookup
from transformula.errors import NotProvenError, TransformulaError

#: Formula, box, options, and what the model is compared with.
COMPILED = [
    ("x*(y/x - y/x) + sin(x*y)", "x=1..2, y=1..2", {"eps": 1e-2}, lambda x, y: np.sin(x * y)),
    ("sin(x*y) - sin(x*y)", "x=1..2, y=1..2", {}, lambda x, y: 0 * x),
    ("x*(1/y - 1/y)", "x=1..2, y=1..2", {}, lambda x, y: 0 * x),
    ("exp(0*x*y) + x*y", "x=1..2, y=1..2", {"eps": 1e-2}, lambda x, y: 1 + x * y),
    ("sin(x*y)*sin(cos(3))/cos(3)", "x=0..1, y=0..1", {"eps": 1e-2, "dtype": "float32"},
     lambda x, y: np.sin(x * y) * np.sin(np.cos(3)) / np.cos(3)),
    ("1e-200*x*1e-200*sin(y)*z", "x=0..1, y=0..1, z=0..1", {}, lambda x, y, z: 0 * x),
    ("sqrt(x*y)", "x=0..1e-200, y=0..1e200", {"rel": 1e-1}, lambda x, y: np.sqrt(x) * np.sqrt(y)),
    ("exp(-800*x)*exp(y)*sin(z)*w", "x=1..2, y=0..1, z=0..1, w=0..1", {}, lambda x, y, z, w: 0 * x),
]  # fmt: skip
REFUSED = [
    ("sin(x)*1e400", "x=0..1", {}, "not finite"),
    ("sin(x)**(10**1000)", "x=0..1", {}, "256 bits"),
    ("sin(x)", "x=1e16..1e16+1", {}, "hardly any numbers"),
    ("sin(x)", "x=0..1e39", {"dtype": "float32"}, "beyond float32's range"),
    (f"sin({' + '.join(f'x{k}' for k in range(1, 11))})**20", "x1..x10=0..1", {}, "normal form is too long"),
    ("x**y", "x=0..2, y=1..2", {"eps": 1e-1, "construction": "lookup"}, "unbounded|no proof was found"),
    ("2*10**307*erf(3*x)", "x=-1..1", {"eps": 6e295, "construction": "lookup"}, "no table"),
    ("sin(x)", "x=0..1", {"eps": 5e-324}, "the best bound is"),
    (
        "x*abs(y)",
        "x=1e-308..2e-308, y=1e295..2e295",
        {"eps": 4e-16},
        "leave an error|range of floats|rounding alone is more",
    ),
]


@pytest.mark.parametrize(("formula", "box", "options", "truth"), COMPILED, ids=[case[0] for case in COMPILED])
def test_is_compiled(formula: str, box: str, options: dict, truth) -> None:
    model = tf.compile(formula, box, **options)
    low, high = np.array(model.box.floats()).T
    x = np.random.default_rng(0).uniform(low, high, (200, len(low)))
    assert np.abs(model(x) - truth(*x.T)).max() <= model.certificate.bound
    assert tf.verify(model).verified


@pytest.mark.parametrize(("formula", "box", "options", "said"), REFUSED, ids=[case[0] for case in REFUSED])
def test_is_refused_in_one_sentence(formula: str, box: str, options: dict, said: str, capfd) -> None:
    with warnings.catch_warnings(), pytest.raises(TransformulaError, match=said) as caught:
        warnings.simplefilter("error")
        tf.compile(formula, box, **options)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    assert not capfd.readouterr().err  # LAPACK complains there about numbers that are not finite


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("SVD did not converge"), ZeroDivisionError(), OverflowError()])
def test_an_attempt_whose_arithmetic_fails_is_one_that_failed(error: Exception, monkeypatch) -> None:
    def fails(*_):
        raise error

    monkeypatch.setattr(lookup, "one_layer_spec", fails)
    with pytest.raises(NotProvenError, match="left the range of floats"):
        tf.compile("sin(x)", "x=0..1", eps=1e-3, construction="lookup")
    assert tf.compile("sin(x)", "x=0..1", eps=1e-3).construction != "lookup"
