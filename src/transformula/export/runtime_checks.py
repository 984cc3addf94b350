"""Installed runtimes: exports run at points, measured against a certificate, or booted in TransformerLens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformula.errors import InputError, brief
from transformula.export.hf_files import HfExport, checked_arch, hf_contents, hf_export, layout_of
from transformula.export.hf_layout import REMOTE, HfLayout
from transformula.export.onnx_files import onnx_bytes
from transformula.export.stock_packing import stock_module
from transformula.files import write_folder
from transformula.formula.sample_target import as_array
from transformula.kernel.folder.weights import FloatArray
from transformula.optional import require
from transformula.runtime.input_rows import as_rows
from transformula.runtime.onnx_graph import import_onnx, onnx_executor

if TYPE_CHECKING:
    from transformula.model import Model
Run = Callable[[Any], Any]

#: Runtimes that are not measured here, and why their results are not what a certificate is about.
LOWERED = {
    "openvino": "computes in bfloat16 or float16 by default, in float32 with the hint INFERENCE_PRECISION_HINT=f32, "
    "and never in float64",
    "tensorrt": "has no float64, and uses TF32 for float32 unless that is switched off",
    "coreml": "computes in float16 on the Neural Engine, in float32 with compute_units=CPU_ONLY, and never in float64",
}


def runtime_run(model: Model, name: str) -> tuple[Run, str, float]:
    """A model in a runtime, the runtime with its version, and the rounding that is proven for it."""
    if name in LOWERED:
        raise InputError(f"{name} {LOWERED[name]}: its results are not covered by the certificate")
    if name not in RUNTIMES:
        known = ", ".join((*RUNTIMES, *LOWERED))
        raise InputError(f"the runtimes that can be checked are {known}, not {brief(name)}")
    return RUNTIMES[name](model)


def _onnxruntime(model: Model) -> tuple[Run, str, float]:
    label = f"onnxruntime {import_onnx(runtime=True).__version__}"
    run, shape = onnx_executor(onnx_bytes(model.packed, model.certificate, proven=model.proven)), model.sequence
    return (lambda rows: run(_shaped(rows, shape))), label, model.certificate.rounding


def _torch_export(model: Model) -> tuple[Run, str, float]:
    import torch

    return _tensors(_exported(model).module()), f"torch.export {torch.__version__}", model.certificate.rounding


def _aot_inductor(model: Model) -> tuple[Run, str, float]:
    exported = _exported(model)
    import torch
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with tempfile.TemporaryDirectory() as place:
        path = aoti_compile_and_package(exported, package_path=str(Path(place) / "model.pt2"))
        return _tensors(aoti_load_package(path)), f"AOTInductor {torch.__version__}", model.certificate.rounding


def _exported(model: Model) -> Any:
    """The program as torch.export records it, for any number of rows."""
    require("a check of torch.export", "torch")
    import torch

    rows = torch.zeros((4, len(model.weights.inputs)), dtype=getattr(torch, model.weights.dtype))
    module = model.to_torch().requires_grad_(False)
    return torch.export.export(module, (rows,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))


def _transformers(model: Model) -> tuple[Run, str, float]:
    require("a check of transformers", "torch", "transformers")
    import transformers

    made = hf_export(model, checked_arch(model, None))
    return hf_runner(model, made), f"transformers {transformers.__version__}", made.rounding


def _tensors(module: Any) -> Run:
    import torch

    return lambda rows: module(torch.from_numpy(rows)).numpy()


def _shaped(rows: Any, shape: tuple[int, int] | None) -> Any:
    return rows if shape is None else rows.reshape(-1, *shape)


RUNTIMES: dict[str, Callable[[Model], tuple[Run, str, float]]] = {
    "onnxruntime": _onnxruntime,
    "torch.export": _torch_export,
    "aotinductor": _aot_inductor,
    "transformers": _transformers,
}


def hf_runner(model: Model, made: HfExport) -> Callable[[FloatArray], FloatArray]:
    """Samples × inputs to samples × outputs by the files of an export, as transformers loads them.

    Code of its own is not loaded: the same blocks of `stock_torch` run instead.
    """
    require("running an export to Hugging Face", "torch", "transformers")
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    layout = made.layout
    assert isinstance(layout, HfLayout)
    if layout.config["model_type"] == REMOTE:
        blocks = stock_module(model.weights)

        def run_blocks(x: FloatArray) -> FloatArray:
            with torch.no_grad():
                found: FloatArray = blocks(torch.from_numpy(x)).numpy()
            return found

        return run_blocks
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "hf"
        write_folder(folder, made.contents, lambda _: "")
        module = getattr(transformers, layout.loader).from_pretrained(folder, local_files_only=True).eval()
    causal = {"position_ids": 0, "attention_mask": 1} if layout.config["model_type"] == "llama" else {}

    def run(x: FloatArray) -> FloatArray:
        embeds = torch.from_numpy(layout.embed(x))
        beside = {name: torch.full(embeds.shape[:2], value, dtype=torch.long) for name, value in causal.items()}
        with torch.no_grad():
            return layout.read_out(module(inputs_embeds=embeds, **beside).logits.numpy())

    return run


def transformer_lens_bridge(model: Model) -> Any:
    """A `TransformerBridge` of the model as GPT-2, with ``embed_points`` that turns points into its input.

    Its logits at the last token are the outputs.
    """
    require("to_transformer_lens", "torch", "transformers", "transformer_lens")
    import torch
    from transformer_lens.model_bridge import TransformerBridge

    layout = layout_of(model, "gpt2")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "hf"
        contents = hf_contents(model, "gpt2", model.certificate.rounding, proven=False)
        write_folder(folder, contents, lambda _: "")
        bridge = TransformerBridge.boot_transformers(str(folder), dtype=getattr(torch, model.weights.dtype))

    def embed_points(x: Any) -> torch.Tensor:
        rows = as_array(as_rows(x, model.weights.inputs, model.sequence).rows)
        return torch.from_numpy(layout.embed(rows.astype(model.weights.dtype)))

    bridge.embed_points = embed_points
    return bridge
