"""Tables in parts: readers, workers, and sums of the states they return.

The parts are joined into groups that depend on their number alone, a worker adds up the states of one group, and the
groups' states are added in order. So the result has the same bits whichever worker computed a state, and one state
travels for each group. Dask collections stay on their cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from transformula.budget import one_thread, report
from transformula.cluster.engines import Outcome

Floats = NDArray[np.float64]
State = TypeVar("State")
#: Inputs (rows, d), targets (rows, outputs) and weights, of at least one row.
Chunk = tuple[Floats, Floats, Floats | None]
#: Most groups of parts.
_MOST_GROUPS = 256
#: Numbers in a chunk: 8 MiB.
_CHUNK_NUMBERS = 2**20
#: Fewest rows of a chunk.
_LEAST_ROWS = 1_024


def chunk_rows(width: int) -> int:
    """Number of rows, of ``width`` numbers each, that are read at a time.

    Examples
    --------
    >>> chunk_rows(11), chunk_rows(5000)
    (95325, 1024)
    """
    return max(_CHUNK_NUMBERS // max(1, width), _LEAST_ROWS)


class NoRowsError(ValueError):
    """A table without rows."""


class Parts(Protocol):
    """A table in parts, wherever they are."""

    @property
    def width(self) -> int:
        """Number of inputs of a row."""

    @property
    def outputs(self) -> int:
        """Number of targets of a row."""

    def total(self, work: Callable[[Iterable[Chunk]], State | None]) -> State:
        """Do one piece of work on every part, and add up what comes back; None is the state of no rows."""


def total_of(states: Iterable[State | None]) -> State | None:
    """The sum of states in their order; None is the state of no rows."""
    total: Any = None
    for state in states:
        total = state if total is None else total if state is None else total + state
    return total  # type: ignore[no-any-return]


def add_up(states: Iterable[State | None]) -> State:
    """The sum of states in their order.

    Raises
    ------
    NoRowsError
        If there are none.
    """
    total = total_of(states)
    if total is None:
        raise NoRowsError("the table has no rows")
    return total


class Reader(Protocol):
    """One part of a table; it can be pickled and read by any worker."""

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some at a time."""


class Workers(Protocol):
    """Workers on tasks: an engine, or the ranks of a group."""

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
            with one_thread():  # as workers do: the work is mostly not BLAS, and its threads would wait
                return add_up(_reported(map(task, groups), len(groups)))
        states: Iterator[State | None] = (one.get() for one in in_order(self.workers.run(task, groups)))
        return add_up(_reported(states, len(groups)))

    def _groups(self) -> list[tuple[Reader, ...]]:
        count = len(self.readers)
        some = min(count, _MOST_GROUPS)
        return [self.readers[k * count // some : (k + 1) * count // some] for k in range(some)]


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


def _numbers(table: Any, what: str) -> Floats:
    """One part as floats (rows, columns), refused where they are not finite."""
    try:
        values = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} has values that are not numbers: {' '.join(str(error).split())[:120]}") from None
    if not np.isfinite(values).all():
        raise ValueError(f"{what} has values that are missing, infinite or NaN")
    return values.reshape(len(values), -1)


def _chunk(X: Any, Y: Any, weight: Any) -> Chunk:
    x, y = _numbers(X, "X"), _numbers(Y, "y")
    w = None if weight is None else _numbers(weight, "sample_weight")[:, 0]
    if len(x) != len(y) or (w is not None and len(w) != len(x)):
        raise ValueError(
            f"a part of X has {len(x)} rows, but the matching part of y or of the weights has another number"
        )
    if w is not None and w.min(initial=0.0) < 0:
        raise ValueError("sample_weight has negative entries: weights must be zero or more")
    return x, y, w


def is_dask(table: Any) -> bool:
    """Whether this is a Dask collection, whose rows may be on other machines."""
    return hasattr(table, "__dask_graph__") and hasattr(table, "to_delayed")


@dataclass(frozen=True)
class DaskParts:
    """Blocks of rows that are worked on where they are; states meet in a tree, and one comes back."""

    width: int
    outputs: int
    blocks: tuple[tuple[Any, Any, Any], ...]  # delayed X, y and weights
    names: NDArray[np.object_] | None  # of the columns
    single: bool  # y has one number a row

    @classmethod
    def of(cls, X: Any, y: Any, weight: Any) -> DaskParts:
        """The blocks of collections that are cut at the same rows."""
        columns = getattr(X, "columns", None)
        blocks = [_blocks(table, name) for table, name in ((X, "X"), (y, "y"), (weight, "sample_weight"))]
        count = len(blocks[0] or ())
        for found, name in zip(blocks[1:], ("y", "sample_weight"), strict=True):
            if found is not None and len(found) != count:
                raise ValueError(f"X has {count} parts and {name} has {len(found)}: cut them at the same rows")
        names = None if columns is None else np.array(list(columns), dtype=object)
        width = int(X.shape[1]) if columns is None else len(columns)
        outputs = 1 if y.ndim == 1 else len(y.columns) if hasattr(y, "columns") else int(y.shape[1])
        full = [[None] * count if found is None else found for found in blocks]
        return cls(width, outputs, tuple(zip(*full, strict=True)), names, y.ndim == 1)

    def total(self, work: Callable[[Iterable[Chunk]], State | None]) -> State:
        """Do one piece of work on every block, and add up what comes back."""
        from dask.base import compute
        from dask.delayed import delayed

        job = delayed(work)
        one, several = delayed(_on_block, pure=False), delayed(total_of, pure=False)
        states = [one(job, *block) for block in self.blocks]
        while len(states) > 1:
            states = [several(states[k : k + 2]) for k in range(0, len(states), 2)]
        found: tuple[State | None] = compute(states[0])
        return add_up(found)


def _on_block(work: Callable[[Iterable[Chunk]], Any], X: Any, Y: Any, weight: Any) -> Any:
    return work([_chunk(X, Y, weight)] if len(X) else [])


def _blocks(table: Any, name: str) -> list[Any] | None:
    """The delayed parts of a collection, each with whole rows."""
    if table is None:
        return None
    if not is_dask(table):
        raise ValueError(f"X is a Dask collection, so {name} must be one too")
    if hasattr(table, "rechunk") and table.ndim == 2:
        table = table.rechunk({1: -1})
    return list(np.ravel(table.to_delayed()))
