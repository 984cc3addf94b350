"""The largest error that a search finds: a lower bound of the true one, as the certificate is an upper bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.formula.evaluation import evaluate, evaluate_accurately
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr
from transformula.model import Model

_KEPT, _NEAR, _SHRINK = 24, 48, 0.75


def attacked_error(model: Model, points: int = 4_000, rounds: int = 12) -> float:
    """Largest |computed − formula| found at random points, corners and by local ascent; Arb has the last word.

    Examples
    --------
    >>> import transformula as tf
    >>> model = tf.compile("sin(x)", on="x=0..3", eps=1e-3)
    >>> 1e-5 < attacked_error(model) <= model.certificate.bound
    True
    """
    assert isinstance(model.formula, Formula), "samples are checked one by one"
    return max(_attacked(model, k, expr, points, rounds) for k, expr in enumerate(model.formula.outputs))


def _attacked(model: Model, output: int, expr: Expr, points: int, rounds: int) -> float:
    rng, names = np.random.default_rng(0), model.box.variables
    low, high = np.array(model.box.floats()).T
    low, high = np.nextafter(low, high), np.nextafter(high, low)  # float ends may lie a rounding outside

    def computed(x: NDArray[np.float64]) -> Any:
        return np.asarray(model(x), dtype=np.float64).reshape(len(x), -1)[:, output]

    def wrong(x: NDArray[np.float64]) -> Any:
        with np.errstate(all="ignore"):
            return np.nan_to_num(np.abs(computed(x) - evaluate(expr, names, list(x.T))))

    t = rng.random((points, len(low)))
    x = low + (high - low) * np.where(rng.random(t.shape) < 0.25, np.round(t), t)
    best = x[np.argsort(wrong(x))[-_KEPT:]]
    step = (high - low) / 8
    for _ in range(rounds):
        near = np.clip(best[:, None] + step * rng.uniform(-1, 1, (1, _NEAR, len(low))), low, high)
        trial = np.concatenate([best[:, None], near], axis=1)
        sizes = wrong(trial.reshape(-1, len(low))).reshape(trial.shape[:2])
        best = trial[np.arange(len(best)), sizes.argmax(axis=1)]
        step = step * _SHRINK
    truth = evaluate_accurately(expr, names, list(best.T))
    return float(np.abs(computed(best) - truth).max())
