"""The paper's own training: F, β and b by gradient descent, from standardised rows to a ridge form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from transformula.errors import InputError, brief
from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.fang_module import FangModule, paper_directions
from transformula.learn.linear_start import LinearStart
from transformula.learn.solvers.ridge_forms import RidgeForm
from transformula.learn.training import Batchable, History, Plan, cross_entropy, squared_error, train

#: Without a request, no more tokens than this.
_MOST_DIRECTIONS = 512


@dataclass(frozen=True)
class Recipe:
    """What the gradient solvers may be told beside the plan."""

    degree: int
    directions: int | None
    standardize: bool
    validation_fraction: float
    device: str = "cpu"
    init: str = "random"


def torch_device(name: str) -> torch.device:
    """A device that torch has here, by its name; any other is refused."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        said = str(error).partition("\n")[0][:120]
        raise InputError(
            f"torch has no device {brief(name)} here ({said}): choose cpu, or cuda where there is one"
        ) from None


def fit_gradient(rows: Rows, recipe: Recipe, plan: Plan, classes: int = 0) -> tuple[RidgeForm, History]:
    """Train Fang's model; with ``classes`` the one column of Y holds labels 0..classes−1.

    Rows are standardised for the training (unless the recipe says otherwise), and the result is written
    in the original variables.
    """
    center, scale = standardization(rows.X, rows.weight, recipe.standardize)
    outputs = classes or rows.Y.shape[1]
    offset, spread = standardization(rows.Y, rows.weight, recipe.standardize and not classes)
    device = torch_device(recipe.device)
    data = Batchable(
        torch.from_numpy((rows.X - center) / scale).to(device),
        torch.from_numpy((rows.Y - offset) / spread).to(device),
        torch.from_numpy(rows.weight / rows.weight.mean()).to(device),
    )
    everything, validation = data, None
    if plan.patience is not None:
        data, validation = data.split(recipe.validation_fraction, plan.seed)
    default = min(paper_directions(rows.X.shape[1], recipe.degree), _MOST_DIRECTIONS)
    module = FangModule(rows.X.shape[1], outputs, recipe.degree, recipe.directions or default, plan.seed).to(device)
    if recipe.init == "linear":
        module.start_from(LinearStart.of(data))
    loss = cross_entropy if classes else squared_error
    plan = replace(plan, checkpoint=None if plan.checkpoint is None else Path(plan.checkpoint))
    history = train(module, data, loss, plan, validation)
    if recipe.init == "linear" and validation is not None and history.best_epoch < 0:
        module.start_from(LinearStart.of(everything))
    if classes:
        offset, spread = np.zeros(classes), np.ones(classes)
    return module.ridge_form(center, scale, offset, spread), history


def standardization(values: Floats, weight: Floats, wanted: bool) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every column (1 for a constant one), or 0 and 1 if not wanted."""
    if not wanted:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    center = np.average(values, axis=0, weights=weight)
    spread = np.sqrt(np.average((values - center) ** 2, axis=0, weights=weight))
    return center, np.where(spread > 0, spread, 1.0)
