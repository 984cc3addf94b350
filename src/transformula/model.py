"""A compiled model: weights, the formula they stand for, and the certificate that binds them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flint import fmpq

from transformula import model_folder, proven
from transformula.errors import ExportError, InputError, ModelFileError, UncertifiedError
from transformula.files import STDOUT, as_path, write_file
from transformula.formula.languages import formula_in
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples, as_array, is_tensor, stored_target
from transformula.internals import NamedTrace
from transformula.kernel.arithmetic import at_most
from transformula.kernel.folder.description import (
    CERTIFICATE_FILE,
    EVIDENCE_FILE,
    MODEL_FILE,
    WEIGHTS_FILE,
    Certificate,
)
from transformula.kernel.folder.model_files import Packed, read_packed, read_text, unpack
from transformula.kernel.syntax.boxes import Formula
from transformula.model_parts import ModelParts
from transformula.optional import require
from transformula.runtime import reference
from transformula.runtime.exact import run_exact
from transformula.runtime.input_rows import Ends, Points, as_asked, as_rows, exact_point
from transformula.runtime.program.numpy_backend import run_numpy

if TYPE_CHECKING:
    import torch

    from transformula.compiler.interventions import Intervention
    from transformula.ground_truth import GroundTruth


@dataclass(frozen=True, eq=False)
class Model(ModelParts):
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

    @cached_property
    def ground_truth(self) -> GroundTruth:
        """Every wire of the circuit: its place, its expression, its range and its proven error."""
        from transformula.ground_truth import ground_truth_of

        return ground_truth_of(self)

    def patch(self, **values: float) -> Intervention:
        """The model with wires, named by their slots, held at numbers, and a proven prediction of its outputs.

        Examples
        --------
        >>> import transformula as tf
        >>> model = tf.compile("exp(x*y)*y", on="x=0..1, y=0..1", eps=1e-3, construction="circuit")
        >>> held = model.patch(w5=2)  # the slot that holds exp(x*y)
        >>> held.formula, bool(abs(held([[0.3, 0.5]])[0] - 2 * 0.5) <= held.certificate.bound)
        (('2*y',), True)
        """
        from transformula.compiler.interventions import patched

        return patched(self, values)

    def ablate(self, block: int, head: int) -> Intervention:
        """The model with the slots that one head writes held at 0; blocks and heads are counted from 0."""
        from transformula.compiler.interventions import ablated

        return ablated(self, block, head)

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

    def to_onnx(
        self,
        path: str | Path,
        blocks: bool = False,
        unverified: bool = False,
        inputs: str = "",
        guard: str = "none",
        bound: bool = False,
    ) -> Path:
        """Write an ONNX file with its claim, which is proven first unless ``unverified``: see docs/export.md.

        It holds the model's program, or with ``blocks`` the Transformer as it is written. ``inputs="named"`` makes one
        input for each variable ("float32" and "named,float32" are others), ``guard="nan"`` or "clip" says what happens
        outside the box, and ``bound=True`` adds an output with the proven bound.
        """
        from transformula.export.onnx_files import onnx_bytes
        from transformula.export.onnx_interface import Interface

        path = as_path(path)
        if path != STDOUT and path.suffix != ".onnx":
            raise ExportError(f"an ONNX file is named like model.onnx, not {path.name}")
        interface = Interface.of(inputs, guard, bound)
        if not unverified:
            proven.require_proof(self.packed, self.certificate)
        data = onnx_bytes(self.packed, self.certificate, blocks=blocks, interface=interface, proven=self.proven)
        write_file(path, data)
        return path

    def to_hf(
        self,
        folder: str | Path,
        arch: str | None = None,
        text: bool = False,
        decimals: int | None = None,
        unverified: bool = False,
        force: bool = False,
    ) -> Path:
        """Write a folder that transformers loads: see docs/export.md. The claim is proven first.

        ``arch`` is t5 (the default), gpt2, llama or transformula (own code, for attention that no stock architecture
        has). With ``text`` it is a gpt2 that reads prompts and prints ``decimals`` digits behind the point: see
        docs/text.md. Of a polynomial, stock architectures compute the circuit of its formula. Needs neither torch nor
        transformers.
        """
        from transformula.compiler.stock_form import circuit_form, is_replaced
        from transformula.export.hf_files import checked_arch, hf_export

        if not unverified:
            proven.require_proof(self.packed, self.certificate)
        place, arch = as_path(folder), checked_arch(self, arch, text)
        stock = circuit_form(self) if is_replaced(self, arch) else self
        model_folder.write_folder(place, hf_export(stock, arch, text, decimals, proven=stock.proven).contents, force)
        return place

    def to_transformer_lens(self) -> Any:
        """The model as GPT-2 in a `TransformerBridge` of transformer-lens 4, its logits the outputs.

        ``bridge.run_with_cache(bridge.embed_points(x))`` runs it at points; hooks are those of GPT-2.
        """
        from transformula.export.runtime_checks import transformer_lens_bridge

        return transformer_lens_bridge(self)

    def to_formula(self, style: str = "text", names: Mapping[str, str] | None = None) -> str | list[str]:
        """The formula in another language.

        Parameters
        ----------
        style : {"text", "python", "latex", "excel", "sql"}
            ``text`` is the formula as it was typed, for `compile`.
        names : mapping, optional
            What variables are called in the other language.

        Returns
        -------
        str, or a list of several outputs.
        """
        if not isinstance(self.formula, Formula):
            raise InputError("a model of samples or prompts has no formula to write")
        return formula_in(self.formula, style, names)

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

    def widget(self, output: int = 0) -> Any:
        """The model at a point, for a notebook: a slider for each variable and bars that add up to the answer.

        Parameters
        ----------
        output : int
            The output to show, counted from 0.
        """
        require("widget", "anywidget")
        from transformula.explorer.point_widget import PointWidget

        return PointWidget(self, output)

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
