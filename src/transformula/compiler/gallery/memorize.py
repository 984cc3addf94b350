"""Any finite map, one memory token per sample (Gumaan section VI: memorisation).

Scores λ(c_j·x − |c_j|²/2), values y_j: at x = c_i token i leads token j by λ|c_i − c_j|²/2, so with
smallest separation s the others share at most N e^{−λ s²/2} of the weight. λ is the smallest that makes
that harmless for the tolerance; a common shift of all slopes (centring) keeps the scores small.
"""

from __future__ import annotations

import math

import numpy as np
from flint import fmpq

from transformula.compiler import policy
from transformula.compiler.layout import HeadSpec, OneLayerSpec, TableTokens, assemble
from transformula.errors import InputError
from transformula.formula.sample_target import Samples
from transformula.kernel.folder.weights import Weights


def construct_memorize(samples: Samples, eps: float, dtype: str) -> Weights:
    """Weights whose value at every sample is within the tolerance."""
    x, y = samples.x.astype(dtype).astype(float), samples.y
    count, inputs = x.shape
    if count > policy.MAX_SAMPLES:
        raise InputError(f"{count} samples are too many for one table; at most {policy.MAX_SAMPLES}")
    spread = float(2 * np.abs(y).max()) or 1.0
    separation = _smallest_separation(x)
    needed = math.log(8 * count * spread / eps) if count > 1 else 0.0
    # 1.01: the slopes and offsets are rounded to floats
    scale = 1.01 * 2 * max(needed, 1.0) / separation**2 if count > 1 else 0.0
    centre = x.mean(axis=0)
    slopes = (scale * (x - centre)).astype(dtype).astype(float)
    squares = ((x - centre) * (x + centre)).sum(axis=1)
    offsets = np.zeros_like(slopes)
    offsets[:, 0] = (-0.5 * scale * squares).astype(dtype)
    table = TableTokens(slopes, offsets, y.astype(dtype).astype(float))
    reads = tuple({f"x.{name}": 1} for name in samples.variables)
    writes = tuple(f"y{k + 1}" for k in range(y.shape[1]))
    head = HeadSpec(0, 0, reads, tuple(np.abs(x).max(axis=0).tolist()), writes)
    zero = ((fmpq(0),) * inputs, fmpq(0))
    return assemble(OneLayerSpec(samples.variables, [zero] * len(writes), [table], [head], dtype=dtype))


def _smallest_separation(x: np.ndarray) -> float:  # type: ignore[type-arg]
    if len(x) < 2:
        return 1.0
    distance, first, second = closest_pair(x)
    if not distance > 0:
        raise InputError(f"rows {first} and {second} are the same point in this dtype: use float64")
    return distance


def closest_pair(x: np.ndarray) -> tuple[float, int, int]:  # type: ignore[type-arg]
    """The smallest distance between two rows, and which they are.

    Rows are sorted along one direction. Two rows are at least as far apart as their places along it, so only
    those that are close there are compared: neighbours, then those two places apart, and so on.
    """
    direction = np.random.default_rng(0).standard_normal(x.shape[1])  # no ties for points of a lattice
    along = x @ (direction / np.linalg.norm(direction))
    order = np.argsort(along, kind="stable")
    along, sorted_rows = along[order], x[order]
    slack = 1e-12 * float(np.abs(along).max())  # rounding of the places
    best = (math.inf, 0, 0)
    for step in range(1, len(x)):
        near = np.flatnonzero(along[step:] - along[:-step] <= best[0] + slack)
        if not len(near):
            break
        apart = np.linalg.norm(sorted_rows[near + step] - sorted_rows[near], axis=1)
        k = int(np.argmin(apart))
        if apart[k] < best[0]:
            first, second = sorted((int(order[near[k]]), int(order[near[k] + step])))
            best = (float(apart[k]), first, second)
    return best
