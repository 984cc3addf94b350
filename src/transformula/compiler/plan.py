"""Which theorem for which formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from transformula.compiler.attempts import Attempt, Built
from transformula.compiler.constructions import (
    ATTENTION_ONLY,
    CIRCUIT,
    COROLLARY,
    LOCAL,
    LOOKUP,
    PARTITION,
    POLYNOMIAL,
    YUN,
    Construction,
)
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.lower.additive import decompose
from transformula.compiler.lower.derivation_hints import extended_formula
from transformula.compiler.one_layer_parts import MAX_FORMS
from transformula.compiler.options import Options
from transformula.compiler.prepare import check_length, prepared
from transformula.errors import FormulaError, InputError, NotProvenError, RefutedError
from transformula.kernel.derivations.polynomials import NotPolynomialError, as_polynomial
from transformula.kernel.enclosures.balls import to_fmpq
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.weights import Weights
from transformula.kernel.syntax.boxes import Box, Formula, formula_of_a_position
from transformula.kernel.syntax.expression import walk
from transformula.kernel.syntax.printing import short_text

#: Tolerance of the approximating constructions where none is given.
DEFAULT_EPS = 1e-6
#: Up to this many forms a grid may be smaller than a circuit.
MAX_GRID_FORMS = 2
#: Numbers of the format that an interval must have for a table to make sense.
_FEWEST_FLOATS = 8
#: What part of the tolerance a formula may vary by and still count as constant.
_LITTLE = Fraction(1, 4)


Round = tuple[Construction, ...]


def rounds(formula: Formula, options: Options) -> list[Round]:
    """Constructions to try: those of a round compete by size, a later round is for when none was proven."""
    if options.construction is not None:
        return [(options.construction,)]
    if not _exact_will_do(formula, options):
        return _approximations(formula, options)
    # without eps the claim is that of an exact polynomial: nothing else will do
    return [(POLYNOMIAL,), *([] if options.eps is None else _approximations(formula, options))]


def _approximations(formula: Formula, options: Options) -> list[Round]:
    if options.layers == 1:
        return [(LOOKUP,), (PARTITION,)]
    forms = _widest_part(formula)
    if forms <= MAX_FORMS and _hardly_varies(formula, options.eps or DEFAULT_EPS):
        return [(LOOKUP,)]  # a token will do
    # a grid would be far larger; what bends, or is steep inside, is easy for ReLUs only
    if forms > MAX_GRID_FORMS or _bends(formula) or _steep_inside(formula):
        return [(CIRCUIT,), (LOOKUP,), (PARTITION,)]
    if forms > 1:
        return [(CIRCUIT, LOOKUP), (PARTITION,)]  # what a circuit takes limits the grids that are worth a try
    return [(LOOKUP,), (CIRCUIT,), (PARTITION,)]  # functions of one form: what one layer is made for


def attempts(construction: Construction, formula: Formula, options: Options) -> Iterator[Attempt]:
    """Models of one construction to try, cheapest first."""
    return _ATTEMPTS[construction](formula, options)


def _check_approximation(formula: Formula, options: Options) -> float:
    """The tolerance, once nothing speaks against solving tables."""
    if options.multi_head:
        raise InputError("multi_head only applies to the polynomial construction")
    _check_floats(formula.box, options.dtype)
    check_length(prepared(formula))  # which refuses a formula that is not defined on its box
    return options.eps or DEFAULT_EPS


def _check_floats(box: Box, dtype: str) -> None:
    """Refuse intervals that leave the format's range, or are so narrow that hardly a float lies in them."""
    for name, ends, low, high in zip(box.variables, box.floats(), box.lower, box.upper, strict=True):
        size, text = max(map(abs, ends)), f"{name}={short_text(low):.30}..{short_text(high):.30}"
        if not size < float(np.finfo(dtype).max):
            raise NotProvenError(f"the interval {text} is beyond {dtype}'s range: rescale {name}", place=text)
        if not ends[1] - ends[0] > _FEWEST_FLOATS * float(np.spacing(np.array(size, dtype))):
            raise NotProvenError(
                f"{dtype} has hardly any numbers in the interval {text}: replace {name} by its distance from one end",
                place=text,
            )


def _lookups(formula: Formula, options: Options) -> Iterator[Attempt]:
    from transformula.compiler.lookup import lookup_attempts

    eps = _check_approximation(formula, options)
    yield from lookup_attempts(formula, eps, options.dtype, options.shape, options.most, options.known)


def _partitions(formula: Formula, options: Options) -> Iterator[Attempt]:
    from transformula.compiler.partition import partition_attempts

    eps = _check_approximation(formula, options)
    yield from partition_attempts(formula, eps, options.dtype, options.shape)


def _circuits(formula: Formula, options: Options) -> Iterator[Attempt]:
    from transformula.compiler.circuit import circuit_attempts

    eps = _check_approximation(formula, options)
    if options.layers == 1:
        raise InputError("a circuit has several layers: use lookup or partition here")
    positions, inputs = options.shape[0] if options.shape else 1, formula.box.variables
    if positions > 1:
        with suppress(RefutedError):  # if the positions differ, each carries all inputs
            formula = formula_of_a_position(formula, positions)
    yield from circuit_attempts(formula, eps, options.dtype, positions, inputs, options.known)


def _layered(formula: Formula, options: Options) -> float:
    """The tolerance, for constructions of several layers that are for functions only."""
    eps = _check_approximation(formula, options)
    name = "" if options.construction is None else options.construction.name
    if options.layers == 1:
        raise InputError(f"{name} has several layers: use lookup or partition here")
    if options.shape is not None:
        raise InputError(f"{name} is for functions, not for sequences: use lookup, partition or circuit here")
    return eps


def _attention_only(formula: Formula, options: Options) -> Iterator[Attempt]:
    from transformula.compiler.gallery.attention_only import attention_only_attempts

    yield from attention_only_attempts(formula, _layered(formula, options), options.dtype)


def _local(formula: Formula, options: Options) -> Iterator[Attempt]:
    from transformula.compiler.gallery.local_polynomials import local_attempts

    yield from local_attempts(formula, _layered(formula, options), options.dtype)


def _stages(formula: Formula, options: Options) -> Iterator[Attempt]:
    from transformula.compiler.gallery.yun_stages import yun_attempts

    yield from yun_attempts(formula, _layered(formula, options), options.dtype)


def _hardly_varies(formula: Formula, eps: float) -> bool:
    """Whether every output stays within a small part of the tolerance of one value: then no wire is needed."""
    ends = Region.of_box(formula.box).ends
    try:
        ranges = [range_of(expr, ends) for expr in formula.outputs]
    except UndefinedError:
        return False
    return all(high - low < to_fmpq(_LITTLE * Fraction(eps)) for low, high in ranges)


def _widest_part(formula: Formula) -> int:
    """The most linear forms any summand depends on."""
    splits = (decompose(expr, formula.box.variables) for expr in formula.outputs)
    return max((len(part.forms) for split in splits for part in split.parts), default=0)


def _bends(formula: Formula) -> bool:
    """Whether a summand has an abs, min or max in it that is not just one of an affine expression."""
    splits = (decompose(expr, formula.box.variables) for expr in formula.outputs)
    nodes = (node for split in splits for part in split.parts for node in walk(part.expr))
    return any(node.op in ("abs", "min", "max") for node in nodes)


def _steep_inside(formula: Formula) -> bool:
    """Whether an argument of a cube root may change its sign: no single table is accurate on both sides of 0."""
    ends = Region.of_box(formula.box).ends
    inside = [node.args[0] for expr in formula.outputs for node in walk(expr) if node.op == "cbrt"]
    try:
        return any(low < 0 < high for low, high in (range_of(expr, ends) for expr in inside))
    except UndefinedError:
        return False


def _exact_will_do(formula: Formula, options: Options) -> bool:
    if options.shape is not None or options.layers == 1:
        return False
    return _is_polynomial(formula) or _is_polynomial(extended_formula(formula)[0])


def _is_polynomial(formula: Formula) -> bool:
    try:
        for expr in formula.outputs:
            as_polynomial(expr, formula.box.variables)
    except NotPolynomialError:
        return False
    return True


def _check_polynomial(options: Options) -> None:
    if options.shape is not None:
        raise InputError("sequences need the construction lookup, partition or circuit")
    if options.layers == 1:
        raise InputError(
            "a single layer needs the construction lookup or partition: a polynomial of degree q has q blocks"
        )


def _polynomials(formula: Formula, options: Options) -> Iterator[Attempt]:
    from transformula.compiler.polynomial import construct_polynomial

    _check_polynomial(options)
    try:
        for weights in construct_polynomial(formula, options.dtype, options.multi_head):
            yield Attempt(POLYNOMIAL, _ready(weights))
    except NotPolynomialError as error:
        yield from _corollaries(formula, options, str(error))


def _corollaries(formula: Formula, options: Options, reason: str) -> Iterator[Attempt]:
    """Polynomials that a formula has been extended to, or that approximate it."""
    from transformula.compiler.corollary import construct_approximation
    from transformula.compiler.polynomial import construct_polynomial

    exact = _is_polynomial(extended_formula(formula)[0])
    if options.eps is None and not exact:
        raise FormulaError(f"{reason}. Give a tolerance to approximate it, or use another construction")
    ground = prepared(formula)
    derivation = {"extends": ground.steps, "signs": list(ground.signs)} if ground.steps or ground.signs else None
    if exact:
        found = construct_polynomial(ground.extended, options.dtype, options.multi_head)
    else:
        eps = options.eps or DEFAULT_EPS
        found = construct_approximation(ground.extended, eps, options.dtype, options.multi_head)
    for weights in found:
        yield Attempt(COROLLARY, _ready(weights, derivation, ground.signs, options.eps))


_ATTEMPTS: dict[Construction, Callable[[Formula, Options], Iterator[Attempt]]] = {
    POLYNOMIAL: _polynomials,
    LOOKUP: _lookups,
    PARTITION: _partitions,
    CIRCUIT: _circuits,
    ATTENTION_ONLY: _attention_only,
    LOCAL: _local,
    YUN: _stages,
}


def _ready(
    weights: Weights,
    derivation: dict[str, Any] | None = None,
    trees: dict[str, list[int]] | None = None,
    target: float | None = None,
) -> Callable[[], Built]:
    return lambda: Built(weights, derivation, Finder(trees=trees, target=target))
