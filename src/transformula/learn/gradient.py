r"""Fang's own training: F, β and b by gradient descent, from standardised rows to a ridge form.

    f(x) = b + Σ_{k ≤ n} Σ_{s ≤ q} β_{k,s} (F_k·x)^s

The encoder blocks are fixed (Theorem 3.5 asks for no training there), so powers of F·x compute the same function, and
its gradient, without any n × n array. The signs (−1)^s of the blocks are absorbed in β.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformula.errors import InputError, brief
from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.solvers.exact_fit import fit_exact
from transformula.learn.solvers.polynomial_fit import RidgeForm
from transformula.learn.training import Batchable, History, Schedule, cross_entropy, squared_error, train

#: Default limit on the number of tokens.
_MOST_DIRECTIONS = 512
#: Factor on random parameters whose outputs are added to a linear model.
ALMOST_NOTHING = 1e-3


@dataclass(frozen=True)
class Standardization:
    """Columns as (values − center) / scale."""

    center: Floats
    scale: Floats

    @classmethod
    def of(cls, values: Floats, weight: Floats, wanted: bool) -> Standardization:
        """Mean and standard deviation of every column (1 for a constant one), or 0 and 1 if not wanted."""
        if not wanted:
            return cls(np.zeros(values.shape[1]), np.ones(values.shape[1]))
        center = np.average(values, axis=0, weights=weight)
        spread = np.sqrt(np.average((values - center) ** 2, axis=0, weights=weight))
        return cls(center, np.where(spread > 0, spread, 1.0))

    def tensor(self, values: Floats, device: torch.device) -> Tensor:
        """The standardised values on a device."""
        return torch.from_numpy((values - self.center) / self.scale).to(device)


@dataclass(frozen=True)
class TrainingRows:
    """Standardised rows on a device: all of them, and those to train and to validate on.

    ``validation`` is None if all rows are trained on.
    """

    inputs: Standardization
    targets: Standardization
    everything: Batchable
    training: Batchable
    validation: Batchable | None

    @classmethod
    def of(cls, rows: Rows, estimator: Any, schedule: Schedule, inputs: bool, targets: bool) -> TrainingRows:
        """Standardise inputs and targets where that is wanted, and hold rows out for early stopping."""
        device = torch_device(estimator.device)
        x, y = Standardization.of(rows.X, rows.weight, inputs), Standardization.of(rows.Y, rows.weight, targets)
        weight = torch.from_numpy(rows.weight / rows.weight.mean()).to(device)
        data = Batchable(x.tensor(rows.X, device), y.tensor(rows.Y, device), weight)
        if schedule.patience is None:
            return cls(x, y, data, data, None)
        return cls(x, y, data, *data.split(estimator.validation_fraction, schedule.seed))

    def kept_the_start(self, history: History) -> bool:
        """Whether validation found nothing better than the start, which may then use all rows."""
        return self.validation is not None and history.best_epoch < 0


@dataclass(frozen=True)
class LinearStart:
    """offset + x·slopes, with slopes (inputs, outputs): a start that validation keeps unless training beats it."""

    slopes: Floats
    offset: Floats

    @classmethod
    def of(cls, data: Batchable) -> LinearStart:
        """Least squares on the training rows, its penalty chosen by leave-one-out."""
        rows = Rows(*(t.cpu().double().numpy() for t in (data.x, data.y, data.weight)))
        fit = fit_exact(rows, 1)
        offset = fit.predict(np.zeros((1, rows.X.shape[1])))
        return cls(fit.predict(np.eye(rows.X.shape[1])) - offset, offset[0])


def torch_device(name: str) -> torch.device:
    """A device that torch has here, by its name; any other is refused."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        said = str(error).partition("\n")[0][:120]
        raise InputError(
            f"torch has no device {brief(name)} here ({said}): choose cpu, or cuda where there is one"
        ) from None


def paper_directions(n_features: int, degree: int) -> int:
    """Number of tokens in the paper's experiments: C(d + q + 1, q).

    Examples
    --------
    >>> paper_directions(2, 2), paper_directions(10, 5)
    (10, 4368)
    """
    return comb(n_features + degree + 1, degree)


class FangModule(nn.Module):
    """F (n × d), β (n × q × outputs) and b as trainable parameters."""

    def __init__(self, inputs: int, outputs: int, degree: int, directions: int, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        self.F = nn.Parameter(normal(directions, inputs) / inputs**0.5)
        self.beta = nn.Parameter(0.1 * normal(directions, degree, outputs) / directions**0.5)
        self.b = nn.Parameter(torch.zeros(outputs, dtype=torch.float64))

    def start_from(self, linear: LinearStart) -> None:
        """Begin with a linear function: F'β₁ = slopes, and almost nothing in higher powers."""
        slopes, offset = (torch.from_numpy(v).to(self.b) for v in (linear.slopes, linear.offset))
        with torch.no_grad():
            self.beta[:, 1:] *= ALMOST_NOTHING
            first = self.beta[:, 0]
            self.beta[:, 0] = first + torch.linalg.pinv(self.F.T) @ (slopes - self.F.T @ first)
            self.b.copy_(offset)

    def forward(self, x: Tensor) -> Tensor:
        """Samples × inputs to samples × outputs."""
        t = x @ self.F.T
        power, out = t, t @ self.beta[:, 0]
        for s in range(1, self.beta.shape[1]):
            power = power * t
            out = out + power @ self.beta[:, s]
        return out + self.b

    def ridge_form(self, inputs: Standardization, offset: Any, spread: Any) -> RidgeForm:
        """The function of the original variables, with outputs · spread + offset."""
        F, beta, b = (p.detach().cpu().double().numpy() for p in (self.F, self.beta, self.b))
        return RidgeForm(F / inputs.scale, beta * spread, np.asarray(b * spread + offset), inputs.center)


def fit_gradient(rows: Rows, estimator: Any, schedule: Schedule, classes: int = 0) -> tuple[RidgeForm, History]:
    """Train Fang's model; with ``classes`` the one column of Y holds labels 0..classes−1.

    Rows are standardised for the training (unless the estimator says otherwise), and the result is written
    in the original variables.
    """
    scaled = estimator.standardize
    data = TrainingRows.of(rows, estimator, schedule, scaled, scaled and not classes)
    width, outputs = rows.X.shape[1], classes or rows.Y.shape[1]
    directions = estimator.n_directions or min(paper_directions(width, estimator.degree), _MOST_DIRECTIONS)
    module = FangModule(width, outputs, estimator.degree, directions, schedule.seed).to(data.training.x.device)
    linear = not classes and estimator.init == "linear"
    if linear:
        module.start_from(LinearStart.of(data.training))
    loss = cross_entropy if classes else squared_error
    history = train(module, data.training, loss, schedule, data.validation)
    if linear and data.kept_the_start(history):
        module.start_from(LinearStart.of(data.everything))
    offset, spread = (0.0, 1.0) if classes else (data.targets.center, data.targets.scale)
    return module.ridge_form(data.inputs, offset, spread), history
