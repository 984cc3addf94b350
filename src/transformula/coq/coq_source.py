"""A model folder as the generator needs it: the only module of this package that knows the kernel's readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from flint import fmpq, fmpq_mpoly

from transformula.errors import ExportError
from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.derivations.polynomials import NotPolynomialError, Polynomial, as_polynomial
from transformula.kernel.enclosures.balls import to_fraction
from transformula.kernel.enclosures.intervals import Ends, range_of
from transformula.kernel.folder.description import CERTIFICATE_FILE, EVIDENCE_FILE, Certificate, Description, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed, read_packed, read_text, unpack
from transformula.kernel.folder.weights import Matrix, Weights
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.rules.polynomial_rule import ridge_polynomial
from transformula.kernel.rules.rule_table import target
from transformula.kernel.rules.softmax_rule import Walk
from transformula.kernel.structures.network import ONE, Network, NetworkWire, WireForm, read_network
from transformula.kernel.structures.ridge_blocks import Ridge, read_ridge
from transformula.kernel.structures.stored_circuit import SQUARE, Circuit, CircuitReader, LinearForm, Wire
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse

__all__ = [
    "ONE",
    "SQUARE",
    "Circuit",
    "LinearForm",
    "Matrix",
    "NetworkWire",
    "Ridge",
    "Source",
    "Wire",
    "WireForm",
    "fraction",
    "precision",
]
TABLES, POWERS, MEMORIES = ("lookup", "circuit", "partition"), ("polynomial", "corollary"), ("memorize", "compact")


@dataclass(frozen=True)
class Source:
    """A folder's contents, and what the kernel reads out of them."""

    packed: Packed
    weights: Weights
    description: Description
    certificate: Certificate

    @classmethod
    def of(cls, folder: Path) -> Source:
        """Read a folder; a construction without a generator is refused."""
        packed = read_packed(folder)
        weights, description = unpack(packed)
        certificate = Certificate.from_json(read_text(folder, CERTIFICATE_FILE))
        source = cls(packed, weights, description, certificate)
        if description.construction not in (*TABLES, *POWERS, *MEMORIES):
            raise ExportError(f"no Coq theorem can be written for the construction {description.construction} yet")
        if extended := (description.circuit or {}).get("extends"):
            raise ExportError(
                f"no Coq theorem can be written for {extended[0]['of']} yet: it is undefined at points of the box, and "
                "extended continuously there"
            )
        if floors := (description.circuit or {}).get("floors"):
            raise ExportError(f"no Coq theorem can be written for {floors[0]['of']} yet: it touches 0/0 or a base of 0")
        if description.shape is not None:
            raise ExportError("no Coq theorem can be written for sequences yet")
        if any(block.attention.scale != 1 for block in weights.blocks):
            raise ExportError("no Coq theorem can be written for attention with scaled scores")
        return source

    @cached_property
    def formula(self) -> Formula:
        """The formulas on their box."""
        return target(self.description)

    @cached_property
    def ends(self) -> tuple[tuple[str, Ends], ...]:
        """The ends of each variable's interval, outside of it if they are irrational."""
        box = self.formula.box
        return tuple(
            (name, (range_of(low, {})[0], range_of(high, {})[1]))
            for name, low, high in zip(box.variables, box.lower, box.upper, strict=True)
        )

    @cached_property
    def typed(self) -> list[str]:
        """The formulas as typed."""
        return self.description.formulas or []

    @property
    def samples(self) -> list[tuple[list[float], list[float]]]:
        """Inputs and outputs of a memorised table; none for other models."""
        given = self.description.samples or {"x": [], "y": []}
        return list(zip(given["x"], given["y"], strict=True))

    @property
    def is_partition(self) -> bool:
        """Whether the tables have sharp cells."""
        return self.description.construction == "partition"

    @property
    def is_polynomial(self) -> bool:
        """Whether the weights are Fang's blocks."""
        return self.description.construction in POWERS

    @cached_property
    def ridge(self) -> Ridge:
        """The powers that Fang's blocks compute."""
        return read_ridge(self.weights)

    @cached_property
    def polynomials(self) -> list[tuple[fmpq_mpoly, Polynomial | None]]:
        """Polynomials that Fang's blocks compute, one for each output, beside the formula if that is a polynomial."""
        box = self.formula.box
        return [
            (ridge_polynomial(self.ridge, o, box.dimension), _expanded(expr, box.variables))
            for o, expr in enumerate(self.formula.outputs)
        ]

    @cached_property
    def network(self) -> Network:
        """The wires of the weights."""
        return read_network(self.weights)

    @cached_property
    def circuit(self) -> Circuit:
        """The wires as they are meant."""
        circuit = CircuitReader(self.formula.box.variables).read(self.description.circuit)
        if any(wire.function is not None and len(wire.arguments) > 1 for wire in circuit.wires):
            raise ExportError("no Coq theorem can be written for tables of several axes: Interval's models have one")
        wires = [replace(w, arguments=tuple(map(_folded, w.arguments)), total=_folded(w.total)) for w in circuit.wires]
        return replace(circuit, wires=tuple(wires), outputs=tuple(map(_folded, circuit.outputs)))

    @cached_property
    def walk(self) -> Walk:
        """The kernel's proof, for the ranges it found."""
        evidence = Evidence(parse_json(self.packed.evidence, EVIDENCE_FILE))
        circuit = CircuitReader(self.formula.box.variables).read(self.description.circuit)
        meanings = Meanings(self.formula, circuit, self.description.circuit, evidence)
        walk = Walk(FORMATS[self.weights.dtype], self.network, circuit, meanings, evidence, self.is_partition)
        walk.run()
        return walk

    def claims(self, wire: int) -> list[tuple[str, str]]:
        """Expressions that the evidence gives for a wire's argument (u) or value (w)."""
        found = parse_json(self.packed.evidence, EVIDENCE_FILE).get("ranges", {}).get(str(wire), [])
        return [(str(what), str(text)) for what, text, _ in found]

    @property
    def signs(self) -> list[Expr]:
        """Expressions whose signs the kernel's derivation uses: sums of squares, mostly."""
        signs = (self.description.circuit or {}).get("signs", [])  # a sign, or a pair of it and of the squares it is
        return [parse(sign[-1] if isinstance(sign, list) else sign, self.formula.box.variables) for sign in signs]

    @property
    def allowance(self) -> Fraction:
        """The tolerance less the proven rounding."""
        return Fraction(self.certificate.eps) - Fraction(self.certificate.rounding)


def _expanded(expr: Expr, variables: tuple[str, ...]) -> Polynomial | None:
    try:
        return as_polynomial(expr, variables)
    except NotPolynomialError:
        return None


#: Functions that have a rational value at a rational point.
POINTS: dict[tuple[str, Any], int] = dict.fromkeys(
    [(f, 0) for f in ("sin", "tan", "atan", "sinh", "tanh", "sqrt")] + [("log", 1)], 0
)
POINTS |= dict.fromkeys([(f, 0) for f in ("exp", "cos", "cosh")], 1)
LARGEST: dict[str, Callable[..., Any]] = {"max": max, "min": min, "abs": abs}


def _folded(linear: Any) -> Any:
    """A linear form, or None, with constants as log(1) and max(0, 1/2) written as the rationals that they are."""
    if linear is None:
        return None
    return LinearForm(tuple((k, ex.fold(c, _known)) for k, c in linear.terms), ex.fold(linear.constant, _known))


def _known(node: Expr, args: list[Expr]) -> Expr:
    numbers = [argument.number for argument in args]
    if numbers and node.op in LARGEST and None not in numbers:
        return ex.number(LARGEST[node.op](*numbers))
    if len(numbers) == 1 and (node.op, numbers[0]) in POINTS:
        return ex.number(POINTS[node.op, numbers[0]])
    return ex.rebuild(node.op, args) if args else node


def fraction(value: fmpq) -> Fraction:
    """A rational of FLINT as one of Python."""
    return to_fraction(value)
