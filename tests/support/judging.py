"""A judge of forged models: whatever is wrong by more than it claims must be refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from support.folders import Opened
from support.one_layer_models import points_of, truth
from transformula.errors import RefutedError
from transformula.kernel.check import verify_files
from transformula.kernel.folder.model_files import Packed, unpack
from transformula.kernel.folder.weights import Weights
from transformula.runtime import reference
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.weights_program import read_tables


def runs(weights: Weights, x: np.ndarray) -> list[np.ndarray]:
    """Outputs by the definition and by every fast path that takes the weights."""
    with np.errstate(all="ignore"):
        found = [reference.run(weights, x)]
        with suppress(RefutedError):
            found.append(run_numpy(read_tables(weights), x))
    return [values.astype(float) for values in found]


def largest_error(weights: Weights, x: np.ndarray, wanted: np.ndarray) -> float:
    """Of whatever runs the weights; what is not a number is infinitely wrong."""
    wrong = np.abs(np.array(runs(weights, x)) - wanted)
    return float(np.where(np.isnan(wrong), np.inf, wrong).max())


class Judge:
    """Fails where a change beyond the claim is not refused; counts what was tried."""

    def __init__(self, model: Any, count: int = 50) -> None:
        self.model = model
        self.x = points_of(model, count, seed=4)
        self.wanted = np.array([[float(v.mid()) for v in truth(model, p)] for p in self.x])
        self.tried = self.beyond = 0

    def error(self, packed: Packed) -> float:
        """How wrong changed weights are at some points of the box."""
        return largest_error(unpack(packed)[0], self.x, self.wanted)

    def __call__(self, changed: Opened, what: object) -> None:
        """Judge one change."""
        self.tried += 1
        packed, claim = changed.forged()
        wrong = self.error(packed)
        if wrong > self.model.certificate.bound:
            self.beyond += 1
            result = verify_files(packed, claim)
            assert not result.verified and result.reasons, (what, wrong)
