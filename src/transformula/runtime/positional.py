"""Positional encodings: what is added to a token so that attention can tell positions apart.

Attention is permutation-equivariant (Gumaan section III); order enters through vectors added to the
tokens. Fixed ones live in `Weights.memory`; learned ones are the same entries, trained: the torch
executor makes ``memory`` a parameter.
"""

from __future__ import annotations

import numpy as np

from transformula.kernel.folder.weights import FloatArray


def sinusoidal(tokens: int, width: int, base: float = 10_000.0) -> FloatArray:
    """The fixed encoding of Vaswani et al. 2017: sines in even columns, cosines in odd ones.

    Examples
    --------
    >>> sinusoidal(2, 4).round(3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    positions = np.arange(tokens)[:, None]
    pairs = np.arange(width)[None, :] // 2
    angles = positions / base ** (2 * pairs / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


def learned(tokens: int, width: int, rng: np.random.Generator, scale: float = 0.02) -> FloatArray:
    """A random start for a trained encoding."""
    return rng.normal(0.0, scale, size=(tokens, width))
