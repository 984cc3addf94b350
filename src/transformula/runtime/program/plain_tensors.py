"""When a tensor can be treated as plain numbers."""

from __future__ import annotations

import torch
from torch._C import _is_tracing, _len_torch_dispatch_stack
from torch.autograd.forward_ad import unpack_dual


def only_numbers(x: torch.Tensor) -> bool:
    """Whether only the numbers of a tensor matter: then NumPy may work on its memory.

    That is not so on another device, where gradients are needed, or while a graph of the computation is recorded.
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
