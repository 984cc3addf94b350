"""The one emitter: a program as scalar expressions in order, as a Triton kernel or as a function for torch.compile.

Row k of the program is the variable ``r{k}``, and ``w`` holds the stored numbers. Linear forms, powers (Horner's rule)
and tables are written out; a step of more than `UNROLLED` tokens is a loop over the numbers in Triton, and in torch a
call of its array code. The backward kernel repeats the forward lines and follows them in reverse: ``g{k}`` is the
gradient of row k, and each number occurs in one place, so that its own gradient is one sum: ``a{n}``, which a thread
keeps while its program goes from block to block of samples, or where those are too many, a sum over each block. Where
only the points' gradients are asked for, a table of one argument gives its derivative with its value: with the same
exponentials e, slopes a and values y it is (Σ e a y − T Σ e a) / Σ e, so that no exponential is kept or taken again.

*Rounding.* The lines add, multiply, divide once after the sums and take exponentials, as `program_steps` allows, and do
nothing else. Names decide the rest: ``div`` is IEEE division and ``exp`` a library's exponential, never the fast ones
of a compiler (`triton_program`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from transformula.runtime.program.numpy_backend import scores_kept
from transformula.runtime.program.packed_steps import UNROLLED, PackedStep, Softmax
from transformula.runtime.program.program_steps import ONE, AffineStep, GridStep, Powers

#: Numbers up to which a program is written out: compilers take seconds for a thousand.
MOST_NUMBERS = 4096
#: Samples of a block, warps, and the most programs, by kernel; where the forward kernel has a loop more samples share
#: what one of its steps reads; and where each thread keeps sums it goes through several blocks.
LAUNCHES = {"forward": (256, 4, 1 << 30), "backward": (128, 4, 1 << 30), "backward_weights": (64, 1, 1 << 30)}
LOOP_LAUNCHES = {"forward": (512, 2, 1 << 30), "backward": (256, 2, 1 << 30), "backward_weights": (128, 1, 1 << 30)}
SUMS_LAUNCH = (32, 1, 1056)
#: Bytes of stored numbers up to which every thread keeps a sum for each of them: about as many as registers hold.
SUMMED_BYTES = 950
#: A token's place: a number, or the variable of a loop.
Token = int | str


@dataclass
class Code:
    """The lines of one kernel or function."""

    shifted: bool
    triton: bool = False
    back: bool = False
    weights: bool = False
    summed: bool = False
    unrolled: int = UNROLLED
    lines: list[str] = field(default_factory=list)
    given: set[int] = field(default_factory=set)
    sums: list[str] = field(default_factory=list)
    indent: str = ""
    loads: str = ""

    def put(self, name: str, value: str) -> None:
        """An assignment."""
        self.lines.append(f"{self.indent}{name} = {value}")

    def number(self, place: str) -> str:
        """A stored number."""
        return f"tl.load(w + {place}{self.loads})" if self.triton else f"w[{place}]"

    def clamp(self, name: str, low: float, high: float = math.inf) -> None:
        """A variable held between two ends; Triton would round bare constants to float32."""
        for sign, side, end in (("<", "min", low), (">", "max", high)):
            if math.isfinite(end):
                held = f"tl.where({name} {sign} tl.full((), {end!r}, dtype), tl.full((), {end!r}, dtype), {name})"
                self.put(name, held if self.triton else f"{name}.clamp({side}={end!r})")  # NaN stays NaN

    def total(self, name: str, parts: Sequence[str]) -> None:
        """A sum, a few terms at a time."""
        for k in range(0, max(len(parts), 1), 8):
            self.put(name, " + ".join([*([name] if k else []), *parts[k : k + 8]]) or "zero")

    def each(self, packed: PackedStep, body: Callable[[Token, str], None]) -> None:
        """Lines for each token: ``body`` gets its place and an ending for its names."""
        if packed.tokens <= (self.unrolled if isinstance(packed.step, Softmax) else UNROLLED):
            for j in range(packed.tokens):
                body(j, f"{packed.first}_{j}")
            return
        self.lines.append(f"{self.indent}for j in range({packed.tokens}):")
        self.indent += "    "
        body("j", f"{packed.first}")
        self.indent = self.indent[:-4]

    def add(self, row: int, value: str) -> None:
        """A part of a row's gradient."""
        if row != ONE:
            self.put(f"g{row}", f"g{row} + {value}" if row in self.given else value)
            self.given.add(row)

    def gradient(self, place: str, value: str) -> None:
        """A part of a stored number's gradient: where there is room, each thread adds up its own."""
        if self.summed and place.isdigit():
            self.sums.append(place)
            self.put(f"a{place}", f"a{place} + {value}")
        elif self.weights:
            self.lines.append(f"{self.indent}{_added(place, value)}")


def _added(place: str, value: str) -> str:
    """A number's gradient, added up over the threads of a program."""
    return f"tl.atomic_add(dw + {place}, tl.sum({value}, axis=0), sem='relaxed')"


def _at(packed: PackedStep, array: int, *index: Token) -> str:
    """The place of a number, in a loop over one of its indices where that is a name."""
    place = packed.place(array, *(0 if isinstance(k, str) else k for k in index))
    strides = [math.prod(packed.shapes[array][k + 1 :]) for k in range(len(index))]
    return " + ".join([str(place), *(f"{k}*{n}" for k, n in zip(index, strides, strict=True) if isinstance(k, str))])


def _terms(packed: PackedStep, row: int) -> list[tuple[int, str]]:
    """The rows that a form reads, and the places of their factors."""
    return [(packed.reads[k], _at(packed, 0, row, k)) for k in np.flatnonzero(packed.arrays[0][row]).tolist()]


def _forms(packed: PackedStep, step: AffineStep, code: Code) -> None:
    for row in range(step.width):
        name, terms = f"r{packed.first + row}", _terms(packed, row)
        parts = [code.number(place) + ("" if read == ONE else f"*r{read}") for read, place in terms]
        code.total(name, ["zero", *parts] if all(read == ONE for read, _ in terms) else parts)
        if step.relu:
            code.put(name, f"tl.where({name} < 0, 0.0, {name})" if code.triton else f"{name}.relu()")


def _forms_back(packed: PackedStep, step: AffineStep, code: Code) -> None:
    for row in (k for k in range(step.width) if packed.first + k in code.given):
        name = f"g{packed.first + row}"
        if step.relu:
            code.put(name, f"tl.where(r{packed.first + row} > 0, {name}, 0.0)")
        for read, place in _terms(packed, row):
            code.gradient(place, name if read == ONE else f"{name}*r{read}")
            code.add(read, f"{code.number(place)}*{name}")


def _factors(packed: PackedStep, j: Token) -> list[tuple[str, str, str]]:
    """For each argument of a token's linear form: its name, the name of its gradient, and the place of its factor."""
    skip = int(isinstance(packed.step, Softmax))  # a token's offset
    written = isinstance(j, int) and not skip
    used = np.flatnonzero(packed.arrays[0][int(j)]).tolist() if written else range(len(packed.reads))
    return [(f"u{packed.first}_{a}", f"d{packed.first}_{a}", _at(packed, 0, j, a + skip)) for a in used]


def _linear(packed: PackedStep, code: Code, j: Token, name: str) -> None:
    """A token's linear form: its score, or the argument of its powers."""
    first = [code.number(_at(packed, 0, j, 0))] if isinstance(packed.step, Softmax) else []
    products = [f"{code.number(place)}*{argument}" for argument, _, place in _factors(packed, j)]
    code.total(name, [*first, *(products or ["zero"])])


def _linear_back(packed: PackedStep, code: Code, j: Token, value: str) -> None:
    for argument, gradient, place in _factors(packed, j):
        code.gradient(place, f"{value}*{argument}")
        code.put(gradient, f"{gradient} + {code.number(place)}*{value}")


def _exponential(packed: PackedStep, step: Softmax, code: Code, j: Token, end: str) -> None:
    _linear(packed, code, j, f"s{end}")
    if code.shifted or step.anchors is None:
        code.put(f"s{end}", f"s{end} - m{packed.first}")
    if step.sinks and not code.triton:  # exponentials next to underflow are slow on some CPUs
        code.clamp(f"s{end}", float(scores_kept(step.block.dtype)))
    code.put(f"e{end}", f"exp(s{end})")


def _with_slope(packed: PackedStep, code: Code) -> bool:
    """Whether a table's derivative is taken with its value."""
    return code.back and not code.weights and len(packed.reads) == 1


def _softmax(packed: PackedStep, step: Softmax, code: Code) -> None:
    p = packed.first
    shifted = code.shifted or step.anchors is None
    columns = range(step.width)
    for a, (read, ends) in enumerate(zip(packed.reads, step.clamps, strict=True)):
        code.put(f"u{p}_{a}", f"r{read}")
        if not shifted:
            code.clamp(f"u{p}_{a}", *ends)
    if shifted:
        code.put(f"m{p}", "zero + float('-inf')" if step.anchors is None else "zero")

        def larger(j: Token, end: str) -> None:
            _linear(packed, code, j, f"s{end}")
            code.put(
                f"m{p}", f"tl.where(m{p} < s{end}, s{end}, m{p})" if code.triton else f"m{p}.maximum(s{end}.detach())"
            )

        code.each(packed, larger)
    code.put(f"o{p}", "zero" if step.anchors is None else f"exp(-m{p})" if shifted else "zero + 1.0")
    code.put(f"b{p}", f"o{p}")
    for c in columns:
        code.put(f"r{p + c}", f"o{p}" if step.anchors is None else f"{code.number(_at(packed, 1, c))}*o{p}")

    slopes = [f"d{p + c}" for c in columns] if _with_slope(packed, code) else []
    for name in (f"h{p}", *slopes) if slopes else ():
        code.put(name, "zero")

    def more(j: Token, end: str) -> None:
        _exponential(packed, step, code, j, end)
        code.put(f"b{p}", f"b{p} + e{end}")
        values = [code.number(_at(packed, 0, j, c - step.width)) for c in columns]
        for c in columns:
            code.put(f"r{p + c}", f"r{p + c} + {values[c]}*e{end}")
        if slopes:
            code.put(f"e{end}", f"{code.number(_at(packed, 0, j, 1))}*e{end}")
            code.put(f"h{p}", f"h{p} + e{end}")
        for name, value in zip(slopes, values, strict=False):
            code.put(name, f"{name} + {value}*e{end}")

    code.each(packed, more)
    if code.back:
        code.put(f"v{p}", f"1.0/b{p}")
    for c in columns:
        code.put(f"r{p + c}", f"r{p + c}*v{p}" if code.back else f"div(r{p + c}, b{p})")
    for c, name in enumerate(slopes):
        code.put(name, f"({name} - r{p + c}*h{p})*v{p}")


def _softmax_back(packed: PackedStep, step: Softmax, code: Code) -> None:
    """With q = g/Σe the score of a token gets e Σ_c q_c (y_c − T_c)."""
    p, columns = packed.first, [c for c in range(step.width) if packed.first + c in code.given]
    if _with_slope(packed, code):
        code.total(f"d{p}_0", [f"g{p + c}*d{p + c}" for c in columns])
        return _arguments_back(packed, code)
    for c in columns:
        code.put(f"q{p}_{c}", f"g{p + c}*v{p}")
        if step.anchors is not None:
            code.gradient(_at(packed, 1, c), f"q{p}_{c}*o{p}")

    def follow(j: Token, end: str) -> None:
        if isinstance(j, str):  # the loop has kept nothing
            _exponential(packed, step, code, j, end)
        places = {c: _at(packed, 0, j, c - step.width) for c in columns}
        for c, place in places.items():
            code.gradient(place, f"q{p}_{c}*e{end}")
        code.total(f"f{end}", [f"q{p}_{c}*({code.number(place)} - r{p + c})" for c, place in places.items()])
        code.put(f"f{end}", f"f{end}*e{end}")
        code.gradient(_at(packed, 0, j, 0), f"f{end}")
        _linear_back(packed, code, j, f"f{end}")

    if columns:
        _tokens_back(packed, code, follow)


def _tokens_back(packed: PackedStep, code: Code, follow: Callable[[Token, str], None]) -> None:
    """The gradients of all that the tokens read."""
    for a in range(len(packed.reads)):
        code.put(f"d{packed.first}_{a}", "zero")
    code.each(packed, follow)
    _arguments_back(packed, code)


def _arguments_back(packed: PackedStep, code: Code) -> None:
    """Zero where an argument was clamped."""
    for a, read in enumerate(packed.reads):
        code.add(read, f"tl.where(r{read} == u{packed.first}_{a}, d{packed.first}_{a}, 0.0)")


def _ridges(packed: PackedStep, step: Powers, code: Code) -> None:
    p = packed.first
    for a, read in enumerate(packed.reads):
        code.put(f"u{p}_{a}", f"r{read}")
    for output in range(step.width):
        code.put(f"r{p + output}", "zero")

    def more(j: Token, end: str) -> None:
        _linear(packed, code, j, f"t{end}")
        for output in range(step.width):
            if places := _coefficients(packed, j, output):
                value = _horner({s: code.number(place) for s, place in places.items()}, f"t{end}")
                code.put(f"r{p + output}", f"r{p + output} + {value}*t{end}")

    code.each(packed, more)


def _coefficients(packed: PackedStep, j: Token, output: int) -> dict[int, str]:
    """The places of a token's coefficients, by power; without zeros where the token is written out."""
    table = packed.arrays[1][:, output]
    used = range(len(table)) if isinstance(j, str) else np.flatnonzero(table[:, j]).tolist()
    return {s: _at(packed, 1, s, output, j) for s in used if s}


def _horner(factors: dict[int, str], t: str) -> str:
    """Σ_s factors[s] t^(s − 1)."""
    value = factors[max(factors)]
    for s in range(max(factors) - 1, 0, -1):
        value = f"({value}*{t} + {factors[s]})" if s in factors else f"({value}*{t})"
    return value


def _ridges_back(packed: PackedStep, step: Powers, code: Code) -> None:
    outputs = [o for o in range(step.width) if packed.first + o in code.given]

    def follow(j: Token, end: str) -> None:
        if isinstance(j, str):
            _linear(packed, code, j, f"t{end}")
        slopes = []
        for output, places in ((o, found) for o in outputs if (found := _coefficients(packed, j, o))):
            given, t = f"g{packed.first + output}", f"t{end}"
            slopes.append(f"{given}*{_horner({s: f'{s}*{code.number(n)}' for s, n in places.items()}, t)}")
            for s, place in places.items():
                code.gradient(place, "*".join([given, *[t] * s]))
        code.total(f"f{end}", slopes)
        _linear_back(packed, code, j, f"f{end}")

    if outputs:
        _tokens_back(packed, code, follow)


_FORWARD: dict[type, Callable[..., None]] = {AffineStep: _forms, Softmax: _softmax, Powers: _ridges}
_BACKWARD: dict[type, Callable[..., None]] = {AffineStep: _forms_back, Softmax: _softmax_back, Powers: _ridges_back}


def _too_long(steps: Sequence[PackedStep]) -> bool:
    return sum(int(step.kept.sum()) for step in steps if step.tokens <= UNROLLED) > MOST_NUMBERS


def torch_source(steps: Sequence[PackedStep], inputs: int, outputs: Sequence[int], shifted: bool) -> str:
    """A function of points (samples × inputs), numbers, the same with fixed zeros, and steps."""
    code, arrays = Code(shifted), _too_long(steps)
    for k, packed in enumerate(steps):
        if arrays or packed.tokens > UNROLLED or isinstance(packed.step, GridStep):
            new = "".join(f"r{packed.first + c}, " for c in range(packed.step.width))
            read = ", ".join(f"r{row}" for row in packed.reads)
            code.put(new, f"steps[{k}].run(kept, [{read}], {shifted})")
        else:
            _FORWARD[type(packed.step)](packed, packed.step, code)
    names = ["".join(f"r{row}, " for row in rows) for rows in (range(1, 1 + inputs), outputs)]
    columns = f"{names[0]} = stack(x.unbind(1)).unbind()"  # torch.compile vectorises no loop with many strided reads
    begin = ["def rows_of(x, w, kept, steps):", columns, "zero = zeros_like(r1)", "r0 = zero + 1.0"]
    return "\n    ".join([*begin, *code.lines, f"return stack([{names[1]}], 1)"]) + "\n"


def triton_source(steps: Sequence[PackedStep], inputs: int, outputs: Sequence[int], shifted: bool) -> str:
    """Kernels for rows, for gradients of the points, and of the numbers too; nothing where there is a grid."""
    if _too_long(steps) or any(isinstance(packed.step, GridStep) for packed in steps):
        return ""
    summed = sum(int(p.kept.sum()) * p.numbers.itemsize for p in steps) <= SUMMED_BYTES
    launches = dict(LOOP_LAUNCHES if any(p.tokens > UNROLLED for p in steps) else LAUNCHES)
    if summed:
        launches["backward_weights"] = SUMS_LAUNCH
    kernels = [f"launches = {launches}\n"]
    for name, (block, *_) in launches.items():
        weights = name == "backward_weights"
        unrolled = 1 if weights and not summed else UNROLLED  # exponentials are kept, or loops take them again
        code = Code(shifted, True, name != "forward", weights, weights and summed, unrolled, indent="    " * 2)
        names = ["x", "w", *{"forward": ["y"], "backward": ["given", "dx"]}.get(name, ["given", "dx", "dw", "shares"])]
        _kernel(steps, inputs, outputs, code, names)
        share = f"dw += (tl.program_id(0) % shares).to(tl.int64)*{sum(len(p.numbers) for p in steps)}"
        begin = [
            f"@kernel\ndef {name}({', '.join(names)}, samples):",
            "    dtype: tl.constexpr = x.dtype.element_ty",
            *([f"    {share}"] if weights else []),
            *(f"    a{place} = tl.zeros([{block}], dtype)" for place in code.sums),
            "    block = tl.program_id(0)",
            f"    while block <= (samples - 1)//{block}:",
            f"        place = block.to(tl.int64)*{block} + tl.arange(0, {block})",
        ]
        end = ["        block += tl.num_programs(0)"]
        end += [f"    {_added(place, f'a{place}')}" for place in code.sums]
        kernels.append("\n".join([*begin, *code.lines, *end]) + "\n")
    return "\n\n".join(kernels)


def _kernel(steps: Sequence[PackedStep], inputs: int, outputs: Sequence[int], code: Code, names: Sequence[str]) -> None:
    """One block of samples: from the points to the rows, and back to the gradients."""
    code.put("held", "tl.minimum(place, samples - 1)")  # nothing is computed from numbers that are not there
    for k in range(inputs):
        code.put(f"r{1 + k}", f"tl.load(x + held*{inputs} + {k})")
    code.put("zero", "tl.zeros_like(r1)")
    code.put("r0", "zero + 1.0")
    for packed in steps:
        _FORWARD[type(packed.step)](packed, packed.step, code)
    array, ends = "y", [f"r{row}" for row in outputs]
    if "dx" in names:
        code.loads = ", cache_modifier='.ca'"  # the default, but else Triton would keep all numbers in registers
        for c, row in enumerate(outputs):
            code.add(row, f"tl.where(place < samples, tl.load(given + held*{len(outputs)} + {c}), 0.0)")
        for packed in reversed(steps):
            _BACKWARD[type(packed.step)](packed, packed.step, code)
        array, ends = "dx", [f"g{row}" if row in code.given else "zero" for row in range(1, 1 + inputs)]
    width = 1 << (len(ends) - 1).bit_length()
    code.put("column", f"tl.arange(0, {width})[None, :]")
    code.put("there", f"(place < samples)[:, None] & (column < {len(ends)})")
    value = _joined([*ends, *["zero"] * (width - len(ends))])
    code.put("value", f"tl.reshape({value}, (place.shape[0], {width}))")
    code.lines.append(f"{code.indent}tl.store({array} + place[:, None]*{len(ends)} + column, value, mask=there)")


def _joined(columns: list[str]) -> str:
    """Columns side by side, so that neighbours in memory are written together."""
    if len(columns) == 1:
        return columns[0]
    half = len(columns) // 2
    return _joined([f"tl.join({a}, {b})" for a, b in zip(columns[:half], columns[half:], strict=True)])
