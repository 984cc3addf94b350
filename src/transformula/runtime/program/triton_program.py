"""A whole program as one Triton kernel, forward and backward, around the lines of `scalar_code` for a block of samples.

Nothing but points, outputs and their gradients passes through memory. exp is that of CUDA's library (Triton's own would
multiply by log2(e) first, and lose digits in large scores) and quotients are IEEE (Triton's float32 quotient is off by
up to two units in the last place, where the rounding model counts half a unit); a product and a sum may be fused. The
gradients of stored numbers are sums over the samples of a program, which are then added up.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable
from triton.language.extra import libdevice

from transformula.runtime.program.packed_steps import UNROLLED, PackedStep
from transformula.runtime.program.program_steps import GridStep
from transformula.runtime.program.scalar_code import BACKWARD, FORWARD, Code, too_long

#: Samples of a block, warps, and the most programs, by kernel; in loops more samples share what one step reads.
LAUNCHES = {"forward": (256, 4, 1 << 30), "backward": (128, 4, 1 << 30), "backward_weights": (64, 1, 1056)}
LOOP_LAUNCHES = {"forward": (512, 2, 1 << 30), "backward": (256, 2, 1 << 30), "backward_weights": (128, 1, 1 << 30)}
#: Bytes of stored numbers above which registers have no room for two samples, and above which for no sums of a thread.
SAMPLE_BYTES, SUMMED_BYTES = 1500, 1200
#: Floats in which the gradients of stored numbers are added up, a row a program.
SUMS = 1 << 22
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


def triton_source(steps: Sequence[PackedStep], inputs: int, outputs: Sequence[int], shifted: bool) -> str:
    """Kernels for rows, for gradients of the points, and of the numbers too; nothing where there is a grid."""
    if too_long(steps) or any(isinstance(packed.step, GridStep) for packed in steps):
        return ""
    loops, numbers = any(p.tokens > UNROLLED for p in steps), sum(len(p.numbers) for p in steps)
    launches, groups = dict(LOOP_LAUNCHES if loops else LAUNCHES), -(-numbers // 32)
    block, warps, most = launches["backward_weights"]
    rows, room = min(most, 1 + SUMS // max(1, numbers)), -1
    if not loops:
        size = max((p.numbers.itemsize for p in steps), default=8)
        held = size * sum(int(p.kept.sum()) for p in steps)
        launches["backward_weights"] = 32 if held > SAMPLE_BYTES else block, warps, rows
        room = max(0, SUMMED_BYTES - held) // (2 * size)
    kernels = [f"launches, rows, loops = {launches}, {rows}, {loops}\n"]
    for name, (block, *_) in launches.items():
        weights = name == "backward_weights"
        code = Code(shifted, True, name != "forward", weights, room, indent="    " * 2)
        names = ["x", "w", *{"forward": ["y"], "backward": ["given", "dx"]}.get(name, ["given", "dx", "dw"])]
        _kernel(steps, inputs, outputs, code, names)
        code.spread_rest()
        own = range(groups if weights and not loops else 0)
        begin = [
            f"@kernel\ndef {name}({', '.join(names)}, samples):",
            "    dtype: tl.constexpr = x.dtype.element_ty",
            f"    dw += (tl.program_id(0) % {rows}).to(tl.int64)*{32 * groups}" if weights else "",
            "    none = tl.zeros([32], dtype)",
            *(f"    {name} = none" for name in (*(f"a{n}" for n in code.sums), *(f"sum{k}" for k in own))),
            "    block = tl.program_id(0)",
            f"    while block <= (samples - 1)//{block}:",
            f"        place = block.to(tl.int64)*{block} + tl.arange(0, {block})",
        ]
        code.lines.append("        block += tl.num_programs(0)")
        code.indent = "    "
        for n in code.sums:
            code.spread(f"a{n}", n)
        code.spread_rest()
        if own:
            _store(code, "dw", [f"sum{k}" for k in own], "", "tl.arange(0, 32)[:, None]", 1, 32)
        kernels.append("\n".join([*begin, *code.lines]) + "\n")
    return "\n\n".join(kernels)


def _kernel(steps: Sequence[PackedStep], inputs: int, outputs: Sequence[int], code: Code, names: Sequence[str]) -> None:
    """One block of samples: from the points to the rows, and back to the gradients."""
    code.put("held", "tl.minimum(place, samples - 1)")  # nothing is computed from numbers that are not there
    for k in range(inputs):
        code.put(f"r{1 + k}", f"tl.load(x + held*{inputs} + {k})")
    code.put("zero", "tl.zeros_like(r1)")
    code.put("r0", "zero + 1.0")
    for packed in steps:
        FORWARD[type(packed.step)](packed, packed.step, code)
    array, ends = "y", [f"r{row}" for row in outputs]
    if "dx" in names:
        code.loads = ", cache_modifier='.ca'"  # the default, but else Triton would keep all numbers in registers
        for c, row in enumerate(outputs):
            code.add(row, f"tl.where(place < samples, tl.load(given + held*{len(outputs)} + {c}), 0.0)")
        for packed in reversed(steps):
            BACKWARD[type(packed.step)](packed, packed.step, code)
        array, ends = "dx", [f"g{row}" if row in code.given else "zero" for row in range(1, 1 + inputs)]
    _store(code, array, ends, "(place < samples)[:, None] & ", "place[:, None]", len(ends), 1)


def _store(code: Code, array: str, columns: list[str], there: str, row: str, *strides: int) -> None:
    """Columns side by side, so that neighbours in memory are written together."""
    width = 1 << (len(columns) - 1).bit_length()
    code.put("column", f"tl.arange(0, {width})[None, :]")
    value = _joined([*columns, *columns[:1] * (width - len(columns))])
    code.put("value", f"tl.reshape({value}, ({columns[0]}.shape[0], {width}))")
    code.put("there", f"{there}(column < {len(columns)})")
    code.lines.append(f"{code.indent}tl.store({array} + {row}*{strides[0]} + column*{strides[1]}, value, mask=there)")


def _joined(columns: list[str]) -> str:
    if len(columns) == 1:
        return columns[0]
    half = len(columns) // 2
    return _joined([f"tl.join({a}, {b})" for a, b in zip(columns[:half], columns[half:], strict=True)])


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
