"""The intermediate program: rows of numbers, one number per sample, and the steps that make new rows.

Row 0 is the constant 1, rows 1 to d are the inputs, and each step appends rows. So a linear form with its constant is
one matrix product, and so are all scores of a layer. The program holds the stored numbers unchanged: nothing is
multiplied into anything else, and each form reads what the blocks' form reads.

*Rounding.* The certificate's rounding bound (`kernel.rounding.softmax` lists the orders that it covers,
`kernel.structures.network`, `kernel.rules.polynomial_rule`) allows a linear form to be added up in any order, a
softmax to be shifted by any number that all of its scores share, its sums to be taken in any order, the quotient to be
taken once after the sums (multiplying, adding and dividing round as often as dividing, multiplying and adding), and a
grid to be evaluated axis by axis. Steps do this and no more; terms that are zero are exact. A softmax that is not
shifted (`Tables.anchors`) has no rounding of the shift, and one token whose exponential is exactly 1; nothing
overflows, exponentials that are flushed to zero cost no more than they do after a shift, and where an argument is
clamped one token is all that counts, so that fewer roundings happen than are counted (`score_bounds`). Tokens outside a
window (`GridStep.windows`) are zero in floats.

*Range.* A shifted softmax adds up at most the sum of a table's values, and powers are at most those of the largest
argument, times coefficients: the kernel refuses models in which these sums might overflow
(`kernel.structures.memory_overflow`, `kernel.rules.polynomial_rule`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.folder.weights import FloatArray

#: Indices of rows.
Rows = NDArray[np.int64]

#: Index of the row that is always 1.
ONE = 0
#: Tokens of a polynomial evaluated at a time.
BLOCK_TOKENS = 256


@dataclass(frozen=True, eq=False)
class AffineStep:
    """New rows ``matrix @ rows[reads]``; with ``relu``, negative numbers become zero."""

    reads: Rows
    matrix: FloatArray
    relu: bool = False

    @property
    def width(self) -> int:
        """Number of rows it appends."""
        return len(self.matrix)


@dataclass(frozen=True, eq=False)
class Tables:
    """Softmax tables side by side. Softmax g has the tokens starts[g] to starts[g + 1] - 1, and its anchor.

    Scores are ``slopes @ rows[reads]``, tokens × samples. ``values[g]`` is columns × tokens: each column is a table
    with the same scores, and a new row. ``anchors`` has the value of each new row's anchor, one more token, whose score
    is always zero; without anchors the largest score is subtracted from the others first. Rows that are read are
    clamped to ``clamps`` (two ends × rows): needless while the inputs are in the box, unless
    ``clamped_inside`` (`bounds`). If ``sinks``, exponentials may vanish.
    """

    reads: Rows
    slopes: FloatArray
    starts: tuple[int, ...]
    values: tuple[FloatArray, ...]
    anchors: FloatArray | None
    clamps: FloatArray | None
    clamped_inside: bool
    sinks: bool

    @property
    def shifted(self) -> bool:
        """Whether the largest score is subtracted from the others."""
        return self.anchors is None

    @property
    def width(self) -> int:
        """Number of rows it appends."""
        return sum(len(v) for v in self.values)

    @property
    def tokens(self) -> int:
        """Number of tokens of its tables: exponentials, and anchors."""
        return len(self.slopes) + (0 if self.shifted else len(self.values))

    @cached_property
    def sums(self) -> tuple[FloatArray, FloatArray]:
        """Two matrices, rows × tokens: the values where a token belongs to a row's table, and ones there; else zero.

        Anchors have one more column: what they add to every sum.
        """
        above, below = np.zeros((2, self.width, len(self.slopes)), dtype=self.slopes.dtype)
        first = 0
        for start, stop, values in zip(self.starts[:-1], self.starts[1:], self.values, strict=True):
            above[first : first + len(values), start:stop] = values
            below[first : first + len(values), start:stop] = 1
            first += len(values)
        if self.anchors is None:
            return above, below
        more = self.anchors[:, None], np.ones_like(self.anchors)[:, None]
        return np.concatenate([above, more[0]], axis=1), np.concatenate([below, more[1]], axis=1)


@dataclass(frozen=True, eq=False)
class GridStep:
    """A table whose tokens form a grid: softmax is a product over the axes.

    Axis k reads row reads[k]; ``slopes[k]`` and ``offsets[k]`` are its tokens, by slope. ``values`` has one
    dimension for each axis and then one for the tables with the same scores. ``windows[k]`` is how many tokens on
    either side of the leading one can differ from zero in floats, or None where that is not known to be few.
    """

    reads: Rows
    slopes: tuple[FloatArray, ...]
    offsets: tuple[FloatArray, ...]
    values: FloatArray
    windows: tuple[int | None, ...]

    @property
    def width(self) -> int:
        """Number of rows it appends."""
        return int(self.values.shape[-1])

    @property
    def tokens(self) -> int:
        """Number of exponentials of a sample."""
        return sum(len(a) for a in self.slopes)


@dataclass(frozen=True, eq=False)
class Powers:
    """Fang's sums: row o is Σ_s Σ_k coefficients[s, o, k] t_k^s, with t = ``directions @ rows[reads]``.

    Tokens are sorted by their powers, so that similar ones are adjacent: only the first ``active[s]`` have power s or
    more.
    """

    reads: Rows
    directions: FloatArray
    coefficients: FloatArray
    active: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of rows it appends."""
        return int(self.coefficients.shape[1])

    @property
    def degree(self) -> int:
        """The highest power."""
        return len(self.active) - 1


Step = AffineStep | Tables | GridStep | Powers


@dataclass(frozen=True, eq=False)
class Program:
    """Steps in order; the result is ``rows[outputs]``.

    ``box`` is where the inputs are meant to lie, two ends × inputs: nothing has to be clamped there. ``inputs`` and
    ``outputs`` are those of one position, and ``positions`` of them stand side by side in a sample.
    """

    inputs: int
    positions: int
    steps: tuple[Step, ...]
    outputs: Rows
    dtype: str
    box: FloatArray | None = None

    @property
    def rows(self) -> int:
        """Number of rows after the last step."""
        return 1 + self.inputs + sum(step.width for step in self.steps)

    @property
    def tokens(self) -> int:
        """Tokens of all tables that are read: the exponentials of a position, or a polynomial's directions."""
        return sum(len(s.directions) if isinstance(s, Powers) else getattr(s, "tokens", 0) for s in self.steps)

    @property
    def floats(self) -> int:
        """Approximate number of floats held at once per sample, which sets the size of a chunk."""
        return self.rows + max((_floats(step) for step in self.steps), default=0)


def _floats(step: Step) -> int:
    if isinstance(step, AffineStep):
        return len(step.reads)
    if isinstance(step, Tables):
        return 2 * len(step.slopes) + len(step.reads)
    if isinstance(step, Powers):
        return 2 * min(len(step.directions), BLOCK_TOKENS)
    if all(w is not None for w in step.windows):
        return 4 * step.width * int(np.prod([2 * (w or 0) + 1 for w in step.windows]))
    return step.tokens + 2 * int(step.values.size) // max(len(step.slopes[0]), 1)
