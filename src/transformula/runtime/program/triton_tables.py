"""Softmax tables on CUDA in fused Triton kernels: nothing of size samples × tokens is stored.

A program takes some samples and one table, reads its arguments once and sweeps over the tokens twice: for the largest
score, and for numerator and denominator. exp is that of CUDA's library, within 2 units in the last place; Triton's own
exp would multiply by log2(e) first, and lose digits in large scores.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

#: Samples of a program, and scores held at once for the gradients of a table's own numbers.
SAMPLES, CHUNK = 256, 1 << 26


@triton.jit
def _exp(score, LIBRARY: tl.constexpr):
    return libdevice.exp(score) if LIBRARY else tl.exp(score)


@triton.jit
def _arguments(rows, columns, place, samples, A: tl.constexpr):
    """The rows that a table reads."""
    found = ()
    for a in tl.static_range(A):
        column = tl.load(columns + a).to(tl.int64)
        found = found + (tl.load(rows + column * samples + place, mask=place < samples, other=0.0),)
    return found


@triton.jit
def _score(arguments, slopes, offsets, j, A: tl.constexpr):
    score = tl.load(offsets + j) + tl.load(slopes + j * A) * arguments[0]
    for a in tl.static_range(1, A):
        score += tl.load(slopes + j * A + a) * arguments[a]
    return score


@triton.jit
def _forward(
    rows,
    columns,
    slopes,
    offsets,
    values,
    tables,
    out,
    samples,
    tokens,
    A: tl.constexpr,
    LIBRARY: tl.constexpr,
    BN: tl.constexpr,
):
    """tables is (first token, last token, softmax) for each new row; values has a row for each, with all tokens."""
    table = tl.program_id(1)
    first, last, softmax = tl.load(tables + 3 * table), tl.load(tables + 3 * table + 1), tl.load(tables + 3 * table + 2)
    values += table.to(tl.int64) * tokens
    place = tl.program_id(0) * BN + tl.arange(0, BN)
    arguments = _arguments(rows, columns + softmax * A, place, samples, A)
    best = _score(arguments, slopes, offsets, first, A)
    for j in range(first + 1, last):
        best = tl.maximum(best, _score(arguments, slopes, offsets, j, A))
    above, below = tl.zeros_like(best), tl.zeros_like(best)
    for j in range(first, last):
        weight = _exp(_score(arguments, slopes, offsets, j, A) - best, LIBRARY)
        above += weight * tl.load(values + j)
        below += weight
    tl.store(out + table.to(tl.int64) * samples + place, above / below, mask=place < samples)


@triton.jit
def _backward(
    rows, columns, slopes, offsets, values, tables, given, out, samples, tokens, A: tl.constexpr, LIBRARY: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """For each new row and argument: the row's slope times the incoming gradient, Σ w_j a_j (y_j − T)."""
    table = tl.program_id(1)
    first, last, softmax = tl.load(tables + 3 * table), tl.load(tables + 3 * table + 1), tl.load(tables + 3 * table + 2)
    values += table.to(tl.int64) * tokens
    place = tl.program_id(0) * BN + tl.arange(0, BN)
    arguments = _arguments(rows, columns + softmax * A, place, samples, A)
    best = _score(arguments, slopes, offsets, first, A)
    for j in range(first + 1, last):
        best = tl.maximum(best, _score(arguments, slopes, offsets, j, A))
    above, below = tl.zeros_like(best), tl.zeros_like(best)
    steep, tilted = (), ()
    for _ in tl.static_range(A):
        steep, tilted = steep + (tl.zeros_like(best),), tilted + (tl.zeros_like(best),)
    for j in range(first, last):
        weight = _exp(_score(arguments, slopes, offsets, j, A) - best, LIBRARY)
        value = tl.load(values + j)
        above += weight * value
        below += weight
        more, turned = (), ()
        for a in tl.static_range(A):
            share = weight * tl.load(slopes + j * A + a)
            more, turned = more + (steep[a] + share,), turned + (tilted[a] + share * value,)
        steep, tilted = more, turned
    value = above / below
    inside = place < samples
    back = tl.load(given + table.to(tl.int64) * samples + place, mask=inside, other=0.0)
    for a in tl.static_range(A):
        slope = (tilted[a] - value * steep[a]) / below
        tl.store(out + (table * A + a).to(tl.int64) * samples + place, back * slope, mask=inside)


class TableRows(torch.autograd.Function):
    """New rows from rows, differentiable in rows, slopes and values; ``layout`` is that of `table_layout`."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, slopes: torch.Tensor, values: torch.Tensor, *layout: torch.Tensor
    ) -> torch.Tensor:
        """Tables × samples."""
        columns, chosen, kept, tables = layout
        rows, samples = rows.contiguous(), rows.shape[1]
        packed = (slopes.gather(1, chosen) * kept).contiguous(), slopes[:, 0].contiguous(), values.contiguous()
        out = rows.new_empty(len(tables), samples)
        if samples:
            grid, width = (triton.cdiv(samples, SAMPLES), len(tables)), columns.shape[1]
            _forward[grid](rows, columns, *packed, tables, out, samples, len(slopes), width, rows.is_cuda, SAMPLES)
        ctx.save_for_backward(rows, slopes, values, columns, tables, *packed)
        return out

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradient of the rows is fused; those of slopes and values, for training, are plain torch in chunks."""
        rows, slopes, values, columns, tables, *packed = ctx.saved_tensors
        samples, width = rows.shape[1], columns.shape[1]
        back = changed = moved = None
        given = given.contiguous()
        if ctx.needs_input_grad[0]:
            parts = rows.new_zeros(len(tables) * width, samples)
            if samples:
                grid = (triton.cdiv(samples, SAMPLES), len(tables))
                _backward[grid](
                    rows, columns, *packed, tables, given, parts, samples, len(slopes), width, rows.is_cuda, SAMPLES
                )
            back = torch.zeros_like(rows).index_add_(0, columns[tables[:, 2].long()].reshape(-1).long(), parts)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            changed, moved = torch.zeros_like(slopes), torch.zeros_like(values)
            step = max(1, CHUNK // len(slopes))
            with torch.enable_grad():
                own = slopes.detach().requires_grad_(), values.detach().requires_grad_()
                for start in range(0, samples, step):
                    part = slice(start, start + step)
                    made = plain_rows(rows[:, part], *own, tables)
                    more = torch.autograd.grad(made, own, given[:, part])
                    changed, moved = changed + more[0], moved + more[1]
        return back, changed, moved, None, None, None, None


def plain_rows(rows: torch.Tensor, slopes: torch.Tensor, values: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """The same rows in plain torch."""
    scores = slopes @ rows
    return torch.stack(
        [
            own[first:last] @ torch.softmax(scores[first:last], dim=0)
            for own, (first, last, _) in zip(values, tables.tolist(), strict=True)
        ]
    )


def table_rows(
    rows: torch.Tensor, slopes: torch.Tensor, values: torch.Tensor, layout: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    """One new row for each table: slopes are tokens × rows, values tables × tokens."""
    result: torch.Tensor = TableRows.apply(rows, slopes, values, *layout)
    return result
