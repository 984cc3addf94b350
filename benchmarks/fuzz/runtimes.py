"""One layer of tables with hostile numbers: every runtime stays within the rounding that the kernel proves.

Slopes and offsets of any size, values next to overflow and to underflow, in float32 and float64. The formula is 0 and
the approximation error therefore large; what counts is |computed − T|, T by mpmath from the numbers themselves.
"""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import mpmath
import numpy as np

import transformula as tf
from campaign import executed
from fuzz.cases import Case, fuzzer
from fuzz.values import real
from transformula.budget import OutOfWork, limited
from transformula.compiler.certify import outlined, pack
from transformula.compiler.evidence.finder import Finder
from transformula.errors import TransformulaError
from transformula.kernel.check import prove
from transformula.kernel.folder.description import Certificate, Description, Proof
from transformula.kernel.folder.weights import Attention, Block, Head, Weights
from transformula.kernel.rounding.formats import describe
from transformula.runtime.matrices import matrix_of

#: Sizes of the values: a sum of a few of the largest overflows.
SIZES = {"float32": (1.0, 1.0, 1e30, 4e37, 1e-30, 1e-44), "float64": (1.0, 1.0, 1e290, 2e307, 1e-290, 1e-320)}
GATE, POINTS, SECONDS = -float(2**20), 12, 1.0


class Numbers(NamedTuple):
    """A table, all of one dtype: tokens × axes of slopes and offsets, and values; inputs are from -reach to reach."""

    slopes: Any
    offsets: Any
    values: Any
    reach: float

    @property
    def axes(self) -> int:
        return int(self.slopes.shape[1])

    def at(self, point: Any) -> Any:
        """T, from the numbers."""
        point, rows = [Fraction(float(x)) for x in point], zip(self.slopes.tolist(), self.offsets.tolist(), strict=True)
        scores = [real(sum(Fraction(a) * x + Fraction(b) for a, b, x in zip(*row, point, strict=True))) for row in rows]
        weights = [mpmath.exp(score - max(scores)) for score in scores]
        return mpmath.fdot(zip(weights, self.values.tolist(), strict=True)) / sum(weights)


def numbers(rng: random.Random, dtype: str) -> Numbers:
    """A table of one axis, or a grid of two."""
    steep, reach = rng.choice((1, 5, 50, 400)), rng.choice((1.0, 3.0, 100.0))
    tokens = rng.randint(2, 40) if rng.random() < 0.75 else rng.randint(2, 6)
    axes = 1 if tokens > 6 or rng.random() < 0.5 else 2
    lines = []
    for _ in range(axes):
        a = np.sort([rng.uniform(-steep, steep) for _ in range(tokens)])
        b = np.array([rng.uniform(-steep, steep) for _ in range(tokens)])
        if rng.random() < 0.5:  # as the compiler has them: neighbours lead in turn
            b = -(a**2) / (2 * steep) * rng.choice((0.1, 1, 3))
        if rng.random() < 0.5:  # one token is the anchor of a softmax that is not shifted
            k = rng.randrange(tokens)
            a, b = a - a[k], b - b[k]
        lines.append(list(zip(a, b, strict=True)))
    pairs = np.array(list(product(*lines)))
    scale = rng.choice(SIZES[dtype]) / rng.choice((1, 4, 16, 64))
    equal = rng.random() < 0.2
    values = np.array([scale * (0.99 if equal else rng.uniform(-1, 1)) for _ in pairs])
    return Numbers(pairs[:, :, 0].astype(dtype), pairs[:, :, 1].astype(dtype), values.astype(dtype), reach)


def weights_of(table: Numbers) -> Weights:
    """One head that reads the table at the inputs."""
    axes, dtype = range(table.axes), str(table.values.dtype)
    slots = [
        "one",
        *(f"x{k}" for k in axes),
        *(f"slope{k}" for k in axes),
        *(f"offset{k}" for k in axes),
        "value",
        "closed",
        "y",
    ]
    place = {name: k for k, name in enumerate(slots)}
    tokens, width, rows = 1 + len(table.values), len(slots), 2 * table.axes + 1
    memory = [(0, "one", 1.0), (0, "closed", 1.0)]
    for token, (a, b, v) in enumerate(
        zip(table.slopes.tolist(), table.offsets.tolist(), table.values.tolist(), strict=True), start=1
    ):
        memory += (
            [(token, f"slope{k}", a[k]) for k in axes]
            + [(token, f"offset{k}", b[k]) for k in axes]
            + [(token, "value", v)]
        )
    query = [(2 * k, f"x{k}", 1.0) for k in axes] + [(2 * k + 1, "one", 1.0) for k in axes] + [(rows - 1, "one", 1.0)]
    key = (
        [(2 * k, f"slope{k}", 1.0) for k in axes]
        + [(2 * k + 1, f"offset{k}", 1.0) for k in axes]
        + [(rows - 1, "closed", GATE)]
    )

    def matrix(height: int, entries: list[tuple[int, str, float]]) -> Any:
        return matrix_of((height, width), [(r, place[c], v) for r, c, v in entries], dtype)

    head = Head(matrix(rows, query), matrix(rows, key), matrix(width, [(place["y"], "value", 1.0)]))
    embedding = matrix_of((tokens * width, table.axes), [(place[f"x{k}"], k, 1.0) for k in axes], dtype)
    readout = matrix_of((1, tokens * width), [(0, place["y"], 1.0)], dtype)
    names = tuple(f"x{k}" for k in axes)
    blocks = (Block(Attention((head,))),)
    return Weights(
        names,
        tuple(slots),
        tokens,
        embedding,
        matrix(tokens, memory),
        blocks,
        readout,
        matrix_of((1, 1), [], dtype),
        dtype,
    )


def proven(table: Numbers) -> tuple[tf.Model, Proof] | None:
    """The model of a table and what is proven of it, if anything is."""
    weights = weights_of(table)
    axes, box = range(table.axes), ", ".join(f"x{k}=-{table.reach}..{table.reach}" for k in range(table.axes))
    read = [{"wires": [[k, "1"]], "plus": "0"} for k in axes]
    circuit = {"wires": [{"table": "0", "of": read, "from": [0, 0, 0]}], "extends": [], "signs": []}
    circuit["outputs"] = [{"wires": [[table.axes, "1"]], "plus": "0"}]
    stated, finder = Description("lookup", ["0"], box, circuit=circuit), Finder(follow=False)
    try:
        with limited(SECONDS):
            proof = prove(weights, outlined(weights, stated), finder)
    except (TransformulaError, OutOfWork):
        return None
    packed = pack(weights, stated, finder.evidence())
    claim = Certificate(
        "lookup",
        proof.approximation,
        proof.rounding,
        proof.bound,
        weights.dtype,
        describe(weights.dtype),
        **packed.hashes,
    )
    return tf.Model.from_packed(packed, claim.to_json()), proof


@fuzzer
def runtimes(case: Case) -> None:
    """Run a proven table everywhere."""
    rng = case.rng
    dtype = rng.choice(("float32", "float64"))
    table = numbers(rng, dtype)
    largest = float(np.abs(table.values).max())
    case.given = (
        f"{len(table.values)} tokens, {table.axes} axes, values to {largest:.3g}, {dtype}, inputs to {table.reach}"
    )
    found = proven(table)
    if found is None:
        return
    model, proof = found
    x = np.random.default_rng(case.seed).uniform(-table.reach, table.reach, (POINTS, table.axes))
    x[:4] = np.array([1, -1, 0, 0.5])[:, None] * table.reach
    x = x.astype(dtype)
    wanted = [table.at(point) for point in x]
    with np.errstate(all="ignore"):
        runs = executed(model, x, onnx=case.seed % 4 == 0)
    for name, values in runs:
        for got, exact, point in zip(np.asarray(values).ravel().tolist(), wanted, x.tolist(), strict=True):
            holds = np.isfinite(got) and abs(real(got) - exact) <= proof.rounding
            case.check(
                f"{name} is within its claim",
                holds,
                f"{got}, not {mpmath.nstr(exact, 20)} +- {proof.rounding:.3g} at {point}",
            )
