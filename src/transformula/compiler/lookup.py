"""One layer of softmax tables whose values are solved instead of sampled: spectral accuracy with few tokens.

One softmax head over M memory tokens with affine scores is a smooth partition of unity, and T is linear
in its values. `compiler.tables` chooses scores and solves for the values of one-form parts, and
`compiler.tables.grid_fit` does the same on tensor grids for parts of two to four variables. The tables are
only candidates: the certificate is proven from the final weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from transformula.budget import one_thread
from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import LOOKUP
from transformula.compiler.layout import TableTokens
from transformula.compiler.lower.additive import Part
from transformula.compiler.partition import Wanted, one_layer_built, one_layer_spec
from transformula.compiler.refusal import check_strain
from transformula.compiler.tables.expression_fits import fit_all, fit_expression
from transformula.compiler.tables.fit_task import Allowance, CannotFit
from transformula.compiler.tables.grid_fit import fit_grid
from transformula.compiler.tables.softmax_table import FittedTable
from transformula.errors import NotProvenError
from transformula.formula.evaluation import evaluate
from transformula.kernel.enclosures.regions import products
from transformula.kernel.syntax.expression import short_text


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
        self, eps: float, share: float, dtype: str, most: float, missed: dict[object, tuple[TableTokens, float]]
    ) -> None:
        self.eps, self.share = eps, share
        self.dtype, self.fell_short = dtype, False
        self.most_tokens, self.missed = int(min(policy.MOST_TOKENS, most)), missed

    def __call__(self, parts: Sequence[Wanted]) -> Iterator[TableTokens]:
        tasks = {
            (part, ranges): (part, ranges, eps * self.share, self.dtype, self.most_tokens)
            for part, ranges, eps in parts
            if (part, ranges) not in self.missed
        }
        self.fell_short = len(tasks) < len(parts)
        found: dict[object, TableTokens] = {}
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


def fit_part(part: Part, ranges: Sequence[tuple[float, float]], eps: float, dtype: str = "float64") -> TableTokens:
    """A table for one part, as `lookup_attempts` takes it first."""
    return next(_Fitter(math.inf, 1.0, dtype, math.inf, {})([(part, tuple(ranges), eps)]))


def _fit(
    part: Part, ranges: Sequence[tuple[float, float]], eps: float, dtype: str, most_tokens: int, most: Allowance
) -> tuple[TableTokens, bool, float | None]:
    """A table for a part, whether it fell short, and its error where a smaller one was to be had."""
    names = [f"u{k + 1}" for k in range(len(ranges))]
    finest = _finest(part, names, ranges, dtype)
    fell_short = eps < finest
    eps = policy.EASY_MULTIPLE * finest if fell_short else eps
    try:
        with one_thread():
            if len(ranges) == 1:
                table = fit_expression(part.expr, names[0], *ranges[0], eps, dtype, most=most)
            else:
                table = _fit_grid(part, names, ranges, eps, dtype, most_tokens)
        return _tokens(table), fell_short, None
    except CannotFit as failure:
        if most_tokens < policy.MOST_TOKENS:
            raise NotProvenError(f"a table of {part.original} would be larger than what is proven") from None
        if failure.best is None:
            raise NotProvenError(f"no table for {short_text(part.original):.80} was found: {failure}") from None
        return _tokens(failure.best), True, failure.best_error


def _finest(part: Part, names: Sequence[str], ranges: Sequence[tuple[float, float]], dtype: str) -> float:
    """Rounding of values of this size, below which no table comes."""
    mesh = np.meshgrid(*(np.linspace(low, high, 9) for low, high in ranges), indexing="ij")
    sizes = np.abs(evaluate(part.expr, names, mesh))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes))) * float(np.finfo(dtype).eps) / 2


def _fit_grid(
    part: Part,
    names: Sequence[str],
    ranges: Sequence[tuple[float, float]],
    eps: float,
    dtype: str,
    most: int,
) -> FittedTable:
    lowers, uppers = zip(*ranges, strict=True)

    def values(*u: NDArray[np.float64]) -> NDArray[np.float64]:
        return evaluate(part.expr, names, np.broadcast_arrays(*u))

    return fit_grid(values, lowers, uppers, eps, dtype, max_tokens=most)


def _tokens(table: FittedTable) -> TableTokens:
    """The tokens of a table, one row for each combination of the tokens of its axes."""
    return TableTokens(products(table.slopes).T, products(table.offsets).T, table.values.reshape(-1, 1), table.linear)
