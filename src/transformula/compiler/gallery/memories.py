r"""Finite maps: one memory token a sample, or labels as bits of words.

*One token a sample* (Gumaan section VI: memorisation). Scores λ(c_j·x − |c_j|²/2), values y_j: at x = c_i token i leads
token j by λ|c_i − c_j|²/2, so with smallest separation s the others share at most N e^{−λ s²/2} of the weight. λ is the
smallest that makes that harmless for the tolerance; a common shift of all slopes (centring) keeps the scores small.

*Bits of words* (after Kajitsuka and Sato 2024), for two labels and few parameters. Samples are put in order along one
direction, s = w·x, and cut into G runs. All runs have buckets of one width h, at an offset of their own, such that no
bucket holds samples of both labels. Then

* a head finds the run: the upper envelope of G lines in s. Its token holds the labels of the run's K buckets as the
  bits of one whole number, the word, and the run's offset;
* a second head finds the bucket j, 1 <= j <= K, from r = s / h − offset in the same way, and reads j and j²;
* K − 1 feed-forward layers take the word apart: with t = 2^{K − k}, bit_k = ReLU(word − t + 1) − ReLU(word − t), and
  the word loses t bit_k;
* a last one picks a bit: ReLU(bit_k − (j − k)²) is bit_k for k = j and 0 otherwise.

Both heads lead by so much that the other tokens underflow, and everything after them is whole numbers, so the label
comes out exactly (`kernel.gallery.memorize_rule`). A run costs 4 numbers, a bucket 4 and a bit 13.

How it grows. A run of m samples has about w m / 2 neighbours of different labels that are closer than a bucket, if w is
the width of a bucket in mean distances, and each of them halves the offsets that are left: with K buckets, w m can be
a few units, and m <= w K, so m is of the order of √K. N samples take about 4 N / √K + 17 K numbers, at best of the
order of N^(2/3). *Optimal memorization capacity of Transformers* (Kajitsuka and Sato, 2409.17677) has O(√(N log N)): it
stores the samples' places in words too, and needs words of K log N bits, of which a float holds few. From 2K = 53 bits
on (24 in float32) the sum that takes a bit off would be rounded: words end there, and the number of runs grows with N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

from transformula.compiler import policy
from transformula.compiler.layout import (
    GATE_MARGIN,
    Entries,
    HeadSpec,
    OneLayerSpec,
    TableTokens,
    Unit,
    assemble,
    feed_forward,
)
from transformula.errors import InputError
from transformula.formula.sample_target import Samples
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.runtime.matrices import dense_matrix, matrix_of

Floats = NDArray[np.float64]


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


#: How many bits a word may have: the sum that takes a bit off has terms of twice as many.
MOST_BITS = {"float64": 26, "float32": 11}
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
    if len(x) > policy.MAX_SAMPLES:
        raise InputError(f"{len(x)} samples are too many; at most {policy.MAX_SAMPLES}")
    if len(np.unique(x, axis=0)) < len(x):
        raise InputError("two samples are the same point in this dtype: use float64")
    labels = samples.y[:, 0] == values[-1]
    runs = _best_cut(x, labels, dtype)
    return _CompactBuilder(runs, samples.variables, dtype).weights(float(values[0]), float(values[-1]))


def _best_cut(x: Floats, labels: NDArray[np.bool_], dtype: str) -> Runs:
    """The cheapest of the cuts along a few directions."""
    rng = np.random.default_rng(0)
    best: Runs | None = None
    for _ in range(policy.DIRECTIONS if x.shape[1] > 1 else 1):
        drawn = np.asarray(rng.standard_normal(size=x.shape[1]) / max(np.abs(x).max(), 1e-300))
        direction = drawn.astype(dtype).astype(np.float64)
        along = x @ direction
        order = np.argsort(along, kind="stable")
        line = _Line(direction, along[order], labels[order])
        if not line.told_apart:
            continue
        for width in policy.BUCKET_WIDTHS:
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
        theta = np.arange(policy.OFFSETS) / policy.OFFSETS
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
    marks = np.frombuffer(offsets.to_bytes(policy.OFFSETS // 8, "little"), dtype=np.uint8)
    members = np.unpackbits(marks, bitorder="little").astype(np.int8)
    turns = np.flatnonzero(np.diff(np.concatenate([[0], members, [0]])))
    starts, ends = turns[::2], turns[1::2]
    longest = int(np.argmax(ends - starts))
    return float(starts[longest] + ends[longest] - 1) / 2 / policy.OFFSETS


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of samples along a direction: the edges between them, their offsets (in widths) and their words.

    ``places`` are all samples along the direction, in widths.
    """

    direction: Floats
    bits: int
    width: float
    edges: Floats  # (runs - 1,)
    offsets: Floats  # (runs,)
    words: tuple[int, ...]
    places: Floats

    @property
    def cost(self) -> int:
        """Estimated number of parameters."""
        return 4 * len(self.words) + 17 * self.bits


class Words(NamedTuple):
    """The contents of a compact memory: the number of bits in each word, and the bucket at which a run begins."""

    bits: int
    words: list[int]
    offsets: list[float]


def stored_words(weights: Weights) -> Words:
    """The words as the memory tokens hold them."""
    memory = weights.memory.dense()[1:]
    index, words, offsets = (memory[:, weights.slot(name)] for name in ("index", "word", "shift"))
    return Words(int(index.max()), [int(v) for v in words if v], offsets[words != 0].tolist())


class _CompactBuilder:
    """Lays out tokens and slots of one compact memory."""

    def __init__(self, runs: Runs, inputs: Sequence[str], dtype: str) -> None:
        self.runs, self.inputs, self.dtype = runs, tuple(inputs), dtype
        self.bits = [f"bit{k}" for k in range(1, runs.bits)] + ["rest"]  # the last bit is what the others leave
        names = [*(f"x.{name}" for name in inputs), "one", "slope1", "offset1", "word", "shift", "slope2", "offset2"]
        names += ["index", "square", "rest", "place", "found", "found2", *self.bits[:-1], "label"]
        self.at = {name: k for k, name in enumerate(names)}
        self.tokens = 1 + max(len(runs.words), runs.bits)

    def weights(self, low: float, high: float) -> Weights:
        """The weights, with the two values that the labels stand for."""
        width, at = len(self.at), self.at
        given = [(at[f"x.{name}"], i, 1) for i, name in enumerate(self.inputs)]
        return Weights(
            inputs=self.inputs,
            slots=tuple(at),
            tokens=self.tokens,
            embedding=self._matrix(self.tokens * width, len(self.inputs), given),
            memory=dense_matrix(self._memory().astype(self.dtype), self.dtype),
            blocks=tuple(self._blocks()),
            readout=self._matrix(1, self.tokens * width, [(0, at["label"], high - low)]),
            bias=self._matrix(1, 1, [(0, 0, low)]),
            dtype=self.dtype,
        )

    def _memory(self) -> Floats:
        runs, at, bits = self.runs, self.at, self.runs.bits
        memory = np.zeros((self.tokens, len(at)))
        memory[0, at["one"]] = 1
        at_runs = runs.places - runs.offsets[np.searchsorted(runs.edges, runs.places * runs.width)]
        for tag, lines in (
            ("1", _lines(runs.edges, runs.places * runs.width)),
            ("2", _lines(np.arange(2.0, bits + 1), at_runs)),
        ):
            memory[1 : len(lines) + 1, [at[f"slope{tag}"], at[f"offset{tag}"]]] = lines
        memory[1 : len(runs.words) + 1, at["word"]] = runs.words
        memory[1 : len(runs.words) + 1, at["shift"]] = runs.offsets
        memory[1 : bits + 1, at["index"]] = np.arange(1, bits + 1)
        memory[1 : bits + 1, at["square"]] = np.arange(1, bits + 1) ** 2
        return memory

    def _blocks(self) -> Iterator[Block]:
        """The run, the bucket, the bits of the word, and the one that is picked."""
        runs, at = self.runs, self.at
        along = [(0, at[f"x.{name}"], float(v)) for name, v in zip(self.inputs, runs.direction, strict=True)]
        within = [(row, slot, float(v / np.dtype(self.dtype).type(runs.width))) for row, slot, v in along]
        first = self._head("1", along, [("word", "rest"), ("shift", "place")])
        second = self._head("2", [*within, (0, at["place"], -1)], [("index", "found"), ("square", "found2")])
        peel = [self._peel(name, 2 ** (runs.bits - k)) for k, name in enumerate(self.bits[:-1], 1)]
        picks: list[Unit] = [
            ({name: 1, "found": 2 * k, "found2": -1}, -k * k, {"label": 1}) for k, name in enumerate(self.bits, 1)
        ]
        yield Block(Attention((first,)))
        yield Block(Attention((second,)), peel[0] if peel else None)
        for layer in (*peel[1:], feed_forward(picks, at, self.dtype)):
            yield Block(Attention(()), layer)

    def _head(self, tag: str, query: Entries, copied: Sequence[tuple[str, str]]) -> Head:
        at, width = self.at, len(self.at)
        ones = [(1, at["one"], 1), (2, at["one"], 1)]
        key = [(0, at[f"slope{tag}"], 1), (1, at[f"offset{tag}"], 1)]
        return Head(
            self._matrix(3, width, [*query, *ones]),
            self._matrix(3, width, key),
            self._matrix(width, width, [(at[target], at[source], 1) for source, target in copied]),
        )

    def _peel(self, bit: str, t: int) -> FeedForward:
        """Take one bit off the word: bit = ReLU(word − t + 1) − ReLU(word − t), and the word loses t · bit."""
        units: list[Unit] = [({"rest": 1}, 1 - t, {bit: 1, "rest": -t}), ({"rest": 1}, -t, {bit: -1, "rest": t})]
        return feed_forward(units, self.at, self.dtype)

    def _matrix(self, rows: int, columns: int, entries: Entries) -> Matrix:
        return matrix_of((rows, columns), entries, self.dtype)


def _lines(edges: Floats, samples: Floats) -> Floats:
    """Lines (slope, offset) whose upper envelope changes at the edges, with a lead over all others at the samples.

    Others are lines that are zero: tokens of the other head, and the data token. e^-760 is less than the smallest
    number of float64; a tenth more is for rounding.
    """
    lead = 1.1 * GATE_MARGIN
    if not len(edges):
        return np.array([[0.0, 1.1 * lead]])
    steep = lead / _nearest(edges, samples)
    slopes = steep * (np.arange(len(edges) + 1) - len(edges) // 2)
    offsets = -steep * np.concatenate([[0.0], np.cumsum(edges)])
    run = np.searchsorted(edges, samples)
    least = float((slopes[run] * samples + offsets[run]).min())
    return np.column_stack([slopes, offsets + (1.1 * lead - least)])


def _nearest(edges: Floats, samples: Floats) -> float:
    """The least distance of a sample to an edge."""
    place = np.searchsorted(edges, samples)
    below, above = edges[np.maximum(place - 1, 0)], edges[np.minimum(place, len(edges) - 1)]
    return float(np.minimum(np.abs(samples - below), np.abs(samples - above)).min())
