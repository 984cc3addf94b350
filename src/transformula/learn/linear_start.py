"""Where training begins: a linear model, so that what validation keeps is no worse than that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transformula.learn.distinct_rows import Floats
from transformula.learn.solvers.exact_fit import fit_exact
from transformula.learn.training import Batchable

#: What is left of random parameters whose outputs would be added to the linear model.
ALMOST_NOTHING = 1e-3


@dataclass(frozen=True)
class LinearStart:
    """offset + x·slopes, with slopes (inputs, outputs)."""

    slopes: Floats
    offset: Floats

    @classmethod
    def of(cls, data: Batchable) -> LinearStart:
        """Least squares on the training rows, its penalty chosen by leave-one-out."""
        X, Y, weight = (t.cpu().double().numpy() for t in (data.x, data.y, data.weight))
        fit = fit_exact(X, Y, 1, weight=weight)
        offset = fit.predict(np.zeros((1, X.shape[1])))
        return cls(fit.predict(np.eye(X.shape[1])) - offset, offset[0])
