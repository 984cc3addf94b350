r"""Classification with Fang's model: the scores of the classes are polynomials, fitted by cross-entropy.

In closed form, scikit-learn's LogisticRegression minimises over coefficients C (p × classes) in an orthonormal basis

    (1/W) Σ_r w_r [log Σ_c exp(φ_r·C_c) − φ_r·C_{y_r}] + (penalty/2) |C without its constant|²,

which is convex; two classes have one score, the log odds of the second. The features come from the same bases as the
regression solvers: all monomials (`exact`), those a sparse fit to the class indicators selects (`sparse`), or all
products of the directions a low-rank fit to the indicators finds (`lowrank`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import check_classification_targets

from transformula.budget import one_thread
from transformula.learn.base import SolverEstimator
from transformula.learn.distinct_rows import Floats, Range, Rows, merge_rows, refuse_dask
from transformula.learn.solver_choice import Candidate, Settings, least_loss
from transformula.learn.solvers.features import all_terms, count_terms, orthonormal_basis
from transformula.learn.solvers.lowrank_fit import fit_lowrank
from transformula.learn.solvers.polynomial_fit import PolynomialFit, RidgeForm
from transformula.learn.solvers.sparse_fit import fit_sparse

#: Numbers in the stored feature matrix: 1.6 GB.
_MOST_FEATURES = 200_000_000
#: With more monomials than this, `auto` looks for directions first.
_MOST_MONOMIALS = 3_000
#: Candidate penalties on squared coefficients.
_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)
#: In place of no penalty at all, for which separable classes have no least cross-entropy.
_LEAST_PENALTY = 1e-12
#: Fewest rows that can judge a solver, and most of which all do; of more a fifth does.
_FEWEST_JUDGED, _MOST_FOLDED = 40, 1_000
#: Most coefficients for Newton's method, the side of a square matrix.
_MOST_NEWTON = 1_500


@dataclass(repr=False, eq=False)
class PolynomialTransformerClassifier(ClassifierMixin, SolverEstimator):  # type: ignore[misc]
    r"""Multinomial logistic regression whose scores are polynomials, hence Transformers.

    P(class c | x) = softmax_c(f_1(x), ..., f_C(x)), each f_c a polynomial of degree q. Two classes have one
    polynomial, the log odds of the second: P = 1/(1 + exp(-f(x))). All parameters that are not listed here are
    those of `PolynomialTransformerRegressor`.

    Parameters
    ----------
    degree : int
        Degree of the scores.
    solver : {"auto", "exact", "sparse", "lowrank", "sgd", "adam"}
        Which features the convex problem has: all monomials (``exact``), selected ones (``sparse``), products
        of learned directions (``lowrank``); or Fang's gradient training. ``auto`` takes ``sparse`` or ``exact``, or
        a linear model unless one of them is clearly better on held-out rows; with more than 3000 monomials ``lowrank``.
    ridge : float, optional
        Penalty on squared coefficients; by default chosen on held-out rows.

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
    >>> PolynomialTransformerClassifier().fit(X, inside).score(X, inside) > 0.95
    True
    """

    degree: int = 2
    solver: str = "auto"
    _criterion: ClassVar[str] = "bic"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PolynomialTransformerClassifier:
        """Fit the scores.

        Parameters
        ----------
        X : (rows, features) numbers.
        y : (rows,) labels of at least two classes.
        sample_weight : (rows,) non-negative weights; a weight of k counts as k equal rows.
        """
        self._check_parameters()
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
        rows = merge_rows(X, labels[:, None].astype(float), weight, self._indicators(X.shape[1]))
        self.range_ = Range.of(rows.X)
        self.target_spread_ = np.ones(1 if count == 2 else count)
        share = np.bincount(rows.Y[:, 0].astype(int), weights=rows.weight)
        constant = np.log(share / share.sum())
        self._fit_polynomial(rows, constant if count > 2 else constant[1:] - constant[:1], classes=count)
        found = self.fitted_.solution
        if isinstance(found, RidgeForm) and count == 2:  # gradient training has a score for each class
            powers, bias = np.diff(found.powers, axis=2), np.diff(found.bias)
            self.fitted_ = replace(self.fitted_, solution=replace(found, powers=powers, bias=bias))
        return self

    def _solve(self, rows: Rows) -> tuple[str, PolynomialFit]:
        solver = self.solver
        classes = len(self.classes_)
        settings = self._settings()
        with one_thread():  # the products are thin, and threads of BLAS would wait for each other
            if solver == "auto":
                many = count_terms(rows.X.shape[1], self.degree, rows.indicators) > _MOST_MONOMIALS
                solver, settings = ("lowrank", settings) if many else _choose(rows, classes, settings)
            return solver, _fit_logistic(solver, rows, classes, settings)

    def decision_function(self, X: Any) -> Floats:
        """Scores (rows, classes); for two classes the log odds of the second, (rows,)."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (rows, classes)."""
        return probabilities(self._scores(X))

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities (rows, classes)."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Any:
        """The most probable class of every row."""
        chosen = probabilities(self._scores(X)).argmax(axis=1)
        return self.classes_[chosen]


def _minimised(phi: Floats, rows: Rows, classes: int, penalty: float) -> Floats:
    """Coefficients (p, outputs) of the least penalised cross-entropy; the first feature is the constant."""
    small = (phi.shape[1] - 1) * classes <= _MOST_NEWTON
    model = LogisticRegression(
        # two classes: half of the log odds for each, so twice as much for both
        C=(2.0 if classes == 2 else 1.0) / (max(penalty, _LEAST_PENALTY) * float(rows.weight.sum())),
        solver="newton-cholesky" if small else "lbfgs",
        max_iter=500,
        tol=1e-6,
    )
    with warnings.catch_warnings():  # what has not quite converged is still judged on held-out rows
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(phi[:, 1:], rows.Y[:, 0].astype(int), rows.weight)
    return np.vstack([model.intercept_, model.coef_.T])


def _choose(rows: Rows, classes: int, settings: Settings) -> Candidate:
    """A fit of few monomials or of all, or a linear one unless another is clearly better on held-out rows."""
    candidates: list[Candidate] = [("sparse", settings), ("exact", replace(settings, degree=1)), ("exact", settings)]
    fold = _folds(rows, settings.seed)
    most = 5 if len(rows) <= _MOST_FOLDED else 1
    folds = [held for held in (np.flatnonzero(fold == k) for k in range(most)) if len(held)]
    if len(rows) < _FEWEST_JUDGED or not folds:
        return candidates[2]

    def loss(candidate: Candidate, held: NDArray[np.intp]) -> Floats:
        scores = _fit_logistic(candidate[0], rows.without(held), classes, candidate[1]).predict(rows.X[held])
        return _log_losses(rows.take(held), scores)

    return least_loss(candidates[: 3 if settings.degree > 1 else 2], folds, loss, {})


def _folds(rows: Rows, seed: int) -> NDArray[np.intp]:
    """Five folds that share the rows of each class; −1 for those of a class with fewer than five, always fitted."""
    fold = np.full(len(rows), -1)
    rng = np.random.default_rng(seed)
    for label in np.unique(rows.Y):
        mine = np.flatnonzero(rows.Y[:, 0] == label)
        if len(mine) >= 5:
            fold[mine] = (rng.permutation(len(mine)) + int(label)) % 5
    return fold


def _log_losses(rows: Rows, scores: Floats) -> Floats:
    """The weighted cross-entropy at every row."""
    shares = probabilities(scores)[np.arange(len(rows)), rows.Y[:, 0].astype(int)]
    return np.asarray(-rows.weight * np.log(np.maximum(shares, 1e-300)))


def _choose_penalty(phi: Floats, rows: Rows, classes: int, seed: int) -> float:
    """The penalty with the least held-out cross-entropy on a fifth of the rows."""
    best, chosen = np.inf, _PENALTIES[-1]
    held = np.flatnonzero(_folds(rows, seed) == 0)
    if not len(held):
        return chosen
    kept = np.delete(np.arange(len(rows)), held)
    for penalty in reversed(_PENALTIES):
        loss = float(
            _log_losses(rows.take(held), phi[held] @ _minimised(phi[kept], rows.take(kept), classes, penalty)).sum()
        )
        if loss >= best:
            break
        best, chosen = loss, penalty
    return chosen


def probabilities(scores: Floats) -> Floats:
    """Probabilities (rows, classes) from scores (rows, classes), or from the log odds (rows, 1) of two classes."""
    if scores.shape[1] == 1:
        return np.hstack([expit(-scores), expit(scores)])
    return np.asarray(softmax(scores, axis=1))


def _fit_logistic(solver: str, rows: Rows, classes: int, settings: Settings) -> PolynomialFit:
    """Fit the scores of the classes; the one column of Y holds labels 0..classes−1."""
    labels = rows.Y[:, 0].astype(int)
    wanted = np.eye(classes)[labels][:, 1:] if classes == 2 else np.eye(classes)[labels]
    if solver == "exact":
        template = _all_monomials(rows, settings.degree)
    elif solver == "lowrank":
        template = fit_lowrank(replace(rows, Y=wanted), settings.degree, rank=settings.rank, seed=settings.seed)
    else:
        template = fit_sparse(
            replace(rows, Y=wanted),
            settings.degree,
            criterion=settings.criterion,
            max_terms=settings.max_terms,
            center="mean",
        )
    phi = np.ascontiguousarray(template.features(rows.X).T)
    if phi.shape[1] == 1:  # nothing but the constant
        share = rows.weight @ np.eye(classes)[labels] / rows.weight.sum()
        found = np.log(share)[None] if classes > 2 else np.log(share[1:] / share[:1])[None]
    else:
        penalty = _choose_penalty(phi, rows, classes, settings.seed) if settings.ridge is None else settings.ridge
        found = _minimised(phi, rows, classes, penalty)
    return replace(template, coefficients=found)


def _all_monomials(rows: Rows, degree: int) -> PolynomialFit:
    """All monomials, with coefficients that are to be replaced."""
    terms = all_terms(rows.X.shape[1], degree, rows.indicators)
    if len(terms) * len(rows) > _MOST_FEATURES:
        raise ValueError(
            f"{len(rows)} rows of {len(terms)} monomials are too many for solver='exact': use solver='lowrank'"
        )
    return PolynomialFit(terms, orthonormal_basis(rows.X, degree, rows.weight), np.zeros((len(terms), 1)))
