"""Rows in memory as a part of a table."""

from collections.abc import Iterator
from dataclasses import dataclass

from transformula.cluster.table_parts import Chunk, chunk_rows
from transformula.learn.distinct_rows import Floats


@dataclass(frozen=True)
class ArrayReader:
    """Rows that are in memory."""

    X: Floats
    Y: Floats

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some at a time."""
        step = chunk_rows(self.X.shape[1] + self.Y.shape[1])
        for k in range(0, len(self.X), step):
            yield self.X[k : k + step], self.Y[k : k + step], None
