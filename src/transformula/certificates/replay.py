"""A stored plan read back: a circuit's choices, replayed while its formula is lowered again.

Nothing in a plan is believed. It says how products were split, what was read at a distance or in logarithms,
and which power of two each wire is scaled by: a wrong one makes another circuit, which the weights will not
match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from transformula.certificates.proof import RefutedError
from transformula.formulas.circuits import Circuit
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.formulas.guides import Balance
from transformula.formulas.lowering import build_circuit
from transformula.formulas.positions import formula_of_a_position
from transformula.taylor.conjugates import without_cancelling_roots
from transformula.transformers.circuit import CircuitWeights

T = TypeVar("T")

_RATIONAL = re.compile(r"-?\d{1,400}(/\d{1,400})?", re.ASCII)
_MAX_EXPONENT = 400
_MAX_DIRECTIONS = 4096


def _rational(text: object) -> Fraction:
    if not isinstance(text, str) or not _RATIONAL.fullmatch(text):
        raise ValueError(f"{text!r} is not a rational number")
    return Fraction(text)


def _choice(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _directions(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in range(0, _MAX_DIRECTIONS + 1, 2):
        raise ValueError(f"{value!r} is not an even number of directions")
    return value


def _exponent(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_EXPONENT:
        raise ValueError(f"{value!r} is not the exponent of a scale")
    return value


def _next(choices: list[T], missing: str) -> T:
    if not choices:
        raise RefutedError(missing)
    return choices.pop()


class ReplayGuide:
    """The stored choices, in the order in which they were made."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        try:
            self.balances = [Balance(*map(_rational, choice)) for choice in plan["balances"]][::-1]
            self.centres = [_rational(c) for c in plan["centres"]][::-1]
            self.offsets = [_rational(c) for c in plan["offsets"]][::-1]
            self.clamps = [(_choice(low), _choice(high)) for low, high in plan["clamps"]][::-1]
            self.exchanges = [_choice(choice) for choice in plan["exchanges"]][::-1]
            self.logs = [_choice(choice) for choice in plan["logs"]][::-1]
            self.norms = [_directions(number) for number in plan["norms"]][::-1]
            self.scales = {int(k): (_exponent(s), _exponent(h)) for k, (s, h) in plan["scales"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            raise RefutedError("the plan beside the weights can not be read") from None

    def balance(self, left: Expr, right: Expr) -> Balance:
        """The next product's split."""
        choice = _next(self.balances, "the plan has no split for a product")
        if choice.weight <= 0:
            raise RefutedError("the plan has no split for a product")
        return choice

    def centre(self, argument: Expr) -> Fraction:
        """The next square's centre."""
        return _next(self.centres, "the plan has no centre for a square")

    def offset(self, function: Expr, argument: Expr) -> Fraction:
        """What was taken off the next table's values."""
        return _next(self.offsets, "the plan does not say what is taken off a table's values")

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """The next table's clamps."""
        return _next(self.clamps, "the plan does not say whether an argument is clamped")

    def exchange(self, factors: Sequence[Expr], others: Sequence[Expr], last: Expr, inner: Expr) -> bool:
        """Whether the next product was written with other factors."""
        return _next(self.exchanges, "the plan does not say whether factors are exchanged")

    def in_logs(self, bases: Sequence[Expr]) -> bool:
        """Whether the next product was taken apart into logarithms."""
        return _next(self.logs, "the plan does not say whether a product is taken apart")

    def directions(self, radicand: Expr) -> int:
        """In how many directions the next length was measured."""
        return _next(self.norms, "the plan does not say how a length is measured")


def replay(
    network: CircuitWeights, formula: Formula, plan: Mapping[str, Any]
) -> tuple[Circuit, Formula, ReplayGuide]:
    """The formula lowered again as the plan says: what a network should compute, at one position.

    Raises
    ------
    RefutedError
        If the plan can not be read, or the positions of a sequence differ where the network's do not.
    """
    if network.repeated:
        same = formula_of_a_position(formula, network.positions)
        if same is None:
            raise RefutedError("every position computes the same, but the formulas differ")
        formula = same
    guide = ReplayGuide(plan)
    written = without_cancelling_roots(formula)
    return build_circuit(written.outputs, formula.box.variables, guide), formula, guide
