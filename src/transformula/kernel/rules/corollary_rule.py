"""Corollary 3.7: a polynomial Transformer close to any continuous function.

The blocks are those of Theorem 3.5 and compute a polynomial p. The approximation error is sup|p − f| over the
box: that of a table with one token of value 0 against the function f − p, on the pieces given. The formula,
extended over removable singularities, must be defined on the whole box (`extensions`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from transformula.kernel.derivations.derivation_steps import Facts
from transformula.kernel.enclosures.balls import enclose, to_fraction
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import FormulaError, NotProvenError, RefutedError
from transformula.kernel.folder.description import Proof
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rules.polynomial_rule import checked_ridge, identity_error, ridge_polynomial, ridge_rounding
from transformula.kernel.structures.ridge_blocks import Ridge
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.table_error import SoftmaxTable, table_error

MAX_AXES = 4


def prove_corollary(weights: Weights, formula: Formula, derivation: Any, evidence: Evidence) -> Proof:
    """Prove a polynomial model of formulas that are not all polynomials, or raise `NotProvenError`."""
    if not isinstance(derivation, dict) or not set(derivation) <= {"extends", "signs"}:
        raise RefutedError("the derivation in model.json has other parts than extends and signs")
    ridge, formula = checked_ridge(weights), Facts(formula, derivation, evidence).formula
    errors = [_output_error(ridge, o, formula, evidence) for o in range(len(formula.outputs))]
    return Proof(float(np.max(errors)), ridge_rounding(ridge, formula.box))


def _output_error(ridge: Ridge, output: int, formula: Formula, evidence: Evidence) -> float:
    box, expr = formula.box, formula.outputs[output]
    network = ridge_polynomial(ridge, output, box.dimension)
    try:
        return identity_error(network, expr, box)
    except FormulaError:
        pass  # no polynomial, or too large to be expanded
    if box.dimension > MAX_AXES:
        raise NotProvenError(f"a remainder in more than {MAX_AXES} variables cannot be proven here")
    region = Region.of_box(box)
    difference = ex.add(expr, *(_term(box.variables, e, -to_fraction(c)) for e, c in network.to_dict().items()))
    ends = [(enclose(a), enclose(b)) for a, b in zip(box.lower, box.upper, strict=True)]
    zeros = (np.zeros(1),) * box.dimension
    table = SoftmaxTable(zeros, zeros, np.zeros((1,) * box.dimension))
    return table_error(table, difference, box.variables, ends, evidence.corollary(output, difference, region))


def _term(names: tuple[str, ...], exponents: tuple[int, ...], coefficient: Fraction) -> Expr:
    powers = [ex.power(ex.variable(n), ex.number(int(e))) for n, e in zip(names, exponents, strict=True) if e]
    return ex.mul(ex.number(coefficient), *powers)
