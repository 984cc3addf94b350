"""A compiled model: weights, the formula they stand for, and the certificate that binds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import fmpq

from transformula.certificates.checker import stored_shape, stored_target
from transformula.certificates.claim import Certificate
from transformula.errors import ExportError, ModelFileError, PointError, UncertifiedError
from transformula.formulas.boxes import Box
from transformula.formulas.formula import Formula
from transformula.formulas.samples import Samples
from transformula.transformers import files, reference
from transformula.transformers.circuit import CircuitWeights, read_circuit, run_circuit
from transformula.transformers.exact import run_exact
from transformula.transformers.one_layer import TableHead, read_heads, run_one_layer
from transformula.transformers.ridge import Ridge, read_ridge, run_fast, run_fast_torch
from transformula.transformers.weights import Weights

if TYPE_CHECKING:
    from transformula.certificates.replay import ReplayGuide
    from transformula.formulas.circuits import Circuit
    from transformula.inside import NamedTrace, Table
    from transformula.transformers.torch_executor import TransformerModule


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
    formula: Formula | Samples
    weights: Weights
    packed: files.Packed
    certificate: Certificate
    sequence: tuple[int, int] | None = None

    @property
    def box(self) -> Box:
        """Where the certificate holds."""
        return self.formula.box

    @property
    def layers(self) -> int:
        """Number of Transformer blocks."""
        return len(self.weights.blocks)

    @property
    def heads(self) -> int:
        """The most heads in any block."""
        return self.weights.heads

    @property
    def tokens(self) -> int:
        """Length of the sequence."""
        return self.weights.tokens

    @property
    def memory_tokens(self) -> int:
        """Tokens that do not depend on the input."""
        return self.weights.memory_tokens

    @property
    def parameter_count(self) -> int:
        """Numbers that depend on the formula; for a polynomial F, β and b, as Fang counts them."""
        weights = self.weights
        if self.construction == "polynomial":
            beta = weights.tokens * self.degree * weights.outputs
            return weights.tokens * len(weights.inputs) + beta + weights.outputs
        return weights.nonzeros + weights.memory.nonzeros

    @cached_property
    def _circuit(self) -> CircuitWeights:
        return read_circuit(self.weights)

    @cached_property
    def _tables(self) -> tuple[TableHead, ...]:
        return read_heads(self.weights)

    @property
    def degree(self) -> int:
        """Degree of a polynomial model."""
        return max(self._ridge.degree, 1)

    @cached_property
    def _ridge(self) -> Ridge:
        return read_ridge(self.weights)

    def __call__(self, x: Any) -> Any:
        """Evaluate rows of inputs, columns in the order of the box's variables.

        Arrays give arrays, tensors give tensors (differentiable). One formula gives one number a row;
        several give a row of numbers. Outside the box the result is computed, but not certified.
        """
        if type(x).__module__.partition(".")[0] == "torch":
            return self._evaluate_tensor(x)
        try:
            array = np.asarray(x)
        except ValueError:
            raise PointError("expected rows of numbers, got rows of different lengths") from None
        rows, single = self._rows(array)
        if self.construction == "polynomial":
            values = run_fast(self._ridge.fast, rows)
        elif self.construction == "circuit":
            values = run_circuit(self.weights, self._circuit, rows)
        else:
            values = run_one_layer(self.weights, self._tables, rows)
        return _shaped(values, single, self.sequence)

    def _evaluate_tensor(self, x: Any) -> Any:
        import torch

        rows, single = self._rows(x)
        rows = rows.to(getattr(torch, self.weights.dtype))
        if self.construction == "polynomial":
            values = run_fast_torch(self._ridge.fast, rows)
        else:
            values = self.to_torch().to(rows.device)(rows)
        return _shaped(values, single, self.sequence)

    def _rows(self, x: Any) -> tuple[Any, bool]:
        """Samples × inputs, and whether a single point was given."""
        inputs = len(self.weights.inputs)
        if self.sequence is not None and tuple(x.shape[-2:]) == self.sequence:
            x = x.reshape(*x.shape[:-2], inputs)
        if x.ndim == 1 and inputs == 1:
            x = x[:, None]
        single = x.ndim == 1
        rows = x[None, :] if single else x
        if rows.ndim != 2 or rows.shape[1] != inputs:
            names = ", ".join(self.weights.inputs)
            raise PointError(
                f"expected rows of {inputs} numbers ({names}), got an array of shape {tuple(x.shape)}"
            )
        if isinstance(rows, np.ndarray) and rows.dtype.kind not in "fiub":
            try:
                if rows.dtype.kind not in "OSU":
                    raise TypeError
                rows = np.array([[float(v) for v in row] for row in rows])
            except (TypeError, ValueError, OverflowError):
                raise PointError(f"expected numbers, got an array of {rows.dtype}") from None
        return rows, single

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
        """What each token is: data, a position, a direction, or a place in a table."""
        from transformula import inside

        data = "position" if self.sequence else "direction" if self.construction == "polynomial" else "data"
        return inside.token_labels(self.weights, data)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every head's table: function, range, slopes, offsets and values; empty for a polynomial."""
        from transformula import inside

        if self.construction == "polynomial":
            return ()
        if self.construction != "circuit":
            return tuple(inside.layer_tables(self.weights, self._tables, self.formula))
        return tuple(inside.circuit_tables(self.weights, self._circuit, self._functions()))

    @property
    def circuit(self) -> Circuit:
        """The wires of a circuit model, at one position: its formula lowered again as its plan says."""
        return self._replayed[0]

    @cached_property
    def _replayed(self) -> tuple[Circuit, Formula, ReplayGuide]:
        from transformula.certificates.checker import stored_plan
        from transformula.certificates.replay import replay

        assert isinstance(self.formula, Formula), "a circuit computes formulas"
        return replay(self._circuit, self.formula, stored_plan(files.unpack(self.packed)[1]))

    def _functions(self) -> dict[str, tuple[str, tuple[float, float]]]:
        """For every table of a circuit the function of u and the range of u, as its head reads it."""
        from transformula.taylor.box_ranges import BoxRanges

        circuit, formula, guide = self._replayed
        ranges = BoxRanges(formula.box)
        found = {}
        for k, wire in enumerate(circuit.wires):
            if wire.is_table and wire.argument is not None:
                scale = 2.0 ** guide.scales.get(k, (0, 0))[0]
                low, high = ranges.of(wire.argument.meaning)
                found[f"w{k}"] = (str(wire.function), (scale * low, scale * high))
        return found

    def to_torch(self) -> TransformerModule:
        """The blocks as a trainable `torch.nn.Module` with the same weights."""
        from transformula.transformers.torch_executor import TransformerModule

        return TransformerModule(self.weights)

    def to_onnx(self, path: str | Path) -> Path:
        """Write the blocks as an ONNX file, claim included, whole or not at all: see docs/export.md."""
        from transformula.certificates.exported import onnx_bytes

        path = Path(path)
        if path.suffix != ".onnx":
            raise ExportError(f"an ONNX file is named like model.onnx, not {path.name}")
        data = onnx_bytes(self.packed, self.certificate)
        try:
            files.write_file(path, data)
        except OSError as error:
            raise ExportError(f"can not write {path}: {error.strerror or error}") from None
        return path

    def save(self, folder: str | Path) -> Path:
        """Write the model folder, whole or not at all."""
        folder = Path(folder)
        contents: dict[str, bytes | str] = {
            files.WEIGHTS_FILE: self.packed.arrays,
            files.MODEL_FILE: self.packed.description,
            files.CERTIFICATE_FILE: self.certificate.to_json(),
        }
        try:
            files.write_folder(folder, contents)
        except OSError as error:
            raise ModelFileError(f"can not write {folder}: {error.strerror or error}") from None
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """Read a model folder. Nothing is executed, and the claim is read but not checked: see verify."""
        folder = Path(folder)
        certificate = files.read_text(folder, files.CERTIFICATE_FILE)
        try:
            return cls.from_packed(files.read_packed(folder), certificate)
        except UncertifiedError as error:
            raise ModelFileError(f"{folder}: {error}") from None

    @classmethod
    def from_packed(cls, packed: files.Packed, claim: str) -> Model:
        """The model of a folder's contents: its packed weights and the text of its certificate."""
        weights, description = files.unpack(packed)
        certificate = Certificate.from_json(claim)
        if packed.weights_sha256 != certificate.weights_sha256:
            raise UncertifiedError("model.safetensors is not the certified file (sha256 differs)")
        if packed.model_sha256 != certificate.model_sha256:
            raise UncertifiedError("model.json is not the certified file (sha256 differs)")
        formula = stored_target(description)
        if weights.inputs != formula.box.variables or weights.outputs != len(formula.outputs):
            raise UncertifiedError("the weights' inputs or outputs are not those of the formula")
        return cls(
            str(description.get("construction")),
            formula,
            weights,
            packed,
            certificate,
            stored_shape(description, weights),
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: formula, box, claim, size and a small plot."""
        from transformula.viewing.card import card

        return card(self)

    def __repr__(self) -> str:
        text = str(self.formula)
        shown = text if len(text) <= 60 else text[:57] + "..."
        plural = "s" if self.layers != 1 else ""
        return (
            f"<transformula model: {shown} on {self.box} | {self.construction}, {self.layers} "
            f"layer{plural}, {self.heads} head{'s' if self.heads != 1 else ''}, {self.tokens} tokens "
            f"| proven error <= {self.certificate.bound:.3g} ({self.weights.dtype})>"
        )


def _shaped(values: Any, single: bool, shape: tuple[int, int] | None) -> Any:
    if shape is not None:
        values = values.reshape(len(values), *shape)
    elif values.shape[1] == 1:
        values = values[:, 0]
    return values[0] if single else values
