"""A compiled model: weights, the formula they stand for, and the certificate that binds them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import fmpq

from transformula import proofs
from transformula.constructions.registry import CONSTRUCTIONS, Construction, Family
from transformula.errors import ExportError, ModelFileError, PointError, UncertifiedError
from transformula.formulas.prompts import Prompts
from transformula.formulas.samples import Samples, stored_target
from transformula.kernel.digits import at_most
from transformula.kernel.folder.claim import Certificate
from transformula.kernel.folder.description import (
    CERTIFICATE_FILE,
    EVIDENCE_FILE,
    MODEL_FILE,
    WEIGHTS_FILE,
    Description,
    parse_json,
)
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.files import Packed, read_packed, read_text, unpack
from transformula.kernel.folder.weights import Weights
from transformula.kernel.structures.circuits import Circuit, CircuitReader
from transformula.kernel.structures.positions import formula_of_a_position
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.optional import require
from transformula.program.numpy_backend import run_numpy
from transformula.program.steps import Program
from transformula.saving import STDOUT, write_file
from transformula.transformers import files, reference
from transformula.transformers.exact import run_exact
from transformula.transformers.matrices import memory_tokens, most_heads
from transformula.transformers.rows import Ends, as_asked, as_rows

if TYPE_CHECKING:
    import torch

    from transformula.inside import NamedTrace, Table, Wires


@dataclass(frozen=True, eq=False)
class Model:
    """A Transformer with a proof. Make one with `transformula.compile` or `transformula.load`.

    Examples
    --------
    >>> import transformula as tf
    >>> model = tf.compile("x**2 + y**2", on={"x": (-10, 10), "y": (-10, 10)})
    >>> model([[3, 4], [0, 0.5]])
    array([25.  ,  0.25])
    >>> model.certificate.approximation
    0.0
    """

    construction: str
    formula: Formula | Samples | Prompts
    weights: Weights
    packed: Packed
    certificate: Certificate
    sequence: tuple[int, int] | None = None

    @property
    def box(self) -> Box:
        """Where the certificate holds."""
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

    @cached_property
    def _ends(self) -> Ends:
        return Ends(self.box)

    @cached_property
    def _fingerprint(self) -> str:
        return proofs.fingerprint(self.packed, self.certificate)

    @property
    def proven(self) -> bool:
        """Whether this process has proven the claim: by compiling the model, or by verifying it."""
        return proofs.is_proven(self._fingerprint)

    @property
    def status(self) -> str:
        """What may be said about the bound: "proven" in this process, or only "claimed" by the folder it came from."""
        return "proven" if self.proven else "claimed"

    @property
    def pointwise(self) -> tuple[float, str]:
        """The bound on the error at a point, and its status; for a mean it holds only outside the seams."""
        mean = self.certificate.mean
        if mean is None:
            return self.certificate.bound, self.status
        return mean.outside, f"{self.status} outside seams"

    @property
    def layers(self) -> int:
        """Number of Transformer blocks."""
        return len(self.weights.blocks)

    @property
    def heads(self) -> int:
        """The largest number of heads in any block, which is what "heads" means everywhere."""
        return most_heads(self.weights)

    @property
    def tokens(self) -> int:
        """Length of the sequence."""
        return self.weights.tokens

    @property
    def memory_tokens(self) -> int:
        """Tokens that do not depend on the input."""
        return memory_tokens(self.weights)

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
        """What the weights compute, as steps on arrays that NumPy, torch and ONNX run."""
        return self.made_by.program(self.weights, self.box, lambda: self.reading)

    @property
    def degree(self) -> int:
        """Degree of a polynomial model."""
        degree: int = self.reading.degree
        return max(degree, 1)

    def __call__(self, x: Any) -> Any:
        """Evaluate rows of inputs, columns in the order of the box's variables.

        Arrays give arrays, tensors give tensors (differentiable). One formula gives one number per row; several give a
        row of numbers. Outside the box nothing is proven, and a warning says so once.
        """
        if type(x).__module__.partition(".")[0] == "torch":
            return self._evaluate_tensor(x)
        try:
            array = np.asarray(x)
        except ValueError:
            raise PointError("expected rows of numbers, got rows of different lengths") from None
        rows, single = self._rows(array)
        self._warn_outside(rows)
        values = run_numpy(self.program, rows) if self.family.program else reference.run(self.weights, rows)
        return as_asked(values, single, self.sequence)

    def _warn_outside(self, rows: Any) -> None:
        """Warn once if a point lies outside the box; a memorised table has no box."""
        if "_warned" in self.__dict__ or isinstance(self.formula, Samples):
            return
        if (name := self._ends.outside(rows)) is not None:
            self.__dict__["_warned"] = True
            warnings.warn(f"a value of {name} lies outside the box {self.where}, where nothing is proven", stacklevel=3)

    def _evaluate_tensor(self, x: Any) -> Any:
        import torch

        rows, single = self._rows(x)
        rows = rows.to(getattr(torch, self.weights.dtype))
        module = self._module(str(rows.device))
        if self.family.program is not None:
            from transformula.program.tensors import only_numbers

            if only_numbers(rows):  # NumPy works in the same memory, and takes half the time
                array = run_numpy(self.program, rows.detach().numpy(), torch.get_num_threads())
                return as_asked(torch.from_numpy(array), single, self.sequence)
        return as_asked(module(rows), single, self.sequence)

    @cached_property
    def _modules(self) -> dict[str, torch.nn.Module]:
        return {}

    def _module(self, device: str) -> torch.nn.Module:
        """The program on a device, with fixed numbers: gradients are with respect to the points only."""
        if device not in self._modules:
            self._modules[device] = self.to_torch().to(device).requires_grad_(False)
        return self._modules[device]

    def _rows(self, x: Any) -> tuple[Any, bool]:
        return as_rows(x, self.weights.inputs, self.sequence)

    def exact(self, point: list[fmpq]) -> list[fmpq]:
        """The blocks run on rationals: for a polynomial this equals the formula, with ``==``."""
        return run_exact(self.weights, point)

    def trace(self, x: Any) -> NamedTrace:
        """Run the blocks on a few rows and keep everything: residuals by slot, patterns by head.

        Examples
        --------
        >>> import transformula as tf
        >>> seen = tf.compile("sin(x)", on="x=0..1", eps=1e-3).trace([[0.5]])
        >>> seen.residual("y1", token="data").shape, len(seen.attended(most=2))
        ((1,), 2)
        """
        from transformula import inside

        rows, _ = self._rows(np.asarray(x))
        return inside.named(self.weights, reference.trace(self.weights, rows), self.token_labels)

    @property
    def token_labels(self) -> tuple[str, ...]:
        """A label for each token: data, a position, a direction, a place in a table, or a part of a prompt."""
        from transformula import inside

        if isinstance(self.formula, Prompts):
            return self.formula.token_labels
        return inside.token_labels(self.weights, "position" if self.sequence else self.family.data)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every head's table: function, range, slopes, offsets and values; empty where nothing is looked up."""
        from transformula import inside

        return tuple(inside.tables_of(self))

    @cached_property
    def description(self) -> Description:
        """model.json."""
        return unpack(self.packed)[1]

    @cached_property
    def position_formula(self) -> Formula:
        """What one position computes; the whole formula where each position carries all inputs."""
        assert isinstance(self.formula, Formula), "samples have no positions"
        own = int((self.weights.embedding.rows < self.weights.width).sum())  # inputs of the first token
        if self.sequence is not None and own < len(self.weights.inputs):
            return formula_of_a_position(self.formula, self.sequence[0])
        return self.formula

    @cached_property
    def circuit(self) -> Circuit:
        """The stored circuit of a softmax model, at one position."""
        return CircuitReader(self.position_formula.box.variables).read(self.description.circuit)

    @cached_property
    def wires(self) -> Wires:
        """What the wires of the stored circuit mean, and where their arguments lie."""
        from transformula.inside import Wires

        evidence = Evidence(parse_json(self.packed.evidence, EVIDENCE_FILE))
        return Wires(self.circuit, self.position_formula, self.description.circuit, evidence)

    def to_torch(self, blocks: bool = False) -> torch.nn.Module:
        """The program as a `torch.nn.Module`, or with ``blocks`` the Transformer as written.

        An in-context model has no program other than its blocks.
        """
        require("to_torch", "torch")
        if blocks or self.family.program is None:
            from transformula.transformers.torch_executor import TransformerModule

            return TransformerModule(self.weights)
        from transformula.program.torch_backend import ProgramModule

        return ProgramModule(self.program)

    def to_onnx(self, path: str | Path, blocks: bool = False, unverified: bool = False) -> Path:
        """Write an ONNX file with its claim, which is proven first unless ``unverified``: see docs/export.md.

        It holds the model's program, or with ``blocks`` the Transformer as it is written.
        """
        from transformula.exporting.onnx_files import onnx_bytes

        path = Path(path)
        if path != STDOUT and path.suffix != ".onnx":
            raise ExportError(f"an ONNX file is named like model.onnx, not {path.name}")
        if not unverified:
            proofs.require_proof(self.packed, self.certificate)
        write_file(path, onnx_bytes(self.packed, self.certificate, blocks=blocks, proven=self.proven))
        return path

    @property
    def contents(self) -> dict[str, bytes | str]:
        """The files of the model's folder."""
        return {
            WEIGHTS_FILE: self.packed.arrays,
            MODEL_FILE: self.packed.description,
            EVIDENCE_FILE: self.packed.evidence,
            CERTIFICATE_FILE: self.certificate.to_json(),
        }

    def save(self, folder: str | Path) -> Path:
        """Write the model folder, whole or not at all."""
        files.write_folder(Path(folder), self.contents)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """Read a model folder. Nothing is executed, and the claim is read but not proven: see verify."""
        folder = Path(folder)
        certificate = read_text(folder, CERTIFICATE_FILE)
        try:
            return cls.from_packed(read_packed(folder), certificate)
        except UncertifiedError as error:
            raise ModelFileError(f"{folder}: {error}") from None

    @classmethod
    def from_packed(cls, packed: Packed, claim: str) -> Model:
        """The model of a folder's contents: its packed weights and the text of its certificate."""
        weights, description = unpack(packed)
        certificate = Certificate.from_json(claim)
        for name, found in packed.hashes.items():
            if found != getattr(certificate, name):
                raise UncertifiedError(f"the files are not the certified ones ({name} differs)")
        formula = stored_target(description)
        if weights.inputs != formula.box.variables or weights.outputs != len(formula.outputs):
            raise UncertifiedError("the weights' inputs or outputs are not those of the formula")
        shape = None if description.shape is None else (description.shape[0], description.shape[1])
        return cls(description.construction, formula, weights, packed, certificate, shape)

    def _repr_html_(self) -> str:
        """What a notebook shows: formula, box, claim, size and a small plot."""
        from transformula.viewing.card import card

        return card(self)

    def __repr__(self) -> str:
        text = self.formula.words if isinstance(self.formula, Prompts) else str(self.formula)
        shown = text if len(text) <= 60 else text[:57] + "..."
        return (
            f"<transformula model: {shown} on {self.where} | {self.construction}, {self.layers} layer"
            f"{'s'[: self.layers != 1]}, {self.heads} head{'s'[: self.heads != 1]}, {self.tokens} tokens "
            f"| {self.status} {'' if self.certificate.mean is None else 'mean '}error <= "
            f"{at_most(self.certificate.bound)} ({self.weights.dtype})>"
        )
