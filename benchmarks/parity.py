"""Every back-end beside the exact function of the weights, at many points: is each within the certified rounding?

The exact function is the program in 80-bit numbers (`numpy.longdouble`). By the theorem that proves a certificate's
`rounding` (first order in the unit roundoff u), its own error is at most that bound times the quotient of the two u:
2^-11 for float64, 2^-40 for float32. It is *tied* to the blocks as written, which are the definition, with their
rationals as they are, in 80-bit numbers too: the largest difference at `TIED` points is added to every error. So an
error in the table is |computed - exact| + own + tied, and the script fails if one is above `rounding`.

Points: corners of the box (and its middle), random points, half of them with some inputs at an end, and transitions:
places where two tokens of a table, in any layer, have the same score, found by bisection, and their neighbours. They are
real numbers (float64), so a float32 model has to round them, which its claim allows for.
``python benchmarks/parity.py [--models FOLDER] [--json FILE] [--points N] [NAME ...]``; with names no page is written.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import transformula as tf
from runtimes import PAGE, PARITY, models, options, session
from transformula.export.onnx_files import onnx_bytes
from transformula.kernel.folder.weights import Matrix, Weights
from transformula.runtime import reference
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.program_steps import Program, Tables

Array = NDArray[Any]
DTYPES = ("float64", "float32")
RUNTIMES = ("ndarray", "module", "onnx")
#: Points at which the blocks are run in 80-bit numbers, and at which batches of one are.
TIED, ALONE = 48, 1000
#: Pairs of points between which a transition is looked for, and halvings.
_PAIRS, _HALVINGS = 200, 60
_CORNERS = 1024


def wide(part: Any) -> Any:
    """The same object with its floats in 80 bits; matrices that stand for rationals get these."""
    if isinstance(part, np.ndarray):
        return part.astype(np.longdouble) if part.dtype.kind == "f" else part
    if isinstance(part, Matrix) and part.exact is not None:
        values = [np.longdouble(str(v.p)) / np.longdouble(str(v.q)) for v in part.exact]
        return replace(part, values=np.array(values, dtype=np.longdouble))
    if isinstance(part, tuple):
        return tuple(map(wide, part))
    if is_dataclass(part) and not isinstance(part, type):
        kept = {f.name: wide(getattr(part, f.name)) for f in fields(part) if f.init}
        return replace(part, **kept | ({"dtype": "longdouble"} if isinstance(part, Program) else {}))
    return part


def exact(model: tf.Model, x: Array) -> Array:
    """What the weights compute, samples × outputs, in 80-bit numbers."""
    if model.family.name != "ridge":
        return run_numpy(wide(model.program), x)
    ridge, x = model.reading, x.astype(np.longdouble)

    def number(value: Any) -> Any:
        return np.longdouble(str(value.p)) / np.longdouble(str(value.q))

    total = np.tile(np.array([number(b) for b in ridge.bias]), (len(x), 1))
    lines = [sum((number(c) * x[:, k] for k, c in d.items()), np.zeros(len(x))) for d in ridge.directions]
    for (output, token), powers in ridge.terms.items():
        for power, factor in powers.items():
            total[:, output] += number(factor) * lines[token] ** power
    return total


def tied(model: tf.Model, x: Array) -> float:
    """How far the blocks as written are from `exact`, both in 80-bit numbers."""
    weights: Weights = wide(model.weights)
    return float(np.abs(reference.run(weights, x, np.longdouble) - exact(model, x)).max())


# Points


def corners(low: Array, high: Array) -> Array:
    """Those of the box, or some of them, and the middle."""
    chosen = np.array(list(itertools.islice(itertools.product((0, 1), repeat=len(low)), _CORNERS)))
    return np.concatenate([low + (high - low) * chosen, [(low + high) / 2]])


def scattered(low: Array, high: Array, count: int, rng: np.random.Generator) -> Array:
    """Random points, every other one with some inputs at an end."""
    x = rng.uniform(low, high, size=(count, len(low)))
    ends, chosen = np.where(rng.random(x.shape) < 0.5, low, high), rng.random(x.shape) < 0.3
    x[::2] = np.where(chosen, ends, x)[::2]
    return x


def ties(slopes: Array, offsets: Array) -> Iterator[float]:
    """Arguments at which the two leading tokens of a softmax have the same score."""
    for (a, b), (c, d) in itertools.combinations(zip(slopes.tolist(), offsets.tolist(), strict=True), 2):
        if a != c:
            u = (d - b) / (a - c)
            if np.max(slopes * u + offsets) <= a * u + b + 1e-9 * (1 + abs(a * u) + abs(b)):
                yield u


def transitions(model: tf.Model, low: Array, high: Array, rng: np.random.Generator) -> Array:
    """Points of the box where tokens tie, in any layer, and their neighbours among the floats."""
    found, program = [np.zeros((0, len(low)))], model.program
    for step in program.steps if program.positions == 1 else ():
        if not isinstance(step, Tables):
            continue
        for start, stop in pairwise(step.starts):
            slopes, offsets = step.slopes[start:stop, 1:], step.slopes[start:stop, 0]
            (column,) = np.flatnonzero(slopes.any(axis=0))[:1]
            more = [0.0] * (not step.shifted)  # the anchor
            line = np.append(slopes[:, column], more), np.append(offsets, more)
            asked = replace(program, outputs=step.reads[column + 1 : column + 2])
            for u in ties(*(part.astype(float) for part in line)):
                found.append(_bisected(lambda x, asked=asked, u=u: run_numpy(asked, x)[:, 0] - u, low, high, rng))
    x = np.concatenate(found)
    return np.clip(np.concatenate([x, np.nextafter(x, low), np.nextafter(x, high)]), low, high)


def _bisected(gap: Callable[[Array], Array], low: Array, high: Array, rng: np.random.Generator) -> Array:
    """Points at which a function of the point changes its sign, on random lines through the box."""
    left, right = rng.uniform(low, high, size=(2, _PAIRS, len(low)))
    different = (gap(left) < 0) != (gap(right) < 0)
    left, right = left[different], right[different]
    below = gap(left) < 0 if len(left) else np.zeros(0, dtype=bool)
    for _ in range(_HALVINGS if len(left) else 0):
        middle = (left + right) / 2
        same = ((gap(middle) < 0) == below)[:, None]
        left, right = np.where(same, middle, left), np.where(same, right, middle)
    return np.asarray(left)


# Back-ends


def back_ends(model: tf.Model) -> dict[str, Callable[[Array], Array]]:
    """Each as a function from rows in the model's dtype to rows."""
    import torch

    module = model.to_torch().requires_grad_(False)
    onnx = session(onnx_bytes(model.packed, model.certificate, proven=True))
    return {
        "ndarray": lambda x: run_numpy(model.program, x),
        "module": lambda x: module(torch.from_numpy(x)).numpy(),
        "onnx": lambda x: onnx.run(None, {"x": x})[0].reshape(len(x), -1),
    }


def measure(model: tf.Model, points: int, alone: int = ALONE, tie: int = TIED) -> dict[str, Any]:
    """The largest errors of one model, in batches of all points and of one."""
    low, high = np.array(model.box.floats()).T
    rng = np.random.default_rng(0)
    special = np.concatenate([corners(low, high), transitions(model, low, high, rng)])[: points // 2]
    x = np.concatenate([special, scattered(low, high, points - len(special), rng)])
    wanted, rounding = exact(model, x), model.certificate.rounding
    own = rounding * float(np.finfo(np.longdouble).eps / np.finfo(model.weights.dtype).eps)
    given, more = x.astype(model.weights.dtype), own + tied(model, x[rng.permutation(len(x))[:tie]])
    row = {"rounding": rounding, "own": own, "tied": more - own, "special_points": len(special), "points": len(x)}
    for name, run in back_ends(model).items():
        errors = np.abs(run(given) - wanted).max(axis=1)
        chosen = np.concatenate([np.argsort(errors)[-alone // 2 :], rng.permutation(len(x))[: alone // 2]])
        single = np.concatenate([run(given[k : k + 1]) for k in chosen.tolist()])
        row[f"{name}_all"] = float(errors.max()) + more
        row[f"{name}_alone"] = float(np.abs(single - wanted[chosen]).max()) + more
    return row


def within(row: dict[str, Any]) -> bool:
    """Whether every error is within the certified rounding."""
    return all(row[f"{r}_{batch}"] <= row["rounding"] for r in RUNTIMES for batch in ("all", "alone"))


def shares(row: dict[str, Any]) -> list[tuple[float, float]]:
    """For each runtime its errors as parts of the rounding: in one batch, and in batches of one."""
    return [(row[f"{r}_all"] / row["rounding"], row[f"{r}_alone"] / row["rounding"]) for r in RUNTIMES]


def section(found: dict[str, dict[str, dict[str, Any]]], points: int) -> str:
    """Markdown for docs/runtimes.md."""
    lines = [
        PARITY, "",
        f"The largest difference of every back-end from the exact function of the weights, as a share of the certified `rounding`: {points:,}",
        f"random, corner and transition points in one batch, and in brackets {ALONE:,} of them (the worst and random ones) in batches of",
        "one. `benchmarks/parity.py` says how *exact* is computed, and adds its own error. *module*: `to_torch()`; `model(tensor)` uses the",
        "ndarray's code wherever no gradient is needed.", "",
        f"| model | dtype | rounding | {' | '.join(RUNTIMES)} |", "| --- " * (3 + len(RUNTIMES)) + "|",
    ]  # fmt: skip
    for name, rows in found.items():
        for dtype, row in rows.items():
            cells = [name, dtype, f"{row['rounding']:.1e}", *(f"{a:.1%} ({b:.1%})" for a, b in shares(row))]
            lines.append(f"| {' | '.join(cells)} |".replace("*", r"\*"))
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, write; the exit code says whether every error is within the certified rounding."""
    given = options()
    table = Table("model", "dtype", "rounding", *RUNTIMES, title="largest error / rounding: one batch (batches of one)")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for dtype in DTYPES:
            for name, model in models(given.models or Path(scratch), given.names, dtype).items():
                row = found.setdefault(name, {})[dtype] = measure(model, given.points)
                cells = (f"{a:.2%} ({b:.2%})" for a, b in shares(row))
                table.add_row(name, dtype, f"{row['rounding']:.1e}", *cells)
    Console(width=120).print(table)
    if not given.names:
        PAGE.write_text(PAGE.read_text().partition(PARITY)[0] + section(found, given.points))
    if given.json is not None:
        given.json.write_text(json.dumps({"points": given.points, "models": found}, indent=1) + "\n")
    return int(not all(within(row) for rows in found.values() for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
