"""The measured difference between another executor and the reference: a test of a proof, never a part of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from transformula import proven
from transformula.errors import NotProvenError
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.kernel.folder.weights import Weights
from transformula.kernel.syntax.boxes import Formula
from transformula.runtime import reference
from transformula.runtime.matrices import leading_tokens

if TYPE_CHECKING:
    from transformula.model import Model

#: Numbers of random points (most and fewest) and of corners.
_MOST_POINTS = 2000
_FEWEST_POINTS = 64
_MOST_CORNERS = 256
#: Numbers that all points together may compute, and floats of one chunk.
_NUMBERS = 50_000_000
_CHUNK_FLOATS = 4_000_000


def sample_points(target: Formula | Samples | Prompts, weights: Weights) -> NDArray[Any]:
    """Corners of the box and random points in it, or a memorised model's own samples, in its dtype."""
    if isinstance(target, Samples):
        return target.x.astype(weights.dtype)
    low, high = np.array(target.box.floats()).T
    rng = np.random.default_rng(0)
    if 2 ** len(low) <= _MOST_CORNERS:
        corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
    else:
        corners = np.where(rng.random((_MOST_CORNERS, len(low))) < 0.5, low, high)
    cost = weights.tokens * weights.width * max(1, len(weights.blocks))
    count = min(max(_NUMBERS // cost, _FEWEST_POINTS), _MOST_POINTS)
    inside = low + (high - low) * rng.random((count, len(low)))
    return np.concatenate([corners, inside]).astype(weights.dtype)


def largest_difference(
    weights: Weights,
    x: NDArray[Any],
    run: Callable[[NDArray[Any]], NDArray[Any]],
    asking: int | None = None,
) -> float:
    """max |run(x) − reference(x)|, in chunks of bounded memory; NaN if a result is not a number.

    ``asking`` is the number of tokens with queries in the executor, by default those that depend on the input.
    """
    asking = leading_tokens(weights) if asking is None else asking
    step = max(1, _CHUNK_FLOATS // (weights.tokens * (4 * weights.width + asking)))
    largest = 0.0
    for start in range(0, len(x), step):
        rows = x[start : start + step]
        wanted = reference.run(weights, rows).astype(np.float64)
        found = np.asarray(run(rows), dtype=np.float64).reshape(wanted.shape)
        largest = float(np.maximum(largest, np.abs(found - wanted).max()))  # np.maximum keeps NaN
    return largest


def measured_parity(
    model: Model, run: Callable[[NDArray[Any]], Any], runtime: str, rounding: float, asking: int | None = None
) -> dict[str, Any]:
    """The measured difference beside the proven bound; refused if two correct executors cannot differ by it."""
    x = sample_points(model.formula, model.weights)
    parity = largest_difference(model.weights, x, run, asking)
    most = rounding + model.certificate.rounding
    if not parity <= most:
        raise NotProvenError(
            f"{runtime} differs from the reference by {parity:.3g}, where two correct executors differ by "
            f"at most {most:.3g}: nothing was written"
        )
    return {
        "runtime": runtime,
        "points": len(x),
        "parity": parity,
        proven.named(model.certificate, "rounding"): rounding,
        "within_rounding": parity <= rounding,
    }
