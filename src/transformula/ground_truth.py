"""The ground truth of a circuit: every wire with its place in the Transformer, its expression, range and proven error.

Nodes are the inputs, the tables (heads), the ReLUs (hidden units), the outputs, and products and lengths, which are
combinations of these without a slot of their own. Edges say which node reads which, and with which factor. Expressions
are what the slot holds; ranges and errors are those of the kernel's proof, repeated here from the stored evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from transformula.errors import InputError
from transformula.internals import written_slot
from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.enclosures.balls import enclose, round_up
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.rules.softmax_rule import Walk
from transformula.kernel.structures.network import read_network
from transformula.kernel.structures.stored_circuit import LinearForm, Wire

if TYPE_CHECKING:
    from transformula.model import Model

_BITS = 128


@dataclass(frozen=True)
class TruthNode:
    """One node; counting starts at 0, and what a node does not have is None.

    Attributes
    ----------
    name : str
        The slot that holds it, or a name of its own.
    kind : str
        input, table, relu, product, length or output.
    block, head, unit : int or None
        The head of a table, or the hidden unit of a ReLU.
    expression : str
        The value in terms of the inputs.
    function : str or None
        The function of u that a table stands for.
    low, high : float or None
        The proven range of the exact value.
    error, rounding : float or None
        Proven: |held − expression| in exact arithmetic, |computed − held|.
    """

    name: str
    kind: str
    expression: str
    block: int | None = None
    head: int | None = None
    unit: int | None = None
    function: str | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    rounding: float | None = None


@dataclass(frozen=True)
class TruthEdge:
    """``target`` reads ``factor`` times ``source``."""

    source: str
    target: str
    factor: float


@dataclass(frozen=True)
class GroundTruth:
    """Nodes in an order in which they can be computed, and edges between them.

    Examples
    --------
    >>> import transformula as tf
    >>> truth = tf.compile("exp(x*y)", on="x=0..1, y=0..1", eps=1e-3, construction="circuit").ground_truth
    >>> [node.name for node in truth.nodes if node.kind == "table"]
    ['w2', 'w3', 'w5']
    >>> truth["w5"].expression, truth["w5"].function
    ('exp(x*y)', 'exp(u)')
    """

    nodes: tuple[TruthNode, ...]
    edges: tuple[TruthEdge, ...]

    def __getitem__(self, name: str) -> TruthNode:
        """The node of a name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise InputError(f"there is no node {name}: the nodes are {', '.join(node.name for node in self.nodes)}")

    def to_json(self) -> str:
        """Nodes and edges as JSON."""
        return json.dumps({"nodes": [asdict(n) for n in self.nodes], "edges": [asdict(e) for e in self.edges]})

    def to_networkx(self) -> Any:
        """A ``networkx.DiGraph`` with the same attributes; networkx must be installed."""
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from((node.name, asdict(node)) for node in self.nodes)
        graph.add_edges_from((edge.source, edge.target, {"factor": edge.factor}) for edge in self.edges)
        return graph


def ground_truth_of(model: Model) -> GroundTruth:
    """The ground truth of a softmax model with a stored circuit."""
    return _Reader(model).read()


class _Reader:
    """Reads nodes and edges out of the stored circuit and the kernel's walk through it."""

    def __init__(self, model: Model) -> None:
        self.model, self.wires, self.circuit = model, model.wires, model.circuit
        network = read_network(model.weights)
        with precision(_BITS):
            stated, evidence = model.description.circuit, self.wires.evidence
            meanings = Meanings(model.position_formula, self.circuit, stated, evidence, floors=True)
            form, sharp = FORMATS[model.weights.dtype], model.made_by.sharp
            self.walk = Walk(form, network, self.circuit, meanings, self.wires.evidence, sharp)
            self.walk.run()
            self.outputs = [self.walk.output(number) for number in range(len(self.circuit.outputs))]
        self.names = {k: self._name(k, wire) for k, wire in enumerate(self.circuit.wires)}

    def read(self) -> GroundTruth:
        """All nodes, then all edges."""
        nodes = [self._node(k, wire) for k, wire in enumerate(self.circuit.wires)]
        edges = [e for k, wire in enumerate(self.circuit.wires) for e in self._reads(self.names[k], wire)]
        for number, (form, bounds) in enumerate(zip(self.circuit.outputs, self.outputs, strict=True)):
            name = f"output {number}"
            text = str(self.wires.meaning(form))
            nodes.append(TruthNode(name, "output", text, error=bounds[0], rounding=bounds[1]))
            edges += self._edges(name, form)
        return GroundTruth(tuple(nodes), tuple(edges))

    def _name(self, k: int, wire: Wire) -> str:
        if not wire.arguments:
            return self.circuit.variables[k]
        if wire.place is None:
            return f"{_kind(wire)} {k}"
        return self.model.weights.slots[written_slot(self.model.weights, wire)]

    def _node(self, k: int, wire: Wire) -> TruthNode:
        low, high = map(float, self.walk.ranges.values[k]) if k in self.walk.ranges.values else (None, None)
        value = self.walk.values.get(k)
        block, part, _ = wire.place or (None, None, None)
        table = wire.function is not None
        return TruthNode(
            self.names[k],
            _kind(wire),
            str(self.wires.meanings[k]),
            block,
            part if table else None,
            None if table else part,
            str(wire.function) if table else None,
            low,
            high,
            None if value is None else round_up(value.error),
            None if value is None else round_up(value.rounding),
        )

    def _reads(self, name: str, wire: Wire) -> Iterator[TruthEdge]:
        """Edges into a wire: a product or a length reads the wires that make it up, others their arguments."""
        for form in wire.arguments if wire.total is None else (wire.total,):
            yield from self._edges(name, form)

    def _edges(self, name: str, form: LinearForm) -> Iterator[TruthEdge]:
        for k, factor in form.terms:
            yield TruthEdge(self.names[k], name, float(enclose(factor)))


def _kind(wire: Wire) -> str:
    if not wire.arguments:
        return "input"
    if wire.total is not None:
        return "length" if wire.is_norm else "product"
    return "relu" if wire.function is None else "table"
