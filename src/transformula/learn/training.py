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

import hashlib
import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformula.budget import report
from transformula.cluster.ranks import Ranks
from transformula.files import write_file

#: Prediction, targets and weights to the weighted loss of every row.
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
#: An estimator's parameters for training as the papers describe it: random weights, to the end, no decay.
AS_IN_PAPERS: dict[str, Any] = {"init": "random", "early_stopping": False, "weight_decay": 0.0}
#: Share of the steps in which the learning rate rises.
_RISE = 0.3
#: The last learning rate, as a share of the first.
_FINAL = 1e-3
#: Parameters times rows of a batch below which a single thread is faster.
_ONE_THREAD = 50_000_000


@dataclass(frozen=True)
class Schedule:
    """Optimiser, learning rates, epochs and checkpoints of a training run.

    Attributes
    ----------
    optimizer : "sgd" or "adam".
    start, peak : the learning rate at the beginning and at the top of its cycle.
    clip : the largest norm of a gradient; None leaves gradients alone.
    weight_decay : share of every parameter that a step of rate 1 takes away.
    patience : epochs without a better validation loss before stopping; needs validation rows.
    checkpoint : where to save; an existing file of the same data and schedule is continued.
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
    checkpoint: str | Path | None = None
    every: int = 10

    def rate(self, step: int, steps: int) -> float:
        """The one-cycle learning rate.

        Examples
        --------
        >>> schedule = Schedule(start=0.1, peak=1.0)
        >>> [round(schedule.rate(k, 100), 3) for k in (0, 15, 30, 99)]
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

    @property
    def best_loss(self) -> float:
        """The least validation loss so far."""
        return self.start if self.best_epoch < 0 else self.validation[self.best_epoch]


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
    schedule: Schedule,
    validation: Batchable | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> History:
    """Train a module in place; with validation rows it ends with its best parameters.

    It ends as it began unless the best are better by more than two standard errors: the least of many
    validation losses flatters.

    Raises
    ------
    ValueError
        If the checkpoint belongs to other data, another model or another schedule.
    FloatingPointError
        If the loss is no longer a finite number.
    """
    trainer = Trainer(module, data, loss, schedule, validation)
    first = trainer.resume()
    with _few_threads(module, schedule.batch_size):
        for epoch in range(first, schedule.epochs):
            if trainer.is_out_of_patience(epoch):
                break
            trainer.epoch(epoch)
            due = (epoch + 1) % schedule.every == 0 or epoch + 1 == schedule.epochs
            if schedule.checkpoint is not None and due and trainer.ranks.rank == 0:
                trainer.save(epoch + 1, Path(schedule.checkpoint))
            if trainer.ranks.rank == 0:
                report("training", epoch + 1, schedule.epochs - epoch - 1)
            if on_epoch is not None:
                on_epoch(epoch)
    trainer.keep_best()
    return trainer.history


class Trainer:
    """A module in training, with its optimiser, its history and its best parameters so far."""

    def __init__(
        self, module: nn.Module, data: Batchable, loss: Loss, schedule: Schedule, validation: Batchable | None
    ) -> None:
        self.module = module
        self.data = data
        self.loss = loss
        self.schedule = schedule
        self.validation = validation
        self.ranks = Ranks.here()
        self.shared = self.ranks.wrapped(module)
        self.optimizer = _optimizer(module, schedule)
        self.fingerprint = _fingerprint(module, data, schedule)
        self.beginning = _copy(module)
        self.best = None if validation is None else self.beginning
        self.history = History()
        if validation is not None:
            self.history.start = self._validate()

    def resume(self) -> int:
        """Continue from the checkpoint if there is one; returns the epochs it has behind it."""
        saved = self.ranks.from_first(lambda: _read(self.schedule.checkpoint, self.fingerprint))
        if saved is None:
            return 0
        self.module.load_state_dict(saved["module"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.best = saved["best"]
        self.history = History(**saved["history"])
        return int(saved["epochs"])

    def is_out_of_patience(self, epoch: int) -> bool:
        """Whether the validation loss has not improved for too long."""
        patience = self.schedule.patience
        return patience is not None and epoch > 0 and epoch - self.history.best_epoch > patience > 0

    def epoch(self, epoch: int) -> None:
        """Visit all rows once."""
        size = self.schedule.batch_size
        steps = math.ceil(len(self.data) / size)
        shuffle = torch.Generator().manual_seed(self.schedule.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.data), generator=shuffle).to(self.data.x.device)
        total = 0.0
        for k in range(steps):
            rate = self.schedule.rate(epoch * steps + k, self.schedule.epochs * steps)
            batch = order[k * size : (k + 1) * size]
            total += self.step(batch, rate) * len(batch)
        self.history.training.append(total / len(self.data))
        if self.validation is not None:
            self.history.validation.append(self._validate())
            if self.history.validation[-1] < self.history.best_loss:
                self.history.best_epoch = epoch
                self.best = _copy(self.module)

    def step(self, batch: Tensor, rate: float) -> float:
        """One step on this rank's part of a batch; returns the mean loss of the batch."""
        part = self.data.take(batch[self.ranks.rank :: self.ranks.world])
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        value = self.loss(self.shared(part.x), part.y, part.weight).sum() / len(batch)
        (value * self.ranks.world).backward()  # type: ignore[no-untyped-call]  # the ranks' gradients are averaged
        if self.schedule.clip is not None:
            nn.utils.clip_grad_norm_(self.shared.parameters(), self.schedule.clip)
        self.optimizer.step()
        number = self.ranks.total(value.detach())
        if not math.isfinite(number):
            raise FloatingPointError(
                "the training loss is no longer a finite number: lower learning_rate or clip, or the degree"
            )
        return number

    def save(self, epochs: int, path: Path) -> None:
        """Replace the checkpoint."""
        content = io.BytesIO()
        torch.save(
            {
                "fingerprint": self.fingerprint,
                "epochs": epochs,
                "module": self.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "best": self.best,
                "history": vars(self.history),
            },
            content,
        )
        write_file(path, content.getvalue(), parents=True)

    def keep_best(self) -> None:
        """Load the best parameters on the validation rows, or the first ones if those are not clearly worse."""
        if self.validation is None:
            return
        gain = self._losses(self.beginning) - self._losses(self.best)
        if self.ranks.from_first(lambda: bool(gain.sum() <= 2 * (gain - gain.mean()).square().sum().sqrt())):
            self.module.load_state_dict(self.beginning)
            self.history.best_epoch = -1

    def _validate(self) -> float:
        return self.ranks.from_first(lambda: float(self._losses().mean()))

    def _losses(self, parameters: dict[str, Tensor] | None = None) -> Tensor:
        """Validation losses, with other parameters if they are given."""
        assert self.validation is not None
        if parameters is not None:
            self.module.load_state_dict(parameters)
        with torch.no_grad():
            return self.loss(self.module(self.validation.x), self.validation.y, self.validation.weight)


def _optimizer(module: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(parameters, schedule.start, schedule.momentum, weight_decay=schedule.weight_decay)
    return torch.optim.AdamW(parameters, schedule.start, weight_decay=schedule.weight_decay)


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _fingerprint(module: nn.Module, data: Batchable, schedule: Schedule) -> str:
    """Digest of the settings, the sizes and the rows; the number of processes is no part of it."""
    digest = hashlib.sha256()
    settings = {k: v for k, v in vars(schedule).items() if k not in ("checkpoint", "every")}
    digest.update(repr(sorted(settings.items())).encode())
    digest.update(repr([(n, tuple(p.shape)) for n, p in module.named_parameters()]).encode())
    for tensor in (data.x, data.y, data.weight):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(path: str | Path | None, fingerprint: str) -> dict[str, Any] | None:
    """The checkpoint, if there is one; refused if it is of another run."""
    if path is None or not Path(path).exists():
        return None
    try:
        saved: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        same = saved["fingerprint"] == fingerprint
    except Exception as error:
        raise ValueError(f"{path} is not a checkpoint of this library: {error}") from None
    if not same:
        raise ValueError(f"{path} belongs to other data or other settings: delete it or name another file")
    return saved


@contextmanager
def _few_threads(module: nn.Module, batch: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if batch * sum(p.numel() for p in module.parameters()) < _ONE_THREAD:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
