"""The steps of a program on tensors, with all of their stored numbers in one vector.

A layer of tables becomes one step for each softmax. `PackedStep.run` computes the new rows with whole arrays on any
device; `scalar_code` writes steps out as scalar expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from transformula.kernel.folder.weights import FloatArray
from transformula.runtime.program.program_steps import AffineStep, GridStep, Powers, Program, Rows, Tables

#: Tokens of a step up to which they are written out one by one.
UNROLLED = 64


@dataclass(frozen=True, eq=False)
class Softmax:
    """Tables with the same scores; a row of ``block`` has a token's offset, slopes and values, in this order."""

    reads: Rows
    block: FloatArray
    anchors: FloatArray | None
    clamps: tuple[tuple[float, float], ...]
    sinks: bool

    @property
    def width(self) -> int:
        """Number of tables."""
        return int(self.block.shape[1]) - 1 - len(self.reads)


#: The stored numbers of each kind of step.
_ARRAYS: dict[type, str] = {AffineStep: "matrix", Softmax: "block anchors", GridStep: "slopes offsets values"}
_ARRAYS |= {Powers: "directions coefficients"}


@dataclass(frozen=True, eq=False)
class PackedStep:
    """A step, its stored numbers, their shapes and first place, the rows that it reads, and its first new row."""

    step: AffineStep | Softmax | GridStep | Powers
    arrays: tuple[FloatArray, ...]
    shapes: tuple[tuple[int, ...], ...]
    start: int
    reads: tuple[int, ...]
    first: int

    @classmethod
    def of(cls, step: AffineStep | Softmax | GridStep | Powers, start: int, first: int) -> PackedStep:
        """Pack a step."""
        parts = [getattr(step, name) for name in _ARRAYS[type(step)].split()]
        joined = (part if isinstance(part, tuple) else (part,) for part in parts if part is not None)
        held = tuple(array for part in joined for array in part)
        return cls(step, held, tuple(array.shape for array in held), start, tuple(step.reads.tolist()), first)

    @property
    def tokens(self) -> int:
        """Number of tokens that are written out or looped over; forms have none."""
        return 0 if isinstance(self.step, AffineStep) else len(self.arrays[0])

    @property
    def numbers(self) -> FloatArray:
        """The arrays, one after the other."""
        return np.concatenate([array.ravel() for array in self.arrays])

    @property
    def kept(self) -> FloatArray:
        """Zero where a number is zero and stays zero, since no scalar expression holds it."""
        sparse = isinstance(self.step, AffineStep | Powers) and self.tokens <= UNROLLED
        return (self.numbers != 0).astype(self.numbers.dtype) if sparse else np.ones_like(self.numbers)

    def place(self, array: int, *index: int) -> int:
        """The place of a number."""
        before = sum(map(math.prod, self.shapes[:array]))
        return self.start + before + int(np.ravel_multi_index(index, self.shapes[array], mode="wrap"))  # -1 is the last

    def run(self, w: torch.Tensor, rows: list[torch.Tensor], shifted: bool) -> torch.Tensor:
        """The new rows; if ``shifted``, every softmax subtracts its largest score."""
        sizes = [math.prod(shape) for shape in self.shapes]
        parts = w[self.start : self.start + sum(sizes)].split(sizes)
        own = [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        new: torch.Tensor = _RUN[type(self.step)](self.step, own, rows, shifted)
        return new


def _forms(step: AffineStep, own: list[torch.Tensor], rows: list[torch.Tensor], shifted: bool) -> torch.Tensor:
    new = own[0] @ torch.stack(rows)
    return torch.relu(new) if step.relu else new


def _softmax(step: Softmax, own: list[torch.Tensor], rows: list[torch.Tensor], shifted: bool) -> torch.Tensor:
    offsets, slopes, values = own[0][:, :1], own[0][:, 1 : 1 + len(rows)], own[0][:, 1 + len(rows) :]
    anchored = len(own) > 1
    if anchored and not shifted:
        rows = [row.clamp(*ends) for row, ends in zip(rows, step.clamps, strict=True)]
    scores = torch.addmm(offsets, slopes, torch.stack(rows))
    one: torch.Tensor | float = 1.0
    if shifted or not anchored:
        top = scores.detach().amax(dim=0).clamp(min=0 if anchored else -math.inf)
        scores, one = scores - top, torch.exp(-top)
    powers = (scores.clamp(min=lowest_score(scores.dtype)) if step.sinks else scores).exp()
    above, below = values.T @ powers, powers.sum(dim=0)
    return (above + own[1][:, None] * one) / (below + one) if anchored else above / below


def lowest_score(dtype: torch.dtype) -> float:
    """`numpy_backend.scores_kept` says why no exponential is taken from further below."""
    return math.log(torch.finfo(dtype).tiny) + 0.71


def _ridges(step: Powers, own: list[torch.Tensor], rows: list[torch.Tensor], shifted: bool) -> torch.Tensor:
    t = power = own[0] @ torch.stack(rows)
    total = t.new_zeros(own[1].shape[1], t.shape[1])
    for s in range(1, len(step.active)):
        power = power[: step.active[s]] * t[: step.active[s]] if s > 1 else t
        total = total + own[1][s, :, : power.shape[0]] @ power
    return total


def _grid(step: GridStep, own: list[torch.Tensor], rows: list[torch.Tensor], shifted: bool) -> torch.Tensor:
    """One softmax per axis, within windows where few tokens count."""
    *lines, values = own
    axes = list(zip(rows, lines[: len(rows)], lines[len(rows) :], strict=True))
    if all(size is not None for size in step.windows):
        return _look_around(axes, values, [size or 0 for size in step.windows])
    weights = [_weights(a[:, None] * u + b[:, None]) for u, a, b in axes]
    result = values.reshape(len(values), -1).T @ weights[0]
    for axis, weight in enumerate(weights[1:], start=1):
        shape = values.shape[axis], values.shape[axis + 1 :].numel(), rows[0].shape[0]
        result = (result.reshape(shape) * weight[:, None]).sum(dim=0)
    return result


def _look_around(axes: Sequence[tuple[torch.Tensor, ...]], values: torch.Tensor, windows: list[int]) -> torch.Tensor:
    """The tokens around the leading one of each axis."""
    count, samples = 1, axes[0][0].shape[0]
    total, place = values.new_ones(1, samples), torch.zeros(1, 1, dtype=torch.long, device=values.device)
    for (u, a, b), reach in zip(axes, windows, strict=True):
        count *= 2 * reach + 1
        edges = -b.detach().double().diff() / a.detach().double().diff()  # as `score_bounds.crossings`
        leader = torch.searchsorted(edges, u.detach().double().contiguous())
        first = (leader - reach).clamp(0, len(a) - 2 * reach - 1)
        index = first + torch.arange(2 * reach + 1, device=u.device)[:, None]
        total = (total[:, None] * _weights(_picked(a, index) * u + _picked(b, index))).reshape(count, samples)
        place = (place[:, None] * len(a) + index).reshape(count, samples)
    columns = values.reshape(-1, values.shape[-1]).unbind(dim=1)
    return torch.stack([(total * _picked(column, place)).sum(dim=0) for column in columns])


def _picked(line: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """line[index], whose gradient on a GPU would be added up after sorting all indices."""
    return line.index_select(0, index.flatten()).reshape(index.shape)


def _weights(scores: torch.Tensor) -> torch.Tensor:
    """Softmax over the first axis."""
    shifted = scores - scores.detach().amax(dim=0)
    powers = shifted.clamp(min=lowest_score(scores.dtype)).exp()
    return powers / powers.sum(dim=0)


_RUN: dict[type, Callable[..., Any]] = {AffineStep: _forms, Softmax: _softmax, Powers: _ridges, GridStep: _grid}


def pack_steps(program: Program) -> list[PackedStep]:
    """The steps, their numbers in order."""
    packed: list[PackedStep] = []
    start, first = 0, 1 + program.inputs
    for step in program.steps:
        for own in _softmaxes(step) if isinstance(step, Tables) else [step]:
            packed.append(PackedStep.of(own, start, first))
            start, first = start + len(packed[-1].numbers), first + own.width
    return packed


def _softmaxes(step: Tables) -> list[Softmax]:
    made, row = [], 0
    ends = np.tile([[-np.inf], [np.inf]], len(step.reads)) if step.clamps is None else step.clamps
    for (a, b), values in zip(pairwise(step.starts), step.values, strict=True):
        found = 1 + np.flatnonzero(step.slopes[a:b, 1:].any(axis=0))  # column 0 has the offsets
        used = found if len(found) else np.zeros(1, dtype=int)  # a constant table reads the constant, times zero
        block = np.concatenate([step.slopes[a:b, :1], step.slopes[a:b, used] * (used > 0), values.T], axis=1)
        anchors = None if step.anchors is None else step.anchors[row : row + len(values)]
        clamps = tuple((float(low), float(high)) for low, high in ends[:, used].T)
        made.append(Softmax(step.reads[used], block, anchors, clamps, step.sinks))
        row += len(values)
    return made
