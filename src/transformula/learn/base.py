"""What the polynomial estimators share: names, ranges, text and Transformers."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from transformula.errors import InputError, brief
from transformula.formula.given_box import box_of
from transformula.kernel.syntax.boxes import Box
from transformula.learn.checked_arguments import check_number
from transformula.learn.columns import variable_names
from transformula.learn.distinct_rows import Floats, Range, refuse_dask
from transformula.learn.fitted import Fitted
from transformula.learn.linear_attention_fit import AttentionFit
from transformula.learn.writing import Writer, Written, range_box, transformer_of, write
from transformula.model import Model

#: The largest seed that scikit-learn takes.
MAX_SEED = 2**32 - 1


def seed_of(random_state: Any) -> int:
    """One integer from a scikit-learn random_state: None gives 0, so that fits are repeatable."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if not isinstance(random_state, Integral) or not 0 <= int(random_state) <= MAX_SEED:
        raise InputError(f"random_state must be a whole number from 0 to {MAX_SEED}, not {brief(random_state)}")
    return int(random_state)


def spread_of(deviation: Floats, mean: Floats) -> Floats:
    """Standard deviations, with something positive in place of zero."""
    return np.where(deviation > 0, deviation, np.maximum(np.abs(mean), 1.0))


class PolynomialEstimator(BaseEstimator):  # type: ignore[misc]
    """Everything that follows from a fitted polynomial of the inputs."""

    fitted_: Fitted | AttentionFit
    range_: Range
    target_spread_: Floats

    def _scores(self, X: Any) -> Floats:
        """Evaluate the polynomials, with a warning far outside the training range."""
        check_is_fitted(self)
        refuse_dask(X, "use X.map_partitions(model.predict)")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        far = self.range_.far_outside(X)
        if far is not None:
            rows, column = far
            name = self._names()[column]
            low, high = self.range_.low[column], self.range_.high[column]
            warnings.warn(
                f"{rows} of {len(X)} rows lie far outside the training range (most of all {name}, trained "
                f"on {low:.6g}..{high:.6g}): a polynomial extrapolates badly there",
                UserWarning,
                stacklevel=3,
            )
        return self.fitted_.predict(X)

    def _set_range(self, inputs: Range, Y: Floats, weight: Floats) -> None:
        self.range_ = inputs
        mean, size = np.average(Y, axis=0, weights=weight), np.abs(Y).max(axis=0, initial=0.0)
        unit = np.where(size > 0, size, 1.0)  # squares of large targets would overflow
        self.target_spread_ = spread_of(
            unit * np.sqrt(np.average(((Y - mean) / unit) ** 2, axis=0, weights=weight)), mean
        )

    def _names(self) -> list[str]:
        return variable_names(getattr(self, "feature_names_in_", None), int(self.n_features_in_))

    def _written(self, tolerance: float, box: Box) -> tuple[list[str], Written]:
        check_number("tolerance", tolerance)
        reach = [max(abs(low), abs(high)) for low, high in box.floats()]
        budget = (tolerance * self.target_spread_).tolist()
        return write(self.fitted_.exact(), Writer(self._names(), reach, budget))

    def to_formula(self, tolerance: float = 1e-9, box: Any = None) -> str | list[str]:
        """The polynomial as text that `transformula.compile` reads back.

        Parameters
        ----------
        tolerance : float
            How far the text may be from `predict` on the box, in standard deviations of the targets; a larger
            one gives fewer digits.
        box : str, mapping or Box, optional
            The training range by default, as for `to_transformer`.

        Returns
        -------
        str, or list of str for several outputs (for a classifier, the scores of its classes).
            Variables are called x1, x2, ... or as the columns the model was fitted on, with characters
            the parser does not know replaced by ``_``.
        """
        texts = self._written(tolerance, self._box(box))[0]
        return texts[0] if len(texts) == 1 else texts

    def to_transformer(self, box: Any = None, tolerance: float = 1e-9, dtype: str = "float64") -> Model:
        """Fang's Transformer for the formula: it saves, verifies and exports as compiled ones do.

        Parameters
        ----------
        box : str, mapping or Box, optional
            Where the certificate is to hold; the training range by default. Give every input an interval.
        tolerance : float
            As for `to_formula`; the certificate is about that text.
        dtype : {"float64", "float32"}
            Format of the weights and of the claim.

        Notes
        -----
        The Transformer reads only the variables that occur in the formula, in the order of the columns:
        see ``model.weights.inputs``.
        """
        full = self._box(box)
        texts, polynomial = self._written(tolerance, full)
        return transformer_of(texts, polynomial, full, dtype)

    def _box(self, given: Any) -> Box:
        """The box asked for, completed with the training range."""
        check_is_fitted(self)
        names = self._names()
        default = range_box(names, self.range_)
        return default if given is None else _completed(box_of(given), default)


def _completed(given: Box, default: Box) -> Box:
    names = default.variables
    if unknown := [v for v in given.variables if v not in names]:
        raise ValueError(f"the box names {unknown[0]}, which is not an input: {', '.join(names)}")
    place = {name: k for k, name in enumerate(given.variables)}
    return Box(
        names,
        tuple(given.lower[place[n]] if n in place else default.lower[k] for k, n in enumerate(names)),
        tuple(given.upper[place[n]] if n in place else default.upper[k] for k, n in enumerate(names)),
    )
