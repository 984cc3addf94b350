"""Regression with Fang's model: a polynomial of the inputs, found by one of five solvers."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from transformula.cluster.table_parts import DaskParts, Parts, is_dask
from transformula.learn.base import GRADIENT_SOLVERS, SolverEstimator
from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.solver_choice import Fitted, choose, solve
from transformula.learn.solvers.polynomial_fit import PolynomialFit
from transformula.learn.states import HeldOut, StreamState, Survey, fit_parts, solve_exact, survey_of

_NOTHING_HELD = HeldOut()


def _streams(estimator: Any) -> bool:
    """Whether the solver's equations add up over batches."""
    if estimator.solver in ("exact", "auto"):
        return True
    raise AttributeError(f"partial_fit needs solver='exact': {estimator.solver!r} sees all rows at once")


@dataclass(repr=False, eq=False)
class PolynomialTransformerRegressor(MultiOutputMixin, RegressorMixin, SolverEstimator):  # type: ignore[misc]
    r"""Learn a polynomial, which is a Transformer (Fang et al. 2022, Theorem 3.5), from data.

    The model is b + Σ_k Σ_s β_ks (F_k·x)^s with s ≤ q, any polynomial of degree q.

    Parameters
    ----------
    degree : int
        Degree q of the polynomial.
    solver : {"auto", "exact", "sparse", "lowrank", "sgd", "adam"}
        ``exact``: least squares over all C(d + q, q) monomials, in an orthonormal basis. ``sparse``:
        selects few monomials. ``lowrank``: learns few directions, for many variables. ``sgd``, ``adam``:
        the paper's gradient training. ``auto``: the closed form with the least held-out error, a linear model
        among them.
    ridge : float, optional
        ``exact``, ``lowrank``: penalty on squared coefficients in the orthonormal basis, relative to the
        total weight, for ``exact`` 16 times larger with each degree. Default: chosen by leave-one-out for ``exact``,
        by held-out rows for ``lowrank``.
    max_terms : int, optional
        ``sparse``: the most terms.
    rank : int, optional
        ``lowrank``: the number of directions; by default as many as lower the held-out error.
    n_directions : int, optional
        ``sgd``, ``adam``: tokens; by default the paper's C(d + q + 1, q), 512 at most.
    epochs : int, optional
        ``sgd``, ``adam``: passes over the rows; by default 300, or fewer for large tables (1,000 steps).
    batch_size : int
        ``sgd``, ``adam``: rows of a step.
    learning_rate : float
        ``sgd``, ``adam``: the largest rate of the one-cycle schedule.
    start_rate : float, optional
        ``sgd``, ``adam``: the rate it begins with; by default a tenth of the largest.
    clip : float, optional
        ``sgd``, ``adam``: the largest norm of a gradient.
    weight_decay : float
        ``sgd``, ``adam``: share of every parameter that a step of rate 1 takes away.
    early_stopping : bool
        ``sgd``, ``adam``: keep the parameters with the least loss on held-out rows, which may be those of the start,
        and stop after a third of all epochs without a better one.
    validation_fraction : float
        ``sgd``, ``adam``: the share of the rows that are held out for that.
    init : {"linear", "random"}
        ``sgd``, ``adam``: begin with a linear model, so that early stopping keeps nothing worse, or with the
        paper's random parameters.
    indicators : list of lists of columns, optional
        Columns of 0 and 1 of which at most one in each list is 1 (by name or index), as OneHotEncoder makes them: their
        squares and products within a list are left out.
    standardize : bool
        ``sgd``, ``adam``: train on standardised inputs and targets. Closed forms always scale inside.
    checkpoint : str, optional
        ``sgd``, ``adam``: a file to save to; if it exists, for the same data and settings, training goes on
        from it and ends with the same numbers as without an interruption.
    checkpoint_every : int
        ``sgd``, ``adam``: epochs between two of them.
    device : str
        ``sgd``, ``adam``: a torch device.
    random_state : int or RandomState, optional
        Seed of splits, random directions and batches; None is 0.

    Attributes
    ----------
    solver_ : str
        The solver that was used.
    degree_ : int
        The degree of the polynomial that was found: 1 where nothing is clearly better than a linear model.
    n_terms_ : int
        Numbers the fitted polynomial consists of.
    history_ : History or None
        Losses of gradient training.
    range_ : Range
        The training range; far outside it `predict` warns.

    Notes
    -----
    Columns with one value carry no information and are left out. With fewer rows than terms ``exact`` warns
    and takes the solution with the smallest coefficients. NaN, infinities, text and a single row are refused.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> y = X[:, 0] ** 2 - 2 * X[:, 1] * X[:, 2] + 0.5
    >>> model = PolynomialTransformerRegressor(degree=2).fit(X, y)
    >>> model.to_formula()
    '0.5 + x1**2 - 2*x2*x3'
    >>> model.to_transformer().certificate.approximation
    0.0
    """

    degree: int = 3
    solver: str = "auto"
    _: KW_ONLY
    init: str = "linear"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PolynomialTransformerRegressor:
        """Fit the polynomial.

        Parameters
        ----------
        X : (rows, features) numbers; a closed form reads Dask collections in parts, where they are.
        y : (rows,) or (rows, outputs) numbers.
        sample_weight : (rows,) non-negative weights; a weight of k counts as k equal rows.
        """
        self._check_parameters()
        if is_dask(X) and self.solver not in GRADIENT_SOLVERS:
            parts = DaskParts.of(X, y, sample_weight)
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            if parts.names is not None:
                self.feature_names_in_ = parts.names
            self.fit_parts(parts, survey_of(parts, _NOTHING_HELD))
            self._single = parts.single
            return self
        rows = self._training_rows(X, y, sample_weight)
        self._forget_stream()
        self._measure_targets(rows)
        self._fit_polynomial(rows, np.average(rows.Y, axis=0, weights=rows.weight))
        self.degree_ = self.fitted_.degree
        return self

    def _solve(self, rows: Rows) -> tuple[str, PolynomialFit]:
        solver, settings = choose(rows, self._settings()) if self.solver == "auto" else (self.solver, self._settings())
        return solver, solve(solver, rows, settings)

    def fit_parts(self, parts: Parts, survey: Survey, split: HeldOut = _NOTHING_HELD) -> None:
        """Fit a table that is in parts, by a closed form, in two passes.

        Parameters
        ----------
        parts : Parts
            The table, as `transformula.cluster.table_parts` has it.
        survey : Survey
            The result of `streaming.survey_of`, the first pass over it.
        split : HeldOut
            Which rows are held out, as for the survey; none by default.
        """
        self._check_parameters()
        self._forget_stream()
        self.n_features_in_ = parts.width
        self.fitted_ = fit_parts(parts, self.solver, self._settings(), survey, split)
        self._single = parts.outputs == 1
        self._note_survey(survey)
        self.solver_ = self.fitted_.solver
        self.degree_ = self.fitted_.degree

    def predict(self, X: Any) -> Floats:
        """Evaluate the polynomial: (rows,) or (rows, outputs) as y had it."""
        return self._shaped(self._scores(X))

    @available_if(_streams)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> PolynomialTransformerRegressor:
        """Add a batch of rows, for data larger than memory.

        The normal equations of ``exact`` add up over batches, so the result is that of one fit on all rows
        (up to rounding: the first batch fixes the basis, so make it a typical one). Needs ``solver="exact"``
        or ``"auto"``.
        """
        self._check_parameters()
        first = not hasattr(self, "_state")
        X, y, weight = self._validated(X, y, sample_weight, reset=first, y_numeric=True, multi_output=True)
        self._single = np.ndim(y) == 1
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        if first:
            self._state = StreamState.begin(X, Y, weight, self.degree, self._indicators(X.shape[1]))
        elif Y.shape[1] != len(self._state.gram.shift):
            raise ValueError(f"y has {Y.shape[1]} outputs; the first batch had {len(self._state.gram.shift)}")
        else:
            self._state = self._state + self._state.of(X, Y, weight)
        self._note_survey(self._state.survey)
        self.solver_ = "exact"
        self.degree_ = self.degree
        self.fitted_ = Fitted("exact", solve_exact(self._state, self.ridge), np.ones(X.shape[1], dtype=bool))
        return self

    def _note_survey(self, survey: Survey) -> None:
        self.history_ = None
        self.range_ = survey.range
        self._measure_targets(survey.sample.rows())

    def _forget_stream(self) -> None:
        if hasattr(self, "_state"):
            del self._state
