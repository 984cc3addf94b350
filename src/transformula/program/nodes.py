"""Nodes of a program while it is read, each made once, and their order in steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformula.kernel.weights import FloatArray
from transformula.program import bounds
from transformula.program.bounds import ANYWHERE, Interval
from transformula.program.grids import grid_of
from transformula.program.steps import ONE, Affine, Program, Step, Tables

#: A constant (a float), or the number of a node.
Content = int | float
#: A block, and what is made there.
Stage = tuple[int, str]
#: Tokens of a group of softmaxes.
MOST_TOKENS = 128
_ORDER = ("arguments", "guards", "tables", "attended", "units", "bent", "outputs")


@dataclass(frozen=True, eq=False)
class Linear:
    """Σ factor · node + constant, or the larger of that and zero."""

    terms: tuple[tuple[int, float], ...]
    constant: float
    bend: bool

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
    shifted: bool
    axes: int


@dataclass(frozen=True, eq=False)
class Read:
    """One table: scores and values."""

    scores: Scores
    values: FloatArray

    @property
    def reads(self) -> tuple[int, ...]:
        """The nodes it needs."""
        return self.scores.arguments


def _split(terms: Iterable[tuple[Content, float]], constant: float) -> tuple[tuple[tuple[int, float], ...], float]:
    """The terms that read a node, and the rest."""
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
    """Makes nodes; node k is input k for k < inputs."""

    def __init__(self, inputs: int, box: tuple[Interval, ...] | None, dtype: str) -> None:
        self.inputs, self.dtype = inputs, dtype
        self.made: list[Linear | Read | None] = [None] * inputs
        self.stages: list[Stage] = [(-1, "arguments")] * inputs
        #: Where nodes lie with inputs in the box, and with any inputs.
        self.within: list[Interval] = list(box) if box is not None else [ANYWHERE] * inputs
        self.always: list[Interval] = [ANYWHERE] * inputs
        self._known: dict[Any, Any] = {}

    def input(self, column: int) -> int:
        """The node of an input."""
        return column

    def linear(self, terms: Iterable[tuple[Content, float]], constant: float, stage: Stage) -> Content:
        """A linear form; a constant or a node that is already there, if it is one."""
        read, total = _split(terms, constant)
        if not read:
            return total
        if len(read) == 1 and read[0][1] == 1 and total == 0:
            return read[0][0]
        return self._form(read, total, False, stage)

    def relu(self, terms: Iterable[tuple[Content, float]], constant: float, stage: Stage) -> Content:
        """The larger of a linear form and zero."""
        read, total = _split(terms, constant)
        return self._form(read, total, True, stage) if read else max(total, 0.0)

    def table(
        self, arguments: Sequence[Content], slopes: FloatArray, offsets: FloatArray, values: FloatArray, stage: Stage
    ) -> int:
        """A table read at its arguments."""
        b = stage[0]
        asked = tuple(a if isinstance(a, int) else self._form((), a, False, (b, "arguments")) for a in arguments)
        key = (asked, slopes.tobytes(), offsets.tobytes(), b)
        if key not in self._known:
            self._known[key] = self._scores(asked, slopes, offsets, values, b)
        scores: Scores = self._known[key]
        if not (scores.shifted or bounds.fits(np.zeros(1), np.zeros(1), values, (0.0, 0.0), self.dtype)):
            scores = self._known[key] = Scores(asked, slopes, offsets, True, len(asked))
        always = within = bounds.values_range(values)
        if len(asked) == 1:
            line = slopes[:, 0], offsets[:, 0], values
            within, always = (bounds.table_range(*line, where[asked[0]]) for where in (self.within, self.always))
        return self._add((scores, values.tobytes()), Read(scores, values), within, always, stage)

    def _scores(
        self, asked: tuple[int, ...], slopes: FloatArray, offsets: FloatArray, values: FloatArray, b: int
    ) -> Scores:
        """Unshifted where that is safe, with guards where it is safe in the box only."""
        if len(asked) == 1:
            line = slopes[:, 0], offsets[:, 0], values
            if bounds.fits(*line, self.always[asked[0]], self.dtype):
                return Scores(asked, slopes, offsets, False, 1)
            where = self.within[asked[0]]
            if bounds.fits(*line, where, self.dtype):
                above = self._form(((asked[0], 1.0),), -where[1], True, (b, "guards"))
                below = self._form(((asked[0], -1.0),), where[0], True, (b, "guards"))
                ends = np.array([-slopes.max(), slopes.min()])
                guarded = np.concatenate([slopes, np.broadcast_to(ends, (len(slopes), 2))], axis=1)
                return Scores((*asked, above, below), guarded, offsets, False, 1)
        return Scores(asked, slopes, offsets, True, len(asked))

    def _form(self, terms: tuple[tuple[int, float], ...], constant: float, bend: bool, stage: Stage) -> int:
        within, always = (
            bounds.linear_range([(where[k], f) for k, f in terms], constant, bend)
            for where in (self.within, self.always)
        )
        return self._add((terms, constant, bend), Linear(terms, constant, bend), within, always, stage)

    def _add(self, key: Any, node: Linear | Read, within: Interval, always: Interval, stage: Stage) -> int:
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
        """What the outputs need, one step for each stage and kind."""
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
        return Program(self.inputs, positions, tuple(steps), rows, self.dtype)

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
        forms = [k for k in wanted if isinstance(self.made[k], Linear)]
        for bend in (False, True):
            made = [k for k in forms if self.made[k].bend == bend]  # type: ignore[union-attr]
            if made:
                yield self._affine(made, place, bend), made
        heads: dict[Scores, list[int]] = {}
        for k in wanted:
            node = self.made[k]
            if isinstance(node, Read):
                heads.setdefault(node.scores, []).append(k)
        for shifted in (False, True):
            plain = {s: made for s, made in heads.items() if s.shifted == shifted}
            for scores in [s for s in plain if s.axes > 1]:
                reads = np.array([place[k] for k in scores.arguments])
                values = np.stack([self.made[k].values for k in plain[scores]], axis=1)  # type: ignore[union-attr]
                grid = grid_of(reads, scores.slopes, scores.offsets, values, self.dtype)
                if grid is not None:
                    yield grid, plain.pop(scores)
            for part in _parts(plain):
                yield self._tables(part, place, shifted), [k for made in part.values() for k in made]

    def _affine(self, made: list[int], place: dict[int, int], bend: bool) -> Affine:
        columns: dict[tuple[int, int], int] = {(ONE, 0): 0}  # a row that a form reads twice has two columns
        entries = []
        for i, k in enumerate(made):
            node = self.made[k]
            assert isinstance(node, Linear)
            entries.append((i, 0, node.constant))
            times: dict[int, int] = {}
            for read, factor in node.terms:
                times[read] = times.get(read, 0) + 1
                column = columns.setdefault((place[read], times[read]), len(columns))
                entries.append((i, column, factor))
        matrix = np.zeros((len(made), len(columns)))
        for i, column, factor in entries:
            matrix[i, column] = factor
        guard = self.stages[made[0]][1] == "guards"
        reads = np.array([row for row, _ in columns])
        order = np.argsort(reads, kind="stable")  # rows that stand together are read together
        return Affine(reads[order], matrix[:, order].astype(self.dtype), bend, guard)

    def _tables(self, heads: dict[Scores, list[int]], place: dict[int, int], shifted: bool) -> Tables:
        rows = sorted({place[k] for scores in heads for k in scores.arguments})
        column = {row: 1 + i for i, row in enumerate(rows)}
        slopes, starts, values = [], [0], []
        for scores, made in heads.items():
            block = np.zeros((len(scores.slopes), 1 + len(rows)), dtype=self.dtype)
            block[:, 0] = scores.offsets.astype(self.dtype).sum(axis=1)
            for i, k in enumerate(scores.arguments):
                block[:, column[place[k]]] += scores.slopes[:, i].astype(self.dtype)
            slopes.append(block)
            starts.append(starts[-1] + len(block))
            values.append(np.stack([self.made[k].values for k in made]).astype(self.dtype))  # type: ignore[union-attr]
        reads = np.array([ONE, *rows])
        return Tables(reads, np.concatenate(slopes), tuple(starts), tuple(values), shifted)
