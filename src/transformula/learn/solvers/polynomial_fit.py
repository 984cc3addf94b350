"""The solution of every closed form: a linear combination of products of univariate polynomials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformula.learn.solvers.features import (
    Basis,
    Floats,
    MonomialSum,
    Terms,
    all_terms,
    blocks,
    evaluate_terms,
    power_basis,
    to_monomials,
)
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.ridge_forms import ExactRidges, spanning_ridges

#: Factor on the penalty for each degree above the first: low degrees are trusted more.
_GROWTH = 16.0


def penalty_roots(terms: Terms) -> Floats:
    """Square roots of growth^(degree - 1) for every term but the constant."""
    degrees = terms.exponents[1:].sum(axis=1, dtype=np.int64)
    return np.asarray(_GROWTH ** (0.5 * (degrees - 1.0)))


def penalties(terms: Terms, ridge: float) -> Floats:
    """ridge * growth^(degree - 1) for each term, nothing for the constant; relative to the total weight."""
    return np.concatenate([[0.0], ridge * penalty_roots(terms) ** 2])


@dataclass(frozen=True)
class LinearForms:
    """directions (x - center), with directions (r, d)."""

    center: Floats
    directions: Floats

    def __call__(self, X: Floats) -> Floats:
        """The forms at every row: (rows, r)."""
        return np.asarray((X - self.center) @ self.directions.T)


@dataclass(frozen=True)
class PolynomialFit:
    """A fitted polynomial: coefficients (p, outputs) of terms in a basis, of the inputs or of linear forms of them."""

    terms: Terms
    basis: Basis
    coefficients: Floats
    ridge: float = 0.0
    forms: LinearForms | None = None

    @classmethod
    def constant(cls, values: Floats, degree: int, forms: LinearForms | None = None) -> PolynomialFit:
        """A polynomial of no variables with these values (outputs,)."""
        nothing = np.zeros(0)
        return cls(all_terms(0, degree), power_basis(nothing, nothing, degree), values[None], forms=forms)

    def features(self, X: Floats) -> Floats:
        """Every term at every row: (p, rows)."""
        return evaluate_terms(self.terms, self.basis, X if self.forms is None else self.forms(X))

    def predict(self, X: Floats) -> Floats:
        """Evaluate the polynomial, in blocks of rows: (rows, outputs)."""
        out = np.empty((len(X), self.coefficients.shape[1]))
        for rows in blocks(len(X), len(self.terms)):
            out[rows] = self.features(X[rows]).T @ self.coefficients
        return out

    @property
    def selected(self) -> NDArray[np.bool_]:
        """Which terms each output has, the constant always: (p, outputs)."""
        mask: NDArray[np.bool_] = self.coefficients != 0
        mask[0] = True
        return mask

    def add_residuals(self, gram: Gram, X: Floats, Y: Floats, weight: Floats | None) -> None:
        """Take rows into the equations for a correction of the coefficients."""
        gram.add(X if self.forms is None else self.forms(X), Y - self.predict(X), weight)

    def corrected(self, gram: Gram, ridge: float) -> PolynomialFit:
        """Least squares on all rows whose residuals the state has: one step of iterative refinement.

        A coefficient that is zero stays so: the term was not selected for that output.
        """
        coefficients, amounts = self.coefficients.copy(), penalties(self.terms, ridge)
        selected, which = np.unique(self.selected, axis=1, return_inverse=True)
        for k, mask in enumerate(selected.T):
            some, outputs = np.flatnonzero(mask), np.flatnonzero(which.ravel() == k)
            here = np.ix_(some, outputs)
            right = gram.right[here] - gram.total * amounts[some, None] * coefficients[here]
            coefficients[here] += gram.part(some).solver(amounts[some])(right)
        return PolynomialFit(self.terms, self.basis, coefficients, ridge, self.forms)

    @property
    def n_terms(self) -> int:
        """Number of coefficients and of entries of directions."""
        return self.coefficients.size + (0 if self.forms is None else self.forms.directions.size)

    @property
    def degree(self) -> int:
        """The degree of the polynomial."""
        return self.terms.degree

    def exact(self) -> MonomialSum | ExactRidges:
        """The polynomial in rational arithmetic: monomials, or C(r − 1 + q, q) powers of r linear forms."""
        monomials = to_monomials(self.terms, self.coefficients, self.basis)
        if self.forms is None:
            return monomials
        found = spanning_ridges(monomials, len(self.forms.directions), self.degree)
        return found.compose(self.forms.directions, self.forms.center).exact()
