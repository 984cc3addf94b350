"""Small models for the kernel's own tests, laid out here and nowhere else: Fang's blocks, a memorised map."""

from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

from transformula.compiler.certify import pack
from transformula.kernel.check import prove
from transformula.kernel.folder.description import Certificate, Description
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.kernel.rounding.formats import describe
from transformula.runtime.matrices import dense_matrix, matrix_of

Terms = dict[tuple[int, int, int], Any]


def rational(value: Any) -> fmpq:
    if isinstance(value, fmpq):
        return value
    value = Fraction(value)
    return fmpq(value.numerator, value.denominator)


def ridge_weights(
    inputs: tuple[str, ...],
    directions: list[dict[int, Any]],
    terms: Terms,
    bias: list[Any],
    dtype: str = "float64",
    offset: Any = 3,
) -> Weights:
    """Σ terms[output, token, power] (direction·x)^power + bias: single-head blocks, p_s = −t p_{s−1}."""
    n = len(directions)
    degree = max((s for _, _, s in terms), default=1)
    slots = ("t", *(f"e{k}" for k in range(n)), *(f"p{s}" for s in range(1, degree + 1)), "one")
    width, one = len(slots), len(slots) - 1

    def matrix(shape: tuple[int, int], entries: list[tuple[int, int, Any]]) -> Matrix:
        return matrix_of(shape, [(r, c, rational(v)) for r, c, v in entries], dtype)

    def block(s: int) -> Block:
        slot, previous = n + s, one if s == 1 else n + s - 1
        hot = [(k + 1, k + 1) for k in range(n)]
        head = Head(
            matrix((n + 1, width), [(0, 0, 1), *((r, c, offset) for r, c in hot)]),
            matrix((n + 1, width), [(0, previous, 1), *((r, c, 1) for r, c in hot)]),
            matrix((width, width), [(slot, one, 1)]),
        )
        layer = FeedForward(
            matrix((2, width), [(0, slot, 1), (1, slot, -1)]),
            matrix((2, 1), []),
            matrix((width, 2), [(slot, 0, -2), (slot, 1, 2)]),
            matrix((width, 1), [(slot, 0, offset)]),
        )
        return Block(Attention((head,), "hardmax"), layer)

    return Weights(
        inputs=inputs,
        slots=slots,
        tokens=n,
        embedding=matrix(
            (n * width, len(inputs)), [(k * width, i, v) for k, d in enumerate(directions) for i, v in d.items()]
        ),
        memory=matrix((n, width), [e for k in range(n) for e in ((k, k + 1, 1), (k, one, 1))]),
        blocks=tuple(block(s) for s in range(1, degree + 1)),
        readout=matrix(
            (len(bias), n * width),
            [(o, k * width + n + s, (-1) ** s * rational(v)) for (o, k, s), v in terms.items()],
        ),
        bias=matrix((len(bias), 1), [(o, 0, v) for o, v in enumerate(bias)]),
        dtype=dtype,
    )


def cubic(dtype: str = "float64") -> tuple[Weights, Description]:
    """x**3/3 - 5*x*y + 1/7 with x*y = ((x + y)**2 - (x - y)**2)/4, scaled so that |t| <= 1."""
    directions = [{0: "1/2"}, {0: "1/8", 1: "1/8"}, {0: "1/8", 1: "-1/8"}]
    terms = {(0, 0, 3): "8/3", (0, 1, 2): -80, (0, 2, 2): 80}
    weights = ridge_weights(("x", "y"), directions, terms, ["1/7"], dtype)
    return weights, Description("polynomial", ["x**3/3 - 5*x*y + 1/7"], "x=-2..2, y=-1..3")


def memory_weights(x: Any, y: Any, scale: float, dtype: str = "float64", gate: float = -4000.0) -> Weights:
    """One softmax head whose token j scores scale (c_j·x − |c_j|²/2) and holds y_j; token 0 is the data token."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    (n, d), outputs = x.shape, y.shape[1]
    inputs = tuple(f"x{k + 1}" for k in range(d))
    stored = [f"{part}{k}" for k in range(d) for part in ("slope", "offset")]
    values = [f"v{k}" for k in range(outputs)]
    slots = (*inputs, "one", "data", *stored, *values, *(f"y{k}" for k in range(outputs)))
    at = {name: k for k, name in enumerate(slots)}
    memory = np.zeros((n + 1, len(slots)))
    memory[0, [at["one"], at["data"]]] = 1
    memory[1:, [at[f"slope{k}"] for k in range(d)]] = scale * x
    memory[1:, at["offset0"]] = -scale / 2 * (x**2).sum(axis=1)
    memory[1:, [at[name] for name in values]] = y
    rows = 2 * d + 1
    query = [(2 * k, k, 1) for k in range(d)] + [(2 * k + 1, at["one"], 1) for k in range(d)]
    key = [(r, at[name], 1) for r, name in enumerate(stored)]
    head = Head(
        matrix_of((rows, len(slots)), [*query, (rows - 1, at["one"], 1)], dtype),
        matrix_of((rows, len(slots)), [*key, (rows - 1, at["data"], gate)], dtype),
        matrix_of((len(slots),) * 2, [(at[f"y{k}"], at[f"v{k}"], 1) for k in range(outputs)], dtype),
    )
    width = len(slots)
    return Weights(
        inputs=inputs,
        slots=slots,
        tokens=n + 1,
        embedding=matrix_of(((n + 1) * width, d), [(k, k, 1) for k in range(d)], dtype),
        memory=dense_matrix(memory, dtype),
        blocks=(Block(Attention((head,))),),
        readout=matrix_of((outputs, (n + 1) * width), [(k, at[f"y{k}"], 1) for k in range(outputs)], dtype),
        bias=matrix_of((outputs, 1), [], dtype),
        dtype=dtype,
    )


def certified(weights: Weights, description: Description, evidence: dict[str, Any]) -> tuple[Packed, str]:
    """File contents with a certificate that claims exactly what the kernel proves."""
    packed = pack(weights, description, evidence)
    proof = prove(weights, description, Evidence(evidence))
    return packed, claim_for(packed, description, weights.dtype, proof.approximation, proof.rounding).to_json()


def claim_for(
    packed: Packed, description: Description, dtype: str, approximation: float, rounding: float
) -> Certificate:
    """A claim with the right hashes, whatever it says."""
    eps = 2 * (approximation + rounding)
    model = describe(dtype)
    return Certificate(description.construction, approximation, rounding, eps, dtype, model, **packed.hashes)
