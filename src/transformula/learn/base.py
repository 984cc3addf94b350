"""Bases of the estimators: parameters and their checks, training ranges, and the way to text and Transformers.

The parameters are dataclass fields, so a group that several estimators share is declared once, and the generated
``__init__`` still has the explicit signature that scikit-learn reads.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from transformula.errors import InputError, brief
from transformula.formula.given_box import box_of
from transformula.formula.languages import formula_in
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.learn.columns import variable_names
from transformula.learn.distinct_rows import Floats, Range, Rows, merge_rows, refuse_dask
from transformula.learn.solver_choice import SOLVERS, Fitted, Settings
from transformula.learn.solvers.polynomial_fit import PolynomialFit
from transformula.learn.writing import Writer, Written, range_box, transformer_of, write
from transformula.model import Model
from transformula.optional import require

if TYPE_CHECKING:
    from transformula.learn.training import Schedule

#: The largest seed that scikit-learn takes.
MAX_SEED = 2**32 - 1
MAX_DEGREE = 20
GRADIENT_SOLVERS = ("sgd", "adam")
COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE, NOT_NEGATIVE = (Interval(Real, 0, None, closed=ends) for ends in ("neither", "left"))
#: Epochs of gradient training of a polynomial, unless the steps below end it earlier.
_EPOCHS = 300
#: Default limit on the steps of training: 10,000 rows take seconds.
_USUAL_STEPS = 1_000


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Refuse a word that is not among the choices."""
    if value not in choices:
        raise InputError(f"unknown {name} {brief(value)}: choose {', '.join(choices)}")


def seed_of(random_state: Any) -> int:
    """One integer from a scikit-learn random_state: None gives 0, so that fits are repeatable."""
    if random_state is None:
        return 0
    return int(random_state) if isinstance(random_state, Integral) else int(random_state.randint(2**31 - 1))


def dense(X: Any) -> Floats:
    """Rows as an array; those of a sparse matrix (as of OneHotEncoder) are filled with zeros."""
    return np.asarray(X.toarray() if issparse(X) else X)


class TransformerEstimator(BaseEstimator):  # type: ignore[misc]
    """Rows in, predictions out: validation of both, and the training range."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    _parameter_constraints: ClassVar[dict[str, Any]]
    range_: Range
    feature_names_in_: Any
    _single: bool

    def _check_parameters(self) -> None:
        """Refuse parameters that cannot work, by scikit-learn's own check."""
        try:
            self._validate_params()
        except InvalidParameterError as error:
            raise InputError(str(error)) from None

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Checked and merged rows of a regression problem; notes their range, and whether y has one axis."""
        refuse_dask(X, "choose a solver in closed form, or give it X.compute() and y.compute()")
        X, y, weight = self._validated(X, y, sample_weight, y_numeric=True, multi_output=True)
        self._single = np.ndim(y) == 1
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        rows = merge_rows(X, Y, weight, self._indicators(X.shape[1]))
        self.range_ = Range.of(rows.X)
        return rows

    def _validated(self, X: Any, y: Any, sample_weight: Any, **options: Any) -> tuple[Floats, Any, Floats | None]:
        """Inputs, targets and weights, checked by scikit-learn."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, accept_sparse="csr", **options)
        X = dense(X)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return X, y, sample_weight

    def _inputs(self, X: Any) -> Floats:
        """Checked rows to predict, with a warning if some are far outside the training range."""
        check_is_fitted(self)
        refuse_dask(X, "use X.map_partitions(model.predict)")
        checked = dense(validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr"))
        far = self.range_.far_outside(checked)
        if far is not None:
            rows, column = far
            low, high = self.range_.low[column], self.range_.high[column]
            warnings.warn(
                f"{rows} of {len(checked)} rows lie far outside the training range (most of all "
                f"{self._names()[column]}, trained on {low:.6g}..{high:.6g}): predictions are unreliable there",
                UserWarning,
                stacklevel=4,
            )
        return checked

    def _shaped(self, values: Floats) -> Floats:
        """Predictions (rows, outputs), or (rows,) if y was given so."""
        return values[:, 0] if self._single else values

    def _indicators(self, width: int) -> tuple[int, ...]:
        """The number of each column's list in the parameter ``indicators``, 0 for none; () without any lists."""
        lists = getattr(self, "indicators", None)
        if not lists:
            return ()
        known = {name: k for k, name in enumerate(getattr(self, "feature_names_in_", ()))}
        found = [0] * width
        for number, columns in enumerate(lists, 1):
            for column in columns:
                place = known.get(column, column)
                if not isinstance(place, Integral) or not 0 <= int(place) < width or found[int(place)]:
                    raise InputError(f"indicators names {brief(column)}, which is no column of X, or one named twice")
                found[int(place)] = number
        return tuple(found)

    def _names(self) -> list[str]:
        return variable_names(getattr(self, "feature_names_in_", None), int(self.n_features_in_))


@dataclass(repr=False, eq=False, kw_only=True)
class TrainedEstimator(TransformerEstimator):
    """Parameters of gradient training."""

    epochs: int | None = None
    batch_size: int = 256
    learning_rate: float = 0.02
    start_rate: float | None = None
    clip: float | None = 1.0
    weight_decay: float = 0.01
    early_stopping: bool = True
    validation_fraction: float = 0.1
    checkpoint: str | None = None
    checkpoint_every: int = 10
    device: str = "cpu"
    random_state: Any = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{key: [None, COUNT] for key in ("epochs", "rank", "max_terms", "n_directions")},
        **{key: [COUNT] for key in ("batch_size", "checkpoint_every")},
        "learning_rate": [POSITIVE],
        **{key: [None, POSITIVE] for key in ("start_rate", "clip")},
        "weight_decay": [NOT_NEGATIVE],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "init": [StrOptions({"linear", "random"})],
        "random_state": ["random_state"],
    }

    def schedule(self, rows: int, usual: int) -> Schedule:
        """The training schedule for ``rows`` rows; ``usual`` epochs if the parameters give none."""
        from transformula.learn.training import Schedule

        epochs = self.epochs
        if epochs is None:
            epochs = min(usual, math.ceil(_USUAL_STEPS / math.ceil(rows / self.batch_size)))
        return Schedule(
            optimizer=getattr(self, "solver", "adam"),
            epochs=epochs,
            batch_size=self.batch_size,
            start=self.learning_rate / 10 if self.start_rate is None else self.start_rate,
            peak=self.learning_rate,
            clip=self.clip,
            weight_decay=self.weight_decay,
            patience=math.ceil(epochs / 3) if self.early_stopping else None,
            seed=seed_of(self.random_state),
            checkpoint=self.checkpoint,
            every=self.checkpoint_every,
        )


class PolynomialEstimator(TransformerEstimator):
    """Predictions, text and Transformers of a fitted polynomial of the inputs."""

    fitted_: Any  # Fitted, or the AttentionFit of linear attention
    target_spread_: Floats

    def _scores(self, X: Any) -> Floats:
        inputs = self._inputs(X)
        scores: Floats = self.fitted_.predict(inputs)
        return scores

    @property
    def n_terms_(self) -> int:
        """Number of coefficients and directions of the fitted polynomials."""
        check_is_fitted(self)
        return int(self.fitted_.n_terms)

    def _measure_targets(self, rows: Rows) -> None:
        """Note the scale of the targets: standard deviations, with something positive in place of zero."""
        mean = np.average(rows.Y, axis=0, weights=rows.weight)
        size = np.abs(rows.Y).max(axis=0, initial=0.0)
        unit = np.where(size > 0, size, 1.0)  # squares of large targets would overflow
        deviation = unit * np.sqrt(np.average(((rows.Y - mean) / unit) ** 2, axis=0, weights=rows.weight))
        self.target_spread_ = np.where(deviation > 0, deviation, np.maximum(np.abs(mean), 1.0))

    def _writer(self, tolerance: float, box: Box) -> Writer:
        if not (isinstance(tolerance, Real) and 0 < tolerance < math.inf):
            raise InputError(f"tolerance must be a number above 0, not {brief(tolerance)}")
        reach = [max(abs(low), abs(high)) for low, high in box.floats()]
        budget = (tolerance * self.target_spread_).tolist()
        return Writer(self._names(), reach, budget, self._indicators(len(reach)))

    def written(self, tolerance: float, box: Box) -> tuple[list[str], Written]:
        """The text of each output, and the rational polynomials that stand in it."""
        return write(self.fitted_.exact(), self._writer(tolerance, box))

    def to_formula(self, tolerance: float = 1e-9, box: Any = None, style: str = "text") -> str | list[str]:
        """The polynomial as text, which `transformula.compile` reads back, or in another language.

        Parameters
        ----------
        tolerance : float
            How far the text may be from `predict` on the box, in standard deviations of the targets; a larger
            one gives fewer digits.
        box : str, mapping or Box, optional
            The training range by default, as for `to_transformer`.
        style : {"text", "python", "latex", "excel", "sql"}
            As for `Model.to_formula`; in SQL the columns the model was fitted on stand for the variables.

        Returns
        -------
        str, or list of str for several outputs (for a classifier of three or more classes, their scores).
            Variables are called x1, x2, ... or as the columns the model was fitted on, with characters
            the parser does not know replaced by ``_``.
        """
        full = self._box(box)
        formula = Formula.of(self.written(tolerance, full)[0], full)
        columns: Any = getattr(self, "feature_names_in_", None) if style == "sql" else None
        names = None if columns is None else dict(zip(self._names(), map(str, columns), strict=True))
        return formula_in(formula, style, names)

    def term_texts(self, exponents: Sequence[tuple[int, ...]]) -> list[str]:
        """Monomials of the inputs as text."""
        return list(map(self._writer(1.0, self._box(None)).monomial, exponents))

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
        texts, polynomial = self.written(tolerance, full)
        return transformer_of(texts, polynomial, full, dtype)

    def _box(self, given: Any) -> Box:
        """The requested box, completed with the training range."""
        check_is_fitted(self)
        default = range_box(self._names(), self.range_)
        if given is None:
            return default
        box = box_of(given)
        if unknown := [v for v in box.variables if v not in default.variables]:
            raise ValueError(f"the box names {unknown[0]}, which is not an input: {', '.join(default.variables)}")
        lower, upper = zip(*(_intervals(default) | _intervals(box)).values(), strict=True)
        return Box(default.variables, lower, upper)


def _intervals(box: Box) -> dict[str, tuple[Any, Any]]:
    return dict(zip(box.variables, zip(box.lower, box.upper, strict=True), strict=True))


@dataclass(repr=False, eq=False, kw_only=True)
class SolverEstimator(PolynomialEstimator, TrainedEstimator):
    """Parameters of the solvers, for estimators that also have ``degree`` and ``solver``."""

    _criterion: ClassVar[str] = "ebic"  # what decides the number of terms of a sparse fit
    ridge: float | None = None
    max_terms: int | None = None
    rank: int | None = None
    n_directions: int | None = None
    indicators: Any = None
    standardize: bool = True

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **TrainedEstimator._parameter_constraints,
        "degree": [Interval(Integral, 1, MAX_DEGREE, closed="both")],
        "solver": [StrOptions(set(SOLVERS))],
        "ridge": [None, NOT_NEGATIVE],
    }

    def _settings(self) -> Settings:
        return Settings(
            self.degree,
            self.ridge,
            self._criterion,
            self.max_terms,
            self.rank,
            seed_of(self.random_state),
            self._indicators(int(self.n_features_in_)),
        )

    def _fit_polynomial(self, rows: Rows, constant: Floats, classes: int = 0) -> None:
        """Fit the columns that vary; ``constant`` (outputs,) is the fit if none does."""
        columns = self.range_.varying
        solver = self.solver
        self.history_ = None
        if not columns.any():
            found: Any = PolynomialFit.constant(constant, self.degree)
            solver = "exact" if solver == "auto" else solver
        elif solver in GRADIENT_SOLVERS:
            require(f"solver={solver!r}", "torch")
            from transformula.learn.gradient import fit_gradient

            schedule = self.schedule(len(rows), _EPOCHS)
            found, self.history_ = fit_gradient(rows.of_columns(columns), self, schedule, classes)
        else:
            solver, found = self._solve(rows.of_columns(columns))
        self.solver_ = solver
        self.fitted_ = Fitted(solver, found, columns)
