r"""Gradient training: one-cycle learning rate, clipped gradients, checkpoints that resume bit by bit.

The learning rate of step k of K is a function of k alone (Smith & Topin's one cycle: cosine from
``start`` to ``peak`` in the first 30 % of the steps, cosine down to ``start``/1000 in the rest), and the
order of the rows is a function of the seed and the epoch alone. A checkpoint therefore holds only the
parameters, the optimiser's moments, the best parameters so far and the losses; training continued from
it takes exactly the steps the uninterrupted one would have taken.

In a process group (torchrun) every rank has all rows and computes the gradient of its share of each batch
(`ranks`). Batches, rates and decisions are those of one process; sums are taken in another order, and nothing else
differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformula.learn import checkpoints
from transformula.learn.checkpoints import Run
from transformula.learn.ranks import Ranks
from transformula.learn.training_bar import TrainingBar

#: Prediction, targets and weights to the weighted loss of every row.
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
#: An estimator's parameters for training as the papers describe it: random weights, to the end, no decay.
AS_IN_PAPERS: dict[str, Any] = {"init": "random", "early_stopping": False, "weight_decay": 0.0}
_RISE = 0.3  # of the steps
_FINAL = 1e-3  # of the starting rate


@dataclass(frozen=True)
class Plan:
    """How to train.

    Attributes
    ----------
    optimizer : "sgd" (momentum 0.9) or "adam".
    start, peak : the learning rate at the beginning and at the top of its cycle.
    clip : the largest norm of a gradient; None leaves gradients alone.
    weight_decay : share of every parameter that a step of rate 1 takes away.
    patience : epochs without a better validation loss before stopping; needs validation rows.
    checkpoint : where to save; an existing file of the same data and plan is continued.
    every : epochs between two checkpoints.
    """

    optimizer: str = "adam"
    epochs: int = 200
    batch_size: int = 256
    start: float = 1e-3
    peak: float = 1e-2
    clip: float | None = 1.0
    momentum: float = 0.9
    weight_decay: float = 0.0
    patience: int | None = None
    seed: int = 0
    checkpoint: Path | None = None
    every: int = 10
    verbose: bool = False

    def rate(self, step: int, steps: int) -> float:
        """The one-cycle learning rate.

        Examples
        --------
        >>> plan = Plan(start=0.1, peak=1.0)
        >>> [round(plan.rate(k, 100), 3) for k in (0, 15, 30, 99)]
        [0.1, 0.55, 1.0, 0.001]
        """
        rise = max(1.0, _RISE * steps)
        if step <= rise:
            return self.start + (self.peak - self.start) * (1 - math.cos(math.pi * step / rise)) / 2
        low = self.start * _FINAL
        return low + (self.peak - low) * (1 + math.cos(math.pi * (step - rise) / (steps - rise))) / 2


@dataclass
class History:
    """Mean losses of every epoch; ``validation`` is empty and ``start`` infinite without validation rows.

    ``start`` is the validation loss before the first step, and best_epoch -1 says that nothing was better.
    """

    training: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    best_epoch: int = -1
    start: float = math.inf


@dataclass(frozen=True)
class Batchable:
    """Inputs, targets and weights of mean 1, on the device of the module."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: Tensor) -> Batchable:
        """Some of the rows."""
        return Batchable(self.x[index], self.y[index], self.weight[index])

    def split(self, fraction: float, seed: int) -> tuple[Batchable, Batchable]:
        """Rows to train on and rows to validate: a fraction of all, but fifty (or a quarter) at least."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed)).to(self.x.device)
        held = max(1, int(fraction * len(self)), min(50, len(self) // 4))
        held = min(held, len(self) - 1)
        return self.take(order[held:]), self.take(order[:held])


def squared_error(prediction: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Weighted squared errors, averaged over the outputs."""
    return (weight[:, None] * (prediction - y) ** 2).mean(dim=1)


def cross_entropy(scores: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Weighted −log softmax(scores) at the labels."""
    return weight * nn.functional.cross_entropy(scores, labels[:, 0].long(), reduction="none")


def train(
    module: nn.Module,
    data: Batchable,
    loss: Loss,
    plan: Plan,
    validation: Batchable | None = None,
    on_epoch: Callable[[int, History], None] | None = None,
) -> History:
    """Train a module in place; with validation rows it ends with its best parameters.

    It ends as it began where the best are not better by more than two standard errors: the least of many
    validation losses flatters.

    Raises
    ------
    ValueError
        If the checkpoint belongs to other data, another model or another plan.
    FloatingPointError
        If the loss is no longer a finite number.
    """
    optimizer, ranks = _optimizer(module, plan), Ranks.here()
    run = Run(History(), None, checkpoints.fingerprint(module, data, plan))
    beginning = _copy(module)
    if validation is not None:
        run.history.start = ranks.from_first(lambda: float(_losses(module, validation, loss).mean()))
        run.best = beginning
    first = _resume(module, optimizer, run, ranks.from_first(lambda: checkpoints.read(plan.checkpoint, run)))
    steps_an_epoch = math.ceil(len(data) / plan.batch_size)
    shared = ranks.wrapped(module)
    watched = plan.verbose and ranks.rank == 0
    with TrainingBar(watched, plan.epochs, first) as bar, _few_threads(module, plan.batch_size):
        for epoch in range(first, plan.epochs):
            if plan.patience is not None and epoch - run.history.best_epoch > plan.patience > 0 and epoch:
                break
            shuffle = torch.Generator().manual_seed(plan.seed * 1_000_003 + epoch)
            order = torch.randperm(len(data), generator=shuffle).to(data.x.device)
            total = 0.0
            for k in range(steps_an_epoch):
                batch = order[k * plan.batch_size : (k + 1) * plan.batch_size]
                part = data.take(batch[ranks.rank :: ranks.world])
                rate = plan.rate(epoch * steps_an_epoch + k, plan.epochs * steps_an_epoch)
                total += _step(shared, optimizer, part, loss, rate, plan.clip, len(batch), ranks) * len(batch)
            _record(run, module, total / len(data), validation, loss, epoch, ranks)
            due = (epoch + 1) % plan.every == 0 or epoch + 1 == plan.epochs
            if plan.checkpoint is not None and due and ranks.rank == 0:
                checkpoints.save(module, optimizer, run, epoch + 1, plan.checkpoint)
            bar.advance(run.history.training[-1])
            if on_epoch is not None:
                on_epoch(epoch, run.history)
    if validation is not None and run.best is not None:
        _keep(module, beginning, run, validation, loss, ranks)
    return run.history


def _keep(
    module: nn.Module, beginning: dict[str, Tensor], run: Run, validation: Batchable, loss: Loss, ranks: Ranks
) -> None:
    """Load the best parameters, or the first ones where that is no clear gain."""
    assert run.best is not None
    module.load_state_dict(beginning)
    gain = _losses(module, validation, loss)
    module.load_state_dict(run.best)
    gain = gain - _losses(module, validation, loss)
    if ranks.from_first(lambda: bool(gain.sum() <= 2 * (gain - gain.mean()).square().sum().sqrt())):
        module.load_state_dict(beginning)
        run.history.best_epoch = -1


#: Below this many parameters times rows, several threads only wait for each other.
_ONE_THREAD = 50_000_000


@contextmanager
def _few_threads(module: nn.Module, batch: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if batch * sum(p.numel() for p in module.parameters()) < _ONE_THREAD:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _optimizer(module: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if plan.optimizer == "sgd":
        return torch.optim.SGD(parameters, plan.start, plan.momentum, weight_decay=plan.weight_decay)
    if plan.optimizer == "adam":
        return torch.optim.AdamW(parameters, plan.start, weight_decay=plan.weight_decay)
    raise ValueError(f"unknown optimizer {plan.optimizer!r}: choose sgd or adam")


def _step(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    part: Batchable,
    loss: Loss,
    rate: float,
    clip: float | None,
    rows: int,
    ranks: Ranks,
) -> float:
    """One step on this rank's part of a batch of so many rows; returns the mean loss of the batch."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    value = loss(module(part.x), part.y, part.weight).sum() / rows
    (value * ranks.world).backward()  # type: ignore[no-untyped-call]  # the ranks' gradients are averaged
    if clip is not None:
        nn.utils.clip_grad_norm_(module.parameters(), clip)
    optimizer.step()
    number = ranks.total(value.detach())
    if not math.isfinite(number):
        raise FloatingPointError(
            "the training loss is no longer a finite number: lower learning_rate or clip, or the degree"
        )
    return number


def _record(
    run: Run, module: nn.Module, mean: float, validation: Batchable | None, loss: Loss, epoch: int, ranks: Ranks
) -> None:
    history = run.history
    history.training.append(mean)
    if validation is None:
        return
    history.validation.append(ranks.from_first(lambda: float(_losses(module, validation, loss).mean())))
    best = history.start if history.best_epoch < 0 else history.validation[history.best_epoch]
    if history.validation[-1] < best:
        history.best_epoch = epoch
        run.best = _copy(module)


def _losses(module: nn.Module, rows: Batchable, loss: Loss) -> Tensor:
    with torch.no_grad():
        return loss(module(rows.x), rows.y, rows.weight)


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _resume(module: nn.Module, optimizer: torch.optim.Optimizer, run: Run, saved: dict[str, Any] | None) -> int:
    """Go on from a checkpoint if there is one; returns the epochs it has behind it."""
    if saved is None:
        return 0
    module.load_state_dict(saved["module"])
    optimizer.load_state_dict(saved["optimizer"])
    run.best, run.history = saved["best"], History(**saved["history"])
    return int(saved["epochs"])
