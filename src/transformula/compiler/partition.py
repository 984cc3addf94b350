"""The theorem as written: sharp cells, sampled values (Gumaan, Theorem 1).

Along each axis the cells are chosen so that the function varies equally much over each of them: with
g_k(u) = max over the other variables of |∂f/∂u_k| and total variation G_k = ∫ g_k, axis k gets
N_k = ⌈d G_k / 2ε⌉ cells of variation 2ε/d, each represented by the point that halves its variation. In one
dimension that is the covering number itself: no set of intervals on which f varies by at most 2ε can
be smaller. Flat places get wide cells.

Scores are max-affine along each axis: slopes a_{j+1} = a_j + κ_j, offsets so that tokens j and j + 1 take
turns at the threshold t_j. The slope gaps κ_j = L/δ_j follow from the weight e^{−L} that may lie outside the
cells widened by δ_j; δ_j is a small part of the narrower neighbour, so widening costs next to nothing.

The specification of one layer is made here for `lookup` too: affine parts and absolute values exactly, a table for
every other part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from transformula.budget import checkpoint
from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import PARTITION
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.layout import HeadSpec, OneLayerSpec, ReluSpec, TableTokens, assemble, midpoint, power_of_two
from transformula.compiler.lower.additive import AffineForm, Form, Part
from transformula.compiler.lower.derivation_hints import selector_signs
from transformula.compiler.lower.store_circuit import store_one_layer
from transformula.compiler.prepare import Prepared, proven_signs
from transformula.compiler.refusal import too_many_cells, too_steep, undefined_on_box
from transformula.errors import InputError
from transformula.formula.evaluation import evaluate
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose, to_fmpq
from transformula.kernel.enclosures.regions import products
from transformula.kernel.syntax.boxes import Box, Formula

#: A part, the ranges of its forms, and its share of the tolerance.
Wanted = tuple[Part, tuple[tuple[float, float], ...], float]
#: Tables for parts, in their order.
FitParts = Callable[[Sequence[Wanted]], Iterable[TableTokens]]


def one_layer_spec(
    ground: Prepared, eps: float, fit: FitParts, dtype: str, shape: tuple[int, int] | None
) -> OneLayerSpec:
    """Fit every part with its share of the tolerance, and collect what the layer has to do."""
    formula, splits = ground.extended, ground.splits
    tables: list[TableTokens] = []
    heads, relus, affine = [], [], []
    linears: list[list[float]] = [[] for _ in splits]
    reach = 0.0
    wanted = [[_wanted(part, formula, eps / len(split.parts)) for part in split.parts] for split in splits]
    once = list(dict.fromkeys(want for wants in wanted for want in wants))
    fitted = dict(zip(once, fit(once), strict=True))
    for output, split in enumerate(splits):
        form, constant = _rational(split.affine)
        size = 1.0
        for absolute in split.abs_terms:
            c = midpoint(absolute.coefficient)
            inside, shift = _rational(absolute.inside)
            relus.append(ReluSpec(output, 2 * c, inside, shift, _reach(inside, shift, formula.box)))
            form = tuple(a - c * b for a, b in zip(form, inside, strict=True))
            constant -= c * shift
        for part, ranges, share in wanted[output]:
            table = fitted[part, ranges, share]
            linears[output].append(table.linear)
            heads.append(_head(part, len(tables), ranges, output, formula.box))
            tables.append(table)
            size += _table_reach(part, table, ranges)
            form = tuple(
                a + fmpq(*table.linear.as_integer_ratio()) * to_fmpq(b)
                for a, b in zip(form, part.forms[0], strict=True)
            )
        affine.append((form, constant))
        reach = max(reach, size + _reach(form, constant, formula.box))
    return OneLayerSpec(formula.box.variables, affine, tables, heads, relus, linears, shape, reach, dtype)


def one_layer_built(ground: Prepared, spec: OneLayerSpec, far_bits: int = 40, target: float | None = None) -> Built:
    """The weights of a specification, the circuit they stand for, and a search for the evidence."""
    limit, reaches = power_of_two(spec.reach), [power_of_two(relu.reach) for relu in spec.relus]
    variables, outputs = ground.extended.box.variables, ground.extended.outputs
    circuit = store_one_layer(variables, outputs, spec.linears, spec.shape, limit, reaches)
    more = [] if spec.shape is None else selector_signs(variables, outputs, limit, reaches)
    signs = proven_signs(more, ground)
    circuit |= ground.stored(signs)
    return Built(
        assemble(spec), circuit, Finder(follow=False, trees=signs | ground.parts, far_bits=far_bits, target=target)
    )


def _wanted(part: Part, formula: Formula, share: float) -> Wanted:
    check_forms(part, formula)
    return part, tuple(form_range(f, formula.box) for f in part.forms), share


def check_forms(part: Part, formula: Formula) -> None:
    """Refuse a summand that no grid can serve."""
    most = max(policy.GRID_POINTS)
    if len(part.forms) > most:
        names = [n for n, *f in zip(formula.box.variables, *part.forms, strict=True) if any(f)]
        raise InputError(
            f"a summand of the formula depends on {len(part.forms)} variables at once ({', '.join(names)}); "
            f"one layer takes at most {most}: a grid would need too many tokens"
        )
    if any(abs(v) > policy.MAX_COEFFICIENT for form in part.forms for v in form):
        raise InputError(
            f"the coefficients in {part.original} differ by more than 30 orders of magnitude: rescale the variables"
        )


def _head(part: Part, table: int, ranges: Sequence[tuple[float, float]], output: int, box: Box) -> HeadSpec:
    reads = [{f"x.{name}": to_fmpq(v) for name, v in zip(box.variables, form, strict=True)} for form in part.forms]
    return HeadSpec(0, table, tuple(reads), tuple(max(map(abs, ends)) for ends in ranges), (f"y{output + 1}",))


def _rational(affine: AffineForm) -> tuple[tuple[fmpq, ...], fmpq]:
    return tuple(to_fmpq(v) for v in affine.form), midpoint(affine.constant)


def _reach(form: Sequence[fmpq], constant: fmpq, box: Box) -> float:
    total = abs(arb(constant)) + sum((abs(arb(v)) * box.magnitude(k) for k, v in enumerate(form)), arb(0))
    return float(total.upper())


def form_range(form: Form, box: Box) -> tuple[float, float]:
    """The ends of a linear form on the box, as floats for the solver."""
    low = high = 0.0
    for value, (a, b) in zip(form, box.floats(), strict=True):
        ends = float(value) * a, float(value) * b
        low, high = low + min(ends), high + max(ends)
    return low, high


def _table_reach(part: Part, table: TableTokens, ranges: Sequence[tuple[float, float]]) -> float:
    """A generous bound of |T|, for the row selector of sequences; the proof checks that it is one.

    T is a mean of its values, and it stays near part − linear·u: whichever says less, doubled.
    """
    with precision(64):
        balls = {f"u{k + 1}": arb(low).union(arb(high)) for k, (low, high) in enumerate(ranges)}
        around = float(abs(enclose(part.expr, balls)).upper())
    around += abs(table.linear) * max(abs(end) for end in ranges[0])
    largest = float(abs(table.values).max())
    return 2 * (min(around, largest) if math.isfinite(around) else largest)


Floats = NDArray[np.float64]


def partition_attempts(task: BuildTask) -> Iterator[Attempt]:
    """Models with ever finer cells, coarsest first."""
    dtype = task.options.dtype
    for finer in policy.FINER_CELLS:

        def build(finer: float = finer) -> Built:
            def fit(parts: Sequence[Wanted]) -> list[TableTokens]:
                return [fit_partition(part, ranges, share / finer, dtype) for part, ranges, share in parts]

            spec = one_layer_spec(task.ground, task.eps, fit, dtype, task.options.shape)
            return one_layer_built(task.ground, spec, policy.FAR_BITS[dtype] - 1)

        yield Attempt(PARTITION, build)


def fit_partition(part: Part, ranges: Sequence[tuple[float, float]], eps: float, dtype: str) -> TableTokens:
    """Cells and sampled values for one part."""
    dimension = len(ranges)
    names = [f"u{k + 1}" for k in range(dimension)]
    axes, values = _sampled(part, names, ranges, eps)
    cuts = [_equal_variation(axes[k], values, k, eps / dimension) for k in range(dimension)]
    tokens = math.prod(len(middles) for _, middles in cuts)
    _check_count(tokens)
    scores = [sharp_scores(thresholds, ends, dtype, tokens) for (thresholds, _), ends in zip(cuts, ranges, strict=True)]
    slopes, offsets = (products(side).T for side in zip(*scores, strict=True))
    sampled = evaluate(part.expr, names, list(products([middles for _, middles in cuts])))
    return TableTokens(slopes, offsets, sampled.astype(dtype).astype(float)[:, None])


def _check_count(tokens: float) -> None:
    if tokens > policy.MOST_POINTS:
        raise too_many_cells(tokens)


def _sampled(
    part: Part, names: Sequence[str], ranges: Sequence[tuple[float, float]], eps: float
) -> tuple[list[Floats], Floats]:
    """The function on a mesh that is refined, axis by axis, where it jumps by much of a cell."""
    axes = [np.linspace(low, high, policy.MESH[len(ranges)]) for low, high in ranges]
    for left in reversed(range(policy.MOST_ROUNDS)):
        checkpoint()
        values = evaluate(part.expr, names, np.meshgrid(*axes, indexing="ij"))
        if not np.all(np.isfinite(values)):
            raise undefined_on_box(part.original)
        steps = [_steps(values, k) for k in range(len(ranges))]
        _check_count(math.prod(max(1.0, float(s.sum()) * len(ranges) / (2 * eps)) for s in steps))
        steep = [s > 0.2 * eps / len(ranges) for s in steps]
        finer = math.prod(len(a) + int(s.sum()) for a, s in zip(axes, steep, strict=True))
        if not any(s.any() for s in steep) or finer > policy.MOST_POINTS or not left:
            break
        axes = [np.unique(np.append(a, (a[:-1] + a[1:])[s] / 2)) for a, s in zip(axes, steep, strict=True)]
    return axes, values


def _steps(values: Floats, k: int) -> Floats:
    """The largest change from each mesh point of an axis to the next."""
    along = np.abs(np.diff(np.moveaxis(values, k, 0), axis=0))
    largest: Floats = along.reshape(len(along), -1).max(axis=1)
    return largest


def _equal_variation(axis: Floats, values: Floats, k: int, eps: float) -> tuple[Floats, Floats]:
    """Thresholds and representatives of cells over which the function varies by 2 eps."""
    steps = _steps(values, k)
    # a tiny uniform part keeps the map one-to-one where the function is flat
    steps = steps + 1e-9 * max(steps.sum(), eps) / len(steps)
    total = np.concatenate([[0.0], np.cumsum(steps)])
    cells = max(1, math.ceil(total[-1] / (2 * eps)))
    levels = total[-1] * (np.arange(2 * cells + 1) / (2 * cells))  # in this order nothing overflows
    points = np.interp(levels, total, axis)
    return points[2:-1:2], points[1::2]


def sharp_scores(thresholds: Floats, ends: tuple[float, float], dtype: str, tokens: int) -> tuple[Floats, Floats]:
    """Slopes and offsets of one axis, in the dtype."""
    edges = np.concatenate([[ends[0]], thresholds, [ends[1]]])
    widths = np.diff(edges)
    if not np.all(widths > 0):
        raise too_steep(edges[np.argmin(widths)])
    far = math.log(max(tokens, 2)) + policy.FAR_BITS[dtype] * math.log(2)
    gaps = far / (policy.WIDENING[dtype] * np.minimum(widths[:-1], widths[1:]))
    slopes = np.concatenate([[0.0], np.cumsum(gaps)])
    slopes = (slopes - slopes[len(slopes) // 2]).astype(dtype).astype(float)
    offsets = np.concatenate([[0.0], -np.cumsum(np.diff(slopes) * thresholds)])
    return slopes, (offsets - offsets[len(offsets) // 2]).astype(dtype).astype(float)
