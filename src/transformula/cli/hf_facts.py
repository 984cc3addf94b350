"""The export to transformers (`export --to hf`), with ``--text`` of a model that reads prompts and prints digits."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from transformula import model_folder, proven
from transformula.compiler.stock_form import stock_form
from transformula.errors import ExportError, NotProvenError
from transformula.export.hf_files import HfExport, checked_arch, hf_arch, hf_differences, hf_export
from transformula.export.parity import measured_parity
from transformula.export.runtime_checks import hf_runner
from transformula.export.text_layout import TextLayout
from transformula.kernel.folder.description import WEIGHTS_FILE
from transformula.model import Model

Architecture = Annotated[
    Optional[str], typer.Option(help="hf: t5 (the default), gpt2, llama (float32 only) or transformula (own code).")
]
Text = Annotated[bool, typer.Option("--text", help="hf, gpt2: with a tokenizer, to read prompts and print digits.")]
Decimals = Annotated[Optional[int], typer.Option(help="text: decimals of an answer; default as many as are proven.")]


@dataclass(frozen=True)
class HfOptions:
    """Options of the export to transformers."""

    arch: str | None
    text: bool
    decimals: int | None
    force: bool

    def check(self, is_hf: bool) -> None:
        """Refuse them where they do not apply."""
        for option, given in (("--arch", self.arch is not None), ("--text", self.text)):
            if given and not is_hf:
                raise ExportError(f"{option} only applies to --to hf")


def export_hf(model: Model, folder: Path, out: Path | None, asked: HfOptions) -> dict[str, Any]:
    """Measure first where transformers is installed; writing needs neither that nor torch."""
    path = folder / model_folder.HF_FOLDER if out is None else out
    arch = checked_arch(model, asked.arch, asked.text)
    model, held = stock_form(model, folder, arch)
    made = hf_export(model, arch, asked.text, asked.decimals, proven=model.proven)
    facts = _text_facts(made, path) if asked.text else _facts(model, made, path)
    if held != folder:
        model.save(held, force=True)
    model_folder.write_folder(path, made.contents, asked.force)
    shown = {"circuit": held} if held != folder else {}
    check = f"transformula verify {shlex.quote(str(folder))} --hf {shlex.quote(str(path))}"
    return {"out": path, "format": "hf", **facts, **shown, "check": check}


def hf_reasons(model: Model, folder: Path, path: Path) -> tuple[str, ...]:
    """Reasons why a folder of transformers is not the verified model of a folder; empty if it is."""
    try:
        stock, _ = stock_form(model, folder, hf_arch(path))
    except (ExportError, NotProvenError) as error:
        return (f"{model_folder.HF_CONFIG}: {error}",)
    return hf_differences(stock, path)


def _facts(model: Model, made: HfExport, path: Path) -> dict[str, Any]:
    measured: dict[str, Any] = {"runtime": "transformers is not installed: nothing was measured"}
    if find_spec("transformers") is not None and find_spec("torch") is not None:
        runtime = f"transformers {version('transformers')}"
        measured = measured_parity(model, hf_runner(model, made), runtime, made.rounding, model.tokens)
    assert not isinstance(made.layout, TextLayout)
    return {
        "architecture": made.layout.config["architectures"][0],
        "dtype": model.weights.dtype,
        "bytes": sum(len(data) for data in made.contents.values()),
        "parameters": sum(array.size for array in made.layout.state.values()),
        "use": f"{made.layout.loader}.from_pretrained({str(path)!r}); the call is in {path / model_folder.HF_CARD}",
        **measured,
        proven.named(model.certificate, "rounding"): made.rounding,
        proven.named(model.certificate, "bound"): made.bound,
    }


def _text_facts(made: HfExport, path: Path) -> dict[str, Any]:
    assert isinstance(made.layout, TextLayout)
    grammar = made.layout.grammar
    return {
        "architecture": "GPT2LMHeadModel, with its tokenizer",
        "dtype": "float64",
        "layers": len(made.layout.blocks),
        "bytes": len(made.contents[WEIGHTS_FILE]),
        "prompt": grammar.stated()["prompt"],
        "number": grammar.stated()["number"],
        "decimals": grammar.places,
        "half_unit": float(made.layout.half),
        "bound": made.bound,
        "use": f'pipeline("text-generation", model={str(path)!r})',
    }
