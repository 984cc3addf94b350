"""What the estimators may be told: refused where no solver understands it, else a training plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from transformula.learn.base import seed_of
from transformula.learn.checked_arguments import check_count, check_number
from transformula.learn.distinct_rows import Rows
from transformula.learn.solver_choice import SOLVERS
from transformula.optional import require

if TYPE_CHECKING:
    from transformula.learn.training import Plan

MAX_DEGREE = 20
INITS = ("linear", "random")
_EPOCHS = 300
#: Without a request, no more steps of training than this, so that 10,000 rows take seconds.
_USUAL_STEPS = 1_000


def plan_of(estimator: Any, rows: int, usual: int) -> Plan:
    """The training plan an estimator's parameters ask for; ``usual`` epochs where they do not say."""
    from transformula.learn.training import Plan

    peak, epochs, patience = estimator.learning_rate, estimator.epochs, estimator.n_iter_no_change
    if epochs is None:
        epochs = min(usual, math.ceil(_USUAL_STEPS / math.ceil(rows / estimator.batch_size)))
    if patience is None:
        patience = math.ceil(epochs / 3)
    return Plan(
        optimizer=getattr(estimator, "solver", "adam"),
        epochs=epochs,
        batch_size=estimator.batch_size,
        start=peak / 10 if estimator.start_rate is None else estimator.start_rate,
        peak=peak,
        clip=estimator.clip,
        weight_decay=estimator.weight_decay,
        patience=patience if estimator.early_stopping else None,
        seed=seed_of(estimator.random_state),
        checkpoint=estimator.checkpoint,
        every=estimator.checkpoint_every,
        verbose=estimator.verbose,
    )


def fit_by_gradient(estimator: Any, rows: Rows, classes: int = 0) -> Any:
    """The paper's training, the one solver that needs torch: the fitted ridge form and its history."""
    require(f"solver={estimator.solver!r}", "torch")
    from transformula.learn.gradient import Recipe, fit_gradient

    recipe = Recipe(
        estimator.degree,
        estimator.n_directions,
        estimator.standardize,
        estimator.validation_fraction,
        estimator.device,
        "random" if classes else estimator.init,
    )
    return fit_gradient(rows, recipe, plan_of(estimator, len(rows), _EPOCHS), classes=classes)


def check_init(init: object) -> None:
    """Refuse a start that does not exist."""
    if init not in INITS:
        raise ValueError(f"unknown init {init!r}: choose {' or '.join(INITS)}")


def check_options(estimator: Any) -> None:
    """Refuse options no solver understands, with what they may be."""
    degree, solver = estimator.degree, estimator.solver
    if not isinstance(degree, (int, np.integer)) or isinstance(degree, bool) or not 1 <= degree <= MAX_DEGREE:
        raise ValueError(f"degree must be a whole number from 1 to {MAX_DEGREE}, not {degree!r}")
    if solver not in SOLVERS:
        raise ValueError(f"unknown solver {solver!r}: choose {', '.join(SOLVERS)}")
    if estimator.criterion not in ("ebic", "bic", "holdout"):
        raise ValueError(f"unknown criterion {estimator.criterion!r}: choose ebic, bic or holdout")
    for name in ("max_terms", "rank", "n_directions"):
        if getattr(estimator, name) is not None:
            check_count(name, getattr(estimator, name))
    if estimator.ridge is not None:
        check_number("ridge", estimator.ridge, zero=True)
    check_training(estimator)


def check_training(estimator: Any) -> None:
    """Refuse training options that cannot work."""
    for name in ("epochs", "batch_size", "checkpoint_every", "n_iter_no_change"):
        value = getattr(estimator, name)
        if value is not None or name not in ("epochs", "n_iter_no_change"):
            check_count(name, value)
    for name in ("learning_rate", "start_rate", "clip"):
        value = getattr(estimator, name)
        if value is not None or name == "learning_rate":
            check_number(name, value)
    check_number("weight_decay", estimator.weight_decay, zero=True)
    check_number("validation_fraction", estimator.validation_fraction, below=1.0)
