"""Which rows each softmax of a step reads, packed for kernels that take one table at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.folder.weights import FloatArray


def table_layout(slopes: FloatArray, starts: Sequence[int], widths: Sequence[int]) -> tuple[NDArray[Any], ...]:
    """Four arrays: columns, chosen, kept and tables.

    ``slopes`` is tokens × rows, with offsets in column 0; softmax g has the tokens from starts[g] up to starts[g + 1],
    and widths[g] tables. It reads ``columns[g]``, filled up with 0; token j's slopes there are ``slopes[j, chosen[j]]``
    times ``kept[j]``. Each of ``tables`` has its first token, the one after its last, and its softmax.
    """
    ends = list(pairwise(starts))
    used = [1 + np.flatnonzero((slopes[a:b, 1:] != 0).any(axis=0)) for a, b in ends]
    width = max(1, *map(len, used))
    columns, tables = np.zeros((len(used), width), dtype=np.int32), []
    chosen = np.zeros((len(slopes), width), dtype=np.int64)
    kept = np.zeros((len(slopes), width), dtype=slopes.dtype)
    for g, ((a, b), reads) in enumerate(zip(ends, used, strict=True)):
        columns[g, : len(reads)] = reads
        chosen[a:b, : len(reads)] = reads
        kept[a:b, : len(reads)] = 1
        tables += [(a, b, g)] * widths[g]
    return columns, chosen, kept, np.array(tables, dtype=np.int32)
