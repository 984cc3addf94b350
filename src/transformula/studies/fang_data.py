"""The data, the networks and the training of Fang et al., section 5 and appendix A."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from transformula.learn.distinct_rows import Floats
from transformula.learn.training import Batchable, History, Schedule, squared_error, train
from transformula.studies.study_report import timed


def f1(x: Floats) -> Floats:
    """f1* = x1² + x2²."""
    return np.asarray(x[:, 0] ** 2 + x[:, 1] ** 2)


def f2(x: Floats) -> Floats:
    """f2* = x1⁵ + 3x2⁴ + 2x3³ + 5x3x4 + 3x5² + 2x6x7x8 + 2x9, in ten variables."""
    return np.asarray(
        x[:, 0] ** 5
        + 3 * x[:, 1] ** 4
        + 2 * x[:, 2] ** 3
        + 5 * x[:, 2] * x[:, 3]
        + 3 * x[:, 4] ** 2
        + 2 * x[:, 5] * x[:, 6] * x[:, 7]
        + 2 * x[:, 8]
    )


@dataclass(frozen=True)
class FangSample:
    """Rows to train on, with unit noise, and test rows without noise."""

    X: Floats
    y: Floats
    X_test: Floats
    f_test: Floats


def f1_sample(seed: int) -> FangSample:
    """9000 rows from N(0, diag(100, 100)), 1000 more for the test."""
    return _sample(f1, 10.0, (9000, 1000), 2, seed)


def f2_sample(seed: int, rows: int = 45_000) -> FangSample:
    """Rows from N(0, I) in ten dimensions, 5000 more for the test."""
    return _sample(f2, 1.0, (rows, 5000), 10, seed)


def _sample(f: Callable[[Floats], Floats], scale: float, counts: tuple[int, int], width: int, seed: int) -> FangSample:
    rng = np.random.default_rng(seed)
    X = scale * rng.normal(size=(sum(counts), width))
    y = f(X) + rng.normal(size=len(X))
    rows = counts[0]
    return FangSample(X[:rows], y[:rows], X[rows:], f(X[rows:]))


def relu_network(widths: Sequence[int], seed: int) -> nn.Sequential:
    """Linear layers with ReLU between them (appendix A.1), in double precision."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer, dtype=torch.float64), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def parameter_count(module: nn.Module) -> int:
    """Number of trained numbers."""
    return sum(p.numel() for p in module.parameters())


@dataclass(frozen=True)
class Trained:
    """One model after the paper's training."""

    name: str
    parameters: int
    history: History
    test_error: float
    test_curve: list[float]
    seconds: float

    def epochs_to_convergence(self) -> int | None:
        """The paper's criterion: the first epoch whose training error moved by less than 0.01."""
        losses = self.history.training
        for epoch in range(1, len(losses)):
            if abs(losses[epoch] - losses[epoch - 1]) < 0.01:
                return epoch + 1
        return None


def paper_schedule(epochs: int, batch_size: int, seed: int) -> Schedule:
    """SGD, one cycle from 0.0001 to 0.001 and back, gradients clipped to norm 1."""
    return Schedule("sgd", epochs, batch_size, start=1e-4, peak=1e-3, clip=1.0, seed=seed)


def train_model(
    name: str,
    module: nn.Module,
    sample: FangSample,
    schedule: Schedule,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
    every: int = 0,
) -> Trained:
    """Train as the paper does, on unscaled rows; the test error is against the noiseless target."""

    def tensor(values: Floats) -> Tensor:
        return torch.from_numpy(values).to(device=device, dtype=dtype)

    module = module.to(device=device, dtype=dtype)
    ones = torch.ones(len(sample.y), device=device, dtype=dtype)
    data = Batchable(tensor(sample.X), tensor(sample.y)[:, None], ones)
    inputs, truth = tensor(sample.X_test), tensor(sample.f_test)[:, None]
    curve: list[float] = []

    def error() -> float:
        with torch.no_grad():
            return float(((module(inputs) - truth) ** 2).mean())

    def watch(epoch: int) -> None:
        if every and epoch % every == 0:
            curve.append(error())

    history, seconds = timed(train, module, data, squared_error, schedule, on_epoch=watch)
    return Trained(name, parameter_count(module), history, error(), curve, seconds)
