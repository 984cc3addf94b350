"""How close a claim is: no attack exceeds it, and a smaller one does not verify."""

import copy
from typing import Any

import numpy as np

import transformula as tf
from support.folders import Opened, open_model
from support.prover import attack_model
from transformula.kernel.check import verify_files


def refuses_a_hair_less(data: Opened) -> None:
    """What is proven is verified, and the next smaller number is not."""
    proven = verify_files(*data.forged())
    for name in ("approximation", "rounding"):
        changed = copy.deepcopy(data)
        changed.claim[name] = float(np.nextafter(getattr(proven, name), 0))
        result = verify_files(*changed.forged())
        assert not result.verified and f"{name}:" in " ".join(result.reasons)


def holds_under_attack(model: Any, least: float, points: int, keep: int) -> None:
    """What an attack finds is within the bound, at least such a part of it; a bound below it does not verify."""
    found = attack_model(model, seed=1, points=points, keep=keep)
    assert least * model.certificate.approximation <= found <= model.certificate.approximation
    assert tf.verify(model).verified
    tighter = open_model(model)
    tighter.claim["approximation"] = 0.99 * found
    assert not verify_files(*tighter.forged()).verified
