"""A program in NumPy, a few samples at a time in buffers that stay in the cache of a core."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from transformula.kernel.folder.weights import FloatArray
from transformula.runtime.program.program_steps import (
    BLOCK_TOKENS,
    ONE,
    AffineStep,
    GridStep,
    Powers,
    Program,
    Rows,
    Step,
    Tables,
)
from transformula.runtime.program.score_bounds import crossings

#: Floats of a chunk: the size of a core's cache.
CHUNK_FLOATS = 1 << 18
#: Samples of a chunk: fewer or more at a time are slow.
FEWEST = 64
MOST = 1 << 14
#: Floats of all samples from which on a second thread is worth starting.
THREAD_FLOATS = 1 << 22


def run_numpy(program: Program, x: FloatArray, most_threads: int | None = None) -> FloatArray:
    """Evaluate samples × inputs to samples × outputs, on the cores of this process or as many threads as are given."""
    x = np.asarray(x, dtype=program.dtype)
    columns = x.reshape(-1, program.inputs).T  # a column a position
    out = np.empty((len(program.outputs), columns.shape[1]), dtype=x.dtype)
    step = min(max(CHUNK_FLOATS // program.floats, FEWEST), MOST)
    threads = most_threads or _cores() if columns.shape[1] * program.floats > THREAD_FLOATS else 1
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
    width = FEWEST if columns.shape[1] <= FEWEST else min(step, columns.shape[1])
    kept = _KEPT.setdefault(program, {}).setdefault(width, []) if width in (FEWEST, step) else []
    try:
        runner = kept.pop()
    except IndexError:  # none is free: other threads may have them
        runner = _Runner(program, width)
    for start in range(0, columns.shape[1], step):
        runner.run(columns[:, start : start + step], out[:, start : start + step])
    kept.append(runner)


class _Runner:
    """The buffers of a program and the functions that fill them, for one thread at a time."""

    def __init__(self, program: Program, width: int) -> None:
        self.program = weakref.proxy(program)
        self.buffer = np.empty((program.rows, width), dtype=program.dtype)
        self.buffer[ONE] = 1
        ends = program.outputs
        self.outputs = (
            slice(ends[0], ends[-1] + 1) if (np.diff(ends) == 1).all() else ends
        )  # a slice is not copied twice
        first, self.works = 1 + program.inputs, []
        for step in program.steps:
            self.works.append((_RUNNERS[type(step)](step, width), first))
            first += step.width

    def run(self, columns: FloatArray, out: FloatArray) -> None:
        """Evaluate inputs × samples into outputs × samples."""
        rows = self.buffer[:, : columns.shape[1]]
        inputs = rows[1 : 1 + len(columns)]
        inputs[:] = columns
        box = self.program.box
        inside = box is not None and bool((inputs.min(axis=1) >= box[0]).all() and (inputs.max(axis=1) <= box[1]).all())
        for work, first in self.works:
            work(rows, first, inside)
        out[:] = rows[self.outputs]


#: Runners for a few samples and for whole chunks, by their width: they take long to make, and go with their programs.
_KEPT: weakref.WeakKeyDictionary[Program, dict[int, list[_Runner]]] = weakref.WeakKeyDictionary()

#: Appends a step's rows from a given row on; the flag says whether the inputs are in the box.
Work = Callable[[FloatArray, int, bool], None]


def scores_kept(dtype: np.dtype[Any]) -> Any:
    """A score whose exponential is about 2 η, η the smallest normal number; lower ones are raised to it.

    exp is ten times slower where its result is closer to underflow. An exponential is then at most 2.04 η where it
    should be less, and the claim allows for 3 η (`kernel.rounding.formats`).
    """
    return dtype.type(np.log(np.finfo(dtype).tiny) + 0.71)


def _reader(reads: Rows, matrix: FloatArray) -> Callable[[FloatArray, FloatArray], object]:
    """A function that writes matrix @ rows[reads]; rows that are (almost) adjacent are not copied."""
    first, last = int(reads.min()), int(reads.max()) + 1
    if last - first > 2 * len(reads) or len(np.unique(reads)) < len(reads):
        return lambda rows, out: np.matmul(matrix, rows[reads], out=out)
    wide = np.zeros((len(matrix), last - first), dtype=matrix.dtype)
    wide[:, reads - first] = matrix
    return lambda rows, out: np.matmul(wide, rows[first:last], out=out)


def _affine(step: AffineStep, width: int) -> Work:
    read = _reader(step.reads, step.matrix)

    def work(rows: FloatArray, first: int, inside: bool) -> None:
        out = rows[first : first + step.width]
        read(rows, out)
        if step.relu:
            np.maximum(out, 0, out=out)

    return work


def _tables(step: Tables, width: int) -> Work:
    own = np.unique(step.reads)
    merged = np.stack(
        [step.slopes[:, step.reads == row].sum(axis=1) for row in own], axis=1
    )  # of each, one is not zero
    read, lowest = _reader(own, merged), scores_kept(step.slopes.dtype)
    tokens, ends = len(step.slopes), list(pairwise(step.starts))
    powers = np.ones((tokens + (not step.shifted), width), dtype=step.slopes.dtype)  # the last row is the anchors'
    sums = np.concatenate(step.sums)
    summed = np.empty((len(sums), width), dtype=step.slopes.dtype)

    def work(rows: FloatArray, first: int, inside: bool) -> None:
        count = rows.shape[1]
        scores, total = powers[:tokens, :count], summed[:, :count]
        if step.clamps is None or (inside and not step.clamped_inside):
            read(rows, scores)
        else:
            np.matmul(step.slopes, np.clip(rows[step.reads], *step.clamps[:, :, None]), out=scores)
        if step.shifted:
            for start, stop in ends:
                scores[start:stop] -= scores[start:stop].max(axis=0)
        if step.sinks:
            np.maximum(scores, lowest, out=scores)
        np.exp(scores, out=scores)
        np.matmul(sums, powers[:, :count], out=total)
        np.divide(total[: step.width], total[step.width :], out=rows[first : first + step.width])

    return work


def _grid(step: GridStep, width: int) -> Work:
    if all(w is not None for w in step.windows):
        return partial(_windowed, step, [crossings(a, b) for a, b in zip(step.slopes, step.offsets, strict=True)])
    return partial(_whole_grid, step)


def _softmax(scores: FloatArray) -> FloatArray:
    scores -= scores.max(axis=0)
    np.maximum(scores, scores_kept(scores.dtype), out=scores)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)
    return scores


def _whole_grid(step: GridStep, rows: FloatArray, first: int, inside: bool) -> None:
    """One softmax per axis, then the values contracted with them, the first axis by a matrix product."""
    weights = [
        _softmax(a[:, None] * rows[row] + b[:, None])
        for row, a, b in zip(step.reads.tolist(), step.slopes, step.offsets, strict=True)
    ]
    shape = step.values.shape
    result = step.values.reshape(shape[0], -1).T @ weights[0]
    for axis, w in enumerate(weights[1:], start=1):
        result = np.einsum("jks,js->ks", result.reshape(shape[axis], -1, result.shape[-1]), w)
    rows[first : first + step.width] = result


def _windowed(step: GridStep, edges: list[FloatArray], rows: FloatArray, first: int, inside: bool) -> None:
    """A grid on which only a few tokens around the leading one have a weight."""
    total: FloatArray | None = None
    place: FloatArray | None = None
    for row, a, b, edge, size in zip(step.reads.tolist(), step.slopes, step.offsets, edges, step.windows, strict=True):
        u, reach = rows[row], size or 0
        leader = np.searchsorted(edge, u)
        lowest = np.clip(leader - reach, 0, len(a) - 2 * reach - 1)
        index = lowest + np.arange(2 * reach + 1)[:, None]
        w = _softmax(a[index] * u + b[index])
        if total is None or place is None:
            total, place = w, index
        else:
            total = (total[:, None] * w).reshape(-1, len(u))
            place = (place[:, None] * len(a) + index).reshape(-1, len(u))
    assert total is not None and place is not None
    values = step.values.reshape(-1, step.width)
    for column in range(step.width):
        np.einsum("ts,ts->s", total, values[:, column][place], out=rows[first + column])


@dataclass(frozen=True, eq=False)
class _TokenBlock:
    """A few tokens: their directions, and for each output its coefficients and which tokens have each power.

    ``used[s]`` holds those with power s; the first ``active[s]`` have power s or more.
    """

    directions: FloatArray
    terms: tuple[tuple[FloatArray, tuple[slice, ...], tuple[int, ...]], ...]

    @classmethod
    def of(cls, step: Powers, tokens: slice) -> _TokenBlock:
        """Cut out some tokens, without the powers that none of them has."""
        terms = []
        for output in range(step.width):
            table = np.ascontiguousarray(step.coefficients[:, output, tokens])
            places = [np.flatnonzero(row) for row in table]
            used = [slice(int(k[0]), int(k[-1]) + 1) if len(k) else slice(0) for k in places]
            degree = max((s for s, part in enumerate(used) if part.stop), default=0)
            active = [max(part.stop for part in used[s:]) for s in range(degree + 1)]
            terms.append((table[: degree + 1], tuple(used[: degree + 1]), tuple(active)))
        return cls(np.ascontiguousarray(step.directions[tokens]), tuple(terms))


def _powers(step: Powers, width: int) -> Work:
    """A function that adds up the powers of a chunk, block by block, in two buffers that stay in the cache."""
    starts = range(0, len(step.directions), BLOCK_TOKENS)
    blocks = [_TokenBlock.of(step, slice(start, start + BLOCK_TOKENS)) for start in starts]
    height = min(BLOCK_TOKENS, len(step.directions))
    buffers = [np.empty((height, width), dtype=step.directions.dtype) for _ in range(2)]
    inputs = slice(int(step.reads[0]), int(step.reads[-1]) + 1)  # they stand together

    def work(rows: FloatArray, first: int, inside: bool) -> None:
        out = rows[first : first + step.width]
        out[:] = 0
        for block in blocks:
            t, power = (b[: len(block.directions), : rows.shape[1]] for b in buffers)
            np.matmul(block.directions, rows[inputs], out=t)
            for output, (coefficients, used, active) in enumerate(block.terms):
                if len(used) > 1:
                    out[output] += _power_sum(coefficients, used, active, t, power)

    return work


def _power_sum(
    coefficients: FloatArray, used: tuple[slice, ...], active: tuple[int, ...], t: FloatArray, power: FloatArray
) -> FloatArray:
    """Σ_s Σ_k c_{s,k} t_k^s for s ≥ 1.

    Like Horner's rule it takes one product per power and token, but the coefficients enter through BLAS.
    """
    degree = len(used) - 1
    if not any(part.stop for part in used[1:degree]):
        alone: FloatArray = coefficients[degree] @ _raised(t, degree, power)
        return alone
    total: FloatArray = coefficients[1, used[1]] @ t[used[1]]
    base = t
    for s in range(2, degree + 1):
        base = np.multiply(base[: active[s]], t[: active[s]], out=power[: active[s]])
        if used[s].stop:
            total += coefficients[s, used[s]] @ power[used[s]]
    return total


def _raised(t: FloatArray, degree: int, power: FloatArray) -> FloatArray:
    """t^degree by repeated squaring."""
    base = t
    for bit in f"{degree:b}"[1:]:
        base = np.multiply(base, base, out=power)
        if bit == "1":
            power *= t
    return base


_RUNNERS: dict[type[Step], Callable[..., Work]] = {
    AffineStep: _affine,
    Tables: _tables,
    GridStep: _grid,
    Powers: _powers,
}
