"""The circuit proof under attack: nothing found exceeds a bound, and the bounds are not far above it.

Attacks look for the largest |T_w − f| by random points, a lattice and ascent, judged in 300 bits on the
stored weights.
"""

import numpy as np
import pytest

import transformula as tf
from support.circuit_models import SMALL
from support.claims import holds_under_attack
from support.one_layer_models import points_of, truth
from support.prover import attack_model, random_formula
from transformula.compiler.lower.additive import without_cancelled
from transformula.errors import NotProvenError

#: From the far end of the list in tests/compiler, so that two workers do not compile the same at once
CASES = ("otl_circuit", "friedman1", "test_5", "I.50.26", "I.27.6", "I.18.4", "I.12.2", "I.6.2b", "I.9.18")


@pytest.mark.parametrize("name", (*CASES, *SMALL))
def test_named_circuits_under_attack(name, circuits):
    holds_under_attack(circuits(name), least=0.1, points=4000, keep=5)


@pytest.mark.parametrize("name", ["product", "kinks", "root", "power", "distance"])
def test_float32_circuits_under_attack(name, circuits):
    model = circuits(name, "float32")
    assert attack_model(model, seed=2, points=3000) <= model.certificate.approximation
    x = points_of(model, 3000, seed=3).astype(np.float32)
    exact = np.array([[float(v.mid()) for v in truth(model, p)] for p in x[:400].astype(float)])
    inside = np.all([(x[:400, k] >= a) & (x[:400, k] <= b) for k, (a, b) in enumerate(model.box.floats())], axis=0)
    wrong = np.abs(np.asarray(model(x[:400]), dtype=float).reshape(400, -1) - exact)[inside]
    assert wrong.max() <= model.certificate.bound


@pytest.mark.parametrize("batch", [0, 2, 3])
def test_random_circuits_under_attack(batch):
    """Formulas in two to five variables, kinks in every third."""
    ratios = []
    for seed in range(9000 + 2 * batch, 9002 + 2 * batch):
        names = ["a", "b", "c", "d", "e"][: 2 + seed % 4]
        expr = without_cancelled(random_formula(seed, names, smooth=seed % 3 > 0), names)
        box = ", ".join(f"{n}=-3/4..1" for n in names if n in expr.names)
        try:
            model = tf.compile(str(expr), on=box, rel=1e-2, construction="circuit")
        except NotProvenError:
            continue
        found = attack_model(model, seed, points=2000, keep=3)
        assert found <= model.certificate.approximation, str(expr)
        assert model.certificate.bound <= model.certificate.eps
        if found > 1e-11:
            ratios.append(model.certificate.approximation / found)
    assert ratios and np.median(ratios) < 6
