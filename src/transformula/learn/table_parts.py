"""Tables in parts: who reads them, who works on them, and how what they find out is added up.

The parts are joined into groups that depend on their number alone, a worker adds up the states of one group, and the
groups' states are added in order. So the result has the same bits whoever computed what, and what travels is one state
for a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from transformula.cluster.engines import Outcome
from transformula.learn.distinct_rows import Floats
from transformula.learn.streaming import Chunk, add_up
from transformula.progress import report

State = TypeVar("State")
#: States that reach whoever adds them up.
_MOST_GROUPS = 256
#: Numbers of a chunk, 8 MiB, and the fewest rows.
_CHUNK_NUMBERS, _LEAST_ROWS = 2**20, 1_024


def chunk_rows(width: int) -> int:
    """How many rows of so many numbers are read at a time.

    Examples
    --------
    >>> chunk_rows(11), chunk_rows(5000)
    (95325, 1024)
    """
    return max(_CHUNK_NUMBERS // max(1, width), _LEAST_ROWS)


class Reader(Protocol):
    """One part of a table; it can be pickled, and whoever has it can read the rows."""

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some at a time."""


class Workers(Protocol):
    """Who works on tasks: an engine, or the ranks of a group."""

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Outcome]:
        """Outcomes of a function on every task, as they are ready."""


@dataclass(frozen=True)
class ReadParts:
    """Parts that are read where they are worked on: here, or by workers."""

    width: int
    outputs: int
    readers: tuple[Reader, ...]
    workers: Workers | None = None

    def total(self, work: Callable[[Iterable[Chunk]], State | None]) -> State:
        """Do one piece of work on every part, and add up what comes back."""
        groups = self._groups()
        task: Callable[[tuple[Reader, ...]], State | None] = partial(_work, work)
        if self.workers is None:
            with threadpool_limits(limits=1):  # as workers do: the work is mostly not BLAS, and its threads would wait
                return add_up(_reported(map(task, groups), len(groups)))
        states: Iterator[State | None] = (one.get() for one in in_order(self.workers.run(task, groups)))
        return add_up(_reported(states, len(groups)))

    def _groups(self) -> list[tuple[Reader, ...]]:
        count = len(self.readers)
        some = min(count, _MOST_GROUPS)
        return [self.readers[k * count // some : (k + 1) * count // some] for k in range(some)]


@dataclass(frozen=True)
class ArrayReader:
    """Rows that are in memory."""

    X: Floats
    Y: Floats
    weight: Floats | None = None

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some at a time."""
        step = chunk_rows(self.X.shape[1] + self.Y.shape[1])
        for k in range(0, len(self.X), step):
            rows = slice(k, k + step)
            yield self.X[rows], self.Y[rows], None if self.weight is None else self.weight[rows]


def _work(work: Callable[[Iterable[Chunk]], Any], readers: tuple[Reader, ...]) -> Any:
    return work(chain.from_iterable(reader.chunks() for reader in readers))


def _reported(states: Iterable[State], count: int) -> Iterator[State]:
    for done, state in enumerate(states, 1):
        report("reading", done, count - done)
        yield state


def in_order(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Outcomes by their index; one that comes early waits."""
    early: dict[int, Outcome] = {}
    wanted = 0
    for outcome in outcomes:
        early[outcome.index] = outcome
        while wanted in early:
            yield early.pop(wanted)
            wanted += 1
