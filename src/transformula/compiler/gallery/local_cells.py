"""Cells of a box and a polynomial on each: how many cells it takes, and the coefficients.

Coefficients are least squares at Chebyshev points, in coordinates of the cell, and then written in powers of linear
forms that are measured from about the middle of the box, the same for all cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np
from flint import arb

from transformula.budget import checkpoint, spend
from transformula.compiler import policy
from transformula.compiler.partition import Floats, sharp_scores
from transformula.compiler.refusal import Coarse
from transformula.compiler.ridge_directions import compositions
from transformula.errors import NotProvenError
from transformula.formula.evaluation import evaluate
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.coverings import products
from transformula.kernel.gallery.local_rule import local_error, with_columns
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, walk
from transformula.kernel.tables.cell_error import BITS, far_of, used_cells
from transformula.kernel.tables.table_error import SoftmaxTable

#: Smallest error whose logarithm is taken.
_TINY = 1e-300
#: Largest relative size of a coefficient that is left out.
_NOTHING = 1e-14
#: Numbers of a head and its slots.
_HEAD = 16


@dataclass(frozen=True, eq=False)
class CellPlan:
    """Cells: so many along each axis, and polynomials of one degree."""

    target: Formula
    names: tuple[str, ...]
    degree: int
    dtype: str
    counts: tuple[int, ...]

    @classmethod
    def fine(
        cls, formula: Formula, names: tuple[str, ...], degree: int, eps: float, dtype: str, most: float = math.inf
    ) -> CellPlan | None:
        """The fewest cells that meet the tolerance at sample points: the axis that helps most per token is cut finer.

        None if that would take more than so many numbers.
        """
        plan = cls(formula, names, degree, dtype, (1,) * len(names))
        error = plan.measured
        while not (error <= eps and plan.proven <= eps):
            checkpoint()
            if not math.isfinite(error):
                raise NotProvenError(f"{formula} is undefined or unbounded on the box: narrow the box")
            if plan.numbers > most:
                return None
            if plan.tokens * policy.MORE_CELLS > plan.most_tokens:
                raise Coarse(
                    f"polynomials of degree {degree} would need more than {plan.most_tokens} cells", error
                ).error()
            finer = [plan.cut(k) for k in range(len(names))]
            gains = [
                (math.log(max(error, _TINY)) - math.log(max(p.measured, _TINY))) / math.log(p.tokens / plan.tokens)
                for p in finer
            ]
            plan = finer[int(np.argmax(gains))]
            error = plan.measured
        return plan

    def cut(self, axis: int) -> CellPlan:
        """More cells along an axis."""
        counts = [max(n + 1, round(n * policy.MORE_CELLS)) if k == axis else n for k, n in enumerate(self.counts)]
        return CellPlan(self.target, self.names, self.degree, self.dtype, tuple(counts))

    @property
    def tokens(self) -> int:
        """How many cells."""
        return math.prod(self.counts)

    @property
    def most_tokens(self) -> int:
        """More cells would be too many, or have too many points for the memory."""
        points: int = (self.degree + 1 + policy.EXTRA_POINTS) ** len(self.names)
        return min(policy.MAX_CELLS, policy.MAX_CELL_POINTS // points)

    @property
    def numbers(self) -> int:
        """About how many numbers the model holds: tokens, and two heads for each product."""
        columns = len(self.target.outputs) * len(self.powers)
        return self.tokens * (2 * len(self.names) + 1 + columns) + 2 * _HEAD * columns

    @property
    def noise(self) -> float:
        """About how much rounding there will be: coefficients are rounded, and terms may cancel."""
        sizes = np.abs(self.columns).max(axis=0).reshape(len(self.target.outputs), -1)
        return float((sizes @ self.sizes).max() * np.finfo(self.dtype).eps * (self.tokens + 10))

    @cached_property
    def sizes(self) -> Floats:
        """The largest value of each power on the box."""
        reach = [max(abs(end - middle) for end in ends) for ends, middle in zip(self.sides, self.middles, strict=True)]
        return np.array([sum(xi * r for xi, r in zip(along, reach, strict=True)) ** s for along, s in self.powers])

    @cached_property
    def sides(self) -> list[tuple[float, float]]:
        """The ends of the axes."""
        ends = dict(zip(self.target.box.variables, self.target.box.floats(), strict=True))
        return [ends[name] for name in self.names]

    @cached_property
    def edges(self) -> list[Floats]:
        """Where cells end, for each axis."""
        return [np.linspace(*ends, n + 1) for ends, n in zip(self.sides, self.counts, strict=True)]

    @cached_property
    def powers(self) -> list[tuple[tuple[int, ...], int]]:
        """Directions with their powers, the constant first."""
        d = len(self.names)
        return [((0,) * d, 0), *((xi, s) for s in range(1, self.degree + 1) for xi in compositions(s, d))]

    @cached_property
    def middles(self) -> list[float]:
        """About the middle of the box: what powers are taken of is measured from there."""
        found = []
        for low, high in self.sides:
            step = 2.0 ** (math.floor(math.log2(high - low)) - 4)
            found.append(round((low + high) / 2 / step) * step)
        return found

    def terms(self, output: int) -> list[Expr]:
        """q_0 = 0, and q_i for each column that is used: those of other outputs are zero."""
        own, zero = len(self.powers), ex.number(0)
        basis = [self._power(*power) for power in self.powers]
        return [zero, *(basis[i % own] if i // own == output else zero for i in self.used)]

    @cached_property
    def used(self) -> list[int]:
        """The columns that are not zero throughout; the first if all are."""
        return np.flatnonzero(self.columns.any(axis=0)).tolist() or [0]

    def _power(self, direction: Sequence[int], power: int) -> Expr:
        if not power:
            return ex.number(1)
        terms = [ex.mul(ex.number(xi), ex.variable(n)) for xi, n in zip(direction, self.names, strict=True) if xi]
        shift = -sum(xi * Fraction(middle) for xi, middle in zip(direction, self.middles, strict=True))
        return ex.power(ex.add(*terms, ex.number(Fraction(shift))), ex.number(power))

    def formula(self) -> Formula:
        """The layers' formula of inputs and coefficients, on the box of both; other tokens hold zeros."""
        columns = self.columns[:, self.used]
        ends = zip(np.minimum(columns.min(axis=0), 0), np.maximum(columns.max(axis=0), 0), strict=True)
        terms = [self.terms(o) for o in range(len(self.target.outputs))]
        return with_columns(self.target.box, list(ends), terms)

    @cached_property
    def scores(self) -> tuple[list[Floats], list[Floats]]:
        """Slopes and offsets for each axis."""
        sides = zip(self.edges, self.sides, strict=True)
        axes = [sharp_scores(edges[1:-1], ends, self.dtype, self.tokens) for edges, ends in sides]
        return [slopes for slopes, _ in axes], [offsets for _, offsets in axes]

    @cached_property
    def proven(self) -> float:
        """The bound that the kernel will find on the cells."""
        slopes, offsets = map(tuple, self.scores)
        numbered = SoftmaxTable(slopes, offsets, np.arange(float(self.tokens)).reshape(self.counts))
        ends = [(arb(low), arb(high)) for low, high in self.sides]
        with precision(BITS):
            lower, upper, rows = used_cells(numbered, ends, far_of(self.tokens, policy.FAR_BITS[self.dtype] - 1))
        held = self.columns[rows.astype(int)][:, self.used]
        errors = [
            local_error(expr, self.terms(o), self.names, lower, upper, held)
            for o, expr in enumerate(self.target.outputs)
        ]
        return max(errors)

    @cached_property
    def fitted(self) -> tuple[list[Floats], float]:
        """For each output the coefficients of local monomials, cells in C order, and the largest error at points."""
        points = np.cos(np.linspace(0, math.pi, self.degree + 1 + policy.EXTRA_POINTS))
        local = products([points] * len(self.names))
        basis = np.stack([np.prod(local.T**e, axis=1) for e in self.exponents], axis=1)
        solve = np.linalg.pinv(basis)
        centre, radius = self.centres
        at = [centre[k] + radius[k] * local[k][:, None] for k in range(len(self.names))]
        found, worst = [], 0.0
        for expr in self.target.outputs:
            spend(0.02 * at[0].size * (sum(1 for _ in walk(expr)) + len(basis.T)))
            values = np.broadcast_to(evaluate(expr, self.names, at), at[0].shape)
            if not np.all(np.isfinite(values)):
                return [], math.inf
            found.append(solve @ values)
            worst = max(worst, float(np.abs(basis @ found[-1] - values).max()))
        return found, worst

    @property
    def measured(self) -> float:
        """The largest error at points of the cells, their ends among them."""
        return self.fitted[1]

    @cached_property
    def exponents(self) -> list[tuple[int, ...]]:
        """Of the monomials, by degree."""
        every = product(range(self.degree + 1), repeat=len(self.names))
        return sorted((e for e in every if sum(e) <= self.degree), key=sum)

    @cached_property
    def centres(self) -> tuple[Floats, Floats]:
        """Middles of the cells, axes × cells in C order, and their half widths along each axis."""
        middles = products([(e[1:] + e[:-1]) / 2 for e in self.edges])
        return middles, np.array([(e[1] - e[0]) / 2 for e in self.edges])

    @cached_property
    def columns(self) -> Floats:
        """Coefficients of the powers of directions, cells × (outputs × powers), in the format."""
        centre, radius = self.centres
        shift = np.array(self.middles)[:, None] - centre  # (x − centre) = (x − middle) + shift
        changed = np.zeros((len(self.exponents), len(self.exponents), *centre.shape[1:]))
        for i, e in enumerate(self.exponents):
            for j, g in enumerate(self.exponents):
                if all(a >= b for a, b in zip(e, g, strict=True)):
                    ways = math.prod(map(math.comb, e, g)) / math.prod(r**a for r, a in zip(radius, e, strict=True))
                    changed[j, i] = ways * np.prod([s ** (a - b) for s, a, b in zip(shift, e, g, strict=True)], axis=0)
        powers = np.zeros((len(self.exponents), len(self.powers)))
        for i, (direction, s) in enumerate(self.powers):
            for j, g in enumerate(self.exponents):
                if sum(g) == s:
                    ways = math.factorial(s) / math.prod(map(math.factorial, g))
                    powers[j, i] = ways * math.prod(xi**a for xi, a in zip(direction, g, strict=True))
        parts = [np.linalg.solve(powers, np.einsum("jic,ic->jc", changed, local)).T for local in self.fitted[0]]
        for part in parts:  # what is next to nothing beside the others is left out, and with it two heads
            most = np.abs(part).max(axis=0) * self.sizes
            part[:, most <= _NOTHING * most.max()] = 0.0
        return np.concatenate(parts, axis=1).astype(self.dtype).astype(float)
