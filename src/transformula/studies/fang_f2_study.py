"""Fang et al., Table 1 and Figure 3: f2* by the paper's training, beside two ReLU networks, and the data of section 5.

The full size (4368 tokens, 2000 epochs, batches of 25,000) is a GPU's work. The default is a
stated shorter run for a CPU. This file needs only torch, NumPy and SciPy, so that it runs where no more is
installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformula.errors import InputError
from transformula.learn.distinct_rows import Floats
from transformula.learn.gradient import FangModule, paper_directions
from transformula.learn.training import Batchable, History, Schedule, squared_error, train
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw, timed


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


#: Training and test error, epochs to convergence and minutes on an A100, as far as the text is legible.
PAPER_TEST = {"attention": 0.109, "NN_width": 35.662}
CLIPS = (10.0, 100.0, 1000.0)


def fang_f2(run: StudyRun) -> Report:
    """Train the three models on the same rows."""
    rows, tokens, epochs, batch = run.pick(
        (3000, 64, 30, 1000), (45_000, 512, 100, 5000), (45_000, paper_directions(10, 5), 2000, 25_000)
    )
    full = run.size == "full"
    if full and not torch.cuda.is_available():
        raise InputError("the full size trains 4368 tokens for 2000 epochs, which takes a GPU: none was found")
    device, dtype = ("cuda", torch.float32) if full else ("cpu", torch.float64)
    sample = f2_sample(run.seed, rows)
    schedule = paper_schedule(epochs, batch, run.seed)
    widths = {"NN_depth": (10, *[120] * 6, 1), "NN_width": (10, tokens, 1)}
    done: list[tuple[Trained, float]] = []
    for name in ("attention", *widths):
        tried = []
        for clip in run.pick(CLIPS[1:2], CLIPS):
            module = (
                FangModule(10, 1, 5, tokens, run.seed) if name == "attention" else relu_network(widths[name], run.seed)
            )
            try:
                trained = train_model(
                    name, module, sample, replace(schedule, clip=clip), device, dtype, max(1, epochs // 100)
                )
            except FloatingPointError:
                continue
            tried.append((trained, clip))
        done.append(min(tried, key=lambda pair: pair[0].history.training[-1]))
    return report(run, done, (rows, tokens, epochs, batch), device)


def report(run: StudyRun, done: list[tuple[Trained, float]], sizes: tuple[int, int, int, int], device: str) -> Report:
    """Tables, sentences and figure from the trained models."""
    rows, tokens, epochs, batch = sizes
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    lines: list[list[Any]] = [
        [
            t.name,
            t.parameters,
            clip,
            t.history.training[-1],
            t.test_error,
            PAPER_TEST.get(t.name),
            t.epochs_to_convergence(),
            round(t.seconds, 1),
        ]
        for t, clip in done
    ]
    columns = ["model", "parameters", "clip", "training MSE", "noiseless test MSE", "the paper's test MSE"]
    columns += ["epochs to convergence", "seconds"]
    attention = done[0][0]
    findings = [
        f"Attention reaches a noiseless test error of {attention.test_error:.3g} after {epochs} epochs "
        f"(the paper: 0.109 after 2000), NN_depth {done[1][0].test_error:.3g} and NN_width "
        f"{done[2][0].test_error:.3g}.",
        "The paper does not say at which norm gradients are clipped: every model was trained with "
        + ", ".join(f"{c:g}" for c in run.pick(CLIPS[1:2], CLIPS))
        + ", and the one with the least training error is shown.",
    ]
    if run.size != "full":
        findings.append(
            f"This is a shorter run than the paper's: {tokens} tokens instead of 4368, {epochs} epochs "
            f"instead of 2000, batches of {batch} instead of 25,000. The full size is the paper's."
        )
    facts = {
        "curves": {t.name: [round(v, 5) for v in t.test_curve] for t, _ in done},
        "training": {t.name: _thin(t.history.training) for t, _ in done},
        "epochs": epochs,
        "paper_test": PAPER_TEST,
    }
    try:
        figure = figure_of(facts)
    except ImportError:  # a GPU machine without matplotlib: figure_of(facts) elsewhere
        figure = None
    return Report(
        run,
        "fang-f2: f2* by the paper's training",
        "Fang et al. (Table 1, Figure 3) train F, β and b on f2*, a polynomial of degree 5 in 10 variables "
        "with 7 terms, and compare ReLU networks with about as many parameters.",
        f"{rows} training rows from N(0, I) with unit noise, 5000 test rows without; {tokens} tokens, SGD "
        f"with momentum 0.9, {epochs} epochs, batches of {batch}, one-cycle learning rate 0.0001 to 0.001, "
        f"{'float32' if device == 'cuda' else 'float64'} on {name}. Seed {run.seed}.",
        [StudyTable("Table 1", columns, lines)],
        findings,
        facts,
        figure,
    )


def _thin(values: list[float]) -> list[float]:
    step = max(1, len(values) // 200)
    return [round(v, 5) for v in values[::step]]


def figure_of(facts: dict[str, Any]) -> Any:
    """Figure 3: training error and noiseless test error against the epoch."""
    panels = []
    for key, label in (("training", "training MSE"), ("curves", "noiseless test MSE")):
        curves = []
        for name, values in facts[key].items():
            step = facts["epochs"] / len(values)
            curves.append(Curve(name, [k * step for k in range(len(values))], values, "-"))
        panels.append(Panel("epoch", label, curves, scale="semilogy"))
    return draw(*panels)
