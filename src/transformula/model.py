"""A compiled model: weights, the formula they stand for, and the certificate that binds them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flint import fmpq

from transformula import model_folder, proven
from transformula.compiler.constructions import CONSTRUCTIONS, Construction, Family
from transformula.errors import ExportError, InputError, ModelFileError, UncertifiedError
from transformula.files import STDOUT, as_path, write_file
from transformula.formula.given_arrays import as_array, is_tensor
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples, stored_target
from transformula.internals import ModelTable, NamedTrace, Wires, tables_of, token_labels
from transformula.kernel.digits import at_most
from transformula.kernel.folder.certificate import Certificate
from transformula.kernel.folder.description import (
    CERTIFICATE_FILE,
    EVIDENCE_FILE,
    MODEL_FILE,
    WEIGHTS_FILE,
    Description,
    parse_json,
)
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed, read_packed, read_text, unpack
from transformula.kernel.folder.weights import Weights
from transformula.kernel.structures.ridge_blocks import Ridge
from transformula.kernel.structures.stored_circuit import Circuit, CircuitReader
from transformula.kernel.syntax.boxes import Box, Formula, formula_of_a_position
from transformula.optional import require
from transformula.runtime import reference
from transformula.runtime.exact import run_exact
from transformula.runtime.input_rows import Ends, Points, as_asked, as_rows, exact_point
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.program_steps import Program

if TYPE_CHECKING:
    import torch


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
        return proven.fingerprint(self.packed, self.certificate)

    @property
    def proven(self) -> bool:
        """Whether this process has proven the claim: by compiling the model, or by verifying it."""
        return proven.is_proven(self._fingerprint)

    @property
    def status(self) -> str:
        """The standing of the bound: "proven" in this process, or only "claimed" by the folder it came from."""
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

    def __call__(self, x: Any) -> Any:
        """Evaluate points: tables and dicts by the names of the variables, arrays by their order in the box.

        Data frames, Arrow tables, dicts of columns or of numbers, structured arrays and rows of a data frame are read
        by name; columns that are not the model's are ignored, and a warning says so once. Arrays and lists give arrays,
        tensors give tensors (differentiable). One formula gives one number per row; several give a row of numbers. A
        single point gives a single answer. Outside the box nothing is proven, and a warning says so once.

        Examples
        --------
        >>> import transformula as tf
        >>> model = tf.compile("x - y", on="x=0..1, y=0..1")
        >>> float(model({"y": 0.25, "x": 1})), model({"y": [0, 1], "x": [1, 1]}).tolist(), model([[1, 0.25]]).tolist()
        (0.75, [1.0, 0.0], [0.75])
        """
        points = self._points(x)
        if is_tensor(points.rows):
            return self._evaluate_tensor(points)
        self._warn_outside(points.rows)
        program = self.family.program
        values = run_numpy(self.program, points.rows) if program else reference.run(self.weights, points.rows)
        return as_asked(values, points.single, self.sequence)

    def _warn_outside(self, rows: Any) -> None:
        """Warn once if a point lies outside the box; a memorised table has no box."""
        if "_warned" in self.__dict__ or isinstance(self.formula, Samples):
            return
        if (name := self._ends.outside(rows)) is not None:
            self.__dict__["_warned"] = True
            warnings.warn(f"a value of {name} lies outside the box {self.where}, where nothing is proven", stacklevel=3)

    def _evaluate_tensor(self, points: Points) -> Any:
        import torch

        from transformula.runtime.program.torch_backend import only_numbers

        rows = points.rows.to(getattr(torch, self.weights.dtype))
        module = self._module(str(rows.device))  # always made: inside a transform of torch.func it could not be
        if self.family.program is not None and only_numbers(rows):  # NumPy works in the same memory, in half the time
            values = torch.from_numpy(run_numpy(self.program, rows.detach().numpy(), torch.get_num_threads()))
        else:
            values = module(rows)
        return as_asked(values, points.single, self.sequence)

    @cached_property
    def _modules(self) -> dict[str, torch.nn.Module]:
        return {}

    def _module(self, device: str) -> torch.nn.Module:
        """The program on a device, with fixed numbers: gradients are with respect to the points only."""
        if device not in self._modules:
            self._modules[device] = self.to_torch().to(device).requires_grad_(False)
        return self._modules[device]

    def _points(self, x: Any) -> Points:
        points = as_rows(x, self.weights.inputs, self.sequence)
        if points.extra and "_warned_extra" not in self.__dict__:
            self.__dict__["_warned_extra"] = True
            said = ", ".join(points.extra[:10]) + (", .." if len(points.extra) > 10 else "")
            warnings.warn(f"the model does not use {said}: only {', '.join(self.weights.inputs)}", stacklevel=3)
        return points

    def exact(self, point: Any) -> list[fmpq]:
        """The blocks run on rationals: for a polynomial this equals the formula, with ``==``.

        ``point`` is a sequence of rationals in the order of the box's variables, or a dict by their names.

        Examples
        --------
        >>> import transformula as tf
        >>> from fractions import Fraction
        >>> tf.compile("x - y/3", on="x=0..1, y=0..1").exact({"y": 1, "x": Fraction(1, 2)})
        [1/6]
        """
        return run_exact(self.weights, exact_point(point, self.weights.inputs))

    def trace(self, x: Any) -> NamedTrace:
        """Run the blocks on a few rows and keep everything: residuals by slot, patterns by head.

        Examples
        --------
        >>> import transformula as tf
        >>> seen = tf.compile("sin(x)", on="x=0..1", eps=1e-3).trace([[0.5]])
        >>> seen.residual("y1", token="data").shape, len(seen.attended(most=2))
        ((1,), 2)
        """
        seen = reference.trace(self.weights, as_array(self._points(x).rows))
        return NamedTrace(self.weights.slots, self.token_labels, seen.residuals, seen.patterns, seen.outputs)

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

    def to_torch(self, blocks: bool = False) -> torch.nn.Module:
        """The program as a `torch.nn.Module`, or with ``blocks`` the Transformer as written.

        An in-context model has no program other than its blocks.
        """
        require("to_torch", "torch")
        if blocks or self.family.program is None:
            from transformula.runtime.torch_blocks import TransformerModule

            return TransformerModule(self.weights)
        from transformula.runtime.program.torch_backend import ProgramModule

        return ProgramModule(self.program)

    def to_onnx(self, path: str | Path, blocks: bool = False, unverified: bool = False) -> Path:
        """Write an ONNX file with its claim, which is proven first unless ``unverified``: see docs/export.md.

        It holds the model's program, or with ``blocks`` the Transformer as it is written.
        """
        from transformula.export.onnx_files import onnx_bytes

        path = as_path(path)
        if path != STDOUT and path.suffix != ".onnx":
            raise ExportError(f"an ONNX file is named like model.onnx, not {path.name}")
        if not unverified:
            proven.require_proof(self.packed, self.certificate)
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

    def save(self, folder: str | Path, force: bool = False) -> Path:
        """Write the model folder, whole or not at all.

        A folder that holds a model of the same formula on the same box is replaced, with its exports. One that holds
        another formula's is refused, unless ``force`` is set; one that holds anything else is always refused.
        """
        place = as_path(folder)
        model_folder.write_folder(place, self.contents, force)
        return place

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """Read a model folder. Nothing is executed, and the claim is read but not proven: see verify."""
        folder = as_path(folder)
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
        """The card of a notebook: formula, box, claim, size and a small plot."""
        from transformula.show.card import card

        return card(self)

    def __repr__(self) -> str:
        text = self.formula.words if isinstance(self.formula, Prompts) else str(self.formula)
        shown = text if len(text) <= 60 else text[:57] + "..."
        return (
            f"<transformula model: {shown} on {self.where} | {self.construction}, {self.layers} layer"
            f"{'s'[: self.layers != 1]}, {self.heads} head{'s'[: self.heads != 1]}, "
            f"{self.tokens} token{'s'[: self.tokens != 1]} "
            f"| {self.status} {'' if self.certificate.mean is None else 'mean '}error <= "
            f"{at_most(self.certificate.bound)} ({self.weights.dtype})>"
        )
