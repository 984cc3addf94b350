"""One layer of softmax tables whose values are solved instead of sampled: spectral accuracy with few tokens.

One softmax head over M memory tokens with affine scores is a smooth partition of unity, and T is linear
in its values. `tables.smallest_table` chooses scores and solves for the values of one-form parts;
`tables.grid_fit` does the same on tensor grids for parts of two to four variables. Whatever they return is
only a candidate: the certificate is proven from the final weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from transformula.blas_threads import one_thread
from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import LOOKUP
from transformula.compiler.lower.additive import Part
from transformula.compiler.one_layer_parts import FittedPart, Wanted, one_layer_built, one_layer_spec
from transformula.compiler.refusal import check_strain
from transformula.compiler.tables.disk_cache import fit_expression
from transformula.compiler.tables.grid_fit import MAX_GRID, Grid, fit_grid
from transformula.compiler.tables.shared_fits import fit_all
from transformula.compiler.tables.smallest_table import Allowance, CannotFit
from transformula.compiler.tables.softmax_table import Table
from transformula.errors import NotProvenError
from transformula.formula.evaluation import evaluate
from transformula.kernel.syntax.printing import short_text


def lookup_attempts(task: BuildTask) -> Iterator[Attempt]:
    """Models whose measured error meets the tolerance, fewest tokens first.

    Where none does, the closest, if it is close: its proof says by how much it falls short.
    """
    dtype = task.options.dtype
    for share in policy.LOOKUP_SHARES:
        fitter = _Fitter(task.eps, share, dtype, task.most, task.findings.missed)

        def build(fitter: _Fitter = fitter) -> Built:
            spec = one_layer_spec(task.ground, task.eps, fitter, dtype, task.options.shape)
            return one_layer_built(task.ground, spec, target=task.eps)

        yield Attempt(LOOKUP, build)
        if fitter.fell_short:
            return


class _Fitter:
    """Fits parts at a share of their tolerance, and remembers whether one fell short, and which by how much."""

    def __init__(
        self, eps: float, share: float, dtype: str, most: float, missed: dict[object, tuple[FittedPart, float]]
    ) -> None:
        self.eps, self.share, self.dtype, self.fell_short = eps, share, dtype, False
        self.most_tokens, self.missed = int(min(MAX_GRID, most)), missed

    def __call__(self, parts: Sequence[Wanted]) -> Iterator[FittedPart]:
        tasks = {
            (part, ranges): (part, ranges, eps * self.share, self.dtype, self.most_tokens)
            for part, ranges, eps in parts
            if (part, ranges) not in self.missed
        }
        self.fell_short = len(tasks) < len(parts)
        found: dict[object, FittedPart] = {}
        try:
            fitted = fit_all(_fit, list(tasks.values()), lambda: self.fell_short)
            for key, (table, fell_short, error) in zip(tasks, fitted, strict=True):
                self.fell_short |= fell_short
                found[key] = table
                if error is not None:
                    self.missed[key] = table, error
        except NotProvenError:  # what cannot be had at this share cannot be had at a smaller one
            self.fell_short = True
            raise
        errors = [self.missed[part, ranges][1] for part, ranges, _ in parts if (part, ranges) in self.missed]
        check_strain(sum(errors), self.eps, "the best table found has")
        yield from (found.get((p, r)) or self.missed[p, r][0] for p, r, _ in parts)


def fit_part(part: Part, ranges: Sequence[tuple[float, float]], eps: float, dtype: str = "float64") -> FittedPart:
    """A table for one part, as `lookup_attempts` takes it first."""
    return next(_Fitter(math.inf, 1.0, dtype, math.inf, {})([(part, tuple(ranges), eps)]))


def _fit(
    part: Part, ranges: Sequence[tuple[float, float]], eps: float, dtype: str, most_tokens: int, most: Allowance
) -> tuple[FittedPart, bool, float | None]:
    """A table for a part, whether it fell short, and its error where a smaller one was to be had."""
    names = [f"u{k + 1}" for k in range(len(ranges))]
    finest = _finest(part, names, ranges, dtype)
    fell_short = eps < finest
    eps = policy.EASY_MULTIPLE * finest if fell_short else eps
    try:
        with one_thread():
            if len(ranges) == 1:
                return (
                    _from_table(fit_expression(part.expr, names[0], *ranges[0], eps, dtype, most=most)),
                    fell_short,
                    None,
                )
            return _from_grid(_fit_many(part, names, ranges, eps, dtype, most_tokens)), fell_short, None
    except CannotFit as failure:
        if most_tokens < MAX_GRID:
            raise NotProvenError(f"a table of {part.original} would be larger than what is proven") from None
        if failure.best is None:
            raise NotProvenError(f"no table for {short_text(part.original):.80} was found: {failure}") from None
        table = _from_table(failure.best) if len(ranges) == 1 else _from_grid(failure.best)
        return table, True, failure.best_error


def _finest(part: Part, names: Sequence[str], ranges: Sequence[tuple[float, float]], dtype: str) -> float:
    """How coarsely values of this size are rounded: no table comes closer."""
    mesh = np.meshgrid(*(np.linspace(low, high, 9) for low, high in ranges), indexing="ij")
    sizes = np.abs(evaluate(part.expr, names, mesh))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes))) * float(np.finfo(dtype).eps) / 2


def _from_table(table: Table) -> FittedPart:
    return FittedPart(table.slopes[:, None], table.offsets[:, None], table.values, float(table.linear))


def _fit_many(
    part: Part,
    names: Sequence[str],
    ranges: Sequence[tuple[float, float]],
    eps: float,
    dtype: str,
    most: int,
) -> Grid:
    lowers, uppers = zip(*ranges, strict=True)

    def values(*u: NDArray[np.float64]) -> NDArray[np.float64]:
        return evaluate(part.expr, names, np.broadcast_arrays(*u))

    return fit_grid(values, lowers, uppers, eps, dtype, max_tokens=most)


def _from_grid(grid: Grid) -> FittedPart:
    slopes = np.stack([m.ravel() for m in np.meshgrid(*grid.slopes, indexing="ij")], axis=1)
    offsets = np.stack([m.ravel() for m in np.meshgrid(*grid.offsets, indexing="ij")], axis=1)
    return FittedPart(slopes, offsets, grid.values.ravel())
