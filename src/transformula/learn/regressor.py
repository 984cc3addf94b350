"""Regression with Fang's model: a polynomial of the inputs, found by one of five solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from transformula.learn.base import PolynomialEstimator, seed_of, spread_of
from transformula.learn.distinct_rows import Floats, Range, Rows, regression_rows
from transformula.learn.estimator_options import check_init, check_options, fit_by_gradient
from transformula.learn.fitted import Fitted
from transformula.learn.foreign_tables import given_table
from transformula.learn.solver_choice import Settings, choose, solve
from transformula.learn.solvers.exact_fit import ExactFit
from transformula.learn.solvers.features import all_terms, orthonormal_basis
from transformula.learn.states import Split, Survey
from transformula.learn.streaming import Parts, Streamed, StreamState, fit_parts, solve_exact, survey_of

_NOTHING_HELD = Split()


def _streams(estimator: Any) -> bool:
    """Whether the solver's equations add up over batches."""
    if estimator.solver in ("exact", "auto"):
        return True
    raise AttributeError(f"partial_fit needs solver='exact': {estimator.solver!r} sees all rows at once")


class PolynomialTransformerRegressor(MultiOutputMixin, RegressorMixin, PolynomialEstimator):  # type: ignore[misc]
    r"""Learn a polynomial, which is a Transformer (Fang et al. 2022, Theorem 3.5), from data.

    The model is :math:`b + \sum_k \sum_{s \le q} \beta_{k,s} (F_k\cdot x)^s`, any polynomial of degree q.

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
        total weight. Default: chosen by leave-one-out for ``exact`` (with more on higher degrees where that is
        better), by held-out rows for ``lowrank``.
    criterion : {"ebic", "bic", "holdout"}
        ``sparse``: what decides the number of terms.
    max_terms : int, optional
        ``sparse``: the most terms.
    rank : int, optional
        ``lowrank``: the number of directions; by default as many as lower the held-out error.
    n_directions : int, optional
        ``sgd``, ``adam``: tokens; by default the paper's C(d + q + 1, q), 512 at most.
    epochs, batch_size, learning_rate, start_rate, clip
        ``sgd``, ``adam``: the one-cycle schedule rises from start_rate to learning_rate and falls; clip is
        the largest gradient norm. start_rate None is a tenth of learning_rate, epochs None is 300, or fewer
        for large tables: 1,000 steps.
    weight_decay
        ``sgd``, ``adam``: share of every parameter that a step of rate 1 takes away.
    early_stopping, validation_fraction, n_iter_no_change
        ``sgd``, ``adam``: stop after so many epochs (None: a third of all) without a better loss on held-out
        rows, and keep the best parameters, which may be those of the start.
    init : {"linear", "random"}
        ``sgd``, ``adam``: begin with a linear model, so that early stopping keeps nothing worse, or with the
        paper's random parameters.
    standardize : bool
        ``sgd``, ``adam``: train on standardised inputs and targets. Closed forms always scale inside.
    checkpoint, checkpoint_every
        ``sgd``, ``adam``: a file to save to; if it exists, for the same data and settings, training goes on
        from it and ends with the same numbers as without an interruption.
    device : str
        ``sgd``, ``adam``: a torch device.
    n_jobs : int, optional
        ``auto``: candidates tried side by side.
    random_state : int or RandomState, optional
        Seed of splits, random directions and batches; None is 0.
    verbose : bool
        Show a progress bar when a person is watching.

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

    def __init__(
        self,
        degree: int = 3,
        solver: str = "auto",
        *,
        ridge: float | None = None,
        criterion: str = "ebic",
        max_terms: int | None = None,
        rank: int | None = None,
        n_directions: int | None = None,
        epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.02,
        start_rate: float | None = None,
        clip: float | None = 1.0,
        weight_decay: float = 0.01,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        init: str = "linear",
        standardize: bool = True,
        checkpoint: str | None = None,
        checkpoint_every: int = 10,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.degree = degree
        self.solver = solver
        self.ridge = ridge
        self.criterion = criterion
        self.max_terms = max_terms
        self.rank = rank
        self.n_directions = n_directions
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.start_rate = start_rate
        self.clip = clip
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.init = init
        self.standardize = standardize
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PolynomialTransformerRegressor:
        """Fit the polynomial.

        Parameters
        ----------
        X : (rows, features) numbers, also of Dask or Arrow: a closed form then reads them in parts, where they are.
        y : (rows,) or (rows, outputs) numbers.
        sample_weight : (rows,) non-negative weights; a weight of k counts as k equal rows.
        """
        check_options(self)
        check_init(self.init)
        given = None if self.solver in ("sgd", "adam") else given_table(X, y, sample_weight)
        if given is not None:
            given.name(self)
            self.fit_parts(given.parts, survey_of(given.parts, _NOTHING_HELD))
            self._single = given.single
            return self
        rows, self._single = regression_rows(self, X, y, sample_weight)
        self._forget_stream()
        self._set_range(Range.of(rows.X), rows.Y, rows.weight)
        columns = self.range_.varying
        varying = Rows(np.ascontiguousarray(rows.X[:, columns]), rows.Y, rows.weight)
        settings = self._settings()
        self.history_ = None
        solver = self.solver
        if not columns.any():
            mean = np.average(rows.Y, axis=0, weights=rows.weight)
            basis = orthonormal_basis(np.zeros((1, 0)), self.degree)
            found: Any = ExactFit(all_terms(0, self.degree), basis, mean[None])
            solver = "exact" if solver == "auto" else solver
        elif solver in ("sgd", "adam"):
            found, self.history_ = fit_by_gradient(self, varying)
        else:
            if solver == "auto":
                solver, settings = choose(varying, settings)
            found = solve(solver, varying, settings)
        self.fitted_ = Fitted(solver, found, columns)
        self.solver_, self.degree_ = solver, self.fitted_.degree
        return self

    def fit_parts(self, parts: Parts, survey: Survey, split: Split = _NOTHING_HELD) -> Streamed:
        """Fit a table that is in parts, by a closed form, in a fixed number of passes.

        Parameters
        ----------
        parts : Parts
            The table, as `transformula.learn.table_parts` has it.
        survey : Survey
            What `streaming.survey_of` has found in the first pass over it.
        split : Split
            Which rows are held out, as for the survey; none by default.

        Returns
        -------
        Streamed
            The fit with the states it was solved from.
        """
        check_options(self)
        self._forget_stream()
        fit = fit_parts(parts, self.solver, self._settings(), survey, split)
        self.n_features_in_, self._single, self.history_ = parts.width, parts.outputs == 1, None
        self.range_ = survey.range
        self.target_spread_ = spread_of(survey.targets.deviation, survey.targets.mean)
        self.solver_, self.degree_, self.fitted_ = fit.solver, fit.fitted.degree, fit.fitted
        return fit

    def predict(self, X: Any) -> Floats:
        """Evaluate the polynomial: (rows,) or (rows, outputs) as y had it."""
        scores = self._scores(X)
        return scores[:, 0] if self._single else scores

    @available_if(_streams)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> PolynomialTransformerRegressor:
        """Add a batch of rows, for data larger than memory.

        The normal equations of ``exact`` add up over batches, so the result is that of one fit on all rows
        (up to rounding: the first batch fixes the basis, so make it a typical one). Needs ``solver="exact"``
        or ``"auto"``.
        """
        check_options(self)
        if self.solver not in ("exact", "auto"):
            raise ValueError(f"partial_fit needs solver='exact': solver={self.solver!r} sees all rows at once")
        first = not hasattr(self, "_state")
        X, y = validate_data(
            self, X, y, reset=first, dtype=np.float64, y_numeric=True, multi_output=True, ensure_min_samples=2
        )
        w = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        self._single = np.ndim(y) == 1
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        if first:
            self._state = StreamState.begin(X, Y, w, self.degree)
        elif Y.shape[1] != len(self._state.gram.shift):
            raise ValueError(f"y has {Y.shape[1]} outputs; the first batch had {len(self._state.gram.shift)}")
        else:
            self._state = self._state + self._state.of(X, Y, w)
        survey = self._state.survey
        self.range_ = survey.range
        self.target_spread_ = spread_of(survey.targets.deviation, survey.targets.mean)
        found, _ = solve_exact(self._state.gram, survey.sample.rows(), self.ridge)
        self.solver_, self.degree_, self.history_ = "exact", self.degree, None
        self.fitted_ = Fitted("exact", found, np.ones(X.shape[1], dtype=bool))
        return self

    def _forget_stream(self) -> None:
        if hasattr(self, "_state"):
            del self._state

    def _settings(self) -> Settings:
        return Settings(
            self.degree,
            self.ridge,
            self.criterion,
            self.max_terms,
            self.rank,
            seed_of(self.random_state),
            self.n_jobs,
        )

    @property
    def n_terms_(self) -> int:
        """How many numbers the fitted polynomial consists of."""
        check_is_fitted(self)
        return self.fitted_.n_terms
