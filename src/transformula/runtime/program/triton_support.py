"""Whether fused Triton kernels can be used: on CUDA, if Triton is installed. Everything also runs without them."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

#: The most inputs of a fused polynomial: a thread keeps one gradient for each.
MAX_INPUTS = 32


def fused(rows: torch.Tensor) -> bool:
    """Whether they are used for these rows: not under torch.compile, which fuses by itself."""
    kind = rows.is_cuda and rows.dtype in (torch.float32, torch.float64)
    return kind and not torch.compiler.is_compiling() and _installed()


@cache
def _installed() -> bool:
    return find_spec("triton") is not None
