r"""A finite map onto two values with few parameters: labels are bits of words (after Kajitsuka and Sato 2024).

Samples are put in order along one direction, s = w·x, and cut into G runs. All runs have buckets of one width h, at
an offset of their own, such that no bucket holds samples of both labels. Then

* a head finds the run: the upper envelope of G lines in s. Its token holds the labels of the run's K buckets as the
  bits of one whole number, the word, and the run's offset;
* a second head finds the bucket j, 1 <= j <= K, from r = s / h − offset in the same way, and reads j and j²;
* K − 1 feed-forward layers take the word apart: with t = 2^{K − k}, bit_k = ReLU(word − t + 1) − ReLU(word − t), and
  the word loses t bit_k;
* a last one picks a bit: ReLU(bit_k − (j − k)²) is bit_k for k = j and 0 otherwise.

Both heads lead by so much that the other tokens underflow, and everything after them is whole numbers, so the label
comes out exactly (`kernel.compact`). A run costs 4 numbers, a bucket 4 and a bit 13.

How it grows. A run of m samples has about w m / 2 neighbours of different labels that are closer than a bucket, if w is
the width of a bucket in mean distances, and each of them halves the offsets that are left: with K buckets, w m can be
a few units, and m <= w K, so m is of the order of √K. N samples take about 4 N / √K + 17 K numbers, at best of the
order of N^(2/3). *Optimal memorization capacity of Transformers* (Kajitsuka and Sato, 2409.17677) has O(√(N log N)): it
stores the samples' places in words too, and needs words of K log N bits, of which a float holds few. From 2K = 53 bits
on (24 in float32) the sum that takes a bit off would be rounded: words end there, and the number of runs grows with N.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from transformula.compiler.gallery.compact_layout import Runs, assemble
from transformula.compiler.gallery.memorization import MAX_SAMPLES
from transformula.errors import InputError
from transformula.formula.sample_target import Samples
from transformula.kernel.folder.weights import Weights

Floats = NDArray[np.float64]

#: How many bits a word may have: the sum that takes a bit off has terms of twice as many.
MOST_BITS = {"float64": 26, "float32": 11}
#: Directions and offsets that are tried, and widths of a bucket in mean distances of samples.
_DIRECTIONS, _OFFSETS, _WIDTHS = 6, 1024, (0.3, 0.4, 0.55, 0.75, 1.0, 1.4)
#: The least distance of a sample to an edge of its bucket, in widths.
_CLEAR = 1e-3


def construct_compact(samples: Samples, dtype: str) -> Weights:
    """Weights that give the label of every sample."""
    x = samples.x.astype(dtype).astype(float)
    values = np.unique(samples.y)
    if samples.y.shape[1] != 1 or len(values) > 2:
        raise InputError(
            f"compact memory is for one output with two values, not {samples.y.shape[1]} with {len(values)}"
        )
    if len(x) > MAX_SAMPLES:
        raise InputError(f"{len(x)} samples are too many; at most {MAX_SAMPLES}")
    if len(np.unique(x, axis=0)) < len(x):
        raise InputError("two samples are the same point in this dtype: use float64")
    labels = samples.y[:, 0] == values[-1]
    return assemble(_best_cut(x, labels, dtype), samples.variables, (float(values[0]), float(values[-1])), dtype)


def _best_cut(x: Floats, labels: NDArray[np.bool_], dtype: str) -> Runs:
    """The cheapest of the cuts along a few directions."""
    rng = np.random.default_rng(0)
    best: Runs | None = None
    for _ in range(_DIRECTIONS if x.shape[1] > 1 else 1):
        drawn = np.asarray(rng.standard_normal(size=x.shape[1]) / max(np.abs(x).max(), 1e-300))
        direction = drawn.astype(dtype).astype(np.float64)
        along = x @ direction
        order = np.argsort(along, kind="stable")
        line = _Line(direction, along[order], labels[order])
        if not line.told_apart:
            continue
        for width in _WIDTHS:
            cutter = _Cutter(line, width * line.step)
            for bits in range(2, MOST_BITS[dtype] + 1, 2):
                best = cutter.cut(bits, math.inf if best is None else best.cost) or best
    if best is None:
        raise InputError("two samples with different labels are too close to be told apart in this dtype")
    return best


class _Line:
    """The samples in order along a direction."""

    def __init__(self, direction: Floats, s: Floats, labels: NDArray[np.bool_]) -> None:
        self.direction, self.s, self.labels = direction, s, labels
        self.changes = labels[1:] != labels[:-1]
        self.told_apart = bool(np.all(np.diff(s)[self.changes] > 1e-9 * np.ptp(s)))
        self.step = float(np.ptp(s)) / max(len(s) - 1, 1) or 1.0


class _Cutter:
    """Runs for buckets of one width. A set of offsets (in widths, modulo 1) is a whole number with a bit for each."""

    def __init__(self, line: _Line, width: float) -> None:
        self.line, self.width = line, width
        self.places = line.s / width
        theta = np.arange(_OFFSETS) / _OFFSETS
        self.clear: list[int] = []  # for each sample, the offsets whose edges stay away from it
        self.split: list[int] = []  # and those that put an edge between it and the one before, if that is needed
        for start in range(0, len(line.s), 4096):
            places = self.places[max(start - 1, 0) : start + 4096, None]
            inside = (places - theta) % 1.0
            self.clear += _sets((np.minimum(inside, 1.0 - inside) > _CLEAR)[start > 0 :])
            buckets = np.floor(places - theta)
            changes = line.changes[max(start - 1, 0) : start + 4095, None]
            self.split += ([] if start else [-1]) + _sets((buckets[1:] > buckets[:-1]) | ~changes)

    def cut(self, bits: int, limit: float) -> Runs | None:
        """Runs that are as long as they can be, one after the other; None if they cost as much as ``limit``."""
        s, places, labels = self.line.s, self.places, self.line.labels
        begin = 0
        edges: list[float] = []
        offsets: list[float] = []
        words: list[int] = []
        while begin < len(s):
            if 4 * len(words) + 4 + 17 * bits >= limit:
                return None
            end, allowed = begin, self.clear[begin]
            while end + 1 < len(s) and places[end + 1] - places[begin] < bits - 1:
                narrowed = allowed & self.clear[end + 1] & self.split[end + 1]
                if not narrowed:
                    break
                end, allowed = end + 1, narrowed
            while end + 1 < len(s) and end > begin and not places[end + 1] - places[end] > 1e-6:
                end -= 1  # a run ends between two samples that are apart
            if not allowed or (end + 1 < len(s) and not s[end + 1] > s[end]):
                return None
            theta = _middle(allowed)
            offset = theta + math.floor(places[begin] - theta) - 1
            word = (1 << bits) - 1
            for place in places[begin : end + 1][~labels[begin : end + 1]].tolist():
                word &= ~(1 << (bits - math.floor(place - offset)))
            if word == 0 or offset == 0.0:  # a table's values must not be zero
                return None
            words.append(word)
            offsets.append(offset)
            edges += [(s[end] + s[end + 1]) / 2] if end + 1 < len(s) else []
            begin = end + 1
        return Runs(self.line.direction, bits, self.width, np.array(edges), np.array(offsets), tuple(words), places)


def _sets(rows: NDArray[np.bool_]) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in np.packbits(rows, axis=1, bitorder="little")]


def _middle(offsets: int) -> float:
    """The middle of the longest run of neighbours in a set of offsets."""
    marks = np.frombuffer(offsets.to_bytes(_OFFSETS // 8, "little"), dtype=np.uint8)
    members = np.unpackbits(marks, bitorder="little").astype(np.int8)
    turns = np.flatnonzero(np.diff(np.concatenate([[0], members, [0]])))
    starts, ends = turns[::2], turns[1::2]
    longest = int(np.argmax(ends - starts))
    return float(starts[longest] + ends[longest] - 1) / 2 / _OFFSETS
