"""Several processes at one fit, as torchrun starts them: their ranks and their messages.

A process group that has been initialised is used; without one a process is alone, and nothing here costs anything.
Every rank takes its share of each batch, gradients are averaged by DistributedDataParallel, and decisions (a
checkpoint that is continued, a validation loss) come from the first rank, so that all ranks take the same steps.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from transformula.cluster.engines import Outcome

Value = TypeVar("Value")


@dataclass(frozen=True)
class Ranks:
    """This process among all of its group."""

    rank: int = 0
    world: int = 1

    @classmethod
    def here(cls) -> Ranks:
        """The group that was initialised, or this process alone."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def wrapped(self, module: nn.Module) -> nn.Module:
        """The module with its gradients averaged over the ranks."""
        return module if self.world == 1 else DistributedDataParallel(module)

    def total(self, value: torch.Tensor) -> float:
        """The sum over the ranks."""
        if self.world > 1:
            dist.all_reduce(value)
        return float(value)

    def from_first(self, function: Callable[[], Value]) -> Value:
        """The first rank's result of a function, or the ValueError it raised, on every rank."""
        if self.world == 1:
            return function()
        told: list[Any] = [None, None]
        if self.rank == 0:
            try:
                told[0] = function()
            except ValueError as error:
                told[1] = error
        dist.broadcast_object_list(told)
        if told[1] is not None:
            raise told[1]
        return told[0]  # type: ignore[no-any-return]

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Outcome]:
        """Outcomes of a function on every task, on every rank: one round of the ranks after another."""
        waiting = list(tasks)
        for first in range(0, len(waiting), self.world):
            mine = first + self.rank
            found = [_attempt(function, waiting[mine], mine) if mine < len(waiting) else None]
            everyone: list[Any] = found * self.world
            if self.world > 1:
                dist.all_gather_object(everyone, found[0])
            yield from (one for one in everyone if one is not None)


def _attempt(function: Callable[[Any], Any], task: Any, index: int) -> Outcome:
    try:
        return Outcome(index, function(task), None)
    except Exception as error:
        return Outcome(index, None, error)


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that torchrun has started, for the block."""
    store, rank, world = next(rendezvous("env://"))
    # On one machine torchrun keeps the store when it starts the ranks again, with the addresses of those that are
    # gone; on several every attempt has a store of its own, and the count of attempts is not the same everywhere.
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    try:
        yield Ranks.here()
        dist.barrier()  # no rank closes its connections while another still uses them
    finally:
        gc.collect()  # models that hold the group end before it does: torch may abort otherwise
        dist.destroy_process_group()
