"""A program in NumPy, a few samples at a time in buffers that stay in the cache of a core."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from transformula.kernel.weights import FloatArray
from transformula.program.grids import crossings
from transformula.program.powers_numpy import powers_work
from transformula.program.steps import ONE, Affine, Grid, Powers, Program, Step, Tables

#: Floats of a chunk: what a core's cache holds.
CHUNK_FLOATS = 1 << 19
#: Fewer or more samples at a time are slow.
FEWEST, MOST = 64, 1 << 14
#: Below this many floats a second thread is not worth starting.
THREAD_FLOATS = 1 << 22


def run_numpy(program: Program, x: FloatArray) -> FloatArray:
    """Evaluate samples × inputs to samples × outputs."""
    x = np.asarray(x, dtype=program.dtype)
    columns = x.reshape(-1, program.inputs).T  # a column a position
    out = np.empty((len(program.outputs), columns.shape[1]), dtype=x.dtype)
    step = min(max(CHUNK_FLOATS // program.floats, FEWEST), MOST)
    threads = _cores() if columns.shape[1] * program.floats > THREAD_FLOATS else 1
    share = -(-columns.shape[1] // threads) or 1
    pieces = [slice(start, start + share) for start in range(0, columns.shape[1], share)]
    work = partial(_run, program, columns, out, step)
    if threads == 1:
        for piece in pieces:
            work(piece)
    else:
        with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:  # BLAS must not start threads beside ours
            list(pool.map(work, pieces))
    return out.T.reshape(len(x), len(program.outputs) * program.positions)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(program: Program, columns: FloatArray, out: FloatArray, step: int, piece: slice) -> None:
    columns, out = columns[:, piece], out[:, piece]
    width = min(step, columns.shape[1])
    buffer = np.empty((program.rows, width), dtype=columns.dtype)
    buffer[ONE] = 1
    works = [_RUNNERS[type(s)](s, width) for s in program.steps]  # type: ignore[arg-type]
    for start in range(0, columns.shape[1], step):
        part = columns[:, start : start + step]
        rows = buffer[:, : part.shape[1]]
        first = 1 + program.inputs
        rows[1:first] = part
        for s, work in zip(program.steps, works, strict=True):
            work(rows, rows[first : first + s.width])
            first += s.width
        out[:, start : start + step] = rows[program.outputs]


Work = Callable[[FloatArray, FloatArray], None]


def scores_kept(dtype: np.dtype[Any]) -> Any:
    """A score whose exponential is just above the smallest normal number η; lower ones are raised to it.

    exp is slow where its result underflows. This changes an exponential by at most 1.2 η, where the claim allows
    for one that is flushed to zero, and four times as much in all (`kernel.softmax.flushed`).
    """
    return dtype.type(np.log(np.finfo(dtype).tiny) + 0.1)


def _affine(step: Affine, width: int) -> Work:
    def work(rows: FloatArray, out: FloatArray) -> None:
        np.matmul(step.matrix, rows[step.reads], out=out)
        if step.bend:
            np.maximum(out, 0, out=out)

    return partial(_guarded, step, work) if step.guard else work


def _guarded(step: Affine, work: Work, rows: FloatArray, out: FloatArray) -> None:
    """Guards are zero almost always: the ends of the rows they read say so."""
    ends = np.array([(rows[row].min(), rows[row].max()) for row in step.reads[1:].tolist()]).T
    factors = step.matrix[:, 1:]
    if (step.matrix[:, 0] + (np.minimum(factors, 0) @ ends[0] + np.maximum(factors, 0) @ ends[1]) < 0).all():
        out[:] = 0
    else:  # also where a row is not a number
        work(rows, out)


def _tables(step: Tables, width: int) -> Work:
    buffer = np.empty((step.tokens, width), dtype=step.slopes.dtype)
    lowest = scores_kept(step.slopes.dtype)
    ends = list(zip(step.starts[:-1], step.starts[1:], step.sums, strict=True))

    def work(rows: FloatArray, out: FloatArray) -> None:
        scores = buffer[:, : rows.shape[1]]
        np.matmul(step.slopes, rows[step.reads], out=scores)
        if step.shifted:
            for start, stop, _ in ends:
                scores[start:stop] -= scores[start:stop].max(axis=0)
            np.maximum(scores, lowest, out=scores)
        np.exp(scores, out=scores)
        first = 0
        for start, stop, sums in ends:
            summed = sums @ scores[start:stop]
            np.divide(summed[:-1], summed[-1], out=out[first : first + len(sums) - 1])
            first += len(sums) - 1

    return work


def _grid(step: Grid, width: int) -> Work:
    if all(w is not None for w in step.windows):
        return partial(_windowed, step, [crossings(a, b) for a, b in zip(step.slopes, step.offsets, strict=True)])
    return partial(_whole_grid, step)


def _softmax(scores: FloatArray) -> FloatArray:
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)
    return scores


def _whole_grid(step: Grid, rows: FloatArray, out: FloatArray) -> None:
    """One softmax an axis, then the values contracted with them, the first axis by a matrix product."""
    weights = [
        _softmax(a[:, None] * rows[row] + b[:, None])
        for row, a, b in zip(step.reads.tolist(), step.slopes, step.offsets, strict=True)
    ]
    shape = step.values.shape
    result = step.values.reshape(shape[0], -1).T @ weights[0]
    for axis, w in enumerate(weights[1:], start=1):
        result = np.einsum("jks,js->ks", result.reshape(shape[axis], -1, result.shape[-1]), w)
    out[:] = result


def _windowed(step: Grid, edges: list[FloatArray], rows: FloatArray, out: FloatArray) -> None:
    """The same where only a few tokens around the leading one have a weight."""
    total: FloatArray | None = None
    place: FloatArray | None = None
    for row, a, b, edge, size in zip(step.reads.tolist(), step.slopes, step.offsets, edges, step.windows, strict=True):
        u, reach = rows[row], size or 0
        leader = np.searchsorted(edge, u)
        first = np.clip(leader - reach, 0, len(a) - 2 * reach - 1)
        index = first + np.arange(2 * reach + 1)[:, None]
        w = _softmax(a[index] * u + b[index])
        if total is None or place is None:
            total, place = w, index
        else:
            total = (total[:, None] * w).reshape(-1, len(u))
            place = (place[:, None] * len(a) + index).reshape(-1, len(u))
    assert total is not None and place is not None
    values = step.values.reshape(-1, step.width)
    for column in range(step.width):
        np.einsum("ts,ts->s", total, values[:, column][place], out=out[column])


_RUNNERS: dict[type[Step], Callable[..., Work]] = {Affine: _affine, Tables: _tables, Grid: _grid, Powers: powers_work}
