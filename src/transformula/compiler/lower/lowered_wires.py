"""Wires as plain data: linear combinations, tables, ReLUs, and wires joined from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from transformula.kernel.structures.fold_lengths import Measure
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr

ARGUMENT = ex.variable("u")
SQUARE = ex.power(ARGUMENT, ex.number(2))


@dataclass(frozen=True)
class Linear:
    """Σ coefficient·wire + constant; the coefficients are constants, rational or not."""

    terms: tuple[tuple[int, Expr], ...]
    constant: Expr
    meaning: Expr

    @property
    def is_constant(self) -> bool:
        """Whether it joins no wires."""
        return not self.terms


@dataclass(frozen=True)
class Product:
    """left · right, made of square wires times factors, and of left and right: ``sum`` says how."""

    left: Linear
    right: Linear
    squares: tuple[tuple[int, Fraction], ...]
    sum: Linear


@dataclass(frozen=True)
class Norm:
    """√(left² + right²), nearly, made of ReLU wires (`kernel.lengths`): ``sum`` says how."""

    left: Linear
    right: Linear
    measure: Measure
    units: tuple[int, ...]
    sum: Linear


@dataclass(frozen=True)
class Wire:
    """An input, a table of ``function`` in u, a ReLU (an argument only), or joined from others.

    A product or a norm has no slot of its own: it stands for a combination of other wires.
    """

    meaning: Expr
    argument: Linear | None = None
    function: Expr | None = None
    time: int = 0  # half-layers: 0 the inputs, 2k − 1 after attention k, 2k after feed-forward k
    product: Product | None = None
    norm: Norm | None = None

    @property
    def joined(self) -> Product | Norm | None:
        """The combination it stands for, if it has no slot."""
        return self.product or self.norm

    @property
    def is_table(self) -> bool:
        """Whether attention computes it."""
        return self.function is not None


def constant_of(value: Expr) -> Linear:
    """A combination of no wires."""
    return Linear((), value, value)


def combined(parts: Sequence[tuple[Expr, Linear]], meaning: Expr) -> Linear:
    """Σ factor·combination as one combination."""
    terms: dict[int, Expr] = {}
    constant = ex.number(0)
    for factor, part in parts:
        constant = ex.add(constant, ex.mul(factor, part.constant))
        for wire, coefficient in part.terms:
            term = ex.mul(factor, coefficient)
            terms[wire] = ex.add(terms[wire], term) if wire in terms else term
    kept = tuple((wire, c) for wire, c in sorted(terms.items()) if c.number != 0)
    return Linear(kept, constant, meaning)
