"""A program as a PyTorch module: differentiable, any device, memory bounded by a budget.

On a GPU with Triton a program without grids is one kernel (`triton_program`), under torch.compile on a CPU one loop;
both come from one emitter (`scalar_code`). Everything else runs step by step (`packed_steps`) in chunks of at most
`BUDGET_FLOATS` numbers (512 MB in float64), fewer on a CPU, where they should stay in the cache; with gradients a
chunk's intermediates are recomputed in the backward pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._C import _is_tracing, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd.forward_ad import unpack_dual
from torch.utils.checkpoint import checkpoint

from transformula.runtime.program.packed_steps import pack_steps
from transformula.runtime.program.program_steps import Powers, Program
from transformula.runtime.program.scalar_code import torch_source

#: Intermediates of a chunk, in floats.
BUDGET_FLOATS = 1 << 26
#: Intermediates of a chunk on a CPU, in floats: the size of a core's cache.
CPU_FLOATS = 1 << 20
#: Functions by their texts.
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {}


def only_numbers(x: torch.Tensor) -> bool:
    """Whether only the numbers of a tensor matter, so that NumPy may work on its memory.

    More matters on another device, where gradients are needed, and while a graph of the computation is recorded.
    """
    if type(x) is not torch.Tensor or x.device.type != "cpu" or x.layout != torch.strided:
        return False
    recorded = torch.compiler.is_compiling() or _is_tracing() or _len_torch_dispatch_stack()
    return not (recorded or (x.requires_grad and torch.is_grad_enabled()) or _transformed(x))


def _transformed(x: torch.Tensor) -> bool:
    """Whether torch.func or forward-mode differentiation follows the computation."""
    return peek_interpreter_stack() is not None or unpack_dual(x).tangent is not None


@cache
def kernels_work() -> bool:
    """Whether Triton is installed and finds what it needs; if not, one note says so."""
    try:
        from triton.language import gather  # noqa: F401
        from triton.runtime import driver

        driver.active.get_current_device()
    except Exception as reason:
        warnings.warn(f"models run step by step on this GPU, which is slower: no Triton ({reason})", stacklevel=2)
        return False
    return True


class ProgramModule(nn.Module):
    """A program on tensors; its parameter is the vector of stored numbers.

    Examples
    --------
    >>> import transformula as tf, torch
    >>> module = tf.compile("x**2", on="x=-1..1").to_torch()
    >>> module(torch.tensor([[0.5]], dtype=torch.float64)).item()
    0.25
    """

    kept: torch.Tensor

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.inputs = program.inputs
        self.positions = program.positions
        self.outputs = program.outputs.tolist()
        self.dtype: torch.dtype = getattr(torch, program.dtype)
        powers = [3 * len(step.directions) for step in program.steps if isinstance(step, Powers)]
        self.floats = max([program.floats, *powers])
        self.steps = pack_steps(program)
        parts = [np.zeros((2, 0), program.dtype), *(np.stack([step.numbers, step.kept]) for step in self.steps)]
        numbers, kept = torch.from_numpy(np.concatenate(parts, axis=1)).unbind()
        self.numbers = nn.Parameter(numbers.clone())
        self.register_buffer("kept", kept.clone())
        self._texts: dict[tuple[str, torch.dtype], str] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Samples × inputs to samples × outputs."""
        if self.positions == 1 and x.shape[1:] == (self.inputs,):
            return self.rows(x)  # two calls of reshape take a fifth of a small model's time on a GPU
        return self.rows(x.reshape(-1, self.inputs)).reshape(x.shape[0], len(self.outputs) * self.positions)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """Positions × inputs to positions × outputs, in the fastest way there is for the device."""
        if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():  # older: True whenever traced
            return self.evaluate(x)
        compiling = torch.compiler.is_compiling()
        fits = x.is_cuda and x.dtype == self.numbers.dtype and x.dtype in (torch.float32, torch.float64)
        if fits and (compiling or not _transformed(x)) and (text := self.text("triton", x.dtype)):
            from transformula.runtime.program.triton_program import FusedRows, forward_rows

            run = FusedRows.apply if compiling or self.differentiated(x) else forward_rows
            return run(x, self.numbers, text, len(self.outputs))
        if compiling:  # its own exp and float32 quotients for GPUs are not within the claim
            return self.uncompiled(x) if x.is_cuda else self.written(x)
        return self.in_chunks(x)

    def differentiated(self, x: torch.Tensor) -> bool:
        """Whether a gradient may be asked for."""
        return torch.is_grad_enabled() and (x.requires_grad or self.numbers.requires_grad)

    def written(self, x: torch.Tensor) -> torch.Tensor:
        """The same in scalar expressions, which torch.compile makes one loop of."""
        return FUNCTIONS[self.text("torch", x.dtype)](x, self.numbers, self.numbers * self.kept, self.steps)

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def text(self, kind: str, dtype: torch.dtype) -> str:
        """The program as scalar expressions; empty where Triton is missing, it would be too long, or has a grid."""
        if kind == "triton" and not kernels_work():
            return ""
        if (kind, dtype) not in self._texts:
            write = torch_source
            if kind == "triton":
                from transformula.runtime.program.triton_program import triton_source as write
            self._texts[kind, dtype] = write(self.steps, self.inputs, self.outputs, dtype != self.dtype)
        text = self._texts[kind, dtype]
        if kind == "torch" and text not in FUNCTIONS:
            names: dict[str, Any] = {name: getattr(torch, name) for name in ("exp", "div", "stack", "zeros_like")}
            exec(text, names)  # our own text, without a stored number
            FUNCTIONS[text] = names["rows_of"]
        return text

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def uncompiled(self, x: torch.Tensor) -> torch.Tensor:
        """`rows`, which torch.compile leaves alone."""
        return self.rows(x)

    def in_chunks(self, x: torch.Tensor) -> torch.Tensor:
        """Step by step, some positions at a time."""
        parts = x.split(max(64, (CPU_FLOATS if x.device.type == "cpu" else BUDGET_FLOATS) // self.floats))
        again = len(parts) > 1 and self.differentiated(x)
        results = [checkpoint(self.evaluate, p, use_reentrant=False) if again else self.evaluate(p) for p in parts]
        return results[0] if len(results) == 1 else torch.cat(results)

    def evaluate(self, x: torch.Tensor) -> torch.Tensor:
        """One chunk: positions × inputs to positions × outputs."""
        w = self.numbers * self.kept
        rows = [x.new_ones(x.shape[0]), *x.T.contiguous().unbind()]
        for step in self.steps:
            rows += step.run(w, [rows[k] for k in step.reads], x.dtype != self.dtype).unbind()
        return torch.stack([rows[k] for k in self.outputs], dim=1)
