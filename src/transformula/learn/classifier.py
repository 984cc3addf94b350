r"""Classification with Fang's model: the scores of the classes are polynomials, fitted by cross-entropy.

In closed form, L-BFGS minimises over coefficients C (p × classes) in an orthonormal basis

    (1/W) Σ_r w_r [log Σ_c exp(φ_r·C_c) − φ_r·C_{y_r}] + (penalty/2) |C without its constant|²,

which is convex. The features come from the same bases as the regression solvers: all monomials
(`exact`), those a sparse fit to the class indicators selects (`sparse`), or all products of the
directions a low-rank fit to the indicators finds (`lowrank`).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from transformula.learn.base import SolverEstimator
from transformula.learn.distinct_rows import Floats, Range, Rows, merge_rows, refuse_dask
from transformula.learn.solver_choice import Settings, Solution
from transformula.learn.solvers.directions import evaluate_hermite
from transformula.learn.solvers.exact_fit import ExactFit
from transformula.learn.solvers.features import (
    all_terms,
    count_terms,
    evaluate_some,
    evaluate_terms,
    orthonormal_basis,
    power_basis,
)
from transformula.learn.solvers.lowrank_fit import fit_lowrank
from transformula.learn.solvers.sparse_fit import SparseFit, fit_sparse

#: Numbers in the stored feature matrix: 1.6 GB.
_MOST_FEATURES = 200_000_000
#: With more monomials than this, `auto` looks for directions first.
_MOST_MONOMIALS = 3_000
#: Candidate penalties on squared coefficients.
_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(repr=False, eq=False)
class PolynomialTransformerClassifier(ClassifierMixin, SolverEstimator):  # type: ignore[misc]
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

    degree: int = 2
    solver: str = "auto"
    _: KW_ONLY
    criterion: str = "bic"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PolynomialTransformerClassifier:
        """Fit the scores.

        Parameters
        ----------
        X : (rows, features) numbers.
        y : (rows,) labels of at least two classes.
        sample_weight : (rows,) non-negative weights; a weight of k counts as k equal rows.
        """
        self._check_options()
        refuse_dask(X, "give it X.compute() and y.compute()")
        X, y, weight = self._validated(X, y, sample_weight)
        check_classification_targets(y)
        if weight is not None:
            used = weight != 0
            X, y, weight = X[used], y[used], weight[used]
        self.classes_, labels = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"y has only one class, {self.classes_.tolist()}: a classifier needs at least two")
        rows = merge_rows(X, labels[:, None].astype(float), weight)
        self.range_ = Range.of(rows.X)
        self.target_spread_ = np.ones(count)
        share = np.bincount(rows.Y[:, 0].astype(int), weights=rows.weight)
        self._fit_polynomial(rows, np.log(share / share.sum()), classes=count)
        return self

    def _solve(self, rows: Rows) -> tuple[str, Solution]:
        solver = self.solver
        if solver == "auto":
            solver = "exact" if count_terms(rows.X.shape[1], self.degree) <= _MOST_MONOMIALS else "lowrank"
        return solver, _fit_logistic(solver, rows, len(self.classes_), self._settings())

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


@dataclass(frozen=True)
class _Regression:
    """Features (rows, p), constant first, with labels 0..classes−1 and weights of the rows."""

    phi: Floats
    labels: NDArray[np.intp]
    weight: Floats
    classes: int

    def take(self, rows: NDArray[np.bool_]) -> _Regression:
        """Some of the rows."""
        return replace(self, phi=self.phi[rows], labels=self.labels[rows], weight=self.weight[rows])

    def loss(self, C: Floats) -> float:
        """Total cross-entropy of coefficients (p, classes)."""
        scores = self.phi @ C
        return float(self.weight @ (logsumexp(scores, axis=1) - scores[np.arange(len(scores)), self.labels]))

    def minimise(self, penalty: float) -> Floats:
        """The coefficients (p, classes) of the least penalised cross-entropy."""
        share = self.weight / self.weight.sum()
        wanted = np.eye(self.classes)[self.labels]

        def value(flat: Floats) -> tuple[float, Floats]:
            C = flat.reshape(-1, self.classes)
            scores = self.phi @ C
            norm = logsumexp(scores, axis=1, keepdims=True)
            loss = float(share @ np.sum((norm - scores) * wanted, axis=1)) + 0.5 * penalty * float(np.sum(C[1:] ** 2))
            gradient = self.phi.T @ ((np.exp(scores - norm) - wanted) * share[:, None])
            gradient[1:] += penalty * C[1:]
            return loss, gradient.ravel()

        start = np.zeros((self.phi.shape[1], self.classes))
        start[0] = np.log(share @ wanted + 1e-12)
        start[0] -= start[0].mean()
        options = {"maxiter": 500, "gtol": 1e-7, "ftol": 1e-13}
        found = minimize(value, start.ravel(), jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x.reshape(start.shape))

    def choose_penalty(self, seed: int) -> float:
        """The penalty with the least held-out cross-entropy on a fifth of the rows."""
        largest = _PENALTIES[-1]
        if len(self.phi) < 10:
            return largest
        fold = np.random.default_rng(seed).permutation(len(self.phi)) % 5
        inside, outside = self.take(fold != 0), self.take(fold == 0)
        best, chosen = np.inf, largest
        for penalty in reversed(_PENALTIES):
            loss = outside.loss(inside.minimise(penalty))
            if loss >= best:
                break
            best, chosen = loss, penalty
        return chosen


def _fit_logistic(solver: str, rows: Rows, classes: int, settings: Settings) -> Solution:
    """Fit the scores of the classes; the one column of Y holds labels 0..classes−1."""
    labels = rows.Y[:, 0].astype(int)
    phi, template = _features(solver, rows, np.eye(classes)[labels], settings)
    problem = _Regression(np.ascontiguousarray(phi), labels, rows.weight, classes)
    penalty = problem.choose_penalty(settings.seed) if settings.ridge is None else settings.ridge
    found = problem.minimise(penalty)
    if isinstance(template, SparseFit):
        return SparseFit(template.basis * classes, template.exponents * classes, tuple(found.T.copy()))
    fitted: Solution = replace(template, coefficients=found)
    return fitted


def _features(solver: str, rows: Rows, indicators: Floats, settings: Settings) -> tuple[Floats, Any]:
    """Features (rows, p), and a fit whose coefficients are to be replaced."""
    X, w = rows.X, rows.weight
    degree = settings.degree
    if solver == "exact":
        terms, count = all_terms(X.shape[1], degree), count_terms(X.shape[1], degree)
        if count * len(X) > _MOST_FEATURES:
            raise ValueError(
                f"{len(X)} rows of {count} monomials are too many for solver='exact': use solver='lowrank'"
            )
        basis = orthonormal_basis(X, degree, w)
        return evaluate_terms(terms, basis, X).T, ExactFit(terms, basis, np.zeros((count, 1)))
    if solver == "lowrank":
        found = fit_lowrank(rows.with_targets(indicators), degree, rank=settings.rank, seed=settings.seed)
        return evaluate_hermite(found.terms, (X - found.center) @ found.directions.T).T, found
    chosen = fit_sparse(
        rows.with_targets(indicators),
        degree,
        criterion=settings.criterion,
        max_terms=settings.max_terms,
        center="mean",
    )
    exponents = np.unique(np.vstack(chosen.exponents), axis=0)  # the constant sorts first
    shift = np.average(X, axis=0, weights=w)
    scale = 1.0 / np.sqrt(np.average((X - shift) ** 2, axis=0, weights=w))
    basis = power_basis(shift, scale, degree)
    return evaluate_some(exponents, basis, X), SparseFit((basis,), (exponents,), ())
