"""Installed runtimes measured against a certificate, and those that are known to lower the precision."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformula.errors import InputError, brief
from transformula.export.hf_files import checked_arch, hf_export
from transformula.export.hf_run import hf_runner
from transformula.export.onnx_files import onnx_bytes
from transformula.optional import require
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
