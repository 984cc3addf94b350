"""The text of a program's Triton kernels: `scalar_code` for one block of samples, and what is around it."""

from __future__ import annotations

from collections.abc import Sequence

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
            *(f"    {name} = none" for name in (*(f"a{n}" for n in code.sums), *(f"m{k}" for k in own))),
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
            _store(code, "dw", [f"m{k}" for k in own], "", "tl.arange(0, 32)[:, None]", 1, 32)
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
