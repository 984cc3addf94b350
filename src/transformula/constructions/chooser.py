"""Which theorem for which formula."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from transformula.errors import FormulaError, InputError, NotProvenError
from transformula.formulas.additive import decompose
from transformula.formulas.formula import Formula
from transformula.formulas.polynomials import NotPolynomialError, as_polynomial
from transformula.taylor.definedness import check_defined_on
from transformula.transformers.weights import Weights

CONSTRUCTIONS = ("polynomial", "lookup", "partition", "circuit")
#: Tolerance of the approximating constructions where none is given.
DEFAULT_EPS = 1e-6
#: Up to this many forms a grid may be smaller than a circuit.
MAX_GRID_FORMS = 2

Construct = Callable[[Formula, float, str, "tuple[int, int] | None"], Iterator[Weights]]


class Candidate(NamedTuple):
    """Weights to try: their construction, and hints for its proof (only circuits have any)."""

    construction: str
    weights: Weights
    plan: dict[str, Any] | None = None


Candidates = Generator[Candidate, "NotProvenError | None", None]


@dataclass(frozen=True)
class Options:
    """What the user may ask for beside formula and box."""

    eps: float | None = None
    construction: str = "auto"
    dtype: str = "float64"
    multi_head: bool = False
    layers: int | None = None
    shape: tuple[int, int] | None = None


def rounds(formula: Formula, options: Options) -> list[tuple[str, ...]]:
    """Constructions to try: those of a round compete by size, a later round is for when none was proven."""
    if options.construction != "auto":
        return [(options.construction,)]
    if not _exact_will_do(formula, options):
        return _approximations(formula, options)
    # without eps the claim is that of an exact polynomial: nothing else will do
    return [("polynomial",), *([] if options.eps is None else _approximations(formula, options))]


def _approximations(formula: Formula, options: Options) -> list[tuple[str, ...]]:
    if options.layers == 1:
        return [("lookup",), ("partition",)]
    forms = _widest_part(formula)
    if forms > MAX_GRID_FORMS:  # a grid would be far larger than any circuit
        return [("circuit",), ("lookup",), ("partition",)]
    if forms > 1:
        return [("lookup", "circuit"), ("partition",)]
    return [("lookup",), ("circuit",), ("partition",)]  # functions of one form: what one layer is made for


def candidates(name: str, formula: Formula, options: Options) -> Candidates:
    """Weights of one construction to try, cheapest first; told why one was refused, it may choose better."""
    if name == "polynomial":
        _check_polynomial(options)
        found = _polynomials(formula, options)
    else:
        if options.multi_head:
            raise InputError("--multi-head belongs to the polynomial construction")
        check_defined_on(formula)
        if name == "circuit":
            yield from _circuits(formula, options)
            return
        module = import_module(f"transformula.constructions.{name}")
        construct: Construct = getattr(module, f"construct_{name}")
        found = construct(formula, options.eps or DEFAULT_EPS, options.dtype, options.shape)
    yield from (Candidate(name, weights) for weights in found)


def _circuits(formula: Formula, options: Options) -> Candidates:
    from transformula.constructions.circuit import construct_circuit

    if options.layers == 1:
        raise InputError("a circuit has several layers: use lookup or partition here")
    found = construct_circuit(formula, options.eps or DEFAULT_EPS, options.dtype, options.shape)
    refused: NotProvenError | None = None
    while True:
        try:
            weights, plan = found.send(refused)
        except StopIteration:
            return
        refused = yield Candidate("circuit", weights, plan)


def _widest_part(formula: Formula) -> int:
    """The most linear forms any summand depends on."""
    splits = (decompose(expr, formula.box.variables) for expr in formula.outputs)
    return max((len(part.forms) for split in splits for part in split.parts), default=0)


def _exact_will_do(formula: Formula, options: Options) -> bool:
    if options.shape is not None or options.layers == 1:
        return False
    try:
        for expr in formula.outputs:
            as_polynomial(expr, formula.box.variables)
    except NotPolynomialError:
        return False
    return True


def _check_polynomial(options: Options) -> None:
    if options.shape is not None:
        raise InputError("sequences (shape) need --construction lookup, partition or circuit")
    if options.layers == 1:
        raise InputError(
            "--layers 1 needs --construction lookup or partition: a polynomial of degree q has q blocks"
        )


def _polynomials(formula: Formula, options: Options) -> Iterator[Weights]:
    from transformula.constructions.polynomial import construct_polynomial

    try:
        yield from construct_polynomial(formula, options.dtype, options.multi_head)
    except NotPolynomialError as error:
        if options.eps is None:
            raise FormulaError(
                f"{error}. Give --eps to approximate it by a polynomial, or use --construction lookup"
            ) from None
        from transformula.constructions.approximation import construct_approximation

        check_defined_on(formula)
        yield from construct_approximation(formula, options.eps, options.dtype, options.multi_head)
