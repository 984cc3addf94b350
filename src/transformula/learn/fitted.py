"""What a solver found, in one shape: it predicts, and it can be written down exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Protocol

import numpy as np

from transformula.learn.distinct_rows import Floats
from transformula.learn.solvers.exact_fit import ExactFit
from transformula.learn.solvers.features import to_monomials
from transformula.learn.solvers.lowrank_fit import LowRankFit
from transformula.learn.solvers.ridge_forms import RidgeForm, spanning_ridges
from transformula.learn.solvers.sparse_fit import SparseFit
from transformula.learn.writing import DIRECTION_DECIMALS, ExactRidges, MonomialSum, Written


class Solution(Protocol):
    """A polynomial a solver found."""

    def predict(self, X: Floats) -> Floats:
        """Evaluate it: (rows, outputs)."""


@dataclass(frozen=True)
class Fitted:
    """A solver's result on the columns that vary.

    Attributes
    ----------
    solver : the solver that found it.
    solution : its polynomial in the chosen columns.
    columns : (d,) which columns of the input it reads; the others were constant.
    """

    solver: str
    solution: Solution
    columns: np.ndarray  # type: ignore[type-arg]

    def predict(self, X: Floats) -> Floats:
        """Evaluate the polynomial: (rows, outputs)."""
        return self.solution.predict(X[:, self.columns])

    @property
    def n_terms(self) -> int:
        """How many numbers describe it: coefficients, and directions where they were learned."""
        found = self.solution
        if isinstance(found, SparseFit):
            return sum(map(len, found.coefficients))
        if isinstance(found, RidgeForm):
            return found.directions.size + found.powers.size + found.bias.size
        if isinstance(found, LowRankFit):
            return found.directions.size + found.coefficients.size
        assert isinstance(found, ExactFit)
        return found.coefficients.size

    @property
    def degree(self) -> int:
        """The degree of the polynomial, at most the one asked for."""
        found = self.solution
        if isinstance(found, SparseFit):
            return max(int(one.sum(axis=1, dtype=np.int64).max(initial=0)) for one in found.exponents)
        if isinstance(found, RidgeForm):
            return int(found.powers.shape[1])
        assert isinstance(found, (ExactFit, LowRankFit))
        return found.terms.degree

    def exact(self) -> Written:
        """The polynomial in the original variables, in rational arithmetic."""
        width = len(self.columns)
        places = np.flatnonzero(self.columns).tolist()
        found = self.solution
        if isinstance(found, ExactFit):
            triples = [(found.terms.exponents, c, found.basis) for c in found.coefficients.T]
        elif isinstance(found, SparseFit):
            triples = list(zip(found.exponents, found.coefficients, found.basis, strict=True))
        else:
            assert isinstance(found, (LowRankFit, RidgeForm))
            return exact_ridges(found if isinstance(found, RidgeForm) else _spanning(found), places, width)
        return MonomialSum(
            tuple({_spread(e, places, width): v for e, v in to_monomials(*triple).items()} for triple in triples)
        )


def _spread(exponents: tuple[int, ...], places: list[int], width: int) -> tuple[int, ...]:
    full = [0] * width
    for place, e in zip(places, exponents, strict=True):
        full[place] = e
    return tuple(full)


def _spanning(found: LowRankFit) -> RidgeForm:
    """Write the polynomial of r forms with C(r − 1 + q, q) powers of linear forms."""
    if not len(found.directions):
        empty = np.zeros((0, max(1, found.terms.degree), found.coefficients.shape[1]))
        return RidgeForm(np.zeros((0, len(found.center))), empty, found.coefficients[0], found.center)
    form = spanning_ridges(found.terms, found.coefficients, np.random.default_rng(0))
    return form.compose(found.directions, found.center)


def exact_ridges(form: RidgeForm, places: list[int], width: int) -> ExactRidges:
    """Directions as decimals, (w·(x − c))^s expanded about the origin without rounding."""
    center = [Fraction(float(c)) for c in form.center]
    bias = [Fraction(float(b)) for b in form.bias]
    directions, powers = [], []
    for w, coefficients in zip(form.directions, form.powers, strict=True):
        length = float(np.abs(w).max(initial=0.0))
        if length == 0.0:
            continue
        direction = [Fraction(round(v * 10**DIRECTION_DECIMALS), 10**DIRECTION_DECIMALS) for v in w / length]
        offset = -sum((v * c for v, c in zip(direction, center, strict=True)), Fraction(0))
        by_power = {s + 1: [Fraction(0)] * len(bias) for s in range(len(coefficients))}
        for s, row in enumerate(coefficients, start=1):
            for o, c in enumerate(row.tolist()):
                scaled = Fraction(c) * Fraction(length) ** s
                for j in range(s + 1):
                    part = scaled * comb(s, j) * offset ** (s - j)
                    if j:
                        by_power[j][o] += part
                    else:
                        bias[o] += part
        full = [Fraction(0)] * width
        for place, v in zip(places, direction, strict=True):
            full[place] = v
        directions.append(tuple(full))
        powers.append(by_power)
    return ExactRidges(tuple(directions), tuple(powers), tuple(bias))
