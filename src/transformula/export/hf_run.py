"""Hugging Face folders at work: loaded by transformers and run at points, or booted in TransformerLens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformula.export.hf_files import HfExport, hf_contents, layout_of
from transformula.export.hf_layout import REMOTE, HfLayout
from transformula.export.stock_packing import stock_module
from transformula.files import write_folder
from transformula.formula.sample_target import as_array
from transformula.kernel.folder.weights import FloatArray
from transformula.optional import require
from transformula.runtime.input_rows import as_rows

if TYPE_CHECKING:
    from transformula.model import Model


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
