"""The definition of a Transformer with given weights, in NumPy.

The papers' equations, one line each, for reading and as the yardstick of the faster executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformula.errors import InputError
from transformula.kernel.folder.weights import (
    Attention,
    Block,
    FeedForward,
    FloatArray,
    IntArray,
    Weights,
)

#: Scores of a chunk, in floats (32 megabytes); softmax holds four such arrays at once.
CHUNK_FLOATS = 4_000_000
#: Size of a trace, in floats (four gigabytes).
MAX_TRACE = 500_000_000


@dataclass(frozen=True, eq=False)
class Trace:
    """The residual stream before and after each block, and the attention patterns.

    Shapes: ``residuals[b]`` is samples × tokens × width (b = 0 is the embedding), ``patterns[b][h]`` is
    samples × tokens (queries) × tokens (keys), ``outputs`` is samples × outputs.
    """

    residuals: tuple[FloatArray, ...]
    patterns: tuple[tuple[FloatArray, ...], ...]
    outputs: FloatArray


def run(weights: Weights, x: FloatArray, dtype: Any = None) -> FloatArray:
    """Evaluate samples × inputs to samples × outputs, in chunks of samples and of asking tokens.

    Whatever the number of tokens n, only the streams (samples of a chunk × n × width) and `CHUNK_FLOATS` scores are
    held at a time, never n × n of them.
    """
    x = np.asarray(x, dtype=dtype or weights.dtype)
    out = np.empty((len(x), weights.outputs), dtype=x.dtype)
    read = np.unique(weights.readout.cols // weights.width)
    for rows in _chunks(weights, len(x), len(read)):
        stream = embed(weights, x[rows])
        for block in weights.blocks[:-1]:
            stream, _ = run_block(block, stream, keep=False)
        for block in weights.blocks[-1:]:  # the other tokens are not read after the last block
            finished, _ = run_block(block, stream, read, keep=False)
            stream[:, read] = finished
        out[rows] = read_out(weights, stream)
    return out


def trace(weights: Weights, x: FloatArray) -> Trace:
    """Evaluate and keep every intermediate: residual streams by block, patterns by block and head."""
    heads = sum(len(block.attention.heads) for block in weights.blocks)
    kept = len(x) * weights.tokens * (weights.tokens * heads + weights.width * (len(weights.blocks) + 1))
    if kept > MAX_TRACE:
        raise InputError(
            f"a trace of {len(x)} points through {weights.tokens} tokens would keep {kept:.2g} numbers; "
            f"at most {MAX_TRACE:.0g}: trace fewer points, or a smaller model"
        )
    stream = embed(weights, np.asarray(x, dtype=weights.dtype))
    residuals, patterns = [stream], []
    for block in weights.blocks:
        stream, pattern = run_block(block, stream)
        residuals.append(stream)
        patterns.append(pattern)
    return Trace(tuple(residuals), tuple(patterns), read_out(weights, stream))


def _chunks(weights: Weights, samples: int, read: int) -> Iterator[slice]:
    queries = weights.tokens if len(weights.blocks) > 1 else read
    per_sample = weights.tokens * (weights.width + 2 * queries)
    return _slices(samples, CHUNK_FLOATS // per_sample)


def embed(weights: Weights, x: FloatArray) -> FloatArray:
    """Samples × inputs to samples × tokens × width."""
    flat = np.zeros((len(x), weights.tokens * weights.width), dtype=x.dtype)
    used, place = np.unique(weights.embedding.rows, return_inverse=True)
    dense = np.zeros((len(used), len(weights.inputs)), dtype=x.dtype)
    dense[place, weights.embedding.cols] = weights.embedding.values
    flat[:, used] = x @ dense.T
    stream = flat.reshape(len(x), weights.tokens, weights.width)
    return stream + weights.memory.dense(x.dtype)


def read_out(weights: Weights, stream: FloatArray) -> FloatArray:
    """Samples × tokens × width to samples × outputs."""
    flat = stream.reshape(len(stream), weights.tokens * weights.width)
    used, place = np.unique(weights.readout.cols, return_inverse=True)
    dense = np.zeros((weights.outputs, len(used)), dtype=stream.dtype)
    dense[weights.readout.rows, place] = weights.readout.values
    return flat[:, used] @ dense.T + weights.bias.dense(stream.dtype)[:, 0]


def run_block(
    block: Block, stream: FloatArray, tokens: IntArray | None = None, keep: bool = True
) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """One encoder block, for all tokens or for some; also returns the heads' patterns if they are to be kept."""
    attended, patterns = attend(block.attention, stream, tokens, keep)
    stream = (stream if tokens is None else stream[:, tokens]) + attended
    if block.feed_forward is not None:
        stream = stream + feed_forward(block.feed_forward, stream)
    return stream, patterns


def attend(
    attention: Attention, z: FloatArray, tokens: IntArray | None = None, keep: bool = True
) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """Multi-head attention, Gumaan eq. 5–8, Fang's hardmax or linear; without the residual.

    ``tokens`` says which tokens ask (all, if None); every token answers. Unless the patterns are to be kept, a few
    tokens ask at a time.
    """
    asking = z if tokens is None else z[:, tokens]
    total, patterns = np.zeros_like(asking), []
    for head in attention.heads:
        queries = asking @ head.query.dense(z.dtype).T
        keys = z @ head.key.dense(z.dtype).T
        values = z @ head.value.dense(z.dtype).T
        step = asking.shape[1] if keep else CHUNK_FLOATS // max(1, len(keys) * keys.shape[1])
        for some in _slices(asking.shape[1], step):
            scores = (queries[:, some] @ keys.swapaxes(1, 2)) * z.dtype.type(attention.scale)
            pattern = PATTERNS[attention.kind](scores)
            mixed = pattern @ values
            total[:, some] += mixed if head.output is None else mixed @ head.output.dense(z.dtype).T
            patterns += [pattern] if keep else []
    return total, tuple(patterns)


def _slices(count: int, step: int) -> Iterator[slice]:
    step = max(1, step)
    for start in range(0, count, step):
        yield slice(start, start + step)


def softmax(scores: FloatArray) -> FloatArray:
    """Row-wise softmax, shifted by the largest score so that nothing overflows."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    normalised: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return normalised


def hardmax(scores: FloatArray) -> FloatArray:
    """Fang's one-hot maximum: the largest score of a row stays as it is, the others become zero."""
    best = scores.argmax(axis=-1, keepdims=True)
    kept = np.zeros_like(scores)
    np.put_along_axis(kept, best, np.take_along_axis(scores, best, axis=-1), axis=-1)
    return kept


#: Attention patterns from scores, by the kind of attention.
PATTERNS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "softmax": softmax,
    "hardmax": hardmax,
    "linear": lambda scores: scores,
}


def feed_forward(layer: FeedForward, z: FloatArray) -> FloatArray:
    """W₂ ReLU(W₁ z + b₁) + b₂ for every token; without the residual."""
    hidden = z @ layer.hidden.dense(z.dtype).T + layer.hidden_bias.dense(z.dtype)[:, 0]
    return np.maximum(hidden, 0) @ layer.output.dense(z.dtype).T + layer.output_bias.dense(z.dtype)[:, 0]
