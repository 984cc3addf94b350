"""A whole program as one Triton kernel, forward and backward, from the text of `scalar_code`.

Nothing but points, outputs and their gradients passes through memory. exp is that of CUDA's library (Triton's own would
multiply by log2(e) first, and lose digits in large scores) and quotients are IEEE (Triton's float32 quotient is off by
up to two units in the last place, where the rounding model counts half a unit); a product and a sum may be fused. The
gradients of stored numbers are sums over the samples of a program, which are then added up.
"""

from __future__ import annotations

import linecache
from functools import lru_cache
from hashlib import sha256
from typing import Any

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable
from triton.language.extra import libdevice

#: Registers of a thread that keeps sums: as many as there are, or the compiler would keep them elsewhere.
MOST_REGISTERS = 255
#: Compiled kernels by text, name, device, dtype, and whether 32 bits hold the number of samples.
COMPILED: dict[tuple[str, str, int | None, torch.dtype, int], Any] = {}


@triton.jit
def div(above, below):
    """IEEE division."""
    return tl.div_rn(above, below) if above.dtype == tl.float32 else above / below


#: Whether CUDA's library is there; Triton's interpreter has none.
LIBRARY = tl.constexpr(isinstance(div, triton.JITFunction))


@triton.jit
def exp(score):
    """Within 2 units in the last place."""
    return libdevice.exp(score) if LIBRARY else tl.exp(score)


#: A compiled kernel is for any number of samples, anywhere in memory.
ARGUMENTS = ("x", "w", "y", "given", "dx", "dw", "samples")
kernel = triton.jit(do_not_specialize=ARGUMENTS, do_not_specialize_on_alignment=ARGUMENTS)


@triton.jit
def by_thread(value):
    """The sum of each thread of a warp."""
    return value if value.shape[0] == 32 else tl.sum(tl.reshape(value, [value.shape[0] // 32, 32]), axis=0)


@triton.jit
def shared(one, other, bit: tl.constexpr):
    """Sums of two threads, of ``one`` where the thread's number has a zero bit, and of ``other`` where it is set."""
    thread = tl.arange(0, 32)
    upper = (thread & bit) != 0
    return tl.where(upper, other, one) + tl.gather(tl.where(upper, one, other), thread ^ bit, 0)


@lru_cache(maxsize=256)
def kernels(source: str) -> dict[str, Any]:
    """The kernels of a text, which Triton reads again through `linecache`."""
    name = f"<transformula {sha256(source.encode()).hexdigest()}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    found: dict[str, Any] = {"__name__": __name__, "kernel": kernel, "tl": tl, "div": div, "exp": exp}
    found |= {"by_thread": by_thread, "shared": shared}
    exec(compile(source, name, "exec"), found)  # our own text: stored numbers are not in it
    return found


def _programs(source: str, name: str, samples: int) -> int:
    """How many programs there are."""
    block, _, most = kernels(source)["launches"][name]
    return min(most, triton.cdiv(samples, block))


def _launch(source: str, name: str, device: int | None, samples: int, x: torch.Tensor, *others: torch.Tensor) -> None:
    """Compiled kernels are kept: to find one by its arguments takes Triton longer than a launch."""
    if not samples:
        return
    grid = (_programs(source, name, samples), 1, 1)
    kind = source, name, device, x.dtype, samples >> 31
    if kind in COMPILED:
        COMPILED[kind][grid](x, *others, samples)
        return
    found = kernels(source)
    options = {} if torch.version.hip or name != "backward_weights" else {"maxnreg": MOST_REGISTERS}
    compiled = found[name][grid](x, *others, samples, num_warps=found["launches"][name][1], **options)
    if compiled is not None:  # Triton's interpreter compiles nothing
        COMPILED[kind] = compiled


def forward_rows(x: torch.Tensor, w: torch.Tensor, source: str, outputs: int) -> torch.Tensor:
    """Samples × inputs to samples × outputs."""
    y = x.new_empty(len(x), outputs)
    _launch(source, "forward", x.device.index, len(x), x.contiguous(), w, y)
    return y


def gradients(
    x: torch.Tensor, w: torch.Tensor, given: torch.Tensor, source: str, weights: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of points and numbers."""
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    device, leaves = x.device.index, (x.contiguous(), w, given.contiguous(), dx)
    if not weights or not len(x):
        _launch(source, "backward", device, len(x), *leaves)
        return dx, torch.zeros_like(w)
    rows = min(_programs(source, "backward_weights", len(x)), kernels(source)["rows"])
    sums = w.new_zeros if kernels(source)["loops"] else w.new_empty
    dw = sums(rows, -(-len(w) // 32) * 32)
    _launch(source, "backward_weights", device, len(x), *leaves, dw)
    return dx, dw[:, : len(w)].sum(dim=0)


#: The same for torch.compile, which does not look inside: its own exp and quotients would not be within the claim.
_forward_op = torch.library.custom_op("transformula::forward_rows", forward_rows, mutates_args=())
_forward_op.register_fake(lambda x, w, source, outputs: x.new_empty(x.shape[0], outputs))
_gradients_op = torch.library.custom_op("transformula::gradients", gradients, mutates_args=())
_gradients_op.register_fake(lambda x, w, *_: (x.new_empty(x.shape), torch.empty_like(w)))


class FusedRows(torch.autograd.Function):
    """`forward_rows`, differentiable once in points and numbers."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, source: str, outputs: int) -> torch.Tensor:
        """Samples × outputs."""
        ctx.save_for_backward(x, w)
        ctx.source = source
        return (_forward_op if torch.compiler.is_compiling() else forward_rows)(x, w, source, outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of points and numbers."""
        run, weights = _gradients_op if torch.compiler.is_compiling() else gradients, ctx.needs_input_grad[1]
        dx, dw = run(*ctx.saved_tensors, given, ctx.source, weights)
        return dx, dw if weights else None, None, None
