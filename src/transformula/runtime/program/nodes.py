"""Nodes of a program while the weights are read, each created once, and their order in steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.tables.table_error import lattice
from transformula.runtime.program import score_bounds as bounds
from transformula.runtime.program.program_steps import ONE, AffineStep, GridStep, Program, Rows, Step, Tables
from transformula.runtime.program.score_bounds import ANYWHERE, Interval

#: A constant (a float), or the number of a node.
Content = int | float
#: A block, and the kind of nodes made there.
Stage = tuple[int, str]
#: Tokens of a group of softmaxes that share one product.
MOST_TOKENS = 128
_ORDER = ("arguments", "tables", "attended", "units", "added", "outputs")


@dataclass(frozen=True, eq=False)
class FormNode:
    """Σ factor · node + constant, or the ReLU of that sum."""

    terms: tuple[tuple[int, float], ...]
    constant: float
    relu: bool

    @property
    def reads(self) -> tuple[int, ...]:
        """The nodes it needs."""
        return tuple(node for node, _ in self.terms)


@dataclass(frozen=True, eq=False)
class Scores:
    """One softmax: its arguments, slopes (tokens × arguments) and one offset a token for each axis."""

    arguments: tuple[int, ...]
    slopes: FloatArray
    offsets: FloatArray


@dataclass(frozen=True, eq=False)
class Anchored:
    """A softmax of one axis that needs no shift: its anchor, the ends of its argument, `score_bounds.sinks`.

    ``inside``: the argument may lie beyond these ends while the inputs are in the box.
    """

    anchor: int
    clamp: Interval
    inside: bool
    sinks: bool


@dataclass(frozen=True, eq=False)
class TableNode:
    """One table: scores and values."""

    scores: Scores
    values: FloatArray

    @property
    def reads(self) -> tuple[int, ...]:
        """The nodes it needs."""
        return self.scores.arguments


def _split(terms: Iterable[tuple[Content, float]], constant: float) -> tuple[tuple[tuple[int, float], ...], float]:
    """The terms that read a node, and the sum of all others."""
    read = []
    for content, factor in terms:
        if isinstance(content, float):
            constant += content * factor
        else:
            read.append((content, factor))
    return tuple(read), constant


def _parts(heads: dict[Scores, list[int]]) -> Iterable[dict[Scores, list[int]]]:
    """Softmaxes in groups of so few tokens that one product may serve all of a group."""
    part: dict[Scores, list[int]] = {}
    for scores, made in heads.items():
        if part and sum(len(s.slopes) for s in (*part, scores)) > MOST_TOKENS:
            yield part
            part = {}
        part[scores] = made
    if part:
        yield part


class Nodes:
    """All nodes, each created once; node k is input k for k < inputs."""

    def __init__(self, inputs: int, box: tuple[Interval, ...] | None, dtype: str) -> None:
        self.inputs, self.dtype = inputs, dtype
        self.made: list[FormNode | TableNode | None] = [None] * inputs
        self.stages: list[Stage] = [(-1, "arguments")] * inputs
        #: Where nodes lie with inputs in the box, and with any inputs.
        self.within: list[Interval] = list(box) if box is not None else [ANYWHERE] * inputs
        self.always: list[Interval] = [ANYWHERE] * inputs
        self._known: dict[Any, Any] = {}
        self._ways: dict[Scores, Anchored | None] = {}

    def linear(self, terms: Iterable[tuple[Content, float]], constant: float, stage: Stage) -> Content:
        """A linear form; if it is just a constant or an existing node, that."""
        read, total = _split(terms, constant)
        if not read:
            return total
        if len(read) == 1 and read[0][1] == 1 and total == 0:
            return read[0][0]
        return self._form(read, total, False, stage)

    def relu(self, terms: Iterable[tuple[Content, float]], constant: float, stage: Stage) -> Content:
        """The ReLU of a linear form."""
        read, total = _split(terms, constant)
        return self._form(read, total, True, stage) if read else max(total, 0.0)

    def table(
        self, arguments: Sequence[Content], slopes: FloatArray, offsets: FloatArray, values: FloatArray, stage: Stage
    ) -> Content:
        """A table read at its arguments; one of a single token is a constant."""
        if len(values) == 1:
            return float(values[0])
        b = stage[0]
        asked = tuple(a if isinstance(a, int) else self._form((), a, False, (b, "arguments")) for a in arguments)
        key = (asked, slopes.tobytes(), offsets.tobytes(), b)
        if key not in self._known:
            self._known[key] = Scores(asked, slopes, offsets)
        scores: Scores = self._known[key]
        always = within = bounds.values_range(values)
        if len(asked) == 1:
            line = slopes[:, 0], offsets[:, 0], values
            within, always = (
                bounds.table_range(*line, where[asked[0]], self.dtype) for where in (self.within, self.always)
            )
        return self._add((scores, values.tobytes()), TableNode(scores, values), within, always, stage)

    def _form(self, terms: tuple[tuple[int, float], ...], constant: float, relu: bool, stage: Stage) -> int:
        within, always = (
            bounds.linear_range([(where[k], f) for k, f in terms], constant, relu)
            for where in (self.within, self.always)
        )
        return self._add((terms, constant, relu), FormNode(terms, constant, relu), within, always, stage)

    def _add(self, key: Any, node: FormNode | TableNode, within: Interval, always: Interval, stage: Stage) -> int:
        if key not in self._known:
            self._known[key] = len(self.made)
            self.made.append(node)
            self.within.append(within)
            self.always.append(always)
            self.stages.append(stage)
        found: int = self._known[key]
        return found

    # Nodes in the order of steps

    def program(self, outputs: Sequence[Content], positions: int) -> Program:
        """The program of the nodes that the outputs need, one step for each stage and kind."""
        last = 1 + max(b for b, _ in self.stages)
        ends = [o if isinstance(o, int) else self._form((), o, False, (last, "outputs")) for o in outputs]
        place = {k: 1 + k for k in range(self.inputs)}
        steps: list[Step] = []
        by_stage: dict[Stage, list[int]] = {}
        for k in sorted(self._needed(ends)):
            by_stage.setdefault(self.stages[k], []).append(k)
        for stage in sorted(by_stage, key=lambda s: (s[0], _ORDER.index(s[1]))):
            for step, made in self._steps(by_stage[stage], place):
                start = 1 + self.inputs + sum(s.width for s in steps)
                place |= {k: start + i for i, k in enumerate(made)}
                steps.append(step)
        rows = np.array([place[k] for k in ends], dtype=np.int64)
        box = np.array(self.within[: self.inputs], dtype=self.dtype).T
        return Program(self.inputs, positions, tuple(steps), rows, self.dtype, box if np.isfinite(box).all() else None)

    def _needed(self, ends: Iterable[int]) -> set[int]:
        found: set[int] = set()
        waiting = list(ends)
        while waiting:
            node = self.made[k] if (k := waiting.pop()) >= self.inputs and k not in found else None
            if node is not None:
                found.add(k)
                waiting += node.reads
        return found

    def _steps(self, wanted: list[int], place: dict[int, int]) -> Iterable[tuple[Step, list[int]]]:
        forms = [k for k in wanted if isinstance(self.made[k], FormNode)]
        for relu in (False, True):
            made = [k for k in forms if self.made[k].relu == relu]  # type: ignore[union-attr]
            if made:
                yield self._affine(made, place, relu), made
        heads: dict[Scores, list[int]] = {}
        for k in wanted:
            node = self.made[k]
            if isinstance(node, TableNode):
                heads.setdefault(node.scores, []).append(k)
        kinds: dict[bool, dict[Scores, list[int]]] = {}
        for scores, made in heads.items():
            values = np.stack([self.made[k].values for k in made])  # type: ignore[union-attr]
            if len(scores.arguments) > 1:
                reads = np.array([place[k] for k in scores.arguments])
                grid = self._grid(reads, scores, values)
                if grid is not None:
                    yield grid, made
                    continue
            way = self._ways[scores] = self._way(scores, values)
            kinds.setdefault(way is None, {})[scores] = made
        for shifted, alike in sorted(kinds.items()):
            for part in _parts(alike):
                yield self._tables(part, place, shifted), [k for made in part.values() for k in made]

    def _grid(self, reads: Rows, scores: Scores, values: FloatArray) -> GridStep | None:
        """The table as a grid, or None; values are columns × tokens."""
        found = lattice(scores.slopes, scores.offsets)
        if found is None:
            return None
        slopes = tuple(line.astype(self.dtype) for line in found.slopes)
        offsets = tuple(line.astype(self.dtype) for line in found.offsets)
        windows = tuple(bounds.window(a, b, self.dtype) for a, b in zip(slopes, offsets, strict=True))
        return GridStep(reads, slopes, offsets, found.arranged(values.T).astype(self.dtype), windows)

    def _way(self, scores: Scores, values: FloatArray) -> Anchored | None:
        """The anchor that makes a shift needless; None if the shift is needed."""
        anchor = bounds.anchor(scores.slopes, scores.offsets)
        if len(scores.arguments) != 1 or anchor is None:
            return None
        (asked,), line = scores.arguments, (scores.slopes[:, 0], scores.offsets[:, 0])
        clamp = bounds.reach(*line, values, self.within[asked], self.always[asked], self.dtype)
        if clamp is None:
            return None
        low, high = self.within[asked]
        met = max(low, clamp[0]), min(high, clamp[1])
        return Anchored(anchor, clamp, met != (low, high), bounds.sinks(*line, met, self.dtype))

    def _affine(self, made: list[int], place: dict[int, int], relu: bool) -> AffineStep:
        columns: dict[tuple[int, int], int] = {}  # a row that a form reads twice has two columns
        entries = []
        for i, k in enumerate(made):
            node = self.made[k]
            assert isinstance(node, FormNode)
            if node.constant or not node.terms:
                entries.append((i, columns.setdefault((ONE, 0), len(columns)), node.constant))
            times: dict[int, int] = {}
            for read, factor in node.terms:
                times[read] = times.get(read, 0) + 1
                column = columns.setdefault((place[read], times[read]), len(columns))
                entries.append((i, column, factor))
        matrix = np.zeros((len(made), len(columns)))
        for i, column, factor in entries:
            matrix[i, column] = factor
        reads = np.array([row for row, _ in columns])
        order = np.argsort(reads, kind="stable")  # rows that stand together are read together
        return AffineStep(reads[order], matrix[:, order].astype(self.dtype), relu)

    def _tables(self, heads: dict[Scores, list[int]], place: dict[int, int], shifted: bool) -> Tables:
        def read(scores: Scores) -> list[tuple[int, Interval]]:
            clamp = ANYWHERE if (way := self._ways[scores]) is None else way.clamp
            return [(place[k], clamp) for k in scores.arguments]

        rows = sorted({asked for scores in heads for asked in read(scores)})
        column = {asked: 1 + i for i, asked in enumerate(rows)}
        starts = [0]
        slopes: list[FloatArray] = []
        values: list[FloatArray] = []
        anchors: list[FloatArray] = []
        for scores, made in heads.items():
            block = np.zeros((len(scores.slopes), 1 + len(rows)), dtype=self.dtype)
            block[:, 0] = scores.offsets.astype(self.dtype).sum(axis=1)
            for i, asked in enumerate(read(scores)):
                block[:, column[asked]] += scores.slopes[:, i].astype(self.dtype)
            stack = np.stack([self.made[k].values for k in made]).astype(self.dtype)  # type: ignore[union-attr]
            if (way := self._ways[scores]) is not None:
                anchors.append(stack[:, way.anchor])
                block, stack = np.delete(block, way.anchor, axis=0), np.delete(stack, way.anchor, axis=1)
            slopes.append(block)
            starts.append(starts[-1] + len(block))
            values.append(stack)
        clamps = np.array([ANYWHERE, *(clamp for _, clamp in rows)], dtype=self.dtype).T
        ways = [way for s in heads if (way := self._ways[s]) is not None]
        return Tables(
            np.array([ONE, *(row for row, _ in rows)]),
            np.concatenate(slopes),
            tuple(starts),
            tuple(values),
            None if shifted else np.concatenate(anchors),
            clamps if np.isfinite(clamps).any() else None,
            any(way.inside for way in ways),
            shifted or any(way.sinks for way in ways),
        )
