"""Where to cut the box so that the flow of errors is bounded tightly: a tree of halvings."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from transformula.budget import checkpoint, spend
from transformula.compiler.evidence import costs
from transformula.kernel.enclosures.regions import halfway

Floats = NDArray[np.float64]
Bound = Callable[[Floats, Floats], Floats]

#: Parts that a search may look at, and how much worse than the worst still deserves a cut.
_MAX_PARTS = 1500
_WORTH = 0.85
_ROUNDS = 40
#: A round looks at the bound once for each input, and a look takes longer the more there are.
_MAX_LOOKS = 4000
#: Parts that are bounded in one go: few at a time cost what the interpreter costs, many leave the cache.
_MAX_TOGETHER = 2000
_ENOUGH = 0.98


def find_parts(bound: Bound, lower: Floats, upper: Floats, terms: int = 0) -> list[int]:
    """The tree of `cut_parts`."""
    return _search(_counted(bound, terms), lower, upper)[0]


def cut_parts(bound: Bound, lower: Floats, upper: Floats, terms: int = 0) -> tuple[Floats, Floats]:
    """Parts of the box, shape (inputs, parts), cut where a bound is largest until that no longer helps.

    ``terms`` is the size of the circuit that the bound runs through (`costs.terms_of`).
    """
    return _search(_counted(bound, terms), lower, upper)[1:]


def _counted(bound: Bound, terms: int) -> Bound:
    """The bound, which counts its work and can be stopped."""

    def counted(lower: Floats, upper: Floats) -> Floats:
        checkpoint()
        spend(costs.flow(terms, lower.shape[1]))
        return bound(lower, upper)

    return counted


def _search(bound: Bound, lower: Floats, upper: Floats) -> tuple[list[int], Floats, Floats]:
    """Cut the box where a bound is largest, until cutting no longer helps.

    Parameters
    ----------
    bound : from (inputs, parts) ends to a bound on each part.
    lower, upper : the box, shape (inputs,).
    """
    low, high = lower[:, None], upper[:, None]
    cuts: dict[int, tuple[int, int, int]] = {}  # node → axis, left child, right child
    nodes = np.zeros(1, dtype=np.int64)
    bounds = bound(low, high)
    history = [float(bounds.max())]
    for _ in range(min(_ROUNDS, _MAX_LOOKS // len(lower) ** 2)):
        worst = bounds >= _WORTH * bounds.max()
        if low.shape[1] + worst.sum() > _MAX_PARTS or not worst.any():
            break
        axis, cuttable = _cut_axis(bound, low[:, worst], high[:, worst])
        worst[np.flatnonzero(worst)[~cuttable]] = False
        axis = axis[cuttable]
        if not len(axis):
            break
        first = 2 * len(cuts) + 1 + 2 * np.arange(len(axis))
        for node, along, child in zip(nodes[worst].tolist(), axis.tolist(), first.tolist(), strict=True):
            cuts[node] = along, child, child + 1
        cut_low, cut_high = _halved(low[:, worst], high[:, worst], axis)
        kept = ~worst
        bounds = np.concatenate([bounds[kept], bound(cut_low, cut_high)])
        low = np.concatenate([low[:, kept], cut_low], axis=1)
        high = np.concatenate([high[:, kept], cut_high], axis=1)
        nodes = np.concatenate([nodes[kept], first, first + 1])
        history.append(float(bounds.max()))
        if len(history) > len(lower) + 2 and history[-1] > _ENOUGH * history[-len(lower) - 3]:
            break
    return _preorder(cuts), low, high


def _preorder(cuts: dict[int, tuple[int, int, int]]) -> list[int]:
    tree, stack = [], [0]
    while stack:
        node = stack.pop()
        if node in cuts:
            axis, left, right = cuts[node]
            tree.append(axis)
            stack += [right, left]
        else:
            tree.append(-1)
    return tree


def _cut_axis(bound: Bound, low: Floats, high: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The input whose width costs most: with it fixed at its middle, the bound is smallest."""
    middle = low + (high - low) / 2
    inputs, parts = low.shape
    least, along = np.full(parts, math.inf), np.full(parts, -1)
    together = max(1, _MAX_TOGETHER // parts)
    for first in range(0, inputs, together):
        axes = range(first, min(first + together, inputs))
        flat_low, flat_high = np.tile(low, len(axes)), np.tile(high, len(axes))
        for k, axis in enumerate(axes):
            flat_low[axis, k * parts : (k + 1) * parts] = flat_high[axis, k * parts : (k + 1) * parts] = middle[axis]
        for axis, here in zip(axes, bound(flat_low, flat_high).reshape(len(axes), parts), strict=True):
            better = (here < least) & (low[axis] < middle[axis]) & (middle[axis] < high[axis])
            least, along = np.where(better, here, least), np.where(better, axis, along)
    return along, along >= 0


def _halved(low: Floats, high: Floats, axis: NDArray[np.int64]) -> tuple[Floats, Floats]:
    left_high, right_low = high.copy(), low.copy()
    for part, along in enumerate(axis.tolist()):
        middle = halfway(float(low[along, part]), float(high[along, part]))
        left_high[along, part] = right_low[along, part] = middle
    return np.concatenate([low, right_low], axis=1), np.concatenate([left_high, high], axis=1)
