"""A polynomial on its way to tokens: powers of linear forms with rational coefficients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flint import fmpq

Exponents = tuple[int, ...]
Direction = tuple[int, ...]
Terms = Mapping[Exponents, fmpq]


@dataclass
class RidgeSum:
    """Σ over directions and powers: ``powers[direction][s][output]`` is β_{k,s} for that output."""

    outputs: int
    powers: dict[Direction, dict[int, list[fmpq]]] = field(default_factory=dict)

    def add(self, form: Sequence[fmpq | int], s: int, output: int, coefficient: fmpq) -> None:
        """Add coefficient · (form·x)^s; parallel forms share one primitive direction."""
        if coefficient == 0:
            return
        direction, scale = primitive(form)
        row = self.powers.setdefault(direction, {}).setdefault(s, [fmpq(0)] * self.outputs)
        row[output] += coefficient * scale**s

    def include(self, other: RidgeSum) -> None:
        """Take over another sum's directions, which this one does not have yet."""
        for direction, by_power in other.powers.items():
            self.powers[direction] = {s: list(row) for s, row in by_power.items()}

    def pruned(self) -> RidgeSum:
        """Without powers and directions whose coefficients cancelled."""
        kept = RidgeSum(self.outputs)
        for direction, by_power in self.powers.items():
            rows = {s: row for s, row in by_power.items() if any(v != 0 for v in row)}
            if rows:
                kept.powers[direction] = rows
        return kept

    def __len__(self) -> int:
        return len(self.powers)


def primitive(form: Sequence[fmpq | int]) -> tuple[Direction, fmpq]:
    """A form as scale · (coprime integers, first non-zero one positive)."""
    values = [fmpq(v) for v in form]
    common = math.lcm(*(int(v.q) for v in values))
    whole = [int((v * common).p) for v in values]
    divisor = math.gcd(*whole) * (1 if next(v for v in whole if v) > 0 else -1)
    return tuple(v // divisor for v in whole), fmpq(divisor, common)
