"""A selection of terms beside the linear model of all variables."""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from transformula.learn.solvers.exact_fit import ExactFit, judged_line
from transformula.learn.solvers.features import Floats
from transformula.learn.solvers.penalty import INTERPOLATED, ROUNDING, clearly_better


def better_line(features: Floats, X: Floats, y: Floats, w: Floats) -> ExactFit | None:
    """The linear model, if it is better by leave-one-out than least squares on these features: (rows, k).

    Half a standard error decides. The features were selected on the same rows, which flatters them; where they are the
    truth, the linear model is taken once in a hundred times (one or two effects among ten variables, 200 rows).
    """
    root, mean = np.sqrt(w), w @ y / w.sum()
    q = qr(features * root[:, None], mode="economic")[0]
    residual = root * (y - mean) - q @ (q.T @ (root * (y - mean)))
    left = np.maximum(1.0 - np.sum(q**2, axis=1), INTERPOLATED)
    losses = (residual / left) ** 2 / max(float(w @ (y - mean) ** 2), 1e-300)
    if losses.sum() <= ROUNDING:
        return None
    line, of_line = judged_line(X, y[:, None], w)
    return line if clearly_better(of_line, losses, errors=0.5) else None
