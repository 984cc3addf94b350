"""Tables of other libraries as parts: Dask collections stay on their cluster, Arrow tables are read in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from transformula.learn.distinct_rows import Floats, is_dask
from transformula.learn.streaming import Chunk, NoRowsError, Parts
from transformula.learn.table_parts import ReadParts, chunk_rows

State = TypeVar("State")


@dataclass(frozen=True)
class GivenTable:
    """X, y and weights in parts; names are None where the columns have none."""

    parts: Parts
    names: NDArray[np.object_] | None
    single: bool  # y has one number a row

    def name(self, estimator: Any) -> None:
        """Tell an estimator the names of its columns, as scikit-learn does."""
        if self.names is not None and all(isinstance(name, str) for name in self.names):
            estimator.feature_names_in_ = self.names
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_


def is_arrow(table: Any) -> bool:
    """Whether this is an Arrow table."""
    return type(table).__module__.split(".")[0] == "pyarrow" and hasattr(table, "column_names")


def given_table(X: Any, y: Any, weight: Any) -> GivenTable | None:
    """A table in parts, if X is one."""
    if is_dask(X):
        return _dask_table(X, y, weight)
    if is_arrow(X):
        rows = len(X)
        if not rows:
            raise NoRowsError("the table has no rows")
        step = chunk_rows(X.num_columns + 1)
        readers = tuple(_ArrowReader(X, y, weight, slice(k, k + step)) for k in range(0, rows, step))
        if len(y) != rows:
            raise ValueError(f"X has {rows} rows and y has {len(y)}")
        columns = getattr(y, "num_columns", None)
        outputs = columns or (1 if np.ndim(y[:1]) == 1 else int(np.shape(y)[1]))
        names = np.array(X.column_names, dtype=object)
        return GivenTable(ReadParts(X.num_columns, outputs, readers), names, not columns and outputs == 1)
    return None


def numbers(table: Any, what: str) -> Floats:
    """One part as floats (rows, columns), refused where they are not finite."""
    try:
        values = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} has values that are not numbers: {' '.join(str(error).split())[:120]}") from None
    if not np.isfinite(values).all():
        raise ValueError(f"{what} has values that are missing, infinite or NaN")
    return values.reshape(len(values), -1)


def _chunk(X: Any, Y: Any, weight: Any) -> Chunk:
    chunk = numbers(X, "X"), numbers(Y, "y"), None if weight is None else numbers(weight, "sample_weight")[:, 0]
    if len(chunk[0]) != len(chunk[1]) or (chunk[2] is not None and len(chunk[2]) != len(chunk[0])):
        raise ValueError(
            f"a part of X has {len(chunk[0])} rows, but the matching part of y or of the weights has another number"
        )
    if chunk[2] is not None and chunk[2].min(initial=0.0) < 0:
        raise ValueError("sample_weight has negative entries: weights must be zero or more")
    return chunk


@dataclass(frozen=True)
class _ArrowReader:
    """A slice of an Arrow table."""

    X: Any
    y: Any
    weight: Any
    rows: slice

    def chunks(self) -> Iterator[Chunk]:
        """The rows of the slice."""
        weight = None if self.weight is None else self.weight[self.rows]
        yield _chunk(_sliced(self.X, self.rows), _sliced(self.y, self.rows), weight)


def _sliced(table: Any, rows: slice) -> Any:
    return table.slice(rows.start, rows.stop - rows.start) if hasattr(table, "slice") else table[rows]


@dataclass(frozen=True)
class _DaskParts:
    """Blocks of rows that are worked on where they are; states meet in a tree, and one comes back."""

    width: int
    outputs: int
    blocks: tuple[tuple[Any, Any, Any], ...]  # delayed X, y and weights

    def total(self, work: Callable[[Iterable[Chunk]], State | None]) -> State:
        """Do one piece of work on every block, and add up what comes back."""
        from dask.base import compute
        from dask.delayed import delayed

        job, one, both = delayed(work), delayed(_on_block, pure=False), delayed(_sum, pure=False)
        states = [one(job, *block) for block in self.blocks]
        while len(states) > 1:
            states = [both(*states[k : k + 2]) if k + 1 < len(states) else states[k] for k in range(0, len(states), 2)]
        found: State | None = compute(states[0])[0]
        if found is None:
            raise NoRowsError("the table has no rows")
        return found


def _on_block(work: Callable[[Iterable[Chunk]], Any], X: Any, Y: Any, weight: Any) -> Any:
    return work([_chunk(X, Y, weight)] if len(X) else [])


def _sum(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one + other


def _dask_table(X: Any, y: Any, weight: Any) -> GivenTable:
    columns = getattr(X, "columns", None)
    blocks = [_blocks(table, name) for table, name in ((X, "X"), (y, "y"), (weight, "sample_weight"))]
    count = len(blocks[0] or ())
    for found, name in zip(blocks[1:], ("y", "sample_weight"), strict=True):
        if found is not None and len(found) != count:
            raise ValueError(f"X has {count} parts and {name} has {len(found)}: cut them at the same rows")
    names = None if columns is None else np.array(list(columns), dtype=object)
    width = int(X.shape[1]) if columns is None else len(columns)
    single = y.ndim == 1
    outputs = 1 if single else len(y.columns) if hasattr(y, "columns") else int(y.shape[1])
    full = [[None] * count if found is None else found for found in blocks]
    return GivenTable(_DaskParts(width, outputs, tuple(zip(*full, strict=True))), names, single)


def _blocks(table: Any, name: str) -> list[Any] | None:
    """The delayed parts of a collection, each with whole rows."""
    if table is None:
        return None
    if not is_dask(table):
        raise ValueError(f"X is a Dask collection, so {name} must be one too")
    if hasattr(table, "rechunk") and table.ndim == 2:
        table = table.rechunk({1: -1})
    return list(np.ravel(table.to_delayed()))
