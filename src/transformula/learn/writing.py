r"""Learned polynomials as text, and as a Transformer with a certificate.

A fitted polynomial is converted in exact rational arithmetic to monomials of the original variables, or
to powers of linear forms, and then written with as few decimals as keep it within a tolerance::

    Σ_α |c_α − written c_α| · sup |x^α| ≤ tolerance · (standard deviation of the targets)

on the training range. `transformer_of` builds the weights of Fang's Theorem 3.5 for the text, and proves
them as `transformula.compile` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from transformula.api import compile
from transformula.compiler.attempts import Built, Options, known_dtype
from transformula.compiler.certify import package
from transformula.compiler.constructions import POLYNOMIAL
from transformula.compiler.polynomial import ridge_weights
from transformula.compiler.ridge_directions import RidgeSum
from transformula.errors import InputError
from transformula.formula.given_box import box_of
from transformula.formula.languages import decimal_text
from transformula.kernel.enclosures.balls import to_fmpq
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.parsing import MAX_LENGTH
from transformula.learn.distinct_rows import Range
from transformula.learn.solvers.features import Exponents, Indicators, MonomialSum
from transformula.learn.solvers.polynomial_fit import ExactRidges
from transformula.model import Model

Written = MonomialSum | ExactRidges
#: Most monomials for which a sum of powers of linear forms is expanded.
_MOST_EXPANDED = 500
_MOST_DECIMALS = 300


@dataclass(frozen=True)
class Writer:
    """Writes polynomials in named variables, rounded for a range of inputs.

    Attributes
    ----------
    names : the variables, one for each column.
    reach : the largest magnitude of each column.
    budget : how far the text may be from the polynomial, for each output.
    indicators : see `MonomialSum.reduced`.
    """

    names: Sequence[str]
    reach: Sequence[float]
    budget: Sequence[float]
    indicators: Indicators = ()

    def round_monomials(self, given: MonomialSum) -> MonomialSum:
        """The fewest decimals that stay within the budget."""
        outputs = []
        for terms, budget in zip(given.outputs, self.budget, strict=True):
            share = budget / max(1, len(terms))
            rounded = {e: _round(c, self._size(e), share) for e, c in terms.items()}
            outputs.append({e: c for e, c in rounded.items() if c})
        return MonomialSum(tuple(outputs))

    def round_ridges(self, given: ExactRidges) -> ExactRidges:
        """The same for the powers of linear forms; directions are decimals already."""
        count = sum(map(len, given.powers)) + 1
        powers = []
        for direction, by_power in zip(given.directions, given.powers, strict=True):
            reach = math.fsum(abs(float(v)) * r for v, r in zip(direction, self.reach, strict=True))
            powers.append(
                {
                    s: [_round(c, reach**s, b / count) for c, b in zip(row, self.budget, strict=True)]
                    for s, row in by_power.items()
                }
            )
        bias = tuple(_round(b, 1.0, budget / count) for b, budget in zip(given.bias, self.budget, strict=True))
        return ExactRidges(given.directions, tuple(powers), bias)

    def _size(self, exponents: Exponents) -> float:
        return math.prod((r**e for r, e in zip(self.reach, exponents, strict=True)), start=1.0)

    def monomial_texts(self, given: MonomialSum) -> list[str]:
        """One formula for each output, constant first, then by degree."""
        texts = []
        for terms in given.outputs:
            ordered = sorted(terms, key=lambda e: (sum(e), [-k for k in e]))
            texts.append(_join([(terms[e], self.monomial(e)) for e in ordered]))
        return texts

    def monomial(self, exponents: Exponents) -> str:
        """The product of powers of names."""
        pairs = [(name, e) for name, e in zip(self.names, exponents, strict=True) if e]
        return "*".join(name if e == 1 else f"{name}**{e}" for name, e in pairs)

    def ridge_texts(self, given: ExactRidges) -> list[str]:
        """One formula for each output, as powers of linear forms."""
        forms = [_join([(v, name) for v, name in zip(d, self.names, strict=True) if v]) for d in given.directions]
        texts = []
        for output, bias in enumerate(given.bias):
            terms = [(bias, "")] if bias else []
            for form, by_power in zip(forms, given.powers, strict=True):
                for s, row in sorted(by_power.items()):
                    if row[output]:
                        terms.append((row[output], f"({form})" if s == 1 else f"({form})**{s}"))
            texts.append(_join(terms))
        return texts


def _round(value: Fraction, size: float, share: float) -> Fraction:
    """The nearest decimal whose error times ``size`` is at most ``share``."""
    if not size > 0:
        return Fraction(0)
    decimals = math.ceil(math.log10(size) - math.log10(2 * share)) if share > 0 else _MOST_DECIMALS
    decimals = min(decimals, _MOST_DECIMALS)
    return Fraction(round(value * Fraction(10) ** decimals)) / Fraction(10) ** decimals


def _join(terms: Sequence[tuple[Fraction, str]]) -> str:
    text = ""
    for value, what in terms:
        sign, digits = "-" if value < 0 else "+", decimal_text(abs(value))
        piece = digits if not what else what if digits == "1" else f"{digits}*{what}"
        text += f" {sign} {piece}" if text else f"{'-' if sign == '-' else ''}{piece}"
    return text or "0"


def write(polynomial: Written, writer: Writer) -> tuple[list[str], Written]:
    """Round and write; the rounded polynomial comes back for the weights."""
    if isinstance(polynomial, ExactRidges):
        width = len(polynomial.directions[0]) if polynomial.directions else 1
        degree = max((s for p in polynomial.powers for s in p), default=0)
        count = sum(map(len, polynomial.powers))
        if math.comb(width + degree, degree) <= max(_MOST_EXPANDED, 2 * count):
            polynomial = polynomial.expand()
    if isinstance(polynomial, MonomialSum):
        if any(writer.indicators):
            polynomial = polynomial.reduced(writer.indicators)
        polynomial = writer.round_monomials(polynomial)
        texts = writer.monomial_texts(polynomial)
    else:
        polynomial = writer.round_ridges(polynomial)
        texts = writer.ridge_texts(polynomial)
    longest = max(map(len, texts))
    if longest > MAX_LENGTH:
        raise InputError(
            f"the formula would have {longest} characters, and at most {MAX_LENGTH} can be read back: "
            "lower the degree or the rank, raise the tolerance, or use predict"
        )
    return texts, polynomial


def transformer_of(texts: list[str], polynomial: Written, box: Box, dtype: str) -> Model:
    """Fang's Transformer for the text, certified on the box (restricted to the variables that occur)."""
    dtype, used = known_dtype(dtype), frozenset[str]().union(*(e.names for e in Formula.of(texts, box).outputs))
    if not used:
        raise InputError(
            "the fitted polynomial is a constant, so there is nothing for a Transformer to compute: no column was "
            "found to say anything about the target"
        )
    kept = [k for k, name in enumerate(box.variables) if name in used]
    box = Box(
        tuple(box.variables[k] for k in kept),
        tuple(box.lower[k] for k in kept),
        tuple(box.upper[k] for k in kept),
    )
    if isinstance(polynomial, MonomialSum):
        return compile(texts, box, construction=POLYNOMIAL.name, dtype=dtype)
    total = RidgeSum(len(texts))
    for direction, by_power in zip(polynomial.directions, polynomial.powers, strict=True):
        form = [to_fmpq(direction[k]) for k in kept]
        for s, row in by_power.items():
            for output, c in enumerate(row):
                total.add(form, s, output, to_fmpq(c))
    weights = ridge_weights(total.pruned(), [to_fmpq(b) for b in polynomial.bias], box, dtype)
    return package(POLYNOMIAL, Built(weights), Formula.of(texts, box), Options(dtype=dtype))


def range_box(names: Sequence[str], inputs: Range) -> Box:
    """The training range as a box, its ends rounded outward to a 10,000th of its width.

    A column with one value gets a unit interval (it is never used).

    Examples
    --------
    >>> import numpy as np
    >>> str(range_box(["x"], Range(np.array([-1.23451]), np.array([2.0]))))
    'x=-6173/5000..2'
    """
    intervals = {}
    columns = zip(inputs.low.tolist(), inputs.high.tolist(), inputs.varying.tolist(), strict=True)
    for name, (low, high, varying) in zip(names, columns, strict=True):
        if not varying:
            intervals[name] = Fraction(low), Fraction(low) + 1
            continue
        unit = Fraction(10) ** (math.floor(math.log10(high - low)) - 4)
        intervals[name] = math.floor(Fraction(low) / unit) * unit, math.ceil(Fraction(high) / unit) * unit
    return box_of(intervals)
