"""Which theorem for which formula."""

from __future__ import annotations

from collections.abc import Iterator

from transformula.constructions.polynomial import construct_polynomial
from transformula.errors import FormulaError
from transformula.formulas.formula import Formula
from transformula.formulas.polynomials import NotPolynomialError
from transformula.transformers.weights import Weights

CONSTRUCTIONS = ("polynomial",)


def candidates(
    formula: Formula, construction: str, dtype: str, multi_head: bool
) -> Iterator[tuple[str, Weights]]:
    """Weights to try, cheapest first, each with the name of its construction."""
    try:
        for weights in construct_polynomial(formula, dtype, multi_head):
            yield "polynomial", weights
    except NotPolynomialError as error:
        raise FormulaError(
            f"{error}. The polynomial construction is exact for polynomials only; the constructions "
            "lookup, partition and circuit, which approximate, are not built yet"
        ) from None
