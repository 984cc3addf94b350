"""Lengths √(a² + b²) made of ReLUs, within a relative tan²(x/2), by m folds in turn.

The four ReLUs of ±a and ±b turn the vector into the first quadrant, |a| = ReLU(a) + ReLU(−a). Then, with
φ_k = π/2^k, it is turned back by half the angle that it may have, and what is below the axis is folded up:

    z_2 = e^{−iφ_2} (|a| + i |b|),
    z_k = e^{−iφ_k} (Re z_{k−1} + i |Im z_{k−1}|) = e^{−iφ_k} (conj(z_{k−1}) + 2i ReLU(Im z_{k−1})),   k = 3..m.

Sizes stay. The angle of z_k is at most φ_k either way: before the turn it is from 0 to 2φ_k, for k = 2 because that is
the quadrant, later because that of z_{k−1} was at most φ_{k−1} = 2φ_k. So |Im z_k| ≤ sin(φ_k) times the length, and
with x = φ_m

    N = 2 Re z_m / (1 + cos x)

is between 2 cos x/(1 + cos x) and 2/(1 + cos x) times the length: within (1 − cos x)/(1 + cos x) = tan²(x/2). Where no
argument of a ReLU is zero N is linear in (a, b), with a gradient of length 2/(1 + cos x): z_m is then the vector, or
its mirror image, turned. The gradient points to where a vector has to be for z_m to be positive: at most x away from
this one.

*Errors of the ReLUs.* If unit k holds ReLU(u + α_k) + β_k where it should hold ReLU(u), and e_k = |α_k| + |β_k|, each
of the first four units moves z_2 by e_k, along e^{±iπ/4}, and that of z_k moves it by 2 e_k, along e^{i(π/2 − φ_k)}.
What comes after, conj(z) + 2i ReLU(Im z + α), mirrors what z moves by or leaves it as it is, whatever α is, and turns
it by φ_{k+1}, φ_{k+2}, .., which add up to less than φ_k: in the end it is at least π/2 − 2φ_k away from the real
axis, either way, and Re z_m moves by 2 sin(2φ_k) e_k at most.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from flint import arb

from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr

MIN_UNITS, MAX_UNITS = 4, 40


class FoldRow(NamedTuple):
    """A form left·a + right·b + Σ units[j]·ReLU_j, over the first ReLUs."""

    left: Expr
    right: Expr
    units: tuple[Expr, ...]


class Measure(NamedTuple):
    """The measure of a length, by its number of ReLUs, which is m + 2."""

    units: int

    @property
    def step(self) -> arb:
        """x."""
        return arb.pi() / arb(2) ** (self.units - 2)

    @property
    def error(self) -> arb:
        """tan²(x/2), relative to the length."""
        return (self.step / 2).tan() ** 2

    @property
    def gradient_gap(self) -> arb:
        """Bound of the distance between the gradients of N and of the length."""
        return 2 / (1 + self.step.cos()) - 1 + 2 * (self.step / 2).sin()

    @property
    def unit_factor(self) -> float:
        """Factor of a ReLU's errors in the length, but for its ``share``."""
        return round_up(2 / (1 + self.step.cos()))

    def share(self, k: int) -> Fraction:
        """The share of an error of unit k that counts, the first being 0."""
        return Fraction(2 * self.reach(k) if k >= 4 else 1)

    def reach(self, k: int) -> float:
        """Largest argument of unit k as a part of the length: sin(φ_{k−2}), for φ_{k−1} is next."""
        return round_up((arb.pi() / 2 ** (k - 2)).sin()) if k >= 4 else 1.0

    def rows(self) -> list[FoldRow]:
        """The arguments of the ReLUs, and last N."""
        return _rows(self.units)


@lru_cache(maxsize=64)
def _rows(units: int) -> list[FoldRow]:
    """z_k = Σ c_j e^{iα_j} ReLU_j, all angles multiples of π/2^m; made once, as many lengths are measured alike."""
    zero, one, two = map(ex.number, range(3))
    minus, quarter = ex.neg(one), Fraction(1, 4)
    rows = [FoldRow(one, zero, ()), FoldRow(minus, zero, ()), FoldRow(zero, one, ()), FoldRow(zero, minus, ())]
    angles, factors = [-quarter, -quarter, quarter, quarter], [one] * 4
    for k in range(3, units - 1):
        rows.append(FoldRow(zero, zero, tuple(map(ex.mul, factors, map(sine, angles)))))
        turn = Fraction(1, 2**k)
        angles, factors = [*(-angle - turn for angle in angles), Fraction(1, 2) - turn], [*factors, two]
    last = ex.div(two, ex.add(one, cosine(Fraction(1, 2 ** (units - 2)))))
    return [*rows, FoldRow(zero, zero, tuple(ex.mul(last, c, cosine(a)) for c, a in zip(factors, angles, strict=True)))]


def cosine(angle: Fraction) -> Expr:
    """cos(πr) as a constant."""
    if (2 * angle).denominator == 1:
        return ex.number((1, 0, -1, 0)[int(2 * angle) % 4])
    return ex.call("cos", ex.mul(ex.number(angle), ex.constant("pi")))


def sine(angle: Fraction) -> Expr:
    """sin(πr) as a constant."""
    return cosine(angle - Fraction(1, 2))
