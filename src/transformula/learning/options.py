"""What the estimators may be told: refused where no solver understands it, else a training plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from transformula.learning.base import seed_of
from transformula.learning.rows import Rows
from transformula.learning.solving import SOLVERS
from transformula.optional import require

if TYPE_CHECKING:
    from transformula.learning.training import Plan

MAX_DEGREE = 20
INITS = ("linear", "random")
_EPOCHS = 300
#: Without a request, no more steps of training than this, so that 10,000 rows take seconds.
_USUAL_STEPS = 1_000


def plan_of(estimator: Any, rows: int, usual: int) -> Plan:
    """The training plan an estimator's parameters ask for; ``usual`` epochs where they do not say."""
    from transformula.learning.training import Plan

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
    from transformula.learning.gradient import Recipe, fit_gradient

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
        value = getattr(estimator, name)
        if value is not None and not (isinstance(value, (int, np.integer)) and value >= 1):
            raise ValueError(f"{name} must be a whole number above 0, not {value!r}")
    check_training(estimator)


def check_training(estimator: Any) -> None:
    """Refuse training options that cannot work."""
    for name in ("epochs", "batch_size", "checkpoint_every", "n_iter_no_change"):
        value = getattr(estimator, name)
        if value is None and name in ("epochs", "n_iter_no_change"):
            continue
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number above 0, not {value!r}")
    for name in ("learning_rate", "start_rate", "clip"):
        value = getattr(estimator, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, not {value!r}")
    if not estimator.weight_decay >= 0:
        raise ValueError(f"weight_decay must be 0 or more, not {estimator.weight_decay!r}")
    if not 0 < estimator.validation_fraction < 1:
        raise ValueError(f"validation_fraction must be between 0 and 1, not {estimator.validation_fraction!r}")
