"""Forged folders: models changed in their weights, wires, derivations, evidence, formulas, boxes and claims.

``python benchmarks/forging.py OUT.json [--count 5000] [--jobs 2]`` goes on where OUT.json ends. About 50 models of
every construction are compiled; each forgery changes a copy in one or two places, recomputes all hashes and the digest,
and has the isolated checker verify it (`judge`: 10 s of processor time, 1 GB). Many claims are made false on purpose:
four fifths of an error that the forged weights make at some point. Some forgeries are attacks that once succeeded
(`attacks`), or keep a check busy (`bombs`). What verifies must be true: the dense blocks, evaluated here from the
arrays, and the program that ``model(x)`` runs are compared with the formula, evaluated by `truth` from its text, or
with `prompt_truth`. What is counted:

* *true* and *false*: folders that verify, with a claim that holds or does not; *refused*;
* *tracebacks*: the check ended in an exception that is no sentence; *slow* (over 10 s) and *big* (over 1 GB).

``--threads 8`` has so many threads of one process verify the forged folders beside honest ones at the same time
(`transformula.proven`), and compares every verdict with the verdict that the folder gets alone.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import multiprocessing
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

sys.path.append(str(Path(__file__).parent))
import attacks
import prompt_truth
from bombs import BOMBS
from campaign import in_child
from judge import FILES, SECONDS, contents, judge, problem
from truth import DIGITS, Domain, Truth

#: name -> formulas, box, options of compile
BASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "sine": ("sin(3*x)", "x=-1..1", {"eps": 0.01, "construction": "lookup"}),
    "sine32": ("sin(3*x)", "x=-1..1", {"eps": 0.01, "construction": "lookup", "dtype": "float32"}),
    "sum": ("sin(x) + exp(y)/3 + x - pi/7", "x=-1..1, y=0..1", {"eps": 0.01, "construction": "lookup"}),
    "kinks": ("2*max(x, y/2) + abs(x - 1/3) + cos(x)", "x=-1..1, y=0..1", {"eps": 0.01, "construction": "lookup"}),
    "grid": ("sin(2*x*y)", "x=-1..1, y=0..1", {"eps": 0.05, "construction": "lookup"}),
    "grid32": ("exp(x*y)", "x=-1..1, y=0..1", {"eps": 0.05, "construction": "lookup", "dtype": "float32"}),
    "sinc": ("sin(x)/x", "x=-2..2", {"eps": 0.01, "construction": "lookup"}),
    "sequence": (
        ["sin(x) + y", "2*x + cos(y)"],
        "x=-1..1, y=0..1",
        {"eps": 0.1, "construction": "lookup", "shape": (2, 1)},
    ),
    "cells": ("sin(2*x)", "x=-1..1", {"eps": 0.1, "construction": "partition"}),
    "cells2": ("x*y", "x=0..1, y=0..1", {"eps": 0.2, "construction": "partition"}),
    "root cells": ("sqrt(abs(x))", "x=-1..1", {"eps": 0.2, "construction": "partition"}),
    "anchors": ("sin(2*x)", "x=-1..1", {"eps": 0.1, "construction": "attention-only"}),
    "anchors2": ("x*y + abs(x)", "x=-1..1, y=0..1", {"eps": 0.5, "construction": "attention-only"}),
    "anchors32": ("exp(x)", "x=-1..1", {"eps": 0.3, "construction": "attention-only", "dtype": "float32"}),
    "local": ("sin(3*x)", "x=-1..1", {"eps": 0.01, "construction": "local-polynomials"}),
    "local2": (["x*exp(y)", "cos(x + y)"], "x=-1..1, y=0..1", {"eps": 0.05, "construction": "local-polynomials"}),
    "local32": ("exp(x)", "x=-1..1", {"eps": 0.02, "construction": "local-polynomials", "dtype": "float32"}),
    "product": ("x*y", "x=-1..2, y=0..1", {"eps": 0.01, "construction": "circuit"}),
    "product32": ("x*y + x", "x=-1..2, y=0..1", {"eps": 0.01, "construction": "circuit", "dtype": "float32"}),
    "root": ("sqrt(x*y)", "x=0..1, y=0..1", {"eps": 0.1, "construction": "circuit"}),
    "arc": ("acos(x)*y", "x=-1..1, y=-1..1", {"eps": 0.1, "construction": "circuit"}),
    "length": ("sqrt(x**2 + y**2)", "x=-1..1, y=-1..1", {"eps": 0.1, "construction": "circuit", "dtype": "float32"}),
    "quotient": ("x/(1 + y**2)", "x=-1..1, y=0..1", {"eps": 0.02, "construction": "circuit"}),
    "bent": ("max(x*y, x - 1/4)", "x=-1..1, y=0..1", {"eps": 0.02, "construction": "circuit"}),
    "relu": ("max(x, 0)", "x=-1..1", {"eps": 1e-4, "construction": "circuit"}),
    "three": ("x*y*z", "x=0..1, y=0..1, z=1/2..1", {"eps": 0.05, "construction": "circuit"}),
    "squares": (
        "acos(sin(x)*sin(y) + cos(x)*cos(y)*cos(z))",
        "x=0..1, y=0..1, z=0..1",
        {"eps": 0.2, "construction": "circuit"},
    ),
    "sines": ("(sin(x) - sin(y))/(x - y)", "x=0..1, y=0..1", {"eps": 0.05, "construction": "circuit"}),
    "limit": ("y*(1/tanh(x) - 1/x)", "x=-1..1, y=0..1", {"eps": 0.05, "construction": "circuit"}),
    "powers": ("y*x**x + sqrt(x)*log(x)", "x=0..1, y=0..1", {"eps": 0.1, "construction": "circuit"}),
    "removed": ("y*sin(x)/x", "x=-1..1, y=0..1", {"eps": 0.05, "construction": "circuit"}),
    "ranges": ("exp(x*y*(1 - x*y) - x*y)", "x=0..1, y=0..1", {"eps": 0.1, "construction": "circuit"}),
    "cubic": ("x**3/3 - 2*x*y + 1/7", "x=-2..2, y=-1..3", {}),
    "cubic32": ("x**2*y - pi*x", "x=-1..1, y=0..1", {"dtype": "float32"}),
    "heads": ("x**4 - y**3", "x=-1..1, y=0..1", {"multi_head": True}),
    "corollary": ("exp(x)", "x=-1..1", {"eps": 0.01, "construction": "polynomial"}),
    "memory": ("memorize", "", {}),
    "words": ("memorize", "", {"compact": True}),
    "words32": ("memorize", "", {"compact": True, "dtype": "float32"}),
    "descent": ("ridge", "", {"pairs": 3, "features": 2, "steps": 4, "penalty": "1/3", "rate": "1/7"}),
    "ridge": ("ridge", "", {"pairs": 3, "features": 2, "penalty": "1/2", "eps": 0.01}),
    "ridge32": ("ridge", "", {"pairs": 2, "features": 1, "penalty": "1/3", "eps": 0.1, "dtype": "float32"}),
    "lasso": ("lasso", "", {"pairs": 3, "features": 2, "steps": 3, "penalty": "1/5"}),
    "kernel": ("kernel", "", {"pairs": 4, "features": 2, "bandwidth": "1/3"}),
    "recurrence": ("recurrence", "", {"steps": 4, "a": "5/4", "b": "1/3"}),
    "loop": ("lasso", "", {"pairs": 3, "features": 1, "steps": 4, "penalty": "1/5", "looped": True}),
    "steps": ("sin(2*x)", "x=-1..1", {"eps": 0.2, "construction": "yun"}),
    "contexts": ("x*y + x", "x=0..1, y=-1..1", {"eps": 0.3, "construction": "yun"}),
    "contexts32": ("sin(x)/x*y", "x=-1..1, y=0..2", {"eps": 0.3, "construction": "yun", "dtype": "float32"}),
    "attention": ("attention", "", {}),
    "attention32": ("attention", "", {"dtype": "float32"}),
    **attacks.BASES,
}


@dataclass
class Folder:
    """The four files as plain data; ``raw`` replaces a file's bytes."""

    arrays: dict[str, Any]
    body: Any
    evidence: Any
    claim: dict[str, Any]
    raw: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Folder:
        texts = [(path / name).read_bytes() for name in FILES]
        return cls(read_arrays(texts[0]), *(json.loads(text) for text in texts[1:]))

    def copy(self) -> Folder:
        return Folder(
            {k: v.copy() for k, v in self.arrays.items()}, *copy.deepcopy((self.body, self.evidence, self.claim))
        )

    def files(self) -> dict[str, bytes]:
        """All files, hashes and digest made to fit."""
        found = {
            "model.safetensors": write_arrays(self.arrays),
            "model.json": json.dumps(self.body, indent=1).encode() + b"\n",
            "evidence.json": json.dumps(self.evidence).encode() + b"\n",
        } | self.raw
        claim = {k: v for k, v in self.claim.items() if k != "digest"}
        for key, name in zip(("weights_sha256", "model_sha256", "evidence_sha256"), FILES, strict=False):
            claim[key] = hashlib.sha256(found[name]).hexdigest()
        digest = hashlib.sha256(json.dumps(claim, sort_keys=True).encode()).hexdigest()
        found.setdefault("certificate.json", json.dumps({**claim, "digest": digest}).encode())
        return found


def read_arrays(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    kinds = {"I32": "<i4", "F32": "<f4", "F64": "<f8"}
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    rest = data[8 + length :]
    return {n: np.frombuffer(rest[slice(*e["data_offsets"])], kinds[e["dtype"]]).copy() for n, e in header.items()}


def write_arrays(arrays: dict[str, Any]) -> bytes:
    kinds = {"int32": "I32", "float32": "F32", "float64": "F64", "int64": "I64"}
    header, rest = {}, b""
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": kinds[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [len(rest), len(rest) + len(data)],
        }
        rest += data
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


# -- what the forged weights compute, from the arrays alone ----------------------------------------------------------


def dense(folder: Folder, points: Any, kind: Any) -> Any:
    """The blocks of the weights as they are defined, in floats of a kind: samples × outputs."""
    body, shapes = folder.body, folder.body["shapes"]
    if max(math.prod(shape) for shape in shapes.values()) > 20_000_000:
        raise ValueError("too large to be run here")

    def matrix(name: str) -> Any:
        full = np.zeros(shapes[name], dtype=kind)
        full[folder.arrays[f"{name}.rows"], folder.arrays[f"{name}.cols"]] = folder.arrays[f"{name}.values"]
        return full

    x = np.asarray(points, dtype=body["dtype"]).astype(kind)
    tokens, width = body["tokens"], len(body["slots"])
    stream = (x @ matrix("embedding").T).reshape(len(x), tokens, width) + matrix("memory")
    for b, block in enumerate(body["blocks"]):
        if isinstance(block, int):  # an earlier one, once more
            b, block = block, body["blocks"][block]
        added = np.zeros_like(stream)
        for h, head in enumerate(block["heads"]):
            query, key, value = (matrix(f"blocks.{b}.heads.{h}.{part}") for part in ("query", "key", "value"))
            scores = kind(block["scale"]) * (stream @ query.T) @ np.swapaxes(stream @ key.T, 1, 2)
            if block["kind"] == "softmax":
                scores = np.exp(scores - scores.max(axis=2, keepdims=True))
                pattern = scores / scores.sum(axis=2, keepdims=True)
            elif block["kind"] == "linear":
                pattern = scores
            else:
                pattern = np.where(scores == scores.max(axis=2, keepdims=True), scores, 0)
            found = pattern @ (stream @ value.T)
            added += found @ matrix(f"blocks.{b}.heads.{h}.output").T if head["output"] else found
        stream = stream + added
        if block["feed_forward"]:
            name = f"blocks.{b}.feed_forward."
            hidden = np.maximum(stream @ matrix(name + "hidden").T + matrix(name + "hidden_bias")[:, 0], 0)
            stream = stream + hidden @ matrix(name + "output").T + matrix(name + "output_bias")[:, 0]
    return stream.reshape(len(x), -1) @ matrix("readout").T + matrix("bias")[:, 0]


def programmed(files: dict[str, bytes], points: Any) -> Any:
    """What ``model(points)`` computes."""
    from transformula.model import Model

    sent = contents(files)
    assert sent is not None
    return np.asarray(Model.from_packed(*sent)(np.asarray(points))).reshape(len(points), -1)


def measured(folder: Folder, seed: int, count: int = 150, files: dict[str, bytes] | None = None) -> float:
    """The largest error at some points, of the blocks and of the program that is made of the files, if they are given.

    It is infinite if the formula or the weights have no value at one of the points.
    """
    if folder.body["construction"] in ("memorize", "compact"):
        points, wanted = folder.body["samples"]["x"], folder.body["samples"]["y"]
    elif folder.body["construction"] == "in-context":
        task = folder.body["task"]
        points = prompt_truth.prompts(task, np.random.default_rng(seed), count // 2)
        with mpmath.workdps(DIGITS):
            wanted = [prompt_truth.answers(task, prompt) for prompt in points]
    else:
        domain = Domain(folder.body["box"])
        points = domain.points(np.random.default_rng(seed), count)
        truths = [Truth(text, domain.names) for text in folder.body["formulas"]]
        wanted = [[truth.at(p) for truth in truths] for p in points]
    with np.errstate(all="ignore"):
        runs = [dense(folder, points, np.dtype(folder.body["dtype"]).type)]
        if files is not None and "formulas" in folder.body and "shape" not in folder.body:
            runs.append(programmed(files, points))
    worst = 0.0
    with mpmath.workdps(DIGITS):
        for row, values in (
            (row, values) for found in runs for row, values in zip(found.tolist(), wanted, strict=True)
        ):
            for value, exact in zip(row, values, strict=True):
                if exact is None or not math.isfinite(value):
                    return math.inf
                worst = max(worst, float(abs(mpmath.mpf(value) - exact)))
    return worst


def measured_mean(folder: Folder, seed: int, count: int = 150) -> tuple[float, float, float]:
    """Of a model that claims a mean: no less than its mean error can be by chance, the largest error outside the seams
    that evidence.json leaves, and the largest output."""
    domain, rng = Domain(folder.body["box"]), np.random.default_rng(seed)
    low, high = domain.lower, domain.upper
    cells = [np.array([[e[0], e[-1]] for e in folder.evidence["grid"][name]]) for name in domain.names]
    anywhere = rng.uniform(low, high, (count, len(low)))
    at_ends = np.column_stack([rng.choice(np.append(c.ravel(), c.mean(axis=1)), count) for c in cells])
    points = np.concatenate([anywhere, at_ends])
    truths = [Truth(text, domain.names) for text in folder.body["formulas"]]
    exact = [[truth.at(p) for truth in truths] for p in points]
    wanted = np.array([[math.nan if v is None else float(v) for v in row] for row in exact])
    with np.errstate(all="ignore"):
        found = dense(folder, points, np.dtype(folder.body["dtype"]).type).astype(float)
    wrong = np.abs(found - wanted)
    wrong = np.where(np.isfinite(wrong), wrong, np.inf)
    sides = zip(points.T, cells, strict=True)
    inside = np.all([((x[:, None] >= c[:, 0]) & (x[:, None] <= c[:, 1])).any(axis=1) for x, c in sides], axis=0)
    with np.errstate(all="ignore"):
        chance = 4 * wrong[:count].std(axis=0) / math.sqrt(count)
        mean = float(np.nanmax(wrong[:count].mean(axis=0) - chance, initial=0.0))
    return mean, float(wrong[inside].max(initial=0.0)), float(np.abs(np.nan_to_num(found, nan=np.inf)).max())


# -- forgeries -------------------------------------------------------------------------------------------------------

Forge = Callable[[Folder, random.Random], None]


def some_values(folder: Folder, rng: random.Random) -> tuple[str, Any]:
    names = [n for n, a in folder.arrays.items() if n.endswith(".values") and len(a)]
    name = rng.choice(names)
    return name, folder.arrays[name]


def weight(folder: Folder, rng: random.Random) -> None:
    """One entry, by a little or by a lot."""
    _, values = some_values(folder, rng)
    k = rng.randrange(len(values))
    kind = rng.randrange(7)
    with np.errstate(all="ignore"):
        values[k] = (
            lambda v: np.nextafter(v, values.dtype.type(rng.choice((-np.inf, np.inf)))),
            lambda v: v * values.dtype.type(1 + rng.choice((1e-6, 1e-3, 0.1, -0.1))),
            lambda v: -v,
            lambda v: v + values.dtype.type(rng.choice((1e-3, 0.1, 1.0, -1.0))),
            lambda v: values.dtype.type(0),
            lambda v: values.dtype.type(rng.choice((1e30, -1e30, 1e-30, 1e300, np.inf, np.nan))),
            lambda v: v * 2,
        )[kind](values[k])


def weights_scaled(folder: Folder, rng: random.Random) -> None:
    _, values = some_values(folder, rng)
    values *= values.dtype.type(rng.choice((2, 0.5, 1.01, -1, 1 + 2**-20)))


def weights_swapped(folder: Folder, rng: random.Random) -> None:
    name, values = some_values(folder, rng)
    j, k = rng.randrange(len(values)), rng.randrange(len(values))
    part = rng.choice(("values", "rows", "cols"))
    array = folder.arrays[name.replace("values", part)]
    array[[j, k]] = array[[k, j]]


def weight_moved(folder: Folder, rng: random.Random) -> None:
    """An entry at another place."""
    name, _ = some_values(folder, rng)
    part = rng.choice(("rows", "cols"))
    array = folder.arrays[name.replace("values", part)]
    shape = folder.body["shapes"][name.removesuffix(".values")]
    array[rng.randrange(len(array))] = rng.randrange(shape[part == "cols"] + 1)


def weight_added(folder: Folder, rng: random.Random) -> None:
    name, _ = some_values(folder, rng)
    base = name.removesuffix(".values")
    shape = folder.body["shapes"][base]
    for part, value in (
        ("rows", rng.randrange(shape[0])),
        ("cols", rng.randrange(shape[1])),
        ("values", rng.choice((1.0, 1e-3, -40.0))),
    ):
        array = folder.arrays[f"{base}.{part}"]
        folder.arrays[f"{base}.{part}"] = np.append(array, array.dtype.type(value))
    if base in folder.body["exact"]:
        folder.body["exact"][base].append(rng.choice(("1", "-40", "1/1000")))


def weight_removed(folder: Folder, rng: random.Random) -> None:
    name, values = some_values(folder, rng)
    base, k = name.removesuffix(".values"), rng.randrange(len(values))
    for part in ("rows", "cols", "values"):
        folder.arrays[f"{base}.{part}"] = np.delete(folder.arrays[f"{base}.{part}"], k)
    if base in folder.body["exact"]:
        del folder.body["exact"][base][k]


def matrices_swapped(folder: Folder, rng: random.Random) -> None:
    names = [n.removesuffix(".values") for n in folder.arrays if n.endswith(".values")]
    one, other = rng.choice(names), rng.choice(names)
    for part in ("rows", "cols", "values"):
        a, b = f"{one}.{part}", f"{other}.{part}"
        folder.arrays[a], folder.arrays[b] = folder.arrays[b], folder.arrays[a]


def rational(folder: Folder, rng: random.Random) -> None:
    """A rational beside a float says something else."""
    exact = folder.body["exact"]
    if not exact or rng.random() < 0.4:  # rationals where there were none
        name, values = some_values(folder, rng)
        values_of = [v.as_integer_ratio() for v in values.tolist() if math.isfinite(v)]
        exact[name.removesuffix(".values")] = [f"{p}/{q}" for p, q in values_of]
    name = rng.choice(list(exact))
    if not exact[name]:
        return
    k = rng.randrange(len(exact[name]))
    text = str(exact[name][k])
    exact[name][k] = rng.choice(
        (
            text + "0",
            "-" + text,
            text.replace("1", "2", 1),
            text.partition("/")[0],
            "0",
            "1/0",
            "1e5",
            "9" * 60_000,
            text + "/3",
            f"{text.partition('/')[0]}1/{text.partition('/')[2] or 1}1",
            " 1",
            "1/" + "7" * 400,
        )
    )


def nearby_rational(folder: Folder, rng: random.Random) -> None:
    """The rational moves by about a rounding, or the float does beside its rational."""
    name, values = some_values(folder, rng)
    base, k = name.removesuffix(".values"), rng.randrange(len(values))
    exact = folder.body["exact"].setdefault(base, ["{}/{}".format(*v.as_integer_ratio()) for v in values.tolist()])
    if rng.random() < 0.5:
        values[k] = np.nextafter(values[k], values.dtype.type(rng.choice((-np.inf, np.inf))))
    else:
        p, q = (int(v) for v in (exact[k] + "/1").split("/")[:2])
        unit = 2 ** (53 if values.dtype == np.float64 else 24)
        exact[k] = f"{p * 4 * unit + p * rng.choice((1, 2, 3, 5, 8, -4, -9))}/{q * 4 * unit}"


def somewhere(item: Any, rng: random.Random, wanted: Callable[[Any], bool]) -> tuple[Any, Any] | None:
    """(holder, key) of a random place in JSON data whose value is wanted."""
    found, stack = [], [item]
    while stack and len(found) < 20_000:
        holder = stack.pop()
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if wanted(value):
                found.append((holder, key))
            if isinstance(value, (dict, list)):
                stack.append(value)
    return rng.choice(found) if found else None


def junk(rng: random.Random) -> Any:
    return rng.choice(
        (
            None,
            True,
            -1,
            0,
            1,
            10**9,
            10**30,
            -(10**400),
            0.5,
            1e308,
            float("nan"),
            float("inf"),
            "",
            "x",
            "1/0",
            "#w1",
            "u",
            "x**(10**9)",
            "9**9**9**9",
            "(" * 300 + "x" + ")" * 300,
            "sin(" * 90 + "x" + ")" * 90,
            [],
            {},
            [[]],
            [1, 2, 3],
            {"a": 1},
            "exp(exp(exp(exp(9))))",
            "1" * 5000,
            [-1] * 5000,
            [0, -1] * 3000,
            "x*" * 3000 + "x",
            [0] * 500_000,
            "+".join(f"x**{k}" for k in range(2, 400)),
            "(x+1)**400",
            "*".join(["(x+pi+sin(x))"] * 60),
        )
    )


def anything(part: str) -> Forge:
    def forge(folder: Folder, rng: random.Random) -> None:
        """Any value of a JSON file becomes something else."""
        place = somewhere(getattr(folder, part), rng, lambda value: True)
        if place is None:
            return
        holder, key = place
        kind = rng.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[rng.randrange(len(holder))]))
        elif kind == 2:
            other = somewhere(getattr(folder, part), rng, lambda value: type(value) is type(holder[key]))
            assert other is not None
            holder[key] = copy.deepcopy(other[0][other[1]])
        else:
            holder[key] = junk(rng)

    return forge


def number_in(part: str) -> Forge:
    def forge(folder: Folder, rng: random.Random) -> None:
        """A number of a JSON file becomes another."""
        place = somewhere(getattr(folder, part), rng, lambda value: type(value) in (int, float))
        if place is None:
            return
        holder, key = place
        value = holder[key]
        if type(value) is int:
            holder[key] = rng.choice((value + 1, value - 1, -1, 0, 1, 2, value * 2))
        else:
            holder[key] = rng.choice(
                (value + 0.01, value * 1.5, -value, math.nextafter(value, math.inf), 0.0, value + 1e-9)
            )

    return forge


def text_in(part: str) -> Forge:
    def forge(folder: Folder, rng: random.Random) -> None:
        """A text of a JSON file is edited: a digit, a sign, a function, a name."""
        place = somewhere(getattr(folder, part), rng, lambda value: isinstance(value, str) and 0 < len(value) < 400)
        if place is not None:
            holder, key = place
            holder[key] = edited(holder[key], rng)

    return forge


EDITS = (
    ("+", "-"),
    ("-", "+"),
    ("*", "/"),
    ("sin", "cos"),
    ("exp", "sinh"),
    ("sqrt", "abs"),
    ("1", "2"),
    ("2", "3"),
    ("3", "1"),
    ("x", "y"),
    ("y", "x"),
    ("abs(u)", "u"),
    ("max", "min"),
    ("#q0", "#q1"),
    ("#q", "#w"),
    ("u", "2*u"),
    ("**2", "**3"),
    ("1/", "3/"),
    ("/2", "/4"),
    ("0", "1"),
    ("pi", "3"),
)


def edited(text: str, rng: random.Random) -> str:
    possible = [(old, new) for old, new in EDITS if old in text]
    if not possible:
        return text + rng.choice(("0", "*2", "+1", "-x"))
    old, new = rng.choice(possible)
    parts = text.split(old)
    k = rng.randrange(1, len(parts))
    return old.join(parts[:k]) + new + old.join(parts[k:])


def formula(folder: Folder, rng: random.Random) -> None:
    """Another formula; with luck everywhere that it stands."""
    if "formulas" not in folder.body:
        return
    texts = folder.body["formulas"]
    k = rng.randrange(len(texts))
    texts[k] = rng.choice(
        (
            edited(texts[k], rng),
            edited(edited(texts[k], rng), rng),
            f"{texts[k]} + 0*log(x)",
            f"({texts[k]})*(x/x)",
            f"{texts[k]} + sqrt(x) - sqrt(x)",
            f"{texts[k]} + (x - x)/(x - x)",
            f"sqrt(({texts[k]})**2)",
        )
    )


def relabelled(folder: Folder, rng: random.Random) -> None:
    """The same edit in formulas, circuit and evidence."""
    old, new = rng.choice(
        [pair for pair in EDITS if pair[0].isalpha() or "u" in pair[0]] + [("abs(x)", "x"), ("abs(u)", "u")]
    )
    swap = {old: new} | ({old.replace("u", "x"): new.replace("u", "x")} if "u" in old else {})
    for key in ("formulas", "circuit"):
        if key in folder.body:
            text = json.dumps(folder.body[key])
            for a, b in swap.items():
                text = text.replace(a, b)
            folder.body[key] = json.loads(text)
    text = json.dumps(folder.evidence)
    for a, b in swap.items():
        text = text.replace(a, b)
    folder.evidence = json.loads(text)


def box(folder: Folder, rng: random.Random) -> None:
    """Another box, mostly a wider one."""
    if "box" not in folder.body:
        return
    parts = folder.body["box"].split(", ")
    k = rng.randrange(len(parts))
    name, _, interval = parts[k].partition("=")
    low, _, high = interval.partition("..")
    parts[k] = (
        name
        + "="
        + rng.choice(
            (
                f"{low}..{high}+1",
                f"{low}-1/100..{high}",
                f"{low}-3..{high}+3",
                f"{low}..{high}+1e-9",
                f"{low}..1e9",
                f"{high}..{low}",
                f"{low}..{high}/2",
                f"{low}..{low}",
                "0..1/0",
                f"{low}..{high}+1e-30",
                f"-1e300..{high}",
            )
        )
    )
    folder.body["box"] = ", ".join(parts)


def claim(folder: Folder, rng: random.Random) -> None:
    key = rng.choice(("approximation", "rounding", "eps", "dtype", "construction", "version", "rounding_model"))
    value = folder.claim.get(key)
    folder.claim[key] = (
        value * rng.choice((0.5, 0.9, 0.0, -1, 10))
        if isinstance(value, float)
        else rng.choice(("float32", "float64", "lookup", "circuit", 1, 2, 3, {}, None, [], "nan"))
    )


def tree(folder: Folder, rng: random.Random) -> None:
    """A tree or list of edges of the evidence: cut short, a leaf only, more leaves, other axes."""
    place = somewhere(
        folder.evidence, rng, lambda v: isinstance(v, list) and len(v) > 0 and all(type(i) in (int, float) for i in v)
    )
    if place is None:
        return
    holder, key = place
    items = holder[key]
    if all(type(i) is int for i in items):
        holder[key] = rng.choice(
            (
                items[:-1],
                [-1],
                [0, -1, -1],
                [*items, -1],
                [9 if i >= 0 else i for i in items],
                [0] * 400_001,
                [],
                items[: len(items) // 2],
                [1 - i if i in (0, 1) else i for i in items],
                [-2],
                [0.0, -1, -1],
                [True, -1, -1],
            )
        )
    else:
        k = rng.randrange(len(items))
        holder[key] = rng.choice(
            (
                items[1:],
                items[:-1],
                items[:k] + items[k + 1 :],
                [items[0], items[-1]],
                items[::-1],
                items * 2,
                [*items, 1e308],
                [-1e308, *items],
                [*items[:k], items[k], *items[k:]],
                [0.0],
                [],
                [*items[:k], 10**400, *items[k:]],
                [float(v) / 2 for v in items],
                np.linspace(float(items[0]), float(items[-1]), 100_000).tolist(),
            )
        )


def uses(folder: Folder, rng: random.Random) -> None:
    """A wire uses the evidence of another table."""
    found = folder.evidence.get("uses")
    if found:
        key = rng.choice(list(found))
        found[key] = rng.choice((0, 1, len(folder.evidence.get("tables", [])), -1, "0", 0.0, True))
    tables = folder.evidence.get("tables")
    if tables and rng.random() < 0.5:
        rng.shuffle(tables)


def fewer_tables(folder: Folder, rng: random.Random) -> None:
    tables = folder.evidence.get("tables")
    if tables:
        entry = rng.choice(tables)
        if entry:
            entry.pop(rng.choice(list(entry)))


def range_claim(folder: Folder, rng: random.Random) -> None:
    """A wire is said to be bounded by something it is not."""
    ranges = folder.evidence.setdefault("ranges", {})
    wires = len(folder.body.get("circuit", {}).get("wires", [])) if isinstance(folder.body.get("circuit"), dict) else 1
    key = str(rng.randrange(wires + 3))
    text = rng.choice(
        ("0", "x", "x/2", "1/2*x", "#q0", "#w0", "0*x", "x - x + 1/2", "abs(x)", "#w2/2", "sqrt(x)", "log(x)")
    )
    ranges.setdefault(key, []).insert(0, [rng.choice(("u", "w", "#q0", "#q7", "q", "#w1")), text, [-1]])


def sign_claim(folder: Folder, rng: random.Random) -> None:
    """One more sign is claimed."""
    circuit = folder.body.get("circuit")
    if not isinstance(circuit, dict):
        return
    text = rng.choice(
        ("x", "x + 1", "x - 1/2", "x*x", "x**2 - x", "-x", "1", "0", "sin(x)", "1/x", "log(x)", "sqrt(x)", "x - x")
    )
    signs = circuit.setdefault("signs", [])
    pairs = [sign for sign in signs if isinstance(sign, list)]
    if pairs and rng.random() < 0.5:  # one that is proven of squares
        pair, place = rng.choice(pairs), rng.randrange(2)
        pair[place] = edited(str(pair[place]), rng)
        return
    squares = rng.choice(("x**2", "sin(x/2)**2", "1", "cos(x)**2 + 1", "sinc(x)**2", "2*sin(x/2)**2", "(x/x)**2"))
    signs.append(text if rng.random() < 0.5 else [text, squares])
    folder.evidence.setdefault("signs", []).append(rng.choice(([-1], [0, -1, -1], [0, 0, -1, -1, -1])))


def step(folder: Folder, rng: random.Random) -> None:
    """A step of the derivation is added, dropped or edited."""
    circuit = folder.body.get("circuit")
    if not isinstance(circuit, dict):
        return
    steps = circuit.setdefault("extends", [])
    text = folder.body["formulas"][0]
    if steps and rng.random() < 0.5:
        old = rng.choice(steps)
        key = rng.choice(("of", "is", "at"))
        if key == "at":
            old["at"] = rng.choice(({}, {"x": "0"}, {"x": "5"}, {"x": "1/3", "y": "1/3"}, {"x": "pi"}, {"z": "1"}, []))
        else:
            old[key] = edited(str(old[key]), rng)
    elif steps and rng.random() < 0.3:
        steps.pop()
    else:
        at = dict.fromkeys(folder.body["inputs"], "1/3")
        old, new, typed = rng.choice(
            (
                (text, "0", text),
                (text, edited(text, rng), text),
                ("x/x", "1", f"({text})*(x/x)"),
                ("(x - x)/x", "0", f"{text} + (x - x)/x"),
                ("(x + 0*log(x))/x", "1", f"({text})*((x + 0*log(x))/x)"),
                ("0*log(x)/x", "0", f"{text} + 0*log(x)/x"),
                ("abs(x)/x", "1", f"({text})*(abs(x)/x)"),
                ("x*sqrt(x)/x", "sqrt(x)", f"{text} + 0*(x*sqrt(x)/x)"),
                ("max(x, 0)/max(x, 0)", "1", f"({text})*(max(x, 0)/max(x, 0))"),
                ("1/x", "0", f"{text} + 0*(1/x)"),
                ("x/sqrt(x)**2", "1", f"({text})*(x/sqrt(x)**2)"),
                ("1/x - 1/x", "0", f"{text} + (1/x - 1/x)"),
                ("1/x - cos(x)/x", "0", f"{text} + (1/x - cos(x)/x)"),
                ("x*log(x)", "xlogx(abs(x))", f"{text} + x*log(x)"),
                ("x*log(x)", "2*xlogx(sqrt(x))*sqrt(x)", f"{text} + x*log(x)"),
                ("x*log(x)*log(x)", "xlogx(x)*log(x)", f"{text} + 0*(x*log(x)*log(x))"),
                ("x**x", "exp(xlogx(x))", f"({text})*x**x"),
                ("x**x", "1", f"({text})*x**x"),
                ("x*log(abs(x))", "xlogx(abs(x))", f"{text} + x*log(abs(x))"),
                ("(sin(x + 1) - sin(1))/x", "cos(1 + x/2)*sinc(x/2)", f"{text} + (sin(x + 1) - sin(1))/x"),
                ("(sin(x + 1) - sin(1))/x", "cos(1 + x/2)", f"{text} + (sin(x + 1) - sin(1))/x"),
            )
        )
        folder.body["formulas"][0] = typed
        steps.append({"of": old, "is": new, "at": at})


def wires(folder: Folder, rng: random.Random) -> None:
    """Wires of the circuit are swapped, dropped, repeated, or read others."""
    circuit = folder.body.get("circuit")
    if not isinstance(circuit, dict) or not circuit.get("wires"):
        return
    items = circuit["wires"]
    kind = rng.randrange(5)
    j, k = rng.randrange(len(items)), rng.randrange(len(items))
    if kind == 0:
        items[j], items[k] = items[k], items[j]
    elif kind == 1:
        items.pop(j)
    elif kind == 2:
        items.insert(j, copy.deepcopy(items[k]))
    elif kind == 3 and "from" in items[j] and "from" in items[k]:
        items[j]["from"], items[k]["from"] = items[k]["from"], items[j]["from"]
    else:
        place = somewhere(
            circuit, rng, lambda v: isinstance(v, list) and len(v) == 2 and type(v[0]) is int and isinstance(v[1], str)
        )
        if place is not None:
            holder, key = place
            holder[key][rng.randrange(2)] = rng.choice((0, 1, 2, "0", "1", "-1", "2*pi", "1/3"))


def token_added(folder: Folder, rng: random.Random) -> None:
    """One memory token more, which nobody asked for."""
    body, width = folder.body, len(folder.body["slots"])
    tokens = body["tokens"]
    source = rng.randrange(tokens)
    rows, cols, values = (folder.arrays[f"memory.{part}"] for part in ("rows", "cols", "values"))
    chosen = rows == source
    factor = values.dtype.type(rng.choice((1, 2, -1, 1.001, 100)))
    folder.arrays["memory.rows"] = np.append(rows, np.full(int(chosen.sum()), tokens, np.int32)).astype(np.int32)
    folder.arrays["memory.cols"] = np.append(cols, cols[chosen]).astype(np.int32)
    folder.arrays["memory.values"] = np.append(values, values[chosen] * factor).astype(values.dtype)
    body["tokens"] = tokens + 1
    shapes = body["shapes"]
    shapes["memory"][0] += 1
    shapes["embedding"][0] = shapes["readout"][1] = (tokens + 1) * width
    body["exact"].pop("memory", None)


def outline(folder: Folder, rng: random.Random) -> None:
    """Shapes, slots, tokens, dtype, blocks."""
    body = folder.body
    kind = rng.randrange(8)
    if kind == 0:
        name = rng.choice(list(body["shapes"]))
        body["shapes"][name][rng.randrange(2)] += rng.choice((-1, 1, 10**9, -(10**9)))
    elif kind == 1:
        rng.shuffle(body["slots"])
    elif kind == 2:
        body["tokens"] = rng.choice((0, 1, body["tokens"] + 1, 10**9, 10**18, body["tokens"] - 1))
    elif kind == 3:
        body["dtype"] = "float32" if body["dtype"] == "float64" else "float64"
        if rng.random() < 0.7:
            folder.claim["dtype"] = body["dtype"]
            for name, array in folder.arrays.items():
                if name.endswith(".values"):
                    with np.errstate(all="ignore"):
                        folder.arrays[name] = array.astype(body["dtype"])
            folder.claim["rounding_model"] = folder.claim["rounding_model"] | {
                "dtype": body["dtype"],
                "unit_roundoff": "2**-24" if body["dtype"] == "float32" else "2**-53",
            }
    elif kind == 4:
        block = rng.choice(body["blocks"]) if body["blocks"] else {}
        key = rng.choice(("kind", "scale", "heads", "feed_forward"))
        block[key] = {
            "kind": rng.choice(("hardmax", "softmax", "linear", "max")),
            "scale": rng.choice((0.5, 2.0, 0.0, -1.0, 1e308, 2)),
            "heads": [{"output": True}] * rng.randrange(4),
            "feed_forward": rng.random() < 0.5,
        }[key]
    elif kind == 5:
        body["construction"] = rng.choice(
            (
                "lookup",
                "circuit",
                "partition",
                "polynomial",
                "corollary",
                "memorize",
                "compact",
                "in-context",
                "linear-attention",
                "magic",
            )
        )
        folder.claim["construction"] = body["construction"]
    elif kind == 6:
        body["inputs"] = rng.choice((body["inputs"][::-1], [*body["inputs"], "q"], ["x"] * len(body["inputs"]), []))
    else:
        body["blocks"] = rng.choice((body["blocks"][::-1], body["blocks"] * 2, body["blocks"][:-1], []))


def raw_bytes(folder: Folder, rng: random.Random) -> None:
    """A file of bytes that nobody wrote."""
    name = rng.choice(FILES)
    data = bytearray(folder.files()[name])
    kind = rng.randrange(6)
    if kind == 0:
        data = data[: rng.randrange(len(data))]
    elif kind == 1:
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 2:
        data = data + data
    elif kind == 3:
        data = bytearray(b"[" * rng.choice((1000, 100_000, 3_000_000)))
    elif kind == 4:
        data = bytearray(
            rng.choice(
                (b"", b"{}", b"null", b"[]", b'{"a":1,"a":1}', b"\xff\xfe", (2**62).to_bytes(8, "little") + b"{}")
            )
        )
    else:
        data[:8] = rng.choice((0, 2**63 - 1, len(data), 5)).to_bytes(8, "little")
    folder.raw[name] = bytes(data)


def samples(folder: Folder, rng: random.Random) -> None:
    """Of a memorised map: another sample."""
    if "samples" not in folder.body:
        return weight(folder, rng)
    part = folder.body["samples"][rng.choice("xy")]
    row = rng.choice(part)
    row[rng.randrange(len(row))] += rng.choice((0.1, 1.0, -1.0, 1e-9, 1e300))
    return None


def task(folder: Folder, rng: random.Random) -> None:
    """Of an in-context model: another number of the algorithm or of its box, alone or with the numbers that hold it."""
    if "task" not in folder.body:
        return weight(folder, rng)
    said = folder.body["task"]
    key = rng.choice(list(said))
    if type(said[key]) is int:
        said[key] += rng.choice((-1, 1, 7))
    elif key == "algorithm":
        said[key] = rng.choice(("descent", "ridge", "lasso", "kernel", "recurrence"))
    else:
        old = Fraction(said[key])
        new = rng.choice(
            (old / 2, old * 2, old * 1000, old / 10**20, old * 10**30, old + Fraction(1, 10**9), Fraction(0))
        )
        said[key] = str(new)
        if rng.random() < 0.5:
            replaced(folder, old, new)
    return None


def start(folder: Folder, rng: random.Random) -> None:
    """Of ridge in closed form: another start of the iteration, wherever it stands."""
    exact = folder.body["exact"].get("embedding")
    old = Fraction(min(folder.arrays["embedding.values"].tolist()) if exact is None else min(exact, key=Fraction))
    replaced(
        folder, old, old * rng.choice((Fraction(1, 2), 2, 10**6, Fraction(1, 10**12), Fraction(10**30), Fraction(9, 8)))
    )


def replaced(folder: Folder, old: Fraction, new: Fraction) -> None:
    """One number put for another in all matrices, where it is stored and where it is stated."""
    for name in [n for n in folder.arrays if n.endswith(".values")]:
        stem, values = name.removesuffix(".values"), folder.arrays[name]
        stated = folder.body["exact"].get(stem) or [str(Fraction(v)) for v in values.tolist()]
        for k, text in enumerate(stated):
            if abs(Fraction(text)) == old:
                number = new if Fraction(text) > 0 else -new
                values[k], stated[k] = float(number), str(number)
        if any(Fraction(v) != Fraction(text) for v, text in zip(values.tolist(), stated, strict=True)):
            folder.body["exact"][stem] = stated


def bomb(folder: Folder, rng: random.Random) -> None:
    """A formula or a box that keeps a check busy."""
    made = BOMBS[rng.choice(list(BOMBS))](rng, rng.random())
    folder.body.update({key: value for key, value in made.items() if key in folder.body})


FORGERIES: dict[str, tuple[Forge, ...]] = {
    "weights": (
        weight,
        weight,
        weight,
        weights_scaled,
        weights_swapped,
        weight_moved,
        weight_added,
        weight_removed,
        matrices_swapped,
        token_added,
        samples,
    ),
    "task": (task, task, start),
    "rationals": (rational, nearby_rational, nearby_rational),
    "wires": (wires, wires, text_in("body"), number_in("body")),
    "derivation": (step, step, sign_claim),
    "evidence": (
        tree,
        tree,
        uses,
        fewer_tables,
        range_claim,
        anything("evidence"),
        number_in("evidence"),
        text_in("evidence"),
    ),
    "formula": (formula, formula, relabelled),
    "box": (box,),
    "claim": (claim,),
    "outline": (outline, outline, anything("body"), anything("claim")),
    "bytes": (raw_bytes,),
    "bomb": (bomb,),
}
SHARES = {
    "weights": 26,
    "task": 5,
    "rationals": 7,
    "wires": 11,
    "derivation": 9,
    "evidence": 17,
    "formula": 9,
    "box": 5,
    "claim": 3,
    "outline": 9,
    "bytes": 4,
    "bomb": 1,
    "attack": 3,
}


def changed(bases: dict[str, Folder], seed: int) -> tuple[str, list[str], Folder, str]:
    """(base, what was done, folder, what is to be claimed of it) of a seed."""
    rng = random.Random(seed)
    name = list(bases)[seed % len(bases)]
    folder = bases[name].copy()
    done = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
        if kind == "attack":
            return attacked(bases, rng)
        forge = rng.choice(FORGERIES[kind])
        try:
            forge(folder, rng)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError):
            continue  # what an earlier change left cannot be changed like that
        done.append(f"{kind}: {forge.__name__}")
    mode = rng.choices(("as it was", "false", "generous", "nothing"), (30, 45, 20, 5))[0]
    settled = any(forge in text for text in done for forge in ("claim", "bomb"))
    return name, done, folder, "as it was" if settled else mode


def attacked(bases: dict[str, Folder], rng: random.Random) -> tuple[str, list[str], Folder, str]:
    """One of the attacks for which there is a folder; else the first folder as it is."""
    possible = [(kind, name) for kind, (names, _) in attacks.ATTACKS.items() for name in names if name in bases]
    if not possible:
        name = next(iter(bases))
        return name, [], bases[name].copy(), "as it was"
    kind, name = rng.choice(possible)
    folder = bases[name].copy()
    attacks.ATTACKS[kind][1](folder, rng)
    return name, [f"attack: {kind}"], folder, "as it was"


def claimed(folder: Folder, mode: str, seed: int) -> None:
    """Claim four fifths of an error that occurs, three times it, or nothing at all."""
    factor = {"false": 0.8, "generous": 3.0, "nothing": 0.0}[mode]
    if isinstance(folder.claim.get("mean"), dict):
        kind, found, *_ = in_child(lambda: measured_mean(folder, seed, 60), 2 * SECONDS, 4 << 30)
        mean, outside, largest = (min(v, 1e300) for v in (found if kind == "ok" else (0.1, 0.1, 0.1)))
        # any one of the numbers may be the false one
        wrong, beside = (mean * factor, 3.0) if seed % 3 else (3 * mean + 1, factor)
        folder.claim["mean"] |= {"outside": beside * outside, "largest": beside * largest + (beside == 3.0)}
        folder.claim |= {"approximation": wrong / 2, "rounding": wrong / 2, "eps": wrong * (1 + 2**-40)}
        return
    kind, wrong, *_ = in_child(lambda: measured(folder, seed, 60), 2 * SECONDS, 4 << 30)
    if kind != "ok":
        wrong = 0.1  # it cannot be run: any claim is worth trying
    wrong = min(wrong, 1e300) * factor
    exact = isinstance(folder.body, dict) and folder.body.get("construction") == "polynomial" and seed % 2
    folder.claim |= {"approximation": 0.0 if exact else wrong / 2, "rounding": wrong / 2, "eps": wrong * (1 + 2**-40)}


def written(folder: Folder) -> dict[str, bytes] | None:
    """The files of a forged folder; None if there is no way to write it."""
    try:
        return folder.files()
    except (TypeError, ValueError, OverflowError, KeyError, RecursionError):
        return None


def one(bases: dict[str, Folder], seed: int) -> dict[str, Any]:
    """Forge, have it judged, and judge the judgement."""
    name, done, folder, mode = changed(bases, seed)
    if mode != "as it was":
        claimed(folder, mode, seed)
    result: dict[str, Any] = {"base": name, "done": ", ".join([*done, mode]), "seconds": 0.0, "megabytes": 0}
    files = written(folder)
    if files is None:
        return result | {"status": "refused", "note": "it cannot even be written"}
    answer = judge(files)
    result |= {"seconds": answer["seconds"], "megabytes": answer["megabytes"], "note": answer["reason"]}
    if (status := problem(answer)) is not None:
        return result | {"status": status}
    return result | ({"status": "refused"} if not answer["verified"] else truthful(files, seed))


def truthful(files: dict[str, bytes], seed: int) -> dict[str, Any]:
    """Whether the claim of a verified folder holds wherever it is looked at."""
    claim = json.loads(files["certificate.json"])
    bound = Fraction(claim["approximation"]) + Fraction(claim["rounding"])
    same = Folder(read_arrays(files[FILES[0]]), *(json.loads(files[name]) for name in FILES[1:]))
    if "mean" in claim:
        kind, found, *_ = in_child(lambda: measured_mean(same, seed, 800), 60, 4 << 30)
        if kind != "ok":
            return {"status": "unmeasured", "note": str(found)[-300:]}
        said = bound, claim["mean"]["outside"], claim["mean"]["largest"]
        holds = all(a <= b for a, b in zip(found, said, strict=True))
        return {"status": "true" if holds else "false", "note": f"claims {tuple(map(float, said))}, found {found}"}
    kind, worst, *_ = in_child(lambda: max(measured(same, seed + k, 400, files) for k in (0, 1)), 60, 4 << 30)
    if kind != "ok":
        return {"status": "unmeasured", "note": str(worst)[-300:]}
    return {"status": "true" if worst <= bound else "false", "note": f"claims {float(bound):.17g}, found {worst:.17g}"}


def prepared(where: Path, names: list[str] | None = None) -> dict[str, Folder]:
    """The base models, compiled in another process so that this one holds the kernel only."""
    where.mkdir(parents=True, exist_ok=True)
    names = list(BASES) if names is None else names
    missing = [name for name in names if not (where / name / "certificate.json").exists()]
    if missing:
        subprocess.run([sys.executable, __file__, "--bases", str(where), *missing], check=True)
    return {name: Folder.read(where / name) for name in names}


def compile_bases(where: Path, names: list[str]) -> None:
    import transformula as tf

    for name in names:
        formulas, on, options = BASES[name]
        if formulas == "memorize":
            labels = [0, 1, 1, 0, 1 if options else 0.3]
            model = tf.memorize([[0, 0], [0, 1], [1, 0], [1, 1], [0.5, 0.25]], labels, eps=1e-3, **options)
        elif formulas == "attention":
            Z = np.random.default_rng(0).uniform(-1, 1, (60, 2, 2))
            y = Z[:, 0, 0] ** 2 * Z[:, 1, 0] - Z[:, 0, 0] * Z[:, 0, 1] + Z[:, 1, 1] ** 3 + Z[:, 1, 0] / 3
            model = tf.LinearAttentionRegressor(2).fit(Z, y).to_transformer(tolerance=1e-6, **options)
        elif not on:
            model = tf.in_context(formulas, **options)
        else:
            model = tf.compile(formulas, on=on, **options)
        model.save(where / name)


def forged(bases: dict[str, Folder], seeds: list[int], jobs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The results of seeds as they come, by so many processes."""
    if jobs == 1:
        yield from ((seed, one(bases, seed)) for seed in seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _remember, (bases,)) as pool:
        yield from pool.imap_unordered(_one, seeds, chunksize=4)


_bases: dict[str, Folder] = {}


def _remember(bases: dict[str, Folder]) -> None:
    _bases.update(bases)


def _one(seed: int) -> tuple[int, dict[str, Any]]:
    return seed, one(_bases, seed)


def forging(
    out: Path,
    count: int,
    where: Path,
    say: Callable[[str], Any] = print,
    names: list[str] | None = None,
    jobs: int = 1,
) -> dict[str, Any]:
    """Forge the seeds that are not in the file yet; the file is written as it goes."""
    bases = prepared(where, names)
    import transformula.model  # noqa: F401  loaded once, for all children

    results = json.loads(out.read_text())["results"] if out.exists() else {}
    began, missing = time.time(), [seed for seed in range(count) if str(seed) not in results]
    for done, (seed, result) in enumerate(forged(bases, missing, jobs), start=1):
        results[str(seed)] = result
        if result["status"] not in ("refused", "true"):
            say(f"{result['status'].upper()} {seed} {json.dumps(result)}")
        if done % 100 == 0 or done == len(missing):
            fresh = out.with_suffix(".part")
            fresh.write_text(json.dumps({"summary": summary(results), "results": results}, indent=0))
            fresh.replace(out)
            say(f"{len(results)}: {json.dumps(summary(results))} ({time.time() - began:.0f} s)")
    return summary(results)


def threaded(bases: dict[str, Folder], count: int, threads: int) -> dict[str, Any]:
    """Verify honest and forged folders by several threads at once; which verdicts differ from those alone."""
    from transformula.proven import verify_files

    folders = list(bases.items())
    for seed in range(count):
        name, done, folder, _ = changed(bases, seed) if seed % 4 else attacked(bases, random.Random(seed))
        folders.append((f"seed {seed}, {name}: {', '.join(done)}", folder))
    random.Random(0).shuffle(folders)
    sent = [(name, files, contents(files)) for name, folder in folders if (files := written(folder)) is not None]
    alone = [judge(files) for _, files, _ in sent]
    with ThreadPoolExecutor(threads) as pool:
        together = list(
            pool.map(lambda item: None if item is None else verify_files(*item), [item for *_, item in sent])
        )
    different = []
    for (name, *_), one_alone, found in zip(sent, alone, together, strict=True):
        said = None if found is None else (found.verified, "; ".join(found.reasons)[:600])
        if said is not None and said != (one_alone["verified"], one_alone["reason"]):
            different.append(f"{name}: {said}, and alone {one_alone}")
    return {
        "folders": len(sent),
        "verified": sum(answer["verified"] for answer in alone),
        "threads": threads,
        "different": different,
    }


def summary(results: dict[str, Any]) -> dict[str, Any]:
    counts = Counter(r["status"] for r in results.values())
    kinds = Counter(r["done"].partition(":")[0] for r in results.values())
    return {
        "forgeries": len(results),
        **{name: counts[name] for name in ("refused", "true", "false", "unmeasured", "traceback", "slow", "big")},
        "slowest": max((r["seconds"] for r in results.values()), default=0.0),
        "megabytes": max((r["megabytes"] for r in results.values()), default=0.0),
        "kinds": dict(kinds),
    }


def main() -> None:
    if sys.argv[1:2] == ["--bases"]:
        compile_bases(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=5000, help="how many forgeries")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--threads", type=int, default=0, help="compare verdicts of so many threads with those alone")
    parser.add_argument("--where", type=Path, default=None, help="where the honest folders are kept")
    given = parser.parse_args()
    where = given.where or given.out.with_suffix(".bases")
    if given.threads:
        found = threaded(prepared(where), given.count, given.threads)
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    else:
        found = forging(given.out, given.count, where, lambda text: print(text, flush=True), jobs=given.jobs)
    print(json.dumps(found, indent=1))
    bad = ("different", "false", "unmeasured", "traceback", "slow", "big")
    sys.exit(1 if any(found.get(name) for name in bad) else 0)


if __name__ == "__main__":
    main()
