"""The one emitter: a program as scalar expressions in order, for Triton kernels or as a function for torch.compile.

Row k of the program is the variable ``r{k}``, and ``w`` holds the stored numbers. Linear forms, powers (Horner's rule)
and tables are written out; a step of more than `UNROLLED` tokens is a loop over the numbers in Triton, and in torch a
call of its array code. The backward kernel repeats the forward lines and follows them in reverse: ``g{k}`` is the
gradient of row k. Where only the points' gradients are asked for, a table of one argument gives its derivative with its
value: with the same exponentials e, slopes a and values y it is (Σ e a y − T Σ e a) / Σ e, so that no exponential is
kept or taken again.

Each number occurs in one place, so that its gradient is one sum over the samples. A program has one warp, and goes from
block to block. Some sums are kept by every thread, ``a{n}``; of the others the threads add up 32 at a time in five
rounds, in which pairs of threads swap half of what they have, and thread k keeps the sums of numbers k, 32 + k, and so
on: ``sum{n // 32}``, a register for 32 numbers. Where there is a loop they go to memory, one by one.

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
#: A token's place: a number, or the variable of a loop.
Token = int | str


@dataclass
class Code:
    """The lines of one kernel or function."""

    shifted: bool
    triton: bool = False
    back: bool = False
    weights: bool = False
    room: int = 0
    lines: list[str] = field(default_factory=list)
    given: set[int] = field(default_factory=set)
    sums: list[int] = field(default_factory=list)
    waiting: dict[tuple[int, int], str] = field(default_factory=dict)
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
        if packed.tokens <= UNROLLED:
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
        """A part of a stored number's gradient; in a program with loops it goes to memory."""
        if self.weights and self.room < 0:
            self.lines.append(f"{self.indent}tl.atomic_add(dw + {place}, tl.sum({value}, axis=0), sem='relaxed')")
        elif self.weights and len(self.sums) < self.room:
            self.sums.append(int(place))
            self.put(f"a{place}", f"a{place} + by_thread({value})")
        elif self.weights:
            self.put(f"t1_{place}", f"by_thread({value})")
            self.spread(f"t1_{place}", int(place))

    def spread(self, name: str, place: int, bit: int = 1) -> None:
        """Sums over threads, as soon as two numbers can share one: thread n % 32 gets that of number n."""
        while bit < 32 and (other := self.waiting.pop((bit, place ^ 1), "")):
            pair = f"{other}, {name}" if place % 2 else f"{name}, {other}"
            bit, place = 2 * bit, place // 2
            name = f"t{bit}_{place}"
            self.put(name, f"shared({pair}, {bit // 2})")
        if bit < 32:
            self.waiting[bit, place] = name
        else:
            self.put(f"sum{place}", f"sum{place} + {name}")

    def spread_rest(self) -> None:
        """The sums that have no other to share with."""
        while self.waiting:
            bit, place = min(self.waiting)
            name, self.waiting[bit, place ^ 1] = self.waiting.pop((bit, place)), "none"
            self.spread(name, place, bit)


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
            code.put(f"w{end}_{c}", f"q{p}_{c}*e{end}")
            code.gradient(place, f"w{end}_{c}")
        code.total(f"f{end}", [f"w{end}_{c}*({code.number(place)} - r{p + c})" for c, place in places.items()])
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


FORWARD: dict[type, Callable[..., None]] = {AffineStep: _forms, Softmax: _softmax, Powers: _ridges}
BACKWARD: dict[type, Callable[..., None]] = {AffineStep: _forms_back, Softmax: _softmax_back, Powers: _ridges_back}


def too_long(steps: Sequence[PackedStep]) -> bool:
    """Whether written out it would take compilers too long."""
    return sum(int(step.kept.sum()) for step in steps if step.tokens <= UNROLLED) > MOST_NUMBERS


def torch_source(steps: Sequence[PackedStep], inputs: int, outputs: Sequence[int], shifted: bool) -> str:
    """A function of points (samples × inputs), numbers, the same with fixed zeros, and steps."""
    code, arrays = Code(shifted), too_long(steps)
    for k, packed in enumerate(steps):
        if arrays or packed.tokens > UNROLLED or isinstance(packed.step, GridStep):
            new = "".join(f"r{packed.first + c}, " for c in range(packed.step.width))
            read = ", ".join(f"r{row}" for row in packed.reads)
            code.put(new, f"steps[{k}].run(kept, [{read}], {shifted})")
        else:
            FORWARD[type(packed.step)](packed, packed.step, code)
    names = ["".join(f"r{row}, " for row in rows) for rows in (range(1, 1 + inputs), outputs)]
    columns = f"{names[0]} = stack(x.unbind(1)).unbind()"  # torch.compile vectorises no loop with many strided reads
    begin = ["def rows_of(x, w, kept, steps):", columns, "zero = zeros_like(r1)", "r0 = zero + 1.0"]
    return "\n    ".join([*begin, *code.lines, f"return stack([{names[1]}], 1)"]) + "\n"
