"""The same architecture, values solved instead of sampled: spectral accuracy with few tokens.

One softmax head over M memory tokens with affine scores is a smooth partition of unity, and T is linear
in its values. `constructions.tables` chooses scores and solves for the values of one-form parts;
`constructions.tables.grids` does the same on tensor grids for parts of two to four variables. Whatever
they return is only a candidate: the certificate is proven from the final weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from transformula.constructions.one_layer import assemble
from transformula.constructions.parts import FittedPart, one_layer_spec
from transformula.constructions.tables.fitting import CannotFit, fit_table
from transformula.constructions.tables.grids import fit_grid
from transformula.constructions.tables.threads import one_thread
from transformula.errors import NotProvenError
from transformula.formulas.additive import Part
from transformula.formulas.formula import Formula
from transformula.formulas.numeric import evaluate, evaluate_accurately
from transformula.transformers.weights import Weights

#: What part of the tolerance the solver may use; the next one is tried if the proof does not close.
_SHARES = (1.0, 0.6, 0.3)


def construct_lookup(
    formula: Formula, eps: float, dtype: str, shape: tuple[int, int] | None
) -> Iterator[Weights]:
    """Weights whose measured error meets the tolerance, fewest tokens first."""
    for share in _SHARES:

        def fit(
            part: Part, ranges: Sequence[tuple[float, float]], eps: float, share: float = share
        ) -> FittedPart:
            return _fit(part, ranges, eps * share, dtype)

        try:
            spec = one_layer_spec(formula, eps, fit, dtype, shape)
        except NotProvenError:
            if share == _SHARES[0]:
                raise
            return  # what was tried before is the best there is; its proof says by how much it fails
        yield assemble(spec)


def _fit(part: Part, ranges: Sequence[tuple[float, float]], eps: float, dtype: str) -> FittedPart:
    names = [f"u{k + 1}" for k in range(len(ranges))]
    _check_format(part, names, ranges, eps, dtype)
    try:
        with one_thread():
            if len(ranges) == 1:
                return _fit_one(part, names, ranges[0], eps, dtype)
            return _fit_many(part, names, ranges, eps, dtype)
    except CannotFit as failure:
        raise NotProvenError(_advice(part, failure, eps, dtype), best_bound=failure.best_error) from None


def _check_format(
    part: Part, names: Sequence[str], ranges: Sequence[tuple[float, float]], eps: float, dtype: str
) -> None:
    """Refuse at once what no table can reach: values of this size are rounded more coarsely than eps."""
    mesh = np.meshgrid(*(np.linspace(low, high, 9) for low, high in ranges), indexing="ij")
    sizes = np.abs(evaluate(part.expr, names, mesh))
    coarse = float(np.max(sizes, initial=0.0, where=np.isfinite(sizes))) * float(np.finfo(dtype).eps) / 2
    if eps < coarse:
        other = " or use float64" if dtype == "float32" else ""
        raise NotProvenError(
            f"eps = {eps:.2g} is below what {dtype} can hold for {part.original}, whose values are rounded "
            f"by {coarse:.2g}: ask for a larger eps{other}",
            best_bound=coarse,
        )


def _advice(part: Part, failure: CannotFit, eps: float, dtype: str) -> str:
    if not math.isfinite(failure.best_error):
        return f"no table for {part.original} was found: {failure}"
    other = " or use float64" if dtype == "float32" else ""
    return (
        f"no table for {part.original} within {eps:.2g} was found in {dtype}: the best has a measured "
        f"error of {failure.best_error:.2g}; ask for a larger eps, narrow the box{other}"
    )


def _fit_one(
    part: Part, names: Sequence[str], ends: tuple[float, float], eps: float, dtype: str
) -> FittedPart:
    table = fit_table(lambda u: evaluate_accurately(part.expr, names, [u]), *ends, eps, dtype)
    return FittedPart(table.slopes[:, None], table.offsets[:, None], table.values, float(table.linear))


def _fit_many(
    part: Part,
    names: Sequence[str],
    ranges: Sequence[tuple[float, float]],
    eps: float,
    dtype: str,
) -> FittedPart:
    lowers, uppers = zip(*ranges, strict=True)
    grid = fit_grid(
        lambda *u: evaluate(part.expr, names, np.broadcast_arrays(*u)), lowers, uppers, eps, dtype
    )
    slopes = np.stack([m.ravel() for m in np.meshgrid(*grid.slopes, indexing="ij")], axis=1)
    offsets = np.stack([m.ravel() for m in np.meshgrid(*grid.offsets, indexing="ij")], axis=1)
    return FittedPart(slopes, offsets, grid.values.ravel())
