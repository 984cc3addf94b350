"""The verb export: a model in the formats of other tools, with the measured difference."""

from __future__ import annotations

import copy
import math
import shlex
import warnings
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import numpy as np
import typer

from transformula import model_folder, proven
from transformula.cli.arguments import Folder, Json, loaded
from transformula.cli.hf_facts import Architecture, Decimals, HfOptions, Text, export_hf
from transformula.cli.output import Output, check_stdout, progress_bar
from transformula.coq.coq_files import coq_files
from transformula.errors import ExportError
from transformula.export.hf_files import SOFTMAX
from transformula.export.norm_rounding import Norms, norms_off, prove_normed
from transformula.export.onnx_files import BLOCKS, PROGRAM, onnx_bytes, rounded_entries, status_entry
from transformula.export.onnx_interface import Interface
from transformula.export.parity import largest_difference, measured_parity, sample_points
from transformula.export.runtime_checks import runtime_run
from transformula.export.stock_packing import normed_width, stock_files, stock_module
from transformula.files import STDOUT, write_file
from transformula.kernel.folder.description import WEIGHTS_FILE, add_up
from transformula.learn.columns import read_notes
from transformula.model import Model
from transformula.optional import require
from transformula.runtime.onnx_graph import OPSET, import_onnx, onnx_executor

if TYPE_CHECKING:
    import torch

    from transformula.export.stock_torch import Transformer

_SESSION_OPTIONS = (
    "the default session options are safe, and so is every lower optimisation level and any number of "
    "threads; not covered by the proof: float16 or int8 conversion, and TF32 (use_tf32) on GPUs"
)


Blocks = Annotated[
    bool,
    typer.Option("--blocks", help="onnx: the Transformer blocks as written, instead of the program they reduce to."),
]
Inputs = Annotated[str, typer.Option(help="onnx: named (one input for each variable), float32, or named,float32.")]
Guard = Annotated[str, typer.Option(help="onnx: rows outside the box: none (computed, without a claim), nan or clip.")]
Bound = Annotated[
    bool, typer.Option("--bound", help="onnx: a second output with the proven bound, infinite outside the box.")
]


class ExportFormat(str, Enum):
    """Formats of an export."""

    onnx = "onnx"
    torch = "torch"
    hf = "hf"
    coq = "coq"


def export_command(
    folder: Folder,
    to: Annotated[
        Optional[ExportFormat],
        typer.Option(help="onnx: one file for onnxruntime. torch: plain torch.nn. hf: transformers. coq: a theorem."),
    ] = None,
    check: Annotated[
        Optional[str],
        typer.Option(help="Only measure a runtime: onnxruntime, torch.export, aotinductor or transformers."),
    ] = None,
    out: Annotated[
        Optional[Path],
        typer.Option(
            help="Where to write, - for stdout (onnx); default FOLDER/model.onnx, or FOLDER/torch, /hf or /coq."
        ),
    ] = None,
    arch: Architecture = None,
    text: Text = False,
    decimals: Decimals = None,
    layer_norm: Annotated[
        bool, typer.Option("--layer-norm", help="torch: stock pre-norm layers with LayerNorm in place.")
    ] = False,
    unverified: Annotated[bool, typer.Option("--unverified", help="Skip the proof; the export then says so.")] = False,
    blocks: Blocks = False,
    inputs: Inputs = "",
    guard: Guard = "none",
    bound: Bound = False,
    force: Annotated[
        bool, typer.Option("--force", help="torch, hf: replace the export of another model in that folder.")
    ] = False,
    json: Json = False,
) -> None:
    """Prove a model's claim, write the model for other tools, and measure how far each is from the reference.

    Exit code 1 if the model does not verify; then nothing is written.
    """
    interface = Interface.of(inputs, guard, bound)
    _check_options(to, check, out, layer_norm, blocks)
    if interface != Interface() and to is not ExportFormat.onnx:
        raise ExportError("--inputs, --guard and --bound only apply to --to onnx")
    asked = HfOptions(arch, text, decimals, force)
    asked.check(to is ExportFormat.hf)
    check_stdout(out, json)
    output = Output(json)
    with loaded(folder) as model:
        if not unverified:
            with progress_bar(quiet=json):
                proven.require_proof(model.packed, model.certificate)
        if check is not None:
            run, runtime, rounding = runtime_run(model, check)
            facts = measured_parity(model, run, runtime, rounding)
        elif to is ExportFormat.onnx:
            facts = _export_onnx(model, folder, out, blocks, (inputs, guard, bound))
        elif to is ExportFormat.hf:
            facts = export_hf(model, folder, out, asked)
        elif to is ExportFormat.coq:
            facts = _export_coq(folder, out)
        else:
            facts = _export_torch(model, folder, out, layer_norm, force)
        facts["claim"] = status_entry(model.proven)
    facts["seconds"] = output.seconds
    output.facts(facts, title="exported" if check is None else "measured", aside=out == STDOUT)


def _check_options(
    to: ExportFormat | None, check: str | None, out: Path | None, layer_norm: bool, blocks: bool
) -> None:
    """Refuse options that do not go together."""
    if (to is None) == (check is None):
        raise ExportError("give either --to onnx, torch, hf or coq, or --check RUNTIME")
    if layer_norm and to is not ExportFormat.torch:
        raise ExportError("--layer-norm only applies to --to torch: an ONNX graph has no stock layers to fit into")
    if blocks and to is not ExportFormat.onnx:
        raise ExportError("--blocks only applies to --to onnx: a torch export always contains the blocks as written")
    if out == STDOUT and to is not ExportFormat.onnx:
        raise ExportError("only --to onnx writes one file, which can go to stdout")


def _export_onnx(
    model: Model, folder: Path, out: Path | None, blocks: bool, asked: tuple[str, str, bool]
) -> dict[str, Any]:
    """Measure first: a file that a runtime gets wrong is not written."""
    runtime = import_onnx(runtime=True)
    data = onnx_bytes(model.packed, model.certificate, blocks=blocks, proven=model.proven)
    shape, run = model.sequence, onnx_executor(data)

    def run_rows(rows: Any) -> Any:
        return run(rows if shape is None else rows.reshape(-1, *shape))

    parity = measured_parity(model, run_rows, f"onnxruntime {runtime.__version__}", model.certificate.rounding)
    where = folder / model_folder.ONNX_FILE if out is None else out
    interface = Interface.of(*asked)
    called = {} if interface == Interface() else _interface_facts(model, data, blocks, interface)
    path = model.to_onnx(where, blocks, True, *asked)  # proven above, or not asked for
    inner = [(len(model.weights.inputs),), (model.weights.outputs,)] if shape is None else [shape, shape]
    raw = {} if out is not None or "preparation" not in read_notes(folder) else _export_raw(model, folder)
    ends = [f"{name} (batch, {', '.join(map(str, sizes))})" for name, sizes in zip("xy", inner, strict=True)]
    return {
        "out": path,
        "format": "onnx",
        "graph": BLOCKS if blocks or model.family.program is None else PROGRAM,
        "opset": OPSET,
        "dtype": model.weights.dtype,
        "bytes": len(data),
        "input": ends[0],
        "output": ends[1],
        **called,
        **parity,
        **raw,
        "session_options": _SESSION_OPTIONS,
    }


def _interface_facts(model: Model, data: bytes, blocks: bool, interface: Interface) -> dict[str, Any]:
    """How the file is called; refused if a runtime does not compute the plain graph's values with it."""
    wrapped = onnx_bytes(model.packed, model.certificate, blocks=blocks, interface=interface, proven=model.proven)
    session = import_onnx(runtime=True).InferenceSession(wrapped, providers=["CPUExecutionProvider"])
    given, made = session.get_inputs(), session.get_outputs()
    rows = sample_points(model.formula, model.weights)
    rows = rows.astype("float32") if interface.narrow else rows
    shaped = rows if model.sequence is None else rows.reshape(-1, *model.sequence)
    feed = dict(zip([one.name for one in given], rows.T, strict=True)) if interface.named else {given[0].name: shaped}
    found = session.run([made[0].name], feed)[0]
    ends = np.array(model.box.floats(), dtype=model.weights.dtype).T
    kept = rows.astype(model.weights.dtype)
    kept = kept if interface.guard == "none" else np.clip(kept, *ends)
    wanted = onnx_executor(data)(kept if model.sequence is None else kept.reshape(shaped.shape))
    if not np.allclose(found, wanted, rtol=0, atol=2 * model.certificate.rounding):
        raise ExportError(
            "onnxruntime computes other numbers behind the inputs that were asked for: nothing was written"
        )
    return {
        "bytes": len(wrapped),
        "input": "; ".join(f"{one.name} {_signature(one)}" for one in given),
        "output": "; ".join(f"{one.name} {_signature(one)}" for one in made),
        "guard": interface.guard,
    }


def _signature(one: Any) -> str:
    kind = {"tensor(float)": "float32", "tensor(double)": "float64"}[one.type]
    return f"{kind} ({', '.join(map(str, one.shape))})"


def _export_raw(model: Model, folder: Path) -> dict[str, Any]:
    """The file that takes raw rows of a fitted table, compared with this library on rows of every kind."""
    from transformula.learn.fitted_table import TableModel
    from transformula.learn.raw_onnx import example_rows, raw_inputs, raw_onnx_bytes

    fitted = TableModel.load(folder, model)
    data = raw_onnx_bytes(fitted)
    cells = example_rows(fitted)
    found = import_onnx(runtime=True).InferenceSession(data).run(["y"], raw_inputs(fitted, cells))[0]
    wanted = fitted.rows(cells).outputs
    miss = float(np.abs(np.asarray(found, dtype=float).reshape(wanted.shape) - wanted).max())
    if not miss <= 1e-6 * max(1.0, float(np.abs(wanted).max())):
        raise ExportError(f"onnxruntime computes other numbers from raw rows, by {miss:.3g}: nothing was written")
    path = folder / model_folder.RAW_ONNX_FILE
    write_file(path, data)
    return {"raw": path, "raw_inputs": [column.name for column in fitted.reads.used], "raw_difference": miss}


def _export_coq(folder: Path, out: Path | None) -> dict[str, Any]:
    """Write the theorem; `verify --coq` has it checked."""
    path = folder / model_folder.COQ_FOLDER if out is None else out
    contents = coq_files(folder)
    model_folder.write_folder(path, contents)
    return {
        "out": str(path),
        "format": "coq",
        "files": len(contents),
        "bytes": sum(len(text.encode()) for text in contents.values()),
        "theorem": "certified in Proof.v, of claim in Model.v; not checked by Coq yet",
        "check": f"transformula verify {shlex.quote(str(folder))} --coq",
    }


def _export_torch(model: Model, folder: Path, out: Path | None, layer_norm: bool, force: bool) -> dict[str, Any]:
    require("export --to torch", "torch")
    import torch

    path = folder / model_folder.TORCH_FOLDER if out is None else out
    norms, rounding = _normed(model) if layer_norm else (None, model.certificate.rounding)
    weights = model.weights if norms is None else norms.weights
    module = stock_module(weights, model.sequence, norms)
    asking = model.tokens if layer_norm else None
    runtime = f"torch {torch.__version__.partition('+')[0]}"
    parity = measured_parity(model, _runner(module), runtime, rounding, asking)
    bound = add_up(model.certificate.approximation, rounding)
    claim = rounded_entries(model.packed, model.certificate, rounding, proven=model.proven)
    contents = stock_files(weights, model.sequence, norms, claim)
    model_folder.write_folder(path, contents, force)
    return {
        "out": path,
        "format": "torch",
        "dtype": model.weights.dtype,
        "bytes": len(contents[WEIGHTS_FILE]),
        "attention": _attention(module),
        "layer_norm": "in place, proven harmless" if layer_norm else "none, which is what the weights are made for",
        "use": f"python {shlex.quote(str(path / model_folder.LOADER_FILE))} {_centre(model)}",
        **parity,
        proven.named(model.certificate, "bound"): bound,
        **_losses(model, module, asking),
    }


def _centre(model: Model) -> str:
    """The centre of the box as arguments of load.py."""
    return " ".join(f"{(low + high) / 2:.6g}" for low, high in model.box.floats())


def _normed(model: Model) -> tuple[Norms, float]:
    """How LayerNorm is switched off, and the proven rounding of layers with it."""
    if model.construction not in SOFTMAX:
        raise ExportError(
            f"no stock layer has the attention of a model by {model.construction}: leave --layer-norm out"
        )
    norms = norms_off(model.packed, model.box, centred=True)
    return norms, prove_normed(model.packed, model.box, norms, normed_width(norms.weights)).rounding


def _runner(module: torch.nn.Module, dtype: torch.dtype | None = None) -> Any:
    import torch

    def run(rows: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of oneDNN's switches, which it prints when they are touched
            # oneDNN's kernels for narrow formats end the process on machines that hide AMX from it
            with torch.no_grad(), torch.backends.mkldnn.flags(enabled=dtype is None):
                return module(torch.from_numpy(rows).to(dtype)).double().numpy()

    return run


def _attention(module: Transformer) -> str:
    import torch

    from transformula.export.stock_torch import Scored

    attention = [block.self_attn for block in module.blocks]
    stock = [a for a in attention if isinstance(a, torch.nn.MultiheadAttention)]
    layers = sum(isinstance(block, torch.nn.TransformerEncoderLayer) for block in module.blocks)
    parts = []
    if stock:
        name = "TransformerEncoderLayer" if layers else "MultiheadAttention"
        ending = ", norm_first=True), unmodified" if layers else ")"
        parts.append(f"{len(stock)} x torch.nn.{name}({stock[0].embed_dim}, {stock[0].num_heads}{ending}")
    if len(stock) < len(attention):
        plain = [a for a in attention if isinstance(a, Scored)]
        kind = "hardmax" if plain[0].hard else "linear attention"
        parts.append(f"{len(plain)} x {kind}, written out in load.py: torch.nn has no such attention")
    return ", ".join(parts) or "none"


def _losses(model: Model, module: torch.nn.Module, asking: int | None) -> dict[str, Any]:
    """Measured errors of narrower formats, for which no bound is proven."""
    import torch

    x = sample_points(model.formula, model.weights)
    x = x[:: max(1, len(x) // 250)]  # narrow formats are slow on CPUs
    losses: dict[str, Any] = {}
    for dtype in (torch.float16, torch.bfloat16):
        narrow = copy.deepcopy(module).to(dtype)
        loss = largest_difference(model.weights, x, _runner(narrow, dtype), asking)
        losses[f"{str(dtype).removeprefix('torch.')}_loss"] = loss if math.isfinite(loss) else None
    overflow = [name.removesuffix("_loss") for name, loss in losses.items() if loss is None]
    losses["narrow_formats"] = "measured, not proven" + "".join(f"; {name} overflows" for name in overflow)
    return losses
