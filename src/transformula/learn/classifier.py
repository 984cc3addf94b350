"""Classification with Fang's model: the scores of the classes are polynomials, fitted by cross-entropy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from transformula.learn.base import PolynomialEstimator, seed_of
from transformula.learn.distinct_rows import Floats, Range, Rows, merge_rows, refuse_dask
from transformula.learn.estimator_options import check_options, fit_by_gradient
from transformula.learn.fitted import Fitted
from transformula.learn.logistic import choose_design, fit_logistic
from transformula.learn.solver_choice import Settings
from transformula.learn.solvers.exact_fit import ExactFit
from transformula.learn.solvers.features import all_terms, orthonormal_basis


class PolynomialTransformerClassifier(ClassifierMixin, PolynomialEstimator):  # type: ignore[misc]
    r"""Multinomial logistic regression whose scores are polynomials, hence Transformers.

    P(class c | x) = softmax_c(f_1(x), ..., f_C(x)), each f_c a polynomial of degree q.

    Parameters
    ----------
    degree : int
        Degree of the scores.
    solver : {"auto", "exact", "sparse", "lowrank", "sgd", "adam"}
        Which features the convex problem has: all monomials (``exact``), selected ones (``sparse``), products
        of learned directions (``lowrank``); or Fang's gradient training. ``auto`` takes ``exact`` up to 3000
        monomials and ``lowrank`` above.
    ridge : float, optional
        Penalty on squared coefficients; by default chosen on held-out rows.
    criterion, max_terms, rank, n_directions, epochs, batch_size, learning_rate, start_rate, clip,
    weight_decay, early_stopping, validation_fraction, n_iter_no_change, standardize, checkpoint, checkpoint_every,
    device, random_state, verbose
        As for `PolynomialTransformerRegressor`.

    Attributes
    ----------
    classes_ : array
        The labels, in the order of the scores.
    solver_ : str
        The solver that was used.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> inside = (X**2).sum(axis=1) < 1
    >>> PolynomialTransformerClassifier().fit(X, inside).score(X, inside) > 0.97
    True
    """

    def __init__(
        self,
        degree: int = 2,
        solver: str = "auto",
        *,
        ridge: float | None = None,
        criterion: str = "bic",
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
        standardize: bool = True,
        checkpoint: str | None = None,
        checkpoint_every: int = 10,
        device: str = "cpu",
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
        self.standardize = standardize
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PolynomialTransformerClassifier:
        """Fit the scores.

        Parameters
        ----------
        X : (rows, features) numbers.
        y : (rows,) labels of at least two classes.
        sample_weight : (rows,) non-negative weights; a weight of k counts as k equal rows.
        """
        check_options(self)
        refuse_dask(X, "give it X.compute() and y.compute()")
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        w = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        if w is not None:
            X, y, w = X[w != 0], y[w != 0], w[w != 0]
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has only one class, {self.classes_.tolist()}: a classifier needs at least two")
        rows = merge_rows(X, labels[:, None].astype(float), w)
        self.range_ = Range.of(rows.X)
        columns = self.range_.varying
        varying = Rows(np.ascontiguousarray(rows.X[:, columns]), rows.Y, rows.weight)
        count = len(self.classes_)
        self.target_spread_ = np.ones(count)
        settings = Settings(
            self.degree, self.ridge, self.criterion, self.max_terms, self.rank, seed_of(self.random_state)
        )
        self.history_ = None
        solver = self.solver
        if not columns.any():
            share = np.bincount(rows.Y[:, 0].astype(int), weights=rows.weight)
            basis = orthonormal_basis(np.zeros((1, 0)), self.degree)
            found: Any = ExactFit(all_terms(0, self.degree), basis, np.log(share / share.sum())[None])
            solver = "exact" if solver == "auto" else solver
        elif solver in ("sgd", "adam"):
            found, self.history_ = fit_by_gradient(self, varying, classes=count)
        else:
            solver = choose_design(varying, self.degree) if solver == "auto" else solver
            found = fit_logistic(solver, varying, count, settings)
        self.solver_ = solver
        self.fitted_ = Fitted(solver, found, columns)
        return self

    def decision_function(self, X: Any) -> Floats:
        """Scores (rows, classes); for two classes the difference of the two, (rows,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (rows, classes)."""
        return np.asarray(softmax(self._scores(X), axis=1))

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities (rows, classes)."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Any:
        """The most probable class of every row."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(axis=1)]

    @property
    def n_terms_(self) -> int:
        """How many numbers the fitted scores consist of."""
        check_is_fitted(self)
        return self.fitted_.n_terms
