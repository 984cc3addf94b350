"""Formula to one-layer specification: affine parts and absolute values exactly, a table for every other part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from flint import arb, fmpq

from transformula.compiler import policy
from transformula.compiler.attempts import Built
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.layout import HeadSpec, OneLayerSpec, ReluSpec, TableTokens, assemble, midpoint, power_of_two
from transformula.compiler.lower.additive import AffineForm, Form, Part
from transformula.compiler.lower.derivation_hints import selector_signs
from transformula.compiler.lower.store_circuit import store_one_layer
from transformula.compiler.prepare import Prepared, proven_signs
from transformula.errors import InputError
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose, to_fmpq
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
    circuit |= {"extends": ground.steps, "signs": list(signs)}
    return Built(assemble(spec), circuit, Finder(follow=False, trees=signs, far_bits=far_bits, target=target))


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
