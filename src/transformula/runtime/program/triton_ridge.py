"""Ridge polynomials on CUDA: Σ_k Σ_s c_{s,k} (ξ_k·x)^s for all samples, forward and backward, in fused Triton kernels.

A program of the forward kernel takes some samples and sweeps over the tokens; t = ξ_k·x and its powers never leave
the chip, so nothing of size samples × tokens is stored. The gradient for x is a sweep of the same kind; those for the
directions ξ and the coefficients c sweep over the samples and add up partial sums. Products are IEEE float32 or
float64, never TF32, and Horner's rule takes one fused multiply-add for each power, as the rounding of
`kernel.rules.polynomial_rule` assumes.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

#: Samples and tokens of a tile.
TILE = {torch.float32: (64, 32), torch.float64: (32, 32)}
#: What one warp adds up, what lies side by side in it, and warps: so no thread waits for another's sum.
BACK = (8, 128, 1)
#: About how many programs share the sums over samples.
PROGRAMS = 4096


@triton.jit
def _tile(x, f, rows, tokens, samples, count, D: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """t = x·ξ on a tile, by outer products: x is (D, samples), f is (D, tokens)."""
    t = tl.zeros((BN, BK), dtype=x.dtype.element_ty)
    for d in tl.static_range(D):
        a = tl.load(x + d * samples + rows, mask=rows < samples, other=0.0)
        b = tl.load(f + d * count + tokens, mask=tokens < count, other=0.0)
        t += a[:, None] * b[None, :]
    return t


@triton.jit
def _forward(x, f, c, y, samples, count, D: tl.constexpr, Q: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y[output, rows]: c is (outputs, Q, tokens), powers 1 to Q."""
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    c += tl.program_id(1) * Q * count
    total = tl.zeros((BN, BK), dtype=x.dtype.element_ty)
    for start in range(0, count, BK):
        tokens = start + tl.arange(0, BK)
        t = _tile(x, f, rows, tokens, samples, count, D, BN, BK)
        part = tl.zeros((BN, BK), dtype=x.dtype.element_ty)
        for s in tl.static_range(Q):
            part = (part + tl.load(c + (Q - 1 - s) * count + tokens, mask=tokens < count, other=0.0)[None, :]) * t
        total += part
    tl.store(y + tl.program_id(1) * samples + rows, tl.sum(total, axis=1), mask=rows < samples)


@triton.jit
def _slope(t, c, tokens, count, Q: tl.constexpr):
    """Σ_s s c_s t^{s-1}; tokens is a column or a row, as in t."""
    slope = tl.zeros_like(t)
    for s in tl.static_range(Q):
        slope = slope * t + (Q - s) * tl.load(c + (Q - 1 - s) * count + tokens, mask=tokens < count, other=0.0)
    return slope


@triton.jit
def _backward_rows(
    x,
    f,
    c,
    g,
    dx,
    samples,
    count,
    D: tl.constexpr,
    Q: tl.constexpr,
    O: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """dx = Σ_k (Σ_o g_o slope_{o,k}) ξ_k: tokens × samples, so that one thread adds up all tokens of a sample."""
    rows = (tl.program_id(0) * BN + tl.arange(0, BN))[None, :]
    total = ()
    for _ in tl.static_range(D):
        total = total + (tl.zeros((BN,), dtype=x.dtype.element_ty),)
    for start in range(0, count, BK):
        tokens = (start + tl.arange(0, BK))[:, None]
        t = tl.zeros((BK, BN), dtype=x.dtype.element_ty)
        for d in tl.static_range(D):
            a = tl.load(x + d * samples + rows, mask=rows < samples, other=0.0)
            t += a * tl.load(f + d * count + tokens, mask=tokens < count, other=0.0)
        weight = tl.zeros((BK, BN), dtype=x.dtype.element_ty)
        for o in range(O):
            given = tl.load(g + o * samples + rows, mask=rows < samples, other=0.0)
            weight += given * _slope(t, c + o * Q * count, tokens, count, Q)
        more = ()
        for d in tl.static_range(D):
            direction = tl.load(f + d * count + tokens, mask=tokens < count, other=0.0)
            more = more + (total[d] + tl.sum(weight * direction, axis=0),)
        total = more
    flat = tl.program_id(0) * BN + tl.arange(0, BN)
    for d in tl.static_range(D):
        tl.store(dx + d * samples + flat, total[d], mask=flat < samples)


@triton.jit
def _backward_weights(
    x, f, c, g, df, dc, samples, count, share, D: tl.constexpr, Q: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Partial sums over a share of the samples, for one output: dξ_k = Σ_n (..) x_n, dc_{s,k} = Σ_n g t^s."""
    flat = tl.program_id(0) * BK + tl.arange(0, BK)
    tokens = flat[None, :]
    part, output = tl.program_id(1), tl.program_id(2)
    slot = output * tl.num_programs(1) + part
    total, powers = (), ()
    for _ in tl.static_range(D):
        total = total + (tl.zeros((BK,), dtype=x.dtype.element_ty),)
    for _ in tl.static_range(Q):
        powers = powers + (tl.zeros((BK,), dtype=x.dtype.element_ty),)
    for start in range(part * share, tl.minimum((part + 1) * share, samples), BN):
        rows = (start + tl.arange(0, BN))[:, None]
        t = tl.zeros((BN, BK), dtype=x.dtype.element_ty)
        for d in tl.static_range(D):
            a = tl.load(x + d * samples + rows, mask=rows < samples, other=0.0)
            t += a * tl.load(f + d * count + tokens, mask=tokens < count, other=0.0)
        given = tl.load(g + output * samples + rows, mask=rows < samples, other=0.0)
        weight = given * _slope(t, c + output * Q * count, tokens, count, Q)
        power = given * t
        sums = ()
        for s in tl.static_range(Q):
            sums = sums + (powers[s] + tl.sum(power, axis=0),)
            power = power * t
        powers = sums
        more = ()
        for d in tl.static_range(D):
            a = tl.load(x + d * samples + rows, mask=rows < samples, other=0.0)
            more = more + (total[d] + tl.sum(weight * a, axis=0),)
        total = more
    for d in tl.static_range(D):
        tl.store(df + (slot * D + d) * count + flat, total[d], mask=flat < count)
    for s in tl.static_range(Q):
        tl.store(dc + (slot * Q + s) * count + flat, powers[s], mask=flat < count)


class RidgeRows(torch.autograd.Function):
    """Row o is Σ_s Σ_k c_{s,o,k} (ξ_k·x)^s, s ≥ 1.

    Rows are inputs × samples, ξ is tokens × inputs, c powers × outputs × tokens.
    """

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, directions: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
        """Outputs × samples."""
        rows, f = rows.contiguous(), directions.T.contiguous()
        c = coefficients[1:].transpose(0, 1).contiguous()
        outputs, degree, count = c.shape
        samples = rows.shape[1]
        result = rows.new_empty(outputs, samples)
        bn, bk = TILE[rows.dtype]
        if samples:
            grid = (triton.cdiv(samples, bn), outputs)
            _forward[grid](rows, f, c, result, samples, count, len(f), degree, bn, bk)
        ctx.save_for_backward(rows, f, c)
        return result

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the rows, of ξ and of c."""
        rows, f, c = ctx.saved_tensors
        outputs, degree, count = c.shape
        inputs, samples = rows.shape
        given = given.contiguous()
        back = turned = changed = None
        bn, bk, warps = BACK
        if ctx.needs_input_grad[0]:
            back = torch.zeros_like(rows)
            if samples:
                _backward_rows[(triton.cdiv(samples, bk),)](
                    rows, f, c, given, back, samples, count, inputs, degree, outputs, bk, bn, num_warps=warps
                )
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            tiles = triton.cdiv(count, bk)
            parts = max(1, min(triton.cdiv(samples, bn), PROGRAMS // tiles))
            share = triton.cdiv(triton.cdiv(samples, parts), bn) * bn
            parts = max(1, triton.cdiv(samples, max(share, 1)))
            sums = rows.new_zeros(outputs, parts, inputs, count), rows.new_zeros(outputs, parts, degree, count)
            if samples:
                _backward_weights[(tiles, parts, outputs)](
                    rows, f, c, given, *sums, samples, count, share, inputs, degree, bn, bk, num_warps=warps
                )
            turned = sums[0].sum((0, 1)).T
            powers = sums[1].sum(1).transpose(0, 1)
            changed = torch.cat([torch.zeros_like(powers[:1]), powers])
        return back, turned, changed


def ridge_rows(rows: torch.Tensor, directions: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    """The polynomials without their constant terms, outputs × samples; differentiable in all three."""
    result: torch.Tensor = RidgeRows.apply(rows, directions, coefficients)
    return result
