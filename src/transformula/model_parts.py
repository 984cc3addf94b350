"""The parts of a compiled model, and everything that is read from them: sizes, tables, circuit and wires."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformula.compiler.constructions import CONSTRUCTIONS, Construction, Family
from transformula.errors import InputError
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.internals import ModelTable, Wires, tables_of, token_labels
from transformula.kernel.folder.description import EVIDENCE_FILE, Certificate, Description, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed, unpack
from transformula.kernel.folder.weights import Weights
from transformula.kernel.structures.ridge_blocks import Ridge
from transformula.kernel.structures.stored_circuit import Circuit, CircuitReader
from transformula.kernel.syntax.boxes import Box, Formula, formula_of_a_position
from transformula.runtime.program.program_steps import Program


@dataclass(frozen=True, eq=False)
class ModelParts:
    """Weights, the formula they stand for and the certificate, with what can be read from them."""

    construction: str
    formula: Formula | Samples | Prompts
    weights: Weights
    packed: Packed
    certificate: Certificate
    sequence: tuple[int, int] | None = None

    @property
    def box(self) -> Box:
        """The box on which the certificate holds."""
        return self.formula.box

    @property
    def where(self) -> str:
        """The box as text; a short description if it is a box of prompts."""
        return self.formula.where if isinstance(self.formula, Prompts) else str(self.box)

    @property
    def unused(self) -> tuple[str, ...]:
        """Variables of the box that no formula uses: the model accepts and ignores them."""
        if not isinstance(self.formula, Formula):
            return ()
        used = frozenset().union(*(expr.names for expr in self.formula.outputs))
        return tuple(name for name in self.box.variables if name not in used)

    @property
    def layers(self) -> int:
        """Number of Transformer blocks."""
        return len(self.weights.blocks)

    @property
    def heads(self) -> int:
        """Number of attention heads in all blocks."""
        return sum(len(block.attention.heads) for block in self.weights.blocks)

    @property
    def most_heads(self) -> int:
        """The largest number of heads in one block."""
        return max((len(block.attention.heads) for block in self.weights.blocks), default=0)

    @property
    def tokens(self) -> int:
        """Length of the sequence."""
        return self.weights.tokens

    @property
    def memory_tokens(self) -> int:
        """Tokens that do not depend on the input."""
        return self.tokens - len(self.weights.data_tokens)

    @property
    def parameter_count(self) -> int:
        """Numbers that depend on the formula; for a polynomial F, β and b, as Fang counts them."""
        return self.family.count(self.weights, lambda: self.reading)

    @property
    def made_by(self) -> Construction:
        """The construction, with everything that depends on it."""
        return CONSTRUCTIONS[self.construction]

    @property
    def family(self) -> Family:
        """The layout of the weights, and how they are run."""
        return self.made_by.family

    @cached_property
    def reading(self) -> Any:
        """The weights read back: a `Ridge`, the heads of one layer, the blocks of a circuit; None of prompts."""
        return self.family.read(self.weights)

    @cached_property
    def program(self) -> Program:
        """The function of the weights as steps on arrays, which NumPy, torch and ONNX run."""
        if self.family.program is None:
            raise self._without("a program other than its blocks")
        return self.made_by.program(self.weights, self.box, lambda: self.reading)

    @property
    def degree(self) -> int:
        """Degree of a polynomial model."""
        if not isinstance(self.reading, Ridge):
            raise self._without("a degree")
        return max(self.reading.degree, 1)

    def _without(self, what: str) -> InputError:
        return InputError(f"a model of the construction {self.construction} does not have {what}")

    @property
    def token_labels(self) -> tuple[str, ...]:
        """A label for each token: data, a position, a direction, a place in a table, or a part of a prompt."""
        if isinstance(self.formula, Prompts):
            return self.formula.token_labels
        return token_labels(self.weights, "position" if self.sequence else self.family.data)

    @property
    def tables(self) -> tuple[ModelTable, ...]:
        """Every head's table: function, range, slopes, offsets and values; empty where nothing is looked up."""
        return tuple(tables_of(self))

    @cached_property
    def description(self) -> Description:
        """model.json."""
        return unpack(self.packed)[1]

    @cached_property
    def position_formula(self) -> Formula:
        """The formula of one position; the whole formula where each position carries all inputs."""
        if not isinstance(self.formula, Formula):
            raise self._without("a formula")
        own = int((self.weights.embedding.rows < self.weights.width).sum())  # inputs of the first token
        if self.sequence is not None and own < len(self.weights.inputs):
            return formula_of_a_position(self.formula, self.sequence[0])
        return self.formula

    @cached_property
    def circuit(self) -> Circuit:
        """The stored circuit of a softmax model, at one position."""
        if self.description.circuit is None:
            raise self._without("a circuit")
        return CircuitReader(self.position_formula.box.variables).read(self.description.circuit)

    @cached_property
    def wires(self) -> Wires:
        """The meanings of the stored circuit's wires, and the ranges of their arguments."""
        evidence = Evidence(parse_json(self.packed.evidence, EVIDENCE_FILE))
        return Wires(self.circuit, self.position_formula, self.description.circuit, evidence)
