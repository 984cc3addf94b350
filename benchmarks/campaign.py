"""Random formulas, compiled, verified and attacked in high precision through every executor.

``python benchmarks/campaign.py OUT.json [--formulas 3000] [--first 0] [--seconds 10]`` goes on where OUT.json ends.
Formulas have 1 to 6 variables with natural and odd names; terms, factors and sub-expressions repeat; there are
quotients, powers, roots, kinks, nested functions and removable singularities; boxes end where domains do, in decimals
and in multiples of pi. Seeds from 100,000 on also draw named values, constants of the box, ``clip``, ``where``, ``Phi``,
limits at edges and across diagonals, identities, and tolerances relative to the formula at every point. Each formula has a
process and a budget of processor time of its own. What is counted:

* *proven*: compiled, verified, and within the claim wherever it was attacked; *refused*: an error of the package's own;
* *timeouts*: the budget ran out; *violations*: an error above the claim, or a claim about an undefined formula;
* *crashes*: any other exception, and models that do not verify.

The formula's value comes from `truth`, which shares nothing with the package.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

sys.path.append(str(Path(__file__).parent))
from truth import DIGITS, Domain, Truth

NATURAL = ("x", "y", "z", "t", "a", "b", "m", "r", "theta")
#: Names that the package, the kernel, Python or mathematics use for something else.
ODD = ("u", "u1", "u2", "w1", "w2", "q0", "q1", "x_1", "E", "Ef", "e1", "pi_2", "pi", "one", "slope", "offset",
    "value1",
       "gate0", "y1", "p1", "_", "__x", "X", "I", "S", "N", "x1", "x2", "out1", "position1", "sinx",
           "max_1")  # fmt: skip
BOXES = ("-1..1", "0..1", "1..5", "-1/3..2", "0.1..0.7", "0..pi", "-pi/2..pi/2", "0.001..1", "-2..0", "1/2..3/2",
         "-3..3", "100..120", "0..2*pi", "-0.25..0.75", "sqrt(2)..3", "1e-3..1e-1")  # fmt: skip
CONSTANTS = ("2", "3", "1/2", "0.1", "1/3", "pi", "0.75", "5", "sqrt(2)", "7/4")
#: First seed of the formulas that use all of the language.
NEWER = 100_000
#: Names and values of constants in the box.
HELD = (("kB", "1.38"), ("g", "9.80665"), ("R_gas", "8.314"), ("c0", "299792458e-8"), ("n_0", "3"), ("tau", "1/7"))


@dataclass
class Task:
    """What to compile: ``typed`` in a box with ``held`` constants, which means the ``formulas`` where they are given."""

    seed: int
    formulas: list[str]
    box: str
    options: dict[str, Any]
    typed: str = ""
    held: str = ""

    @property
    def given(self) -> Any:
        """The formula as it is typed, or the formulas."""
        return self.typed or (self.formulas if len(self.formulas) > 1 else self.formulas[0])

    @property
    def on(self) -> str:
        """The box with its constants."""
        return f"{self.box}, {self.held}" if self.held else self.box


@dataclass
class Result:
    """What became of it."""

    task: Task
    status: str
    note: str = ""
    construction: str = ""
    bound: float = 0.0
    worst: float = 0.0
    seconds: float = 0.0
    executors: list[str] = field(default_factory=list)


class Node:
    """A text with an interval that its value is about in."""

    def __init__(self, text: str, low: float, high: float) -> None:
        self.text, self.low, self.high = text, low, high

    @property
    def size(self) -> float:
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        plain = re.fullmatch(r"\w+(\([^()]*\))?", self.text)
        return self.text if plain else f"({self.text})"


class Maker:
    """Makes one random formula."""

    kinds: tuple[Callable[[Maker], Node | None], ...] = ()

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        count = rng.choices(range(1, 7), (26, 30, 20, 12, 7, 5))[0]
        names = rng.sample(ODD if rng.random() < 0.4 else NATURAL, count)
        self.taken, self.names = set(names), names
        intervals = [rng.choice(BOXES) for _ in names]
        if rng.random() < 0.5:
            intervals = [rng.choice(("-1..1", "0..1", "1..5", "1/2..3/2"))] * count
        self.box = ", ".join(f"{n}={i}" for n, i in zip(names, intervals, strict=True))
        ends = [[float(Truth(end, ()).at(())) for end in interval.split("..")] for interval in intervals]
        self.pool = [Node(n, *e) for n, e in zip(names, ends, strict=True)]
        self.inputs = list(self.pool)

    def constant(self) -> str:
        """A number; pi only where no variable is called so."""
        text = self.rng.choice(CONSTANTS)
        return "2" if "pi" in text and "pi" in self.taken else text

    def value(self, text: str) -> float:
        return float(Truth(text, ()).at(()))

    def pick(self) -> Node:
        """One of what there is, the newer the likelier."""
        pool = self.pool
        return self.rng.choice(pool[-3:] if self.rng.random() < 0.5 else pool)

    def formula(self) -> str:
        """Operations until every variable is used, then a sum."""
        steps = self.rng.choice((1, 2, 2, 3, 3, 4, 5)) + len(self.names) // 2
        for _ in range(steps):
            for _ in range(8):
                node = self.rng.choice(self.kinds)(self)
                if node is not None and node.size < 300 and len(node.text) < 160:
                    self.pool.append(node)
                    break
        result = self.pool[-1]
        text = result.text
        for node in self.inputs:
            if not any(part == node.text for part in _words(text)):
                other = self.rng.choice((f"{node}", f"{self.constant()}*{node}", f"sin({node})", f"{node}*{node}"))
                text = (
                    f"{text} {self.rng.choice('+-')} {other}" if self.rng.random() < 0.6 else f"({text})*(2 + {other})"
                )
        if self.rng.random() < 0.3:
            term = self.rng.choice(self.pool)
            text = f"{text} + {self.rng.choice(('', self.constant() + '*'))}{term}"
        return text


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()


def _span(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def _products(a: Node, b: Node) -> tuple[float, float]:
    return _span([s * t for s in (a.low, a.high) for t in (b.low, b.high)])


def _sum(m: Maker) -> Node:
    a, b = m.pick(), m.pick()
    c = m.constant()
    kind = m.rng.randrange(4)
    if kind == 0:
        return Node(f"{a} + {b} + {a}", 2 * a.low + b.low, 2 * a.high + b.high)
    if kind == 1:
        return Node(f"{a} - {b}", a.low - b.high, a.high - b.low)
    if kind == 2:
        v = m.value(c)
        return Node(f"{c}*{a} + {b}", v * a.low + b.low, v * a.high + b.high)
    return Node(f"{a} - {c}", a.low - m.value(c), a.high - m.value(c))


def _product(m: Maker) -> Node:
    a, b = m.pick(), m.pick()
    low, high = _products(a, b)
    kind = m.rng.randrange(4)
    if kind == 0:
        low, high = _products(Node("", low, high), a)
        return Node(f"{a}*{b}*{a}", low, high)
    if kind == 1:
        return Node(f"({a} - {b})*({b} - {a} + {a})", -(a.size + b.size) * b.size, (a.size + b.size) * b.size)
    return Node(f"{a}*{b}", low, high)


def _positive(m: Maker, a: Node, strictly: bool = True) -> Node:
    """Something that is not negative, where a is as it is or shifted."""
    if a.low > 0 or (a.low >= 0 and not strictly):
        return a
    kind = m.rng.randrange(3)
    if kind == 0:
        return Node(f"1 + {a}**2", 1, 1 + a.size**2)
    if kind == 1:
        return (
            Node(f"exp({a})", math.exp(max(a.low, -5)), math.exp(min(a.high, 5)))
            if a.size < 4
            else Node(f"1 + {a}*{a}", 1, 1 + a.size**2)
        )
    shift = math.ceil(-a.low * 4) / 4 + (0.25 if strictly else 0)
    return Node(f"{a} + {shift}", a.low + shift, a.high + shift)


def _quotient(m: Maker) -> Node | None:
    a, b = m.pick(), m.pick()
    if m.rng.random() < 0.03:
        return Node(f"{a}/{b}", -10, 10)  # perhaps undefined
    b = b if b.high < 0 else _positive(m, b)
    if min(abs(b.low), abs(b.high)) < 0.02:
        return None
    low, high = _span([s / t for s in (a.low, a.high) for t in (b.low, b.high)])
    kind = m.rng.randrange(4)
    if kind == 0:
        return Node(
            f"{a}/({b}*{b})", -a.size / min(abs(b.low), abs(b.high)) ** 2, a.size / min(abs(b.low), abs(b.high)) ** 2
        )
    if kind == 1:
        return Node(f"{a}*{b}**(-1)", low, high)
    return Node(f"{a}/{b}", low, high)


def _power(m: Maker) -> Node | None:
    a = m.pick()
    kind = m.rng.randrange(6)
    if kind < 2:
        by = m.rng.choice((2, 2, 3, 4))
        ends = _span([a.low**by, a.high**by, *([0.0] if a.low < 0 < a.high else [])])
        return Node(f"{a}**{by}", *ends)
    a = _positive(m, a, strictly=kind != 2)
    if kind == 2:
        by = m.rng.choice(("1/2", "3/2", "1/3", "0.7", "5/2"))
        return Node(f"{a}**({by})", a.low ** m.value(by), a.high ** m.value(by))
    if kind == 3:
        return Node(f"{a}**(-1/2)", a.high**-0.5, a.low**-0.5) if a.low > 0.02 else None
    if kind == 4 and a.low > 0.02:
        b = m.pick()
        if b.size < 3:
            return Node(f"{a}**{b}", *_span([s**t for s in (a.low, a.high) for t in (b.low, b.high)]))
    return Node(f"{m.rng.choice(('2', 'exp(1)', '0.5'))}**{a}", 0, 3**a.high) if a.high < 6 else None


def _root(m: Maker) -> Node | None:
    a, b = m.pick(), m.pick()
    kind = m.rng.randrange(6)
    if kind == 0:
        return Node(f"sqrt({a}**2 + {b}**2)", 0, a.size + b.size)
    if kind == 1:
        b = _positive(m, b)
        return Node(f"sqrt({a}**2 + {b}) - {a}", 0, 2 * a.size + b.high**0.5)
    if kind == 2:
        return Node(f"sqrt({a}*{a} + {b}**2 - 2*{a}*{b}*cos({m.rng.choice(m.inputs)}))", 0, a.size + b.size)
    if kind == 3:
        a, b = _positive(m, a, False), _positive(m, b, False)
        return Node(f"sqrt({a}*{b})", math.sqrt(max(a.low * b.low, 0)), math.sqrt(a.high * b.high))
    if kind == 4 and m.rng.random() < 0.2:
        return Node(f"sqrt({a})", 0, math.sqrt(a.size))  # perhaps undefined
    a = _positive(m, a, strictly=False)
    return Node(f"sqrt({a})", math.sqrt(max(a.low, 0)), math.sqrt(a.high))


def _kink(m: Maker) -> Node:
    a, b = m.pick(), m.pick()
    kind = m.rng.randrange(5)
    if kind == 0:
        return Node(f"abs({a})", 0 if a.low < 0 < a.high else min(abs(a.low), abs(a.high)), a.size)
    if kind == 1:
        return Node(f"min({a}, {b})", min(a.low, b.low), min(a.high, b.high))
    if kind == 2:
        return Node(f"max({a}, {b}, {m.rng.choice(m.inputs)})", max(a.low, b.low), max(a.size, b.size, 10))
    if kind == 3:
        return Node(f"max({a}, 0) + abs({a} - {b})", 0, a.size + a.size + b.size)
    return Node(f"max({a}, {b})", max(a.low, b.low), max(a.high, b.high))


def _function(m: Maker) -> Node | None:
    a = m.pick()
    name = m.rng.choice(
        ("sin", "cos", "tanh", "atan", "exp", "log", "sinh", "cosh", "asin", "acos", "tan", "sinc", "sin", "exp")
    )
    if name == "exp":
        return Node(f"exp({m.rng.choice(('', '-'))}{a})", math.exp(-a.size), math.exp(a.size)) if a.size < 4 else None
    if name in ("sinh", "cosh"):
        return Node(f"{name}({a})", -math.cosh(a.size), math.cosh(a.size)) if a.size < 4 else None
    if name == "log":
        a = _positive(m, a)
        return Node(f"log({a})", math.log(a.low), math.log(a.high)) if a.low > 1e-3 else None
    if name in ("asin", "acos"):
        if a.size > 1:
            a = Node(f"sin({a})*{m.rng.choice(('1', '1/2', '0.9'))}", -1, 1)
        return Node(f"{name}({a})", -1.6 if name == "asin" else 0, 3.2)
    if name == "tan":
        return Node(f"tan({a})", -math.tan(a.size), math.tan(a.size)) if a.size < 1.4 else None
    if a.size > 12:
        return None
    return Node(f"{name}({a})", -1.6, 1.6)


def _removable(m: Maker) -> Node:
    a = m.rng.choice(m.inputs) if m.rng.random() < 0.6 else m.pick()
    b = m.rng.choice(m.inputs)
    kind = m.rng.randrange(8)
    texts = (
        f"sin({a})/{a}", f"sin(3*{a})/{a}", f"sin({a})/{a}*(sin({a})/{a})", f"sin({a})**2/{a}**2",
        f"{b}*sin({a})/{a}", f"sin({a}*{b})/({a}*{b})", f"sin({a}*{b})/{a}", f"sin({a})*sin({a})/({a}*{a})*cos({b})",
    )  # fmt: skip
    return Node(texts[kind], -3 * (1 + b.size), 3 * (1 + b.size))


def _nested(m: Maker) -> Node | None:
    a = _function(m)
    if a is None or a.size > 3:
        return None
    return Node(f"{m.rng.choice(('sin', 'cos', 'tanh', 'atan'))}({a}*{m.rng.choice(m.inputs)})", -1.6, 1.6)


Maker.kinds = (
    _sum, _sum, _product, _product, _quotient, _quotient, _power, _power, _root, _kink, _function, _function,
        _removable,
    _nested,
)  # fmt: skip


class Newer(Maker):
    """Makes one random formula of all of the language."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.meanings: dict[str, str] = {}
        free = [(name, value) for name, value in HELD if name not in self.taken]
        self.held = dict(self.rng.sample(free, self.rng.choice((0, 0, 1, 2))))
        self.pool = [*self.inputs, *(Node(name, *2 * (self.value(value),)) for name, value in self.held.items())]

    def meant(self, text: str) -> str:
        """A text with the names of values and constants replaced by what they mean."""
        for name, meaning in reversed([*self.held.items(), *self.meanings.items()]):
            text = re.sub(rf"\b{name}\b", f"({meaning})", text)
        return text

    def typed(self, formula: str) -> str:
        """The named values, and the formula."""
        sign = self.rng.choice((" = ", " := ", "="))
        return self.rng.choice(("; ", "\n")).join(
            [*(f"{name}{sign}{meaning}" for name, meaning in self.meanings.items()), formula]
        )


def _named(m: Maker) -> Node | None:
    a, name = m.pick(), f"v{len(m.pool)}"
    if a.text in m.names or name in m.taken or name in m.meanings:
        return None
    m.meanings[name] = a.text
    return Node(name, a.low, a.high)


def _piecewise(m: Maker) -> Node:
    a, b, c = m.pick(), m.pick(), m.constant()
    big = a.size + b.size
    return m.rng.choice((
        Node(f"where({a} > {b}, {a}, {b})", -big, big),
        Node(f"where({a} < {c}, {a}**2, 2*({c})*{a} - ({c})**2)", -(big + 5) ** 2, (big + 5) ** 2),
        Node(f"where({a}*{a} - {a} >= 0, {a}*{a} - {a}, 0)", 0, a.size**2 + a.size),
        Node(f"where({a} >= 0, {a}, {c}*{a})", -5 * a.size, 5 * a.size),
        Node(f"clip({a}, -1, {c})", -1, 5),
        Node(f"clip({a}, min({b}, 0), 1 + abs({b}))", -b.size, 1 + b.size),
    ))  # fmt: skip


def _newer_function(m: Maker) -> Node:
    a = m.pick()
    return m.rng.choice((
        Node(f"Phi({a})", 0, 1), Node(f"radians({a})", -a.size, a.size), Node(f"sum({a}, {m.pick()}, 1)", -90, 90),
        Node(f"prod({a}, {m.pick()}, 2)", -90, 90), Node(f"degrees({a})/90", -a.size, a.size),
        Node(f"cos({a})^2 + sin({a})**2*Phi({m.pick()})".replace("^", "**"), 0, 1), Node(f"sqrt(2 - 2*cos({a}))", 0, 2),
        Node(f"acos(clip({a}, -1, 1))", 0, 3.2), Node(f"sqrt(1 - cos({a})**2)", 0, 1),
    ))  # fmt: skip


def _limit(m: Maker) -> Node | None:
    inputs = [node for node in m.inputs if node.low >= 0]
    x, y = m.rng.choice(m.inputs), m.rng.choice(m.inputs)
    near = [
        Node(f"(exp({x}) - exp({y}))/({x} - {y})", 0, 50), Node(f"(sin({x}) - sin({y}))/({x} - {y})", -1, 1),
        Node(f"({x}**3 - {y}**3)/({x} - {y})", 0, 80),
    ]  # fmt: skip
    found = [] if x is y or max(x.high, y.high) > 5 else near
    if x.size < 0.9:
        found = [*found, Node(f"log(1 - {x})/log(1 + {x})", -5, 0)]
    if inputs:
        u, v = m.rng.choice(inputs), m.rng.choice(inputs)
        found += [Node(f"{u}*log({u})", -1, u.size**2), Node(f"{u}*{v}/({u} + {v})", 0, u.size)] * (u.low == 0)
        found += [Node(f"{u}**(1 + {v})", 0, (1 + u.size) ** (1 + v.size))] * (u.size <= 1)
        found += [Node(f"{u}**2*log({u})", -1, u.size**3)]
    return m.rng.choice(found) if found else None


Newer.kinds = (*Maker.kinds, _named, _named, _named, _piecewise, _piecewise, _newer_function, _newer_function, _limit,
               _limit)  # fmt: skip


def make_task(seed: int) -> Task:
    """The random formula of a seed."""
    for again in range(50):
        maker = (Newer if seed >= NEWER else Maker)(1000 * seed + again)
        rng = maker.rng
        formulas = [maker.formula()]
        typed, held = "", ""
        if isinstance(maker, Newer):
            typed, held = maker.typed(formulas[0]), ", ".join(f"{n}={value}" for n, value in maker.held.items())
            formulas = [maker.meant(formulas[0])]
        elif rng.random() < 0.08:
            formulas.append(rng.choice(maker.pool).text + f" + {rng.choice(maker.inputs)}")
        truths = [Truth(text, maker.names) for text in formulas]
        points = Domain(maker.box).points(np.random.default_rng(seed), 200)
        with np.errstate(all="ignore"):
            values = np.array([truth.rough(points) for truth in truths]).astype(float)
        sizes = np.abs(values[np.isfinite(values)])
        if len(sizes) > 100 and sizes.max() < 1e4 and len(formulas[0]) < (600 if typed else 260):
            break
    size = max(float(sizes.max()), 1e-3)
    construction = rng.choices(("auto", "circuit", "lookup", "partition", "polynomial"), (47, 25, 14, 11, 3))[0]
    if construction in ("lookup", "partition") and len(maker.names) > 2:
        construction = "auto"
    eps = size * 10.0 ** -rng.choice((1, 1, 1, 2, 2, 3))
    if construction == "partition":
        eps = size / rng.choice((4, 8))
    options = {"eps": float(f"{eps:.3g}"), "construction": construction, "dtype": rng.choice(("float64", "float32"))}
    apart = np.nanmin(values) > 1e-3 or np.nanmax(values) < -1e-3
    if typed and construction == "auto" and apart and rng.random() < 0.5:
        options["pointwise"] = options.pop("eps") / size
    return Task(seed, formulas, maker.box, options, typed, held)


def run_task(task: Task, points: int = 2500, onnx: bool = False) -> Result:
    """Compile, verify and attack one formula, in this process."""
    import transformula as tf
    from transformula.errors import TransformulaError

    try:
        model = tf.compile(task.given, on=task.on, **task.options)
    except TransformulaError as error:
        return Result(task, "refused", f"{type(error).__name__}: {error}"[:300])
    checked = tf.verify(model)
    bound = model.certificate.bound
    if not checked.verified:
        return Result(task, "crash", f"does not verify: {checked.reasons}", model.construction, bound)
    claim = model.certificate.relative if "pointwise" in task.options else bound
    if not claim <= task.options.get("pointwise", task.options.get("eps")):
        return Result(task, "violation", "the claim is above eps", model.construction, bound)
    worst, place, executors = attack(model, task, points, onnx)
    status = "proven" if worst <= bound else "violation"
    return Result(task, status, place, model.construction, bound, worst, executors=executors)


def attack(model: Any, task: Task, count: int, onnx: bool) -> tuple[float, str, list[str]]:
    """The largest error found, where and by which executor; infinite where the formula is undefined."""
    rng = np.random.default_rng(task.seed)
    domain = Domain(task.box)
    truths = [Truth(text, domain.names) for text in task.formulas]

    def rows(values: Any) -> Any:
        return np.asarray(values).reshape(len(values), -1)

    def rough(x: Any) -> Any:
        exact = np.stack([truth.rough(x) for truth in truths], axis=1)
        wrong = np.abs(rows(model(x)) - exact).astype(float)
        return np.nan_to_num(wrong.max(axis=1), nan=0.0, posinf=0.0)

    x = domain.points(rng, count)
    best = x[np.argsort(rough(x))[-12:]]
    radius = (domain.upper - domain.lower) / 50
    for _ in range(6):  # local ascent from the worst points, with a float's view of the truth
        near = best[:, None] + radius * rng.uniform(-1, 1, (len(best), 40, len(radius)))
        near = np.concatenate([best, np.clip(near, domain.lower, domain.upper).reshape(-1, len(radius))])
        best, radius = near[np.argsort(rough(near))[-12:]], radius / 3
    chosen = np.concatenate([best, x[:12], x[rng.integers(0, len(x), 30)]])
    wanted = []
    for point in chosen:
        values = [truth.at(point) for truth in truths]
        if any(value is None for value in values):
            return math.inf, f"undefined at {point.tolist()}", []
        wanted.append(values)
    worst, place, used = 0.0, "", []
    relative = model.certificate.relative
    for name, found in executed(model, chosen, onnx):
        used.append(name)
        with mpmath.workdps(DIGITS):
            for point, values, exact in zip(chosen, rows(found).tolist(), wanted, strict=True):
                for value, truth in zip(values, exact, strict=True):
                    error = float(abs(mpmath.mpf(value) - truth)) if math.isfinite(value) else math.inf
                    if relative is not None and error > relative * float(abs(truth)):
                        error = math.inf
                    if error > worst:
                        worst, place = error, f"{name} at {point.tolist()}"
    return worst, place, used


def executed(model: Any, points: Any, onnx: bool) -> list[tuple[str, Any]]:
    """What every executor makes of the points."""
    import torch

    from transformula.runtime import reference

    tensor = torch.tensor(points, dtype=getattr(torch, model.weights.dtype))
    found = [
        ("numpy", model(points)),
        ("blocks", reference.run(model.weights, points)),
        ("torch", model.to_torch()(tensor).detach().numpy()),
        ("tensor", model(torch.tensor(points)).detach().numpy()),
    ]
    if onnx:
        from transformula.runtime.onnx_graph import onnx_executor

        with tempfile.TemporaryDirectory() as folder:
            data = model.to_onnx(Path(folder) / "model.onnx").read_bytes()
        found.append(("onnx", onnx_executor(data)(points.astype(model.weights.dtype))))
    return found


def in_child(job: Callable[[], Any], seconds: float, memory: int = 4 << 30) -> tuple[str, Any, float, float]:
    """A job in its own process: (ok, killed or crash; what came back; seconds of processor time; megabytes).

    The limit on memory counts from the address space that the child inherits: a parent that has imported much leaves
    its child the same room.
    """
    inherited = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 2))
            resource.setrlimit(resource.RLIMIT_AS, (inherited + memory, inherited + memory))
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            answer = json.dumps(["ok", job()])
        except BaseException:
            answer = json.dumps(["crash", traceback.format_exc()[-1500:]])
        with os.fdopen(writing, "w") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status, used = os.wait4(pid, 0)
    spent, size = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    if status != 0 or not text:
        return "killed", f"signal {os.WTERMSIG(status)}", spent, size
    kind, value = json.loads(text)
    return kind, value, spent, size


def campaign(out: Path, first: int, count: int, seconds: float, say: Callable[[str], Any] = print) -> dict[str, Any]:
    """Run the seeds that are not in the file yet; the file is written as it goes."""
    import torch

    import transformula  # noqa: F401  loaded once, for all children

    torch.set_num_threads(1)
    results = json.loads(out.read_text())["results"] if out.exists() else {}
    began = time.time()
    for seed in range(first, first + count):
        if str(seed) in results:
            continue
        task = make_task(seed)
        kind, value, spent, _ = in_child(lambda t=task: asdict(run_task(t, onnx=t.seed % 8 == 0)), seconds)
        failed = Result(task, "timeout" if kind == "killed" else "crash", str(value))
        result = value if kind == "ok" else asdict(failed)
        results[str(seed)] = result | {"seconds": round(spent, 2)}
        if result["status"] in ("violation", "crash"):
            say(f"{result['status'].upper()} {json.dumps(result)}")
        if seed % 20 == 19 or seed == first + count - 1:
            write(out, results)
            say(f"{seed + 1}: {json.dumps(summary(results))} ({time.time() - began:.0f} s)")
    write(out, results)
    return summary(results)


def write(out: Path, results: dict[str, Any]) -> None:
    """The file, whole or not at all."""
    fresh = out.with_suffix(".part")
    fresh.write_text(json.dumps({"summary": summary(results), "results": results}, indent=0))
    fresh.replace(out)


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Counts, and how close the attacks came to the claims."""
    counts = Counter(r["status"] for r in results.values())
    proven = [r for r in results.values() if r["status"] == "proven"]
    names = ("proven", "refused", "timeout", "violation", "crash")
    return {
        "formulas": len(results),
        **{name: counts[name] for name in names},
        "constructions": dict(Counter(r["construction"] for r in proven)),
        "float32": sum(r["task"]["options"]["dtype"] == "float32" for r in proven),
        "variables": dict(sorted(Counter(r["task"]["box"].count("=") for r in proven).items())),
        "executors": dict(Counter(name for r in proven for name in r["executors"])),
        "closest": max((r["worst"] / r["bound"] for r in proven if r["bound"]), default=0.0),
        "processor_seconds": round(sum(r["seconds"] for r in results.values())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--formulas", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    found = campaign(given.out, given.first, given.formulas, given.seconds, lambda text: print(text, flush=True))
    print(json.dumps(found, indent=1))
    sys.exit(1 if found["violation"] or found["crash"] else 0)


if __name__ == "__main__":
    main()
