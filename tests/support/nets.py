"""Table Transformers laid out number by number, honest or not, with a certificate for whatever the kernel proves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transformula.compiler.certify import outlined, pack
from transformula.compiler.evidence.finder import Finder
from transformula.errors import TransformulaError
from transformula.kernel.check import Verification, prove, verify_files
from transformula.kernel.folder.description import Certificate, Description
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.kernel.rounding.formats import describe
from transformula.runtime import reference
from transformula.runtime.matrices import matrix_of

Entries = list[tuple[int, int, Any]]


@dataclass
class Layer:
    """Heads (table, form, slot) and hidden units (form, bias, slots written)."""

    heads: list[tuple[int, Mapping[str, Any], str]] = field(default_factory=list)
    units: list[tuple[Mapping[str, Any], Any, Mapping[str, Any]]] = field(default_factory=list)


@dataclass
class Net:
    """A Transformer of tables of one axis and ReLUs; slots and forms go by name.

    ``tables`` are lists of (slope, offset, value); ``data`` are constants of each data token by slot; every
    output is a mapping of (position, slot) to a coefficient.
    """

    inputs: Sequence[str]
    wires: Sequence[str] = ()
    tables: Sequence[Sequence[tuple[float, float, float]]] = ()
    layers: Sequence[Layer] = ()
    outputs: Sequence[Mapping[tuple[int, str], Any]] = ()
    bias: Sequence[Any] = ()
    data: Sequence[Mapping[str, float]] = ({},)
    dtype: str = "float64"
    gate: float = -1e5

    @property
    def slots(self) -> tuple[str, ...]:
        gates = [f"gate{k}" for k in range(len(self.tables) + 1)]
        return (*(f"x.{n}" for n in self.inputs), "one", *self.wires, "slope", "offset", "value", *gates)

    def matrix(self, shape: tuple[int, int], entries: Entries) -> Matrix:
        return matrix_of(shape, entries, self.dtype)

    def weights(self) -> Weights:
        at = {name: k for k, name in enumerate(self.slots)}
        width, positions = len(at), len(self.data)
        memory: Entries = []
        for p, constants in enumerate(self.data):
            memory += [(p, at["one"], 1), (p, at["gate0"], 1), *((p, at[s], v) for s, v in constants.items())]
        token = positions
        for t, table in enumerate(self.tables):
            for row in table:
                memory += [(token, at[n], v) for n, v in zip(("slope", "offset", "value"), row, strict=True)]
                memory.append((token, at[f"gate{t + 1}"], 1))
                token += 1
        outputs = [(o, p * width + at[s], v) for o, form in enumerate(self.outputs) for (p, s), v in form.items()]
        places = [(p * width + k, k, 1) for p in range(positions) for k in range(len(self.inputs))]
        return Weights(
            inputs=tuple(self.inputs),
            slots=self.slots,
            tokens=token,
            embedding=self.matrix((token * width, len(self.inputs)), places),
            memory=self.matrix((token, width), memory),
            blocks=tuple(self._block(layer, at) for layer in self.layers),
            readout=self.matrix((len(self.outputs), token * width), outputs),
            bias=self.matrix((len(self.outputs), 1), [(o, 0, v) for o, v in enumerate(self.bias)]),
            dtype=self.dtype,
        )

    def _block(self, layer: Layer, at: Mapping[str, int]) -> Block:
        width, heads = len(at), []
        for table, form, slot in layer.heads:
            query: Entries = [(0, at[s], v) for s, v in form.items()]
            gates = [(2, at[f"gate{k}"], self.gate) for k in range(len(self.tables) + 1) if k != table + 1]
            heads.append(
                Head(
                    self.matrix((3, width), [*query, (1, at["one"], 1), (2, at["one"], 1)]),
                    self.matrix((3, width), [(0, at["slope"], 1), (1, at["offset"], 1), *gates]),
                    self.matrix((width, width), [(at[slot], at["value"], 1)] if slot else []),
                )
            )
        if not layer.units:
            return Block(Attention(tuple(heads)))
        hidden, bias, output = [], [], []
        for u, (form, b, written) in enumerate(layer.units):
            hidden += [(u, at[s], v) for s, v in form.items()]
            bias.append((u, 0, b))
            output += [(at[s], u, v) for s, v in written.items()]
        n = len(layer.units)
        shapes = (n, width), (n, 1), (width, n), (width, 1)
        parts = (hidden, bias, output, [])
        return Block(
            Attention(tuple(heads)),
            FeedForward(*(self.matrix(s, e) for s, e in zip(shapes, parts, strict=True))),
        )


def linear(*terms: tuple[int, str], plus: str = "0") -> dict[str, Any]:
    """A linear form of the stored circuit."""
    return {"wires": [list(t) for t in terms], "plus": plus}


@dataclass
class Forged:
    """A folder whose certificate claims exactly what the kernel proves of it."""

    weights: Weights
    description: Description
    verification: Verification

    @property
    def bound(self) -> float:
        return self.verification.bound if self.verification.bound is not None else float("nan")

    def run(self, x: Any) -> np.ndarray:
        """What the weights compute: the definition, in NumPy."""
        with np.errstate(all="ignore"):
            return reference.run(self.weights, np.asarray(x, dtype=float))


def forge(
    weights: Weights,
    formulas: Sequence[str],
    box: str,
    circuit: Any,
    change: Callable[[dict[str, Any]], None] | None = None,
    evidence: dict[str, Any] | None = None,
    construction: str = "circuit",
    shape: list[int] | None = None,
) -> Forged:
    """Search for evidence (unless it is given), change it, and verify a claim of what is proven with it."""
    plain = Description(construction, formulas=list(formulas), box=box, circuit=circuit, shape=shape)
    description = outlined(weights, plain)
    if evidence is None:
        finder = Finder(follow=False)
        prove(weights, description, finder)
        evidence = copy.deepcopy(finder.evidence())
    if change is not None:
        change(evidence)
    packed = pack(weights, plain, evidence)
    claim: dict[str, Any] = {"approximation": 1e300, "rounding": 1e300, "eps": 1e301}
    for _ in range(2):  # first to learn what is proven, then to claim just that
        certificate = Certificate(
            construction, dtype=weights.dtype, rounding_model=describe(weights.dtype), **claim, **packed.hashes
        )
        found = verify_files(packed, certificate.to_json())
        if not found:
            break
        claim = {"approximation": found.approximation, "rounding": found.rounding, "eps": 2 * found.bound + 1e-300}
    return Forged(weights, description, found)


def refused(*args: Any, **more: Any) -> bool:
    """Whether a folder is refused, by the search or by the kernel."""
    try:
        return not forge(*args, **more).verification
    except TransformulaError:
        return True
