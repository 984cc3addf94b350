"""How many tokens a rational function would need: the yardstick for tables of one variable.

A softmax table of M tokens whose scores are equally spaced, h x apart, is a rational function of degree M - 1 in e**(h x), and
for small h one in x. The AAA algorithm (Nakatsukasa, Sète, Trefethen 2018; scipy) finds rational functions close to the
best of their degree, here in x and in e**(h x) for a range of h; the least degree of all counts. It is not a minimax: the
best may do with a degree less. A table's own scores need not be equally spaced, so it may also need fewer tokens.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import AAA

from transformula.formulas.numeric import evaluate_accurately
from transformula.kernel.boxes import Formula
from transformula.threads import one_thread

#: h times the length of the interval; 0 stands for x itself.
SPACINGS = (0.0, 1.0, 4.0, 16.0, 64.0, 200.0)
_POINTS, _MOST = 900, 40


def points(low: float, high: float) -> NDArray[np.float64]:
    """Chebyshev points, and as many that crowd geometrically at either end."""
    half = (high - low) / 2
    crowd = half * np.geomspace(1e-16, 1, _POINTS // 3)
    inner = (low + high) / 2 - half * np.cos(np.linspace(0, np.pi, _POINTS // 3))
    return np.unique(np.concatenate([inner, low + crowd, high - crowd]).clip(low, high))


def errors_by_tokens(formula: str, box: str) -> NDArray[np.float64]:
    """The least sampled error of a rational function that corresponds to 1, 2, .. tokens."""
    parsed = Formula.of(formula, box)
    ((low, high),) = parsed.box.floats()
    x = points(low, high)
    y = evaluate_accurately(parsed.outputs[0], parsed.box.variables, [x])
    best = np.full(_MOST, np.inf)
    for spacing in SPACINGS:
        z = np.exp(spacing * (x - high) / (high - low)) if spacing else x
        z, kept = np.unique(z, return_index=True)  # what falls together is one point
        if len(z) < len(x) / 2:
            continue
        with warnings.catch_warnings(), one_thread():
            warnings.simplefilter("ignore", RuntimeWarning)  # it does not converge: that is what is measured
            found = np.asarray(AAA(z, y[kept], rtol=0, max_terms=_MOST, clean_up=False).errors)
        best[: len(found)] = np.minimum(best[: len(found)], found)
    return np.minimum.accumulate(best)


def tokens_for(errors: NDArray[np.float64], eps: float) -> int | None:
    """The least tokens for an error of at most eps, or None if there are too few digits to tell."""
    enough = np.flatnonzero(errors <= eps)
    return int(enough[0]) + 1 if len(enough) else None
