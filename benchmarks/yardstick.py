"""How many tokens a rational function would need: the yardstick for tables of one variable.

A softmax table of M tokens whose scores are equally spaced, h x apart, is a rational function of degree M - 1 in e**(h x), and
for small h one in x. The AAA algorithm (Nakatsukasa, Sète, Trefethen 2018; scipy) finds rational functions close to the
best of their degree, here in x and in e**(h x) for a range of h; the least degree of all counts. It is not a minimax: the
best may do with a degree less. A table's own scores need not be equally spaced, so it may also need fewer tokens.

A table's weights are positive, though, and so are the coefficients of its denominator in e**(h x): a polynomial of degree
n with positive coefficients has no zeros within an angle of pi/n around the positive axis. That rules out most of
what AAA finds. For a given h, "|P - f Q| <= eps Q at all points, coefficients of Q >= 0" is a linear programme, so the
best of these is found for certain, as far as the solver's digits go.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import AAA
from scipy.optimize import linprog

from transformula.budget import one_thread
from transformula.formula.evaluation import evaluate_accurately
from transformula.kernel.syntax.boxes import Formula

#: h times the length of the interval; 0 stands for x itself.
SPACINGS = (0.0, 1.0, 4.0, 16.0, 64.0, 200.0)
_POINTS, _MOST = 900, 40
#: The lengths of the interval times the largest slope, for positive denominators.
REACHES = (4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 100.0)
#: Below this part of the largest value the programmes are not solved reliably.
DIGITS = 1e-8


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


def positive_tokens_for(formula: str, box: str, eps: float, least: int) -> int | None:
    """Tokens, ``least`` or more, of the smallest table with equally spaced scores for an error of eps at the points.

    None if that is beyond what the solver can tell.
    """
    parsed = Formula.of(formula, box)
    ((low, high),) = parsed.box.floats()
    x = points(low, high)[::3]
    y = evaluate_accurately(parsed.outputs[0], parsed.box.variables, [x])
    if eps < DIGITS * np.abs(y).max():
        return None
    t = (2 * x - low - high) / (high - low)
    return next((m for m in range(least, _MOST) if any(_is_within(t, y, m, reach, eps) for reach in REACHES)), None)


def _is_within(t: NDArray[np.float64], y: NDArray[np.float64], tokens: int, reach: float, eps: float) -> bool:
    """Whether a table with slopes evenly from -reach/2 to reach/2 has such an error."""
    below = np.exp(np.outer(t, np.linspace(-reach / 2, reach / 2, tokens)) - np.abs(t)[:, None] * reach / 2)
    above = np.linalg.qr(below)[0] * np.sqrt(len(t))
    rows = np.block([[above, -(y + eps)[:, None] * below], [-above, (y - eps)[:, None] * below]]) / eps
    scale = np.concatenate([np.zeros(tokens), below.mean(axis=0)])[None]
    free = [(None, None)] * tokens + [(0, None)] * tokens
    found = linprog(np.zeros(2 * tokens), rows, np.zeros(len(rows)), scale, [1.0], free, method="highs")
    return bool(found.status == 0)
