"""A program as a PyTorch module: differentiable, any device, memory bounded by a budget.

Samples are taken in chunks of at most `BUDGET_FLOATS` numbers (512 MB in float64), fewer on a CPU, where they should
stay in the cache. With gradients a chunk's intermediates are recomputed in the backward pass, so they are never all in
memory. Under torch.compile and torch.export the graph is that of a single chunk of any size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch._C import _is_tracing, _len_torch_dispatch_stack
from torch.autograd.forward_ad import unpack_dual
from torch.utils.checkpoint import checkpoint

from transformula.kernel.folder.weights import FloatArray
from transformula.runtime.program.program_steps import AffineStep, GridStep, Powers, Program, Rows, Step, Tables
from transformula.runtime.program.score_bounds import crossings

#: Intermediates of a chunk, in floats.
BUDGET_FLOATS = 1 << 26
#: Intermediates of a chunk with fused kernels, whose launches cost more than their work on few samples.
FUSED_FLOATS = 1 << 28
#: Intermediates of a chunk on a CPU, in floats: the size of a core's cache.
CPU_FLOATS = 1 << 20
#: Inputs of a fused polynomial: a thread keeps one gradient for each.
MAX_INPUTS = 32


def only_numbers(x: torch.Tensor) -> bool:
    """Whether only the numbers of a tensor matter, so that NumPy may work on its memory.

    More matters on another device, where gradients are needed, and while a graph of the computation is recorded.
    """
    if type(x) is not torch.Tensor or x.device.type != "cpu" or x.layout != torch.strided:
        return False
    if (x.requires_grad and torch.is_grad_enabled()) or unpack_dual(x).tangent is not None:
        return False
    if torch.compiler.is_compiling() or _is_tracing() or _len_torch_dispatch_stack():
        return False
    try:
        x.data_ptr()
    except RuntimeError:  # torch.func's wrappers
        return False
    return True


def fused(rows: torch.Tensor) -> bool:
    """Whether these rows go through fused Triton kernels; not under torch.compile, which fuses by itself."""
    kind = rows.is_cuda and rows.dtype in (torch.float32, torch.float64)
    return kind and not torch.compiler.is_compiling() and _installed()


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


def _number(array: FloatArray) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(array.copy()))


class ProgramModule(nn.Module):
    """A program on tensors; its parameters are the stored numbers.

    Examples
    --------
    >>> import transformula as tf, torch
    >>> module = tf.compile("x**2", on="x=-1..1").to_torch()
    >>> module(torch.tensor([[0.5]], dtype=torch.float64)).item()
    0.25
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.inputs, self.positions = program.inputs, program.positions
        powers = [3 * len(step.directions) for step in program.steps if isinstance(step, Powers)]
        self.floats = max(program.floats, *powers) if powers else program.floats
        self.fused_floats = program.fused_floats
        ends = np.cumsum([1 + program.inputs, *(step.width for step in program.steps)])
        self.steps = nn.ModuleList(_MODULES[type(step)](step, Gather(step.reads, ends)) for step in program.steps)
        self.last, self.outputs = Gather(program.outputs, ends), len(program.outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Samples × inputs to samples × outputs."""
        rows = x.reshape(-1, self.inputs)
        if torch.compiler.is_compiling():
            result = self.evaluate(rows)
        else:
            parts = rows.split(max(64, self.chunk(rows)))
            wanted = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters()))
            again = wanted and len(parts) > 1
            results = [checkpoint(self.evaluate, p, use_reentrant=False) if again else self.evaluate(p) for p in parts]
            result = results[0] if len(results) == 1 else torch.cat(results)
        return result.reshape(x.shape[0], self.outputs * self.positions)

    def chunk(self, rows: torch.Tensor) -> int:
        """Number of samples of a chunk."""
        if fused(rows):
            return FUSED_FLOATS // self.fused_floats
        return (CPU_FLOATS if rows.device.type == "cpu" else BUDGET_FLOATS) // self.floats

    def evaluate(self, x: torch.Tensor) -> torch.Tensor:
        """One chunk: positions × inputs to positions × outputs."""
        made = [torch.cat([x.new_ones(1, x.shape[0]), x.T])]
        for step in self.steps:
            made.append(step(made))
        rows: torch.Tensor = self.last(made)
        return rows.T


class Gather(nn.Module):
    """Picks rows from the constant, the inputs and the results of earlier steps, without copying the others."""

    def __init__(self, reads: Rows, ends: Rows) -> None:
        super().__init__()
        owner = np.searchsorted(ends, reads, side="right")
        starts = np.concatenate([[0], ends])
        cuts = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(reads)]
        self.parts: list[tuple[int, int, int]] = []
        for first, last in pairwise(cuts):
            own, local = int(owner[first]), reads[first:last] - starts[owner[first]]
            together = bool((np.diff(local) == 1).all())
            self.parts.append((own, int(local[0]) if together else -1, last - first))
            self.register_buffer(f"part{len(self.parts) - 1}", None if together else torch.from_numpy(local))

    def forward(self, made: list[torch.Tensor]) -> torch.Tensor:
        """The rows, in order."""
        found = [
            made[own].narrow(0, first, count) if first >= 0 else made[own].index_select(0, getattr(self, f"part{k}"))
            for k, (own, first, count) in enumerate(self.parts)
        ]
        return found[0] if len(found) == 1 else torch.cat(found)


class AffineModule(nn.Module):
    """Linear forms, and ReLU."""

    def __init__(self, step: AffineStep, gather: Gather) -> None:
        super().__init__()
        self.gather, self.relu = gather, step.relu
        self.matrix = _number(step.matrix)

    def forward(self, made: list[torch.Tensor]) -> torch.Tensor:
        """The new rows."""
        new = self.matrix @ self.gather(made)
        return torch.relu(new) if self.relu else new


class TablesModule(nn.Module):
    """Softmax tables of one layer; ``own`` says which tokens belong to a table. An anchor is one more token."""

    own: torch.Tensor
    order: torch.Tensor
    clamps: torch.Tensor | None
    _LAYOUT = ("columns", "chosen", "kept", "tables")

    def __init__(self, step: Tables, gather: Gather) -> None:
        super().__init__()
        self.gather = gather
        self.shifted = step.shifted
        self.sinks = step.sinks
        self.slopes = _number(step.slopes)
        self.dtype = self.slopes.dtype
        above, below = step.sums
        self.values = _number(above)
        self.register_buffer("own", torch.from_numpy(below))
        self.register_buffer("clamps", None if step.clamps is None else torch.from_numpy(step.clamps[:, :, None]))
        last = [] if step.shifted else [len(step.slopes)]
        parts = [[*range(start, stop), *last] for start, stop in pairwise(step.starts)]
        self.sizes, self.widths = [len(part) for part in parts], [len(v) for v in step.values]
        order = np.concatenate(parts)
        self.register_buffer("order", torch.from_numpy(order), persistent=False)
        whole = np.concatenate([step.slopes, np.zeros_like(step.slopes[:1])])[order]
        layout = table_layout(whole, np.cumsum([0, *self.sizes]).tolist(), self.widths)
        for name, part in zip(self._LAYOUT, layout, strict=True):
            self.register_buffer(name, torch.from_numpy(part), persistent=False)

    def forward(self, made: list[torch.Tensor]) -> torch.Tensor:
        """The new rows."""
        if fused(made[0]):
            from transformula.runtime.program.triton_tables import table_rows

            layout: tuple[torch.Tensor, ...] = tuple(getattr(self, name) for name in self._LAYOUT)
            return table_rows(self.gather(made), *self.whole(), layout)
        if self.shifted or made[0].dtype != self.dtype:  # in a narrower format scores might overflow
            return self.shift(made)
        scores = self.scores(made)
        powers = (scores.clamp_(min=_lowest(self.dtype)) if self.sinks else scores).exp_()
        sums = torch.cat([self.values * self.own, self.own])
        above, below = torch.addmm(sums[:, -1:], sums[:, :-1], powers).chunk(2)
        return above / below

    def scores(self, made: list[torch.Tensor]) -> torch.Tensor:
        """The arguments of the exponentials."""
        rows: torch.Tensor = self.gather(made)
        return self.slopes @ (rows if self.clamps is None else rows.clamp(self.clamps[0], self.clamps[1]))

    def shift(self, made: list[torch.Tensor]) -> torch.Tensor:
        """With the largest score subtracted."""
        slopes, values = self.whole()
        scores, rows = (slopes @ self.gather(made)).split(self.sizes), values.split(self.widths)
        places, new = np.cumsum([0, *self.sizes]).tolist(), []
        for first, own, table in zip(places, scores, rows, strict=False):
            powers = _shifted(own)
            new.append(table[:, first : first + len(own)] @ powers / powers.sum(dim=0))
        return torch.cat(new)

    def whole(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Slopes and values of all tokens, each softmax's together, the anchors' slopes being zero."""
        slopes = torch.cat([self.slopes, torch.zeros_like(self.slopes[:1])])
        return slopes[self.order], self.values[:, self.order]


def table_layout(slopes: FloatArray, starts: Sequence[int], widths: Sequence[int]) -> tuple[NDArray[Any], ...]:
    """Four arrays: columns, chosen, kept and tables.

    ``slopes`` is tokens × rows, with offsets in column 0; softmax g has the tokens from starts[g] up to starts[g + 1],
    and widths[g] tables. It reads ``columns[g]``, filled up with 0; token j's slopes there are ``slopes[j, chosen[j]]``
    times ``kept[j]``. Each of ``tables`` has its first token, the one after its last, and its softmax.
    """
    ends = list(pairwise(starts))
    used = [1 + np.flatnonzero((slopes[a:b, 1:] != 0).any(axis=0)) for a, b in ends]
    width = max(1, *map(len, used))
    columns, tables = np.zeros((len(used), width), dtype=np.int32), []
    chosen = np.zeros((len(slopes), width), dtype=np.int64)
    kept = np.zeros((len(slopes), width), dtype=slopes.dtype)
    for g, ((a, b), reads) in enumerate(zip(ends, used, strict=True)):
        columns[g, : len(reads)] = reads
        chosen[a:b, : len(reads)] = reads
        kept[a:b, : len(reads)] = 1
        tables += [(a, b, g)] * widths[g]
    return columns, chosen, kept, np.array(tables, dtype=np.int32)


def _lowest(dtype: torch.dtype) -> float:
    """`numpy_backend.scores_kept` says why no exponential is taken from further below."""
    return math.log(torch.finfo(dtype).tiny) + 0.71


def _shifted(scores: torch.Tensor) -> torch.Tensor:
    """exp(scores less the largest)."""
    return (scores - scores.amax(dim=0).detach()).clamp(min=_lowest(scores.dtype)).exp()


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    powers = _shifted(scores)
    return powers / powers.sum(dim=0)


class GridModule(nn.Module):
    """A grid: one softmax per axis, within windows where few tokens count."""

    def __init__(self, step: GridStep, gather: Gather) -> None:
        super().__init__()
        self.gather = gather
        self.windows = step.windows
        self.windowed = all(w is not None for w in step.windows)
        self.slopes, self.offsets = (nn.ParameterList(map(_number, part)) for part in (step.slopes, step.offsets))
        self.values = _number(step.values)
        for axis, (a, b) in enumerate(zip(step.slopes, step.offsets, strict=True)):
            if self.windowed:
                self.register_buffer(f"crossings{axis}", torch.from_numpy(crossings(a, b)))

    def forward(self, made: list[torch.Tensor]) -> torch.Tensor:
        """The new rows."""
        rows = self.gather(made)
        return self.look_around(rows) if self.windowed else self.contract(rows)

    def contract(self, rows: torch.Tensor) -> torch.Tensor:
        """All tokens."""
        weights = [
            _softmax(a[:, None] * u + b[:, None]) for u, a, b in zip(rows, self.slopes, self.offsets, strict=True)
        ]
        shape = self.values.shape
        result = self.values.reshape(shape[0], -1).T @ weights[0]
        for axis, w in enumerate(weights[1:], start=1):
            result = (result.reshape(shape[axis], shape[axis + 1 :].numel(), rows.shape[1]) * w[:, None]).sum(dim=0)
        return result

    def look_around(self, rows: torch.Tensor) -> torch.Tensor:
        """The tokens around the leading one of each axis."""
        total, place = rows.new_ones(1, rows.shape[1]), torch.zeros(1, 1, dtype=torch.long, device=rows.device)
        count = 1
        for axis, (u, a, b) in enumerate(zip(rows, self.slopes, self.offsets, strict=True)):
            reach = self.windows[axis] or 0
            count *= 2 * reach + 1
            edges: torch.Tensor = getattr(self, f"crossings{axis}")
            leader = torch.searchsorted(edges, u.detach().to(edges.dtype).contiguous())
            first = (leader - reach).clamp(0, a.shape[0] - 2 * reach - 1)
            index = first + torch.arange(2 * reach + 1, device=rows.device)[:, None]
            w = _softmax(a[index] * u + b[index])
            total = (total[:, None] * w).reshape(count, rows.shape[1])
            place = (place[:, None] * a.shape[0] + index).reshape(count, rows.shape[1])
        return (total * self.values.reshape(-1, self.values.shape[-1]).T[:, place]).sum(dim=1)


class PowersModule(nn.Module):
    """Sums of powers of linear forms."""

    def __init__(self, step: Powers, gather: Gather) -> None:
        super().__init__()
        self.gather = gather
        self.active, self.width = step.active, step.width
        #: How many of the first tokens have each power.
        self.used = [int(np.flatnonzero(c.any(axis=0)).max(initial=-1)) + 1 for c in step.coefficients]
        self.directions, self.coefficients = _number(step.directions), _number(step.coefficients)

    def forward(self, made: list[torch.Tensor]) -> torch.Tensor:
        """The new rows."""
        rows: torch.Tensor = self.gather(made)
        if len(self.active) > 1 and rows.shape[0] <= MAX_INPUTS and fused(rows):
            from transformula.runtime.program.triton_ridge import ridge_rows

            return ridge_rows(rows, self.directions, self.coefficients)
        t = power = self.directions @ rows
        total = rows.new_zeros(self.width, rows.shape[1])
        for s in range(1, len(self.active)):
            count = self.active[s]
            if s > 1:
                power = power[:count] * t[:count]
            if used := self.used[s]:
                total = total + self.coefficients[s, :, :used] @ power[:used]
        return total


_MODULES: dict[type[Step], type[nn.Module]] = {
    AffineStep: AffineModule,
    Tables: TablesModule,
    GridStep: GridModule,
    Powers: PowersModule,
}
